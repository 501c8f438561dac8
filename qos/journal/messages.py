"""The journal lines for the steps of a message: pure functions of the core's values.

A step is recorded before its first effect, so its lines may come true later or not at
all. A hand-over is recorded only when it is made: journals are read to find messages
that were handed over twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from qos.core.message.effects import Answer, Deliver, Effect, Save, Settle, Transmit
from qos.core.message.model import (
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
    Rejection,
)
from qos.core.message.receiver import NOT_NOW
from qos.core.message.receiver_table import ReceiverInput, Request
from qos.core.message.sender_table import SenderInput
from qos.core.strings import bare
from qos.journal.files import Begun
from qos.journal.schema import Entry, Event, ReceiverEvent, Role, SenderEvent

__all__ = [
    "DROPPED",
    "NOT_STORED",
    "accepted",
    "handed_over",
    "malformed",
    "not_accepted",
    "not_kept",
    "not_stored",
    "received",
    "refused",
    "released",
    "sent",
]

#: The condition of a message or item that ended at its beginning: it could not be
#: written into the store, or its commit was lost in a crash. No peer or caller was told
#: of it.
NOT_STORED = "not-stored"

#: The condition of a message that its consumer had given up, and then an operator too.
DROPPED = "dropped"

#: Steps that only count attempts: the hand-over has a line of its own, or they have
#: ended.
_CONSUMING = frozenset({ReceiverInput.CONSUME, ReceiverInput.FAILED})

#: Steps in which the application has taken the message.
_TAKEN = frozenset(
    {ReceiverInput.HANDED_OVER, ReceiverInput.REJECTED, ReceiverInput.CONSUMED}
)

_S, _R = SenderEvent, ReceiverEvent

_OUTCOMES = {
    OutgoingState.DELIVERED: _S.DELIVERED,
    OutgoingState.NOT_DELIVERED: _S.NOT_DELIVERED,
    OutgoingState.IN_DOUBT: _S.IN_DOUBT,
}
_ATTEMPTS = {"offer": _S.OFFERED, "deliver": _S.RELEASED}


# -- the sender ------------------------------------------------------------


def accepted(record: Outgoing, *, node: str) -> Entry:
    """A new message was accepted."""
    return _sender(_S.ACCEPTED, record, node, bytes=record.size)


def not_accepted(record: Outgoing, *, node: str) -> Entry:
    """A new message could not be written."""
    return _sender(_S.NOT_DELIVERED, record, node, condition=NOT_STORED)


def sent(
    record: Outgoing, input_: SenderInput, effects: Sequence[Effect], *, node: str
) -> list[Entry]:
    """A step of a message in flight.

    Args:
        record: after the step.
        input_: the input of the step.
        effects: the effects of the step.
        node: our own JID now. The JID at the time of acceptance had the same account.
    """
    entries = []
    if input_ is SenderInput.RECEIVED:
        entries.append(_sender(_S.RECEIVED, record, node))
    for effect in effects:
        if isinstance(effect, Transmit):
            event = _ATTEMPTS[effect.step]
            entries.append(_sender(event, record, node, attempt=record.attempts))
        elif isinstance(effect, Settle):
            event = _OUTCOMES[record.state]
            if input_ is SenderInput.WITHDRAW and event is _S.NOT_DELIVERED:
                event = _S.WITHDRAWN
            entries.append(
                _sender(
                    event,
                    record,
                    node,
                    attempt=record.attempts,
                    condition=_outcome_condition(record, input_),
                )
            )
    return entries


def _outcome_condition(record: Outgoing, input_: SenderInput) -> str | None:
    if record.state is OutgoingState.DELIVERED or input_ is SenderInput.WITHDRAW:
        return None
    if record.condition is None and input_ is SenderInput.DEADLINE:
        return "deadline"
    return record.condition


def _sender(
    event: SenderEvent,
    record: Outgoing,
    node: str,
    *,
    attempt: int | None = None,
    bytes: int | None = None,  # noqa: A002 - as in the schema
    condition: str | None = None,
) -> Entry:
    return Entry(
        event,
        level=record.level.value,
        msg_id=_id_there(record),
        source=record.sender or node,
        to=record.to,
        attempt=attempt,
        bytes=bytes,
        condition=condition,
    )


def _id_there(record: Outgoing) -> str:
    """The receiver's id for the message; it joins the lines of both sides."""
    if record.level is Level.ACKNOWLEDGED:
        return record.offer_id
    return record.msg_id


# -- the receiver ----------------------------------------------------------


def received(
    record: Incoming | None,
    input_: ReceiverInput,
    effects: Sequence[Effect],
    request: Request | None,
) -> list[Entry]:
    """A step of a message at its receiver, except for the hand-over itself.

    Args:
        record: before the step for HANDED_OVER, REJECTED, CONSUMED and NOT_TAKEN; after
            the step for all other inputs.
        input_: the input of the step.
        effects: the effects of the step.
        request: the request to be answered, if there is one.
    """
    if input_ is ReceiverInput.NOT_TAKEN:
        return _not_taken(record, request)
    if input_ in _TAKEN:
        if record is None:
            return []
        return [_receiver(_R.DONE, record, condition=_rejected_with(effects))]
    entries = []
    for effect in effects:
        if isinstance(effect, Answer) and effect.kind == "error":
            if request is not None:
                entries.append(refused(request, effect.condition))
        elif isinstance(effect, Save) and isinstance(effect.record, Incoming):
            if input_ not in _CONSUMING:
                entries.append(_saved(effect.record, input_))
        elif isinstance(effect, Deliver) and not effect.record.written:
            # The message is not written to the store, but it is released all the same.
            entries.append(_saved(effect.record, input_))
    return entries


def _not_taken(record: Incoming | None, request: Request | None) -> list[Entry]:
    """A message that the application did not take.

    An assured one is offered to it again.
    """
    if record is None or request is None:
        return []
    entries = [refused(request, NOT_NOW.condition)]
    if record.level is Level.ACKNOWLEDGED:
        entries.append(_receiver(_R.EXPIRED, record, condition=NOT_NOW.condition))
    return entries


def _rejected_with(effects: Sequence[Effect]) -> str | None:
    for effect in effects:
        record = effect.record if isinstance(effect, Save) else None
        if isinstance(record, Incoming) and record.state is IncomingState.REJECTED:
            return Rejection.from_text(record.rejection).condition
    return None


def _saved(record: Incoming, input_: ReceiverInput) -> Entry:
    if record.state is IncomingState.HELD:
        return _receiver(_R.HELD, record, bytes=record.size)
    if record.state is IncomingState.EXPIRED:
        return _receiver(_R.EXPIRED, record)
    if record.state is IncomingState.DROPPED:
        return _receiver(_R.EXPIRED, record, condition=DROPPED)
    new = input_ is ReceiverInput.ACKNOWLEDGED
    return _receiver(_R.RELEASED, record, bytes=record.size if new else None)


def handed_over(record: Incoming) -> Entry:
    """The message is handed over now."""
    event = _R.REDELIVERED if record.redelivered else _R.HANDED_OVER
    return _receiver(event, record)


def released(record: Incoming) -> Entry:
    """The message is still to be handed over, whatever earlier lines say."""
    return _receiver(_R.RELEASED, record)


def not_kept(before: Incoming | None, record: Incoming | None) -> list[Entry]:
    """A step could not be written: a message that began with it has ended."""
    if record is None or (before is not None and before.state is not _EXPIRED):
        return []
    return [_receiver(_R.EXPIRED, record, condition=NOT_STORED)]


_EXPIRED = IncomingState.EXPIRED


def refused(request: Request, condition: str) -> Entry:
    """A request was refused."""
    level = None if request.kind == "deliver" else request.kind
    return Entry(
        _R.REFUSED,
        level=level,
        msg_id=request.msg_id or request.iq_id,
        source=request.source,
        to=request.to or None,
        bytes=request.size or None,
        condition=condition,
    )


def malformed(source: str, to: str, condition: str) -> Entry:
    """A request was malformed, and was refused."""
    return Entry(_R.REFUSED, source=source or None, to=to or None, condition=condition)


def _receiver(
    event: ReceiverEvent,
    record: Incoming,
    *,
    bytes: int | None = None,  # noqa: A002 - as in the schema
    condition: str | None = None,
) -> Entry:
    return Entry(
        event,
        level=record.level.value,
        msg_id=record.msg_id,
        source=record.source,
        to=record.to or None,
        bytes=bytes,
        condition=condition,
    )


# -- after a crash ---------------------------------------------------------

_ENDS: dict[Role, Event] = {
    Role.SENDER: _S.NOT_DELIVERED,
    Role.RECEIVER: _R.EXPIRED,
}


def not_stored(lines: Sequence[Begun], store: Messages) -> list[Entry]:
    """The ends of messages that began in a dead boot and are not in the store.

    Args:
        lines: the lines that the writer has found.
        store: open.
    """
    if not lines:
        return []
    incoming = {(bare(record.source), record.msg_id) for record in store.incoming()}
    # All of it is read only if acknowledged messages need it: an outbox may be long.
    iq_ids = set()
    if any(line.text("level") == Level.ACKNOWLEDGED.value for line in lines):
        iq_ids = {record.offer_id for record in store.outgoing()}
    entries = []
    for line in lines:
        msg_id, source = line.text("msg_id"), line.text("from")
        if line.role is Role.SENDER:
            is_stored = msg_id in iq_ids or store.find_outgoing(msg_id) is not None
        else:
            is_stored = (bare(source), msg_id) in incoming
        event = _ENDS.get(line.role)
        if event is not None and not is_stored:
            entries.append(
                Entry(
                    event,
                    level=line.text("level"),
                    msg_id=msg_id,
                    source=source,
                    to=line.text("to"),
                    condition=NOT_STORED,
                )
            )
    return entries


class Messages(Protocol):
    """The part of a message store that the journal needs; see qos.stores.Store."""

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
