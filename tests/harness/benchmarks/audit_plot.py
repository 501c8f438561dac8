"""Draws the measurements of `benchmarks.audit`. Needs the group `benchmarks`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from benchmarks.audit import Measured, growth

__all__ = ["plot"]

_MIB = 2**20


def plot(measured: Sequence[Measured], path: Path) -> None:
    """Time and memory by the number of events, as SVG.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    times, memory = figure.subplots(1, 2)
    events = [each.lines for each in measured]
    grown = growth(measured)
    grows = ""
    if grown is not None:
        grows = f" ({grown.fixed_s:.0f} s, and {grown.line_us:.1f} µs a line)"
    for name, of_all in (
        (f"audit{grows}", [each.audit for each in measured]),
        ("count, schema inferred", [each.inferred for each in measured]),
        ("read with the schema and count", [each.read for each in measured]),
    ):
        times.plot(events, [median(some) for some in of_all], marker="o", label=name)
    times.set(xscale="log", yscale="log", xlabel="events", ylabel="seconds")
    for name, sizes in (
        ("JVM", [each.jvm_bytes / _MIB for each in measured]),
        ("Python driver", [each.python_bytes / _MIB for each in measured]),
    ):
        memory.plot(events, sizes, marker="o", label=name)
    memory.axhline(2048, color="grey", linestyle=":", label="2 GiB")
    memory.set(xscale="log", ylim=(0, None), xlabel="events", ylabel="MiB at most")
    for axes in (times, memory):
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    figure.savefig(path, format="svg")
