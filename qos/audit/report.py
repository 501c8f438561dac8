"""Draws the report: one HTML file, which needs neither a network nor a script.

This module knows only the given data, and neither Spark nor files. All names in the
data were chosen by others, perhaps by an attacker: see qos.audit.report_html. Should a
harmful name pass all the same, the page permits a browser no script and no address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from qos.audit import report_headline as headline
from qos.audit.report_charts import TimeAxis, bands, bars
from qos.audit.report_data import OTHERS, ROWS_MAX, ReportData, Rows
from qos.audit.report_html import plural, table, text
from qos.audit.report_page import LATENCY, OUTCOMES, PAGE, WAITS, section

__all__ = ["render"]

#: The most characters of a name in a heading.
_NAME_CHARS = 80

#: The evidence of an anomaly, in the order of the events.
_STEPS = {
    "accepted_at": "accepted by the sender",
    "offered_at": "offered",
    "held_at": "held by the receiver",
    "received_at": "known to be held",
    "released_at": "released by the sender",
    "to_hand_over_at": "to be handed over",
    "handed_over_at": "handed over",
    "done_at": "done at the receiver",
    "expired_at": "expired at the receiver",
    "ended_at": "ended at the sender",
}


def render(
    data: ReportData, first: date | None, last: date | None, *, lines: int
) -> str:
    """The page.

    Args:
        data: the content of the page.
        first: the first day of the audit.
        last: the last day.
        lines: the number of all lines read from the journals.
    """
    days = "no day" if first is None or last is None else _days(first, last)
    return PAGE.substitute(
        title=f"Audit of {days}",
        lead=f"{plural(data.messages, 'message')}, {lines:,} lines of journals.",
        verdict=headline.verdict(data),
        proof=headline.proof(data),
        tiles=headline.tiles(data),
        sections="".join(_sections(data)),
    )


def _sections(data: ReportData) -> Iterator[str]:
    """All sections. One without content is "", except the first and the last."""
    axis, step = _axis(data), _step(data.bucket_s)
    latency = _bands(data.latency, "messages", axis)
    waits = _bands(data.waits, "items", axis)
    yield section("trend", "Trend", headline.trend(data.trend))
    yield section(
        "anomalies",
        "Anomalies",
        _anomalies(data),
        description="Each time is by the clock of the node that wrote it down.",
    )
    yield section("unproven", "Not proven", headline.unproven(data.proof))
    counted = headline.windows(data.windows)
    yield section("windows", "Not counted at both ends", counted)
    outcomes = _outcomes(data.outcomes_by_time, axis, step)
    says = OUTCOMES.replace("$step", step)
    yield section("outcomes", "How messages ended", outcomes, description=says)
    says = LATENCY.replace("$step", step)
    yield section("latency", "Latency by route", latency, description=says)
    yield section("slow", "Slowest routes", _slow(data.slow))
    yield section("retried", "Most repeated", _retried(data.retried))
    yield section("refusals", "Most refused", _refusals(data.refusals))
    says = WAITS.replace("$step", step) if waits else ""
    yield section("queues", "Queues", waits, _queues(data.queues), description=says)
    yield section("workers", "Workers", _workers(data.workers))
    yield section("problems", "Problems of the journals", _problems(data))


def _days(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


# -- charts ----------------------------------------------------------------


def _axis(data: ReportData) -> TimeAxis | None:
    """The time of all charts, the same for all so that they can be compared."""
    points = [*data.outcomes_by_time, *data.latency, *data.waits]
    moments = [row["moment"] for row in points]
    return TimeAxis(min(moments), max(moments), data.bucket_s) if moments else None


def _outcomes(rows: Rows, axis: TimeAxis | None, step: str) -> str:
    def draw(outcome: str, points: Rows) -> str:
        assert axis is not None
        total = sum(row["messages"] for row in points)
        most = max(points, key=lambda row: row["messages"])
        says = f"{plural(total, 'message')}, at most {most['messages']:,} per {step}"
        words = f"{outcome}: {says}, at {_minute(most)}"
        image = bars(points, "messages", axis, words)
        numbers = ((_minute(row), row["messages"]) for row in points)
        return _chart(
            outcome.replace("-", " "),
            says,
            f'<div style="--series:var(--{outcome})">{image}</div>',
            table("By time", ("=time", "#messages"), numbers),
        )

    # There are no other outcomes than these.
    return _charts([(name, "outcome") for name in headline.OUTCOMES], rows, draw)


def _bands(rows: Rows, noun: str, axis: TimeAxis | None) -> str:
    def draw(name: str, points: Rows) -> str:
        assert axis is not None
        slowest = max(points, key=lambda row: row["p95"])
        total = sum(row[noun] for row in points)
        says = f"{plural(total, noun[:-1])}, p95 at most {slowest['p95']:,.3f} s"
        title = text(name, _NAME_CHARS)
        words = f"p50 and p95 by time: {says}, at {_minute(slowest)}"
        numbers = (
            (_minute(row), row[noun], row["p50"], row["p95"])
            for row in sorted(points, key=lambda row: row["moment"])
        )
        return _chart(
            title,
            says,
            bands(points, axis, words),
            table(
                "By time, in seconds", ("=time", f"#{noun}", "#p50", "#p95"), numbers
            ),
        )

    names = sorted(
        {row["line"] for row in rows}, key=lambda name: (name == OTHERS, name)
    )
    return _charts([(name, "line") for name in names], rows, draw)


def _charts(
    names: list[tuple[str, str]], rows: Rows, draw: Callable[[str, Rows], str]
) -> str:
    """A chart for each name, of the rows with this name in this column."""
    charts = []
    for name, column in names:
        points = [row for row in rows if row[column] == name]
        if points:
            charts.append(draw(name, points))
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _chart(name: str, says: str, image: str, numbers: str) -> str:
    return (
        f"<figure><figcaption><b>{name}</b> {says}</figcaption>{image}"
        f"<details><summary>The numbers</summary>{numbers}</details></figure>"
    )


def _minute(row: Mapping[str, Any]) -> str:
    return f"{row['moment']:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def _step(seconds: int) -> str:
    """A length of time, in the form after "per"."""
    for unit, length in (("hour", 3600), ("minute", 60), ("second", 1)):
        number = seconds // length
        if number:
            return unit if number == 1 else f"{number} {unit}s"
    return "moment"


# -- lists -----------------------------------------------------------------


def _anomalies(data: ReportData) -> str:
    parts: list[str] = []
    kinds = headline.KINDS
    for kind in [*kinds, *sorted(set(data.anomaly_counts) - set(kinds))]:
        rows = [row for row in data.anomalies if row["kind"] == kind]
        if not rows:
            continue
        count = data.anomaly_counts[kind]
        more = f" The first {len(rows)} are shown." if count > len(rows) else ""
        parts.append(
            f"<h3>{text(kind)} <em>{count:,}</em></h3>"
            f'<p class="what">{text(kinds.get(kind))}.{more}</p>'
            + "".join(
                _anomaly(row, is_open=not parts and row is rows[0]) for row in rows
            )
        )
    return "".join(parts) or '<p class="none">None.</p>'


def _anomaly(row: Mapping[str, Any], *, is_open: bool) -> str:
    evidence = json.loads(row["evidence"])
    begin = _moment(evidence.get("begun_at"))
    at = f" &middot; {text(begin)}" if begin else ""
    end = (
        f" &middot; really: {text(row['real_outcome'])}"
        if row.get("real_outcome")
        else ""
    )
    names = (text(row[name], _NAME_CHARS) for name in ("msg_id", "sender", "receiver"))
    msg_id, sender, receiver = names
    steps = [
        f"<dt>{label}</dt><dd>{text(_moment(evidence[name]))}</dd>"
        for name, label in _STEPS.items()
        if evidence.get(name)
    ]
    word = text(", ".join(row["rests_on"] or ()), _NAME_CHARS * 2)
    says = f'<p class="what">Rests on the word of {word}.</p>' if word else ""
    details = [
        f"<dt>{text(name.replace('_', ' '))}</dt><dd>{text(value)}</dd>"
        for name, value in evidence.items()
        if name not in _STEPS and not name.endswith("_at")
    ]
    return (
        f"<details{' open' if is_open else ''}><summary><code>{msg_id}</code> "
        f"{sender} &rarr; {receiver}{at}{end}</summary>"
        f'{says}<div class="evidence"><dl>{"".join(steps)}</dl>'
        f"<dl>{''.join(details)}</dl></div></details>\n"
    )


def _moment(value: object) -> str:
    return str(value or "").replace("T", " ").removesuffix("Z")


def _slow(rows: Rows) -> str:
    names = ("sender", "receiver", "level", "messages", "p50", "p95", "p99")
    return table(
        "The slowest routes: half, 95 % and 99 % of their messages were delivered within "
        "so many seconds",
        ("from", "to", "=level", "#messages", "#half", "#95 %", "#99 %"),
        (tuple(row[name] for name in names) for row in rows),
    )


def _retried(rows: Rows) -> str:
    names = ("sender", "receiver", "level", "messages", "retried")
    return table(
        "Routes by the part of their messages that had to be repeated, in percent",
        ("from", "to", "=level", "#messages", "#repeated", "#part"),
        ((*(row[name] for name in names), f"{100 * row['rate']:.1f}") for row in rows),
    )


_REFUSAL = ("source", "receiver", "condition", "refusals")


def _refusals(rows: Rows) -> str:
    return table(
        "Refusals by account and condition",
        ("source", "receiver", "condition", "#refusals"),
        (tuple(row[name] for name in _REFUSAL) for row in rows),
    )


def _queues(rows: Rows) -> str:
    names = ("queue", "service", "items", "accepted", "dead", "open", "again")
    times = ("oldest_s", "p50", "p95")
    return table(
        "Items of each queue; the age of the oldest that is still there, and the time "
        "after which half and 95 % were taken, in seconds",
        (
            *("queue", "service", "#items", "#accepted", "#dead", "#still there"),
            *("#given again", "#oldest", "#half", "#95 %"),
        ),
        (tuple(row[name] for name in (*names, *times)) for row in rows[:ROWS_MAX]),
    )


def _workers(rows: Rows) -> str:
    names = ("started", "accepted", "released", "modified", "rejected", "lost", "open")
    return table(
        "What workers began, and how it ended; the time they were busy, and within which "
        "95 % was handled, in seconds",
        ("worker", "queue", *(f"#{name}" for name in names), "#busy", "#95 %"),
        (
            tuple(row[name] for name in ("worker", "queue", *names, *_WORKER_TIMES))
            for row in rows
        ),
    )


_WORKER_TIMES = ("busy_s", "handling_p95")


def _problems(data: ReportData) -> str:
    counts = ", ".join(
        f"{number:,} {text(kind)}" for kind, number in data.problem_counts.items()
    )
    if not counts:
        return '<p class="none">All journals are whole.</p>'
    names = ("kind", "place", "count", "example")
    rows = (tuple(row[name] for name in names) for row in data.problems)
    html = table("By place", ("=kind", "place", "#count", "example"), rows)
    return f"<p>{counts}.</p>{html}"
