"""Journals are staged with the same result by this process and by Spark's workers."""

import gzip
from collections import Counter
from dataclasses import fields
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit import staged_journals
from qos.audit.foreign_lines import Tied
from qos.audit.staged_journals import stage

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of which Python workers have written the results."""
    asked: list[str] = []
    real = staged_journals._write_in_workers

    def write(spark, sizes, folder, open_from, tied):  # type: ignore[no-untyped-def]
        asked.append(Path(folder).name)
        return real(spark, sizes, folder, open_from, tied)

    monkeypatch.setattr(staged_journals, "_write_in_workers", write)
    return asked


def sizes_of(journals: Path) -> dict[str, int]:
    paths = journals.glob("date=*/*.jsonl*")
    return {str(path): path.stat().st_size for path in paths}


def journals_in(folder: Path) -> Path:
    """Two nodes on two days, with other roles, a problem, and a foreign node."""
    for day in range(2):
        lines, got = Lines(), Lines()
        begin, boot = 86_400 * day, f"of day {day}"
        for number in range(3):
            given = {"msg_id": f"m{day}{number}", "boot": boot}
            at = begin + 60 * number
            lines.sent("accepted", "offered", "delivered", at=at, **given)
            got.got("held", "handed-over", "done", at=at, **given)
        lines.line("a@x/1", "journal", "closed", begin + 3600, boot=boot)
        write_journal(folder, "a@x", lines)
        write_journal(folder, "b@x", got)
    with (folder / f"date={NOON:%Y-%m-%d}" / "a@x-b-1.jsonl").open("a") as file:
        file.write("nonsense\n")
    return folder


def test_this_process_stages_small_journals_as_workers_do(
    spark: SparkSession,
    tmp_path: Path,
    workers: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To start two workers takes longer than to check thirty thousand lines."""
    journals = journals_in(tmp_path / "journals")
    sizes = sizes_of(journals)
    tomorrow = NOON.date() + timedelta(days=1)
    tied = Tied(((str(journals), "a@x"),))
    for case, (open_from, whose) in enumerate(
        ((None, Tied()), (tomorrow, Tied()), (None, tied))
    ):
        here = staged(spark, sizes, tmp_path / f"here-{case}", open_from, whose)
        assert workers == []
        with monkeypatch.context() as patched:
            patched.setattr(staged_journals, "are_small", lambda _sizes: False)
            there = staged(spark, sizes, tmp_path / f"there-{case}", open_from, whose)
        assert workers == [f"there-{case}"]
        workers.clear()
        assert here == there
        assert here["runs"]
        assert bool(here["late_runs"]) == (open_from is not None)
        assert any("nonsense" in repr(row) for row in here["lines"])


def staged(
    spark: SparkSession,
    sizes: dict[str, int],
    folder: Path,
    open_from: date | None,
    tied: Tied,
) -> dict[str, Any]:
    found = stage(spark, sizes, str(folder), open_from=open_from, tied=tied)
    frames = {field.name: getattr(found, field.name) for field in fields(found)}
    roles = frames.pop("roles")
    # A few lines of this process need not be joined: see qos.audit.pairing.
    assert frames.pop("has_pairs") == folder.name.startswith("there")
    rows = {name: Counter(map(repr, each.collect())) for name, each in frames.items()}
    return {**rows, "roles": roles}


def test_a_compressed_file_is_left_to_workers(
    spark: SparkSession, tmp_path: Path, workers: list[str]
) -> None:
    """A few of its bytes may be terabytes, and only their work can be given up."""
    journals = journals_in(tmp_path / "journals")
    path = max(journals.glob("date=*/*.jsonl"))
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(path.read_bytes())
    path.unlink()
    stage(spark, sizes_of(journals), str(tmp_path / "out"))
    assert workers == ["out"]
