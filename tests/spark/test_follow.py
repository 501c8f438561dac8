"""A follower of journals reaches the result of an audit of them, whatever happens."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.synth import Plan, synthesise
from frames import NOON, Lines, write_journal
from parquet import SKETCHES
from qos.audit import boot_runs, follow_results, step_tables
from qos.audit.batch_tables import TABLES
from qos.audit.delta import CannotWrite
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.follow_lock import FOLDER, CannotFollow, alone, check_options
from qos.audit.follow_problems import LATE_LINE
from qos.audit.follow_storage import FollowStorage, Incomplete, Marks
from qos.audit.new_files import NewFile
from qos.audit.snapshot import files, snapshot, spark_frame
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
WEEK = timedelta(days=7)


def follower(
    spark: SparkSession, journals: Path, out: Path, *, late: timedelta = WEEK
) -> Follower:
    """A new process would not know more."""
    return Follower(
        spark, [str(journals)], str(out), limits=lambda: LIMITS, lateness=late
    )


def rows(
    spark: SparkSession, out: Path, names: Sequence[str] = (*TABLES, "problems")
) -> dict[str, Counter[str]]:
    """All that is in the tables."""
    found = {}
    for name in names:
        frame = spark_frame(spark, snapshot(str(out))[name])
        # A follower has judged them before, with less knowledge.
        columns = sorted({*frame.columns} - {"history", *SKETCHES})
        found[name] = Counter(map(str, frame.select(*columns).collect()))
    return found


def journals_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("date=*/*"))


def some(folder: Path, into: Path, paths: list[Path]) -> None:
    """Some files come, as a copy of them would."""
    for path in paths:
        target = into / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target.with_name(f".{path.name}"))
        target.with_name(f".{path.name}").rename(target)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of two days, with anomalies and problems in them."""
    folder = tmp_path_factory.mktemp("made")
    plan = Plan(devices=9, messages=150, lost=2, duplicated=2, stuck=2, days=2, hours=1)
    synthesise(plan, folder, processes=1)
    day = folder / "date=2026-01-05"
    (day / "notes.txt").write_text("foreign")
    (day / "node-b-1.jsonl").write_text("")
    one = min(day.glob("dev*"))
    lines = one.read_text().splitlines(keepends=True)
    back = lines[2].replace("2026-01-05", "2026-01-04")
    one.write_text("".join([*lines[:2], back, "nonsense\n", *lines[5:]]))
    shutil.copy(one, day / "copy-b-1.jsonl")
    return folder


def messages(spark: SparkSession, out: Path) -> list[tuple[str, str, str | None]]:
    """The rows of `deliveries`: date, msg_id, outcome."""
    frame = spark_frame(spark, snapshot(str(out))["deliveries"])
    frame = frame.select(frame["date"].cast("string"), "msg_id", "outcome")
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, made: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Counter[str]]:
    """The result of an audit of them."""
    out = tmp_path_factory.mktemp("audit")
    audit(spark, [str(made)], str(out), limits=LIMITS)
    return at(rows(spark, out), made)


def at(found: dict[str, Counter[str]], folder: Path) -> dict[str, Counter[str]]:
    """With the places of problems as paths within the folder."""
    places = {row.replace(f"{folder}/", ""): n for row, n in found["problems"].items()}
    return {**found, "problems": Counter(places)}


class Killed(Exception):
    """Stands for the end of a process."""


def fails(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, after: int
) -> None:
    """Make a function fail after this number of calls."""
    real: Callable[..., Any] = getattr(where, name)
    calls = 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, failing)


@pytest.mark.long
def test_a_stream_that_is_killed_all_the_time_comes_to_what_an_audit_does(
    spark: SparkSession,
    made: Path,
    expected: dict[str, Counter[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the batches and within each: no row twice, and none that is wrong."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    paths = journals_of(made)
    random.Random(1).shuffle(paths)
    (journals / "date=2026-01-05").mkdir(parents=True)
    # Of each batch.
    kills: list[list[tuple[object, str, int]]] = [
        [(FollowStorage, "save", 0), (follow_results, "draw", 0)],
        [(step_tables, "swap", 2)],
    ]
    for number, each in enumerate(kills):
        some(made, journals, paths[number :: len(kills)])
        for kill in each:
            with monkeypatch.context() as patch:
                fails(patch, *kill)
                with pytest.raises(Killed):
                    follower(spark, journals, out).look()
        look = follower(spark, journals, out).look()
        assert look.batch == number
    assert at(rows(spark, out), journals) == expected
    accused = sum(look.summary.anomalies.values())
    assert accused == sum(expected["anomalies"].values()) > 0
    assert (out / "report.html").exists()


DAY_S = 86_400.0
WHOLE = ("accepted", "offered", "received", "released", "delivered")


@pytest.mark.long
def test_what_comes_for_a_closed_day_is_counted_and_changes_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """But a message that took ten days has one row, with its outcome."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    write_journal(journals, "first", Lines().sent(*WHOLE, msg_id="over"))
    write_journal(
        journals, "open", Lines("y").sent("accepted", "offered", msg_id="open")
    )
    # The clock of one is far ahead: that closes no day.
    ahead = 30_000 * DAY_S
    write_journal(journals, "ahead", Lines("z").sent(*WHOLE, msg_id="ahead", at=ahead))
    follower(spark, journals, out).look()
    write_journal(
        journals, "second", Lines("u").sent(*WHOLE, msg_id="new", at=10 * DAY_S)
    )
    # One node alone closes no day of others.
    write_journal(
        journals, "third", Lines("s").sent(*WHOLE, msg_id="new too", at=10 * DAY_S)
    )
    write_journal(journals, "more", Lines("t").sent(*WHOLE, msg_id="more"))
    follower(spark, journals, out).look()
    before = messages(spark, out)
    assert before == [
        ("2026-01-05", "more", "delivered"),
        ("2026-01-05", "open", None),
        ("2026-01-05", "over", "delivered"),
        ("2026-01-15", "new", "delivered"),
        ("2026-01-15", "new too", "delivered"),
        (f"{NOON + timedelta(seconds=ahead):%Y-%m-%d}", "ahead", "delivered"),
    ]
    # Of two looks, and joined when it was closed.
    closed = files(snapshot(str(out))["deliveries"], NOON.date(), NOON.date())
    assert closed["num_records"].to_pylist() == [3]
    late = Lines("v").sent("accepted", "delivered", msg_id="late", at=DAY_S)
    write_journal(journals, "late", late)
    end = Lines("y").sent("delivered", msg_id="open", at=10 * DAY_S, boot="two")
    write_journal(journals, "end", end)
    in_time = Lines("w").sent(*WHOLE, msg_id="in time", at=4 * DAY_S)
    write_journal(journals, "in-time", in_time)
    look = follower(spark, journals, out).look()
    # The one that was open is closed now, in its row of ten days ago.
    assert messages(spark, out) == sorted(
        [
            before[0],
            ("2026-01-05", "open", "delivered"),
            *before[2:],
            ("2026-01-09", "in time", "delivered"),
        ]
    )
    frame = spark_frame(spark, snapshot(str(out))["problems"])
    frame = frame.select("kind", "place", "count")
    assert sorted(tuple(row) for row in frame.collect()) == [
        (LATE_LINE, "a@v/1 boot of a@v/1", 2),
    ]
    assert look.summary.problems == {LATE_LINE: 2}
    assert str(look.summary.first) == "2026-01-08"


@pytest.mark.long
def test_contradicting_counts_are_a_problem_whenever_they_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two counts of a window may come in different looks; each has one row."""
    journals, out, whole = (tmp_path / name for name in ("journals", "out", "whole"))
    counts = Lines()
    for window, sent in enumerate((3, 4, 5)):
        since = f"2026-01-05T12:{5 * window:02}:00.000000Z"
        route = {"level": "assured", "source": "a@x", "to": "b@x"}
        given = {"since": since, "sent": sent, "received": 0, **route}
        counts.line("a@x/1", "journal", "counted", 300 * (window + 1), **given)
    for name, some in (("first", (0, 1)), ("second", (1,)), ("third", (0, 2))):
        came = Lines()
        came.rows = [counts.rows[number] for number in some]
        write_journal(journals, name, came)
        for row in came.rows:
            row["sent"] += 1
        follower(spark, journals, out).look()
    audit(spark, [str(journals)], str(whole), limits=LIMITS)
    names = ("windows_hourly", "problems")
    found = rows(spark, out, names)
    assert found == rows(spark, whole, names)
    (problem,) = found["problems"].elements()
    assert "contradicting-counts" in problem
    assert "a@x boot of a@x/1 2026-01-05 12:00" in problem
    assert "count=2" in problem


@pytest.mark.long
def test_what_is_stuck_shows_up_though_nothing_new_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """When nothing happens, no line is written."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    journals.mkdir()
    now = NOON + timedelta(minutes=1)
    one = Follower(
        spark, [str(journals)], str(out), limits=lambda: Limits(now=now), lateness=WEEK
    )
    look = one.look()
    assert (look.batch, look.summary.lines, look.summary.clean) == (-1, 0, True)
    # The first day comes now; what is being written is not read.
    # Its clock is ahead: its journal has gone on for longer than the audit knows.
    first = Lines().sent("accepted", "offered").sent("accepted", at=4000, msg_id="m3")
    write_journal(journals, "one", first.sent("not-delivered", at=4001, msg_id="m3"))
    write_journal(journals, ".two", Lines().sent("accepted", "offered", msg_id="m2"))
    look = one.look()
    assert (look.batch, look.new, look.summary.clean) == (0, True, True)
    assert look.summary.rows["deliveries"] == 2
    assert not one.look().new
    now += timedelta(hours=2)
    look = one.look()
    assert (look.batch, look.new, look.summary.anomalies) == (0, True, {"stuck": 1})
    assert "1 anomaly: 1 stuck" in (out / "report.html").read_text()


def test_one_folder_is_for_one_process_and_the_same_journals(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise files would be taken in twice, or never."""
    out = str(tmp_path)
    for _ in range(2):
        check_options(spark, out, ["/a", "/b"], WEEK)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CannotFollow, match="begun with other journals, /a, /b: give"):
        check_options(spark, out, ["/a"], WEEK)
    with pytest.raises(CannotFollow, match="begun with --late 7: give the same"):
        check_options(spark, out, ["/a", "/b"], timedelta(days=3))
    assert sorted(tmp_path.rglob("*")) == before
    match = "another audit writes into it"
    with alone(out), pytest.raises(CannotWrite, match=match), alone(f"file://{out}"):
        pass
    with alone(out):
        pass


def test_what_is_kept_is_not_taken_for_complete_when_it_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A plan alone tells which files were read, but not their content."""
    staging = FollowStorage(spark, str(tmp_path / FOLDER))
    assert staging.marks() == Marks()
    staging.save_plan([NewFile("/a-b-1.jsonl", "2026-01-05", None, 9)], 0)
    assert staging.marks() == Marks()
    staging.save_plan([NewFile("/a-b-2.jsonl", "2026-01-05", None, 9)], 1)
    with pytest.raises(Incomplete, match="its marks are not there"):
        staging.marks()


def plain_runs(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Node, first and last line, and jumps of each run, without Spark."""
    found: list[tuple[Any, ...]] = []
    lines = {(row["node"], row["seq"]): row["at"] for row in rows}
    for (node, seq), at in sorted(lines.items()):
        before = lines.get((node, seq - 1))
        if before is None:
            found.append((node, seq, seq, 0))
        else:
            _, first, _, jumps = found.pop()
            jumped = before - at > timedelta(seconds=60)
            found.append((node, first, seq, jumps + jumped))
    return found


def test_runs_are_those_of_all_lines(spark: SparkSession) -> None:
    """However they are split, in whatever order they come, given twice, or too late."""
    lines = Lines()
    for at in (0, 10, 3620, 20, 30, 25, 4000, 3, 4, 5):
        for node in ("a@x/1", "b@x/1"):
            lines.line(node, "sender", "offered", at if node < "b" else at % 40)
    chance = random.Random(5)
    rows = [row for row in lines.rows if chance.random() < 0.8]
    rows += chance.sample(rows, 3)
    chance.shuffle(rows)
    known = spark.createDataFrame([], boot_runs.RUN)
    for start in range(0, len(rows), 5):
        part = Lines()
        part.rows = rows[start : start + 5]
        late = F.when(F.lit(start == 10), boot_runs.LATE).otherwise(boot_runs.TOLD)
        pieces = boot_runs.runs(part.frame(spark), late)
        # Else the plan grows with each part.
        known = boot_runs.merged(
            known.unionByName(pieces), tolerance_s=60
        ).localCheckpoint()
    told = known.where(F.col("kind") == boot_runs.TOLD)
    for found, of in (
        (told, [*rows[:10], *rows[15:]]),
        (boot_runs.together(known, tolerance_s=60), rows),
    ):
        each = found.select("node", "first_seq", "last_seq", "jumps").collect()
        assert sorted(tuple(row) for row in each) == plain_runs(of)
    assert sum(run[3] for run in plain_runs(rows)) > 0
