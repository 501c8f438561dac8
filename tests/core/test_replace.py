"""Records replaced with the result of `dataclasses.replace`, only faster."""

import dataclasses

import pytest

from qos.core.message.model import Incoming, Level, Outgoing, OutgoingState
from qos.core.replace import replace

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


def test_what_comes_out_is_as_frozen_as_before() -> None:
    """Others may hold the record, so it must not change."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(INCOMING).state = INCOMING.state  # type: ignore[misc]
