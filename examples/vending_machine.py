"""Sells drinks by assured messages: each sale changes books and stock exactly once.

The consumer of the machine fails at times, and the machine is switched off in the
middle of a sale. The writes of that sale are undone then, and done when the machine is
on again.
"""

import asyncio
import logging
import sqlite3
import tempfile
from pathlib import Path

from slixmpp import ClientXMPP
from slixmpp.stanza import Message

from qos import Handover
from qos.testing import friends, logged_in
from xep_qos import XEP_QOS

SALES = 20
TABLES = (
    "CREATE TABLE IF NOT EXISTS sale (customer TEXT, drink TEXT)",
    "CREATE TABLE IF NOT EXISTS stock (drink TEXT PRIMARY KEY, cans INTEGER)",
    "INSERT OR IGNORE INTO stock VALUES ('tea', 100)",
)


class Machine:
    """One run of the machine, from switching it on to switching it off."""

    def __init__(self, *, sales: int) -> None:
        self.off = asyncio.Event()
        self._sales = sales

    def start(self, xmpp: ClientXMPP) -> None:
        XEP_QOS.of(xmpp).consumer(retry_first_s=0.05)(self.sell)

    async def sell(self, message: Message, handover: Handover) -> None:
        for statement in TABLES:
            await handover.execute(statement)
        customer, drink = str(message["from"].user), message["body"]
        await handover.execute("INSERT INTO sale VALUES (?, ?)", (customer, drink))
        if handover.count == 1 and self._sales % 3 == 0:
            self._sales -= 1
            raise RuntimeError("the can is stuck")
        await handover.execute(
            "UPDATE stock SET cans = cans - 1 WHERE drink = ?", (drink,)
        )
        self._sales -= 1
        if self._sales < 0:
            self.off.set()
            await asyncio.Event().wait()  # until the power goes


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        books = Path(folder) / "machine.db"
        options = {"xep_qos": {"store": f"sqlite:{books}", "retry_first_s": 0.2}}
        short = {"xep_qos": {"retry_first_s": 0.2}}
        async with (
            friends("customer", "machine") as server,
            logged_in(server, "customer/phone", short) as customer,
        ):
            qos = XEP_QOS.of(customer)
            deliveries = [
                await qos.submit(customer.make_message("machine@localhost/1", "tea"))
                for _ in range(SALES)
            ]
            first, second = Machine(sales=8), Machine(sales=1000)
            jid = "machine/1"
            async with logged_in(server, jid, options, prepare=first.start):
                await first.off.wait()
            print("the machine is switched off in the middle of a sale")
            async with logged_in(server, jid, options, prepare=second.start):
                outcomes = [await each.outcome() for each in deliveries]
        for outcome in outcomes:
            outcome.raise_for_status()
        db = sqlite3.connect(books)
        ((sold,),) = db.execute("SELECT COUNT(*) FROM sale")
        ((cans,),) = db.execute("SELECT cans FROM stock")
        db.close()
        print(f"{SALES} ordered, {sold} sold, {100 - cans} cans out of the machine")


if __name__ == "__main__":
    # The machine logs each time that the can is stuck.
    logging.getLogger("qos").setLevel(logging.CRITICAL)
    asyncio.run(main())
