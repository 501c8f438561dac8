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

            FAILED_TOO_OFTEN            RELEASE
    RELEASING ─────────────────▶ PARKED ────────▶ RELEASING
      │  ▲ │                        │
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

from qos.core.message.model import Incoming, IncomingState, Level, Rejection

__all__ = ["TRANSITIONS", "At", "ReceiverInput", "Request", "classify", "is_dropped"]


class ReceiverInput(enum.Enum):
    """The inputs of a message at its receiver.

    Some of these depend on the circumstances: `classify` makes another one of them.
    """

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    #: A request about a message that is being handed over.
    BUSY = "busy"
    #: `assured` of a message that is known already.
    REPEATED = "repeated"
    #: `assured` that has waited, so that its payload is gone, of a message that is not held.
    SEND_AGAIN = "send again"
    #: A request to hold a message that trust, a quota or an operator is against.
    REFUSED = "refused"
    #: `deliver` of a message that is not held, or under another hold.
    UNKNOWN = "unknown"
    #: Somebody has the message in hand, and will say when it is taken.
    IN_HAND = "in hand"
    #: Somebody has taken the message.
    HANDED_OVER = "handed over"
    #: The same, and its sender has sent no mark: nothing is kept of it.
    HANDED_OVER_UNMARKED = "handed over, unmarked"
    #: The message was handed over, and nobody has taken it.
    NOT_TAKEN = "not taken"
    #: The same at level acknowledged.
    NOT_TAKEN_ACKNOWLEDGED = "not taken, acknowledged"
    #: The same where no request waits for an answer, as after a restart.
    NOT_TAKEN_UNASKED = "not taken, unasked"
    #: It is its turn to be handed to its consumer, perhaps again.
    CONSUME = "consume"
    #: The consumer has it: what it did, and that it did, is to be on disk at once.
    CONSUMED = "consumed"
    #: The same, and its sender has sent no mark: nothing is kept of it.
    CONSUMED_UNMARKED = "consumed, unmarked"
    #: The application has it, and rejects it for good.
    REJECTED = "rejected"
    #: The consumer's handler failed.
    FAILED = "failed"
    #: The consumer has had it as often as it may.
    FAILED_TOO_OFTEN = "failed too often"
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

#: Where a request asks about a message that nobody is at work with.
_SETTLED = [state for state in IncomingState if state is not _S.RELEASING]

#: Where each input leads, as `classify` has it. What is missing has no effect.
TRANSITIONS: dict[tuple[IncomingState, ReceiverInput], IncomingState] = {
    (_S.ABSENT, _I.ACKNOWLEDGED): _S.RELEASING,
    (_S.ABSENT, _I.ASSURED): _S.HELD,
    (_S.EXPIRED, _I.ASSURED): _S.HELD,
    (_S.DROPPED, _I.ASSURED): _S.HELD,
    (_S.HELD, _I.REPEATED): _S.HELD,
    (_S.PARKED, _I.REPEATED): _S.PARKED,
    (_S.DONE, _I.REPEATED): _S.DONE,
    (_S.REJECTED, _I.REPEATED): _S.REJECTED,
    (_S.ABSENT, _I.SEND_AGAIN): _S.ABSENT,
    (_S.EXPIRED, _I.SEND_AGAIN): _S.EXPIRED,
    (_S.DROPPED, _I.SEND_AGAIN): _S.DROPPED,
    **{(state, _I.REFUSED): state for state in _SETTLED},
    (_S.HELD, _I.DELIVER): _S.RELEASING,
    (_S.PARKED, _I.DELIVER): _S.PARKED,
    (_S.DONE, _I.DELIVER): _S.DONE,
    (_S.REJECTED, _I.DELIVER): _S.REJECTED,
    **{(state, _I.UNKNOWN): state for state in _SETTLED},
    (_S.RELEASING, _I.BUSY): _S.RELEASING,
    (_S.RELEASING, _I.IN_HAND): _S.RELEASING,
    (_S.RELEASING, _I.HANDED_OVER): _S.DONE,
    (_S.RELEASING, _I.HANDED_OVER_UNMARKED): _S.ABSENT,
    (_S.RELEASING, _I.NOT_TAKEN): _S.HELD,
    (_S.RELEASING, _I.NOT_TAKEN_ACKNOWLEDGED): _S.ABSENT,
    (_S.RELEASING, _I.NOT_TAKEN_UNASKED): _S.RELEASING,
    (_S.RELEASING, _I.REJECTED): _S.REJECTED,
    (_S.RELEASING, _I.RESTART): _S.RELEASING,
    (_S.RELEASING, _I.CONSUME): _S.RELEASING,
    (_S.RELEASING, _I.CONSUMED): _S.DONE,
    (_S.RELEASING, _I.CONSUMED_UNMARKED): _S.ABSENT,
    (_S.RELEASING, _I.FAILED): _S.RELEASING,
    (_S.RELEASING, _I.FAILED_TOO_OFTEN): _S.PARKED,
    (_S.PARKED, _I.RELEASE): _S.RELEASING,
    (_S.HELD, _I.DROP): _S.DROPPED,
    (_S.PARKED, _I.DROP): _S.DROPPED,
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
    """The circumstances of a step, beside the record and the input.

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


def classify(
    record: Incoming | None,
    input_: ReceiverInput,
    at: At,
    request: Request | None = None,
) -> ReceiverInput:
    """What an input is for this message, under these circumstances; see `step`."""
    if input_ in _REQUESTS:
        assert request is not None
        return _classify_request(record, request, at)
    if record is None:
        return input_
    if input_ in _UNMARKED and not record.mark:
        return _UNMARKED[input_]
    if input_ is _I.NOT_TAKEN and request is None:
        return _I.NOT_TAKEN_UNASKED
    if input_ is _I.NOT_TAKEN and record.level is Level.ACKNOWLEDGED:
        return _I.NOT_TAKEN_ACKNOWLEDGED
    if input_ in {_I.CONSUME, _I.FAILED} and record.handovers >= at.handovers_max:
        return _I.FAILED_TOO_OFTEN
    return input_


_REQUESTS = frozenset({_I.ACKNOWLEDGED, _I.ASSURED, _I.DELIVER})

#: Without a mark nobody can ask for it again. Nor can who has sent it be told that it is
#: rejected: by the text an answer means delivery.
_UNMARKED = {
    _I.HANDED_OVER: _I.HANDED_OVER_UNMARKED,
    _I.REJECTED: _I.HANDED_OVER_UNMARKED,
    _I.CONSUMED: _I.CONSUMED_UNMARKED,
}


def _classify_request(
    record: Incoming | None, request: Request, at: At
) -> ReceiverInput:
    if request.kind == "acknowledged":
        # Unwritten it is gone before the next one can come: nothing to count.
        exceeded = at.exceeded and at.written
        return _I.ACKNOWLEDGED if at.trusted and not exceeded else _I.REFUSED
    state = record.state if record else _S.ABSENT
    if state is _S.RELEASING:
        return _I.BUSY
    if request.kind == "deliver":
        if record is not None and request.hold not in {"", record.hold}:
            return _I.UNKNOWN  # a hold that we lost, or somebody's guess
        return _I.DELIVER if (state, _I.DELIVER) in TRANSITIONS else _I.UNKNOWN
    if not at.trusted:
        return _I.REFUSED
    if (state, _I.REPEATED) in TRANSITIONS:
        return _I.REPEATED
    if is_dropped(record):
        return _I.REFUSED
    if not request.payload:
        return _I.SEND_AGAIN
    return _I.REFUSED if at.exceeded else _I.ASSURED


def is_dropped(record: Incoming | None) -> bool:
    """Whether an operator has dropped it, and its sender can be told apart by a mark."""
    return record is not None and record.state is _S.DROPPED and bool(record.mark)
