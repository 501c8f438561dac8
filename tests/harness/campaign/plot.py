"""Draws the values measured in a soak. Needs the group `benchmarks`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from campaign.growth import MEASURES
from campaign.run import Result

__all__ = ["plot"]

_INCHES = 3.2


def plot(results: Sequence[Result], path: Path) -> None:
    """Draw each measure over time as SVG: a row of pictures, one for each server.

    Raises:
        OSError: the file cannot be written.
    """
    size = (7 * len(results), _INCHES * len(MEASURES))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(MEASURES), len(results), squeeze=False, sharex="col")
    for row, measure in zip(grid, MEASURES, strict=True):
        for axes, result in zip(row, results, strict=True):
            for series in result.series:
                if series.measure is measure and series.points:
                    times, values = zip(*series.points, strict=True)
                    minutes = [at / 60 for at in times]
                    axes.plot(minutes, values, label=series.who, linewidth=1)
            axes.set(title=f"{measure.title}, {result.server}", ylim=(0, None))
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize="small")
    for axes in grid[-1]:
        axes.set_xlabel("minutes")
    figure.savefig(path, format="svg")
