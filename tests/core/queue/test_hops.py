"""Hops: a message that was forwarded too often is forwarded no more."""

import pytest

from qos.core.queue.properties import (
    HEADER_BYTES_MAX,
    HOPS_MAX,
    NAMES_MAX,
    Properties,
    Value,
    header_size,
    hops_of,
    properties_size,
    why_not,
    why_stop,
)


def test_a_message_is_forwarded_so_often_and_not_once_more() -> None:
    """A count that is too large is no way around."""
    for count in range(HOPS_MAX):
        properties: Properties = {"n": 1, "qos_hops": count}
        assert (hops_of(properties), why_stop(properties)) == (count, "")
    for count in (HOPS_MAX, 1_000_000):
        assert "16 times" in why_stop({"qos_hops": count})


@pytest.mark.parametrize("value", [-1_000_000, 0, "15", True, 1.5, None])
def test_a_value_that_is_no_count_is_none(value: Value | None) -> None:
    """Publishers can write any; none of them makes a circle longer."""
    properties = {} if value is None else {"qos_hops": value}
    assert hops_of(properties) == 0
    assert why_stop(properties) == ""


def test_the_count_makes_no_message_too_large() -> None:
    """A message at a limit is forwarded too; any other property counts."""
    names: dict[str, Value] = {f"n{number}": 1 for number in range(NAMES_MAX)}
    assert why_not({**names, "qos_hops": 1}) is None
    assert why_not({**names, "other": 1}) is not None
    room = HEADER_BYTES_MAX - header_size({"a": ""})
    full: dict[str, Value] = {"a": "x" * room}
    assert why_not({"a": "x" * (room + 1)}) is not None
    counted = {**full, "qos_hops": 16}
    assert why_not(counted) is None
    assert properties_size(counted) == properties_size(full)
    assert why_not({**full, "qos_hops": "x"}) is not None
