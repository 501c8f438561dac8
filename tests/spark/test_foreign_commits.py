"""An audit owns what it has made: what somebody else commits stays, and is seen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.table import TableAlterer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import audits as audits_module
from qos.audit import commits, delta, store, swap
from qos.audit.audits import Audits
from qos.audit.delta import CannotWrite
from qos.audit.snapshot import AUDITS, snapshot

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAY, NEXT = date(2026, 1, 5), date(2026, 1, 6)
ONE, TWO = "deliveries", "problems"


class Killed(BaseException):
    """Stands for the end of a process."""


class Tomorrow:
    """Stands for datetime, a day later."""

    @staticmethod
    def now(zone: tzinfo) -> datetime:
        return datetime.now(zone) + timedelta(days=1)


def rows(spark: SparkSession, day: date, *names: str) -> DataFrame:
    return spark.createDataFrame(
        [(day, name) for name in names], "date date, name string"
    )


def write(
    spark: SparkSession, out: str, day: date, *names: str, killed: bool = False
) -> None:
    """Write as an audit of a day does, with tables of a few rows."""
    tables = Audits(spark, out)
    tables.recover()
    for table in (ONE, TWO):
        store.replace_days(rows(spark, day, *names), f"{out}/{table}", day, day)
    if killed:
        raise Killed
    tables.record(day, day)


def names(out: str) -> dict[str, list[str]]:
    """The names that a reader sees."""
    return {
        name: sorted(table.to_pyarrow_table()["name"].to_pylist())
        for name, table in snapshot(out).items()
    }


def forget(out: str, *, name: str = "lamp") -> None:
    """Somebody else deletes an account from a table, and its files at once."""
    table = DeltaTable(f"{out}/{ONE}")
    table.delete(f"name = '{name}'")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_commits_of_audits_are_known_by_their_mark_and_all_others_are_foreign(
    tmp_path: Path,
) -> None:
    """Of this process, of another one, of somebody else, and without information."""
    folder = str(tmp_path)
    data = pa.table({"name": ["lamp", "hub", "hub"]})
    write_deltalake(folder, data, commit_properties=commits.ours())
    table = DeltaTable(folder)
    assert commits.is_of_audit(table)
    assert commits.foreign_since(table, 0) == {}
    table.delete("name = 'lamp'")
    write_deltalake(folder, data, mode="overwrite", commit_properties=commits.ours())
    table.update_incremental()
    table.optimize.compact()
    log = tmp_path / "_delta_log"
    bare = log / f"{3:020}.json"
    bare.write_text('{"txn":{"appId":"x","version":1}}\n')
    table = DeltaTable(folder)
    assert commits.foreign_since(table, 0) == {1: "DELETE", 3: "?"}
    assert commits.foreign_since(table, 3) == {}
    # A reader sees foreign commits, up to the first one of an unfinished audit.
    foreign = commits.foreign_since(table, 0)
    shown = [commits.shown_version(foreign, recorded) for recorded in range(4)]
    assert shown == [1, 1, 3, 3]


def test_a_table_is_of_an_audit_by_its_description_or_its_commits(
    tmp_path: Path,
) -> None:
    """Former versions have given no description; the name of a folder says nothing."""
    data = pa.table({"name": ["lamp"]})
    for name, options in (
        ("described", {"description": commits.DESCRIPTION}),
        ("former", {"commit_properties": commits.ours()}),
        ("foreign", {}),
    ):
        write_deltalake(f"{tmp_path}/{name}", data, **options)
        is_of_audit = commits.is_of_audit(DeltaTable(f"{tmp_path}/{name}"))
        assert is_of_audit == (name != "foreign")


def test_what_somebody_else_deletes_stays_deleted_and_is_named_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers see it at once; audits of other days go on, though files are gone."""
    out = str(tmp_path)
    write(spark, out, DAY, "hub", "lamp")
    forget(out)
    assert names(out) == {ONE: ["hub"], TWO: ["hub", "lamp"]}
    with caplog.at_level(logging.WARNING, "qos.audit"):
        write(spark, out, NEXT, "new")
        write(spark, out, NEXT, "new")
    assert names(out) == {ONE: ["hub", "new"], TWO: ["hub", "lamp", "new"]}
    assert [record.getMessage() for record in caplog.records] == [
        f"{out}/{ONE}: somebody else has changed this table (DELETE, VACUUM START, "
        "VACUUM END): that stays"
    ]


@pytest.mark.long
def test_what_is_deleted_after_a_killed_audit_or_during_one_stays_deleted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The table cannot be restored: the files of the former version are gone."""
    out = str(tmp_path)
    write(spark, out, DAY, "hub", "lamp", "old")
    # Before the audit that is killed: that is taken back, and no more.
    forget(out, name="old")
    with pytest.raises(Killed):
        write(spark, out, NEXT, "half", killed=True)
    Audits(spark, out).recover()
    assert names(out)[ONE] == ["hub", "lamp"]
    rows_now = DeltaTable(f"{out}/{ONE}").to_pyarrow_table()
    assert sorted(rows_now["name"].to_pylist()) == ["hub", "lamp"]
    write(spark, out, DAY, "hub", "lamp")
    # After it: the killed audit stays as well.
    with pytest.raises(Killed):
        write(spark, out, NEXT, "half", killed=True)
    forget(out)
    write(spark, out, NEXT, "new")
    assert names(out) == {ONE: ["hub", "new"], TWO: ["hub", "lamp", "new"]}
    # A follower writes again and again; a table of its list is vacuumed meanwhile.
    tables = Audits(spark, out)
    tables.recover()
    store.replace_days(rows(spark, NEXT, "newer"), f"{out}/{ONE}", NEXT, NEXT)
    forget(out, name="hub")
    DeltaTable(f"{out}/{AUDITS}").vacuum(800, dry_run=False)
    for _ in range(2):
        tables.record(DAY, NEXT)
        assert names(out) == {ONE: ["newer"], TWO: ["hub", "lamp", "new"]}
    deletions = [text for text in caplog.messages if "DELETE" in text]
    # The first is named at each start, until an audit has ended: three times.
    assert len(deletions) == 5


@pytest.mark.parametrize("looks_for_files", ["_files_of", "_paths_at"])
def test_rows_that_somebody_deletes_while_their_files_are_looked_for_come_not_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looks_for_files: str,
) -> None:
    """The files to be written again are those of the version that was opened."""
    folder = str(tmp_path / ONE)
    frame = rows(spark, DAY, "hub", "lamp", "old").withColumn("hour", F.lit(1))
    store.replace_days(frame.coalesce(1), folder, DAY, DAY)
    hub = frame.where("name = 'hub'")
    writes: dict[str, Callable[[], object]] = {
        "_files_of": lambda: swap.swap(
            hub, folder, on=["name"], keys=hub, hours=[(DAY, 1)]
        ),
        "_paths_at": lambda: swap.erase(
            spark, folder, lambda columns: F.col("name") == "old"
        ),
    }
    real = getattr(swap, looks_for_files)

    def meanwhile(*args: object) -> object:
        found = real(*args)
        DeltaTable(folder).delete("name = 'lamp'")
        return found

    monkeypatch.setattr(swap, looks_for_files, meanwhile)
    with pytest.raises(CannotWrite, match="or somebody else, has written into it"):
        writes[looks_for_files]()
    names_now = DeltaTable(folder).to_pyarrow_table()["name"].to_pylist()
    assert sorted(names_now) == ["hub", "old"]


@pytest.mark.parametrize("call", ["join_files", "remove_before", "restore"])
def test_what_somebody_deletes_after_a_table_was_opened_stays_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """deltalake merges, removes and restores files of the version that was opened."""
    out = str(tmp_path)
    folder = f"{out}/{ONE}"
    for day in (DAY, NEXT):
        write(spark, out, day, "hub", "lamp")
    with pytest.raises(Killed):
        write(spark, out, NEXT, "half", "lamp", killed=True)
    real = delta.open_table

    def meanwhile(spark: SparkSession, opened: str) -> DeltaTable | None:
        table = real(spark, opened)
        if opened == folder:
            DeltaTable(folder).delete("name = 'lamp'")
        return table

    monkeypatch.setattr(delta, "open_table", meanwhile)
    tables = Audits(spark, out)
    calls: dict[str, Callable[[], object]] = {
        "join_files": lambda: swap.join_files(spark, folder, None, NEXT),
        "remove_before": lambda: tables.remove_before(NEXT),
        "restore": tables.recover,
    }
    with pytest.raises(CannotWrite, match="or somebody else, has written into it"):
        calls[call]()
    rows_now = DeltaTable(folder).to_pyarrow_table()["name"].to_pylist()
    assert sorted(rows_now) == ["half", "hub"]


@pytest.mark.parametrize("moment", ["comment", "vacuum", "row"])
def test_what_another_audit_commits_while_one_is_recorded_is_not_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """As on an object store, where no lock keeps it away."""
    out = str(tmp_path)
    write(spark, out, DAY, "hub")
    tables = Audits(spark, out)
    tables.recover()
    name = AUDITS if moment == "row" else ONE
    mark = CommitProperties(custom_metadata={"writer": "0" * 32})

    def commits_after(where: Any, call: str) -> None:
        real = getattr(where, call)

        def meanwhile(*args: Any, **options: Any) -> Any:
            found = real(*args, **options)
            table = DeltaTable(f"{out}/{name}")
            table.alter.set_table_name("other", commit_properties=mark)
            monkeypatch.setattr(where, call, real)
            return found

        monkeypatch.setattr(where, call, meanwhile)

    if moment == "comment":
        DeltaTable(f"{out}/{ONE}").alter.set_table_description("former")
        commits_after(TableAlterer, "set_table_description")
    elif moment == "vacuum":
        monkeypatch.setattr(audits_module, "datetime", Tomorrow)
        commits_after(DeltaTable, "vacuum")
    else:
        commits_after(delta, "commit")
    tables.record(DAY, DAY)
    newest = DeltaTable(f"{out}/{name}").version()
    shown = {name: table.version() for name, table in snapshot(out).items()}
    if name == ONE:
        assert shown[ONE] == newest - 1
    with pytest.raises(CannotWrite, match=f"another audit has written into {name}"):
        tables.record(DAY, DAY)


def test_a_version_whose_files_somebody_has_removed_is_not_restored(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A VACUUM may leave no commit. The next audit goes on, and says so once."""
    out = str(tmp_path)
    write(spark, out, DAY, "first")
    with pytest.raises(Killed):
        write(spark, out, DAY, "half", killed=True)
    for path in DeltaTable(f"{out}/{ONE}", 1).file_uris():
        Path(path.removeprefix("file://")).unlink()
    write(spark, out, NEXT, "new")
    assert names(out) == {ONE: ["half", "new"], TWO: ["first", "new"]}
    assert [text for text in caplog.messages if "killed has written stays" in text]


def test_tables_of_somebody_else_are_neither_emptied_nor_recorded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A copy of a table of ours, too; and by the name of ours it is refused."""
    out = str(tmp_path)
    data = pa.table({"name": ["lamp"]})
    for _ in range(2):
        write_deltalake(f"{out}/mine", data, mode="append")
    write(spark, out, DAY, "hub")
    assert names(out) == {ONE: ["hub"], TWO: ["hub"]}
    mine = DeltaTable(f"{out}/mine")
    assert (mine.version(), mine.to_pyarrow_table().num_rows) == (1, 2)
    for _ in range(2):
        write_deltalake(f"{out}/anomalies", data, mode="append")
    with pytest.raises(CannotWrite, match="anomalies is a Delta table that no audit"):
        Audits(spark, out).recover()
    assert DeltaTable(f"{out}/anomalies").to_pyarrow_table().num_rows == 2
