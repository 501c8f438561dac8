"""The receiving side of a message at level acknowledged or assured.

::

              ASSURED           DELIVER              HANDED_OVER
    ABSENT ───────────▶ HELD ───────────▶ RELEASING ─────────────▶ DONE
      │ ▲                │                 ▲     │                  │
      │ │                │ EXPIRE          │     │ HANDED_OVER,     │
      │ │                ▼                 │     │ unmarked         │
      │ └─ FORGET ──── EXPIRED             │     ▼                  │
      │                                    │   ABSENT ◀── FORGET ───┘
      └──────────── ACKNOWLEDGED ──────────┘

DONE and EXPIRED are memories (tombstones): the payload is gone.

The crash argument. What an answer says is on disk before it is sent:

- HELD is on disk before `received`. A sender that has seen `received` will
  never send the message again, only `deliver`.
- RELEASING is on disk before the hand-over. After a restart each such message
  is handed over again, marked redelivered: the application may have acted, and
  only it can know.
- The result follows the hand-over. DONE is written after it, and before
  anything later about that key: a process that dies between has RELEASING on
  disk, hands over again with the mark, and answers the repeated `deliver`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, NamedTuple

from qos.core.effects import (
    Answer,
    Defer,
    Deliver,
    Effect,
    Forget,
    Refund,
    Report,
    Reserve,
    Save,
)
from qos.core.model import Incoming, IncomingState, Level, bare
from qos.core.replace import replace

__all__ = [
    "TRANSITIONS",
    "At",
    "ReceiverInput",
    "Request",
    "key_of",
    "step",
]

#: Separates the parts of a key; XML 1.0 §2.2 permits it in none of them.
_SEPARATOR = "\x1f"


class ReceiverInput(enum.Enum):
    """What can happen to a message at its receiver."""

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    #: The application has it.
    HANDED_OVER = "handed over"
    #: The process has started again.
    RESTART = "restart"
    #: It was held for as long as it may be, or an operator dropped it.
    EXPIRE = "expire"
    #: It was remembered for as long as it may be.
    FORGET = "forget"


_S, _I = IncomingState, ReceiverInput

#: Where each input leads. What is missing has no effect on the message.
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
    (_S.RELEASING, _I.HANDED_OVER): _S.DONE,
    (_S.RELEASING, _I.RESTART): _S.RELEASING,
    (_S.HELD, _I.EXPIRE): _S.EXPIRED,
    (_S.DONE, _I.FORGET): _S.ABSENT,
    (_S.EXPIRED, _I.FORGET): _S.ABSENT,
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
        payload: the embedded message without to and from ('' for `deliver`).
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
    payload: str = ""
    size: int = 0
    mark: str = ""
    hold: str = ""


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
    """

    now: float
    token: str = ""
    trusted: bool = True
    why: str = ""
    exceeded: str | None = None
    written: bool = True


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
        request: the request that is to be answered. For HANDED_OVER the `deliver`
            that released the message: None after a restart, and at level
            acknowledged, where the answer has gone out before.

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
    if input_ is _I.HANDED_OVER:
        return _handed_over(record, request, at)
    if input_ is _I.EXPIRE:
        refund = Refund(record)
        record = replace(record, state=after, payload="", changed_at=at.now)
        return record, (refund, Save(record))
    return None, (Forget(record),)


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
    if record is not None and state is not _S.EXPIRED:
        return record, (Answer("received", record.hold),)
    return _hold(record, request, at)


def _hold(
    record: Incoming | None, request: Request, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
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
        return record, (Answer("result"), Deliver(record))
    if at.exceeded:
        return None, _refusal("resource-constraint", request, at.exceeded)
    return record, (
        Reserve(record),
        Save(record),
        Answer("result"),
        Deliver(record),
    )


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
    if meant is not None and meant.state is _S.DONE:
        return record, (Answer("result", request.hold),)
    unknown = Report("", f"deliver for msgId {request.msg_id!r}, which is not held")
    if meant is None and not request.hold:
        # The text acknowledges it: it may have been delivered and removed.
        return record, (Answer("result"), unknown)
    error = Answer("error", request.hold, "item-not-found", "cancel")
    return record, (error, unknown)


def _handed_over(
    record: Incoming, request: Request | None, at: At
) -> tuple[Incoming | None, tuple[Effect, ...]]:
    if not record.counted:
        return None, ()
    effects: tuple[Effect, ...] = (Refund(record),)
    if request is not None:
        effects = (Answer("result", request.hold), *effects)
    if not record.mark:
        return None, (*effects, Forget(record))
    record = replace(record, state=_S.DONE, payload="", changed_at=at.now)
    return record, (*effects, Save(record))


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
