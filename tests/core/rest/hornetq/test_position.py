"""The place of a pull consumer: which of its links is due.

The rows are those of docs/rest-checklist.md.
"""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from qos.core.rest.hornetq.position import ALLOWED, START, Link, Place, Position


def test_the_table_has_each_place() -> None:
    assert ALLOWED.keys() == set(product(Place, (True, False)))
    assert all(Link.NEXT in each for (_, auto), each in ALLOWED.items() if auto)


def test_a_new_consumer_goes_on_from_anywhere() -> None:
    """One that is made again after a restart knows none of its links."""
    for auto in (True, False):
        assert Position(auto).allows(START)
        assert Position(auto).allows("of before the restart")
    assert Position(True).acknowledges("d1")
    assert not Position(True).acknowledges(START)
    assert not Position(False).acknowledges("d1")


def test_with_auto_ack_the_next_post_acknowledges() -> None:
    """H8."""
    given_ = Position(True).given("d1", START)
    assert [given_.allows(each) for each in (START, "d1", "d0")] == [True, True, False]
    assert [given_.acknowledges(each) for each in (START, "d1")] == [False, True]
    settled = given_.settled("d1")
    assert [settled.allows(each) for each in (START, "d1")] == [False, True]
    assert not settled.acknowledges("d1")
    assert settled.given("d2", "d1") == Position(True, Place.GIVEN, "d2", "d1")


def test_without_it_the_delivery_has_to_be_acknowledged_first() -> None:
    """H9, H10."""
    given_ = Position(False).given("d1", START)
    assert [given_.allows(each) for each in (START, "d1")] == [True, False]
    assert not given_.acknowledges("d1")
    settled = given_.settled("d1")
    assert [settled.allows(each) for each in (START, "d1")] == [False, True]


def test_the_end_of_an_earlier_delivery_changes_nothing() -> None:
    given_ = Position(False).given("d2", "d1")
    assert given_.settled("d1") == given_
    # One that is made again learns of it.
    assert Position(False).settled("d1") == Position(False, Place.SETTLED, "d1")


def test_a_link_that_has_given_nothing_is_due_again() -> None:
    """Or whose answer has not left."""
    back = Position(True).given("d2", "d1").nothing("d1")
    assert (back.allows("d1"), back.acknowledges("d1")) == (True, False)
    assert not back.allows("d2")


def test_after_a_restart_any_link_but_the_next_asks_again() -> None:
    """The store tells what is held; it does not tell which link gave it."""
    held = Position(True, Place.GIVEN, "d2")
    assert held.allows("d1")
    assert not held.acknowledges("d1")
    assert held.acknowledges("d2")


@given(st.lists(st.sampled_from(["take", "settle", "lose"])), st.booleans())
def test_some_link_is_always_due(steps: list[str], auto: bool) -> None:
    """And it is the one that the consumer has been told."""
    place, due = Position(auto), START
    for number, step in enumerate(steps):
        if step == "take" and place.allows(due):
            if place.acknowledges(due):
                place = place.settled(due)
            place = place.given(f"d{number}", due)
            due = f"d{number}" if auto else due
        elif step == "settle" and place.place is Place.GIVEN:
            due = place.last
            place = place.settled(due)
        elif step == "lose" and place.place is Place.GIVEN:
            due = place.asked or START
            place = place.nothing(due)
        assert place.allows(due)
