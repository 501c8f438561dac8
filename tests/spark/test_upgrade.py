"""Tables of an earlier version of this library go on, and get what is new."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frames import Lines, write_journal
from qos.audit import comments, commits, delta, store, table_upkeep
from qos.audit.audits import Audits
from qos.audit.batch_tables import TABLES
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import files, snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

FIFTH, SIXTH = date(2026, 1, 5), date(2026, 1, 6)
DAY_S = 86_400.0
LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))


def lines(at: float, boot: str) -> Lines:
    """A message in doubt, one that is delivered, a refusal and a dead item."""
    lines = Lines()
    doubt = ("accepted", "offered", "in-doubt")
    lines.sent(*doubt, at=at, boot=boot, msg_id=f"doubt of {boot}")
    told = ("accepted", "offered", "delivered")
    lines.sent(*told, at=at, boot=boot, msg_id=f"told of {boot}", level="acknowledged")
    refused = {"source": "s@x/1", "condition": "not-allowed", "boot": boot}
    lines.line("b@x/1", "receiver", "refused", at, **refused)
    of_item = {"queue": "n", "item": f"item of {boot}", "boot": boot}
    lines.line("q@x", "queue", "published", at, source="a@x/1", bytes=3, **of_item)
    lines.line("q@x", "queue", "dead", at + 1, condition="no good", **of_item)
    return lines


def former(name: str, rows: DataFrame) -> DataFrame:
    """The rows as a version before has written them."""
    if name in {"deliveries", "anomalies"}:
        rows = rows.withColumnRenamed("real_outcome", "ended")
    if name == "anomalies":
        rows = rows.withColumn("evidence", F.to_json("evidence"))
    if name == "queue_items":
        rows = rows.withColumnRenamed("condition", "reason")
    if name == "refusals":
        rows = rows.withColumn("reason", F.coalesce("condition", F.lit("")))
        rows = rows.drop("condition")
    return rows.drop("latency_counts", "wait_counts")


def former_tables(spark: SparkSession, new: str, out: str) -> None:
    """Tables of an earlier version, with the rows of `new`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comments, "of_column", lambda table, column: "")
        for module in (delta, table_upkeep):
            patch.setattr(module, "described", lambda comment: commits.DESCRIPTION)
        audits = Audits(spark, out)
        audits.recover()
        for name, table in snapshot(new).items():
            # Not from Spark: its types have the comments with them.
            rows = former(name, spark.createDataFrame(table.to_pyarrow_table()))
            if name == "problems":
                store.replace_table(rows, f"{out}/{name}")
            elif name in TABLES:
                store.replace_days(rows, f"{out}/{name}", FIFTH, FIFTH)
        audits.record(FIFTH, FIFTH)


def rows_of(out: str, name: str) -> dict[date, dict[str, Any]]:
    """The row of each day of a table; of messages, the one in doubt."""
    rows = snapshot(out)[name].to_pyarrow_table().to_pylist()
    return {
        row["date"]: row for row in rows if not row.get("msg_id", "").startswith("told")
    }


@pytest.fixture(scope="module")
def new(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of the fifth by this version; its journals are in the folder `j`."""
    folder = tmp_path_factory.mktemp("new")
    write_journal(folder / "j", "one", lines(0, "one"))
    audit(spark, [f"{folder}/j"], str(folder / "out"), limits=LIMITS)
    return folder


@pytest.mark.parametrize("follows", [False, pytest.param(True, marks=pytest.mark.long)])
def test_tables_of_an_earlier_version_get_comments_and_columns_without_new_files(
    spark: SparkSession, new: Path, tmp_path: Path, follows: bool
) -> None:
    """Only the small tables with a column of another type are written again."""
    journals, out = (str(tmp_path / name) for name in ("j", "out"))
    shutil.copytree(new / "j", journals)
    former_tables(spark, str(new / "out"), out)
    assert "comment" not in snapshot(out)["deliveries"].schema().to_json()
    before = {
        name: set(files(table)["path"].to_pylist())
        for name, table in snapshot(out).items()
    }
    other = f"{journals}/other" if follows else journals
    write_journal(Path(other), "two", lines(DAY_S, "two"))
    if follows:
        follower = Follower(
            spark,
            [other],
            out,
            limits=lambda: LIMITS,
            lateness=LIMITS.now - datetime(2026, 1, 1, tzinfo=UTC),
        )
        follower.look()
    else:
        audit(spark, [journals], out, limits=LIMITS, first=SIXTH, last=SIXTH)
    tables = snapshot(out)
    for name in ("deliveries", "queue_items", "routes_hourly", "queues_hourly"):
        assert before[name] < set(files(tables[name])["path"].to_pylist())
    for name, table in tables.items():
        assert table.metadata().description.startswith(comments.TABLES[name])
        assert all("comment" in field.metadata for field in table.schema().fields)
    routes, doubts = rows_of(out, "routes_hourly"), rows_of(out, "deliveries")
    assert routes[FIFTH]["latency_counts"] is None
    assert len(routes[SIXTH]["latency_counts"]) == 102
    assert (doubts[FIFTH]["ended"], doubts[SIXTH]["real_outcome"]) == ("unknown",) * 2
    anomalies = rows_of(out, "anomalies")
    for day in (FIFTH, SIXTH):
        anomaly = anomalies[day]
        assert anomaly["real_outcome"] == "unknown"
        assert anomaly["evidence"]["outcome"] == "in-doubt"
        assert anomaly["evidence"]["accepted_at"] == doubts[day]["accepted_at"]
        assert rows_of(out, "refusals")[day]["condition"] == "not-allowed"
    assert {"ended", "reason"}.isdisjoint(
        tables["anomalies"].to_pyarrow_table().column_names
    )
    assert rows_of(out, "queue_items")[FIFTH]["reason"] == "no good"
    assert rows_of(out, "queue_items")[SIXTH]["condition"] == "no good"
    # Now they are as they have to be.
    versions = {name: DeltaTable(f"{out}/{name}").version() for name in TABLES}
    if not follows:
        audit(spark, [journals], out, limits=LIMITS, first=SIXTH, last=SIXTH)
        now = {name: DeltaTable(f"{out}/{name}").version() for name in TABLES}
        assert now == versions
