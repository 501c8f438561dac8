"""The folder of a day in the middle is gone: its rows stay, and what is missing is told."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import Lines, write_journal
from qos.audit.delta import CannotWrite
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

FIFTH, SIXTH, SEVENTH = (date(2026, 1, day) for day in (5, 6, 7))

#: Seconds from noon of the fifth to the midnights after it.
FIRST_NIGHT, SECOND_NIGHT = 43_200.0, 43_200.0 + 86_400.0

LIMITS = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

#: By message and item: its day, and how it has ended.
ALL = {
    "first night": (FIFTH, "delivered"),
    "sixth": (SIXTH, "delivered"),
    "second night": (SIXTH, "delivered"),
    "seventh": (SEVENTH, "delivered"),
    "item": (FIFTH, "accepted"),
}


def lines() -> Lines:
    """Messages of three days and over both midnights, and an item over all."""
    lines = Lines()
    for at, name in (
        (FIRST_NIGHT - 1, "first night"),
        (FIRST_NIGHT + 3600, "sixth"),
        (SECOND_NIGHT - 1, "second night"),
        (SECOND_NIGHT + 3600, "seventh"),
    ):
        lines.sent(*SENT, at=at, msg_id=name)
        # Its receiver has it after midnight, if it is sent before.
        lines.got(*GOT, at=at + 1.5, msg_id=name)
    of_item = {"queue": "n", "item": "item"}
    first, last = FIRST_NIGHT - 1, SECOND_NIGHT + 5
    lines.line("q@x", "queue", "published", first, source="a@x/1", bytes=3, **of_item)
    lines.line("q@x", "queue", "acquired", FIRST_NIGHT + 1, to="b@x/1", **of_item)
    lines.line("q@x", "queue", "accepted", last, source="b@x/1", **of_item)
    return lines


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """The journals of three days, each in its own folder."""
    folder = tmp_path / "journals"
    for day in (FIFTH, SIXTH, SEVENTH):
        part = Lines()
        part.rows = [row for row in lines().rows if row["at"].date() == day]
        write_journal(folder, "all", part)
    return folder


def rows(out: Path) -> dict[str, tuple[date, str | None]]:
    """By message and item: its day, and how it ended; each further row is one more."""
    tables, found = snapshot(str(out)), Counter[str]()
    entries = {}
    for name, key in (("deliveries", "msg_id"), ("queue_items", "item")):
        for row in tables[name].to_pyarrow_table().to_pylist():
            found[row[key]] += 1
            again = f" ({found[row[key]]})" if found[row[key]] > 1 else ""
            entries[f"{row[key]}{again}"] = row["date"], row["outcome"]
    return entries


def problems(out: Path) -> set[str]:
    """The kinds of problems that the audit tells."""
    table = snapshot(str(out))["problems"].to_pyarrow_table()
    return set(table["kind"].to_pylist())


def batch(
    spark: SparkSession,
    journals: Path,
    out: Path,
    first: date | None = None,
    last: date | None = None,
) -> None:
    audit(spark, [str(journals)], str(out), limits=LIMITS, first=first, last=last)


def look(
    spark: SparkSession, journals: Path, out: Path, first: date | None = None
) -> None:
    """A new process each time."""
    follower = Follower(
        spark,
        [str(journals)],
        str(out),
        limits=lambda: LIMITS,
        lateness=timedelta(days=30),
    )
    follower.look()


Way = Callable[[SparkSession, Path, Path, date | None], None]


@pytest.mark.parametrize(
    ("way", "first"),
    [(batch, None), (batch, FIFTH), (batch, SIXTH), (batch, SEVENTH), (look, None)],
    ids=["batch", "from the fifth", "from the sixth", "from the seventh", "follow"],
)
def test_a_day_that_goes_when_it_was_audited_keeps_its_rows(
    way: Way,
    first: date | None,
    spark: SparkSession,
    journals: Path,
    tmp_path: Path,
) -> None:
    """A retention, or somebody's hand: the rows of that day vanished with its folder.

    What began before it or ended after it had lost its end, or its beginning.
    """
    out = tmp_path / "out"
    way(spark, journals, out, None)
    assert rows(out) == ALL
    assert problems(out) == set()
    shutil.rmtree(journals / f"date={SIXTH}")
    way(spark, journals, out, first)
    assert rows(out) == ALL
    way(spark, journals, out, first)
    assert rows(out) == ALL


@pytest.mark.parametrize(
    ("gone", "first", "last"),
    [
        (SIXTH, date.min, FIFTH),
        (SIXTH, SIXTH, SIXTH),
        (SEVENTH, None, FIFTH),
        (SEVENTH, FIFTH, SIXTH),
        (SEVENTH, None, None),
    ],
)
def test_days_with_an_end_that_is_gone_keep_their_rows(
    gone: date,
    first: date | None,
    last: date | None,
    spark: SparkSession,
    journals: Path,
    tmp_path: Path,
) -> None:
    """What began on them may have ended on the day that is gone, as was known before."""
    out = tmp_path / "out"
    batch(spark, journals, out)
    shutil.rmtree(journals / f"date={gone}")
    with pytest.raises(CannotWrite, match=f"the rows of {gone} are there") as told:
        batch(spark, journals, out, first, last)
    assert str(told.value).startswith(f"{out}: ")
    assert rows(out) == ALL
    # What comes later is audited as ever.
    eighth = Lines()
    eighth.sent(*SENT, at=SECOND_NIGHT + 90_000, msg_id="eighth")
    eighth.got(*GOT, at=SECOND_NIGHT + 90_001.5, msg_id="eighth")
    write_journal(journals, "more", eighth)
    batch(spark, journals, out)
    assert rows(out) == ALL | {"eighth": (date(2026, 1, 8), "delivered")}


def test_a_last_day_that_is_gone_keeps_its_rows(
    spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """All days from it on are audited, and no other has rows."""
    out = tmp_path / "out"
    batch(spark, journals, out)
    shutil.rmtree(journals / f"date={SEVENTH}")
    batch(spark, journals, out, SEVENTH, date.max)
    assert rows(out) == ALL


@pytest.mark.parametrize("way", [batch, look])
def test_a_day_that_goes_before_it_is_audited_is_missed(
    way: Way, spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """What is over its midnights has one row, which says that it is not known."""
    out = tmp_path / "out"
    seventh = shutil.move(journals / f"date={SEVENTH}", tmp_path / "seventh")
    shutil.rmtree(journals / f"date={SIXTH}")
    way(spark, journals, out, None)
    shutil.move(seventh, journals / f"date={SEVENTH}")
    way(spark, journals, out, None)
    found = rows(out)
    assert not [name for name in found if name.endswith(")")]
    assert found["item"] == (FIFTH, "accepted")
    assert found["seventh"] == (SEVENTH, "delivered")
    assert "missing-lines" in problems(out)
