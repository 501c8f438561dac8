"""A reader during an audit sees the tables of a finished one, and all of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from qos.audit import audits as audits_module
from qos.audit import store
from qos.audit.audits import Audits
from qos.audit.delta import CannotWrite
from qos.audit.follow_lock import alone
from qos.audit.snapshot import AUDITS, NoAudit, audits, snapshot, spark_frame
from qos.cli import main

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

DAY = date(2026, 1, 5)
ONE, TWO = "deliveries", "problems"


def rows(spark: SparkSession, name: str) -> DataFrame:
    return spark.createDataFrame([(DAY, name)], "date date, name string")


class Killed(BaseException):
    """Stands for the end of a process."""


def write(spark: SparkSession, out: str, name: str, *, killed_after: str = "") -> None:
    """Write as an audit does, with tables of only one row."""
    tables = Audits(spark, out)
    tables.recover()
    for table in (ONE, TWO):
        store.replace_days(rows(spark, name), f"{out}/{table}", DAY, DAY)
        if killed_after == table:
            raise Killed
    tables.record(DAY, DAY)


def names(out: str) -> dict[str, list[str]]:
    """The names that a reader sees."""
    return {
        table: found.to_pyarrow_table()["name"].to_pylist()
        for table, found in snapshot(out).items()
    }


def files(out: Path) -> Counter[str]:
    """The number of files of each table on disk, whether or not a log has them."""
    return Counter(
        path.relative_to(out).parts[0] for path in out.rglob("part*.parquet")
    )


def test_a_killed_audit_changes_nothing_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Wherever it is killed: the next audit takes back its commits."""
    out = str(tmp_path)
    for killed in (ONE, TWO):
        with pytest.raises(Killed):
            write(spark, out, "never", killed_after=killed)
        with pytest.raises(NoAudit, match="no audit was finished"):
            snapshot(out)
    write(spark, out, "first")
    before = snapshot(out)
    assert names(out) == {ONE: ["first"], TWO: ["first"]}
    for killed in (ONE, TWO):
        with pytest.raises(Killed):
            write(spark, out, "never", killed_after=killed)
        assert names(out) == {ONE: ["first"], TWO: ["first"]}
    # Of another day: the killed audit's rows of the first day are gone.
    Audits(spark, out).recover()
    assert DeltaTable(f"{out}/{ONE}").to_pyarrow_table()["name"].to_pylist() == [
        "first"
    ]
    write(spark, out, "second")
    assert names(out) == {ONE: ["second"], TWO: ["second"]}
    assert before[ONE].to_pyarrow_table()["name"].to_pylist() == ["first"]


def test_what_was_never_committed_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark was killed while it wrote; files of any version stay."""
    out = str(tmp_path)
    write(spark, out, "first")
    write(spark, out, "second")
    left = tmp_path / ONE / "write=20260101T000000-left"
    for path in (
        left / "_temporary/0/part.parquet",
        left / "date=2026-01-05/part.parquet",
    ):
        path.parent.mkdir(parents=True)
        path.write_text("half")
    assert files(tmp_path)[ONE] == 4
    Audits(spark, out).recover()
    assert not left.exists()
    assert files(tmp_path) == {ONE: 2, TWO: 2, AUDITS: 2}


def test_former_snapshots_are_kept_for_a_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then their files go; and `audits` has only those that can be read."""
    out = str(tmp_path)
    for number in range(3):
        write(spark, out, f"audit {number}")
    found = audits(DeltaTable(f"{out}/{AUDITS}"))
    assert [row["number"] for row in found] == [1, 2, 3]
    for number, row in enumerate(found):
        for table, version in row["versions"]:
            data = DeltaTable(f"{out}/{table}", version).to_pyarrow_table()
            assert data["name"].to_pylist() == [f"audit {number}"]
    # The first audit of a new day, when the others are too old by a moment.
    kept = (datetime.now(UTC) - found[-1]["finished_at"]) / 2
    tables = Audits(spark, out, retention=max(kept, timedelta(0)))
    tables.recover()
    now = datetime.now(UTC) + timedelta(days=1)
    monkeypatch.setattr(audits_module, "datetime", ClockAt(now))
    monkeypatch.setattr(audits_module, "_AUDIT_TAKES_MAX", timedelta(0))
    tables.record(DAY, DAY)
    found = audits(DeltaTable(f"{out}/{AUDITS}"))
    assert [row["number"] for row in found] == [3, 4]
    assert names(out) == {ONE: ["audit 2"], TWO: ["audit 2"]}
    assert files(tmp_path) == {ONE: 1, TWO: 1, AUDITS: 1}


class ClockAt:
    """A replacement of datetime, with a fixed time."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self, zone: object) -> datetime:
        return self._now


def test_each_reader_of_the_manual_sees_the_same(
    spark: SparkSession,
    audited: Audited,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pandas, DuckDB and Spark; with the columns that are in names of folders only."""
    monkeypatch.chdir(tmp_path)
    Path("audit").symlink_to(audited.out)
    code = Path(__file__).parents[2] / "docs" / "code" / "read_tables.py"
    for _ in range(2):  # as a reader who runs it again
        names: dict[str, Any] = {}
        exec(code.read_text(), names)  # noqa: S102 - our own guide
    messages = names["frame"]
    days = {DAY, DAY + timedelta(days=1)}
    assert set(messages["date"]) == days
    routes = names["routes"]
    assert {row["date"] for row in routes.collect()} == days
    sent = routes.agg({"messages": "sum", "one_sided": "sum"}).first()
    assert sent is not None
    assert len(messages) == sum(sent) > 0
    kinds = Counter(kind for (kind,) in names["found"].select("kind").fetchall())
    assert kinds == {"lost": 2, "duplicated": 1, "stuck": 1}
    table = names["tables"]["deliveries"]
    one_day = spark_frame(spark, table, first=DAY, last=DAY)
    assert one_day.count() == Counter(messages["date"])[DAY] > 0
    assert spark_frame(spark, table, last=DAY - timedelta(days=1)).count() == 0


def test_a_reader_needs_no_spark(tmp_path: Path) -> None:
    """It may be installed, but takes its time."""
    code = "import sys, qos.audit.snapshot; sys.exit('pyspark' in sys.modules)"
    subprocess.run((sys.executable, "-P", "-c", code), check=True)


def test_one_audit_at_a_time_writes_into_a_folder(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one gets a line; it has done nothing."""
    (tmp_path / "journal" / "date=2026-01-05").mkdir(parents=True)
    out = tmp_path / "out"
    with alone(str(out)):
        assert main(["audit", str(tmp_path / "journal"), "--out", str(out)]) == 2
        _, err = capsys.readouterr()
        assert err.count("\n") == 1
        assert "another audit writes into it: wait until" in err
        assert [path.name for path in out.iterdir()] == [".audit"]


def test_without_a_lock_one_of_two_audits_gets_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As on an object store: whichever commits last, no reader sees parts of both."""
    out = str(tmp_path)
    write(spark, out, "first")
    slow = Audits(spark, out)
    slow.recover()
    write(spark, out, "second")
    store.replace_days(rows(spark, "slow"), f"{out}/{ONE}", DAY, DAY)
    with pytest.raises(CannotWrite, match="another audit"):
        slow.record(DAY, DAY)
    assert names(out) == {ONE: ["second"], TWO: ["second"]}


def test_tables_of_a_former_version_are_left_alone(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are Parquet by date and hour; it says what to do."""
    (tmp_path / "journal" / "date=2026-01-05").mkdir(parents=True)
    out = tmp_path / "out"
    for name in ("problems/_SUCCESS", "deliveries/date=2026-01-05/hour=1/a.parquet"):
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("")
    before = sorted(path for path in out.rglob("*") if path.is_file())
    for follow in ([], ["--follow", "--once"]):
        arguments = ["audit", str(tmp_path / "journal"), "--out", str(out), *follow]
        assert main(arguments) == 2
        _, err = capsys.readouterr()
        assert err.count("\n") == 1
        assert "earlier version of this library: give another folder, or remove" in err
    after = sorted(path for path in out.rglob("*") if path.is_file())
    assert [path for path in after if path.parts[-2] != ".audit"] == before


def test_a_folder_that_deltalake_cannot_find_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before anything is read."""
    with pytest.raises(CannotWrite, match="give a folder without a %"):
        Audits(spark, f"{tmp_path}/100%25").recover()
