"""The rules by which a soak finds growth."""

import pytest

from campaign.growth import HANDLES, MEASURES, P99, RSS, Measure, Series
from campaign.soak import elders, half
from campaign.supervisor import BATCH, Traffic

SECONDS = 100.0


def series(measure: Measure, *values: float) -> Series:
    """A series for a member: values at regular intervals."""
    step = SECONDS / len(values)
    points = [(place * step, value) for place, value in enumerate(values)]
    return Series("sender", measure, points)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_what_goes_on_growing_is_growth(measure: Measure) -> None:
    """Even slow growth is found, if the soak is long enough."""
    found = series(measure, *(measure.allowance * place for place in range(20)))
    assert found.growth(SECONDS).grown
    complaint = found.complaint(SECONDS)
    assert complaint is not None
    assert complaint.startswith(f"sender: {measure.name} has grown from ")


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_what_fills_up_at_first_is_none(measure: Measure) -> None:
    """For instance a cache, or data that is kept for some time."""
    found = series(measure, 1, 40, 80, 100, *[100] * 12)
    assert not found.growth(SECONDS).grown
    assert found.complaint(SECONDS) is None


def test_one_bad_moment_is_none() -> None:
    """For instance during a fault; only lasting growth counts."""
    assert series(P99, *[0.1] * 18, 30.0, 0.1).complaint(SECONDS) is None


def test_a_little_more_is_none() -> None:
    """Memory is taken in larger pieces."""
    assert series(RSS, *[40] * 10, *[51] * 10).complaint(SECONDS) is None
    assert series(RSS, *[40] * 10, *[53] * 10).complaint(SECONDS) is not None


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0.0, 8.0)],
        [(30.0, 8.0)],
        [(80.0, 8.0)],
        [(30.0, 8.0), (80.0, float("nan"))],
    ],
)
def test_what_was_not_measured_is_not_taken_for_good(
    points: list[tuple[float, float]],
) -> None:
    """Otherwise a soak without measurements would always pass."""
    found = Series("sender", HANDLES, points)
    assert found.growth(SECONDS).grown
    assert found.complaint(SECONDS) == "sender: handles could not be measured"


def test_half_of_the_traffic_takes_twice_the_time() -> None:
    """This holds for each kind separately, because each has limits of its own."""
    full = Traffic({"sqlite": 0.0, "files": 0.0}, 0.0, 60.0)
    traffic = half(full, {"sqlite": 1000, "files": 500, "items": 200 * BATCH}, 10.0)
    assert traffic == Traffic({"sqlite": 0.02, "files": 0.04}, 0.1, 60.0)


def test_who_is_never_killed_on_the_one_server_is_on_the_other() -> None:
    """Otherwise the effect of kills on these members would not be known."""
    stores = ("sqlite", "files")
    first, second = elders(0, stores), elders(1, stores)
    assert not first & second
    both = first | second
    assert len(both) == len(first) + len(second) == 8
