"""Lines with any field at its edges stop no audit, and change no verdict of others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from hostile_lines import write_hostile
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.results import Summary
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

LIMITS = Limits(now=NOON + timedelta(days=1))
WEEK = timedelta(days=7)
SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")


def honest(folder: Path) -> list[str]:
    """Two nodes with a lost, a doubled, a stuck, an orphaned and a good message.

    And one that begins each life in 1970, until its clock is set.
    """
    a, b = Lines(), Lines()
    for lines, node in ((a, "a@x/1"), (b, "b@x/1")):
        lines.line(node, "journal", "opened", -900)
    a.sent(*SENT, msg_id="lost").sent(*SENT, at=10, msg_id="well")
    a.sent(*SENT, at=20, msg_id="doubled").sent("accepted", at=30, msg_id="stuck")
    b.got(*GOT, at=10, msg_id="well").got(*GOT, at=20, msg_id="doubled")
    b.got(*GOT, at=60, msg_id="of c", source="c@x/1")
    b.got("handed-over", at=40, msg_id="doubled").got(*GOT, at=50, msg_id="orphaned")
    for lines, node in ((a, "a@x/1"), (b, "b@x/1")):
        lines.line(node, "journal", "closed", 9000)
    c = Lines()
    for seconds in range(3):
        c.line("c@x/1", "journal", "opened", seconds - NOON.timestamp())
    c.sent(*SENT, at=60, msg_id="of c", node="c@x/1", source="c@x/1")
    for name, lines in (("a", a), ("b", b), ("c", c)):
        write_journal(folder / name, f"{name}%40x%2F1", lines)
    return [f"{name}@x/1={folder / name}" for name in "abc"]


def verdicts(out: Path) -> dict[str, str]:
    """Of each message between the honest nodes."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table().to_pylist()
    return {
        row["msg_id"]: row["verdict"]
        for row in rows
        if row["sender"] in {"a@x", "c@x"} and row["receiver"] == "b@x"
    }


TRUTH = {
    "lost": "lost",
    "well": "ok",
    "doubled": "duplicated",
    "stuck": "stuck",
    "orphaned": "orphaned",
    "of c": "ok",
}


def is_audited(spark: SparkSession, folder: Path, journals: Sequence[str]) -> Summary:
    """Audit all journals at once."""
    out = folder / "out"
    summary = audit(spark, journals, str(out), limits=LIMITS)
    assert verdicts(out) == TRUTH
    # What was left out of the node that begins in 1970.
    place = str(folder / "honest/c/date=1970-01-01/c%40x%2F1-b-1.jsonl")
    rows = snapshot(str(out))["problems"].to_pyarrow_table().to_pylist()
    assert [(row["kind"], row["count"]) for row in rows if row["place"] == place] == [
        ("bad-line", 3)
    ]
    return summary


def is_followed(spark: SparkSession, folder: Path, journals: Sequence[str]) -> None:
    """Follow all journals; the honest ones come with the second look."""
    for path in (folder / "honest").glob("[abc]/*/*"):
        path.rename(path.with_name(f".{path.name}.tmp"))
    follower = Follower(
        spark,
        journals,
        str(folder / "followed"),
        limits=lambda: LIMITS,
        lateness=WEEK,
    )
    follower.look()
    for path in (folder / "honest").glob("[abc]/*/.*"):
        path.rename(path.with_name(path.name[1:].removesuffix(".tmp")))
    follower.look()
    assert verdicts(folder / "followed") == TRUTH


def test_lines_at_the_edges_stop_no_audit_and_change_no_verdict(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a few nodes. One line stopped the audit of a fleet, for all days to come."""
    hostile = [write_hostile(tmp_path / "hostile", number) for number in range(3)]
    is_audited(spark, tmp_path, [*hostile, *honest(tmp_path / "honest")])
    # For people, the name of the file names the node.
    page = (tmp_path / "out" / "report.html").read_text()
    assert "c/date=1970-01-01/c%40x%2F1-b-1.jsonl" in page


@pytest.mark.long
@pytest.mark.parametrize("count", [0, 100])
def test_a_hundred_hostile_nodes_stop_no_audit_and_change_no_verdict(
    spark: SparkSession, tmp_path: Path, count: int
) -> None:
    """Any field of their lines at its edges, in files and folders with odd names."""
    numbers = range(3, 3 + count)
    hostile = [write_hostile(tmp_path / "hostile", number) for number in numbers]
    journals = [*hostile, *honest(tmp_path / "honest")]
    summary = is_audited(spark, tmp_path, journals)
    # The charts are of these days: 1970 is none of them.
    assert count or (summary.first, summary.last) == (NOON.date(), NOON.date())
    is_followed(spark, tmp_path, journals)
