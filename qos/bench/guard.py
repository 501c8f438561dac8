"""A guard that compares this library with its floor. Pure.

What is compared are ratios to the floor, measured in the same turns: an absolute time
says more of the machine than of the code.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXPECTED", "LOSS_MAX", "WINDOW", "regressions"]

#: Messages under way, of all that is measured for it.
WINDOW = 64

#: By the name of a row, the part of its floor's rate that it reached on a busy machine
#: of two cores. To be raised with what makes it faster, and lowered by nothing else.
EXPECTED: Mapping[str, float] = {
    "acknowledged, memory": 0.48,
    "assured, memory": 0.66,
    "assured, sqlite": 0.42,
}

#: The part of it that may be missing: noise, and other machines.
LOSS_MAX = 0.25


def regressions(ratios: Mapping[str, float]) -> dict[str, str]:
    """Return the rows that have become too slow, each with a line that says it.

    Args:
        ratios: by the names of the rows in EXPECTED, as measured.
    """
    found = {}
    for row, expected in EXPECTED.items():
        least = expected * (1 - LOSS_MAX)
        # Not by `<`: what is not a number is no success.
        if not ratios[row] >= least:
            found[row] = (
                f"{row}: {ratios[row]:.2f} of the rate of its floor; expected "
                f"{expected:.2f}, and at least {least:.2f}"
            )
    return found
