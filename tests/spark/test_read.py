"""The content of a journal's folder is either an event or a reported problem."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from frames import NOON, Lines, runs_of
from qos.audit import boot_runs, read
from qos.audit.lines import checked
from qos.audit.new_files import file_problems, files_since
from qos.audit.read import Problem
from qos.audit.schema import CHECKED, EVENT
from qos.journal.schema import (
    LINE_BYTES_MAX,
    BadLine,
    NewerSchema,
    parse_line,
    render_line,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

GOOD: Mapping[str, str | int] = {
    "v": 1,
    "at": "2026-01-05T12:00:00.000001Z",
    "boot": "b1",
    "seq": 1,
    "node": "a@x/1",
    "role": "sender",
    "event": "accepted",
    "level": "assured",
    "msg_id": "m",
    "from": "a@x/1",
    "to": "b@x/1",
    "attempt": 2,
    "bytes": 3,
}


def changed(**fields: object) -> str:
    """The good line with other fields; None: without it."""
    line = {**GOOD, **{name.rstrip("_"): value for name, value in fields.items()}}
    return json.dumps({name: v for name, v in line.items() if v is not None})


GOOD_LINE = render_line(GOOD)

COUNTED = render_line(
    {
        **{
            name: GOOD[name]
            for name in ("at", "boot", "seq", "node", "level", "from", "to")
        }
    }
    | {"v": 2, "role": "journal", "event": "counted"}
    | {"since": "2026-01-05T12:05:00.000000Z", "sent": 3, "received": 4}
)

LINES = [
    GOOD_LINE,
    changed(new_field={"a": [1, "}{", None]}),
    changed(msg_id='"}{"v":9,"to":5', condition="}"),
    changed(msg_id='é \ud83d\ude00 \\ " \n \x00'),
    changed(level=None, msg_id=None, from_=None),
    changed(v=2),
    changed(bytes=None),
    changed(v=2, bytes=None),
    changed(to=None),
    changed(event="offered"),
    changed(event="offered", attempt=None),
    changed(role="receiver", event="refused", condition="why", level=None, from_=None),
    changed(role="receiver", event="refused"),
    COUNTED,
    changed(v=2, role="journal", event="opened"),
    COUNTED.replace('"received":4', '"received":-4'),
    COUNTED.replace(',"received":4', ""),
    COUNTED.replace("12:05:00.000000Z", "12:05:00Z"),
    COUNTED.replace("12:05:00.000000Z", "12:65:00.000000Z"),
    changed(condition=""),
    f"  {GOOD_LINE}  ",
    changed(bytes=2**63 - 1),
    "",
    "null",
    "[]",
    "{}",
    "no json",
    GOOD_LINE[:50],
    GOOD_LINE[:-1],
    GOOD_LINE[1:],
    GOOD_LINE + GOOD_LINE,
    changed(v=3),
    changed(v=3, role="new", at="then", bytes="x"),
    changed(v=0),
    changed(v=-1),
    changed(v="1"),
    changed(v=1.0),
    changed(v=True),
    changed(v=None),
    changed(at="2026-01-05T12:00:00Z"),
    changed(at="2026-01-05 12:00:00.000001"),
    changed(at="2026-13-05T12:00:00.000001Z"),
    changed(at="2026-02-30T12:00:00.000001Z"),
    changed(at=1767614400),
    changed(seq=None),
    changed(seq="1"),
    changed(seq=-1),
    changed(seq=1.5),
    changed(seq=2**63),
    changed(node=None),
    changed(node=5),
    changed(role="writer"),
    changed(event="held"),
    changed(event="flown"),
    changed(to=5),
    changed(to={"v": 1}),
    changed(to=["b@x"]),
    changed(to=True),
    GOOD_LINE.replace('"b@x/1"', "null"),
    GOOD_LINE.replace('"attempt":2', '"attempt":null'),
    changed(bytes=-3),
    changed(bytes="3"),
    changed(bytes=2**63),
    changed(condition="x" * (LINE_BYTES_MAX - 400)),
    # Each takes a frame of the stack in a pattern that is not careful.
    changed(condition='"' * (LINE_BYTES_MAX // 2 - 400)),
    changed(condition="x" * LINE_BYTES_MAX),
    "x" * 2**20,
]


def meaning(line: str) -> str:
    """The result of `parse_line`."""
    try:
        parse_line(line)
    except NewerSchema:
        return "newer"
    except BadLine:
        return "bad"
    return "event"


@pytest.mark.parametrize("alone", [False, True])
def test_a_line_means_here_what_it_means_to_the_journal(
    alone: bool, spark: SparkSession
) -> None:
    """The writer and both readers have one schema, whatever pyarrow accepts as JSON.

    A good file is checked as a whole; so each line is checked alone, too.
    """
    files = [f"file {n if alone else 1}" for n in range(len(LINES))]
    frame = spark.createDataFrame(
        list(zip(files, LINES, strict=True)), "file string, value string"
    )
    # A foreign word is a good line, of somebody who may not say it.
    names = {None: "event", "newer-schema": "newer", "foreign-word": "event"}
    rows = read.checked_lines(frame.coalesce(1)).collect()
    found = [names.get(row["problem"], "bad") for row in rows]
    wrong = [line[:300] for n, line in enumerate(LINES) if found[n] != meaning(line)]
    assert wrong == []
    assert {row["file"] for row in rows if row["problem"]} <= set(files)


def test_files_that_differ_by_a_byte_too_much_are_read_line_by_line() -> None:
    """A hidden null, or two objects in a line, is found by the length."""
    good = f"{GOOD_LINE}\n".encode() * 3
    assert problems_in(good) == [None] * 3
    hidden = changed(to=None)[:-1].replace(" ", "") + ',"to":null}'
    assert problems_in(good + f"{hidden}\n".encode()) == [*[None] * 3, "bad-line"]
    both = f"{GOOD_LINE}{GOOD_LINE}\n\n".encode()
    assert problems_in(both) == ["bad-line", "bad-line"]
    assert problems_in(good[:-1]) == [None] * 3
    assert problems_in(good + b'{"v":1,"at"') == [*[None] * 3, "torn-line"]
    assert problems_in(good.replace(b"2026", b"0000")) == ["bad-line"] * 3
    assert problems_in(good.replace(b'"m"', b'"\xff"')) == ["bad-line"] * 3


def problems_in(content: bytes) -> list[str | None]:
    """Of each line of a file."""
    return list(checked("file", content)["problem"].to_pylist())


def test_an_event_has_all_that_the_line_says(spark: SparkSession) -> None:
    """Column by column; `from` is a word of SQL, so it has another name."""
    odd = changed(msg_id='é \ud83d\ude00 \\ " \n')
    frame = spark.createDataFrame([("f", odd)], "file string, value string")
    (row,) = read.events_of(read.checked_lines(frame)).collect()
    expected = dict(parse_line(odd))
    expected.pop("v")
    expected["source"] = expected.pop("from")
    found = {name: value for name, value in row.asDict().items() if value is not None}
    at = found.pop("at")
    assert at.isoformat() + "Z" == expected.pop("at")
    assert found == expected
    assert set(row.asDict()) == set(EVENT.names)


def read_checked(
    spark: SparkSession,
    folder: str,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """All that can be read."""
    files = files_since(spark, [folder], first, last=last)
    sizes = {file.path: file.size for file in files if file.problem is None}
    if not sizes:
        return spark.createDataFrame([], CHECKED)
    whole, rest = read.read_these(spark, sizes)
    checked = read.checked_files(whole)
    return checked if rest is None else checked.unionByName(rest)


def unread(spark: SparkSession, folder: Path) -> DataFrame:
    """The problems of files."""
    return file_problems(spark, files_since(spark, [str(folder)], None))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with every kind of problem, in a folder with an odd name."""
    folder = tmp_path / "journal {of} [all], 50%"
    day = folder / "date=2026-01-05"
    day.mkdir(parents=True)
    second = GOOD_LINE.replace('"seq":1', '"seq":2')
    (day / "a@x%2F1-b1-1.jsonl").write_text(
        f"{GOOD_LINE}\n{second}\n{changed(v=7)}\nnonsense\n\n{'x' * 2**20}\n{GOOD_LINE[:60]}"
    )
    (day / "a@x%2F1-b1-2.jsonl").write_text("")
    (day / ".a@x%2F1-b1-3.jsonl").write_text(f"{GOOD_LINE}\n")
    (day / "notes.txt").write_text(f"{GOOD_LINE}\n")
    (day / "core").write_bytes(bytes(range(256)) * 100)
    (folder / "date=2026-01-07").mkdir()
    late = GOOD_LINE.replace("01-05", "01-07").replace("b1", "b2")
    (folder / "date=2026-01-07" / "a@x%2F1-b2-1.jsonl").write_text(f"{late}\n")
    (folder / "expected.json").write_text("{}")
    return folder


def test_each_problem_is_counted_at_its_place(
    journal: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is fatal, and none is silently left out."""
    checked = read_checked(spark, str(journal))
    assert read.events_of(checked).count() == 3
    # As if from elsewhere: files too large to be read as a whole are read by lines.
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(read, "local_path", lambda _folder: None)
        elsewhere.setattr(read, "_WHOLE_BYTES_MAX", len(GOOD_LINE) + 1)
        by_line = read_checked(spark, str(journal))
        # The same file may be file:/x here and file:///x there.
        here, there = (each.drop("file").collect() for each in (checked, by_line))
        assert sorted(map(str, here)) == sorted(map(str, there))
        # Java has only a part of a long line in its memory, and leaves out the rest.
        elsewhere.setattr(read, "_JAVA_LINE_BYTES_MAX", 2**19)
        by_line = read_checked(spark, str(journal))
        long = by_line.where("problem = 'long-line'").collect()
        assert {row["file"].rpartition("/")[2] for row in long} == {
            "a@x%252F1-b1-1.jsonl"
        }
        assert any(row["example"].endswith("lines that are too long") for row in long)
        assert max(len(row["example"]) for row in long) <= 200
        assert read.events_of(by_line).count() == 3
    problems = read.line_problems(checked).unionByName(unread(spark, journal))
    found = {
        (row["kind"], row["place"].removeprefix(f"{journal}/date=2026-01-05/")): row[
            "count"
        ]
        for row in problems.collect()
    }
    assert found == {
        ("newer-schema", "a@x%2F1-b1-1.jsonl"): 1,
        ("bad-line", "a@x%2F1-b1-1.jsonl"): 2,
        ("long-line", "a@x%2F1-b1-1.jsonl"): 1,
        ("torn-line", "a@x%2F1-b1-1.jsonl"): 1,
        ("empty-file", "a@x%2F1-b1-2.jsonl"): 1,
        ("foreign-file", "notes.txt"): 1,
        ("foreign-file", "core"): 1,
        ("open-file", ".a@x%2F1-b1-3.jsonl"): 1,
    }


def test_only_the_folders_of_the_days_are_read(
    journal: Path, spark: SparkSession
) -> None:
    """A fleet has years of journals."""
    for first, last, events in (("06", None, 1), (None, "06", 2), ("06", "06", 0)):
        days = {
            name: NOON.date().replace(day=int(day)) if day else None
            for name, day in (("first", first), ("last", last))
        }
        checked = read_checked(spark, str(journal), **days)
        assert read.events_of(checked).count() == events


def test_the_folder_of_a_day_may_be_given_itself(
    journal: Path, spark: SparkSession
) -> None:
    """By a pattern of the shell, say."""
    checked = read_checked(spark, f"{journal}/date=2026-01-07/")
    assert read.events_of(checked).count() == 1


def test_a_clock_that_jumps_back_is_reported_with_its_place(
    spark: SparkSession, lines: Lines
) -> None:
    """An hour back, and then on; a correction by seconds does not count."""
    for at in (0, 10, 3620, 20, 30, 25, 4000):
        lines.line("a@x/1", "sender", "offered", at)
    for at in (0, 5, 10, 7, 4000):
        lines.line("b@x/1", "sender", "offered", at)
    lines.rows *= 2
    runs = runs_of(lines, spark)
    (row,) = boot_runs.clocks_back(runs, tolerance_s=60).collect()
    assert row.asDict() == {
        "kind": Problem.CLOCK_BACK.value,
        "place": "a@x/1 boot of a@x/1",
        "count": 1,
        "example": "line 4: from 2026-01-05 13:00:20 to 2026-01-05 12:00:20",
    }


def test_lines_that_are_missing_are_counted(spark: SparkSession, lines: Lines) -> None:
    """A file that was not copied looks like lost messages."""
    for at in range(10):
        lines.line("a@x/1", "sender", "offered", at)
        lines.line("b@x/1", "sender", "offered", at)
    assert boot_runs.missing_lines(runs_of(lines, spark)).count() == 0
    lines.rows = [
        row for row in lines.rows if row["node"] != "a@x/1" or not 4 <= row["seq"] <= 6
    ]
    (row,) = boot_runs.missing_lines(runs_of(lines, spark)).collect()
    assert (row["kind"], row["count"]) == (Problem.MISSING_LINES.value, 3)
    assert row["place"] == "a@x/1 boot of a@x/1"
    assert row["example"] == "of the lines 1 to 10"


def test_lines_that_are_given_twice_hide_none_that_are_missing(
    spark: SparkSession, lines: Lines
) -> None:
    """The number of lines is right, but one is missing and one is there twice."""
    for at in range(200):
        lines.line("a@x/1", "sender", "offered", at)
    lines.rows = [row for row in lines.rows if row["seq"] != 70] + [lines.rows[129]]
    (problem,) = boot_runs.missing_lines(runs_of(lines, spark)).collect()
    assert (problem["count"], problem["example"]) == (1, "of the lines 1 to 200")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_name_that_begins_with_an_underscore_does_not_vanish(
    elsewhere: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A JID may; older writers have named their files by it, and Spark ignores such."""
    day = tmp_path / "date=2026-01-05"
    day.mkdir()
    for name in ("_a@x%2F1-b1-1.jsonl", "%5Fa@x%2F1-b2-1.jsonl"):
        (day / name).write_text(f"{GOOD_LINE}\n")
    (day / "_a@x%2F1-b1-2.jsonl").write_text("")
    if elsewhere:
        monkeypatch.setattr(read, "local_path", lambda _folder: None)
    events = read.events_of(read_checked(spark, str(tmp_path))).count()
    problems = unread(spark, tmp_path).collect()
    kinds = sorted((row["kind"], Path(row["place"]).name) for row in problems)
    empty = ("empty-file", "_a@x%2F1-b1-2.jsonl")
    if elsewhere:
        assert events == 1
        assert kinds == [empty, ("unread-file", "_a@x%2F1-b1-1.jsonl")]
    else:
        assert events == 2
        assert kinds == [empty]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_compressed_files_of_a_journal_are_read(
    elsewhere: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archive is a journal; and one that is too large to be read is reported."""
    day = tmp_path / "date=2026-01-05"
    day.mkdir()
    for name, how in ((".jsonl.gz", "gzip"), (".jsonl.zst", "zstd")):
        with pa.CompressedOutputStream(str(day / f"a@x-b1-1{name}"), how) as out:
            out.write(f"{GOOD_LINE}\nnonsense\n".encode() * 2)
    if elsewhere:
        monkeypatch.setattr(read, "local_path", lambda _folder: None)
    checked = read_checked(spark, str(tmp_path))
    assert read.events_of(checked).count() == 4
    assert read.line_problems(checked).count() == 2
    assert unread(spark, tmp_path).count() == 0
    monkeypatch.setattr(read, "_WHOLE_BYTES_MAX", 10)
    problems = unread(spark, tmp_path).collect()
    assert [row["kind"] for row in problems] == ["unread-file"] * 2 * elsewhere
