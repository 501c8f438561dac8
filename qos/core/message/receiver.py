"""One step of a message at its receiver: its next state, and the effects.

`receiver_table` has the transitions, and explains the order of the effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from qos.core.message.effects import (
    Answer,
    Consume,
    Defer,
    Deliver,
    Effect,
    Forget,
    Refund,
    Report,
    Reserve,
    Retry,
    Save,
)
from qos.core.message.model import Incoming, IncomingState, Level, Rejection
from qos.core.message.receiver_table import (
    TRANSITIONS,
    At,
    ReceiverInput,
    Request,
    begins,
    classify,
    is_dropped,
)
from qos.core.record import replace
from qos.core.strings import bare

__all__ = ["NOT_NOW", "UNSURE", "begins", "key_of", "not_now", "step"]

#: No taker for the message now. RFC 6120 §8.3.3.22: the recipient was not expecting the
#: request at this time. No server sends this for an absent peer, so the sender knows
#: for certain that this attempt was not taken.
NOT_NOW = Answer("error", "", "unexpected-request", "wait")

#: The same for a message at level acknowledged that may have been handed over, or will be.
UNSURE = Answer("error", "", "recipient-unavailable", "wait", repeats=True)

#: The ends of a message at level acknowledged.
_TAKEN = Answer("result", repeats=True)
_NOT_TAKEN = replace(NOT_NOW, repeats=True)

#: Separates the parts of a key; XML 1.0 §2.2 allows it in none of them.
_SEPARATOR = "\x1f"

_S, _I = IncomingState, ReceiverInput


def key_of(request: Request, token: str = "") -> str:
    """The key that identifies a message.

    With the sender's mark the key has its account and its store, so a device that
    returns under another resource is the same sender. Without the mark it has the full
    JID (proto-XEP, Message IDs) and nothing looser: two resources that both count from
    1 are two senders. At level acknowledged the id of the iq is the message's own, if
    there is a mark: our ids are never used again. Without one two such requests never have
    the same key: a peer that counts its iq ids from 1 after each start would lose messages.
    """
    if request.kind == "acknowledged":
        if not request.mark:
            return _SEPARATOR.join(("a", token))
        return _SEPARATOR.join(("i", bare(request.source), request.mark, request.iq_id))
    if request.mark:
        return _SEPARATOR.join(
            ("m", bare(request.source), request.mark, request.msg_id)
        )
    return _SEPARATOR.join(("u", request.source, request.msg_id))


#: The new record, and the effects in this order.
_Outcome: TypeAlias = tuple[Incoming | None, tuple[Effect, ...]]


def step(
    record: Incoming | None,
    input_: ReceiverInput,
    at: At,
    request: Request | None = None,
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    """Take a message one step further, to the state that TRANSITIONS gives.

    Args:
        record: the message under this key; None: there is none.
        input_: the input.
        at: the circumstances.
        request: the request to be answered. For IN_HAND, HANDED_OVER, NOT_TAKEN,
            REJECTED and CONSUMED: the one that released the message. None after a
            restart, when the message was handed over again, and when IN_HAND has answered
            it.

    Returns:
        The new record, or None when nothing is left of it, and the effects, to be
        performed in this order.
    """
    input_ = classify(record, input_, at, request)
    state = record.state if record else _S.ABSENT
    after = TRANSITIONS.get((state, input_))
    if after is None:
        return record, ()
    if request is not None and input_ in _REQUEST_STEPS:
        return _REQUEST_STEPS[input_](record, after, at, request)
    assert record is not None
    return _STEPS[input_](record, after, at, request)


def not_now(record: Incoming | None) -> Answer:
    """The answer about a message that may be handed over later, whoever repeats it."""
    acknowledged = record is not None and record.level is Level.ACKNOWLEDGED
    return UNSURE if acknowledged else NOT_NOW


# -- requests --------------------------------------------------------------


def _acknowledged(
    _: Incoming | None, after: IncomingState, at: At, request: Request
) -> _Outcome:
    record = _incoming(
        request, at, state=after, level=Level.ACKNOWLEDGED, is_stored=at.written
    )
    if not at.written:
        return record, (Reserve(record), Deliver(record))
    return record, (Reserve(record), Save(record), Deliver(record))


def _assured(
    _: Incoming | None, after: IncomingState, at: At, request: Request
) -> _Outcome:
    record = _incoming(request, at, state=after, level=Level.ASSURED)
    return record, (Reserve(record), Save(record), Answer("received", record.hold))


def _incoming(
    request: Request,
    at: At,
    *,
    state: IncomingState,
    level: Level,
    is_stored: bool = True,
) -> Incoming:
    assured = level is Level.ASSURED
    return Incoming(
        key=key_of(request, at.token),
        msg_id=request.msg_id if assured else request.iq_id,
        source=request.source,
        to=request.to,
        level=level,
        payload=request.payload,
        size=request.size,
        received_at=at.now,
        changed_at=at.now,
        state=state,
        mark=request.mark,
        hold=at.token if assured else "",
        written=is_stored,
    )


def _repeated(
    record: Incoming | None, _after: IncomingState, _at: At, _request: Request
) -> _Outcome:
    assert record is not None
    if record.level is Level.ACKNOWLEDGED:
        return record, (UNSURE if record.state is _S.PARKED else _TAKEN,)
    return record, (Answer("received", record.hold),)


def _send_again(
    record: Incoming | None, _after: IncomingState, _at: At, _request: Request
) -> _Outcome:
    return record, (Answer("error", "", "resource-constraint", "wait"),)


def _refused(
    record: Incoming | None, _after: IncomingState, at: At, request: Request
) -> _Outcome:
    # The message of a stranger has not been read.
    size = f" of {request.size} bytes" if request.size else ""
    text = f"{request.kind}{size} refused: "
    if at.trusted and at.exceeded and not is_dropped(record):
        answer = Answer("error", "", "resource-constraint", "wait")
        return record, (answer, Report(answer.condition, text + at.exceeded))
    why = "an operator has dropped it" if at.trusted else at.why
    answer = Answer("error", "", "not-allowed", "cancel")
    return record, (answer, Report(answer.condition, text + why))


def _busy(
    record: Incoming | None, _after: IncomingState, _at: At, _request: Request
) -> _Outcome:
    return record, (Defer(),)


def _deliver(
    record: Incoming | None, after: IncomingState, at: At, request: Request
) -> _Outcome:
    assert record is not None
    if after is _S.RELEASING:
        record = replace(record, state=after, changed_at=at.now)
        return record, (Save(record), Deliver(record))
    if after is _S.PARKED:
        return record, (NOT_NOW,)
    if after is _S.REJECTED:
        return record, (_rejection(record, request),)
    return record, (Answer("result", request.hold),)


def _unknown(
    record: Incoming | None, _after: IncomingState, _at: At, request: Request
) -> _Outcome:
    report = Report("", f"deliver for msgId {request.msg_id!r}, which is not held")
    if record is None and not request.hold:
        # The proto-XEP acknowledges it: the message may have been delivered and
        # removed.
        return record, (Answer("result"), report)
    error = Answer("error", request.hold, "item-not-found", "cancel")
    return record, (error, report)


_REQUEST_STEPS: dict[
    ReceiverInput,
    Callable[[Incoming | None, IncomingState, At, Request], _Outcome],
] = {
    _I.ACKNOWLEDGED: _acknowledged,
    _I.ASSURED: _assured,
    _I.REPEATED: _repeated,
    _I.SEND_AGAIN: _send_again,
    _I.REFUSED: _refused,
    _I.BUSY: _busy,
    _I.DELIVER: _deliver,
    _I.UNKNOWN: _unknown,
}


# -- handing over ----------------------------------------------------------


def _restart(
    record: Incoming, _after: IncomingState, _at: At, _request: Request | None
) -> _Outcome:
    record = replace(record, redelivered=True)
    return record, (Deliver(record),)


def _consume(
    record: Incoming, _after: IncomingState, _at: At, _request: Request | None
) -> _Outcome:
    record = replace(
        record,
        handovers=record.handovers + 1,
        redelivered=record.redelivered or record.handovers > 0,
    )
    return record, (Save(record), Consume(record))


def _begun(
    record: Incoming, _after: IncomingState, _at: At, _request: Request | None
) -> _Outcome:
    if not record.redelivered:
        return record, ()
    record = replace(record, handovers=record.handovers + 1)
    return record, (Save(record),)


def _failed(
    record: Incoming, _after: IncomingState, at: At, _request: Request | None
) -> _Outcome:
    return record, (Retry(at.retry_at),)


def _failed_too_often(
    record: Incoming, after: IncomingState, at: At, _request: Request | None
) -> _Outcome:
    record = replace(record, state=after, changed_at=at.now)
    return record, (Save(record),)


def _in_hand(
    record: Incoming, _after: IncomingState, _at: At, request: Request | None
) -> _Outcome:
    ends = record.level is Level.ACKNOWLEDGED and not record.mark
    return record, (_TAKEN,) if ends and request is not None else ()


def _handed_over(
    record: Incoming, after: IncomingState, at: At, request: Request | None
) -> _Outcome:
    tombstone = _ended(record, after, at)
    return tombstone, (*_result(request), Refund(record), Save(tombstone))


def _handed_over_unmarked(
    record: Incoming, _after: IncomingState, _at: At, request: Request | None
) -> _Outcome:
    answers = _result(request) if record.level is Level.ASSURED else (_TAKEN,)
    if not record.written:
        return None, (*answers, Refund(record))
    return None, (*answers, Refund(record), Forget(record))


def _result(request: Request | None) -> tuple[Effect, ...]:
    return () if request is None else (Answer("result", request.hold),)


def _consumed(
    record: Incoming, after: IncomingState, at: At, request: Request | None
) -> _Outcome:
    hand_over = _handed_over_unmarked if after is _S.ABSENT else _handed_over
    tombstone, (*effects, store_effect) = hand_over(record, after, at, request)
    return tombstone, (store_effect, *effects)


def _not_taken(
    record: Incoming, after: IncomingState, at: At, _request: Request | None
) -> _Outcome:
    record = replace(record, state=after, changed_at=at.now)
    return record, (NOT_NOW, Save(record))


def _not_taken_acknowledged(
    record: Incoming, _after: IncomingState, _at: At, _request: Request | None
) -> _Outcome:
    if not record.written:
        return None, (Refund(record), _NOT_TAKEN)
    return None, (Refund(record), Forget(record), _NOT_TAKEN)


def _rejected(
    record: Incoming, after: IncomingState, at: At, request: Request | None
) -> _Outcome:
    assert at.rejection is not None
    rejection = replace(at.rejection, redelivered=record.redelivered)
    rejected = replace(_ended(record, after, at), rejection=rejection.to_text())
    effects: tuple[Effect, ...] = (Save(rejected), Refund(record))
    if request is not None:
        effects = (*effects, _rejection(rejected, request))
    return rejected, effects


def _rejection(record: Incoming, request: Request) -> Answer:
    if not request.hold:
        return Answer("result")
    why = Rejection.from_text(record.rejection)
    return Answer(
        "rejected", request.hold, why.condition, why.type, why.text, why.redelivered
    )


# -- operators and time ----------------------------------------------------


def _release(
    record: Incoming, after: IncomingState, at: At, _request: Request | None
) -> _Outcome:
    record = replace(
        record, state=after, handovers=0, redelivered=True, changed_at=at.now
    )
    return record, (Save(record), Deliver(record))


def _gone(
    record: Incoming, after: IncomingState, at: At, _request: Request | None
) -> _Outcome:
    tombstone = _ended(record, after, at)
    return tombstone, (Refund(record), Save(tombstone))


def _forget(
    record: Incoming, _after: IncomingState, _at: At, _request: Request | None
) -> _Outcome:
    return None, (Forget(record),)


def _ended(record: Incoming, after: IncomingState, at: At) -> Incoming:
    """The tombstone of the message."""
    return replace(record, state=after, payload="", changed_at=at.now)


_STEPS: dict[
    ReceiverInput,
    Callable[[Incoming, IncomingState, At, Request | None], _Outcome],
] = {
    _I.RESTART: _restart,
    _I.BEGIN: _begun,
    _I.CONSUME: _consume,
    _I.FAILED: _failed,
    _I.FAILED_TOO_OFTEN: _failed_too_often,
    _I.IN_HAND: _in_hand,
    _I.HANDED_OVER: _handed_over,
    _I.HANDED_OVER_UNMARKED: _handed_over_unmarked,
    _I.NOT_TAKEN: _not_taken,
    _I.NOT_TAKEN_ACKNOWLEDGED: _not_taken_acknowledged,
    _I.NOT_TAKEN_UNASKED: _failed,
    _I.CONSUMED: _consumed,
    _I.CONSUMED_UNMARKED: _consumed,
    _I.REJECTED: _rejected,
    _I.RELEASE: _release,
    _I.DROP: _gone,
    _I.DROP_FORCED: _gone,
    _I.EXPIRE: _gone,
    _I.FORGET: _forget,
}
