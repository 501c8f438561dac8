"""One node that lies: its possible effects on verdicts about others, and their limits.

Each sentence of "What one lying node can do" in docs/audit.md has its test here. Two
nodes are honest: a@x/1 sends, and b@x/1 receives. m@x/1 lies. Each has a folder of its
own. All of it is there twice, in one audit: in a domain whose folders are as they are,
and in one where each is tied to its node.
"""

from __future__ import annotations

from collections import Counter
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

#: Two domains.
UNTIED, TIED = "untied", "tied"


def kept(lines: Lines, user: str, at: float) -> Lines:
    """A journal of this node is kept then."""
    lines.line(f"{user}@{lines.domain}/1", "journal", "opened", at)
    return lines


def honest_sender(domain: str) -> Lines:
    lines = kept(Lines(domain), "a", -900)
    lines.sent(*SENT, msg_id="lost").sent(*SENT, at=10, msg_id="well")
    lines.sent(*SENT, at=300, msg_id="lost too")
    lines.sent(*SENT, at=310, to=f"m@{domain}/1", msg_id="lost by the liar")
    lines.sent(*SENT, at=320, to=f"n@{domain}/1", msg_id="to one without a journal")
    return kept(lines, "a", 900)


def honest_receiver(domain: str) -> Lines:
    lines = kept(Lines(domain), "b", -900).got(*GOT, at=10, msg_id="well")
    return kept(lines, "b", 900)


def forged(domain: str) -> Lines:
    """Lines in the name of the receiver."""
    return Lines(domain).got("held", "handed-over", msg_id="lost", boot="forged")


def liar(domain: str) -> Lines:
    m, lines = f"m@{domain}/1", kept(Lines(domain), "m", -900)
    # Of messages of others, as itself: cleared, doubled, never sent and never received.
    lines.got("held", "handed-over", node=m, at=20, msg_id="lost too")
    lines.got("handed-over", "handed-over", node=m, at=30, msg_id="well")
    lines.got("held", "handed-over", node=m, at=40, msg_id="made up")
    lines.sent("accepted", "released", "delivered", node=m, at=50, msg_id="made up too")
    # Of its own.
    lines.sent(*SENT, node=m, source=m, at=200, msg_id="never sent")
    lines.got(*GOT, node=m, to=m, at=210, msg_id="never received")
    lines.got(*GOT, node=m, to=m, at=310, msg_id="lost by the liar")
    return kept(lines, "m", 900)


@dataclass(frozen=True)
class Audited:
    """The results.

    Attributes:
        verdicts: of each domain, by msg_id.
        rests_on: likewise, of the accusations.
        problems: of each domain, by their kinds.
    """

    summary: Summary
    verdicts: dict[str, dict[str, str]]
    rests_on: dict[str, dict[str, list[str]]]
    problems: dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """The folders as they are, and each tied to its node."""
    folder = tmp_path_factory.mktemp("liar with = in it")
    journals = []
    for domain in (UNTIED, TIED):
        here = folder / domain
        sender, receiver = honest_sender(domain), honest_receiver(domain)
        for name, lines in (("a", sender), ("b", receiver), ("m", liar(domain))):
            write_journal(here / name, name, lines)
        write_journal(here / "m", "b", forged(domain))
        for name, node in {
            "a": f"a@{TIED}/1",
            "b": f"b@{TIED}/1",
            "m": f"m@{TIED}",
        }.items():
            tie = f"{node}=" if domain == TIED else ""
            journals.append(f"{tie}{here / name}")
    out = str(folder / "out")
    limits = Limits(now=NOON + timedelta(days=1))
    summary = audit(spark, journals, out, limits=limits)
    tables = snapshot(out)
    messages = spark_frame(spark, tables["deliveries"]).collect()
    found = spark_frame(spark, tables["anomalies"]).collect()
    problems = spark_frame(spark, tables["problems"]).collect()
    made = Audited(summary, {}, {}, {})
    for domain in (UNTIED, TIED):
        made.verdicts[domain] = {
            row["msg_id"]: row["verdict"]
            for row in messages
            if f"@{domain}" in (row["sender"] or row["receiver"])
        }
        made.rests_on[domain] = {
            row["msg_id"]: row["rests_on"]
            for row in found
            if f"@{domain}" in (row["sender"] or row["receiver"])
        }
        counts = Counter[str]()
        for row in problems:
            if f"/{domain}/" in row["place"]:
                counts[row["kind"]] += row["count"]
        made.problems[domain] = dict(counts)
    return made


def test_it_speaks_for_others_where_its_folder_is_not_tied(audited: Audited) -> None:
    """It hides a loss by a hand-over in the name of the receiver."""
    assert audited.summary.untied == 3
    assert audited.verdicts[UNTIED]["lost"] == "ok"
    assert audited.verdicts[TIED]["lost"] == "lost"
    assert "foreign-node" not in audited.problems[UNTIED]
    assert audited.problems[TIED]["foreign-node"] == 2


def test_it_speaks_of_messages_of_others_in_vain(audited: Audited) -> None:
    """In its own name it hides nothing, and accuses neither a sender nor a receiver.

    In the name of the receiver, it is a second journal: then no silence is a proof.
    """
    assert audited.verdicts[UNTIED]["lost too"] == "unproven"
    assert audited.verdicts[TIED]["lost too"] == "lost"
    for domain, verdicts in audited.verdicts.items():
        assert verdicts["well"] == "ok", domain
        assert not {"made up", "made up too"} & verdicts.keys(), domain
        assert audited.problems[domain]["foreign-word"] == 9, domain


def test_it_blames_others_with_messages_of_its_own(audited: Audited) -> None:
    """The verdict names it: it rests on its lines against the silence of the other."""
    for domain, verdicts in audited.verdicts.items():
        m, a = f"m@{domain}/1", f"a@{domain}/1"
        assert verdicts["never received"] == "orphaned", domain
        assert audited.rests_on[domain]["never received"] == [m, a]
    assert audited.verdicts[TIED]["never sent"] == "lost"
    a, b, m = (f"{user}@{TIED}/1" for user in "abm")
    assert audited.rests_on[TIED]["never sent"] == [m, b]
    assert audited.rests_on[TIED]["lost too"] == [a, b]


def test_it_hides_what_it_has_done_itself(audited: Audited) -> None:
    """Only its own lines can tell that it handed a message over."""
    for domain, verdicts in audited.verdicts.items():
        assert verdicts["lost by the liar"] == "ok", domain


def test_a_node_that_gives_no_journal_is_accused_of_nothing(audited: Audited) -> None:
    """And no other node is accused for messages to it."""
    for domain, verdicts in audited.verdicts.items():
        assert verdicts["to one without a journal"] == "unproven", domain
