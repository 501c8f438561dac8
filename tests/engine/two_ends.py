"""A sender and a receiver without XML: engines, stores, a bad network.

Virtual time, one thread, one seed. A killed process loses what it has not committed;
what it has sent is still in flight.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from qos.core.backoff import Backoff
from qos.core.message.effects import Answer, Report, Transmit
from qos.core.message.model import Incoming, Level, Outgoing, OutgoingState, Route
from qos.core.message.receiver_table import Request
from qos.engine import Delivery, Inbox, InboxLimits, Outbox, OutboxLimits
from qos.errors import StoreFull
from qos.testing.clock import ManualClock
from qos.testing.link import Link
from simulation.disks import COMMIT_S, MessageDisk, SimulatedStore
from simulation.endpoints import reply_to, request_of

SENDER = "controller@example.org/1"
RECEIVER = "lamp@example.org/1"


async def settle() -> None:
    """Run everything that is ready, and everything that this makes ready."""
    for _ in range(8):
        await asyncio.sleep(0)


def slow_store(clock: ManualClock, store_id: str) -> SimulatedStore:
    """A store that takes its time, and loses the commit during which it is killed."""
    return SimulatedStore(MessageDisk("end", store_id), clock)


@dataclass
class Alive:
    """A flag: the process that a callback belongs to is still running."""

    value: bool = True


class World:
    """One sender, one receiver, and what happened to each message."""

    def __init__(
        self, seed: int, *, link: Link, limits: InboxLimits | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(1_000_000.0)
        self.link = link
        self.limits = limits or InboxLimits(hold_ttl_s=30.0)
        self.sender_store = slow_store(self.clock, "store-of-sender")
        self.receiver_store = slow_store(self.clock, "store-of-receiver")
        self.ids = itertools.count()
        self.handed: list[tuple[str, bool]] = []
        self.outcomes: dict[str, OutgoingState] = {}
        self.levels: dict[str, Level] = {}
        self.events: Counter[str] = Counter()
        self.epoch = 0
        self.start_sender()
        self.start_receiver()

    # -- the two processes -------------------------------------------------

    def start_sender(self) -> None:
        self.sender_alive = Alive()
        self.outbox = Outbox(
            self.sender_store,
            self.sender_store.open(),
            _SenderPort(self, self.sender_alive),
            clock=self.clock,
            backoff=Backoff(first_s=1.0, max_s=8.0),
            limits=OutboxLimits(),
        )
        self.watching = [
            self.outbox.delivery(record.msg_id)
            for record in self.sender_store.outgoing()
        ]
        self.outbox.session_started(SENDER)

    def start_receiver(self) -> None:
        self.receiver_alive = Alive()
        self.inbox = Inbox(
            self.receiver_store,
            self.receiver_store.open(),
            _ReceiverPort(self, self.receiver_alive),
            clock=self.clock,
            limits=self.limits,
        )
        self.inbox.restart()

    def kill_sender(self) -> None:
        self.collect()
        self.events["sender killed"] += 1
        self.sender_alive.value = False
        self.outbox.stop()
        self.sender_store = self.sender_store.kill()
        self.start_sender()

    def kill_receiver(self) -> None:
        self.events["receiver killed"] += 1
        self.receiver_alive.value = False
        self.inbox.stop()
        self.receiver_store = self.receiver_store.kill()
        self.start_receiver()

    def wipe_receiver(self) -> None:
        """Give the receiver an empty disk, and so another store id."""
        self.kill_receiver()
        self.events["receiver wiped"] += 1
        self.inbox.stop()
        self.receiver_store.kill()
        store_id = f"store-of-receiver-{self.events['receiver wiped']}"
        self.receiver_store = slow_store(self.clock, store_id)
        self.start_receiver()

    def soon(self, strike: Callable[[], None]) -> None:
        """Strike at a time between any two events."""
        self.clock.call_at(self.clock.now() + self.random.uniform(0, 0.1), strike)

    def reconnect(self) -> None:
        """Cut the connection: everything in flight is lost."""
        self.events["cut"] += 1
        self.epoch += 1
        self.outbox.session_lost()
        self.outbox.session_started(SENDER)

    # -- the network -------------------------------------------------------

    def carry(self, arrive: Callable[[], None]) -> None:
        fate = self.link.fate()
        epoch = self.epoch

        def arrived() -> None:
            if epoch == self.epoch:
                arrive()

        for _ in range(fate.copies):
            self.clock.call_at(self.clock.now() + 0.01 + fate.delay_s, arrived)
        if fate.cut:
            self.clock.call_at(self.clock.now() + 0.01, self.reconnect)

    # -- the applications --------------------------------------------------

    async def submit(
        self,
        number: int,
        *,
        level: Level = Level.ASSURED,
        ordered: bool = False,
        deadline_s: float | None = None,
    ) -> Delivery | None:
        task = asyncio.ensure_future(
            self.outbox.submit(
                RECEIVER,
                f"<message xmlns='jabber:client'><body>{number}</body></message>",
                level=level,
                ordered=ordered,
                deadline_s=deadline_s,
            )
        )
        for _ in range(20):
            await settle()
            if task.done():
                break
            self.clock.advance(COMMIT_S)
        if not task.done():  # its process was killed meanwhile
            task.cancel()
            return None
        try:
            delivery = task.result()
        except StoreFull:
            return None
        self.watching.append(delivery)
        self.levels[delivery.msg_id] = level
        return delivery

    async def run(self, seconds: float, *, step_s: float = 0.02) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(step_s)
            await settle()
            self.collect()

    def collect(self) -> None:
        """Record the known outcomes; none may ever change."""
        for delivery in self.watching:
            if delivery.ended:
                assert delivery._outcome is not None
                self.outcomes.setdefault(delivery.msg_id, delivery._outcome.status)
        self.watching = [one for one in self.watching if not one.ended]

    def close(self) -> None:
        self.outbox.stop()
        self.inbox.stop()


class _SenderPort:
    def __init__(self, world: World, alive: Alive) -> None:
        self._world = world
        self._alive = alive

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to, marked=True)

    def transmit(self, transmit: Transmit) -> bool:
        world = self._world
        if not self._alive.value:
            return True
        mark = world.sender_store.store_id
        request = request_of(transmit, source=SENDER, mark=mark)
        world.carry(lambda: world.inbox.request(request, trusted=True))
        return True

    def ping(self) -> bool:
        world = self._world
        if self._alive.value:
            world.carry(lambda: world.outbox.in_flight.answered_ping())
        return True

    def new_id(self) -> str:
        return f"id{next(self._world.ids)}"

    new_msg_id = new_id

    def jitter(self) -> float:
        return self._world.random.random()


class _ReceiverPort:
    def __init__(self, world: World, alive: Alive) -> None:
        self._world = world
        self._alive = alive

    def answer(self, request: Request, answer: Answer) -> None:
        if not self._alive.value:
            return
        reply = reply_to(request, answer)
        self._world.carry(lambda: self._world.outbox.in_flight.reply(reply))

    def consumption(self, record: Incoming) -> None:
        """None: no message has a consumer."""

    def jitter(self) -> float:
        return self._world.random.random()

    def hand_over(self, record: Incoming) -> bool:
        assert self._alive.value
        number = record.payload.partition("<body>")[2].partition("<")[0]
        self._world.handed.append((number, record.redelivered))
        return True

    def report(self, source: str, report: Report) -> None:
        self._world.events[report.condition or "unknown"] += 1

    def new_id(self) -> str:
        return f"token{next(self._world.ids)}"
