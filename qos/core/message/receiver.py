"""The receiving side of a message at level acknowledged or assured.

::

              ASSURED           DELIVER              HANDED_OVER
    ABSENT ───────────▶ HELD ◀──────────▶ RELEASING ─────────────▶ DONE
      │ ▲                │     NOT_TAKEN   ▲     │                  │
      │ │                │ EXPIRE, DROP    │     │ HANDED_OVER,     │
      │ │                ▼                 │     │ unmarked         │
      │ └─ FORGET ── EXPIRED, DROPPED      │     ▼                  │
      │                                    │   ABSENT ◀── FORGET ───┘
      └──────────── ACKNOWLEDGED ──────────┘

DONE and EXPIRED are memories (tombstones): the payload is gone. So is REJECTED, which
RELEASING leads to where the application takes the message and rejects it. Where a consumer takes
the message, its handler may fail::

               FAILED, CONSUME          RELEASE
    RELEASING ─────────────────▶ PARKED ────────▶ RELEASING
      │  ▲ │      too often         │
      │  └─┘ CONSUME, FAILED        │ DROP
      │ CONSUMED                    ▼
      ▼                          DROPPED ─── FORGET ──▶ ABSENT
    DONE

While the consumer is at work `deliver` waits for its answer; while the message is
PARKED, `deliver` is told to come again. DROPPED is a memory as well: the sender is told
that the message is not held, and if it offers it again, that it is not wanted.

The crash argument. What an answer says is on disk before it is sent:

- HELD is on disk before `received`. A sender that has seen `received` will
  never send the message again, only `deliver`.
- RELEASING is on disk before the hand-over. After a restart each such message
  is handed over again, marked redelivered: the application may have acted, and
  only it can know.
- The result follows the hand-over. DONE is written after it, and before
  anything later about that key: a process that dies between has RELEASING on
  disk, hands over again with the mark, and answers the repeated `deliver`.
- No taker, no confirmation. If nobody takes an assured message it is HELD again,
  without the mark, and the sender is told to come again. That error is sent before
  HELD is on disk: a process that dies between has RELEASING on disk and hands the
  message over again, with the mark, which is more than it has to do.
- At level acknowledged the result follows the moment at which somebody has the message
  in hand. A process that dies before has RELEASING on disk and has told nobody: it
  hands the message over again, and its sender repeats it. If nobody takes it, the error
  says that it has not arrived, so the record is gone from the disk first.
- What is handed over again after a restart, or by an operator, has a sender who may not
  ask for it any more. If nobody takes it, it stays RELEASING, and is handed over again
  until somebody does.
- REJECTED is on disk before the sender is told: a process that dies before has RELEASING
  on disk, hands over again with the mark, and the application decides anew. What it
  rejects then it may have accepted the first time, and the answer says so.
- With a consumer DONE comes first, in one commit with what its handler has written: a
  process that dies before has done nothing, one that dies after it has DONE, and
  answers the repeated `deliver`. The count of hand-overs is on disk before each, so
  that a message which kills its process is parked in the end; and not before its turn
  has come, so that those behind it are not parked with it.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
from qos.core.replace import replace
from qos.core.strings import bare

__all__ = [
    "NOT_NOW",
    "TRANSITIONS",
    "At",
    "ReceiverInput",
    "Request",
    "key_of",
    "step",
]

#: Nobody takes the message now. RFC 6120 §8.3.3.22: the recipient was not expecting the
#: request at this time. No server says so of a peer that is away: to the sender it is
#: certain that this attempt was not taken.
NOT_NOW = Answer("error", "", "unexpected-request", "wait")

#: Separates the parts of a key; XML 1.0 §2.2 permits it in none of them.
_SEPARATOR = "\x1f"


class ReceiverInput(enum.Enum):
    """What can happen to a message at its receiver."""

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    #: Somebody has the message in hand, and will say when it is taken.
    IN_HAND = "in hand"
    #: Somebody has taken the message.
    HANDED_OVER = "handed over"
    #: The message was handed over, and nobody has taken it.
    NOT_TAKEN = "not taken"
    #: It is its turn to be handed to its consumer, perhaps again.
    CONSUME = "consume"
    #: The consumer has it: what it did, and that it did, is to be on disk at once.
    CONSUMED = "consumed"
    #: The application has it, and rejects it for good.
    REJECTED = "rejected"
    #: The consumer's handler failed.
    FAILED = "failed"
    #: An operator wants a parked message handed over again.
    RELEASE = "release"
    #: An operator wants a held or parked message gone.
    DROP = "drop"
    #: The process has started again; or the message is not for the consumer any more
    #: that failed; or nobody has taken it after a restart, and it is time to try again.
    RESTART = "restart"
    #: It was held for as long as it may be.
    EXPIRE = "expire"
    #: It was remembered for as long as it may be.
    FORGET = "forget"


_S, _I = IncomingState, ReceiverInput

#: Where each input leads; CONSUME and FAILED lead to PARKED instead where the consumer
#: has failed too often. NOT_TAKEN leads to ABSENT at level acknowledged, and to RELEASING
#: where no request waits for its answer. What is missing has no effect on the message.
TRANSITIONS: dict[tuple[IncomingState, ReceiverInput], IncomingState] = {
    (_S.ABSENT, _I.ACKNOWLEDGED): _S.RELEASING,
    (_S.ABSENT, _I.ASSURED): _S.HELD,
    (_S.HELD, _I.ASSURED): _S.HELD,
    (_S.RELEASING, _I.ASSURED): _S.RELEASING,
    (_S.DONE, _I.ASSURED): _S.DONE,
    (_S.EXPIRED, _I.ASSURED): _S.HELD,
    (_S.ABSENT, _I.DELIVER): _S.ABSENT,
    (_S.HELD, _I.DELIVER): _S.RELEASING,
    (_S.RELEASING, _I.DELIVER): _S.RELEASING,
    (_S.DONE, _I.DELIVER): _S.DONE,
    (_S.EXPIRED, _I.DELIVER): _S.EXPIRED,
    (_S.RELEASING, _I.IN_HAND): _S.RELEASING,
    (_S.RELEASING, _I.HANDED_OVER): _S.DONE,
    (_S.RELEASING, _I.NOT_TAKEN): _S.HELD,
    (_S.RELEASING, _I.REJECTED): _S.REJECTED,
    (_S.REJECTED, _I.ASSURED): _S.REJECTED,
    (_S.REJECTED, _I.DELIVER): _S.REJECTED,
    (_S.RELEASING, _I.RESTART): _S.RELEASING,
    (_S.RELEASING, _I.CONSUMED): _S.DONE,
    (_S.RELEASING, _I.FAILED): _S.RELEASING,
    (_S.RELEASING, _I.CONSUME): _S.RELEASING,
    (_S.PARKED, _I.ASSURED): _S.PARKED,
    (_S.PARKED, _I.DELIVER): _S.PARKED,
    (_S.PARKED, _I.RELEASE): _S.RELEASING,
    (_S.HELD, _I.DROP): _S.DROPPED,
    (_S.PARKED, _I.DROP): _S.DROPPED,
    (_S.DROPPED, _I.ASSURED): _S.DROPPED,
    (_S.DROPPED, _I.DELIVER): _S.DROPPED,
    (_S.HELD, _I.EXPIRE): _S.EXPIRED,
    (_S.DONE, _I.FORGET): _S.ABSENT,
    (_S.EXPIRED, _I.FORGET): _S.ABSENT,
    (_S.DROPPED, _I.FORGET): _S.ABSENT,
    (_S.REJECTED, _I.FORGET): _S.ABSENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A well-formed request of a peer.

    Attributes:
        kind: the element's name.
        iq_id: the id of the iq, for the answer.
        source: the full JID it came from, as the server stamped it.
        to: the JID it was addressed to.
        namespace: of the element; the answer's namespace.
        msg_id: msgId ('' at level acknowledged).
        payload: the embedded message without to and from; '' for `deliver`, and for a
            repeated `assured` that had to wait (see `waiting`).
        size: bytes of payload in UTF-8.
        mark: our attribute `sender`, or ''.
        hold: our attribute `hold`, or ''.
    """

    kind: Literal["acknowledged", "assured", "deliver"]
    iq_id: str
    source: str
    to: str
    namespace: str
    msg_id: str = ""
    payload: str = field(default="", repr=False)
    size: int = 0
    mark: str = ""
    hold: str = ""

    def waiting(self) -> Request:
        """The request as it is kept while its message is at work: without its payload.

        What is said of the message by then answers it in nearly all cases. Where the
        message would have to be held anew, its sender is told to send it again.
        """
        return dataclasses.replace(self, payload="") if self.payload else self


class At(NamedTuple):
    """What a step may need beside the record and the input.

    Attributes:
        now: the time, seconds.
        token: a fresh random token: the hold of a message that gets held, and
            what makes the key of one at level acknowledged.
        trusted: whether the sender is.
        why: the reason of that, for the log.
        exceeded: the quota that one more message of this size would exceed.
        written: whether level acknowledged is written before it is answered.
        handovers_max: to the consumer of this message.
        retry_at: when to hand over again what has failed, or was not taken, now.
        rejection: for REJECTED.
    """

    now: float
    token: str = ""
    trusted: bool = True
    why: str = ""
    exceeded: str | None = None
    written: bool = True
    handovers_max: int = 1
    retry_at: float = 0.0
    rejection: Rejection | None = None


def key_of(request: Request, token: str = "") -> str:
    """What makes a message this one and no other.

    With the sender's mark its account and its store, so that a device that
    comes back under another resource is the same sender. Without, the full JID
    (the text, Message IDs), and nothing looser: two resources that both count
    from 1 are two senders. At level acknowledged nothing makes two requests
    one: a peer that counts its iq ids from 1 after each start would lose
    messages.
    """
    if request.kind == "acknowledged":
        return _SEPARATOR.join(("a", token))
    if request.mark:
        return _SEPARATOR.join(
            ("m", bare(request.source), request.mark, request.msg_id)
        )
    return _SEPARATOR.join(("u", request.source, request.msg_id))


def step(
    record: Incoming | None,
    input_: ReceiverInput,
    at: At,
    request: Request | None = None,
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    """Take a message one step further.

    Args:
        record: the message under this key; None: there is none.
        input_: what happened.
        at: the circumstances.
        request: the request that is to be answered. For IN_HAND, HANDED_OVER,
            NOT_TAKEN, REJECTED and CONSUMED the one that released the message: None
            after a restart, when the message was handed over again, and at level
            acknowledged when IN_HAND has answered it.

    Returns:
        The new record, or None when nothing is left of it, and the effects, to
        be performed in this order.
    """
    state = record.state if record else _S.ABSENT
    after = TRANSITIONS.get((state, input_))
    if after is None:
        return record, ()
    if input_ in _REQUESTS:
        assert request is not None
        return _on_request(record, state, request, at)
    assert record is not None
    if input_ is _I.RESTART:
        record = replace(record, redelivered=True)
        return record, (Deliver(record),)
    if input_ in {_I.CONSUME, _I.FAILED}:
        return _consume(record, input_, at)
    if input_ is _I.IN_HAND:
        answers = record.level is Level.ACKNOWLEDGED and request is not None
        return record, (Answer("result"),) if answers else ()
    if input_ is _I.HANDED_OVER:
        return _handed_over(record, request, at)
    if input_ is _I.NOT_TAKEN:
        return _not_taken(record, request, at)
    if input_ is _I.REJECTED:
        return _rejected(record, request, at)
    if input_ is _I.CONSUMED:
        return _consumed(record, request, at)
    if input_ is _I.RELEASE:
        record = replace(
            record, state=after, handovers=0, redelivered=True, changed_at=at.now
        )
        return record, (Save(record), Deliver(record))
    if input_ is _I.FORGET:
        return None, (Forget(record),)
    refund = Refund(record)
    record = replace(record, state=after, payload="", changed_at=at.now)
    return record, (refund, Save(record))


_REQUESTS = frozenset({_I.ACKNOWLEDGED, _I.ASSURED, _I.DELIVER})


def _on_request(
    record: Incoming | None, state: IncomingState, request: Request, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    if state is _S.RELEASING:
        return record, (Defer(),)
    if request.kind == "deliver":
        return _deliver(record, request, at)
    if not at.trusted:
        return record, _refusal("not-allowed", request, at.why)
    if request.kind == "acknowledged":
        return _acknowledged(request, at)
    if record is not None and state is _S.DROPPED and record.mark:
        return record, _refusal("not-allowed", request, "an operator has dropped it")
    if record is not None and state not in {_S.EXPIRED, _S.DROPPED}:
        return record, (Answer("received", record.hold),)
    return _hold(record, request, at)


def _hold(
    record: Incoming | None, request: Request, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    if not request.payload:
        # It has waited for an earlier one, of which nothing is left.
        return record, (Answer("error", "", "resource-constraint", "wait"),)
    if at.exceeded:
        return record, _refusal("resource-constraint", request, at.exceeded)
    held = _incoming(request, at, state=_S.HELD, level=Level.ASSURED)
    return held, (Reserve(held), Save(held), Answer("received", held.hold))


def _acknowledged(
    request: Request, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    record = _incoming(request, at, state=_S.RELEASING, level=Level.ACKNOWLEDGED)
    if not at.written:
        # It is gone before the next one can come: nothing to count.
        record = replace(record, counted=False)
        return record, (Deliver(record),)
    if at.exceeded:
        return None, _refusal("resource-constraint", request, at.exceeded)
    return record, (Reserve(record), Save(record), Deliver(record))


def _incoming(
    request: Request, at: At, *, state: IncomingState, level: Level
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
        mark=request.mark if assured else "",
        hold=at.token if assured else "",
    )


def _deliver(
    record: Incoming | None, request: Request, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    meant = record
    if record is not None and request.hold not in {"", record.hold}:
        meant = None  # another hold: one that we lost, or somebody's guess
    if meant is not None and meant.state is _S.HELD:
        meant = replace(meant, state=_S.RELEASING, changed_at=at.now)
        return meant, (Save(meant), Deliver(meant))
    if meant is not None and meant.state is _S.PARKED:
        return record, (NOT_NOW,)
    if meant is not None and meant.state is _S.DONE:
        return record, (Answer("result", request.hold),)
    if meant is not None and meant.state is _S.REJECTED:
        return record, (_rejection(meant, request),)
    unknown = Report("", f"deliver for msgId {request.msg_id!r}, which is not held")
    if meant is None and not request.hold:
        # The text acknowledges it: it may have been delivered and removed.
        return record, (Answer("result"), unknown)
    error = Answer("error", request.hold, "item-not-found", "cancel")
    return record, (error, unknown)


def _consume(
    record: Incoming, input_: ReceiverInput, at: At
) -> tuple[Incoming, tuple[Effect, ...]]:
    """It is to be handed over: now, later, or not any more."""
    if record.handovers >= at.handovers_max:
        record = replace(record, state=_S.PARKED, changed_at=at.now)
        return record, (Save(record),)
    if input_ is _I.FAILED:
        return record, (Retry(at.retry_at),)
    record = replace(
        record,
        handovers=record.handovers + 1,
        redelivered=record.redelivered or record.handovers > 0,
    )
    return record, (Save(record), Consume(record))


def _consumed(
    record: Incoming, request: Request | None, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    done, effects = _handed_over(record, request, at)
    *told, written = effects
    return done, (written, *told)


def _handed_over(
    record: Incoming, request: Request | None, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    effects: tuple[Effect, ...] = ()
    if request is not None:
        effects = (Answer("result", request.hold),)
    if not record.counted:
        return None, effects
    effects = (*effects, Refund(record))
    if not record.mark:
        return None, (*effects, Forget(record))
    record = replace(record, state=_S.DONE, payload="", changed_at=at.now)
    return record, (*effects, Save(record))


def _not_taken(
    record: Incoming, request: Request | None, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    if request is None:
        return record, (Retry(at.retry_at),)
    if record.level is Level.ASSURED:
        held = replace(record, state=_S.HELD, changed_at=at.now)
        return held, (NOT_NOW, Save(held))
    if not record.counted:
        return None, (NOT_NOW,)
    return None, (Refund(record), Forget(record), NOT_NOW)


def _rejected(
    record: Incoming, request: Request | None, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    """Only who has sent a mark can be told: by the text an answer means delivery."""
    assert at.rejection is not None
    if not record.mark:
        return _handed_over(record, request, at)
    rejection = replace(at.rejection, redelivered=record.redelivered)
    rejected = replace(
        record,
        state=_S.REJECTED,
        payload="",
        changed_at=at.now,
        rejection=rejection.to_text(),
    )
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


def _refusal(
    condition: Literal["not-allowed", "resource-constraint"],
    request: Request,
    reason: str,
) -> tuple[Effect, ...]:
    error_type: Literal["cancel", "wait"] = (
        "cancel" if condition == "not-allowed" else "wait"
    )
    text = f"{request.kind} of {request.size} bytes refused: {reason}"
    return (
        Answer("error", "", condition, error_type),
        Report(condition, text),
    )
