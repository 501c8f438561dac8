"""A receiver counts only for messages to itself, whatever ids its lines have.

a@x/1 sends to b@x, and b@x/1 keeps its journal honestly. h@x/1 says of each of these
messages that it got it, to itself. Each has a folder of its own, tied to it.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(300),
]

LIMITS = Limits(now=NOON + timedelta(days=1))
WEEK = timedelta(days=7)
SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

#: The verdicts, and what each unproven one looks like, as a and b tell them.
TRUTH = {
    "well": "ok",
    "to the account": "ok",
    "lost": "lost",
    "lost by the account": "lost",
    "to nobody": "unproven: lost",
    "of a stranger": "unproven: orphaned",
}


def honest(folder: Path) -> list[str]:
    """A message of each kind; some to an account, whose device handles them."""
    a, b = Lines(), Lines()
    for lines, node in ((a, "a@x/1"), (b, "b@x/1")):
        lines.line(node, "journal", "opened", -900)
    a.sent(*SENT, msg_id="well").sent(*SENT, at=20, msg_id="lost")
    a.sent(*SENT, at=10, to="b@x", msg_id="to the account")
    a.sent(*SENT, at=30, to="b@x", msg_id="lost by the account")
    a.sent(*SENT, at=40, to="n@x/1", msg_id="to nobody")
    b.got(*GOT, msg_id="well").got(*GOT, at=10, to="b@x", msg_id="to the account")
    b.got("held", at=30, to="b@x", msg_id="lost by the account")
    b.got(*GOT, at=50, source="z@x/1", msg_id="of a stranger")
    for name, lines in (("a", a), ("b", b)):
        lines.line(f"{name}@x/1", "journal", "closed", 9000)
        write_journal(folder / name, name, lines)
    return [f"{name}@x/1={folder / name}" for name in "ab"]


def hostile(folder: Path) -> str:
    """Hand-overs of each message, without a hold: two of those that are not lost."""
    lines = Lines()
    lines.line("h@x/1", "journal", "opened", -900)
    for at, msg_id in enumerate(TRUTH):
        source = "z@x/1" if msg_id == "of a stranger" else "a@x/1"
        is_lost = "lost" in msg_id or msg_id == "to nobody"
        for to in ("h@x/1",) if is_lost else ("h@x/1", "h@x"):
            fields = {"node": "h@x/1", "to": to, "source": source}
            lines.got("handed-over", at=10 * at + 2, msg_id=msg_id, **fields)
    lines.line("h@x/1", "journal", "closed", 9000)
    write_journal(folder / "h", "h", lines)
    return f"h@x/1={folder / 'h'}"


def verdicts(out: Path) -> dict[str, str]:
    """Of the messages that are not to the hostile node."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table().to_pylist()
    return {
        row["msg_id"]: ": ".join(filter(None, (row["verdict"], row["suspected"])))
        for row in rows
        if row["receiver"] != "h@x"
    }


def accused(out: Path) -> list[str]:
    """The receivers of all doubled messages."""
    rows = snapshot(str(out))["anomalies"].to_pyarrow_table().to_pylist()
    return [row["receiver"] for row in rows if row["kind"] == "duplicated"]


@pytest.mark.parametrize(
    "is_hostile", [pytest.param(False, marks=pytest.mark.long), True]
)
def test_a_receiver_neither_doubles_nor_clears_a_message_to_another(
    spark: SparkSession, tmp_path: Path, is_hostile: bool
) -> None:
    """Its lines are about messages to itself, and can only accuse itself of a repeat."""
    journals, out = honest(tmp_path), tmp_path / "out"
    if is_hostile:
        journals.append(hostile(tmp_path))
    audit(spark, journals, str(out), limits=LIMITS)
    assert verdicts(out) == TRUTH
    assert {*accused(out)} <= {"h@x"}


@pytest.mark.long
@pytest.mark.parametrize(
    # In one look, nothing is revised: then it is the audit of above.
    "first",
    ["honest", "hostile", pytest.param("both", marks=pytest.mark.long)],
)
def test_nor_does_it_in_a_look(spark: SparkSession, tmp_path: Path, first: str) -> None:
    """Whoever comes first."""
    journals, out = [*honest(tmp_path), hostile(tmp_path)], tmp_path / "out"
    later = {"honest": "h", "hostile": "[ab]", "both": "-"}[first]
    for path in tmp_path.glob(f"{later}/*/*"):
        path.rename(path.with_name(f".{path.name}.tmp"))
    follower = Follower(spark, journals, str(out), limits=lambda: LIMITS, lateness=WEEK)
    follower.look()
    for path in tmp_path.glob("[abh]/*/.*"):
        path.rename(path.with_name(path.name[1:].removesuffix(".tmp")))
    follower.look()
    assert verdicts(out) == TRUTH
    assert {*accused(out)} <= {"h@x"}
