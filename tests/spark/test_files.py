"""The files of journals are listed once, in the folders of the relevant days."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.synth import Plan, synthesise
from frames import NOON, Lines, write_journal
from parquet import rows_of
from qos.audit import read
from qos.audit.batch_tables import TABLES
from qos.audit.driver import audit
from qos.audit.new_files import files_since
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAYS = 40
LAST = date(2026, 1, 5) + timedelta(days=DAYS - 1)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Journals of many days, of which the last one is to be audited."""
    for day in range(DAYS):
        lines = Lines().sent("accepted", "delivered", at=86_400 * day, msg_id=f"m{day}")
        write_journal(tmp_path / "journals", "a@x", lines)
    return tmp_path / "journals"


def test_an_audit_of_a_day_looks_once_into_each_folder_that_counts(
    history: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet has years of journals.

    In a remote store, each listing costs a request.
    """
    looked: list[str] = []
    walk = os.walk

    def counting(path: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        looked.append(Path(path).name)
        return walk(path, *args, **kwargs)

    monkeypatch.setattr(os, "walk", counting)
    limits = Limits(now=NOON + timedelta(days=DAYS))
    found = audit(
        spark,
        [str(history)],
        str(tmp_path / "out"),
        limits=limits,
        first=LAST,
        last=LAST,
    )
    assert found.rows["deliveries"] == 1
    # With the two days before, as a message may begin in one day and end in another.
    days = [f"date={LAST - timedelta(days=before)}" for before in range(3)]
    assert sorted(name for name in looked if "date=" in name) == sorted(days)


def test_files_of_this_machine_are_dealt_by_their_sizes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by their number.

    Otherwise one worker would read most of the lines, and others wait.
    """
    monkeypatch.setattr(read, "_PART_BYTES", 1000)
    sizes = {str(tmp_path / f"{number:02}"): 10 * number for number in range(1, 41)}
    files, rest = read.read_these(spark, sizes)
    assert rest is None
    read_by = [
        sum(sizes[row["file"].removeprefix("file://")] for row in part)
        for part in files.select("file").rdd.glom().collect()
    ]
    assert len(read_by) == 8
    assert sum(read_by) == sum(sizes.values())
    assert max(read_by) < 1.5 * min(read_by)


@pytest.mark.long
def test_joined_files_come_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Even if the join was killed before it had removed all old files."""
    journals, cut = tmp_path / "journals", tmp_path / "cut"
    plan = Plan(devices=3, messages=60, lost=2, duplicated=2, stuck=1, hours=3)
    synthesise(plan, cut, processes=1)
    day = journals / "date=2026-01-05"
    day.mkdir(parents=True)
    for path in cut.glob("date=*/*.jsonl"):
        stem, lines = path.name.rpartition("-")[0], path.read_text().splitlines(True)
        for number in range(0, len(lines), 6):
            some = "".join(lines[number : number + 6])
            (day / f"{stem}-{number // 6}.jsonl").write_text(some)
    torn = max(day.iterdir())
    torn.write_text(torn.read_text()[:-9])
    (day / ".a@x-b-1.jsonl").write_text("open")
    small = {path: path.read_bytes() for path in day.glob("[!.]*.jsonl")}
    before = rows(spark, journals, tmp_path / "before")
    join = Path(__file__).parents[2] / "examples" / "compact_journals.py"
    subprocess.run((sys.executable, join, journals), check=True, timeout=60)
    joined = list(day.glob("*.zst"))
    assert 0 < len(joined) < len(small) / 2
    assert {path.name for path in day.iterdir()} == {
        ".a@x-b-1.jsonl",
        *(path.name for path in joined),
    }
    assert rows(spark, journals, tmp_path / "after") == before
    for path in sorted(small)[::3]:
        path.write_bytes(small[path])
    assert rows(spark, journals, tmp_path / "killed") == before


def rows(spark: SparkSession, journals: Path, out: Path) -> dict[str, Counter[str]]:
    """All tables of an audit."""
    limits = Limits(now=NOON + timedelta(days=9))
    audit(spark, [str(journals)], str(out), limits=limits)
    without = ("judged_at", "found_at", "history")
    return {name: rows_of(out / name, without) for name in TABLES}


def test_a_folder_of_no_day_is_no_journal(spark: SparkSession, tmp_path: Path) -> None:
    """Nor is a hidden one."""
    for name in ("notes", "date=2026-01-05/.tmp", "date=someday"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a@x-b1-1.jsonl").write_text("{}\n")
    assert files_since(spark, [str(tmp_path)], None) == []
