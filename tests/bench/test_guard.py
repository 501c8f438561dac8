"""The bench guard: it finds regressions, and rejects untrustworthy measurements."""

import argparse
import math
from collections.abc import Mapping

import pytest

from benchmarks import command_guard
from benchmarks.__main__ import main
from benchmarks.guard import EXPECTED, LOSS_MAX, Ratios, regressions
from benchmarks.settings import STORES, settings_for
from qos.cli.status import CommandError, Status
from qos.core.message.model import Level


def test_what_is_as_fast_as_expected_is_no_regression() -> None:
    """Nor is a faster row, or one that is slower within the limit."""
    for rate, cpu in ((1.0, 1.0), (2.0, 0.5), (1 - LOSS_MAX, 1 + LOSS_MAX)):
        found = {
            row: Ratios(it.rate * rate, it.cpu * cpu) for row, it in EXPECTED.items()
        }
        assert regressions(found) == {}


@pytest.mark.parametrize("row", EXPECTED)
def test_a_regression_says_which_row_and_by_how_much(row: str) -> None:
    """A reader has to know where to look."""
    expected = EXPECTED[row]
    slower = expected._replace(rate=expected.rate * (1 - LOSS_MAX) - 0.01)
    found = regressions(dict(EXPECTED) | {row: slower})
    assert list(found) == [row]
    assert f"{row}: {slower.rate:.2f} of the rate" in found[row]
    assert f"expected {expected.rate:.2f}" in found[row]


@pytest.mark.parametrize("row", EXPECTED)
def test_more_processor_time_is_a_regression_too(row: str) -> None:
    """At the same rate, somebody else has only used less of it."""
    expected = EXPECTED[row]
    dearer = expected._replace(cpu=expected.cpu * (1 + LOSS_MAX) + 0.1)
    found = regressions(dict(EXPECTED) | {row: dearer})
    assert list(found) == [row]
    assert f"{row}: {dearer.cpu:.1f} times the processor time" in found[row]
    assert f"expected {expected.cpu:.1f}" in found[row]


def test_what_is_not_a_number_is_a_regression() -> None:
    """A guard that nothing can trip is useless."""
    for unknown in (Ratios(math.nan, 1.0), Ratios(1.0, math.nan)):
        assert set(regressions(dict.fromkeys(EXPECTED, unknown))) == set(EXPECTED)


def test_each_row_that_is_watched_exists_and_has_a_floor() -> None:
    """A renamed row would otherwise silently not be watched any more."""
    floors = {each.name: each.floor for each in settings_for(list(Level), STORES)}
    assert all(floors[row] for row in EXPECTED)


FAST = dict(EXPECTED)
SLOW = FAST | {"assured, sqlite": Ratios(0.01, 1.0)}
OTHER = FAST | {"assured, memory": Ratios(0.01, 1.0)}


async def decided(
    monkeypatch: pytest.MonkeyPatch, *found: Mapping[str, Ratios]
) -> tuple[int, list[Mapping[str, Ratios]]]:
    """The result of the command if it measures these ratios, one after the other."""
    left = list(found)

    async def measured() -> Mapping[str, Ratios]:
        return left.pop(0)

    monkeypatch.setattr(command_guard, "_ratios", measured)
    return await command_guard.run(argparse.Namespace()), left


async def test_a_good_measurement_is_believed_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every `make test` has to wait for it."""
    assert await decided(monkeypatch, FAST, SLOW) == (Status.DONE, [SLOW])
    out, err = capsys.readouterr()
    assert all(f"{row} {each.rate:.2f}" in out for row, each in FAST.items())
    assert all(f"{row} {each.cpu:.1f}" in out for row, each in FAST.items())
    assert err == ""


@pytest.mark.parametrize("second", [FAST, OTHER])
async def test_a_row_that_is_slow_only_once_was_disturbed(
    second: Mapping[str, Ratios],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Even if another row is slow then: noise hits one row after the other."""
    assert await decided(monkeypatch, SLOW, second) == (Status.DONE, [])
    assert "assured, sqlite: 0.01" in capsys.readouterr().err


async def test_a_row_that_is_slow_twice_has_become_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And only this row is named."""
    with pytest.raises(CommandError, match=r"twice: assured, sqlite: 0\.01") as error:
        await decided(
            monkeypatch, SLOW, SLOW | OTHER | {"assured, sqlite": Ratios(0.01, 1.0)}
        )
    assert error.value.status == Status.REFUSED
    assert "memory" not in str(error.value)


@pytest.mark.xmpp
def test_it_measures_every_row_that_is_watched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real measurements, only shorter, and with limits that no row can miss."""
    monkeypatch.setattr(command_guard, "_SECONDS", 0.1)
    monkeypatch.setattr(command_guard, "_TURNS", 1)
    monkeypatch.setattr("benchmarks.guard.LOSS_MAX", math.inf)
    assert main(["guard"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(f"{row} " in out for row in EXPECTED)
