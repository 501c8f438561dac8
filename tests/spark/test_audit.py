"""A whole audit: what was put into journals is what comes out, and nothing else."""

import contextlib
import io
import json
import random
import shutil
import tempfile
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from browser import look_at
from qos.cli import main
from qos.journal.schema import parse_line
from qos.pipeline import read
from qos.pipeline.driver import TABLES, audit
from qos.pipeline.synth import EXPECTED, Plan, synthesise
from qos.pipeline.tables import Limits, anomalies, coverage, deliveries

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(180),
]

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))


PLANS = st.builds(
    Plan,
    devices=st.integers(1, 120),
    messages=st.integers(30, 300),
    lost=st.integers(0, 9),
    duplicated=st.integers(0, 9),
    stuck=st.integers(0, 9),
    seed=st.integers(0, 2**32),
    days=st.integers(1, 2),
)


def shuffled(folder: Path, chance: random.Random) -> None:
    """Put the lines into other files, in another order, and some of them twice."""
    paths = list(folder.glob("date=*/*.jsonl"))
    lines = [line for path in paths for line in path.read_text().splitlines()]
    lines += chance.sample(lines, len(lines) // 4)
    chance.shuffle(lines)
    for path in paths:
        path.unlink()
    number = 0
    while lines:
        number += 1
        size = chance.choice((1, 10, 500))
        day = folder / f"date=2026-01-0{chance.randint(5, 7)}"
        day.mkdir(exist_ok=True)
        part = "".join(f"{line}\n" for line in lines[:size])
        (day / f"node-b-{number}.jsonl").write_text(part)
        if chance.random() < 0.1:
            (day / f"copy-b-{number}.jsonl").write_text(part)
        del lines[:size]


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=PLANS, seed=st.integers(0, 2**32))
@example(plan=Plan(devices=50, messages=500, lost=9, duplicated=9, stuck=9), seed=1)
def test_exactly_the_anomalies_are_found_however_the_lines_lie(
    plan: Plan, seed: int, spark: SparkSession
) -> None:
    """Shuffled over files, and given twice: it does not matter which line is where."""
    with tempfile.TemporaryDirectory() as name:
        made = synthesise(plan, Path(name), processes=1)
        shuffled(Path(name), random.Random(seed))
        checked = read.checked_lines(read.read_lines(spark, [name]))
        events = read.events_of(checked)
        rows = anomalies(deliveries(events), coverage(events), LIMITS).collect()
    found = {
        (r["kind"], r["level"], r["sender"], r["receiver"], r["msg_id"]) for r in rows
    }
    assert found == {
        (each.kind, each.level, each.sender, each.receiver, each.msg_id)
        for each in made.anomalies
    }
    assert len(rows) == len(made.anomalies)


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journals")
    plan = Plan(
        devices=20, messages=700, lost=2, duplicated=1, stuck=1, days=2, hours=13
    )
    synthesise(plan, folder, processes=1)
    (folder / "date=2026-01-05" / "notes.txt").write_text("foreign")
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def summary(spark: SparkSession, journals: Path, out: Path) -> dict[str, Any]:
    """What the command prints, with the session that is there already."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["audit", str(journals), "--out", str(out), "--json"]) == 1
    return dict(json.loads(printed.getvalue()))


def test_an_audit_counts_what_there_is(summary: dict[str, Any], journals: Path) -> None:
    """The numbers that the command prints."""
    lines = [
        parse_line(line)
        for path in journals.glob("date=*/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert summary["lines"] == summary["events"] == len(lines)
    assert (summary["first"], summary["last"]) == ("2026-01-05", "2026-01-06")
    assert summary["anomalies"] == {"lost": 2, "duplicated": 1, "stuck": 1}
    assert summary["problems"] == {"foreign-file": 1}
    ends = Counter(
        str(fields["event"])
        for fields in lines
        if fields["role"] == "sender"
        and fields["event"] in {"delivered", "not-delivered", "withdrawn"}
    )
    assert summary["outcomes"] == {**ends, "open": 1}
    assert sum(summary["outcomes"].values()) == 700
    published = [fields for fields in lines if fields["event"] == "published"]
    assert summary["rows"]["queue_items"] == len(published)


def test_an_audit_writes_each_table_and_a_report(
    summary: dict[str, Any], out: Path, spark: SparkSession
) -> None:
    """By date and hour, so that whoever reads them reads little."""
    for name in TABLES:
        table = spark.read.parquet(f"{out}/{name}")
        assert table.count() == summary["rows"][name]
        assert {"date", "hour"} <= set(table.columns)
        assert list((out / name).glob("date=2026-01-0?/hour=*/*.parquet"))
    page = (out / "report.html").read_text()
    assert "4 anomalies: 2 lost, 1 duplicated, 1 stuck." in page
    assert {path.name for path in out.iterdir()} == {*TABLES, "problems", "report.html"}


def test_the_report_is_drawn_in_a_browser_without_a_network(
    summary: dict[str, Any], journals: Path, out: Path, tmp_path: Path
) -> None:
    """As a customer opens it: figures, evidence, and nothing that went wrong."""
    seen = look_at(out / "report.html", tmp_path)
    assert seen.console == []
    assert seen.requests == set()
    figures = ["messages per hour", "95 % within (seconds)", "95 % wait (seconds)"]
    assert seen.texts("ytitle") == figures
    assert seen.html.count('class="main-svg"') >= len(figures)
    # Bars, and the points of lines, that were made by its script only.
    assert seen.html.count('class="point"') > 24
    expected = json.loads((journals / EXPECTED).read_text())["anomalies"]
    evidence = seen.texts("evidence")
    assert len(evidence) == sum(summary["anomalies"].values()) == len(expected)
    for anomaly in expected:
        assert any(anomaly["msg_id"] in each for each in evidence)


def test_a_browser_would_tell_of_a_page_that_needs_more(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    page = tmp_path / "page.html"
    page.write_text(
        "<img src='http://127.0.0.1:9/pixel.png'><script>no_such_thing()</script>"
        "<p class='a b'>one <b>text</b></p>"
    )
    seen = look_at(page, tmp_path)
    (said,) = seen.console
    assert "no_such_thing is not defined" in said
    assert seen.requests == {"http://127.0.0.1:9/pixel.png"}
    assert seen.texts("b") == ["one text"]


def test_an_audit_of_one_day_replaces_that_day(
    summary: dict[str, Any], journals: Path, out: Path, spark: SparkSession
) -> None:
    """And makes the same of it as the audit of all days."""
    before = {name: sorted(files(out / name)) for name in TABLES}
    rows = (
        spark.read.parquet(f"{out}/deliveries").orderBy("begun_at", "msg_id").collect()
    )
    day = date(2026, 1, 5)
    again = audit(spark, [str(journals)], str(out), limits=LIMITS, first=day, last=day)
    assert 0 < again.rows["deliveries"] < summary["rows"]["deliveries"]
    after = spark.read.parquet(f"{out}/deliveries").orderBy("begun_at", "msg_id")
    assert after.collect() == rows
    for name, names in before.items():
        kept = [name for name in names if "date=2026-01-05" not in name]
        assert set(kept) <= set(files(out / name))
        assert not set(names) - set(kept) & set(files(out / name))


def files(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*.parquet")]


def test_an_audit_that_fails_leaves_nothing_behind(
    spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """What it keeps meanwhile is as large as the journals; it may not pile up."""
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "of one that was killed").write_text("")

    def stop(step: str) -> None:
        if step == "writing deliveries":
            assert list((tmp_path / "staged").rglob("*.parquet"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(spark, [str(journals)], str(tmp_path), limits=LIMITS, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["problems"]


def test_an_audit_of_no_line_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    """A fleet that has done nothing yet."""
    (tmp_path / "journal" / "date=2026-01-05").mkdir(parents=True)
    found = audit(
        spark, [str(tmp_path / "journal")], str(tmp_path / "out"), limits=LIMITS
    )
    assert found.clean
    assert (found.lines, found.first, found.rows["deliveries"]) == (0, None, 0)
    assert "No anomaly" in (tmp_path / "out" / "report.html").read_text()


def test_lines_that_are_there_twice_make_no_other_tables(
    summary: dict[str, Any], journals: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """They are read in another way then: it costs more, and comes to the same."""
    shutil.copytree(journals, tmp_path / "journal")
    for path in list((tmp_path / "journal").glob("date=*/hub-*.jsonl")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))
    steps: list[str] = []
    found = audit(
        spark,
        [str(tmp_path / "journal")],
        str(tmp_path / "out"),
        limits=LIMITS,
        progress=steps.append,
    )
    assert any("there twice" in step for step in steps)
    assert found.lines > summary["lines"]
    assert found.rows == summary["rows"]
    assert (found.outcomes, found.anomalies) == (
        summary["outcomes"],
        summary["anomalies"],
    )


def test_files_that_are_too_long_to_be_in_memory_make_no_other_tables(
    summary: dict[str, Any],
    journals: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not ours, perhaps, but what is in them may be."""
    sizes = [path.stat().st_size for path in journals.glob("date=*/*.jsonl")]
    monkeypatch.setattr(read, "_WHOLE_BYTES_MAX", sorted(sizes)[len(sizes) // 2])
    found = audit(spark, [str(journals)], str(tmp_path), limits=LIMITS)
    assert (found.lines, found.rows) == (summary["lines"], summary["rows"])
    assert found.anomalies == summary["anomalies"]
