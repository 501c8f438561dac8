"""A journal that an earlier audit had is away: rows that only it could prove stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from frames import Lines, write_journal
from qos.audit.driver import audit
from qos.audit.erasure import forget
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(900),
]

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
DAY_S = 86_400.0
SEVENTH = date(2026, 1, 7)

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

#: What tells the time or the order of an audit, and nothing of the fleet.
OF_AUDITS = {"judged_at", "found_at", "history", "latency_sketch", "wait_sketch"}

TABLES = (
    *("deliveries", "anomalies", "routes_hourly", "unproven_hourly", "windows_hourly"),
    *("refusals", "queue_items", "queues_hourly", "workers_hourly"),
)

Rows = dict[str, list[dict[str, Any]]]


def of_a_day(lines: Lines, day: int) -> None:
    """Two messages, one that is lost, a refusal, a count, and an item of a queue."""
    at = day * DAY_S
    for number, name in enumerate(("one", "lost", "two")):
        lines.sent(*SENT, at=at + number * 3600, msg_id=f"{name} {day}")
        if name != "lost":
            lines.got(*GOT, at=at + number * 3600 + 0.5, msg_id=f"{name} {day}")
    last = at + 4 * 3600
    refused = {"source": "s@x/1", "condition": "not-allowed"}
    lines.line("b@x/1", "receiver", "refused", last, **refused)
    since = f"2026-01-{5 + day:02}T12:00:00.000000Z"
    for node, count in (("a@x/1", "sent"), ("b@x/1", "received")):
        counts = {"sent": 0, "received": 0} | {count: 3, "since": since}
        route = {"level": "assured", "source": "a@x", "to": "b@x"}
        lines.line(node, "journal", "counted", last, **route, **counts)
    of_item = {"queue": "n", "item": f"item {day}"}
    lines.line("q@x", "queue", "published", at, source="a@x/1", bytes=3, **of_item)
    lines.line("q@x", "queue", "acquired", at + 1, to="w@x/1", **of_item)
    lines.line("q@x", "queue", "accepted", at + 4, source="w@x/1", **of_item)
    of_item |= {"queue": "q@x/n", "source": "q@x"}
    lines.line("w@x/1", "worker", "started", at + 2, **of_item)
    lines.line("w@x/1", "worker", "accepted", at + 3, **of_item)


def write_days(folder: Path, days: Sequence[int]) -> list[str]:
    """The journals of four nodes, each in a folder of its own, with these days."""
    lines = Lines()
    for day in days:
        of_a_day(lines, day)
    nodes = sorted({row["node"] for row in lines.rows})
    for node in nodes:
        for day in {row["at"].date() for row in lines.rows}:
            part = Lines()
            part.rows = [
                row
                for row in lines.rows
                if (row["node"], row["at"].date()) == (node, day)
            ]
            write_journal(folder / quote(node, safe="@"), quote(node, safe="@"), part)
    return [str(folder / quote(node, safe="@")) for node in nodes]


def rows(out: Path, until: date = SEVENTH) -> Rows:
    """The rows of the days before one, by table."""
    tables = snapshot(str(out))
    return {
        name: sorted(
            (
                {key: value for key, value in row.items() if key not in OF_AUDITS}
                for row in tables[name].to_pyarrow_table().to_pylist()
                if row["date"] < until
            ),
            key=repr,
        )
        for name in TABLES
    }


def missing(out: Path) -> Mapping[str, tuple[int, str]]:
    """The missing journals in the table of problems: days, and which, by node."""
    table = snapshot(str(out))["problems"].to_pyarrow_table()
    return {
        row["place"]: (row["count"], row["example"])
        for row in table.to_pylist()
        if row["kind"] == "missing-journal"
    }


@pytest.mark.parametrize("first", [None, date(2026, 1, 5)])
def test_rows_of_a_node_whose_journal_is_away_stay_as_they_were(
    spark: SparkSession, tmp_path: Path, first: date | None
) -> None:
    """They were replaced by less proven ones, or gone; the next day is audited."""
    folder, out = tmp_path / "journals", tmp_path / "out"

    def audit_all(journals: Sequence[str]) -> None:
        audit(spark, journals, str(out), limits=LIMITS, first=first)

    journals = write_days(folder, [0, 1])
    audit_all(journals)
    before = rows(out)
    empty = {name for name in TABLES if not before[name]}
    assert empty == {"unproven_hourly"}
    assert [row["verdict"] for row in before["deliveries"]].count("lost") == 2
    assert missing(out) == {}
    write_days(folder, [0, 1, 2])
    away = tmp_path / "away"
    away.mkdir()
    for node in ("b@x%2F1", "q@x", "w@x%2F1"):
        (folder / node).rename(away / node)
    # Twice: what the second one has found there is not what it has judged itself.
    for _ in range(2):
        audit_all(journals)
        assert rows(out) == before
        days = (2, "the rows of 2026-01-05 to 2026-01-06 stay as they were")
        assert missing(out) == dict.fromkeys(("b@x/1", "q@x", "w@x/1"), days)
        of_seventh = rows(out, date(2026, 1, 8))["deliveries"]
        assert len(of_seventh) == len(before["deliveries"]) + 3
    for kept in away.iterdir():
        kept.rename(folder / kept.name)
    audit_all(journals)
    assert missing(out) == {}
    assert rows(out) == before
    again = rows(out, date(2026, 1, 8))
    assert [row["verdict"] for row in again["deliveries"]].count("lost") == 3
    assert len(again["queue_items"]) == 3


def test_the_journal_of_a_forgotten_account_is_not_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its owner deletes it, as the guide says; and nothing is kept of its name."""
    folder, out = tmp_path / "journals", tmp_path / "out"
    journals = write_days(folder, [0])
    audit(spark, journals, str(out), limits=LIMITS)
    forget(spark, str(out), "b@x")
    left = [journal for journal in journals if "b@x" not in journal]
    audit(spark, left, str(out), limits=LIMITS)
    assert missing(out) == {}
    for name, table in rows(out).items():
        assert "b@x" not in repr(table), name
    kept = list((out / ".audit").glob("judged-*"))
    assert kept
    assert all(b"b@x" not in path.read_bytes() for path in kept)
