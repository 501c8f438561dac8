"""Reports with everything that a page can show, in any number, with any names."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

from qos.audit.report_data import DayTotals, Proof, ReportData, Rows, Windows

DAY = date(2026, 1, 5)
MOMENT = datetime(2026, 1, 5, 0, tzinfo=UTC)

_OUTCOMES = ("delivered", "withdrawn", "open", "not-delivered", "in-doubt")
_KINDS = ("lost", "duplicated", "orphaned", "stuck", "in-doubt")
_REASONS = ("no-journal", "began-later", "not-closed", "hole", "journal-off", "clock")
_TIMES = {"p50": 0.1, "p95": 20.0, "p99": 3000.0}
#: As long as the evidence of a real anomaly.
_EVIDENCE = (
    *("accepted_at", "offered_at", "held_at", "received_at", "released_at", "ended_at"),
    *("level", "msg_id", "sender", "receiver", "to", "source", "outcome", "condition"),
    *("attempts", "retries", "bytes", "holds", "hand_overs", "redeliveries"),
)


def report(name: str, rows: int = 1, points: int = 1) -> ReportData:
    """A report in which all names are the same.

    Args:
        name: of all nodes, queues, messages and everything else with a name.
        rows: of each list.
        points: of each chart; as many charts as are possible.
    """
    names = [name if rows == 1 else f"{name} {n}" for n in range(rows)]
    charts = names[:6]
    return ReportData(
        outcomes={"delivered": 2000 * rows, "in-doubt": rows},
        anomaly_counts={"lost": 300, "in-doubt": 1}
        if rows == 1
        else dict.fromkeys(_KINDS, 300),
        problem_counts={"missing-lines": 12, "open-file": 3, "torn-line": 2},
        files_open=3,
        proof=_proof(names),
        windows=Windows(
            *(288 * rows, 280 * rows, 3 * rows, 6 * rows),
            [{**_route(each), **_COUNTED} for each in names[:15]],
        ),
        trend=(
            DayTotals(DAY - timedelta(days=1), 1000, 2.5, 0),
            DayTotals(DAY, 2000 * rows, 5.0, 301),
        ),
        levels=[{"level": "assured", "messages": rows, "p95": 0.5}],
        bucket_s=900,
        latency=[row for each in charts for row in _points(each, "messages", points)],
        outcomes_by_time=[
            {"moment": row["moment"], "outcome": outcome, "messages": row["messages"]}
            for outcome in (_OUTCOMES if rows > 1 else ["delivered"])
            for row in _points(outcome, "messages", points)
        ],
        slow=[{**_route(each), **_TIMES} for each in names[:15]],
        retried=[{**_route(each), "retried": 1, "rate": 1.0} for each in names[:15]],
        refusals=[
            {"source": each, "receiver": each, "condition": each, "refusals": 1}
            for each in names[:15]
        ],
        anomalies=[
            _anomaly(kind, each)
            for kind in (_KINDS if rows > 1 else ("lost", "in-doubt"))
            for each in names[:20]
        ],
        waits=[row for each in charts for row in _points(each, "items", points)],
        queue_totals=_queue(name),
        queues=[_queue(each) for each in names],
        workers=[_worker(each) for each in names[:15]],
        problems=[
            {"kind": "torn-line", "place": each, "count": 2, "example": each}
            for each in names[:50]
        ],
    )


_COUNTED = {
    "sent": 100,
    "received": 90,
    "windows": 288,
    "complete": 280,
    "without_sender": 3,
    "without_receiver": 6,
}


def _points(line: str, noun: str, points: int) -> Rows:
    """Points of a chart; some have no neighbour."""
    return [
        {
            "line": line,
            "moment": MOMENT + timedelta(seconds=900 * n),
            noun: 1000 + 37 * n,
            "p50": 0.1 + 0.05 * math.sin(n / 7),
            "p95": 2.0 + 1.9 * math.sin(n / 5),
            "p99": 4.0,
        }
        for n in range(points)
        if n % 17 not in (3, 5)
    ]


def _proof(names: list[str]) -> Proof:
    reasons = dict.fromkeys(_REASONS[: len(names)], 10)
    groups = [
        {
            **_route(each),
            "suspected": "lost",
            "reason": reason,
            "node": each,
            "messages": 10,
        }
        for each, reason in zip(names, reasons, strict=False)
    ]
    return Proof(1990 * len(names), sum(reasons.values()), reasons, groups)


def _route(name: str) -> dict[str, Any]:
    return {"sender": name, "receiver": name, "level": "assured", "messages": 1}


def _anomaly(kind: str, name: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "real_outcome": name if kind == "in-doubt" else None,
        "msg_id": name,
        "sender": name,
        "receiver": name,
        "rests_on": ["a@x/1", "b@x/1"],
        "evidence": json.dumps(dict.fromkeys(_EVIDENCE, name)),
    }


def _queue(name: str) -> dict[str, Any]:
    counts = {"items": 5, "accepted": 3, "dead": 1, "open": 1, "again": 0}
    return {"queue": name, "service": name, **counts, "oldest_s": 90000.0, **_TIMES}


def _worker(name: str) -> dict[str, Any]:
    ends = ("accepted", "released", "modified", "rejected", "lost", "open")
    return {
        "worker": name,
        "queue": name,
        "started": 1,
        **dict.fromkeys(ends, 0),
        "busy_s": 1.5,
        "handling_p95": None,
    }
