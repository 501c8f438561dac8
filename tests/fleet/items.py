"""Items of the queue of a made-up fleet: the lines of the service and its workers.

Written only from the documented schema of the journal: it imports nothing of the
product.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

from nodes import SECOND, Away, Node

__all__ = ["ItemTraffic"]


class ItemTraffic:
    """Items of two queues of a service."""

    def __init__(
        self,
        chance: random.Random,
        service: Node,
        workers: Sequence[Node],
        publisher: Node,
        shifts: Sequence[tuple[int, int]],
    ) -> None:
        self._chance = chance
        self._service = service
        self._workers = workers
        self._publisher = publisher
        self._shifts = shifts
        self._count = 0

    def item(self) -> None:
        """An item, from its publication to its end, or until the fleet rests."""
        self._count += 1
        item = {"queue": self._chance.choice(("jobs", "reports"))}
        item["item"] = f"i{self._count}"
        begin, end = self._chance.choice(self._shifts)
        time = self._chance.randint(begin, end)
        size = self._chance.randint(1, 5000)
        source = self._publisher.jid
        with suppress(Away):
            # An id may be used again once the item has ended.
            for _ in range(self._chance.choice((1, 1, 1, 2))):
                time = self._notes(time, "published", item, source=source, bytes=size)
                # It may wait for days.
                time += self._delay(self._chance.choice((5, 600, 90_000)))
                time = self._deliver(time, item) + self._delay(600)

    def _deliver(self, time: int, item: dict[str, str]) -> int:
        """Deliver it to workers until it ends; returns the time of its end."""
        if self._chance.random() < 0.1:
            event = self._chance.choice(("withdrawn", "purged", "expired"))
            return self._notes(time, event, item)
        for attempt in range(1, 5):
            worker = self._chance.choice(self._workers)
            time = worker.running(time)
            time = self._notes(time, "acquired", item, to=worker.jid, attempt=attempt)
            began = worker.boot_at(worker.running(time + self._delay(1)))
            more: dict[str, str | int] = {**item, "source": self._service.jid}
            time = worker.note(
                time + self._delay(1), "worker", "started", **more, attempt=attempt
            )
            end = self._chance.choice(("accepted", "accepted", "released", "modified"))
            time = worker.running(time + self._delay(120))
            if worker.boot_at(time) is not began:
                end = self._chance.choice(("timed-out", "gone"))
            else:
                worker.note(time, "worker", end, **more)
            time = self._notes(time + self._delay(1), end, item, source=worker.jid)
            if end == "accepted":
                return time
            time += self._delay(60)
        time = self._notes(time, "dead", item, condition="failed")
        if self._chance.random() < 0.5:
            time = self._notes(time + self._delay(600), "requeued", item)
            time = self._notes(time + self._delay(60), "withdrawn", item)
        return time

    def _notes(
        self, time: int, event: str, item: dict[str, str], **more: str | int
    ) -> int:
        return self._service.note(time, "queue", event, **item, **more)

    def _delay(self, most_s: float) -> int:
        return self._chance.randint(1000, 1000 + round(most_s * SECOND))
