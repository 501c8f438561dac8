"""A message that is held, and whom the inbox deals with about it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from qos.core.effects import Answer, Report
from qos.core.model import Incoming
from qos.core.receiver import ReceiverInput, Request
from qos.engine.consuming import Consumption
from qos.stores.base import Transaction

__all__ = ["Arrival", "HeldMessage", "InboxPort"]


class InboxPort(Protocol):
    """What the inbox asks of the connection."""

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer the iq. The port drops it when there is no session."""

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | None:
        """Feed the message to the application. Never raises.

        Returns:
            None when that is done; or a future for when it is. If it fails, the
            message is handed over again after a restart.
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


class HeldMessage:
    """What is held under one key, and what has still to be done about it."""

    __slots__ = (
        "busy",
        "consumption",
        "deferred",
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
        #: While it is handed over to a consumer: how, and what its handler has written.
        self.consumption: Consumption | None = None
        self.transaction: Transaction | None = None
