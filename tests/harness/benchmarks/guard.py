"""A guard that compares this library with its floor. Pure.

It compares ratios to the floor, measured in the same turns: an absolute time depends on
the machine more than on the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["EXPECTED", "LOSS_MAX", "WINDOW", "Ratios", "regressions"]

#: The number of messages in flight, for all rows of the guard.
WINDOW = 64


class Ratios(NamedTuple):
    """A row ÷ its floor.

    Attributes:
        rate: messages a second.
        cpu: processor time of both ends for a message.
    """

    rate: float
    cpu: float


#: By the name of a row, what is expected of it, measured on a busy machine of two cores.
#: Raise the rate and lower the processor time when a change makes the row faster; never
#: the other way.
EXPECTED: Mapping[str, Ratios] = {
    "acknowledged, memory": Ratios(0.55, 3.5),
    "assured, memory": Ratios(0.75, 2.9),
    "assured, sqlite": Ratios(0.42, 5.0),
}

#: The part of the rate that may be missing, and of the processor time that may be more:
#: noise, and other machines.
LOSS_MAX = 0.25


def regressions(ratios: Mapping[str, Ratios]) -> dict[str, str]:
    """Return the rows that have become too slow, each with a line for people.

    Args:
        ratios: by the names of the rows in EXPECTED, as measured.
    """
    found = {}
    for row, expected in EXPECTED.items():
        least, most = expected.rate * (1 - LOSS_MAX), expected.cpu * (1 + LOSS_MAX)
        measured = ratios[row]
        # Not by the opposite comparison: NaN must not count as a success.
        if not measured.rate >= least:
            found[row] = (
                f"{row}: {measured.rate:.2f} of the rate of its floor; expected "
                f"{expected.rate:.2f}, and at least {least:.2f}"
            )
        elif not measured.cpu <= most:
            found[row] = (
                f"{row}: {measured.cpu:.1f} times the processor time of its floor; "
                f"expected {expected.cpu:.1f}, and at most {most:.1f}"
            )
    return found
