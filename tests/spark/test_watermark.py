"""The day that a fleet has reached, though some of its clocks are wrong."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from qos.audit.watermark import watermark

TODAY = date(2026, 1, 20)


def day(before: int) -> date:
    return TODAY - timedelta(days=before)


def folders(*days: int) -> list[tuple[int | None, date, int]]:
    """A folder for each node, and its last day."""
    return [(number, day(before), 1) for number, before in enumerate(days)]


@pytest.mark.parametrize(
    ("days", "reached"),
    [
        ([0], 0),
        # One that is ahead, among others that are behind.
        ([0, 9], 9),
        ([0, 9, 9], 9),
        ([0, 9, 9, 9, 9], 9),
        ([0] * 25 + [9] * 76, 9),
        # One that is behind keeps no day open.
        ([0, 0, 9], 0),
        # Most are gone for good.
        ([0] * 25 + [300] * 75, 0),
    ],
    ids=str,
)
def test_a_quarter_of_the_journals_must_have_reached_a_day(
    days: list[int], reached: int
) -> None:
    """Never only the fastest, and never all."""
    assert watermark(folders(*days), None) == day(reached)


def test_nodes_in_one_folder_count_as_its_nodes_and_once_as_a_folder() -> None:
    """Who may write into one folder can invent as many nodes there as he likes."""
    assert watermark([(1, TODAY, 1), (1, day(9), 3)], None) == day(9)
    assert watermark([(1, TODAY, 1000), *folders(9, 9)[1:], (7, day(9), 1)], None) == (
        day(9)
    )
    assert watermark([(None, TODAY, 1), (None, day(1), 1)], None) == day(1)


def test_who_has_not_come_to_the_open_days_does_not_count() -> None:
    """Nodes with a new name at each start would keep every day open otherwise."""
    assert watermark(folders(0, 0, *[30] * 100), None) == day(30)
    assert watermark(folders(0, 0, *[30] * 100), day(7)) == TODAY
    assert watermark(folders(30), day(7)) is None
    assert watermark([], None) is None
