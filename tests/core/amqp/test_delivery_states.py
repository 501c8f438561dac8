"""Delivery states on the wire, maps of them, and positions in a part of a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_messages import read_or_refused, sections
from qos.core.amqp import delivery_states, values
from qos.core.amqp.delivery_states import (
    PeerOutcome,
    numbered,
    read_state,
    read_unsettled,
    state_of,
    write_state,
    write_unsettled,
)
from qos.core.amqp.positions import cut_at, position_of
from qos.core.amqp.resuming import Position, State
from qos.core.amqp.sections import Section
from qos.core.amqp.values import DecodeError
from qos.core.queue.item import ItemOutcome

positions = st.builds(Position, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
states: st.SearchStrategy[State] = st.one_of(
    st.none(), positions, st.sampled_from(ItemOutcome)
)
tags = st.binary(min_size=1, max_size=32)


def described(code: int, *fields: bytes) -> bytes:
    return b"\x00" + values.ulong(code) + values.pack_list(fields)


@given(states)
def test_a_state_that_is_written_can_be_read(state: State) -> None:
    assert state_of(read_state(write_state(state))) == state


def test_what_we_settle_as_modified_has_failed() -> None:
    told = read_state(write_state(ItemOutcome.MODIFIED))
    assert told == PeerOutcome(ItemOutcome.MODIFIED, delivery_failed=True)


TRUE = values.boolean(True)
ACCEPTED_BY_NAME = b"\x00" + values.symbol("amqp:accepted:list") + b"\x45"


def test_a_descriptor_that_is_a_symbol_becomes_a_number() -> None:
    assert numbered(ACCEPTED_BY_NAME) == b"\x00\x53\x24\x45"
    for other in (described(0x24), b"\x00" + values.symbol("shop:own") + b"\x45"):
        assert numbered(other) == other


NOTE = values.pack_map([values.symbol("x-opt-a"), values.uint(1)])
ERROR = described(0x1D, values.symbol("shop:bad"), values.string("no"))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x00\x53\x24\x45", PeerOutcome(ItemOutcome.ACCEPTED)),
        (ACCEPTED_BY_NAME, PeerOutcome(ItemOutcome.ACCEPTED)),
        # What is no map changes nothing.
        (
            described(0x27, TRUE, TRUE, TRUE),
            PeerOutcome(
                ItemOutcome.MODIFIED, delivery_failed=True, undeliverable_here=True
            ),
        ),
        (
            described(0x27, TRUE, TRUE),
            PeerOutcome(
                ItemOutcome.MODIFIED, delivery_failed=True, undeliverable_here=True
            ),
        ),
        (
            described(0x27, values.NULL, values.NULL, NOTE),
            PeerOutcome(ItemOutcome.MODIFIED, annotations=NOTE),
        ),
        (
            described(0x25, ERROR),
            PeerOutcome(ItemOutcome.REJECTED, reason="shop:bad: no"),
        ),
        (described(0x25, described(0x1D)), PeerOutcome(ItemOutcome.REJECTED)),
        (described(0x25), PeerOutcome(ItemOutcome.REJECTED)),
        (described(0x26), PeerOutcome(ItemOutcome.RELEASED)),
        (described(0x23, values.uint(3)), Position(3, 0)),
    ],
)
def test_an_outcome_has_what_the_peer_tells(data: bytes, told: PeerOutcome) -> None:
    assert read_state(data) == told


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (described(0x34), "the delivery state 52 is not known"),
        (b"\x00\xa3\x01x\x45", "the delivery state 'x' is not known"),
        (described(0x24) + b"\x40", "more than one delivery state"),
        (described(0x23, TRUE), "field 0 is no unsigned number"),
        (described(0x27, values.uint(1)), "field 0 is no boolean"),
        (described(0x25, described(0x28)), "the error of a rejected delivery is none"),
        (b"\x41", "no described value"),
    ],
)
def test_what_is_no_state_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read_state(data)


# -- maps ------------------------------------------------------------------


@given(st.dictionaries(tags, states, max_size=20), st.integers(0, 400))
def test_a_map_has_as_many_entries_as_there_is_room_for(
    entries: dict[bytes, State], room: int
) -> None:
    written, incomplete = write_unsettled(entries, room)
    found = read_unsettled(written)
    assert found is not None
    assert incomplete == (len(found) < len(entries))
    assert not found or len(written) <= room
    assert [(tag, state_of(state)) for tag, state in found.items()] == [
        *entries.items()
    ][: len(found)]


def test_no_map_is_not_an_empty_one() -> None:
    assert read_unsettled(values.NULL) is None
    assert read_unsettled(values.pack_map([])) == {}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([values.binary(b"t")], "a delivery-tag without a state"),
        ([values.string("t"), values.NULL], "a delivery-tag is not binary"),
        ([values.binary(bytes(33)), values.NULL], "a delivery-tag of 33 bytes"),
        (
            [values.binary(b"t"), values.NULL] * (delivery_states.UNSETTLED_MAX + 1),
            "more than 2000 unsettled deliveries",
        ),
    ],
)
def test_what_is_no_map_is_refused_by_name(pairs: list[bytes], why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read_unsettled(values.pack_map(pairs))


@given(
    st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(b"\x00\x53".__add__))
)
def test_any_bytes_are_a_state_and_a_map_or_are_refused(data: bytes) -> None:
    read_or_refused(read_state, data)
    read_or_refused(read_unsettled, data)


# -- positions -------------------------------------------------------------


@given(sections(), st.data())
def test_a_part_goes_on_from_any_position_within_it(
    parts: list[tuple[Section, bytes]], data: st.DataObject
) -> None:
    """Bytes sent again from a position on make the message whole."""
    message = b"".join(written for _, written in parts)
    part = message[: data.draw(st.integers(0, len(message)))]
    ours = position_of(part)
    assert cut_at(part, ours) == part
    section = data.draw(st.integers(0, ours.section))
    start = sum(len(written) for _, written in parts[:section])
    end = start + len(parts[section][1]) if section < len(parts) else start
    offset = data.draw(st.integers(0, max(0, min(end, len(part)) - start)))
    before = cut_at(part, Position(section, offset))
    assert before == message[: start + offset]
    assert cut_at(part, None) == b""


@pytest.mark.parametrize(
    "position", [Position(0, 5), Position(1, 3), Position(2, 0), Position(9, 0)]
)
def test_a_position_behind_the_part_leaves_a_gap(position: Position) -> None:
    part = b"\x00\x53\x77\x40" + b"\x00\x53"
    assert cut_at(part, position) is None
