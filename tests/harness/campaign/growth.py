"""A test of whether measured values have grown. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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

#: Parts of the whole time: the first quarter is for everything that has to fill up.
_QUARTERS = 4
_BEFORE, _AFTER = 1, 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured value, with the growth allowed at the end.

    Attributes:
        name: of it.
        unit: of it; may be empty.
        factor: the limit is the former value, times this,
        allowance: plus this.
    """

    name: str
    unit: str
    factor: float
    allowance: float

    @property
    def title(self) -> str:
        """The name with its unit, for a column or a picture."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


RSS = Measure("RSS", "MB", 1.1, 8.0)
HANDLES = Measure("handles", "", 1.0, 8.0)
TASKS = Measure("tasks", "", 1.2, 16.0)
STORE = Measure("store", "MB", 1.25, 4.0)
#: Of messages. It depends on the load of the machine, and on the faults.
P99 = Measure("p99", "s", 2.0, 2.0)

MEASURES = (RSS, HANDLES, TASKS, STORE, P99)


@dataclass(frozen=True, slots=True)
class Growth:
    """The result for a measured value.

    Attributes:
        before: its value in the quiet moments of the second quarter, below which a
            quarter of all are; NaN: there is none.
        after: likewise in the last.
        bound: the limit.
    """

    before: float
    after: float
    bound: float

    @property
    def grown(self) -> bool:
        """Whether the value is above its limit, or unknown."""
        return not self.after <= self.bound


@dataclass(frozen=True, slots=True)
class Series:
    """One measured value of one member.

    Attributes:
        who: the member's name.
        measure: the kind of value.
        points: seconds since the first fault, and the value, in the order of time.
    """

    who: str
    measure: Measure
    points: list[tuple[float, float]] = field(default_factory=list)

    def growth(self, seconds: float) -> Growth:
        """Compare the end with the earlier time, given the length in seconds."""
        before, after = (
            _quiet(
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
        """The problem with the value, if there is one."""
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


def _quiet(values: Sequence[float]) -> float:
    """The lower quartile.

    What waits while a server starts, which may take a busy machine ten seconds, goes away
    again. What has really grown is there in the quiet moments, too.
    """
    return sorted(values)[len(values) // 4] if values else math.nan
