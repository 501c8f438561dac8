"""A directory entry stops no audit, and nothing is left out unsaid."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.follow_lock import CannotFollow, check_options
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits
from qos.cli import main

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

LIMITS = Limits(now=NOON + timedelta(days=1))
DAY = "date=2026-01-05"
WEEK = timedelta(days=7)
WHOLE = ("accepted", "offered", "received", "released", "delivered")


def problems(out: Path) -> dict[tuple[str, str], str]:
    """The problems with their reasons, by kind and name."""
    rows = snapshot(str(out))["problems"].to_pyarrow_table().to_pylist()
    return {
        (row["kind"], row["place"].rpartition("/")[2]): row["example"] for row in rows
    }


def message(journal: Path, name: str) -> None:
    """A message that was delivered, in a file of a node of this name."""
    write_journal(journal, name, Lines(f"{name}.example").sent(*WHOLE, msg_id=name))


def messages(out: Path) -> list[str]:
    """The messages in the tables."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table()
    return sorted(rows["msg_id"].to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("first", [None, NOON.date()])
def test_odd_entries_are_problems_and_all_else_is_audited(
    spark: SparkSession, tmp_path: Path, first: object
) -> None:
    """With the days of the audit given, and without; one file is removed meanwhile."""
    journal, out = tmp_path / "journal", tmp_path / "out"
    message(journal, "good")
    message(journal, "late")
    day = journal / DAY
    (day / os.fsdecode(b"lamp\xe9-b1-1.jsonl")).write_text("x")
    (day / "loop-b1-1.jsonl").symlink_to("loop-b1-1.jsonl")
    (day / "notes").symlink_to("nowhere")
    (journal / "date=2026-01-04").symlink_to("date=2026-01-04")

    def progress(step: str) -> None:
        if step.startswith("reading"):
            (day / "late-b-1.jsonl").unlink(missing_ok=True)

    journals = [str(journal), str(tmp_path / "gone")]
    found = audit(
        spark,
        journals,
        str(out),
        limits=LIMITS,
        first=first,  # type: ignore[arg-type]  # a date, or None
        progress=progress,
    )
    assert (found.lines, found.events) == (5, 5)
    assert messages(out) == ["good"]
    loop = "Too many levels of symbolic links"
    missing = "No such file or directory"
    assert problems(out) == {
        ("unread-file", r"lamp\xe9-b1-1.jsonl"): "its name is not UTF-8: rename it",
        ("unread-file", "loop-b1-1.jsonl"): loop,
        ("unread-file", "late-b-1.jsonl"): missing,
        ("foreign-file", "notes"): f"link to a missing file: {missing}",
        ("unread-folder", "date=2026-01-04"): loop,
        ("unread-folder", "gone"): missing,
    }
    numbers = (out / "metrics.prom").read_text()
    assert 'xmpp_qos_audit_problems{kind="unread-folder"} 2\n' in numbers


@pytest.mark.long
def test_a_mount_that_goes_away_is_told_while_it_is_followed_and_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The others are followed meanwhile; and what could not be read is read later."""
    one, two, out = tmp_path / "one", tmp_path / "two", tmp_path / "out"
    message(one, "first")
    message(two, "second")
    loop = one / DAY / "third-b-1.jsonl"
    loop.symlink_to(loop.name)

    def follower() -> Follower:
        return Follower(
            spark,
            [str(one), str(two)],
            str(out),
            limits=lambda: LIMITS,
            lateness=WEEK,
        )

    follower().look()
    assert messages(out) == ["first", "second"]
    assert list(problems(out)) == [("unread-file", loop.name)]
    two.rename(tmp_path / "away")
    loop.unlink()
    message(one, "third")
    # A new process would not know more.
    follower().look()
    assert messages(out) == ["first", "second", "third"]
    assert list(problems(out)) == [("unread-folder", "two")]
    numbers = (out / "metrics.prom").read_text()
    assert 'xmpp_qos_audit_problems{kind="unread-folder"} 1\n' in numbers
    (tmp_path / "away").rename(two)
    look = follower().look()
    assert (problems(out), look.new) == ({}, True)
    assert messages(out) == ["first", "second", "third"]


@pytest.mark.long
def test_a_followed_link_that_is_moved_is_followed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same process, and by a new start with the same words."""
    link, out = tmp_path / "latest", tmp_path / "out"
    for name in ("first", "second"):
        message(tmp_path / name, name)
    words = ["audit", str(link), "--out", str(out), "--follow", "--once", "--json"]
    for name in ("first", "second"):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / name)
        # No journal of the receiver is there: no message can be judged.
        assert main(words) == 3, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["lines"] == 10
    assert messages(out) == ["first", "second"]
    # Gone for a moment: the tables stay, and it is told.
    link.unlink()
    assert main(words) == 3, capsys.readouterr().err
    assert messages(out) == ["first", "second"]
    assert list(problems(out)) == [("unread-folder", "latest")]


def test_what_was_begun_with_the_target_of_a_link_goes_on_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Former versions have kept that name; with another target it is refused."""
    target, link, out = tmp_path / "run1", tmp_path / "latest", str(tmp_path / "out")
    target.mkdir()
    link.symlink_to(target)
    tied = f"a@x/1={target}"
    as_begun = [f"a@x/1=file://{target}"]
    assert check_options(spark, out, [tied], WEEK) == as_begun
    assert check_options(spark, out, [f"a@x/1={link}"], WEEK) == as_begun
    with pytest.raises(CannotFollow, match=f"begun with other journals, {tied}: give"):
        check_options(spark, out, [f"b@x/1={link}"], WEEK)
    link.unlink()
    shutil.move(target, tmp_path / "run2")
    link.symlink_to(tmp_path / "run2")
    with pytest.raises(CannotFollow, match=f"begun with other journals, {tied}: give"):
        check_options(spark, out, [f"a@x/1={link}"], WEEK)
