"""The order in which the addresses of a server are tried."""

from __future__ import annotations

import pytest

from qos.core.addresses import (
    ADDRESSES_MAX,
    BAD_S,
    Address,
    AddressBook,
    interleaved,
)

SIX, ALSO_SIX = ("2001:db8::1", 5222), ("2001:db8::2", 5222)
FOUR, ALSO_FOUR = ("192.0.2.1", 5222), ("192.0.2.2", 5222)


@pytest.mark.parametrize(
    ("given", "tried"),
    [
        ([], []),
        ([FOUR], [FOUR]),
        ([FOUR, ALSO_FOUR, SIX], [SIX, FOUR, ALSO_FOUR]),
        ([SIX, ALSO_SIX, FOUR, ALSO_FOUR], [SIX, FOUR, ALSO_SIX, ALSO_FOUR]),
        ([FOUR, FOUR, ("192.0.2.1", 5223)], [FOUR, ("192.0.2.1", 5223)]),
    ],
)
def test_the_families_take_turns(given: list[Address], tried: list[Address]) -> None:
    """One family that does not work costs one step, not all of its addresses."""
    assert interleaved(given) == tried


def test_what_failed_is_tried_last_for_ten_minutes() -> None:
    """Then it is as good as the others again."""
    book = AddressBook()
    book.failed(SIX, 100.0)
    assert book.order([SIX, FOUR, ALSO_FOUR], 100.0) == [FOUR, ALSO_FOUR, SIX]
    assert book.good([SIX, FOUR, ALSO_FOUR]) == 2
    assert book.order([SIX, FOUR], 100.0 + BAD_S) == [SIX, FOUR]
    assert book.good([SIX, FOUR]) == 2


def test_where_all_failed_the_first_to_fail_is_the_first_to_be_tried_again() -> None:
    """None is left out: a server that was down comes back."""
    book = AddressBook()
    for now, each in enumerate((FOUR, SIX, FOUR)):
        book.failed(each, float(now))
    assert book.order([FOUR, SIX], 3.0) == [SIX, FOUR]
    assert book.good([FOUR, SIX]) == 0


def test_one_that_has_brought_a_session_is_good_again() -> None:
    """Also one that was never known to be bad."""
    book = AddressBook()
    book.failed(SIX, 0.0)
    book.worked(SIX)
    book.worked(FOUR)
    assert book.order([SIX, FOUR], 1.0) == [SIX, FOUR]


def test_a_server_with_many_addresses_has_a_bound() -> None:
    """In what is tried at a time, and in what is remembered."""
    many = [(f"192.0.2.{number}", 5222) for number in range(3 * ADDRESSES_MAX)]
    book = AddressBook()
    assert book.order(many, 0.0) == many[:ADDRESSES_MAX]
    for each in many:
        book.failed(each, 0.0)
    assert book.good(many) == 2 * ADDRESSES_MAX
