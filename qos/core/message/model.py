"""A message as the sender keeps it, and as the receiver keeps it.

Values only. Times are seconds since the epoch (UTC); JIDs are strings as on the wire;
sizes are bytes of UTF-8. `qos.limits` lists every limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from typing import Literal, Self, TypeAlias

from qos.core.quick_enum import QuickEnum
from qos.core.record import record
from qos.core.strings import bare
from qos.errors import AmbiguousMessage, ErrorType, UnknownMessage

__all__ = [
    "MARKS_NAMESPACE",
    "NAMESPACES",
    "Ended",
    "Incoming",
    "IncomingState",
    "Level",
    "LevelOrWord",
    "Outgoing",
    "OutgoingState",
    "Rejection",
    "Route",
    "only",
]

#: The proto-XEP's namespace first, then its two published successors.
NAMESPACES = ("urn:xmpp:qos", "urn:ieee:iot:qos:1.0", "urn:nf:iot:qos:1.0")

#: The namespace of our marks, which close gaps of the proto-XEP between two of our
#: endpoints.
MARKS_NAMESPACE = "xmpp-qos:store:0"


class Level(QuickEnum):
    """The three levels of the proto-XEP, in its own words."""

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"


#: A level, or its word.
LevelOrWord: TypeAlias = Level | Literal["unacknowledged", "acknowledged", "assured"]


class OutgoingState(QuickEnum):
    """The state of a message at its sender; the values are stored."""

    QUEUED = "queued"
    OFFERED = "offered"
    #: The peer holds the message, and its turn to be released has not come. Not stored:
    #: no peer relies on it, and after a restart the message is offered again.
    RECEIVED = "received"
    RELEASING = "releasing"
    DELIVERED = "delivered"
    NOT_DELIVERED = "not delivered"
    IN_DOUBT = "in doubt"
    #: Level unacknowledged only, which is never stored: nothing more is known.
    SENT = "sent"

    def __init__(self, value: str) -> None:
        """Set `ended`: whether nothing can happen to the message any more."""
        self.ended = value in {"delivered", "not delivered", "in doubt", "sent"}


class IncomingState(QuickEnum):
    """The state of a message at its receiver; the values are stored."""

    ABSENT = "absent"
    HELD = "held"
    RELEASING = "releasing"
    #: A consumer failed on the message too often: it waits for an operator.
    PARKED = "parked"
    DONE = "done"
    EXPIRED = "expired"
    #: An operator has dropped the message: held, parked, or, by force, being released.
    DROPPED = "dropped"
    #: The application got the message and rejected it for good.
    REJECTED = "rejected"

    def __init__(self, value: str) -> None:
        """Set `ended`: whether this is only a tombstone."""
        self.ended = value in {"done", "expired", "dropped", "rejected"}


@record(frozen=True, slots=True)
class Rejection:
    """The reason why the receiving application has rejected a message.

    Attributes:
        condition: the stanza error condition (RFC 6120 §8.3.3).
        type: the error type (RFC 6120 §8.3.2).
        text: for people, one line; or ''.
        redelivered: the message may have been handed over before, and accepted then.
    """

    condition: str
    type: ErrorType
    text: str = ""
    redelivered: bool = False

    def to_text(self) -> str:
        """The stored form."""
        values = [self.condition, self.type, self.text, self.redelivered]
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The rejection from its stored form.

        Raises:
            TypeError, ValueError: the text is no such form.
        """
        condition, type_, reason, redelivered = json.loads(text)
        return cls(str(condition), type_, str(reason), bool(redelivered))


@record(frozen=True, slots=True)
class Route:
    """The address of an attempt, and the namespace to use.

    Attributes:
        jid: the JID that gets the iq.
        namespace: one of NAMESPACES.
        marked: the JID has shown that it knows MARKS_NAMESPACE.
        absent: presence proves that the JID has no session now.
    """

    jid: str
    namespace: str = NAMESPACES[0]
    marked: bool = False
    absent: bool = False


@record(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message at its sender.

    The first group of fields never changes. The second is stored at each step. The
    third is only in memory, and has its defaults after a restart.
    """

    msg_id: str
    #: Order of acceptance; grows by one for each message of a store.
    seq: int
    #: The JID from the application: a full JID, or a bare one, which is then followed.
    to: str
    level: Level
    #: `<message xmlns='jabber:client'>…</message>` without to and from. Left out of the
    #: repr, which may be logged.
    payload: str = field(repr=False)
    #: Bytes of payload in UTF-8.
    size: int
    created_at: float
    #: The deadline as a time; None: never.
    expires_at: float | None = None
    ordered: bool = False
    #: Our JID to send from ('': the bound one).
    sender: str = ""
    #: The user of a gateway for whom it is sent, a bare JID, and a digest of what the
    #: user has posted; '': it is our own.
    account: str = ""
    digest: str = ""

    state: OutgoingState = OutgoingState.QUEUED
    #: The iq ids of the first and of the second step.
    offer_id: str
    deliver_id: str
    #: Fixed once the peer has answered by QoS; until then each attempt may choose.
    namespace: str | None = None
    #: The full JID that sent `received`, the token in it, and our full JID that got it.
    peer: str | None = None
    hold: str | None = None
    own: str | None = None
    #: iqs sent, repeats included; as far as it was stored.
    attempts: int = 0
    #: How many `deliver` may have been sent with this hold.
    delivers: int = 0

    #: All JIDs that the present iq id was sent to, and the namespace used last.
    addressed: frozenset[str] = frozenset()
    asked_in: str = NAMESPACES[0]
    #: Resources that have said, in the second step, that they do not hold it.
    not_mine: frozenset[str] = frozenset()
    #: The latest attempt has no answer yet.
    unanswered: bool = False
    #: The latest attempt went to a JID without a session, and none has begun since.
    absent: bool = False
    #: An attempt may have arrived, whatever the answer was. Counts at level
    #: acknowledged.
    doubted: bool = False
    #: Attempts since the last step forward, for the backoff.
    tries: int = 0
    #: The time of the next attempt.
    due_at: float = 0.0
    #: The latest stanza error, and the JID that sent it.
    condition: str | None = None
    condition_by: str | None = None
    #: The text of this error for people, one line.
    condition_text: str | None = None

    @property
    def flow(self) -> str:
        """The key of its window and of its order: the account of the recipient."""
        return bare(self.to)


@record(frozen=True, slots=True, kw_only=True)
class Ended:
    """The remembered end of a message at its sender: see Outgoing.

    Attributes:
        state: its outcome.
        ended_at: the time of its end.
        digest: as for Outgoing; ends with one are found by their id at once.
    """

    seq: int
    msg_id: str
    to: str
    level: Level
    size: int
    created_at: float
    ended_at: float
    state: OutgoingState
    attempts: int
    condition: str | None
    condition_by: str | None
    condition_text: str | None = None
    digest: str = ""

    @classmethod
    def of(cls, record: Outgoing, now: float) -> Self:
        """The end of this message now."""
        return cls(
            seq=record.seq,
            msg_id=record.msg_id,
            to=record.to,
            level=record.level,
            size=record.size,
            created_at=record.created_at,
            ended_at=now,
            state=record.state,
            attempts=record.attempts,
            condition=record.condition,
            condition_by=record.condition_by,
            condition_text=record.condition_text,
            digest=record.digest,
        )


@record(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message at its receiver, or the tombstone of one that has ended.

    Attributes:
        key: identifies the message (see `receiver.key_of`).
        msg_id: msgId of `assured`; the iq id of `acknowledged`.
        source: the full JID of the iq that brought it.
        to: the JID that this iq was addressed to.
        mark: the store id of a sender of ours, or ''.
        hold: our token for this one held message; '' at level acknowledged.
        payload: as for Outgoing; '' once it has ended.
        size: bytes of payload in UTF-8, kept after the payload is gone.
        received_at: when it was first held.
        changed_at: when it came into this state.
        handovers: hand-overs to a consumer, begun since it was released: by its sender,
            or by an operator after it was parked.
        rejection: of a message in state rejected, see Rejection.to_text; else ''.
        redelivered: it may have been handed over before. Not stored.
        written: it is on disk, or is to be. Not stored.
    """

    key: str
    msg_id: str
    source: str
    to: str
    level: Level
    payload: str = field(repr=False)
    size: int
    received_at: float
    changed_at: float
    state: IncomingState = IncomingState.HELD
    mark: str = ""
    hold: str = ""
    handovers: int = 0
    rejection: str = ""
    redelivered: bool = False
    written: bool = True

    @property
    def identity(self) -> str:
        """An identity: the same at each hand-over of this message, and no other has it.

        A sender of ours uses a msgId again only to repeat the same message, perhaps
        from another resource or after it has lost its store: account and msgId are the
        identity. Other senders may count their ids from 1 in each resource and after
        each start. In the proto-XEP the full JID is the sender, and an id is free when
        its message has succeeded. So the identity includes the key and this hold. At
        level acknowledged it is the id of the iq, and without a mark a message that comes
        twice is two, as the level allows, and none is lost.
        """
        if self.mark:
            return f"{bare(self.source)}\0{self.msg_id}"
        # No sender can write these characters, so no sender can imitate this form.
        return f"{self.key}\0{self.hold}"

    def is_from(self, jid: str | None) -> bool:
        """Whether this JID, full or bare, sent the message; None: any sender."""
        return jid in {None, self.source, bare(self.source)}


def only(records: Iterable[Incoming], msg_id: str, source: str | None) -> Incoming:
    """The only message with this id.

    Args:
        records: to choose from.
        msg_id: its id.
        source: its sender, full or bare; None: any.

    Raises:
        UnknownMessage: there is none.
        AmbiguousMessage: there are several.
    """
    matches = [
        message
        for message in records
        if message.msg_id == msg_id and message.is_from(source)
    ]
    if not matches:
        raise UnknownMessage(msg_id)
    if len(matches) > 1:
        senders = sorted({message.source for message in matches})
        raise AmbiguousMessage(msg_id, senders=senders)
    return matches[0]
