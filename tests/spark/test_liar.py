"""One node that lies: its possible effects on verdicts about others, and their limits.

Each sentence of "What one lying node can do" in docs/audit.md has its test here. Two
nodes are honest: a@x/1 sends, and b@x/1 receives. m@x/1 lies. Each has a folder of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit.driver import audit
from qos.audit.results import Summary
from qos.audit.snapshot import snapshot, spark_frame
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")

A, B, M = "a@x/1", "b@x/1", "m@x/1"


def kept(lines: Lines, node: str, at: float) -> Lines:
    """A journal of this node is kept then."""
    lines.line(node, "journal", "opened", at)
    return lines


def honest_sender() -> Lines:
    lines = kept(Lines(), A, -900)
    lines.sent(*SENT, msg_id="lost").sent(*SENT, at=10, msg_id="well")
    lines.sent(*SENT, at=300, msg_id="lost too")
    lines.sent(*SENT, at=310, to=M, msg_id="lost by the liar")
    lines.sent(*SENT, at=320, to="n@x/1", msg_id="to one without a journal")
    return kept(lines, A, 900)


def honest_receiver() -> Lines:
    lines = kept(Lines(), B, -900).got(*GOT, at=10, msg_id="well")
    return kept(lines, B, 900)


def forged() -> Lines:
    """Lines in the name of the receiver."""
    return Lines().got("held", "handed-over", msg_id="lost", boot="forged")


def liar() -> Lines:
    lines = kept(Lines(), M, -900)
    # Of messages of others, as itself: cleared, doubled, never sent and never received.
    lines.got("held", "handed-over", node=M, at=20, msg_id="lost too")
    lines.got("handed-over", "handed-over", node=M, at=30, msg_id="well")
    lines.got("held", "handed-over", node=M, at=40, msg_id="made up")
    lines.sent("accepted", "released", "delivered", node=M, at=50, msg_id="made up too")
    # Of its own.
    lines.sent(*SENT, node=M, source=M, at=200, msg_id="never sent")
    lines.got(*GOT, node=M, to=M, at=210, msg_id="never received")
    lines.got(*GOT, node=M, to=M, at=310, msg_id="lost by the liar")
    return kept(lines, M, 900)


@dataclass(frozen=True)
class Audited:
    """The results.

    Attributes:
        verdicts: by msg_id.
        rests_on: likewise, of the accusations.
    """

    summary: Summary
    verdicts: dict[str, str]
    rests_on: dict[str, list[str]]


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def audited(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Audited:
    """The folders as they are, and each tied to its node."""
    folder = tmp_path_factory.mktemp("liar with = in it")
    for name, lines in (("a", honest_sender()), ("b", honest_receiver())):
        write_journal(folder / name, name, lines)
    write_journal(folder / "m", "m", liar())
    write_journal(folder / "m", "b", forged())
    nodes = {"a": A, "b": B, "m": "m@x"}
    journals = [
        f"{node}={folder / name}" if request.param else f"{folder / name}"
        for name, node in nodes.items()
    ]
    out = str(folder / "out")
    limits = Limits(now=NOON + timedelta(days=1))
    summary = audit(spark, journals, out, limits=limits)
    tables = snapshot(out)
    messages = spark_frame(spark, tables["deliveries"]).collect()
    found = spark_frame(spark, tables["anomalies"]).collect()
    return Audited(
        summary,
        {row["msg_id"]: row["verdict"] for row in messages},
        {row["msg_id"]: row["rests_on"] for row in found},
    )


def test_it_speaks_for_others_where_its_folder_is_not_tied(audited: Audited) -> None:
    """It hides a loss by a hand-over in the name of the receiver."""
    tied = not audited.summary.untied
    assert audited.summary.untied == (0 if tied else 3)
    assert audited.verdicts["lost"] == ("lost" if tied else "ok")
    assert audited.summary.problems.get("foreign-node") == (2 if tied else None)


def test_it_speaks_of_messages_of_others_in_vain(audited: Audited) -> None:
    """In its own name it hides nothing, and accuses neither a sender nor a receiver.

    In the name of the receiver, it is a second journal: then no silence is a proof.
    """
    tied = not audited.summary.untied
    assert audited.verdicts["lost too"] == ("lost" if tied else "unproven")
    assert audited.verdicts["well"] == "ok"
    assert not {"made up", "made up too"} & audited.verdicts.keys()
    assert audited.summary.problems["foreign-word"] == 9


def test_it_blames_others_with_messages_of_its_own(audited: Audited) -> None:
    """The verdict names it: it rests on its lines against the silence of the other."""
    assert audited.verdicts["never received"] == "orphaned"
    assert audited.rests_on["never received"] == [M, A]
    if not audited.summary.untied:
        assert audited.verdicts["never sent"] == "lost"
        assert audited.rests_on["never sent"] == [M, B]
        assert audited.rests_on["lost too"] == [A, B]


def test_it_hides_what_it_has_done_itself(audited: Audited) -> None:
    """Only its own lines can tell that it handed a message over."""
    assert audited.verdicts["lost by the liar"] == "ok"


def test_a_node_that_gives_no_journal_is_accused_of_nothing(audited: Audited) -> None:
    """And no other node is accused for messages to it."""
    assert audited.verdicts["to one without a journal"] == "unproven"
