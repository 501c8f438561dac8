"""A follower and files that change, and clocks that are ahead."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit import follow as following
from qos.audit.follow import Follower, Look
from qos.audit.follow_plan import plan_from
from qos.audit.new_files import NewFile
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

LIMITS = Limits(now=NOON + timedelta(days=20))
DAY_S = 86_400.0
WHOLE = ("accepted", "offered", "received", "released", "delivered")


def look(spark: SparkSession, folder: Path, late: int = 7) -> Look:
    """One look of a new process."""
    return Follower(
        spark,
        [str(folder / "journals")],
        str(folder / "out"),
        limits=lambda: LIMITS,
        lateness=timedelta(days=late),
    ).look()


def messages(out: Path) -> dict[str, str | None]:
    """The outcome of each message."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table().to_pylist()
    return {row["msg_id"]: row["outcome"] for row in rows}


def problems(out: Path) -> Counter[tuple[str, str]]:
    """The number of each problem, by its kind and the name of its file."""
    rows = snapshot(str(out))["problems"].to_pyarrow_table().to_pylist()
    return Counter(
        {(row["kind"], row["place"].rpartition("/")[2]): row["count"] for row in rows}
    )


def journal_file(folder: Path, name: str) -> Path:
    (path,) = (folder / "journals").glob(f"date=*/{name}-b-1.jsonl")
    return path


def test_a_device_without_a_time_is_told_however_late_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its lines are of 1970. That day is closed, and is listed in each look."""
    journals = tmp_path / "journals"
    whole = Lines("whole.x").sent(*WHOLE, msg_id="whole")
    write_journal(journals, "whole", whole)
    look(spark, tmp_path)
    early = Lines("early.x").sent(*WHOLE, at=-NOON.timestamp())
    write_journal(journals, "early", early)
    path = journals / "date=1970-01-01/early-b-1.jsonl"
    assert look(spark, tmp_path).batch == 1
    told = Counter({("bad-line", path.name): len(WHOLE)})
    assert problems(tmp_path / "out") == told
    # Nor is its file read twice, or by a new process.
    assert look(spark, tmp_path).batch == 1
    path.write_text(path.read_text() + "nonsense\n")
    assert look(spark, tmp_path).batch == 2
    told[("bad-line", path.name)] += 1
    assert problems(tmp_path / "out") == told
    assert messages(tmp_path / "out") == {"whole": "delivered"}


def test_a_file_that_was_seen_half_copied_is_read_when_it_has_grown(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And is not counted twice: it comes to what an audit of the whole file does.

    One file is empty at first; the day of another is closed when it has grown.
    """
    journals = tmp_path / "journals"
    times = {"torn": 0.0, "empty": 10.0, "old": -9 * DAY_S, "other": 0.0}
    for name, at in times.items():
        lines = Lines(f"{name}.x").sent(*WHOLE, msg_id=name, at=at)
        write_journal(journals, name, lines)
    paths = {name: journal_file(tmp_path, name) for name in ("torn", "empty", "old")}
    whole = {name: path.read_bytes() for name, path in paths.items()}
    paths["torn"].write_bytes(whole["torn"][:500])
    paths["empty"].write_bytes(b"")
    paths["old"].write_bytes(b"".join(whole["old"].splitlines(keepends=True)[:3]))
    look(spark, tmp_path)
    assert messages(tmp_path / "out") == {
        "torn": None,
        "old": None,
        "other": "delivered",
    }
    assert problems(tmp_path / "out") == {
        ("torn-line", "torn-b-1.jsonl"): 1,
        ("empty-file", "empty-b-1.jsonl"): 1,
    }
    for name, content in whole.items():
        paths[name].write_bytes(content)
    look(spark, tmp_path)
    # Only the two lines that are new are late.
    late = ("late-line", "1")
    assert messages(tmp_path / "out")["torn"] == "delivered"
    assert messages(tmp_path / "out")["empty"] == "delivered"
    assert problems(tmp_path / "out") == {late: 2}
    # There is nothing more to take in.
    assert look(spark, tmp_path).batch == 1


def test_a_clock_that_is_ahead_makes_no_line_of_others_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also not a clock that says what may be the time of the audit."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    for name, at in (("ahead", 12 * DAY_S), ("a", 0.0), ("b", 0.0)):
        lines = Lines(f"{name}.x").sent(*WHOLE, msg_id=name, at=at)
        write_journal(journals, name, lines)
    look(spark, tmp_path, late=1)
    lines = Lines("b.x").sent(*WHOLE, msg_id="fresh", at=DAY_S, boot="two")
    write_journal(journals, "b2", lines)
    look(spark, tmp_path, late=1)
    assert messages(out) == dict.fromkeys(("ahead", "a", "b", "fresh"), "delivered")
    assert not problems(out)


def test_a_plan_that_does_not_hold_is_made_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower was killed in a step, and its files were joined or removed meanwhile."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    for name in ("first", "second", "gone"):
        write_journal(journals, name, Lines(f"{name}.x").sent(*WHOLE, msg_id=name))

    def killed(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(following, "stage", killed)
        with pytest.raises(InterruptedError):
            look(spark, tmp_path)
    first, second = journal_file(tmp_path, "first"), journal_file(tmp_path, "second")
    first.with_name("joined-b-2.jsonl").write_bytes(
        first.read_bytes() + second.read_bytes()
    )
    gone = journal_file(tmp_path, "gone")
    content = gone.read_bytes()
    for path in (first, second, gone):
        path.unlink()
    look(spark, tmp_path)
    assert messages(out) == {"first": "delivered", "second": "delivered"}
    assert problems(out) == {
        ("unread-file", f"{name}-b-1.jsonl"): 1 for name in ("first", "second", "gone")
    }
    gone.write_bytes(content)
    look(spark, tmp_path)
    assert messages(out)["gone"] == "delivered"
    assert ("unread-file", "gone-b-1.jsonl") not in problems(out)


def test_a_plan_holds_as_long_as_its_files_are_the_same() -> None:
    """Then the repeated step has the same result, whatever has come meanwhile."""
    one, two = (NewFile(f"/{n}-b-1.jsonl", "", None, 9, "", 5) for n in "ab")
    grown = NewFile(one.path, "", None, 10, "", 6)
    assert plan_from([], [one, two]) == [one, two]
    assert plan_from([one], [one, two]) == [one]
    assert plan_from([one], [grown, two]) == [grown, two]
    (gone,) = plan_from([one], [])
    assert (gone.problem, gone.reason) == (
        "unread-file",
        "it was removed before it was read",
    )
    assert not gone.is_same(one)
    # A former version has stored no times.
    assert NewFile(one.path, "", None, 9).is_same(one)
    assert not NewFile(one.path, "", None, 9, "", 4).is_same(one)


def test_a_follower_goes_on_where_spark_marks_no_success(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Some clusters switch those marks off for all jobs."""
    write_journal(tmp_path / "journals", "a", Lines().sent(*WHOLE, msg_id="one"))
    name = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    spark.conf.set(name, "false")
    try:
        assert look(spark, tmp_path).batch == 0
        write_journal(tmp_path / "journals", "b", Lines("y").sent("accepted"))
        assert look(spark, tmp_path).batch == 1
    finally:
        spark.conf.unset(name)
    assert not list((tmp_path / "out").rglob("_SUCCESS"))
