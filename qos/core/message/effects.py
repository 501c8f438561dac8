"""The effects that a machine may ask for.

A step returns its effects in order, and the engine performs them in that order: a Save
is on disk before the next effect begins. That order *is* the crash argument of each
machine.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from qos.core.message.model import Ended, Incoming, Outgoing, Route
from qos.core.record import record
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


@record(frozen=True, slots=True)
class Save:
    """Write the record; continue when it is on disk."""

    record: Outgoing | Incoming


@record(frozen=True, slots=True)
class Forget:
    """Remove the record; continue when that is on disk."""

    record: Outgoing | Incoming


@record(frozen=True, slots=True)
class End:
    """Replace the record of a message by its end; continue when that is on disk."""

    ended: Ended


@record(frozen=True, slots=True)
class Transmit:
    """Send the iq of this step. Its arrival is not certain."""

    step: Literal["offer", "deliver"]
    record: Outgoing
    route: Route


@record(frozen=True, slots=True)
class Settle:
    """Report the outcome to the sending application."""

    record: Outgoing


@record(frozen=True, slots=True)
class Deliver:
    """Hand the message to the receiving application.

    If a consumer takes the message, come back with CONSUME when its turn has come.
    """

    record: Incoming


@record(frozen=True, slots=True)
class Consume:
    """Hand the message to its consumer."""

    record: Incoming


@record(frozen=True, slots=True)
class Answer:
    """Answer the present request.

    Of a message at level acknowledged nothing is remembered. So what ends it also answers
    the repeats of its request that wait.

    Attributes:
        kind: `received` (with the hold), the empty `result` (with the hold if there is
            one), `error`, or `rejected`: an error that is the application's final
            decision about the message with this hold.
        hold: the token to put into it, or ''.
        condition: of an error.
        error_type: of an error.
        text: of a rejection, for people.
        redelivered: of a rejection: an earlier hand-over may have been accepted.
        credit: of `received`: how many more messages of the same size its sender may
            send now; None if that is not said. Set by the engine, which has the quotas.
        repeats: whether it also answers the repeats of the request that wait.
    """

    kind: Literal["received", "result", "error", "rejected"]
    hold: str = ""
    condition: str = ""
    error_type: ErrorType = "cancel"
    text: str = ""
    redelivered: bool = False
    credit: int | None = None
    repeats: bool = False


@record(frozen=True, slots=True)
class Defer:
    """Keep the present request until the record has changed."""


@record(frozen=True, slots=True)
class Reserve:
    """Count the message against the quotas of its sender."""

    record: Incoming


@record(frozen=True, slots=True)
class Refund:
    """Stop counting the message."""

    record: Incoming


@record(frozen=True, slots=True)
class Retry:
    """Come back at this time, to hand the message over again.

    With CONSUME for a consumer; with RESTART for a message that was not taken.
    """

    at: float


@record(frozen=True, slots=True)
class Report:
    """Log a refusal or an abuse (proto-XEP, Security Considerations).

    Attributes:
        condition: of the refusal, or '' if it was not refused.
        text: for people; contains nothing of the payload.
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
