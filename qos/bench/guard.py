"""A guard that compares this library with its floor. Pure.

It compares ratios to the floor, measured in the same turns: an absolute time depends on
the machine more than on the code.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXPECTED", "LOSS_MAX", "WINDOW", "regressions"]

#: The number of messages in flight, for all rows of the guard.
WINDOW = 64

#: By the name of a row, its expected ratio to its floor's rate, measured on a busy
#: machine of two cores. Raise it when a change makes the row faster; never lower it.
EXPECTED: Mapping[str, float] = {
    "acknowledged, memory": 0.48,
    "assured, memory": 0.66,
    "assured, sqlite": 0.42,
}

#: The part of it that may be missing: noise, and other machines.
LOSS_MAX = 0.25


def regressions(ratios: Mapping[str, float]) -> dict[str, str]:
    """Return the rows that have become too slow, each with a line for people.

    Args:
        ratios: by the names of the rows in EXPECTED, as measured.
    """
    found = {}
    for row, expected in EXPECTED.items():
        least = expected * (1 - LOSS_MAX)
        # Not by `<`: NaN must not count as a success.
        if not ratios[row] >= least:
            found[row] = (
                f"{row}: {ratios[row]:.2f} of the rate of its floor; expected "
                f"{expected:.2f}, and at least {least:.2f}"
            )
    return found
