"""A follower and files that change, and clocks that are ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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


def look(spark: SparkSession, folder: Path) -> Look:
    """One look of a new process."""
    return Follower(
        spark,
        [str(folder / "journals")],
        str(folder / "out"),
        limits=lambda: LIMITS,
        lateness=timedelta(days=7),
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


def written(folder: Path) -> dict[str, bytes]:
    """Write the journals of the first look, and give the whole content of each by its name.

    Those named first, second and gone change after the kill; torn, empty and old are not
    complete yet. The days of `old` are closed; the clock of `ahead` is wrong, and `early`
    has none: it says 1970.
    """
    times = dict.fromkeys(("whole", "first", "second", "gone", "torn"), 0.0)
    times |= {"empty": 10.0, "old": -9 * DAY_S, "ahead": 12 * DAY_S}
    times["early"] = -NOON.timestamp()
    for name, at in times.items():
        lines = Lines(f"{name}.x").sent(*WHOLE, msg_id=name, at=at)
        write_journal(folder / "journals", name, lines)
    content = {name: journal_file(folder, name).read_bytes() for name in times}
    journal_file(folder, "torn").write_bytes(content["torn"][:500])
    journal_file(folder, "empty").write_bytes(b"")
    some = b"".join(content["old"].splitlines(keepends=True)[:3])
    journal_file(folder, "old").write_bytes(some)
    return content


def look_that_is_killed(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is on the disk, and nothing of it is done."""

    def killed(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(following, "stage", killed)
        with pytest.raises(InterruptedError):
            look(spark, folder)


@pytest.fixture
def without_marks(spark: SparkSession) -> Iterator[None]:
    """Spark writes no `_SUCCESS`, as some clusters want it for all jobs."""
    name = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


def test_files_may_change_between_the_looks_of_a_follower(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_marks: None,
) -> None:
    """All cases in two looks, since a look with one file costs as much as one with ten."""
    out = tmp_path / "out"
    whole = written(tmp_path)
    look_that_is_killed(spark, tmp_path, monkeypatch)

    # Two files were joined, and one removed: the plan of that look does not hold.
    first, second = journal_file(tmp_path, "first"), journal_file(tmp_path, "second")
    first.with_name("joined-b-2.jsonl").write_bytes(whole["first"] + whole["second"])
    gone = journal_file(tmp_path, "gone")
    for path in (first, second, gone):
        path.unlink()
    assert look(spark, tmp_path).batch == 0
    done = dict.fromkeys(("whole", "first", "second", "ahead"), "delivered")
    assert messages(out) == {**done, "torn": None, "old": None}
    assert problems(out) == {
        **{("unread-file", f"{n}-b-1.jsonl"): 1 for n in ("first", "second", "gone")},
        ("torn-line", "torn-b-1.jsonl"): 1,
        ("empty-file", "empty-b-1.jsonl"): 1,
        ("bad-line", "early-b-1.jsonl"): len(WHOLE),
    }

    # What was seen half copied has grown, and is not counted twice. The removed file is
    # there again. A device that was started anew is a day later than the others, and not
    # late. The day of the device without a time is closed, and its file has grown.
    gone.write_bytes(whole["gone"])
    for name in ("torn", "empty", "old"):
        journal_file(tmp_path, name).write_bytes(whole[name])
    fresh = Lines("whole.x").sent(*WHOLE, msg_id="fresh", at=DAY_S, boot="two")
    write_journal(tmp_path / "journals", "fresh", fresh)
    early = journal_file(tmp_path, "early")
    early.write_text(early.read_text() + "nonsense\n")
    assert look(spark, tmp_path).batch == 1
    done |= dict.fromkeys(("fresh", "gone", "torn", "empty"), "delivered")
    assert {**messages(out), "old": None} == {**done, "old": None}
    # Only the two lines of `old` that are new are late.
    assert problems(out) == {
        **{("unread-file", f"{name}-b-1.jsonl"): 1 for name in ("first", "second")},
        ("late-line", "1"): 2,
        ("bad-line", "early-b-1.jsonl"): len(WHOLE) + 1,
    }
    # There is nothing more to take in, also for a new process.
    assert look(spark, tmp_path).batch == 1
    assert not list(out.rglob("_SUCCESS"))


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
