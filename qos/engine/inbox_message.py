"""A message that is held, and whom the inbox deals with about it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from qos.core.message.effects import Answer, Report
from qos.core.message.model import Incoming, IncomingState
from qos.core.message.receiver_table import ReceiverInput, Request
from qos.engine.consuming import Consumption
from qos.stores.base import Transaction

__all__ = ["Arrival", "HeldMessage", "InboxPort"]


class InboxPort(Protocol):
    """The methods that the inbox asks of the connection."""

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer the iq. The port drops it when there is no session."""

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | bool:
        """Feed the message to the application. Never raises.

        Returns:
            Whether somebody has taken it; or a future, if somebody has it in hand and
            says later when it is taken. If the future fails with a RemoteProtocolError,
            the application has rejected the message; if it fails otherwise, the message
            is handed over again after a restart.
        """

    def consumption(self, record: Incoming) -> Consumption | None:
        """How it is consumed; None: it is handed over to no consumer. Never raises."""

    def report(self, source: str, report: Report) -> None:
        """Log a refusal or an abuse by this full JID."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""

    def new_id(self) -> str:
        """128 random bits as text, never given before."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, and what is thought of its sender."""

    request: Request
    trusted: bool
    why: str

    def waiting(self) -> Arrival:
        """See Request.waiting."""
        return Arrival(self.request.waiting(), self.trusted, self.why)


class HeldMessage:
    """The message that is held under one key, and the inputs that it still has to take."""

    __slots__ = (
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

    def __init__(self, key: str, record: Incoming | None) -> None:
        self.key = key
        self.record = record
        #: Effects are being performed: what happens meanwhile waits in inputs.
        self.busy = False
        self.inputs: deque[ReceiverInput | Arrival] = deque()
        #: The latest write of it.
        self.written: asyncio.Future[None] | None = None
        #: Requests to be answered when the hand-over is done.
        self.deferred: list[Arrival] = []
        #: Whoever had it in hand could not take it: nothing more before a restart.
        self.failed = False
        #: While it is handed over to a consumer: how, and what its handler has written.
        self.consumption: Consumption | None = None
        self.transaction: Transaction | None = None

    def as_it_waits(self, arrival: Arrival) -> Arrival:
        """A request as it is kept while the message is at work.

        A message that is there answers a repeated offer without its payload. But an id
        may be used again: where the offer may be of a new message, when this one is
        gone, the first that waits keeps its payload.
        """
        record = self.record
        goes = record is None or record.state.ended
        if record is not None and record.state is IncomingState.RELEASING:
            goes = not record.mark
        waiting = (*self.deferred, *self.inputs)
        payloads = (
            isinstance(each, Arrival) and each.request.payload for each in waiting
        )
        return arrival if goes and not any(payloads) else arrival.waiting()
