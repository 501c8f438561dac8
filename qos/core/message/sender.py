"""The sending side of a message at level acknowledged or assured.

::

                 ATTEMPT            RECEIVED            RELEASE
    QUEUED ─────────────▶ OFFERED ─────────▶ RECEIVED ─────────▶ RELEASING
      │                    │  ▲ │                │                 │  │  │
      │                    │  │ │ CONFIRMED      │       CONFIRMED │  │  │
      │                    │  │ └────────────────┼──▶ DELIVERED ◀──┘  │  │
      │ DEADLINE           │  │                  │                    │  │
      │ WITHDRAW           │  └──────────────────┴────────────────────┘  │
      │                    │ REFUSED …   STORE_GONE_UNSEEN, ORPHANED     │
      ▼                    ▼                                             ▼
    NOT_DELIVERED ◀── before a hand-over was possible      after: IN_DOUBT

Level acknowledged goes from OFFERED to its end: its only step is a hand-over. It ends
NOT_DELIVERED only if each attempt certainly did not arrive, and IN_DOUBT otherwise.

The crash argument. Each step is written before it is sent, so what is stored
is never behind what a peer has seen:

- OFFERED is on disk before `assured` is sent. After a restart the same iq id is
  used again; the receiver holds a message once, whatever it gets.
- RELEASING is on disk before the first `deliver` is sent, with the peer, the
  hold and the number of `deliver`. After a restart only `deliver` is repeated,
  never `assured`: that could make a second message of it.
- The record is gone from the disk before the application learns the end, so
  that *not delivered* stays true after a restart. If the process dies between,
  that end is not told, but how it ended has taken the record's place in the same
  write, for an application that asks.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from qos.core.backoff import Backoff
from qos.core.message.effects import Effect, End, Forget, Save, Settle, Transmit
from qos.core.message.flow import WINDOW_FIRST
from qos.core.message.model import (
    NAMESPACES,
    Ended,
    Level,
    Outgoing,
    OutgoingState,
    Route,
)
from qos.core.replace import replace
from qos.core.strings import own_servers
from qos.errors import CannotWithdraw, LocalProtocolError

__all__ = [
    "TRANSITIONS",
    "At",
    "Reply",
    "SenderInput",
    "came",
    "clamped",
    "classify",
    "on_peer",
    "on_session",
    "overdue",
    "resumed",
    "step",
    "unsent",
    "wake_at",
]


class SenderInput(enum.Enum):
    """The inputs of a message in flight."""

    #: It is time for an attempt, and there is a route.
    ATTEMPT = "attempt"
    #: It is time for an attempt, and nobody to address it to.
    NO_ROUTE = "no route"
    #: A new session, or the peer has come: an attempt is due at once.
    DUE = "due"
    #: The same, and others go first: an attempt is due soon, at a random moment.
    WAKE = "wake"
    #: The peer holds the message.
    RECEIVED = "received"
    #: The message may be released now.
    RELEASE = "release"
    #: The peer has handed it over.
    CONFIRMED = "confirmed"
    #: The peer has no room for it at present.
    CONSTRAINED = "constrained"
    #: An error that may pass.
    UNAVAILABLE = "unavailable"
    #: An error that will not pass.
    REFUSED = "refused"
    #: The receiving application has it and rejects it: it is certainly not delivered.
    REJECTED = "rejected"
    #: Another resource does not hold it.
    NOT_MINE = "not mine"
    #: The peer that held it does not any more; it saw at most one `deliver`.
    STORE_GONE_UNSEEN = "store gone, nothing handed over"
    #: The same, and an earlier `deliver` may have released it.
    STORE_GONE = "store gone"
    #: A peer that is not ours can only be asked by a JID that we have lost.
    ORPHANED = "orphaned"
    #: The deadline has come.
    DEADLINE = "deadline"
    #: The application wants it back.
    WITHDRAW = "withdraw"


_S, _I = OutgoingState, SenderInput
_LIVE = (_S.QUEUED, _S.OFFERED, _S.RECEIVED, _S.RELEASING)

#: Where each input leads. What is missing cannot happen; step() refuses it.
TRANSITIONS: dict[tuple[OutgoingState, SenderInput], OutgoingState] = {
    (_S.QUEUED, _I.ATTEMPT): _S.OFFERED,
    (_S.OFFERED, _I.ATTEMPT): _S.OFFERED,
    (_S.RECEIVED, _I.ATTEMPT): _S.RECEIVED,  # nothing to send before its turn
    (_S.RELEASING, _I.ATTEMPT): _S.RELEASING,
    **{(state, _I.NO_ROUTE): state for state in _LIVE},
    **{(state, _I.DUE): state for state in _LIVE},
    **{(state, _I.WAKE): state for state in _LIVE},
    (_S.OFFERED, _I.RECEIVED): _S.RECEIVED,
    (_S.RECEIVED, _I.RELEASE): _S.RELEASING,
    (_S.OFFERED, _I.CONFIRMED): _S.DELIVERED,  # level acknowledged
    (_S.RELEASING, _I.CONFIRMED): _S.DELIVERED,
    (_S.OFFERED, _I.CONSTRAINED): _S.OFFERED,
    (_S.RELEASING, _I.CONSTRAINED): _S.RELEASING,
    (_S.OFFERED, _I.UNAVAILABLE): _S.OFFERED,
    (_S.RELEASING, _I.UNAVAILABLE): _S.RELEASING,
    (_S.OFFERED, _I.REFUSED): _S.NOT_DELIVERED,
    (_S.RELEASING, _I.REFUSED): _S.IN_DOUBT,
    (_S.RELEASING, _I.REJECTED): _S.NOT_DELIVERED,
    (_S.RELEASING, _I.NOT_MINE): _S.RELEASING,
    (_S.RELEASING, _I.STORE_GONE_UNSEEN): _S.OFFERED,
    (_S.RELEASING, _I.STORE_GONE): _S.IN_DOUBT,
    (_S.RECEIVED, _I.ORPHANED): _S.OFFERED,
    (_S.RELEASING, _I.ORPHANED): _S.IN_DOUBT,
    (_S.QUEUED, _I.DEADLINE): _S.NOT_DELIVERED,
    (_S.OFFERED, _I.DEADLINE): _S.NOT_DELIVERED,
    (_S.RECEIVED, _I.DEADLINE): _S.NOT_DELIVERED,
    (_S.RELEASING, _I.DEADLINE): _S.IN_DOUBT,
    (_S.QUEUED, _I.WITHDRAW): _S.NOT_DELIVERED,
    (_S.OFFERED, _I.WITHDRAW): _S.NOT_DELIVERED,
    (_S.RECEIVED, _I.WITHDRAW): _S.NOT_DELIVERED,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An iq result or error, as it came.

    Attributes:
        iq_id: its id.
        source: its from ('' where there is none).
        error: the condition, or None for a result.
        error_type: of an error.
        received: the msgId of the `received` in it, or None.
        hold: our mark: an attribute of `received`, or a child of its own.
        namespace: of `received`, if it is one of ours.
        rejected: the hold stands in our mark `rejected`: the error is the final word of
            the receiving application.
        redelivered: that may have accepted the message in an earlier hand-over.
        text: of an error, for people, one line; or None.
        by: who returned the error, as the error says (RFC 6120 §8.3.1), or None.
        room: our mark at `received`: how many more messages the peer takes now; None:
            it does not say.
    """

    iq_id: str
    source: str
    error: str | None = None
    error_type: str = "cancel"
    received: str | None = None
    hold: str | None = None
    namespace: str | None = None
    rejected: bool = False
    redelivered: bool = False
    text: str | None = None
    by: str | None = None
    room: int | None = None


#: RFC 6120 §8.3.3: how a server says, with type cancel, that the peer is away.
_AWAY = frozenset(
    {
        "service-unavailable",
        "recipient-unavailable",
        "remote-server-not-found",
        "remote-server-timeout",
        "gone",
        "internal-server-error",
    }
)

#: Errors after which the stanza may have arrived all the same. A server returns one of
#: _AWAY also for a stanza that it had written to a connection which was lost before the
#: peer acknowledged the stanza (XEP-0198): ejabberd says service-unavailable then, and
#: Prosody recipient-unavailable. The last one is what a peer says whose handler failed.
_UNSURE = _AWAY | {"undefined-condition"}


def classify(record: Outgoing, reply: Reply, *, own: str) -> SenderInput | None:
    """What a reply means for the message, or None when it means nothing.

    Only the JID that was addressed may answer, for the step that is pending;
    an error may also come from the own server. What does not answer the
    question that was asked is ignored, and the question repeated in time.
    """
    if reply.source not in record.addressed and (
        reply.error is None or reply.source not in own_servers(own)
    ):
        return None
    if record.state is _S.OFFERED and reply.iq_id == record.offer_id:
        return _first_answer(record, reply)
    if record.state is _S.RELEASING and reply.iq_id == record.deliver_id:
        return _second_answer(record, reply, own=own)
    return None


def _first_answer(record: Outgoing, reply: Reply) -> SenderInput | None:
    if reply.error is None:
        if record.level is Level.ACKNOWLEDGED:
            return _I.CONFIRMED if reply.received is None else None
        return _I.RECEIVED if reply.received == record.msg_id else None
    if reply.error == "resource-constraint":
        return _I.CONSTRAINED
    if reply.error_type == "wait" or reply.error in _AWAY:
        return _I.UNAVAILABLE
    return _I.REFUSED


def _second_answer(record: Outgoing, reply: Reply, *, own: str) -> SenderInput | None:
    """By now the peer has shown that it can and may, so most errors pass."""
    held_there = record.hold is not None and reply.hold == record.hold
    if reply.error is None:
        if record.hold is None:
            asked_alike = reply.source == record.peer and own == record.own
            answers = asked_alike and reply.received is None
            return _I.CONFIRMED if answers else None
        return _I.CONFIRMED if held_there else None
    if reply.rejected and held_there:
        return _I.REFUSED if reply.redelivered else _I.REJECTED
    if reply.error == "item-not-found" and held_there:
        if reply.source != record.peer:
            return _I.NOT_MINE
        return _I.STORE_GONE_UNSEEN if record.delivers == 1 else _I.STORE_GONE
    if reply.error == "bad-request":
        return _I.REFUSED
    if reply.error == "resource-constraint":
        return _I.CONSTRAINED
    return _I.UNAVAILABLE


def on_session(record: Outgoing, *, own: str, ahead: int) -> SenderInput:
    """What a new session under this full JID means for the message.

    A peer that is not ours knows the message by the full JID that offered it,
    so from another one the second step would be answered about nothing.

    The first window of each flow is due at once, and so is a message that was never
    attempted. The others are spread over the first retry delay: together they might be
    more than the peer takes.

    Args:
        record: the message.
        own: our full JID in the session.
        ahead: how many messages of the same flow are in flight before this one.
    """
    lost = record.own is not None and record.hold is None and record.own != own
    if lost and record.state in {_S.RECEIVED, _S.RELEASING}:
        return _I.ORPHANED
    at_once = ahead < WINDOW_FIRST or record.state is _S.QUEUED
    return _I.DUE if at_once else _I.WAKE


def on_peer(record: Outgoing) -> SenderInput | None:
    """What it means for the message that its peer has become available.

    An attempt that has just been made is given its time: the peer may announce
    itself for reasons of its own. Attempts that are repeated are spread: many senders
    may have waited for the same peer.
    """
    if record.state is _S.QUEUED:
        return _I.DUE
    just_asked = record.unanswered and record.tries <= 1
    return None if just_asked else _I.WAKE


def came(record: Outgoing) -> Outgoing:
    """The record when its peer has become available: the peer may get what was sent."""
    return replace(record, absent=False) if record.absent else record


def resumed(record: Outgoing, now: float) -> Outgoing:
    """The record as it is after a restart: not due before there is a session.

    An offer that was stored may have been sent, and nobody knows the answer.
    """
    record = clamped(record, now)
    return replace(record, doubted=record.state is _S.OFFERED, due_at=math.inf)


def clamped(record: Outgoing, now: float) -> Outgoing:
    """The record with a deadline no further ahead than it was at acceptance.

    The clock has been set back since, if the message was accepted in the future.
    """
    if record.expires_at is None or record.created_at <= now:
        return record
    return replace(record, expires_at=record.expires_at - record.created_at + now)


def unsent(record: Outgoing) -> Outgoing:
    """The record when it is certain that the attempt which was just made was not sent.

    What is written counts on: after a restart nobody knows of this.
    """
    return replace(record, unanswered=False)


def wake_at(record: Outgoing) -> float:
    """When to come back: for the next attempt or for the deadline."""
    if record.expires_at is None:
        return record.due_at
    return min(record.due_at, record.expires_at)


def overdue(record: Outgoing, now: float) -> bool:
    """Whether its deadline has come: then it ends, and there is no attempt any more."""
    return record.expires_at is not None and record.expires_at <= now


class At(NamedTuple):
    """The circumstances of a step, beside the record and the input.

    Attributes:
        now: the time, seconds.
        jitter: in [0, 1), random.
        backoff: the user's settings.
        new_id: gives an id that was never used.
        route: for ATTEMPT, whom to address.
        reply: for the inputs that classify() gave, what it was given.
        own: our full JID.
        remember: keep how a message ended.
    """

    now: float
    jitter: float
    backoff: Backoff
    new_id: Callable[[], str]
    route: Route | None = None
    reply: Reply | None = None
    own: str = ""
    remember: bool = False


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
    """The record with the error, for the application to read in the end.

    A refusal by the peer itself proves that this attempt was not handed over. So does
    any error where no session of the peer could have got the attempt. Neither says
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
    # A repeated offer tells the peer nothing that is not on disk already.
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
    """From the start, under ids that no old answer can meet."""
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
    # In a new session presence begins anew, and proves nothing of the time before.
    return replace(
        record, tries=0, not_mine=frozenset(), absent=False, due_at=due_at
    ), ()


def _constrained(
    record: Outgoing, _state: OutgoingState, _at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """An answer by QoS: from now on this namespace and no other."""
    return replace(record, namespace=record.namespace or record.asked_in), ()


def _not_mine(
    record: Outgoing, _state: OutgoingState, at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """Others are asked first, until somebody new has come."""
    assert at.reply is not None
    return replace(record, not_mine=record.not_mine | {at.reply.source}), ()


def _wait(
    record: Outgoing, _state: OutgoingState, _at: At
) -> tuple[Outgoing, tuple[Effect, ...]]:
    """The delay that began with the attempt goes on."""
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
