"""A second audit of the same journals writes nothing; a verdict that stays keeps its time."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fleets import NOW, Fleets, journals_in
from frames import NOON, Lines, write_journal
from qos.audit.batch_tables import TABLES
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits
from qos.audit.unchanged import are_same_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

#: The times of two audits.
ONE = datetime(2026, 2, 1, tzinfo=UTC)
TWO = ONE + timedelta(days=1)


def versions(out: Path) -> dict[str, int]:
    """The version of each table of results."""
    names = (*TABLES, "problems", "data_quality")
    return {name: DeltaTable(out / name).version() for name in names}


def judged_at(out: Path) -> dict[str, tuple[str, datetime]]:
    """By message: its verdict, and since which audit."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table().to_pylist()
    return {row["msg_id"]: (row["verdict"], row["judged_at"]) for row in rows}


@pytest.mark.long
def test_a_second_audit_of_the_same_journals_commits_no_version_of_a_result(
    spark: SparkSession, fleets: Fleets, audited_fleets: Path, tmp_path: Path
) -> None:
    """Whoever loads what is new in a table has nothing to load."""
    out = tmp_path / "out"
    shutil.copytree(audited_fleets, out)
    before = versions(out)
    limits = Limits(now=NOW + timedelta(days=1))
    audit(spark, journals_in(fleets.journals), str(out), limits=limits)
    assert versions(out) == before
    (_, last) = DeltaTable(out / "audits").to_pyarrow_table()["number"].to_pylist()
    assert last == 2


def test_a_second_audit_of_a_day_leaves_alone_what_an_earlier_day_has_left_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its rows are made again each time, since they may have ended."""
    out, journals = tmp_path / "out", tmp_path / "journals"
    lines = Lines()
    lines.sent("accepted", "offered", at=0)
    of_item = {"queue": "n", "item": "item"}
    lines.line("q@x", "queue", "published", 1, source="a@x/1", bytes=3, **of_item)
    write_journal(journals, "one", lines)
    lines = Lines().sent(*SENT, at=86_400, msg_id="next", boot="of the next day")
    write_journal(journals, "two", lines)
    limits = Limits(now=ONE)
    audit(spark, [str(journals)], str(out), limits=limits)
    before, day = versions(out), date(2026, 1, 6)
    audit(spark, [str(journals)], str(out), limits=limits, first=day, last=day)
    assert versions(out) == before
    assert judged_at(out).keys() == {"m1", "next"}


def half_of_the_journals(folder: Path) -> None:
    """The receiver's journal is not there yet; only one message is known to both."""
    sent = Lines()
    sent.line("a@x/1", "journal", "opened", -900)
    sent.sent(*SENT, msg_id="m1").sent(*SENT, msg_id="m2", at=100)
    sent.line("a@x/1", "journal", "opened", 900)
    write_journal(folder, "a", sent)
    got = Lines()
    got.line("b@x/1", "journal", "opened", -900)
    got.got(*GOT, msg_id="m1")
    write_journal(folder, "b", got)


def other_half(folder: Path) -> None:
    """It was handed over."""
    got = Lines().got(*GOT, msg_id="m2", at=100.5, boot="another")
    write_journal(folder, "c", got)


@pytest.mark.long
@pytest.mark.parametrize("follows", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_time_of_a_verdict_changes_with_the_verdict_only(
    spark: SparkSession, tmp_path: Path, follows: bool
) -> None:
    """A reader of what is new takes the rows of the last audits by this column."""
    out, journals = tmp_path / "out", tmp_path / "journals"
    half_of_the_journals(journals)
    now = ONE
    follower = Follower(
        spark,
        [str(journals)],
        str(out),
        limits=lambda: Limits(now=now),
        lateness=timedelta(days=7),
    )

    def look() -> dict[str, tuple[str, datetime]]:
        if follows:
            follower.look()
        else:
            audit(spark, [str(journals)], str(out), limits=Limits(now=now))
        return judged_at(out)

    assert look() == {"m1": ("ok", ONE), "m2": ("unproven", ONE)}
    other_half(journals)
    # A line of a message that stays what it was.
    more = Lines().sent("delivered", msg_id="m1", at=200, boot="repeated")
    write_journal(journals, "d", more)
    now = TWO
    assert look() == {"m1": ("ok", ONE), "m2": ("ok", TWO)}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ([(1, "a"), (2, None)], True),
        ([(2, None), (1, "a")], True),
        ([(1, "a")], False),
        ([(1, "a"), (2, None), (2, None)], False),
        ([(1, None), (2, "a")], False),
        ([(1, "a"), (None, "2")], False),
        ([], False),
    ],
)
def test_rows_are_the_same_in_any_order_and_a_null_is_a_value(
    spark: SparkSession, other: list[tuple[int | None, str | None]], same: bool
) -> None:
    """The hash of a row alone would take no notice of a null."""
    columns = "n int, name string, judged_at timestamp"
    rows, stored = (
        spark.createDataFrame([(*row, at) for row in each], columns)
        for each, at in (([(1, "a"), (2, None)], NOON), (other, ONE))
    )
    assert are_same_rows(rows, stored) is same
