"""An inbox on a slow store, with its clock and a port that records its calls."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Literal

from qos.core.message.effects import Answer, Report
from qos.core.message.model import Incoming
from qos.core.message.receiver_table import Request
from qos.engine import Consumption, Inbox, InboxLimits
from qos.testing.clock import ManualClock
from simulation.disks import COMMIT_S
from two_ends import settle, slow_store

SOURCE = "door@example.org/1"
PAYLOAD = "<message xmlns='jabber:client'><body>one</body></message>"


def request(
    kind: Literal["acknowledged", "assured", "deliver"] = "assured",
    *,
    msg_id: str = "m1",
    mark: str = "sender-store",
    hold: str = "",
) -> Request:
    payload = "" if kind == "deliver" else PAYLOAD
    return Request(
        kind=kind,
        iq_id=f"iq-{kind}-{msg_id}",
        source=SOURCE,
        to="counter@example.org/1",
        namespace="urn:xmpp:qos",
        msg_id="" if kind == "acknowledged" else msg_id,
        payload=payload,
        size=len(payload),
        mark=mark,
        hold=hold,
    )


class Port:
    """Records answers and hand-overs, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.answers: list[Answer] = []
        self.handed: list[Incoming] = []
        #: A future that resolves when a hand-over is taken; None: taken at once.
        self.until: asyncio.Future[None] | None = None
        #: Whether the application takes messages.
        self.takes = True
        #: The consumption of a message.
        self.consume: Callable[[Incoming], Consumption | None] | None = None
        self._ids = itertools.count()

    def answer(self, request: Request, answer: Answer) -> None:
        self.events.append((answer.kind, answer.condition or request.kind))
        self.answers.append(answer)

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | bool:
        self.events.append(("hand over", record.msg_id))
        self.handed.append(record)
        return self.until if self.until is not None else self.takes

    def report(self, source: str, report: Report) -> None:
        self.events.append(("report", report.condition))

    def consumption(self, record: Incoming) -> Consumption | None:
        return self.consume(record) if self.consume is not None else None

    def jitter(self) -> float:
        return 0.0

    def new_id(self) -> str:
        return f"token{next(self._ids)}"


class Bench:
    """An inbox on a slow store, with its clock and its port."""

    def __init__(self, limits: InboxLimits) -> None:
        self.clock = ManualClock(1000.0)
        self.store = slow_store(self.clock, "receiver-store")
        self.port = Port()
        self.limits = limits
        self.inbox = self.start()

    def start(self) -> Inbox:
        return Inbox(
            self.store,
            self.store.open(),
            self.port,
            clock=self.clock,
            limits=self.limits,
        )

    async def commit(self, times: int = 3) -> None:
        for _ in range(times):
            await settle()
            self.clock.advance(COMMIT_S)
        await settle()

    async def take(self, taken: Request, *, trusted: bool = True) -> Answer | None:
        before = len(self.port.answers)
        self.inbox.request(taken, trusted=trusted)
        await self.commit()
        return self.port.answers[-1] if len(self.port.answers) > before else None

    def restart(self) -> None:
        self.inbox.stop()
        self.store = self.store.kill()
        self.inbox = self.start()
        self.inbox.restart()
