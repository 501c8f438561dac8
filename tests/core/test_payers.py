"""Who pays: the order in which work is done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.core import payers
from qos.core.payers import FairOrder


def served(
    order: FairOrder, costs: dict[str, float], until_s: float
) -> dict[str, float]:
    """The seconds that each has got; all of them always have more work."""
    got = dict.fromkeys(costs, 0.0)
    for payer in costs:
        order.add(payer)
    while sum(got.values()) < until_s:
        payer = order.take()
        order.charge(payer, costs[payer])
        got[payer] += costs[payer]
        order.add(payer)
    return got


@given(st.lists(st.floats(0.001, 0.2), min_size=2, max_size=6))
def test_each_payer_gets_the_same_time_whatever_a_step_costs(
    costs: list[float],
) -> None:
    """At most two dear steps lie between the one that has got most and the others."""
    got = served(FairOrder(), {str(n): each for n, each in enumerate(costs)}, 5.0)
    assert max(got.values()) - min(got.values()) <= 2 * max(costs) + 1e-6


def test_one_that_was_silent_is_next_but_is_not_paid_for_its_silence() -> None:
    order = FairOrder()
    served(order, {"flood": 0.01}, 10.0)
    order.add("new")
    assert order.take() == "new"
    order.charge("new", 0.01)
    order.add("new")
    turns = []
    for _ in range(6):
        turns.append(payer := order.take())
        order.charge(payer, 0.01)
        order.add(payer)
    assert turns.count("flood") == 3


def test_those_who_have_used_the_same_are_served_in_order() -> None:
    order = FairOrder()
    for payer in "abc":
        order.add(payer)
    assert order.first == "a"
    assert [order.take() for _ in range(3)] == ["a", "b", "c"]


def test_one_whose_work_could_not_be_cut_does_not_wait_for_ever() -> None:
    order = FairOrder()
    order.add("dear")
    order.charge(order.take(), 60.0)
    order.add("dear")
    order.add("other")
    others = 0
    while order.take() == "other":
        order.charge("other", 0.01)
        order.add("other")
        others += 1
    assert 20 <= others <= 30


def test_what_was_used_is_forgotten_when_nobody_waits() -> None:
    order = FairOrder()
    order.charge("a", 0.2)
    order.rest()
    order.add("a")
    order.add("b")
    assert order.take() == "a"


def test_a_crowd_of_payers_takes_no_memory() -> None:
    """However many addresses come once each, while somebody else is at work."""
    order = FairOrder()
    for number in range(payers._REMEMBERED_MAX + 100):
        order.add(str(number))
        order.charge(order.take(), 0.001)
    assert len(order._used_s) <= payers._REMEMBERED_MAX
    # Those who have used no more than the one that is served now are forgotten as well.
    served(order, {"a": 0.01}, 50.0)
    for _ in range(payers._REMEMBERED_MAX):
        order.charge("a", 0.01)
    assert len(order._used_s) <= 1
