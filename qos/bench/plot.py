"""Draws what was measured. Needs the extra `[bench]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from qos.bench.figures import Measured

__all__ = ["plot"]

#: At which window latencies are shown, if it is among those measured.
_WINDOW = 64

_COLOURS = colormaps["tab20"].colors  # type: ignore[attr-defined]
_MARKERS = "osD^v"

#: Of the three percentiles: how they look, and how large.
_POINTS = (("o", 7), ("|", 14), (">", 5))


def plot(measured: Sequence[Measured], path: Path) -> None:
    """The rate by window, and the latencies at one window, of each row; as SVG.

    Raises:
        OSError: the file cannot be written.
    """
    rows = list(dict.fromkeys(each.row for each in measured))
    sizes = sorted({each.payload_bytes for each in measured})
    height = max(4.0, 1.2 + 0.34 * len(rows))
    figure = Figure(figsize=(13, height * len(sizes)), layout="constrained")
    grid = figure.subplots(len(sizes), 2, squeeze=False)
    for (rates, latencies), size in zip(grid, sizes, strict=True):
        of_size = [each for each in measured if each.payload_bytes == size]
        _draw_rates(rates, of_size, rows)
        _draw_latencies(latencies, of_size, rows)
        rates.set_title(f"{size} bytes: messages a second")
    figure.savefig(path, format="svg")


def _draw_rates(axes: Axes, measured: Sequence[Measured], rows: Sequence[str]) -> None:
    windows = sorted({each.window for each in measured})
    for number, row in enumerate(rows):
        line = [each for each in measured if each.row == row]
        axes.plot(
            [each.window for each in line],
            [each.median("rate") or 0.0 for each in line],
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            label=row,
        )
    axes.set(xscale="log", xlabel="window: messages under way", ylim=(0, None))
    axes.set_xticks(windows, [str(each) for each in windows], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")


def _draw_latencies(
    axes: Axes, measured: Sequence[Measured], rows: Sequence[str]
) -> None:
    windows = sorted({each.window for each in measured})
    window = _WINDOW if _WINDOW in windows else windows[-1]
    for number, row in enumerate(rows):
        (each,) = (one for one in measured if (one.row, one.window) == (row, window))
        points = [each.median(name) for name in ("p50_s", "p99_s", "p999_s")]
        values_ms = [point * 1e3 for point in points if point is not None]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(values_ms, [number] * len(values_ms), color=colour, linewidth=2)
        for value_ms, (marker, size) in zip(values_ms, _POINTS, strict=True):
            axes.plot(value_ms, number, color=colour, marker=marker, markersize=size)
    axes.set(xscale="log", xlabel="milliseconds: p50 (dot), p99 (bar), p99.9 (arrow)")
    # As 20 and 300, and not as powers of ten.
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", which="both", alpha=0.3)
    axes.set_title(f"latency, window {window}")
