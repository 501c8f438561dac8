"""How long the rows of an audit stay: `--keep`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from frames import Lines, write_journal
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAY_S = 86_400.0
FIFTH, TENTH = date(2026, 1, 5), date(2026, 1, 10)

SENT = ("accepted", "offered", "received", "released", "delivered")


def day_of_lines(folder: Path, day: date) -> None:
    """A message, a refusal and an item of a day."""
    at, boot = (day - FIFTH).days * DAY_S, f"of {day}"
    lines = Lines().sent(*SENT, at=at, msg_id=boot, boot=boot)
    refused = {"source": "s@x/1", "condition": "not-allowed", "boot": boot}
    lines.line("b@x/1", "receiver", "refused", at, **refused)
    of_item = {"queue": "n", "item": boot, "boot": boot}
    lines.line("q@x", "queue", "published", at, source="a@x/1", bytes=3, **of_item)
    write_journal(folder, boot.replace(" ", "-"), lines)


def days(out: Path, name: str) -> Counter[date]:
    rows = snapshot(str(out))[name].to_pyarrow_table(columns=["date"]).to_pylist()
    return Counter(row["date"] for row in rows)


TABLES = ("deliveries", "routes_hourly", "refusals", "queue_items", "queues_hourly")


@pytest.mark.long
@pytest.mark.parametrize("follows", [pytest.param(False, marks=pytest.mark.long), True])
def test_rows_of_days_that_are_longer_ago_go(
    spark: SparkSession, tmp_path: Path, follows: bool
) -> None:
    """And come not again with the same lines; no file is written for it."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    for day in (FIFTH, TENTH):
        day_of_lines(journals, day)
    now, keep = datetime(2026, 1, 15, tzinfo=UTC), 10

    def look() -> None:
        if follows:
            follower.look()
        else:
            limits = Limits(now=now)
            audit(spark, [str(journals)], str(out), limits=limits, keep_days=keep)

    follower = Follower(
        spark,
        [str(journals)],
        str(out),
        limits=lambda: Limits(now=now),
        lateness=timedelta(days=2),
        keep_days=keep,
    )
    look()
    # The fifth is ten days ago, and just kept.
    assert all(days(out, name) == {FIFTH: 1, TENTH: 1} for name in TABLES)
    files = set((out / "deliveries").rglob("*.parquet"))
    now += timedelta(days=1)
    for _ in range(2):
        look()
        assert all(days(out, name) == {TENTH: 1} for name in TABLES)
    assert set((out / "deliveries").rglob("*.parquet")) == files
    table = DeltaTable(out / "deliveries")
    assert table.history(1)[0]["cause"] == "keep"
    # Whoever reads the rows still can, at the version before.
    table.load_as_version(table.version() - 1)
    assert len(table.to_pyarrow_table()) == 2


def test_a_line_of_a_year_to_come_removes_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Anybody may write one; so the clock of the machine counts.

    What that clock says is longer ago has no row after the first audit of its lines.
    """
    journals, out = tmp_path / "journals", tmp_path / "out"
    for day in (FIFTH, TENTH, date(2199, 1, 1)):
        day_of_lines(journals, day)
    limits = Limits(now=datetime(2026, 1, 16, tzinfo=UTC))
    audit(spark, [str(journals)], str(out), limits=limits, keep_days=10)
    for name in TABLES:
        assert (days(out, name)[FIFTH], days(out, name)[TENTH]) == (0, 1), name
