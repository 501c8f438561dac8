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

DONE and EXPIRED are tombstones: the payload is gone. So is REJECTED, which follows
RELEASING if the application takes the message and rejects it. If a consumer takes the
message, its handler may fail::

            FAILED_TOO_OFTEN            RELEASE
    RELEASING ─────────────────▶ PARKED ────────▶ RELEASING
      │  ▲ │                        │
      │  └─┘ CONSUME, FAILED        │ DROP
      │ CONSUMED                    ▼
      ▼                          DROPPED ─── FORGET ──▶ ABSENT
    DONE

While the consumer works, `deliver` waits for its answer. While the message is PARKED,
`deliver` is answered with "try again". DROPPED is a tombstone as well: the sender is
told that the message is not held, and if it offers the message again, that it is
refused. An operator may also force the drop of a message that is RELEASING, while no
process hands it over (DROP_FORCED). Its sender has asked by `deliver` before, so it learns
by the next one that the message is *in doubt*.

The crash argument. What an answer says is on disk before the answer is sent:

- HELD is on disk before `received`. A sender that has seen `received` will never send
  the message again, only `deliver`.
- RELEASING is on disk before the hand-over. After a restart each such message is handed
  over again, marked redelivered: the application may have acted, and only it can know.
- The result follows the hand-over. DONE is written after the result, and before any
  later step of that key. If the process dies in between, RELEASING is on disk: the
  message is handed over again with the mark, and the repeated `deliver` is answered.
- Without a taker there is no confirmation. If nobody takes an assured message it is
  HELD again, without the mark, and the sender is told to try again. That error is sent
  before HELD is on disk. If the process dies in between, RELEASING is on disk, and the
  message is handed over again with the mark, which is more than necessary.
- At level acknowledged the result follows the hand-over as well. If the process dies
  before, RELEASING is on disk and no answer was sent: the message is handed over
  again, and its sender repeats it. With a mark the repeat is known as one while the
  message is RELEASING or PARKED, and answered with it. A tombstone is kept if the
  message was handed over again, since its sender repeats it sooner or later; in all
  other cases the answer has just been sent, and nothing is remembered. Without a mark
  the repeat would be a new message, so a sender without one is answered when somebody
  has the message in hand: the proto-XEP answers on receipt. If nobody takes it, the
  error says that it has not arrived; so the record is first removed from the disk.
- The sender of a message that is handed over again, after a restart or by an operator,
  may not ask for it any more. If nobody takes the message, it stays RELEASING, and is
  handed over again until somebody does.
- REJECTED is on disk before the sender is told. If the process dies before, RELEASING
  is on disk: the message is handed over again with the mark, and the application
  decides again. It may reject a message that it accepted the first time, and the answer
  says so.
- With a consumer DONE comes first, in one commit with the writes of its handler. If the
  process dies before, the handler has done nothing; if it dies afterwards, DONE is on
  disk, and the repeated `deliver` is answered. The count of hand-overs is on disk
  before each one, so that a message that kills its process is parked in the end. It is
  not counted before its turn has come, so that later messages are not parked with it.
- A loop counts as a consumer does, when the work on a message begins, but not the first
  time: so nothing more is written for a message that is well. A message that was handed
  over before is counted on disk before the loop gets it again, so this one, too, is parked
  in the end.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Literal, NamedTuple

from qos.core.message.model import Incoming, IncomingState, Level, Rejection
from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = [
    "TRANSITIONS",
    "At",
    "ReceiverInput",
    "Request",
    "begins",
    "classify",
    "is_dropped",
]


class ReceiverInput(QuickEnum):
    """The inputs of a message at its receiver.

    For some of these `classify` decides by the circumstances, and returns another one.
    """

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    #: A request about a message that is being handed over.
    BUSY = "busy"
    #: `assured`, or a marked `acknowledged`, for a message that is already known.
    REPEATED = "repeated"
    #: The same that has waited, and so has lost its payload, for a message that is not
    #: held.
    SEND_AGAIN = "send again"
    #: A request to hold a message that trust, a quota or an operator forbids.
    REFUSED = "refused"
    #: `deliver` for a message that is not held, or is held under another token.
    UNKNOWN = "unknown"
    #: Somebody has the message in hand, and will report when it is taken. It is the end
    #: for a sender at level acknowledged that has no mark.
    IN_HAND = "in hand"
    #: Somebody has taken the message.
    HANDED_OVER = "handed over"
    #: The same for a sender without a mark: no tombstone is kept.
    HANDED_OVER_UNMARKED = "handed over, unmarked"
    #: The message was handed over, but nobody has taken it.
    NOT_TAKEN = "not taken"
    #: The same at level acknowledged.
    NOT_TAKEN_ACKNOWLEDGED = "not taken, acknowledged"
    #: The same when no request waits for an answer, as after a restart.
    NOT_TAKEN_UNASKED = "not taken, unasked"
    #: A loop of the application begins to work on a message that it has in hand.
    BEGIN = "begin"
    #: The message's turn at its consumer has come, perhaps again.
    CONSUME = "consume"
    #: The consumer has succeeded: its writes and the end of the message go to disk
    #: together.
    CONSUMED = "consumed"
    #: The same for a sender without a mark: no tombstone is kept.
    CONSUMED_UNMARKED = "consumed, unmarked"
    #: The application got the message, and rejects it for good.
    REJECTED = "rejected"
    #: The consumer's handler failed.
    FAILED = "failed"
    #: The consumer, or the loop, has had the message as often as allowed.
    FAILED_TOO_OFTEN = "failed too often"
    #: An operator wants a parked message handed over again.
    RELEASE = "release"
    #: An operator drops a held or parked message.
    DROP = "drop"
    #: An operator drops a message that may have been handed over. It is only given while
    #: no process hands anything over.
    DROP_FORCED = "drop, forced"
    #: The process has started again; or the consumer that failed does not take the
    #: message any more; or nobody has taken it after a restart, and it is time to try
    #: again.
    RESTART = "restart"
    #: The message was held for the longest allowed time.
    EXPIRE = "expire"
    #: The tombstone was kept for the longest allowed time.
    FORGET = "forget"


_S, _I = IncomingState, ReceiverInput

#: The states in which a request concerns a message that nobody is handling.
_SETTLED = [state for state in IncomingState if state is not _S.RELEASING]

#: The transitions of the inputs that `classify` returns. A missing pair has no effect.
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
    (_S.RELEASING, _I.BEGIN): _S.RELEASING,
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
    (_S.RELEASING, _I.DROP_FORCED): _S.DROPPED,
    (_S.HELD, _I.EXPIRE): _S.EXPIRED,
    (_S.DONE, _I.FORGET): _S.ABSENT,
    (_S.EXPIRED, _I.FORGET): _S.ABSENT,
    (_S.DROPPED, _I.FORGET): _S.ABSENT,
    (_S.REJECTED, _I.FORGET): _S.ABSENT,
}


@record(frozen=True, slots=True, kw_only=True)
class Request:
    """A well-formed request of a peer.

    Attributes:
        kind: the element's name.
        iq_id: the id of the iq, for the answer.
        source: the full JID of its sender, as the server set it.
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
        """The request, kept without its payload while its message is being handled.

        The later state of the message answers it in nearly all cases. If the message
        would have to be held again, its sender is told to send it again.
        """
        return dataclasses.replace(self, payload="") if self.payload else self


class At(NamedTuple):
    """The circumstances of a step, besides the record and the input.

    Attributes:
        now: the time, in seconds.
        token: a new random token: the hold of a message that gets held, and the unique
            part of the key at level acknowledged.
        trusted: whether the sender is trusted.
        why: the reason of that, for the log.
        exceeded: the quota that one more message of this size would exceed.
        written: whether level acknowledged is written before it is answered.
        handovers_max: the most hand-overs to the consumer of this message; or to a loop,
            after the first one.
        retry_at: when to repeat a hand-over that has failed, or was not taken, now.
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
    """The input as it counts for this message in these circumstances.

    See `step`.
    """
    if input_ in _REQUESTS:
        assert request is not None
        return _classify_request(record, request, at)
    if record is None:
        return input_
    if input_ in _UNMARKED and not _is_remembered(record):
        return _UNMARKED[input_]
    if input_ is _I.NOT_TAKEN and request is None:
        return _I.NOT_TAKEN_UNASKED
    if input_ is _I.NOT_TAKEN and record.level is Level.ACKNOWLEDGED:
        return _I.NOT_TAKEN_ACKNOWLEDGED
    counts = input_ in _COUNTED or (input_ is _I.BEGIN and record.redelivered)
    if counts and record.handovers >= at.handovers_max:
        return _I.FAILED_TOO_OFTEN
    return input_


_COUNTED = frozenset({_I.CONSUME, _I.FAILED})

_REQUESTS = frozenset({_I.ACKNOWLEDGED, _I.ASSURED, _I.DELIVER})

#: What asks for a message to be held, or would with its payload.
_BRINGS = frozenset({_I.ACKNOWLEDGED, _I.ASSURED, _I.SEND_AGAIN})

#: Without a mark no sender can ask for it again. Nor can such a sender be told of a
#: rejection: in the proto-XEP an answer means delivery.
_UNMARKED = {
    _I.HANDED_OVER: _I.HANDED_OVER_UNMARKED,
    _I.REJECTED: _I.HANDED_OVER_UNMARKED,
    _I.CONSUMED: _I.CONSUMED_UNMARKED,
}


def _is_remembered(record: Incoming) -> bool:
    """Whether a tombstone is kept of a message that has ended.

    Only with a mark a repeat can be told from a new message. At level acknowledged one is
    expected only after a hand-over for which nobody may have waited.
    """
    return bool(record.mark) and (record.level is Level.ASSURED or record.redelivered)


def _classify_request(
    record: Incoming | None, request: Request, at: At
) -> ReceiverInput:
    state = record.state if record else _S.ABSENT
    if state is _S.RELEASING:
        return _I.BUSY
    if request.kind == "deliver":
        if record is not None and request.hold not in {"", record.hold}:
            return _I.UNKNOWN  # a hold that we lost, or a guess
        return _I.DELIVER if (state, _I.DELIVER) in TRANSITIONS else _I.UNKNOWN
    if not at.trusted:
        return _I.REFUSED
    if (state, _I.REPEATED) in TRANSITIONS:
        return _I.REPEATED
    if is_dropped(record):
        return _I.REFUSED
    if not request.payload:
        return _I.SEND_AGAIN
    if at.exceeded:
        return _I.REFUSED
    return _I.ACKNOWLEDGED if request.kind == "acknowledged" else _I.ASSURED


def begins(
    record: Incoming | None, input_: ReceiverInput, at: At, request: Request
) -> bool:
    """Whether a request brings a new message, or releases one that is held.

    Args: as for `step`.
    """
    input_ = classify(record, input_, at, request)
    if input_ is _I.DELIVER:
        assert record is not None
        return record.state is _S.HELD
    return input_ in _BRINGS


def is_dropped(record: Incoming | None) -> bool:
    """Whether an operator has dropped it, and a mark allows to tell the sender."""
    return record is not None and record.state is _S.DROPPED and bool(record.mark)
