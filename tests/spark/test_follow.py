"""What follows journals comes to what an audit of them comes to, whatever happens."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from qos.journal.schema import parse_line, render_line, time_of, time_text
from qos.pipeline import follow as following
from qos.pipeline import store
from qos.pipeline.driver import TABLES, audit
from qos.pipeline.follow import Follower
from qos.pipeline.staging import Staging
from qos.pipeline.synth import Plan, synthesise
from qos.pipeline.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
WEEK = timedelta(days=7)


def follower(
    spark: SparkSession, journals: Path, out: Path, *, late: timedelta = WEEK
) -> Follower:
    """A new process could know no more."""
    return Follower(spark, [str(journals)], str(out), limits=lambda: LIMITS, late=late)


def rows(spark: SparkSession, out: Path) -> dict[str, Counter[str]]:
    """All that is in the tables."""
    found = {}
    for name in (*TABLES, "problems"):
        files = [str(path) for path in (out / name).rglob("*.parquet")]
        found[name] = Counter[str]()
        if files:
            frame = spark.read.option("basePath", str(out / name)).parquet(*files)
            names = sorted(frame.columns)
            found[name] += Counter(map(str, frame.select(*names).collect()))
    return found


def journals_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("date=*/*"))


def in_one_hour(folder: Path) -> None:
    """Let each day have one hour only: each is files of their own in the tables."""
    for path in folder.glob("date=*/*.jsonl"):
        lines = []
        for line in path.read_text().splitlines():
            fields = parse_line(line)
            moment = time_of(str(fields["at"]))
            day = moment // 86400 * 86400
            at = time_text(day + (moment - day) / 24)
            lines.append(render_line({"v": 1, **fields, "at": at}))
        path.write_text("".join(f"{line}\n" for line in lines))


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
    plan = Plan(devices=9, messages=150, lost=2, duplicated=2, stuck=2, days=2)
    synthesise(plan, folder, processes=1)
    in_one_hour(folder)
    day = folder / "date=2026-01-05"
    (day / "notes.txt").write_text("foreign")
    (day / "node-b-1.jsonl").write_text("")
    one = min(day.glob("dev*"))
    lines = one.read_text().splitlines(keepends=True)
    back = lines[2].replace("2026-01-05", "2026-01-04")
    one.write_text("".join([*lines[:2], back, "nonsense\n", *lines[5:]]))
    shutil.copy(one, day / "copy-b-1.jsonl")
    return folder


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, made: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Counter[str]]:
    """What an audit makes of them."""
    out = tmp_path_factory.mktemp("audit")
    audit(spark, [str(made)], str(out), limits=LIMITS)
    return at(rows(spark, out), made)


def at(found: dict[str, Counter[str]], folder: Path) -> dict[str, Counter[str]]:
    """With the places of problems as they are within the folder."""
    places = {row.replace(f"{folder}/", ""): n for row, n in found["problems"].items()}
    return {**found, "problems": Counter(places)}


class Killed(Exception):
    """Stands for the end of a process."""


def fails(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, after: int
) -> None:
    """Let a function fail when it has been called so often."""
    real: Callable[..., Any] = getattr(where, name)
    calls = 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, failing)


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
    kills = [
        (Staging, "stage", 0),
        (Staging, "save", 0),
        (store, "replace_days", 2),
        (following, "draw", 0),
    ]
    for number, kill in enumerate(kills):
        some(made, journals, paths[number :: len(kills)])
        with monkeypatch.context() as patch:
            fails(patch, *kill)
            with pytest.raises(Killed):
                follower(spark, journals, out).look()
        look = follower(spark, journals, out).look()
        assert look.batch == number
    assert at(rows(spark, out), journals) == expected
    assert look.summary.anomalies["lost"] >= 2
    assert (out / "report.html").exists()
