"""Rows that an audit reads from its own tables and writes again: none comes back.

Somebody else may delete them in between. Then the audit fails, and may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import boot_runs, store, tables
from qos.audit.audits import Audits
from qos.audit.batch_tables import without_rows, write_tables
from qos.audit.delta import CannotWrite
from qos.audit.follow_results import FollowResults
from qos.audit.follow_storage import FollowStorage, Marks
from qos.audit.former_rows import FormerRows, Missing
from qos.audit.judging import Judge
from qos.audit.schema import EVENT
from qos.audit.step_tables import Step
from qos.audit.subject_records import RecordStore
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAY = date(2026, 1, 5)
LIMITS = Limits(now=datetime(2026, 1, 6, tzinfo=UTC))
REFUSED = "or somebody else, has written into it meanwhile"

_MESSAGE = {
    "date": f"{DAY}",
    "hour": 1,
    "level": "assured",
    "sender": "a@x",
    "receiver": "b@x/1",
    "msg_id": "one",
}
ROWS: dict[str, dict[str, Any]] = {
    "deliveries": {
        **_MESSAGE,
        "receiver_node": "b@x/1",
        "verdict": "unproven",
        "uncovered": "b@x/1",
    },
    "anomalies": {**_MESSAGE, "kind": "lost", "history": []},
    "windows_hourly": {"date": f"{DAY}", "hour": 1, "receiver": "b@x"},
    "refusals": {"date": f"{DAY}", "hour": 1, "receiver": "b@x"},
    "queue_items": {"date": f"{DAY}", "hour": 1, "service": "b@x/1", "item": "one"},
    "workers_hourly": {"date": f"{DAY}", "hour": 1, "worker": "b@x/1"},
}


def write(spark: SparkSession, out: str, name: str) -> None:
    """Write the row of a table, as an earlier audit has left it."""
    schema = without_rows(spark, LIMITS)[name].schema
    text = spark.createDataFrame([(json.dumps(ROWS[name]),)], "row string")
    row = text.select(F.from_json("row", schema).alias("row")).select("row.*")
    store.replace_days(row, f"{out}/{name}", DAY, DAY)


def rows_now(out: str, name: str) -> int:
    return len(DeltaTable(f"{out}/{name}").to_pyarrow_table())


def deletes_after(
    monkeypatch: pytest.MonkeyPatch, where: Any, call: str, out: str, name: str
) -> None:
    """Let somebody else delete the row of a table when it was read by a call."""
    real = getattr(where, call)

    def meanwhile(*args: Any) -> Any:
        found = real(*args)
        if call != "and_new" or name in args:
            DeltaTable(f"{out}/{name}").delete("hour = 1")
        return found

    monkeypatch.setattr(where, call, meanwhile)


def audit_again(spark: SparkSession, out: str, former: FormerRows) -> None:
    """Write the tables of the day again, without any line."""
    events = spark.createDataFrame([], EVENT)
    judge = Judge(spark.createDataFrame([], boot_runs.RUN), LIMITS)
    write_tables(
        events,
        judge,
        out,
        (DAY, DAY),
        former=former,
        messages=tables.deliveries(events),
        counts=tables.counted(events),
    )


def step(
    spark: SparkSession,
    out: str,
    undecided: DataFrame | None,
    former: DeltaTable | None = None,
) -> Step:
    """A step without a line, by which each message is ok."""
    nothing = RecordStore(spark, f"{out}/.audit").nothing()
    return Step(
        spark,
        out,
        before=nothing,
        now=nothing,
        undecided=undecided,
        former=former,
        limits=LIMITS,
        judged=lambda messages: tables.judged_ok(messages, LIMITS),
        lines_between=nothing.lines.where,
        lines_of=lambda subjects: nothing.lines,
    )


@pytest.mark.parametrize(
    "name",
    [
        "deliveries",
        "refusals",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("windows_hourly", "queue_items", "workers_hourly")
        ),
    ],
)
def test_a_row_of_a_missing_node_that_somebody_deletes_meanwhile_comes_not_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The rows that stay are those of the version that is replaced."""
    out = str(tmp_path)
    write(spark, out, name)
    missing = Missing("b@x/1", DAY, DAY, 1)
    former = FormerRows([missing], timedelta(days=2))
    with monkeypatch.context() as patched:
        deletes_after(patched, FormerRows, "and_new", out, name)
        with pytest.raises(CannotWrite, match=f"{name}: .*{REFUSED}"):
            audit_again(spark, out, former)
    assert rows_now(out, name) == 0
    audit_again(spark, out, former)
    assert rows_now(out, name) == 0


def test_an_anomaly_that_somebody_deletes_while_it_is_withdrawn_comes_not_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an audit of a day, and by a step of a follower."""
    out = str(tmp_path)
    nobody = FormerRows([], timedelta(days=2))
    columns = without_rows(spark, LIMITS)["deliveries"]
    write(spark, out, "deliveries")
    undecided = store.read_table(columns, f"{out}/deliveries").localCheckpoint()
    writes: tuple[Callable[[], object], ...] = (
        lambda: audit_again(spark, out, nobody),
        step(spark, out, undecided).write_messages,
    )
    for write_again in writes:
        write(spark, out, "anomalies")
        with monkeypatch.context() as patched:
            deletes_after(patched, tables, "revised", out, "anomalies")
            with pytest.raises(CannotWrite, match=f"anomalies: .*{REFUSED}"):
                write_again()
        assert rows_now(out, "anomalies") == 0


def test_a_message_that_somebody_deletes_while_it_is_judged_again_comes_not_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A follower has read it from the table, since a new journal may prove it."""
    out = str(tmp_path)
    write(spark, out, "deliveries")
    storage = FollowStorage(spark, f"{out}/.audit")
    columns = without_rows(spark, LIMITS)["deliveries"]
    marks = Marks(batch=0, shown_from=DAY, last=DAY)
    storage.save(marks, spark.createDataFrame([], boot_runs.RUN), pending=columns)
    results = FollowResults(
        spark,
        out,
        storage,
        Audits(spark, out),
        limits=lambda: LIMITS,
        keep_days=None,
        progress=lambda step: None,
    )
    run = json.dumps({"node": "b@x/1", "boot": "one", "kind": boot_runs.TOLD})
    boots = spark.createDataFrame([(run,)], "run string")
    boots = boots.select(F.from_json("run", boot_runs.RUN).alias("run")).select("run.*")
    undecided, former = results.undecided(boots, marks)
    assert undecided is not None
    assert undecided.count() == 1
    DeltaTable(f"{out}/deliveries").delete("hour = 1")
    with pytest.raises(CannotWrite, match=f"deliveries: .*{REFUSED}"):
        step(spark, out, undecided, former).write_messages()
    assert rows_now(out, "deliveries") == 0
