"""The outstanding messages of an outbox, as an application sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qos.core.message.model import Level, Outgoing, OutgoingState

__all__ = ["Outstanding", "OutstandingMessage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingMessage:
    """A message that was accepted and has not ended, in its state when it was read.

    Attributes:
        msg_id: its id, for `XEP_QOS.delivery`.
        to: the JID it goes to, normalized.
        level: acknowledged or assured.
        state: `QUEUED` (not sent yet), `OFFERED`, `RECEIVED` (the peer holds it) or
            `RELEASING` (it may have been handed over).
        attempts: the number of iqs sent for it, including repeats.
        accepted_at: when it was accepted, in seconds since the epoch.
        deadline_at: when it ends if it has not been delivered, in seconds since the
            epoch; None: never.
    """

    msg_id: str
    to: str
    level: Level
    state: OutgoingState
    attempts: int
    accepted_at: float
    deadline_at: float | None


class Outstanding:
    """All outstanding messages: `len` counts them, iterating lists them.

    They are listed in the order of their acceptance, and read from the store a few at a
    time: 100,000 of them do not have to fit into memory. Messages that end meanwhile
    are left out. A store on disk is read directly, in the event loop. If there may be
    very many messages, give other tasks a turn: `await asyncio.sleep(0)`.

    Iterating raises StoreError if the store is not open or cannot be read.
    """

    def __init__(
        self, count: Callable[[], int], records: Callable[[], Iterator[Outgoing]]
    ) -> None:
        """Made by the outbox.

        Args:
            count: returns their number.
            records: returns all of them, each in its present state.
        """
        self._count = count
        self._records = records

    def __len__(self) -> int:
        return self._count()

    def __iter__(self) -> Iterator[OutstandingMessage]:
        for record in self._records():
            yield OutstandingMessage(
                msg_id=record.msg_id,
                to=record.to,
                level=record.level,
                state=record.state,
                attempts=record.attempts,
                accepted_at=record.created_at,
                deadline_at=record.expires_at,
            )

    def __repr__(self) -> str:
        return f"<{len(self)} outstanding messages>"
