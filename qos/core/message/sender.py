"""One step of a message at its sender: the new record, and the effects.

`sender_table` has the state after each input, and the reasons for the order of the
effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from qos.core.message.effects import Effect, End, Forget, Save, Settle, Transmit
from qos.core.message.model import (
    NAMESPACES,
    Ended,
    Level,
    Outgoing,
    OutgoingState,
    Route,
)
from qos.core.message.sender_table import AWAY, TRANSITIONS, At, Reply, SenderInput
from qos.core.record import replace
from qos.errors import CannotWithdraw, LocalProtocolError

__all__ = [
    "clamped",
    "overdue",
    "peer_available",
    "postponed",
    "resumed",
    "step",
    "unsent",
    "wake_at",
]

#: Errors after which the stanza may have arrived all the same. A server also returns
#: one of AWAY for a stanza that it had written to a connection that was lost before the
#: peer acknowledged the stanza (XEP-0198): ejabberd with service-unavailable, Prosody
#: with recipient-unavailable. The last one comes from a peer whose handler failed.
_UNSURE = AWAY | {"undefined-condition"}

_S, _I = OutgoingState, SenderInput


def peer_available(record: Outgoing) -> Outgoing:
    """The record when its peer has become available.

    Earlier attempts may now arrive.
    """
    return replace(record, absent=False) if record.absent else record


def resumed(record: Outgoing, now: float) -> Outgoing:
    """The record after a restart: no attempt is due before there is a session.

    A stored offer may have been sent, and its answer is not known.
    """
    record = clamped(record, now)
    return replace(record, doubted=record.state is _S.OFFERED, due_at=math.inf)


def clamped(record: Outgoing, now: float) -> Outgoing:
    """The record with a deadline no further ahead than at its acceptance.

    If it was accepted in the future, the clock has been set back since.
    """
    if record.expires_at is None or record.created_at <= now:
        return record
    return replace(record, expires_at=record.expires_at - record.created_at + now)


def unsent(record: Outgoing) -> Outgoing:
    """The record when it is certain that the attempt just made was not sent.

    The stored count stays: after a restart this is not known.
    """
    return replace(record, unanswered=False)


def postponed(record: Outgoing, late_s: float) -> Outgoing:
    """The record when the attempt just made is sent this many seconds later."""
    return replace(record, due_at=record.due_at + late_s)


def wake_at(record: Outgoing) -> float:
    """The time of the next attempt or of the deadline."""
    if record.expires_at is None:
        return record.due_at
    return min(record.due_at, record.expires_at)


def overdue(record: Outgoing, now: float) -> bool:
    """Whether its deadline has come: it ends, without a further attempt."""
    return record.expires_at is not None and record.expires_at <= now


def step(
    record: Outgoing, input_: SenderInput, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Take a message one step further.

    Returns:
        The new record and the effects, to be performed in this order.

    Raises:
        CannotWithdraw: the message may have been handed over.
        LocalProtocolError: the input cannot happen in this state.
    """
    if record.state.ended:
        return record, ()  # late answers and timers are harmless
    state = TRANSITIONS.get((record.state, input_))
    if input_ is _I.WITHDRAW and (state is None or _may_have_arrived(record)):
        raise CannotWithdraw(record.msg_id, state=record.state.value)
    if state is None:
        raise LocalProtocolError(
            f"{record.msg_id!r} cannot take {input_.value!r} in state "
            f"{record.state.value!r}"
        )
    if at.reply is not None and at.reply.error is not None:
        record = _noted(record, at.reply)
    if state is _S.NOT_DELIVERED and input_ is not _I.REJECTED:
        state = _S.IN_DOUBT if _may_have_arrived(record) else state
    if state.ended:
        return _end(record, state, at)
    return _STEPS[input_](record, state, at)


def _end(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    record = replace(record, state=state)
    if at.remember:
        return record, (End(Ended.of(record, at.now)), Settle(record))
    return record, (Forget(record), Settle(record))


def _may_have_arrived(record: Outgoing) -> bool:
    if record.level is Level.ACKNOWLEDGED:
        return record.doubted or record.unanswered
    return record.delivers > 0


def _noted(record: Outgoing, reply: Reply) -> Outgoing:
    """The record with the error, which the application can read at the end.

    A refusal by the peer itself proves that this attempt was not handed over. So does
    any error if no session of the peer could have received the attempt. Neither says
    anything about earlier attempts.
    """
    unsure = reply.error in _UNSURE and not record.absent
    return replace(
        record,
        condition=reply.error,
        condition_by=reply.by or reply.source or None,
        condition_text=reply.text,
        unanswered=False,
        doubted=record.doubted or unsure,
    )


def _attempt(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    if state is _S.RECEIVED:
        return replace(record, due_at=math.inf), ()
    assert at.route is not None
    return _send(record, state, at, at.route, record.addressed)


def _send(
    record: Outgoing,
    state: OutgoingState,
    at: At,
    route: Route,
    addressed: frozenset[str],
) -> tuple[Outgoing, tuple[Effect, ...]]:
    tries = record.tries + 1
    first = record.state is _S.QUEUED
    releasing = state is _S.RELEASING
    record = replace(
        record,
        state=state,
        attempts=record.attempts + 1,
        delivers=record.delivers + releasing,
        addressed=addressed | {route.jid},
        asked_in=route.namespace,
        doubted=record.doubted or record.unanswered,
        unanswered=True,
        absent=route.absent,
        tries=tries,
        due_at=at.now + at.backoff.delay_s(tries, at.jitter),
    )
    transmit = Transmit("deliver" if releasing else "offer", record, route)
    # A repeated offer tells the peer only what is already on disk.
    return record, (Save(record), transmit) if first or releasing else (transmit,)


def _received(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    reply = at.reply
    assert reply is not None
    namespace = reply.namespace if reply.namespace in NAMESPACES else record.asked_in
    record = replace(
        record,
        state=state,
        peer=reply.source,
        hold=reply.hold or None,
        own=at.own,
        namespace=namespace,
        tries=0,
        unanswered=False,
        due_at=math.inf,
    )
    return record, ()


def _release(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    assert record.peer is not None
    assert record.namespace is not None
    route = Route(record.peer, record.namespace, record.hold is not None)
    return _send(record, state, at, route, frozenset())


def _offer_again(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Start again, under ids that no old answer can match."""
    record = replace(
        record,
        state=state,
        offer_id=at.new_id(),
        deliver_id=at.new_id(),
        peer=None,
        hold=None,
        own=None,
        delivers=0,
        addressed=frozenset(),
        not_mine=frozenset(),
        tries=0,
        unanswered=False,
        due_at=at.now,
    )
    return record, (Save(record),)


def _no_route(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    tries = record.tries + 1
    due_at = at.now + at.backoff.delay_s(tries, at.jitter)
    if state is _S.RECEIVED:
        due_at = math.inf
    return replace(record, tries=tries, due_at=due_at), ()


def _due(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    return _wake(record, state, at._replace(jitter=0.0))


def _wake(
    record: Outgoing, state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    if state is _S.RECEIVED:
        return record, ()
    soon = at.now + at.jitter * at.backoff.first_s
    due_at = min(record.due_at, soon)
    # In a new session presence begins again, and proves nothing about the time before.
    return replace(
        record, tries=0, not_mine=frozenset(), absent=False, due_at=due_at
    ), ()


def _constrained(
    record: Outgoing, _state: OutgoingState, _at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Fix the namespace: this was an answer by QoS."""
    return replace(record, namespace=record.namespace or record.asked_in), ()


def _not_mine(
    record: Outgoing, _state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Ask other resources first, until a new one has come."""
    assert at.reply is not None
    return replace(record, not_mine=record.not_mine | {at.reply.source}), ()


def _wait(
    record: Outgoing, _state: OutgoingState, _at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Continue with the delay that began with the attempt."""
    return record, ()


_STEPS: dict[
    SenderInput,
    Callable[[Outgoing, OutgoingState, At], tuple[Outgoing, tuple[Effect, ...]]],
] = {
    _I.ATTEMPT: _attempt,
    _I.NO_ROUTE: _no_route,
    _I.DUE: _due,
    _I.WAKE: _wake,
    _I.RECEIVED: _received,
    _I.RELEASE: _release,
    _I.CONSTRAINED: _constrained,
    _I.UNAVAILABLE: _wait,
    _I.NOT_MINE: _not_mine,
    _I.STORE_GONE_UNSEEN: _offer_again,
    _I.ORPHANED: _offer_again,
}
