"""Messages and items over midnight keep one row, whatever a retention has removed."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import Lines, write_journal
from qos.audit import store
from qos.audit.driver import audit
from qos.audit.earlier_rows import without_earlier
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot, spark_frame
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

FIFTH, SIXTH = date(2026, 1, 5), date(2026, 1, 6)

#: Seconds after noon.
MIDNIGHT = 43_200.0

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

ONE_ROW_EACH = {
    "held before": (FIFTH, "delivered", True),
    "held after": (FIFTH, "delivered", True),
    "later": (SIXTH, "delivered", True),
    "item": (FIFTH, "accepted", True),
}


def lines() -> Lines:
    """Two messages and an item over midnight, and a message of the second day."""
    lines = Lines()
    lines.sent(*SENT, at=MIDNIGHT - 1, msg_id="held before")
    lines.got(*GOT, at=MIDNIGHT - 0.5, msg_id="held before")
    lines.sent(*SENT, at=MIDNIGHT - 1, msg_id="held after")
    lines.got(*GOT, at=MIDNIGHT + 0.5, msg_id="held after")
    lines.sent(*SENT, at=MIDNIGHT + 10, msg_id="later")
    lines.got(*GOT, at=MIDNIGHT + 10.5, msg_id="later")
    of_item = {"queue": "n", "item": "item", "bytes": 3}
    lines.line("q@x", "queue", "published", MIDNIGHT - 1, source="a@x/1", **of_item)
    del of_item["bytes"]
    lines.line("q@x", "queue", "acquired", MIDNIGHT + 1, source="b@x/1", **of_item)
    lines.line("q@x", "queue", "accepted", MIDNIGHT + 2, source="b@x/1", **of_item)
    return lines


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """The journals of both days, each in its own folder."""
    folder = tmp_path / "journals"
    for day in (FIFTH, SIXTH):
        part = Lines()
        part.rows = [row for row in lines().rows if row["at"].date() == day]
        write_journal(folder, "all", part)
    return folder


def rows(spark: SparkSession, out: Path) -> dict[str, tuple[date, str | None, bool]]:
    """By message and item: its day, how it ended, and whether its beginning is known.

    Of one that has several rows there is an entry for each.
    """
    tables = snapshot(str(out))
    found = Counter[str]()
    entries = {}
    for name, key, begun in (
        ("deliveries", "msg_id", "accepted_at"),
        ("queue_items", "item", "published_at"),
    ):
        for row in spark_frame(spark, tables[name]).collect():
            found[row[key]] += 1
            again = f" ({found[row[key]]})" if found[row[key]] > 1 else ""
            is_begun = row[begun] is not None
            entries[f"{row[key]}{again}"] = row["date"], row["outcome"], is_begun
    return entries


def forget(journals: Path, day: date) -> None:
    """The retention of an operator."""
    shutil.rmtree(journals / f"date={day}")


@pytest.mark.long
@pytest.mark.parametrize("first", [None, SIXTH])
@pytest.mark.parametrize("first_audit_to", [None, FIFTH])
def test_a_message_over_midnight_keeps_one_row_when_its_first_day_is_removed(
    first: date | None,
    first_audit_to: date | None,
    spark: SparkSession,
    journals: Path,
    tmp_path: Path,
) -> None:
    """Whether it had ended when its first day was audited or not."""
    out = tmp_path / "out"
    audit(spark, [str(journals)], str(out), limits=LIMITS, last=first_audit_to)
    if first_audit_to is None:
        assert rows(spark, out) == ONE_ROW_EACH
    forget(journals, FIFTH)
    audit(spark, [str(journals)], str(out), limits=LIMITS, first=first)
    assert rows(spark, out) == ONE_ROW_EACH


@pytest.mark.long
def test_a_follower_keeps_one_row_when_the_first_day_is_removed(
    spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """Also one that starts again, and an audit beside it that had all days."""
    out = tmp_path / "out"

    def look() -> None:
        follower = Follower(
            spark,
            [str(journals)],
            str(out),
            limits=lambda: LIMITS,
            lateness=timedelta(days=7),
        )
        follower.look()

    second = journals / f"date={SIXTH}"
    aside = shutil.move(second, tmp_path / "aside")
    look()
    shutil.move(aside, second)
    forget(journals, FIFTH)
    for _ in range(2):
        look()
        assert rows(spark, out) == ONE_ROW_EACH


def test_a_row_without_its_beginning_gives_way_to_that_of_an_earlier_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One that has its beginning is of another message, and so is one of a stranger."""
    folder = str(tmp_path / "deliveries")
    columns = "date date, name string, begun_at int"
    former = spark.createDataFrame([(FIFTH, "old", 1), (FIFTH, "again", 1)], columns)
    store.replace_days(former, folder, FIFTH, FIFTH)
    now = [(SIXTH, "old", None), (SIXTH, "again", 2), (SIXTH, "stranger", None)]
    new = spark.createDataFrame(now, columns)
    left = without_earlier(new, folder, ["name"], "begun_at", SIXTH)
    assert sorted(row["name"] for row in left.collect()) == ["again", "stranger"]
    is_untouched = without_earlier(new, folder, ["name"], "begun_at", FIFTH)
    assert is_untouched is new


@pytest.mark.long
def test_an_audit_without_any_line_keeps_what_is_carried_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The journals were on a disk that was not there, for one night."""
    journals, away, out = tmp_path / "journals", tmp_path / "away", tmp_path / "out"
    ninth, of_item = date(2026, 1, 9), {"queue": "n", "item": "item"}
    for day in (FIFTH, ninth):
        part = lines()
        after_s = 4 * 86_400.0
        part.line("q@x", "queue", "acquired", after_s, source="b@x/1", **of_item)
        part.line("q@x", "queue", "accepted", after_s + 1, source="b@x/1", **of_item)
        part.rows = [row for row in part.rows if row["at"].date() == day]
        write_journal(journals, "all", part)
    audit(spark, [str(journals)], str(out), limits=LIMITS, last=FIFTH)
    before = rows(spark, out)
    assert before["item"] == (FIFTH, None, True)
    journals.rename(away)
    journals.mkdir()
    empty = audit(spark, [str(journals)], str(out), limits=LIMITS)
    assert empty.lines == 0
    assert rows(spark, out) == before
    shutil.move(away / f"date={ninth}", journals)
    audit(spark, [str(journals)], str(out), limits=LIMITS, first=ninth)
    assert rows(spark, out)["item"] == (FIFTH, "accepted", True)
    assert "item (2)" not in rows(spark, out)
