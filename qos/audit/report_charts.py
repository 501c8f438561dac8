"""The charts of the report: small SVG images, drawn by matplotlib.

An image is a part of the page: it needs neither a script nor a file. It takes its
colours from the page, which has others in dark mode and on paper. Its text is only
numbers and times, so it contains no name that others have chosen.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

from qos.audit.plotting import (
    AutoDateLocator,
    Axes,
    ConciseDateFormatter,
    Figure,
    MaxNLocator,
    StrMethodFormatter,
    date2num,
    style,
)
from qos.audit.report_data import Rows

__all__ = ["TimeAxis", "bands", "bars"]

_WIDTH, _HEIGHT = 340, 160
#: Left, bottom, width and height of the plot within the image.
_PLOT = (0.15, 0.25, 0.79, 0.7)
_PX_AN_INCH = 72

#: The custom properties of the page, by the colours that stand for them in matplotlib.
_COLOURS = {
    "#000001": "var(--soft)",
    "#000002": "var(--rule)",
    "#000003": "var(--series)",
    "#000004": "var(--band)",
}
_SOFT, _RULE, _SERIES, _BAND = _COLOURS

_STYLE = {
    "svg.fonttype": "none",
    "font.size": 11,
    "path.simplify": False,
    "axes.formatter.use_locale": False,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _SOFT,
    "text.color": _SOFT,
    "grid.color": _RULE,
}

_SVG = "http://www.w3.org/2000/svg"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time that all charts of a page show.

    Attributes:
        first: the first point.
        last: the last point.
        bucket_s: the length of time of a point, in seconds; the point is drawn in its
            middle.
    """

    first: datetime
    last: datetime
    bucket_s: int

    @property
    def bucket(self) -> timedelta:
        """The length of time of a point."""
        return timedelta(seconds=self.bucket_s)

    @property
    def ends(self) -> tuple[float, float]:
        """From before the first point to after the last: a single one has some room."""
        return _day(self.first - self.bucket / 2), _day(self.last + self.bucket * 1.5)


def bars(points: Rows, name: str, axis: TimeAxis, label: str) -> str:
    """A bar for each point.

    Args:
        points: rows with `moment` and a number.
        name: the column of the number.
        axis: the time to show.
        label: a description of the image.
    """
    values: list[float] = []
    edges: list[float] = []
    for run in _runs(points, axis):
        # Between two runs there is a gap.
        values += [0.0] if values else []
        values += [float(row[name]) for row in run]
        edges += [_day(row["moment"]) for row in run]
        edges.append(_day(run[-1]["moment"] + axis.bucket))
    figure, axes = _plot(axis, max(values, default=0.0), whole=True)
    axes.stairs(values, edges, fill=True, color=_SERIES, clip_on=False)
    return _svg(figure, label)


def bands(points: Rows, axis: TimeAxis, label: str) -> str:
    """A line at `p50`, and a band from there to `p95`.

    A point without a neighbour is a dot with a bar; nothing is drawn across a gap.

    Args:
        points: rows with `moment`, `p50` and `p95`.
        axis: the time to show.
        label: a description of the image.
    """
    figure, axes = _plot(axis, max((row["p95"] for row in points), default=0.0))
    for run in _runs(points, axis):
        xs = [_day(row["moment"] + axis.bucket / 2) for row in run]
        low = [row["p50"] for row in run]
        high = [row["p95"] for row in run]
        if len(run) == 1:
            x = xs * 2
            axes.plot(x, low + high, color=_BAND, lw=5, clip_on=False)
            # A line without length: its round ends make a dot.
            dot = axes.plot(x, low * 2, color=_SERIES, lw=4.5, clip_on=False)
            dot[0].set_solid_capstyle("round")
        else:
            around = [*xs, *reversed(xs)], [*low, *reversed(high)]
            axes.fill(*around, color=_BAND, lw=0, clip_on=False)
            axes.plot(xs, low, color=_SERIES, lw=1.6, clip_on=False)
    return _svg(figure, label)


def _runs(points: Rows, axis: TimeAxis) -> Iterator[Rows]:
    """The points in order, divided where one or more are missing."""
    run: Rows = []
    for row in sorted(points, key=lambda row: row["moment"]):
        if run and row["moment"] - run[-1]["moment"] > axis.bucket:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _plot(axis: TimeAxis, top: float, *, whole: bool = False) -> tuple[Figure, Axes]:
    """An empty plot.

    Args:
        axis: the time to show.
        top: the largest value.
        whole: whether the values are whole numbers.
    """
    # Independent of the user's own file of settings.
    with style.context(["default", _STYLE]):
        size = _WIDTH / _PX_AN_INCH, _HEIGHT / _PX_AN_INCH
        figure = Figure(figsize=size, dpi=_PX_AN_INCH)
        axes = figure.add_axes(_PLOT)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0, labelcolor=_SOFT)
        axes.tick_params(axis="x", pad=7)
        times = AutoDateLocator(tz=UTC, minticks=2, maxticks=5)
        axes.xaxis.set_major_locator(times)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(times, tz=UTC))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=whole))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        axes.grid(axis="y", lw=0.7, clip_on=False)
        axes.set_axisbelow(True)
        axes.set_xlim(*axis.ends)
        axes.set_ylim(0, top * 1.05 if math.isfinite(top) and top > 0 else 1)
    return figure, axes


def _svg(figure: Figure, label: str) -> str:
    """The image as an element of the page."""
    svg_file = io.StringIO()
    with style.context(["default", _STYLE]):
        figure.savefig(svg_file, format="svg", metadata=_NO_METADATA)
    # Only the visible parts: groups and their names would take more space than
    # everything else.
    image = ET.Element(
        "svg",
        {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-label": label},
    )
    for element in ET.fromstring(svg_file.getvalue()).iter():  # noqa: S314 - our own
        tag = element.tag.removeprefix(f"{{{_SVG}}}")
        # One that is outside of the plot is a path to nowhere.
        if tag == "path" and "d" in element.attrib:
            path = ET.SubElement(image, tag, {"d": _short(element.attrib["d"])})
            path.set("style", _style(element.attrib["style"]))
        elif tag == "text":
            place = {name: _short(element.attrib[name]) for name in ("x", "y")}
            text = ET.SubElement(image, tag, place)
            text.set("style", _style(element.attrib["style"]))
            text.text = element.text
    return ET.tostring(image, encoding="unicode")


def _short(numbers: str) -> str:
    """Coordinates to a tenth of a pixel."""
    text = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}", numbers)
    return " ".join(text.split()).replace(".0", "")


def _style(style: str) -> str:
    """The style with the colours of the page, and without a font."""
    for colour, name in _COLOURS.items():
        style = style.replace(colour, name)
    parts = [part.strip() for part in style.split(";")]
    return "; ".join(part for part in parts if not part.startswith("font-family"))


def _day(moment: datetime) -> float:
    # The number by which matplotlib counts time.
    return float(date2num(moment))
