"""The step of a sender for each delivery when a link is resumed (messaging §3.4.6).

Both ends tell in their `attach` which deliveries they hold unsettled, and in which
state. From the two states of one delivery the sender decides; the receiver follows. The
14 rows of the standard's example are the law for `resume`; tests/core/amqp has them.
"""

from __future__ import annotations

from typing import TypeAlias

from qos.core.queue.item import ItemOutcome
from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = ["ABSENT", "Absent", "Position", "Resumption", "Step", "resume"]


class Absent(QuickEnum):
    """No state: the receiver's map has no entry for the delivery."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


@record(frozen=True, slots=True)
class Position:
    """The state `received`: a position in the message.

    Of the receiver, the first byte that it may need; of the sender, the first byte that
    it can still send.

    Attributes:
        section: the number of a section, from 0.
        offset: the number of a byte of that section, from 0.
    """

    section: int
    offset: int


#: The state of a delivery: its outcome, a position, or (None) only that it is held. As
#: position None is the beginning.
State: TypeAlias = ItemOutcome | Position | None

_BEGIN = Position(0, 0)


class Step(QuickEnum):
    """The steps of a sender."""

    #: Send nothing: the receiver has had the whole message and forgotten it.
    NOTHING = "nothing"
    #: Send the whole message as a new delivery, resume=false.
    SEND = "send"
    #: Like SEND, if the whole message is still there; else report a possible loss.
    SEND_OR_REPORT = "send or report"
    #: Transfer with resume=true and the data from `at` on.
    RESUME = "resume"
    #: Transfer with resume=true, aborted=true.
    ABORT = "abort"
    #: Like ABORT, and then like SEND_OR_REPORT.
    ABORT_AND_SEND = "abort and send"
    #: Transfer without data with resume=true and the outcome; settled or not.
    RESTATE = "restate"


@record(frozen=True, slots=True)
class Resumption:
    """The step of the sender.

    Attributes:
        step: what to do.
        at: with RESUME, where the data begins; any earlier position that the sender has
            is as good.
        outcome: with RESTATE, the outcome that counts.
        settled: with RESTATE, whether the transfer is settled.
    """

    step: Step
    at: Position | None = None
    outcome: ItemOutcome | None = None
    settled: bool = False


def resume(
    sender: State, receiver: State | Absent, applied: ItemOutcome | None = None
) -> Resumption:
    """The step of the sender for a delivery in its map of unsettled ones.

    A sender may have an outcome in its map only if the receiver cannot need the data
    any more.

    Args:
        sender: the state in the sender's map.
        receiver: the state in the receiver's map.
        applied: the outcome that was applied at the sender, after the receiver has told
            its own; None: the receiver's.
    """
    if isinstance(receiver, Absent):
        return _whole(sender)
    if isinstance(receiver, ItemOutcome):
        # It takes effect at the sender, so the sender's word is the definite one.
        outcome = sender if isinstance(sender, ItemOutcome) else applied or receiver
        settled = outcome is receiver
        return Resumption(Step.RESTATE, outcome=outcome, settled=settled)
    if isinstance(sender, ItemOutcome):
        return Resumption(Step.ABORT)
    has, wants = sender or _BEGIN, receiver or _BEGIN
    if (wants.section, wants.offset) < (has.section, has.offset):
        return Resumption(Step.ABORT_AND_SEND)
    return Resumption(Step.RESUME, at=wants)


def _whole(sender: State) -> Resumption:
    """The step for a delivery of which the receiver knows nothing."""
    if sender is None:
        return Resumption(Step.SEND)
    if isinstance(sender, Position):
        return Resumption(Step.SEND_OR_REPORT)
    return Resumption(Step.NOTHING)
