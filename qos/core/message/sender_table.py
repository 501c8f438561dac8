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

The crash argument. Each step is written before it is sent, so the stored state is never
behind what a peer has seen:

- OFFERED is on disk before `assured` is sent. After a restart the same iq id is used
  again; the receiver holds a message once, however often it comes.
- RELEASING is on disk before the first `deliver` is sent, with the peer, the hold and
  the number of `deliver`. After a restart only `deliver` is repeated, never `assured`,
  which could become a second message.
- The record is removed from the disk before the application learns the end, so that
  *not delivered* stays true after a restart. If the process dies in between, the end is
  not reported. But in the same write it has replaced the record, so an application can
  ask for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qos.core.backoff import Backoff
from qos.core.message.flow import WINDOW_FIRST
from qos.core.message.model import Level, Outgoing, OutgoingState, Route
from qos.core.quick_enum import QuickEnum
from qos.core.record import record
from qos.core.strings import domain_of, own_servers

__all__ = [
    "AWAY",
    "TRANSITIONS",
    "At",
    "Reply",
    "SenderInput",
    "classify",
    "on_peer",
    "on_session",
    "too_large",
]


class SenderInput(QuickEnum):
    """The inputs of a message in flight."""

    #: It is time for an attempt, and there is a route.
    ATTEMPT = "attempt"
    #: It is time for an attempt, but there is no route.
    NO_ROUTE = "no route"
    #: A new session, or the peer has come: an attempt is due at once.
    DUE = "due"
    #: The same, but other messages go first: an attempt is due soon, at a random time.
    WAKE = "wake"
    #: The peer holds the message.
    RECEIVED = "received"
    #: The message may be released now.
    RELEASE = "release"
    #: The peer has handed the message over.
    CONFIRMED = "confirmed"
    #: The peer has no room for it at present.
    CONSTRAINED = "constrained"
    #: An error that may pass.
    UNAVAILABLE = "unavailable"
    #: An error that will not pass.
    REFUSED = "refused"
    #: The receiving application got the message and rejects it: it is certainly not
    #: delivered.
    REJECTED = "rejected"
    #: Another resource does not hold it.
    NOT_MINE = "not mine"
    #: The peer that held the message does not hold it any more; it saw at most one
    #: `deliver`.
    STORE_GONE_UNSEEN = "store gone, nothing handed over"
    #: The same, but an earlier `deliver` may have released it.
    STORE_GONE = "store gone"
    #: A foreign peer can be asked only from a JID that we have lost.
    ORPHANED = "orphaned"
    #: The deadline has come.
    DEADLINE = "deadline"
    #: The application withdraws the message.
    WITHDRAW = "withdraw"


_S, _I = OutgoingState, SenderInput
_LIVE = (_S.QUEUED, _S.OFFERED, _S.RECEIVED, _S.RELEASING)

#: The transitions. A missing pair cannot happen; step() refuses it.
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
    (_S.QUEUED, _I.REFUSED): _S.NOT_DELIVERED,  # over the limit of our server
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


@record(frozen=True, slots=True)
class Reply:
    """An iq result or error, as received.

    Attributes:
        iq_id: its id.
        source: its from ('' if there is none).
        error: the condition, or None for a result.
        error_type: of an error.
        received: the msgId of the `received` in it, or None.
        hold: our mark: an attribute of `received`, or a child of its own.
        namespace: of `received`, if it is one of ours.
        rejected: the hold is in our mark `rejected`: the error is the final decision of
            the receiving application.
        redelivered: an earlier hand-over may have been accepted.
        text: of an error, for people, one line; or None.
        by: the sender of the error, by its own account (RFC 6120 §8.3.1), or None.
        credit: our mark in `received`: how many more messages the peer accepts now;
            None if it does not say.
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
    credit: int | None = None


class At(NamedTuple):
    """The circumstances of a step, besides the record and the input.

    Attributes:
        now: the time, in seconds.
        jitter: random, in [0, 1).
        backoff: the user's settings.
        new_id: gives an id that was never used.
        route: for ATTEMPT, the address.
        reply: for the inputs from classify(), the classified reply.
        own: our full JID.
        remember: keep the end of the message.
    """

    now: float
    jitter: float
    backoff: Backoff
    new_id: Callable[[], str]
    route: Route | None = None
    reply: Reply | None = None
    own: str = ""
    remember: bool = False


#: RFC 6120 §8.3.3: the conditions, of type cancel, with which a server reports an
#: absent peer.
AWAY = frozenset(
    {
        "service-unavailable",
        "recipient-unavailable",
        "remote-server-not-found",
        "remote-server-timeout",
        "gone",
        "internal-server-error",
    }
)


def classify(record: Outgoing, reply: Reply, *, own: str) -> SenderInput | None:
    """The input that a reply is for the message, or None when it has no meaning.

    Only the JID that was addressed may answer, and only for the pending step; an error
    may also come from our own server. Any other reply is ignored, and the request is
    repeated in time.
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
    if reply.error_type == "wait" or reply.error in AWAY:
        return _I.UNAVAILABLE
    return _I.REFUSED


def _second_answer(record: Outgoing, reply: Reply, *, own: str) -> SenderInput | None:
    """The input of a reply in the second step.

    By now the peer has shown that it can and may, so most errors are temporary.
    """
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


def too_large(record: Outgoing, *, size: int, limit: int, own: str) -> Reply:
    """The reply that stands for our server, which would end the stream (RFC 6120 §13.12).

    For REFUSED, in the state queued or offered: nothing of this size can have arrived.

    Args:
        record: the message.
        size: the bytes of its first request.
        limit: the bytes that the server takes.
        own: our full JID.
    """
    return Reply(
        record.offer_id,
        domain_of(own),
        error="policy-violation",
        error_type="modify",
        text=f"the stanza has {size} bytes, and the server takes {limit}",
    )


def on_session(record: Outgoing, *, own: str, ahead: int) -> SenderInput:
    """The input that a new session under this full JID is for the message.

    A foreign peer knows the message by the full JID that offered it. From another full
    JID the second step would concern no message.

    The first window of each flow is due at once, and so is a message that was never
    attempted. All others are spread over the first retry delay, because together they
    might be more than the peer takes.

    Args:
        record: the message.
        own: our full JID in the session.
        ahead: the number of messages of the same flow that were accepted before it and
            are still in flight.
    """
    lost = record.own is not None and record.hold is None and record.own != own
    if lost and record.state in {_S.RECEIVED, _S.RELEASING}:
        return _I.ORPHANED
    at_once = ahead < WINDOW_FIRST or record.state is _S.QUEUED
    return _I.DUE if at_once else _I.WAKE


def on_peer(record: Outgoing) -> SenderInput | None:
    """The input for the message when its peer has become available.

    A message that was never attempted is due at once. A repeated attempt is spread,
    because many senders may have waited for the same peer. A recent attempt is given its
    time: the presence may have another cause.
    """
    if record.state is _S.QUEUED:
        return _I.DUE
    just_asked = record.unanswered and record.tries <= 1
    return None if just_asked else _I.WAKE
