"""Two devices with the same full JID: no journal of one speaks for the other.

The rules are in tests/spark/test_anomalies.py. Here they are followed from the files of
two folders: by one audit, by audits of single days, and by a follower.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot, spark_frame
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(300),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

DAY_S = 86_400.0
B = "b@x/1"

#: The name of a file of a device with that JID.
OF_B = "b@x%2F1"


def kept(node: str, *times: float, lines: Lines | None = None) -> Lines:
    lines = lines or Lines()
    for at in times:
        lines.line(node, "journal", "opened", at)
    return lines


def message(folder: Path) -> None:
    """One of a@x/1, of which the device in the folder `b` has no line."""
    sent = kept("a@x/1", -900).sent(*SENT)
    write_journal(folder / "a", "a@x%2F1", kept("a@x/1", 900, lines=sent))
    write_journal(folder / "b", OF_B, kept(B, -900, 900))


def open_file(folder: Path, *, day: str = "2026-01-05") -> Path:
    """A journal in a folder of its own, with a file that is not closed."""
    path = folder / "c" / f"date={day}" / f".{OF_B}-0123456789abcdef-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def journals(folder: Path) -> list[str]:
    for name in "abc":
        (folder / name).mkdir(exist_ok=True)
    return [str(folder / name) for name in "abc"]


def verdicts(spark: SparkSession, out: Path) -> list[tuple[str, str | None]]:
    rows = spark_frame(spark, snapshot(str(out))["deliveries"]).collect()
    return [(row["verdict"], row["reason"]) for row in rows]


def audited(
    spark: SparkSession, folder: Path, names: list[str], day: date | None = None
) -> list[tuple[str, str | None]]:
    out = folder / "out"
    limits = Limits(now=NOON + timedelta(days=30))
    audit(spark, names, str(out), limits=limits, first=day, last=day)
    return verdicts(spark, out)


@pytest.mark.long
def test_a_file_that_is_not_closed_shows_that_there_is_a_namesake(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its lines are not read, and may be those of the message."""
    message(tmp_path)
    assert audited(spark, tmp_path, journals(tmp_path)) == [("lost", None)]
    open_file(tmp_path)
    names = journals(tmp_path)
    assert audited(spark, tmp_path, names) == [("unproven", "which-journal")]


@pytest.mark.long
def test_an_open_file_in_the_folder_of_another_node_proves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The name of the folder tells whose lines would be in it."""
    message(tmp_path)
    open_file(tmp_path)
    names = journals(tmp_path)
    names[2] = f"c@x={names[2]}"
    assert audited(spark, tmp_path, names) == [("lost", None)]
    names[2] = f"b@x={tmp_path / 'c'}"
    assert audited(spark, tmp_path, names) == [("unproven", "which-journal")]


@pytest.mark.long
@pytest.mark.parametrize("is_open", [True, False])
def test_an_audit_of_a_day_knows_the_namesakes_of_other_days(
    is_open: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """It reads no line of them, but their names."""
    message(tmp_path)
    day = NOON.date()
    assert audited(spark, tmp_path, journals(tmp_path), day) == [("lost", None)]
    if is_open:
        open_file(tmp_path, day="2025-11-05")
    else:
        far = kept(B, -60 * DAY_S)
        write_journal(tmp_path / "c", OF_B, far)
    names = journals(tmp_path)
    assert audited(spark, tmp_path, names, day) == [("unproven", "which-journal")]


@pytest.mark.long
def test_a_device_that_begins_a_journal_elsewhere_is_not_accused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Unless its former lines are put into the new folder."""
    message(tmp_path)
    old = kept(B, -3 * DAY_S)
    old.rows[0]["boot"] = "old"
    write_journal(tmp_path / "c", OF_B, old)
    names = journals(tmp_path)
    assert audited(spark, tmp_path, names) == [("unproven", "which-journal")]
    (day,) = (tmp_path / "c").iterdir()
    day.rename(tmp_path / "b" / day.name)
    assert audited(spark, tmp_path, names) == [("lost", None)]


@pytest.mark.long
def test_a_follower_revises_its_verdict_when_a_namesake_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By each step: an open file, and then its lines; also after a new start."""
    message(tmp_path)
    names, out = journals(tmp_path), tmp_path / "out"

    def look() -> list[tuple[str, str | None]]:
        limits = Limits(now=NOON + timedelta(days=1))
        late = timedelta(days=7)
        new = Follower(spark, names, str(out), limits=lambda: limits, lateness=late)
        new.look()
        return verdicts(spark, out)

    assert look() == [("lost", None)]
    path = open_file(tmp_path)
    assert look() == [("unproven", "which-journal")]
    # Another device of it was silent as well: no name of a file hides that any more.
    path.unlink()
    other = kept(B, -900, 900)
    for row in other.rows:
        row["boot"] = "other"
    write_journal(tmp_path / "c", OF_B, other)
    assert look() == [("lost", None)]
