"""Draws the report: one HTML file, which needs nothing else, and no network.

Knows what it is given, and neither Spark nor files. All names in it were chosen by
somebody else, perhaps by an attacker: every text is escaped, also within figures,
where Plotly would take `<a href=…>` for what it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from html import escape
from string import Template
from typing import Any

import plotly.graph_objects as go
import plotly.io

from qos.pipeline.report_data import ReportData, Rows

__all__ = ["render"]

#: Of how a message has ended, from good to bad; the colours tell the same.
_OUTCOMES = {
    "delivered": "#2e7d5b",
    "withdrawn": "#8d99ae",
    "open": "#4a7fb5",
    "not-delivered": "#e09f3e",
    "in-doubt": "#b23a48",
}
_LINES = ("#1f4e79", "#c8553d", "#588157", "#7b5ea7", "#b08900", "#3a9fa5", "#8d99ae")

_KINDS = {
    "lost": "the sender says delivered, and it was never handed over",
    "duplicated": "handed over more than once, and not marked as a repeat",
    "orphaned": "handed over, and its sender knows nothing of it",
    "stuck": "held or outstanding for too long",
    "in-doubt": "the sender could not find out how it ended",
}

_PLOT_PX = 340
_LEGEND_PX = 22

#: Longer names are cut in figures.
_LABEL_CHARS = 100
_CELL_CHARS = 160

#: The evidence of an anomaly, in the order in which things happen.
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
        data: what it shows.
        first: the first day of the audit.
        last: the last day.
        lines: of the journals, read in all.
    """
    days = "no day" if first is None or last is None else _days(first, last)
    total = sum(data.outcomes.values())
    return _PAGE.substitute(
        title=f"Audit of {days}",
        lead=f"{total:,} messages, {lines:,} lines of journals.",
        verdict=_verdict(data),
        tiles=_tiles(data.outcomes, total),
        anomalies=_anomalies(data),
        outcomes=_outcomes(data),
        latency=_lines(data.latency, "95 % within (seconds)", data.bucket_s),
        slow=_slow(data.slow),
        retried=_retried(data.retried),
        refusals=_refusals(data.refusals),
        waits=_lines(data.waits, "95 % wait (seconds)", data.bucket_s),
        queues=_queues(data.queues),
        workers=_workers(data.workers),
        problems=_problems(data),
    )


def _days(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _verdict(data: ReportData) -> str:
    found = sum(data.anomaly_counts.values())
    if not found:
        return '<p class="verdict good">No anomaly: nothing lost, nothing doubled.</p>'
    kinds = ", ".join(
        f"{data.anomaly_counts[kind]:,} {escape(kind)}"
        for kind in [*_KINDS, *sorted(set(data.anomaly_counts) - set(_KINDS))]
        if kind in data.anomaly_counts
    )
    noun = "anomaly" if found == 1 else "anomalies"
    return f'<p class="verdict bad">{found:,} {noun}: {kinds}.</p>'


def _tiles(outcomes: Mapping[str, int], total: int) -> str:
    tiles = []
    for outcome, colour in _OUTCOMES.items():
        number = outcomes.get(outcome, 0)
        part = f"{number / total:.2%}" if total else ""
        tiles.append(
            f'<div class="tile" style="border-color:{colour}"><b>{number:,}</b>'
            f"<span>{outcome.replace('-', ' ')}</span><small>{part}</small></div>"
        )
    return "".join(tiles)


# -- figures ---------------------------------------------------------------


def _outcomes(data: ReportData) -> str:
    figure = go.Figure()
    for outcome, colour in _OUTCOMES.items():
        rows = [row for row in data.outcomes_by_time if row["outcome"] == outcome]
        if rows:
            figure.add_bar(
                x=[_time(row["moment"]) for row in rows],
                y=[row["messages"] for row in rows],
                name=outcome.replace("-", " "),
                marker={"color": colour, "line": {"width": 0}},
                # In milliseconds: a bar stands for the time that begins there.
                offset=0,
                width=data.bucket_s * 850,
            )
    figure.update_layout(barmode="stack")
    title = f"messages per {_step(data.bucket_s)}"
    moments = [row["moment"] for row in data.outcomes_by_time]
    return _figure(figure, title, _range(moments, data.bucket_s), with_plotly=True)


def _lines(rows: Rows, title: str, bucket_s: int) -> str:
    if not rows:
        return _NONE
    figure = go.Figure()
    names = list(dict.fromkeys(row["line"] for row in rows))
    for name, colour in zip(names, _LINES, strict=False):
        points = [row for row in rows if row["line"] == name]
        figure.add_scatter(
            x=[_time(row["moment"]) for row in points],
            y=[row["p95"] for row in points],
            customdata=[[row["p50"]] for row in points],
            name=_label(name),
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 5},
            hovertemplate="%{y:.3f} s (half within %{customdata[0]:.3f} s)",
        )
    figure.update_layout(hovermode="x unified")
    return _figure(figure, title, _range([row["moment"] for row in rows], bucket_s))


def _range(moments: Sequence[datetime], bucket_s: int) -> list[str] | None:
    """From before the first to after the last: of one alone Plotly shows its microseconds."""
    if not moments:
        return None
    step = timedelta(seconds=bucket_s)
    return [_time(min(moments) - step), _time(max(moments) + 2 * step)]


def _step(seconds: int) -> str:
    """A length of time, as one says it behind «per»."""
    for unit, length in (("hour", 3600), ("minute", 60), ("second", 1)):
        number = seconds // length
        if number:
            return unit if number == 1 else f"{number} {unit}s"
    return "moment"


def _figure(
    figure: go.Figure,
    y_title: str,
    x_range: list[str] | None,
    *,
    with_plotly: bool = False,
) -> str:
    # Names of routes are long: one below the other, and room for them.
    room = _LEGEND_PX * len(figure.data)
    figure.update_layout(
        template="plotly_white",
        height=_PLOT_PX + room,
        margin={"l": 60, "r": 20, "t": 10, "b": 60 + room},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#333"},
        legend={"y": 0, "yref": "container", "yanchor": "bottom", "x": 0},
        showlegend=True,
        yaxis={"title": y_title, "rangemode": "tozero"},
        xaxis={"type": "date", "range": x_range},
    )
    html: str = plotly.io.to_html(
        figure,
        include_plotlyjs=with_plotly,
        full_html=False,
        config={"displaylogo": False, "responsive": True},
    )
    return html


def _time(moment: datetime) -> str:
    # Plotly knows no time zones; the axis is UTC, and the page says so.
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _label(text: str) -> str:
    # Plotly turns entities into what they stand for, and makes no tags of that.
    return escape(_cut(text, _LABEL_CHARS))


# -- lists -----------------------------------------------------------------

_NONE = '<p class="none">Nothing to show.</p>'


def _anomalies(data: ReportData) -> str:
    parts = []
    for kind in [*_KINDS, *sorted(set(data.anomaly_counts) - set(_KINDS))]:
        rows = [row for row in data.anomalies if row["kind"] == kind]
        if not rows:
            continue
        found = data.anomaly_counts[kind]
        more = f" The first {len(rows)} are shown." if found > len(rows) else ""
        parts.append(
            f"<h3>{escape(kind)} <em>{found:,}</em></h3>"
            f'<p class="what">{escape(_KINDS.get(kind, ""))}.{more}</p>'
            + "".join(_anomaly(row, shown=row is rows[0]) for row in rows)
        )
    return "".join(parts) or _NONE


def _anomaly(row: Mapping[str, Any], *, shown: bool) -> str:
    evidence = json.loads(row["evidence"])
    ended = f" &middot; really: {_cell(row['ended'])}" if row.get("ended") else ""
    steps = [
        f"<tr><td>{what}</td><td>{_cell(_moment(evidence[name]))}</td></tr>"
        for name, what in _STEPS.items()
        if evidence.get(name)
    ]
    other = [
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{_cell(value)}</td></tr>"
        for name, value in evidence.items()
        if name not in _STEPS and not name.endswith("_at")
    ]
    return (
        f"<details{' open' if shown else ''}><summary><code>{_cell(row['msg_id'])}</code> "
        f"{_cell(row['sender'])} &rarr; {_cell(row['receiver'])}"
        f" &middot; {_cell(_moment(evidence.get('begun_at')))}{ended}</summary>"
        f'<div class="evidence"><table>{"".join(steps)}</table>'
        f"<table>{''.join(other)}</table></div></details>"
    )


def _moment(text: object) -> str:
    return str(text or "").replace("T", " ").removesuffix("Z")


def _slow(rows: Rows) -> str:
    return _table(
        ("from", "to", "level", "messages", "half within", "95 %", "99 %"),
        (
            (
                *(row["sender"], row["receiver"], row["level"], row["messages"]),
                *(_seconds(row[name]) for name in ("p50", "p95", "p99")),
            )
            for row in rows
        ),
    )


def _retried(rows: Rows) -> str:
    return _table(
        ("from", "to", "level", "messages", "repeated", "part"),
        (
            (
                *(row["sender"], row["receiver"], row["level"], row["messages"]),
                *(row["retried"], _Measure(f"{row['rate']:.1%}")),
            )
            for row in rows
        ),
    )


def _refusals(rows: Rows) -> str:
    names = ("source", "receiver", "reason", "refusals")
    return _table(names, (tuple(row[name] for name in names) for row in rows))


def _queues(rows: Rows) -> str:
    return _table(
        (
            *("queue", "service", "items", "accepted", "dead", "still there"),
            *("given more than once", "oldest still there", "half wait", "95 %"),
        ),
        (
            (
                *(row["queue"], row["service"], row["items"], row["accepted"]),
                *(row["dead"], row["open"], row["again"]),
                *(_seconds(row[name]) for name in ("oldest_s", "p50", "p95")),
            )
            for row in rows
        ),
    )


def _workers(rows: Rows) -> str:
    names = ("started", "accepted", "released", "modified", "rejected", "lost", "open")
    return _table(
        ("worker", "queue", *names, "busy", "95 % within"),
        (
            (
                *(row["worker"], row["queue"], *(row[name] for name in names)),
                *(_seconds(row["busy_s"]), _seconds(row["handling_p95"])),
            )
            for row in rows
        ),
    )


def _problems(data: ReportData) -> str:
    counts = ", ".join(
        f"{number:,} {escape(kind)}" for kind, number in data.problem_counts.items()
    )
    if not counts:
        return '<p class="none">All journals are whole.</p>'
    names = ("kind", "place", "count", "example")
    rows = (tuple(row[name] for name in names) for row in data.problems)
    return f"<p>{counts}.</p>{_table(names, rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    rows = list(rows)
    if not rows:
        return _NONE
    body = "".join(f"<tr>{''.join(_data(value) for value in row)}</tr>" for row in rows)
    names = "".join(
        f"<th {_class(value)}>{escape(name)}</th>"
        for name, value in zip(head, rows[0], strict=True)
    )
    return (
        '<div class="scroll"><table class="list"><thead><tr>'
        f"{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _data(value: object) -> str:
    return f"<td {_class(value)}>{_cell(value)}</td>"


def _class(value: object) -> str:
    number = isinstance(value, int | float | _Measure)
    return 'class="number"' if number else 'class="text"'


class _Measure(str):
    """A number with its unit."""

    __slots__ = ()


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return escape(_cut("" if value is None else str(value), _CELL_CHARS))


def _cut(text: str, chars: int) -> str:
    """Without what cannot be seen, and not longer than this."""
    text = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def _seconds(value: float | None) -> _Measure:
    if value is None:
        return _Measure("")
    if value < 1:
        return _Measure(f"{value * 1000:.0f} ms")
    if value < 120:
        return _Measure(f"{value:.1f} s")
    if value < 7200:
        return _Measure(f"{value / 60:.0f} min")
    return _Measure(f"{value / 3600:,.0f} h")


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="xmpp-qos audit">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #f4f5f7; margin: 0; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 16px 0 0; }
h3 em { font-style: normal; color: #fff; background: #b23a48; border-radius: 9px;
  padding: 1px 8px; font-size: 13px; }
section { background: #fff; border: 1px solid #e1e4e8; border-radius: 8px;
  padding: 20px; margin-top: 20px; }
.lead, .what, .none, footer { color: #667; margin: 0 0 8px; }
.verdict { font-size: 17px; font-weight: 600; border-radius: 8px; padding: 12px 16px;
  margin: 16px 0; }
.good { color: #1d5b40; background: #e2f2ea; }
.bad { color: #842533; background: #f9e4e6; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile { flex: 1 1 150px; background: #fff; border: 1px solid #e1e4e8;
  border-left-width: 5px; border-radius: 6px; padding: 10px 14px; display: flex;
  flex-direction: column; }
.tile b { font-size: 22px; }
.tile span { text-transform: capitalize; }
.tile small { color: #667; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
table.list { width: 100%; }
th { text-align: left; color: #667; font-weight: 600; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid #eef0f2; vertical-align: top;
  overflow-wrap: anywhere; }
th.number { text-align: right; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
details { border-top: 1px solid #eef0f2; padding: 6px 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
code { font-size: 13px; background: #f4f5f7; padding: 1px 5px; border-radius: 4px; }
.evidence { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 32px; padding: 8px 16px; }
footer { margin-top: 24px; font-size: 13px; }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p class="lead">$lead All times are UTC.</p>
$verdict
<div class="tiles">$tiles</div>
<section id="anomalies"><h2>Anomalies</h2>
<p class="what">Each time is by the clock of the node that wrote it down.</p>$anomalies</section>
<section id="outcomes"><h2>How messages ended</h2>$outcomes</section>
<section id="latency"><h2>Latency by route</h2>
<p class="what">From accepted to known to be delivered, by the clock of the sender: the
slowest routes, and all others together.</p>$latency</section>
<section id="slow"><h2>Slowest routes</h2>$slow</section>
<section id="retried"><h2>Most repeated</h2>$retried</section>
<section id="refusals"><h2>Most refused</h2>$refusals</section>
<section id="queues"><h2>Queues</h2>
<p class="what">How long items wait until somebody takes them.</p>$waits$queues</section>
<section id="workers"><h2>Workers</h2>$workers</section>
<section id="problems"><h2>Problems of the journals</h2>$problems</section>
<footer>Made by xmpp-qos audit. All rows are in the Parquet folders beside this file.</footer>
</main>
</body>
</html>
""")
