"""FIFO lanes: in each lane one entry after another, independent of other lanes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.core.fifo_lanes import FifoLanes


def test_the_first_goes_on_and_the_others_wait_in_their_order() -> None:
    """The order of arrival is the order of the sender."""
    lanes: FifoLanes[str] = FifoLanes()
    assert lanes.enter("a", "1")
    assert not lanes.enter("a", "2")
    assert not lanes.enter("a", "3")
    assert lanes.leave("a") == "2"
    assert lanes.leave("a") == "3"
    assert lanes.leave("a") is None


def test_one_that_is_first_already_goes_on_again() -> None:
    """A retry keeps its place."""
    lanes: FifoLanes[str] = FifoLanes()
    assert lanes.enter("a", "1")
    assert not lanes.enter("a", "2")
    assert lanes.enter("a", "1")
    assert not lanes.enter("a", "2"), "it waits once, however often it asks"
    assert lanes.leave("a") == "2"
    assert lanes.leave("a") is None


def test_nobody_waits_for_another_lane() -> None:
    """A bad message of one sender must not delay another sender."""
    lanes: FifoLanes[str] = FifoLanes()
    assert lanes.enter("a", "1")
    assert lanes.enter("b", "1")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=30))
def test_each_lane_goes_on_in_order_and_leaves_nothing_behind(
    moves: list[tuple[str, bool]],
) -> None:
    """In any sequence of arrivals and departures."""
    lanes: FifoLanes[int] = FifoLanes()
    waiting: dict[str, list[int]] = {"a": [], "b": []}
    for number, (lane, comes) in enumerate(moves):
        line = waiting[lane]
        if comes:
            line.append(number)
            assert lanes.enter(lane, number) is (line[0] == number)
        elif line:
            del line[0]
            assert lanes.leave(lane) == (line[0] if line else None)
    for lane, line in waiting.items():
        for _ in line:
            lanes.leave(lane)
        assert lanes.enter(lane, -1), "it is empty"
