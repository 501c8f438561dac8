"""A held message, and the methods that the inbox calls for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from qos.core.message.effects import Answer, Report
from qos.core.message.model import Incoming, IncomingState
from qos.core.message.receiver_table import ReceiverInput, Request
from qos.core.record import record
from qos.engine.consuming import Consumption
from qos.stores.base import Transaction

__all__ = ["Arrival", "HeldMessage", "InboxPort", "Unasked"]


class InboxPort(Protocol):
    """The methods that the inbox needs of the connection."""

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer the iq. The port drops it when there is no session."""

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | bool:
        """Hand the message to the application. Never raises.

        Returns:
            Whether a handler has taken it. Or a future, if a handler has it in hand and
            will report later when it is taken. If the future fails with a
            RemoteProtocolError, the application has rejected the message. If it fails
            otherwise, the message is handed over again after a restart.
        """

    def consumption(self, record: Incoming) -> Consumption | None:
        """How the message is consumed; None: by no consumer. Never raises."""

    def report(self, source: str, report: Report) -> None:
        """Log a refusal or an abuse by this full JID."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""

    def new_id(self) -> str:
        """128 random bits as text; never the same twice."""


@record(frozen=True, slots=True)
class Arrival:
    """A request, and whether its sender is trusted."""

    request: Request
    trusted: bool
    why: str

    def waiting(self) -> Arrival:
        """See Request.waiting."""
        return Arrival(self.request.waiting(), self.trusted, self.why)


class HeldMessage:
    """The message held under one key, and the inputs that it has still to take."""

    __slots__ = (
        "account",
        "busy",
        "consumption",
        "deferred",
        "failed",
        "inputs",
        "key",
        "record",
        "transaction",
        "written",
    )

    def __init__(self, key: str, account: str, record: Incoming | None) -> None:
        self.key = key
        #: Of its sender: it counts towards the quotas of this account.
        self.account = account
        self.record = record
        #: Whether effects are being performed. Inputs that come meanwhile wait in
        #: inputs.
        self.busy = False
        self.inputs: deque[ReceiverInput | Arrival] = deque()
        #: The latest write of this message.
        self.written: asyncio.Future[None] | None = None
        #: Requests to be answered when the hand-over is done.
        self.deferred: list[Arrival] = []
        #: The handler could not take the message: nothing more happens before a
        #: restart.
        self.failed = False
        #: During a hand-over to a consumer: its terms, and the writes of its handler.
        self.consumption: Consumption | None = None
        self.transaction: Transaction | None = None

    def repeats(self) -> list[Arrival]:
        """Take the requests that wait for the end of the message.

        At level acknowledged there is no request but the one that brought it.
        """
        if not self.deferred and not self.inputs:
            return []
        waiting = [arrival for arrival in self.inputs if isinstance(arrival, Arrival)]
        for arrival in waiting:
            self.inputs.remove(arrival)
        repeats, self.deferred = self.deferred + waiting, []
        return repeats

    def as_it_waits(self, arrival: Arrival) -> Arrival:
        """A request in the form in which it waits while the message is busy.

        A repeated offer of a known message is answered without its payload. But an id
        may be used again: if the offer may be a new message, once this one is gone, the
        first that waits keeps its payload.
        """
        record = self.record
        goes = record is None or record.state.ended
        if record is not None and record.state is IncomingState.RELEASING:
            goes = not record.mark
        waiting = (*self.deferred, *self.inputs)
        payloads = (
            isinstance(entry, Arrival) and entry.request.payload for entry in waiting
        )
        return arrival if goes and not any(payloads) else arrival.waiting()


class Unasked:
    """The messages that have ended without a request, until their senders ask for them.

    After a restart a message is handed over again before its sender asks for it. The
    sender asks when it notices that we are back, and does not know before that it has
    arrived.

    Attributes:
        keys: their keys. Look here before a call: mostly there are none.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._none: asyncio.Future[None] | None = None

    def add(self, key: str) -> None:
        """Note that a message has ended for which nobody has asked."""
        self.keys.add(key)

    def discard(self, key: str) -> None:
        """Note that the sender has its answer, or that the end is forgotten."""
        self.keys.discard(key)
        if self._none is not None and not self.keys and not self._none.done():
            self._none.set_result(None)

    async def none(self, within_s: float) -> bool:
        """Wait until there are none; at most so many seconds.

        Returns:
            Whether there are none.
        """
        if self.keys:
            self._none = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._none,), timeout=within_s)
        return not self.keys
