"""Whether what was measured all the time has grown. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

__all__ = [
    "HANDLES",
    "MEASURES",
    "P99",
    "RSS",
    "STORE",
    "TASKS",
    "Growth",
    "Measure",
    "Series",
]

#: Of the whole time: the first quarter is for what has to fill up.
_QUARTERS = 4
_BEFORE, _AFTER = 1, 3


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured, and by how much it may be more at the end.

    Attributes:
        name: of it.
        unit: of it; may be empty.
        factor: what it was, times this,
        allowance: and this, is what it may be at most.
    """

    name: str
    unit: str
    factor: float
    allowance: float

    @property
    def title(self) -> str:
        """With its unit, for a column or a picture."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


RSS = Measure("RSS", "MB", 1.1, 8.0)
HANDLES = Measure("handles", "", 1.0, 8.0)
TASKS = Measure("tasks", "", 1.2, 16.0)
STORE = Measure("store", "MB", 1.25, 4.0)
#: Of messages. It depends on what else the machine has to do, and on the faults.
P99 = Measure("p99", "s", 2.0, 2.0)

MEASURES = (RSS, HANDLES, TASKS, STORE, P99)


@dataclass(frozen=True, slots=True)
class Growth:
    """What a measure came to.

    Attributes:
        before: its median in the second quarter; not a number: there is none.
        after: likewise in the last.
        bound: what it may be at most.
    """

    before: float
    after: float
    bound: float

    @property
    def grown(self) -> bool:
        """Whether it is more than it may be, or not known."""
        return not self.after <= self.bound


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of one member.

    Attributes:
        who: the member's name.
        measure: what it is.
        points: seconds since the first fault, and the value, in the order of time.
    """

    who: str
    measure: Measure
    points: list[tuple[float, float]] = field(default_factory=list)

    def growth(self, seconds: float) -> Growth:
        """Compare the end with what was before, of so many seconds."""
        before, after = (
            _median(
                [
                    value
                    for at, value in self.points
                    if quarter <= at * _QUARTERS / seconds < quarter + 1
                ]
            )
            for quarter in (_BEFORE, _AFTER)
        )
        bound = before * self.measure.factor + self.measure.allowance
        return Growth(before, after, bound)

    def complaint(self, seconds: float) -> str | None:
        """What is wrong with it, if something is."""
        found, measure = self.growth(seconds), self.measure
        if math.isnan(found.bound) or math.isnan(found.after):
            return f"{self.who}: {measure.name} could not be measured"
        if found.grown:
            unit = f" {measure.unit}" if measure.unit else ""
            return (
                f"{self.who}: {measure.name} has grown from {found.before:,.4g} to "
                f"{found.after:,.4g}{unit}; it may be {found.bound:,.4g}"
            )
        return None


def _median(values: Sequence[float]) -> float:
    return median(values) if values else math.nan
