"""Delivery states on the wire (messaging §3.4), and maps of unsettled deliveries.

A map of an `attach` has the tags of deliveries that one end has not settled, each with
its state there (transport §2.7.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from qos.core.amqp import values
from qos.core.amqp.frames import field_bytes, flag, number
from qos.core.amqp.resuming import Position, State
from qos.core.amqp.values import DecodeError, decode, descriptor, elements, end_of
from qos.core.queue.item import Disposition, ItemOutcome
from qos.core.record import record

__all__ = [
    "UNSETTLED_MAX",
    "PeerOutcome",
    "PeerState",
    "numbered",
    "read_state",
    "read_unsettled",
    "state_of",
    "write_state",
    "write_unsettled",
]

#: The most entries of a map of unsettled deliveries that are read. A peer that has more
#: sends an incomplete map (transport §2.7.3).
UNSETTLED_MAX = 2000

#: The most bytes of a delivery-tag (transport §2.8.7).
TAG_BYTES_MAX = 32

_RECEIVED = 0x23
_OUTCOMES = {
    0x24: ItemOutcome.ACCEPTED,
    0x25: ItemOutcome.REJECTED,
    0x26: ItemOutcome.RELEASED,
    0x27: ItemOutcome.MODIFIED,
}
_NAMES = {
    "amqp:received:list": 0x23,
    "amqp:accepted:list": 0x24,
    "amqp:rejected:list": 0x25,
    "amqp:released:list": 0x26,
    "amqp:modified:list": 0x27,
}
_MAPS = (0xC1, 0xD1)
_CODES = {outcome: code for code, outcome in _OUTCOMES.items()}
_ERROR = 0x1D

#: The bytes of a map beside its entries: its constructor, size and count.
_MAP_BYTES = 9


@record(frozen=True, slots=True)
class PeerOutcome(Disposition):
    """The end of a delivery, as a peer tells it.

    The reason of a rejected one is the condition of its error, and the description.

    Attributes:
        annotations: with modified: what changes in those of the item, as an encoded map;
            b'': nothing.
    """

    annotations: bytes = b""


#: A state as a peer tells it; see `qos.core.amqp.resuming.State`.
PeerState: TypeAlias = PeerOutcome | Position | None


def state_of(peer_state: PeerState) -> State:
    """The state alone."""
    return peer_state.outcome if isinstance(peer_state, PeerOutcome) else peer_state


def read_state(data: bytes) -> PeerState:
    """The delivery state in the data, which is exactly one value.

    Raises:
        DecodeError: it is no state that we know.
    """
    if data == values.NULL:
        return None
    code, at = descriptor(data, 0)
    if end_of(data, at) != len(data):
        raise DecodeError("more than one delivery state", at)
    fields = elements(data[at:])
    code = _NAMES.get(code, code) if isinstance(code, str) else code
    if code == _RECEIVED:
        return Position(number(fields, 0), number(fields, 1))
    outcome = _OUTCOMES.get(code) if isinstance(code, int) else None
    if outcome is None:
        raise DecodeError(f"the delivery state {code!r} is not known", 0)
    if outcome is ItemOutcome.MODIFIED:
        annotations = field_bytes(fields, 2)
        if annotations[0] not in _MAPS:
            annotations = b""
        return PeerOutcome(
            outcome,
            delivery_failed=flag(fields, 0),
            undeliverable_here=flag(fields, 1),
            annotations=annotations,
        )
    if outcome is ItemOutcome.REJECTED:
        return PeerOutcome(outcome, reason=_reason(field_bytes(fields, 0)))
    return PeerOutcome(outcome)


def numbered(data: bytes) -> bytes:
    """A delivery state with a number as its descriptor, where it has the symbol.

    Raises:
        DecodeError: it is no described value.
    """
    code, at = descriptor(data, 0)
    number_ = _NAMES.get(code) if isinstance(code, str) else None
    return data if number_ is None else b"\x00" + values.ulong(number_) + data[at:]


def _reason(data: bytes) -> str:
    if data == values.NULL:
        return ""
    code, at = descriptor(data, 0)
    if code != _ERROR:
        raise DecodeError("the error of a rejected delivery is none", 0)
    fields = elements(data[at:])
    texts = [decode(field_bytes(fields, place)) for place in (0, 1)]
    return ": ".join(str(text) for _, text in texts if text)


def write_state(state: State) -> bytes:
    """An encoded delivery state."""
    if state is None:
        return values.NULL
    if isinstance(state, Position):
        fields = [values.uint(state.section), values.ulong(state.offset)]
        code = _RECEIVED
    else:
        code = _CODES[state]
        # What we settle as modified has failed.
        modified = state is ItemOutcome.MODIFIED
        fields = [values.boolean(True)] if modified else []
    return b"\x00" + values.ulong(code) + values.pack_list(fields)


def read_unsettled(data: bytes) -> dict[bytes, PeerState] | None:
    """The map of unsettled deliveries of an attach; None: there is none.

    Raises:
        DecodeError: it is no such map, or has too many entries.
    """
    if data == values.NULL:
        return None
    pairs = elements(data)
    if len(pairs) % 2:
        raise DecodeError("a delivery-tag without a state", 0)
    if len(pairs) > 2 * UNSETTLED_MAX:
        raise DecodeError(f"more than {UNSETTLED_MAX} unsettled deliveries", 0)
    states: dict[bytes, PeerState] = {}
    for key, state in zip(pairs[::2], pairs[1::2], strict=True):
        kind, tag = decode(key)
        if kind != "binary":
            raise DecodeError("a delivery-tag is not binary", 0)
        assert isinstance(tag, bytes)
        if len(tag) > TAG_BYTES_MAX:
            raise DecodeError(f"a delivery-tag of {len(tag)} bytes", 0)
        states[tag] = read_state(state)
    return states


def write_unsettled(
    entries: Mapping[bytes, State], bytes_max: int
) -> tuple[bytes, bool]:
    """A map of unsettled deliveries, and whether it is incomplete.

    Args:
        entries: states by delivery-tag.
        bytes_max: how long it may be; it has as many entries as there is room for.
    """
    pairs: list[bytes] = []
    room = bytes_max - _MAP_BYTES
    for tag, state in entries.items():
        pair = (values.binary(tag), write_state(state))
        room -= sum(map(len, pair))
        if room < 0:
            return values.pack_map(pairs), True
        pairs += pair
    return values.pack_map(pairs), False
