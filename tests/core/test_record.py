"""Records: what `dataclass` and `dataclasses.replace` make, only faster."""

import dataclasses

import pytest

from qos.core.message.model import Incoming, Level, Outgoing, OutgoingState
from qos.core.record import replace

OUTGOING = Outgoing(
    msg_id="m",
    seq=1,
    to="lamp@example.org",
    level=Level.ASSURED,
    payload="<message/>",
    size=10,
    created_at=1.0,
    offer_id="o",
    deliver_id="d",
    addressed=frozenset({"lamp@example.org/1"}),
)

INCOMING = Incoming(
    key="k",
    msg_id="m",
    source="a@example.org/1",
    to="b@example.org/1",
    level=Level.ASSURED,
    payload="<message/>",
    size=10,
    received_at=1.0,
    changed_at=2.0,
)


def test_it_comes_to_the_same_as_that_of_the_standard_library() -> None:
    """Fields that are not named stay, and the original record does not change."""
    before = dataclasses.replace(OUTGOING)
    changes = {"state": OutgoingState.OFFERED, "attempts": 3, "hold": "h"}
    expected = dataclasses.replace(OUTGOING, **changes)  # type: ignore[arg-type]
    assert replace(OUTGOING, **changes) == expected  # type: ignore[arg-type]
    assert before == OUTGOING
    assert replace(INCOMING) == INCOMING
    assert replace(INCOMING) is not INCOMING


def test_a_field_that_there_is_not_is_an_error() -> None:
    """A misspelt name must not be ignored silently."""
    with pytest.raises(TypeError, match="Incoming has no field 'stat'"):
        replace(INCOMING, stat=1)  # type: ignore[call-arg]


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """Not a record: `replace` has to go past its `__setattr__`."""

    one: int
    other: int = 2


def test_a_frozen_dataclass_can_be_replaced_too() -> None:
    """The result is frozen at run time, like the original."""
    frozen = Frozen(1)
    after = replace(frozen, one=3)
    assert (frozen, after) == (Frozen(1), Frozen(3, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.one = 4  # type: ignore[misc]


def test_a_record_is_equal_and_hashed_by_its_fields() -> None:
    """Like a frozen dataclass."""
    other = dataclasses.replace(OUTGOING)
    assert other == OUTGOING
    assert hash(other) == hash(OUTGOING)
    assert dataclasses.replace(OUTGOING, attempts=9) != OUTGOING


def test_a_record_has_no_other_attribute() -> None:
    """A misspelt name must not become a new one."""
    with pytest.raises(AttributeError):
        OUTGOING.stat = 1  # type: ignore[attr-defined]
