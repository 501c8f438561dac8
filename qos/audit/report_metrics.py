"""The numbers of an audit in the text format of Prometheus.

They are for the textfile collector of node_exporter: samples have no time. The time of
the audit is a metric of its own, so that an alert can notice a missing audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from typing import TypeAlias

from qos.audit.report_data import ReportData
from qos.audit.report_headline import KINDS, OUTCOMES, REASONS
from qos.audit.rules import RULES

__all__ = ["metrics"]

_PREFIX = "xmpp_qos_audit_"

#: Labels, and a value; None: no value.
_Sample: TypeAlias = tuple[Mapping[str, str], float | None]


def metrics(
    data: ReportData, first: date | None, last: date | None, *, lines: int, at: datetime
) -> str:
    """All metrics, each for all days of the audit together.

    Args:
        data: the data of the report.
        first: the first day of the audit.
        last: the last day.
        lines: the number of all lines read from the journals.
        at: the time of the audit.
    """
    families = [
        *_audit(data, first, last, lines, at),
        *_messages(data),
        *_proof(data),
        *_windows(data),
        *_queues(data),
    ]
    return "".join(families)


def _audit(
    data: ReportData, first: date | None, last: date | None, lines: int, at: datetime
) -> Iterator[str]:
    yield _one("timestamp_seconds", "When the last audit was made.", at.timestamp())
    yield _one("first_day_timestamp_seconds", "Begin of its first day.", _begin(first))
    yield _one("last_day_timestamp_seconds", "Begin of its last day.", _begin(last))
    yield _one("lines", "Lines of journals that were read.", lines)
    yield _one("files_not_closed", "Files that were not read.", data.files_open)
    counts = {**dict.fromkeys(RULES, 0), **data.problem_counts}
    yield _family("problems", "Problems of the journals.", _by("kind", counts))


def _messages(data: ReportData) -> Iterator[str]:
    outcomes = {**dict.fromkeys(OUTCOMES, 0), **data.outcomes}
    help_text = "Messages by how they ended, as their senders say."
    yield _family("messages", help_text, _by("outcome", outcomes))
    kinds = {**dict.fromkeys(KINDS, 0), **data.anomaly_counts}
    yield _family("anomalies", "Anomalies that are proven.", _by("kind", kinds))
    yield _family(
        "latency_p95_seconds",
        "95 % of the messages of a level were known to be delivered within this.",
        (({"level": row["level"]}, row["p95"]) for row in data.levels),
    )


def _proof(data: ReportData) -> Iterator[str]:
    proof = data.proof
    if proof is None:
        return
    yield _one("judged_messages", "Messages that could be judged.", proof.judged)
    yield _one(
        "provable_ratio",
        "Part of the messages that could be judged; missing where there is none.",
        proof.share,
    )
    reasons = {**dict.fromkeys(REASONS, 0), **proof.reasons}
    help_text = "Messages that look wrong, where the journals do not prove it."
    yield _family("unproven_messages", help_text, _by("reason", reasons))


def _windows(data: ReportData) -> Iterator[str]:
    windows = data.windows
    if windows is None:
        return
    yield _one("windows", "Windows of routes, counted at an end.", windows.windows)
    help_text = "Windows of routes, counted at both ends."
    yield _one("windows_complete", help_text, windows.complete)


def _queues(data: ReportData) -> Iterator[str]:
    states = ("accepted", "dead", "open")
    totals = data.queue_totals or {}
    yield _family(
        "queue_items",
        "Items of all queues by state; open: still there.",
        (({"state": state}, totals.get(state, 0)) for state in states),
    )
    yield _family(
        "queue_open_items",
        "Items that are still there, of the largest queues.",
        ((_queue(row), row["open"]) for row in data.queues),
    )
    yield _family(
        "queue_oldest_seconds",
        "Age of the oldest item that is still there; missing where there is none.",
        ((_queue(row), row["oldest_s"]) for row in data.queues),
    )


def _queue(row: Mapping[str, str | None]) -> Mapping[str, str]:
    return {name: row[name] or "" for name in ("service", "queue")}


def _begin(day: date | None) -> float | None:
    return None if day is None else datetime.combine(day, time(), UTC).timestamp()


def _by(label: str, counts: Mapping[str, int]) -> Iterator[_Sample]:
    for name, count in counts.items():
        yield {label: name}, count


def _one(name: str, help_text: str, value: float | None) -> str:
    return _family(name, help_text, [({}, value)])


def _family(name: str, help_text: str, samples: Iterable[_Sample]) -> str:
    """A metric; "" if there is no sample, because a metric must not be there twice."""
    name = _PREFIX + name
    lines = {_labels(labels): value for labels, value in samples if value is not None}
    if not lines:
        return ""
    body = "".join(f"{name}{labels} {value!r}\n" for labels, value in lines.items())
    return f"# HELP {name} {help_text}\n# TYPE {name} gauge\n{body}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    # Never cut: two names that look the same must not become one.
    text = value.encode(errors="replace").decode()
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
