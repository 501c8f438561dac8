"""Counts people through two doors by assured messages: each person exactly once.

The link loses and duplicates stanzas, and cuts connections.
"""

import asyncio
import logging
from datetime import UTC, datetime

from slixmpp import ClientXMPP
from slixmpp.stanza import Message

from qos.testing import Link, friends, logged_in
from xep_0337 import XEP_0337, LogEvent
from xep_qos import XEP_QOS

COUNTER = "counter@localhost/1"
OPTIONS = {"xep_qos": {"retry_first_s": 0.2}, "xep_0337": {}}
ENTERED, LEFT = 30, 18


class Counter:
    """The number of people inside."""

    def __init__(self, xmpp: ClientXMPP) -> None:
        self.inside = 0
        self._events = XEP_0337.of(xmpp)
        xmpp.add_event_handler("event_log", self.on_event)

    def on_event(self, message: Message) -> None:
        for event in self._events.parse(message):
            self.inside += {"Entered": 1, "Left": -1}.get(event.id or "", 0)


async def door(xmpp: ClientXMPP, event_id: str, people: int) -> None:
    """Report each person who goes through; the reports do not wait for each other."""
    qos, events = XEP_QOS.of(xmpp), XEP_0337.of(xmpp)
    deliveries = []
    for _ in range(people):
        event = LogEvent(f"{event_id}.", datetime.now(UTC), id=event_id)
        deliveries.append(await qos.submit(events.make_message(COUNTER, event)))
    for delivery in deliveries:
        (await delivery.outcome()).raise_for_status()


async def main() -> None:
    async with (
        friends("entrance", "exit", "counter") as server,
        logged_in(server, "counter/1", OPTIONS) as counter_device,
        logged_in(server, "entrance/1", OPTIONS) as entrance,
        logged_in(server, "exit/1", OPTIONS) as exit_,
    ):
        counter = Counter(counter_device)
        server.link = Link(seed=7, loss=0.1, duplicate=0.1, cut=0.05)
        await asyncio.gather(
            door(entrance, "Entered", ENTERED), door(exit_, "Left", LEFT)
        )
        print(f"{ENTERED} entered, {LEFT} left, {counter.inside} inside")
        print("the link:", server.link.counts)


if __name__ == "__main__":
    # slixmpp logs an error when a connection is cut while it writes.
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    asyncio.run(main())
