"""The effects that a machine may ask for.

A step returns its effects in order, and the engine performs them in that
order: a Save is on disk before the next effect begins. That order *is* the
crash argument of each machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from qos.core.message.model import Ended, Incoming, Outgoing, Route
from qos.errors import ErrorType

__all__ = [
    "Answer",
    "Consume",
    "Defer",
    "Deliver",
    "Effect",
    "End",
    "Forget",
    "Refund",
    "Report",
    "Reserve",
    "Retry",
    "Save",
    "Settle",
    "Transmit",
]


@dataclass(frozen=True, slots=True)
class Save:
    """Write the record; go on when it is on disk."""

    record: Outgoing | Incoming


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the record; go on when that is on disk."""

    record: Outgoing | Incoming


@dataclass(frozen=True, slots=True)
class End:
    """Keep how a message ended instead of its record; go on when that is on disk."""

    ended: Ended


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send the iq of this step. Nobody answers for its arrival."""

    step: Literal["offer", "deliver"]
    record: Outgoing
    route: Route


@dataclass(frozen=True, slots=True)
class Settle:
    """Tell the sending application how the message ended."""

    record: Outgoing


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the message to the receiving application.

    Where it has a consumer for it, come back with CONSUME when its turn has come.
    """

    record: Incoming


@dataclass(frozen=True, slots=True)
class Consume:
    """Hand the message to its consumer."""

    record: Incoming


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request at hand.

    Attributes:
        kind: `received` (with the hold), the empty `result` (with the hold
            where there is one), `error`, or `rejected`: an error that is the
            application's final word about the message of this hold.
        hold: the token to put into it, or ''.
        condition: of an error.
        error_type: of an error.
        text: of a rejection, for people.
        redelivered: of a rejection: an earlier hand-over may have been accepted.
        room: of `received`: how many more messages like this one may be held for its
            sender now; None: it is not said. Set by the engine, which counts them.
    """

    kind: Literal["received", "result", "error", "rejected"]
    hold: str = ""
    condition: str = ""
    error_type: ErrorType = "cancel"
    text: str = ""
    redelivered: bool = False
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """Keep the request at hand until the record has changed."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Count the message against the quotas of its sender."""

    record: Incoming


@dataclass(frozen=True, slots=True)
class Refund:
    """Stop counting it."""

    record: Incoming


@dataclass(frozen=True, slots=True)
class Retry:
    """Come back at this moment, to hand the message over again.

    With CONSUME to its consumer; with RESTART what nobody has taken.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """Log a refusal or an abuse (the text, Security Considerations).

    Attributes:
        condition: what it was refused with, or '' where it was not refused.
        text: for people; holds nothing of the payload.
    """

    condition: str
    text: str


Effect: TypeAlias = (
    Save
    | Forget
    | End
    | Transmit
    | Settle
    | Deliver
    | Consume
    | Answer
    | Defer
    | Reserve
    | Refund
    | Retry
    | Report
)
