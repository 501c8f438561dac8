"""Draws the figures of a run. Needs the group `benchmarks`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from benchmarks.figures import Measured
from benchmarks.report import Results

__all__ = ["plot"]

#: The window for the latencies, if it was measured.
_WINDOW = 64

#: The colours of neighbouring lines; tab20 would have pairs of similar colours.
_COLOURS = colormaps["tab10"].colors  # type: ignore[attr-defined]
_MARKERS = "osD^v"
_DASHES = ("-", "--", ":")

#: The marks and sizes of the three percentiles.
_POINTS = (("o", 7), ("|", 14), (">", 5))

_ROW_INCHES = 0.36
_INCHES_MIN = 4.0


def plot(results: Results, path: Path) -> None:
    """The rate by window, and the latencies at one window, by section; as SVG.

    Raises:
        OSError: the file cannot be written.
    """
    parts = []
    for size in sorted({each.payload_bytes for each in results.measured}):
        for section in results.sections:
            here = [
                each
                for row in section.rows
                for each in results.measured
                if (each.row, each.payload_bytes) == (row, size)
            ]
            if here:
                parts.append((f"{section.title} ({size} bytes)", section, here))
    heights = [_height(here) for _, _, here in parts]
    figure = Figure(figsize=(15, sum(heights)), layout="constrained")
    figures = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)
    for (title, section, here), (own,) in zip(parts, figures, strict=True):
        rows = [row for row in section.rows if any(each.row == row for each in here)]
        rates, latencies = own.subplots(1, 2)
        _draw_rates(rates, here, rows)
        _draw_latencies(latencies, here, rows)
        own.suptitle(title)
    figure.savefig(path, format="svg")


def _height(measured: Sequence[Measured]) -> float:
    rows = len({each.row for each in measured})
    return max(_INCHES_MIN, 1.5 + _ROW_INCHES * rows)


def _draw_rates(axes: Axes, measured: Sequence[Measured], rows: Sequence[str]) -> None:
    windows = sorted({each.window for each in measured})
    for number, row in enumerate(rows):
        line = [each for each in measured if each.row == row]
        axes.plot(
            [each.window for each in line],
            [each.median("rate") or 0.0 for each in line],
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)],
            label=row,
        )
    axes.set(xscale="log", xlabel="window: messages under way", ylim=(0, None))
    axes.set_title("messages a second")
    axes.set_xticks(windows, [str(each) for each in windows], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True, alpha=0.3)
    # Beside the plot: between so many lines there is no room.
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))


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
    # Numbers such as 20 and 300, instead of powers of ten.
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", which="both", alpha=0.3)
    axes.set_title(f"latency, window {window}")
