"""A device whose consumer writes each message into a table, and dies while it does.

Each of its runs is a process, which dies when it comes to a given place for the n-th
time. The next run knows only what is on disk.
"""

import asyncio
from pathlib import Path

from slixmpp import ClientXMPP, Message

from crash_device import die
from qos import Handover
from qos.core.message.effects import Answer
from qos.core.message.receiver_table import Request
from qos.stores import SqliteStore
from xep_qos import XEP_QOS

__all__ = ["PLACES", "Death", "run"]

#: In the handler; in the thread that is about to commit; and when everything is on disk
#: but the sender has not been told.
PLACES = ("begun", "written", "commit", "answer")


class Death:
    """Ends the process when it comes to a place for the n-th time."""

    def __init__(self, place: str, times: int) -> None:
        self._place, self._times = place, times

    def at(self, place: str) -> None:
        """The process has come to this place."""
        if place == self._place:
            self._times -= 1
            if self._times == 0:
                die()


async def live(host: str, port: int, password: str, path: Path, death: Death) -> None:
    """Take messages until it dies, or its parent closes its stdin."""
    store = SqliteStore(path)
    client = ClientXMPP(
        "bob@localhost/device",
        password,
        plugin_config={"feature_mechanisms": {"unencrypted_plain": True}},
    )
    client.enable_plaintext = True
    client.enable_starttls = client.enable_direct_tls = False
    options = {"store": store, "trust": "anyone", "retry_first_s": 0.2}
    client.register_plugin("xep_qos", options)
    qos = XEP_QOS.of(client)
    store.probe = death.at
    tell = qos._endpoint.answer

    def tell_or_die(request: Request, answer: Answer) -> None:
        if answer.kind == "result":
            death.at("answer")
        tell(request, answer)

    qos._endpoint.answer = tell_or_die  # type: ignore[method-assign]

    @qos.consumer(max_handovers=1000)
    async def take(message: Message, handover: Handover) -> None:
        death.at("begun")
        await handover.execute("CREATE TABLE IF NOT EXISTS took (body TEXT)")
        await handover.execute("INSERT INTO took VALUES (?)", (message["body"],))
        death.at("written")

    client.loop.add_reader(0, die)
    client.connect(host, port)
    await asyncio.Event().wait()


def run(host: str, port: int, password: str, path: Path, death: Death) -> int:
    """Be such a process."""
    asyncio.run(live(host, port, password, path, death))
    return 0
