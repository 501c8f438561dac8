"""A whole audit finds exactly the anomalies that were put into the journals."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.synth import EXPECTED, Plan, synthesise
from browser import look_at
from frames import NOON, Lines, write_journal
from parquet import SKETCHES
from qos.audit import boot_runs, read
from qos.audit.audits import HIDDEN, STAGED, Audits
from qos.audit.batch_tables import TABLES
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.driver import audit
from qos.audit.new_files import files_since
from qos.audit.snapshot import AUDITS, NoAudit, files, snapshot, spark_frame
from qos.audit.tables import Limits, anomalies, deliveries, judged
from qos.cli import main
from qos.journal.schema import parse_line

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
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


@pytest.mark.long
@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=PLANS, seed=st.integers(0, 2**32))
@example(plan=Plan(devices=50, messages=500, lost=9, duplicated=9, stuck=9), seed=1)
def test_exactly_the_anomalies_are_found_however_the_lines_lie(
    plan: Plan, seed: int, spark: SparkSession
) -> None:
    """Shuffled over files, and given twice: the place of a line does not matter."""
    with tempfile.TemporaryDirectory() as name:
        made = synthesise(plan, Path(name), processes=1)
        shuffled(Path(name), random.Random(seed))
        sizes = {file.path: file.size for file in files_since(spark, [name], None)}
        files, _ = read.read_these(spark, sizes)
        checked = read.checked_files(files)
        events = read.events_of(checked)
        pieces = boot_runs.runs(events, F.lit(boot_runs.TOLD))
        runs = boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S)
        rows = anomalies(judged(deliveries(events), runs, LIMITS)).collect()
    found = {
        (r["kind"], r["level"], r["sender"], r["receiver"], r["msg_id"]) for r in rows
    }
    assert found == {
        (each.kind, each.level, each.sender, each.receiver, each.msg_id)
        for each in made.anomalies
    }
    assert len(rows) == len(made.anomalies)


@pytest.fixture(scope="module")
def journals(audited: Audited) -> Path:
    return audited.journals


@pytest.fixture(scope="module")
def out(audited: Audited, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: one of these tests writes into it."""
    out = tmp_path_factory.mktemp("audit") / "out"
    shutil.copytree(audited.out, out)
    return out


@pytest.fixture(scope="module")
def summary(audited: Audited) -> dict[str, Any]:
    """The output of the command."""
    return audited.summary


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
    assert summary["judged"] == summary["rows"]["deliveries"] > 700
    assert (summary["withdrawn"], summary["unproven"]) == (0, {})
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
    """By date, so that readers read little."""
    for name in TABLES:
        table = spark_frame(spark, snapshot(str(out))[name])
        assert table.count() == summary["rows"][name]
        assert {"date", "hour"} <= set(table.columns)
        there = list((out / name).glob("*/date=2026-01-0?/*.parquet"))
        assert there or summary["rows"][name] == 0
    page = (out / "report.html").read_text()
    assert "4 anomalies: 2 lost, 1 duplicated, 1 stuck." in page
    names = {path.name for path in out.iterdir() if path.name != HIDDEN}
    others = {"problems", "data_quality", AUDITS, "report.html", "metrics.prom"}
    assert names == {*TABLES, *others}
    assert not (out / STAGED).exists()
    numbers = (out / "metrics.prom").read_text()
    assert 'xmpp_qos_audit_anomalies{kind="lost"} 2\n' in numbers
    last = datetime(2026, 1, 6, tzinfo=UTC).timestamp()
    assert f"xmpp_qos_audit_last_day_timestamp_seconds {last}\n" in numbers


def test_the_report_is_drawn_in_a_browser_without_a_network(
    summary: dict[str, Any], journals: Path, out: Path, tmp_path: Path
) -> None:
    """As a customer opens it: figures, evidence, and nothing that went wrong."""
    seen = look_at(out / "report.html", tmp_path)
    assert seen.console == []
    assert seen.requests == set()
    assert seen.html.count("<figure>") == seen.html.count("<svg") >= 3
    expected = json.loads((journals / EXPECTED).read_text())["anomalies"]
    evidence = seen.texts("evidence")
    assert len(evidence) == sum(summary["anomalies"].values()) == len(expected)
    for anomaly in expected:
        assert any(anomaly["msg_id"] in each for each in evidence)


def test_a_browser_would_tell_of_a_page_that_needs_more(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
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


@pytest.mark.long
def test_an_audit_of_one_day_replaces_that_day(
    summary: dict[str, Any], journals: Path, out: Path, spark: SparkSession
) -> None:
    """And makes the same of it as the audit of all days, so that it writes nothing."""

    def rows(of: dict[str, DeltaTable]) -> dict[str, Counter[str]]:
        """Count the rows of each table, without the time of their verdict."""
        when = ("judged_at", "found_at", "history", *SKETCHES)
        frames = {name: spark_frame(spark, of[name]).drop(*when) for name in TABLES}
        return {name: Counter(map(str, frames[name].collect())) for name in TABLES}

    before = snapshot(str(out))
    expected = rows(before)
    day = date(2026, 1, 6)
    again = audit(spark, [str(journals)], str(out), limits=LIMITS, first=day, last=day)
    assert 0 < again.rows["deliveries"] < summary["rows"]["deliveries"]
    after = snapshot(str(out))
    # `is True`: pytest's comparison of two long lists takes minutes.
    assert (rows(after) == expected) is True
    # The day before is there from an earlier audit.
    assert "2026-01-06 against 2026-01-05" in (out / "report.html").read_text()
    # What has not changed is not written again.
    for name in ("refusals", "workers_hourly"):
        paths = [files(of[name])["path"].to_pylist() for of in (before, after)]
        assert sorted(paths[0]) == sorted(paths[1])


@pytest.mark.long
def test_an_audit_that_fails_leaves_nothing_behind(
    spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """Its temporary data is as large as the journals, and must not pile up."""
    (tmp_path / STAGED).mkdir(parents=True)
    (tmp_path / STAGED / "of one that was killed").write_text("")

    def stop(step: str) -> None:
        if step == "writing deliveries":
            assert list((tmp_path / STAGED).rglob("*.parquet"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(spark, [str(journals)], str(tmp_path), limits=LIMITS, progress=stop)
    of_problems = {"problems", "data_quality"}
    names = {path.name for path in tmp_path.iterdir()} - of_problems
    assert names == {HIDDEN, AUDITS}
    assert [path.name for path in (tmp_path / HIDDEN).iterdir()] == ["lock"]
    with pytest.raises(NoAudit, match="no audit was finished there"):
        snapshot(str(tmp_path))


@pytest.mark.long
def test_an_audit_of_no_line_is_neither_good_nor_bad(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fleet that has done nothing yet, or has closed no file.

    The result is not green. It is in a folder that is given as a URI of this machine,
    with a report in it, and a lock.
    """
    day = tmp_path / "journal" / "date=2026-01-05"
    day.mkdir(parents=True)
    (day / ".a@x%2F1-b1-1.jsonl").write_text("{")
    out = tmp_path / "the out"
    words = [str(tmp_path / "journal"), "--out", f"file://{out}", "--json"]
    assert main(["audit", *words]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["anomalies"] == {}
    rows = found["rows"]["deliveries"]
    assert (found["lines"], found["first"], rows) == (0, None, 0)
    assert found["problems"] == {"open-file": 1}
    why = "no message is in the lines that were read; 1 file not closed"
    assert found["nothing_judged"] == why
    assert f"Nothing to judge: {why}." in (out / "report.html").read_text()
    numbers = (out / "metrics.prom").read_text()
    assert "xmpp_qos_audit_files_not_closed 1\n" in numbers
    assert snapshot(f"file://{out}").keys() == snapshot(str(out)).keys() > {"problems"}


@pytest.mark.long
def test_lines_that_are_there_twice_make_no_other_tables(
    summary: dict[str, Any], journals: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Nor are they read again.

    The records of a node about a message are a set of lines.
    """
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
    assert sum(step.startswith("reading") for step in steps) == 1
    assert found.lines > summary["lines"]
    assert found.rows == summary["rows"]
    assert (found.outcomes, found.anomalies) == (
        summary["outcomes"],
        summary["anomalies"],
    )


@pytest.mark.long
def test_files_that_are_too_long_to_be_in_memory_make_no_other_tables(
    summary: dict[str, Any],
    journals: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may not be ours, but their lines may be."""
    sizes = [path.stat().st_size for path in journals.glob("date=*/*.jsonl")]
    monkeypatch.setattr(read, "local_path", lambda _folder: None)
    monkeypatch.setattr(read, "_WHOLE_BYTES_MAX", sorted(sizes)[len(sizes) // 2])
    found = audit(spark, [str(journals)], str(tmp_path), limits=LIMITS)
    assert (found.lines, found.rows) == (summary["lines"], summary["rows"])
    assert found.anomalies == summary["anomalies"]


class Killed(Exception):
    """Stands for the end of a process."""


def _killed(*_: object) -> None:
    raise Killed


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_message_of_several_days_is_one_row_day_by_day(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each day audited by itself, the days between not read, and an audit killed."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    lines, queue = Lines(), Lines()
    item = {"queue": "q", "item": "i"}

    def audited(day: int) -> dict[str, list[tuple[str, str | None]]]:
        write_journal(journals, f"a-{day}", lines)
        write_journal(journals, f"q-{day}", queue)
        lines.rows, queue.rows = [], []
        when = NOON + timedelta(days=day)
        limits = Limits(now=when + timedelta(hours=12))
        first = when.date()
        again = partial(audit, spark, [str(journals)], str(out), limits=limits)
        if day:
            with monkeypatch.context() as patch:
                # As late as possible: the next audit takes back its writes.
                patch.setattr(Audits, "record", _killed)
                with pytest.raises(Killed):
                    again(first=first, last=first)
        again(first=first, last=first)
        found = {}
        for name in ("deliveries", "queue_items"):
            rows = spark_frame(spark, snapshot(str(out))[name]).collect()
            found[name] = [(str(row["date"]), row["outcome"]) for row in rows]
        assert spark_frame(spark, snapshot(str(out))["anomalies"]).count() == 0
        return found

    lines.sent("accepted", "offered")
    queue.line("q@x", "queue", "published", 0, source="a@x/1", bytes=3, **item)
    assert audited(0) == {
        "deliveries": [("2026-01-05", None)],
        "queue_items": [("2026-01-05", None)],
    }
    later = 4 * 86_400.0
    lines.sent("received", "released", "delivered", at=later)
    lines.got("held", "released", "handed-over", "done", at=later)
    queue.line("q@x", "queue", "acquired", later, to="w@x/1", **item)
    queue.line("q@x", "queue", "accepted", later + 1, source="w@x/1", **item)
    assert audited(4) == {
        "deliveries": [("2026-01-05", "delivered")],
        "queue_items": [("2026-01-05", "accepted")],
    }
