"""What is an anomaly, and above all what is none.

Each case is a world of its own: accounts a and b of its own domain. All of them go
through Spark together, as a query takes some seconds whatever it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

from frames import NOON, Lines
from qos.pipeline.tables import Limits, anomalies, coverage, deliveries

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(180),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")
DOUBT = ("accepted", "offered", "received", "released", "in-doubt")

#: So long after noon (seconds) everything is settled; and so long after it is not.
LATER = 6 * 3600.0
SOON = 1500.0


def other_traffic(lines: Lines, *, at: float) -> None:
    """Both nodes have written something then."""
    msg_id = f"other {at}"
    lines.sent(*SENT, at=at, msg_id=msg_id).got(*GOT, at=at, msg_id=msg_id)


# -- worlds ----------------------------------------------------------------


def all_well(lines: Lines) -> None:
    lines.sent(*SENT).got(*GOT)
    lines.sent("accepted", "offered", "not-delivered", msg_id="refused")
    lines.sent("accepted", "withdrawn", msg_id="withdrawn")
    lines.got("held", msg_id="withdrawn")
    lines.got("held", "expired", msg_id="expired", source="c@elsewhere/1")


def no_hand_over(*receiver: str) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        lines.sent(*SENT).got(*receiver)

    return build


def silent_receiver(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.sent(*SENT)


def no_journal_there(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.sent(*SENT, msg_id="1", to="stranger@elsewhere/1")
    # Of b only the device /1 has a journal.
    lines.sent(*SENT, msg_id="2", to=f"b@{lines.domain}/2")


def two_ids(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.sent(*SENT, msg_id="m1", level="acknowledged")


def journal_began_later(lines: Lines) -> None:
    lines.sent(*SENT)
    other_traffic(lines, at=900)


def last_file_is_open(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.sent(*SENT, at=SOON - 60)
    lines.sent(*SENT, at=SOON - 60, msg_id="held")
    lines.got("held", "released", at=SOON - 60, msg_id="held")


def receiver_wrote_on(lines: Lines) -> None:
    last_file_is_open(lines)
    other_traffic(lines, at=SOON + 10)


def handed_over_twice(lines: Lines) -> None:
    lines.sent(*SENT).got(*GOT, "handed-over")


def marked_as_a_repeat(lines: Lines) -> None:
    lines.sent(*SENT).got("held", "released", "handed-over")
    lines.got("redelivered", "done", at=30, boot="another")


def acknowledged_twice(lines: Lines) -> None:
    lines.sent("accepted", "offered", "delivered", level="acknowledged")
    for at in (0, 9):
        events = ("released", "handed-over", "done")
        lines.got(*events, at=at, msg_id="iq", level="acknowledged")


def stranger_reuses_an_id(lines: Lines) -> None:
    for at in (0, 600, 1200):
        lines.got(*GOT, at=at, source="stranger@elsewhere/1")


def stranger_is_doubled(lines: Lines) -> None:
    lines.got(*GOT, "handed-over", source="stranger@elsewhere/2")


def unknown_to_its_sender(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.got(*GOT)


def sender_is_not_there(lines: Lines) -> None:
    lines.got(*GOT, msg_id="of a stranger", source="stranger@elsewhere/3")
    lines.got(*GOT, msg_id="before the journal")
    other_traffic(lines, at=900)
    lines.got(*GOT, msg_id="m1", at=1000)


def waits(
    sender: tuple[str, ...], receiver: tuple[str, ...]
) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        lines.sent(*sender).got(*receiver)

    return build


def in_doubt(lines: Lines) -> None:
    other_traffic(lines, at=-900)
    lines.sent(*DOUBT, msg_id="1").got(*GOT, msg_id="1")
    lines.sent(*DOUBT, msg_id="2").got("held", "expired", msg_id="2")
    lines.sent(*DOUBT, msg_id="3")
    lines.sent(*DOUBT, msg_id="4", to="stranger@elsewhere/1")


def clock_is_ahead(seconds: float) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        for number in range(5):
            lines.sent(*SENT, at=300 * number, msg_id=str(number))
            lines.got(*GOT, at=300 * number + seconds, msg_id=str(number))

    return build


@dataclass(frozen=True)
class Case:
    """What an audit finds, as (kind, msg_id), at each of these times."""

    sentence: str
    build: Callable[[Lines], None]
    found: Mapping[float, list[tuple[str, str]]]


NOTHING: Mapping[float, list[tuple[str, str]]] = {SOON: [], LATER: []}
LOST = {LATER: [("lost", "m1")]}
STUCK = {SOON: [], LATER: [("stuck", "m1")]}

CASES = [
    Case("what went well is no anomaly", all_well, NOTHING),
    Case(
        "done but never handed over is lost at once",
        no_hand_over("held", "released", "done"),
        {SOON: [("lost", "m1")], LATER: [("lost", "m1")]},
    ),
    Case(
        "delivered and only released at the receiver is lost",
        no_hand_over("held", "released"),
        LOST,
    ),
    Case("delivered and only held is lost", no_hand_over("held"), LOST),
    Case("delivered to a receiver that says nothing is lost", silent_receiver, LOST),
    Case("a node without a journal loses nothing", no_journal_there, NOTHING),
    Case("acknowledged messages have two ids, so none is lost", two_ids, NOTHING),
    Case("a journal that began later loses nothing", journal_began_later, NOTHING),
    Case(
        "what may be in a file that is not closed is not lost yet",
        last_file_is_open,
        {SOON: [], LATER: [("lost", "held"), ("lost", "m1")]},
    ),
    Case(
        "what is missing before later lines is lost",
        receiver_wrote_on,
        {SOON: [("lost", "held"), ("lost", "m1")]},
    ),
    Case(
        "two hand-overs are duplicated",
        handed_over_twice,
        {SOON: [("duplicated", "m1")], LATER: [("duplicated", "m1")]},
    ),
    Case("one that is marked as a repeat is not", marked_as_a_repeat, NOTHING),
    Case("an acknowledged message may come twice", acknowledged_twice, NOTHING),
    Case("a stranger may use a msg_id again", stranger_reuses_an_id, NOTHING),
    Case(
        "a stranger's message that was held once is handed over once",
        stranger_is_doubled,
        {SOON: [("duplicated", "m1")]},
    ),
    Case(
        "a hand-over that its sender does not know is orphaned",
        unknown_to_its_sender,
        {LATER: [("orphaned", "m1")]},
    ),
    Case(
        "a sender without a journal at that time orphans nothing",
        sender_is_not_there,
        {SOON: [], LATER: [("orphaned", "m1")]},
    ),
    Case("what was accepted waits in the outbox", waits(("accepted",), ()), STUCK),
    Case(
        "what is held and not released is stuck once",
        waits(("accepted", "offered", "received"), ("held",)),
        STUCK,
    ),
    Case(
        "what is released and not handed over is stuck once",
        waits(SENT[:4], ("held", "released")),
        STUCK,
    ),
    Case("held for a stranger is stuck", waits((), ("held",)), STUCK),
    Case("released by a stranger is stuck", waits((), ("held", "released")), STUCK),
    Case(
        "what expired and was held again is stuck",
        waits((), ("held", "expired", "held")),
        STUCK,
    ),
    Case(
        "in doubt tells how it really ended",
        in_doubt,
        {
            LATER: [
                ("in-doubt: delivered", "1"),
                ("in-doubt: not-delivered", "2"),
                ("in-doubt: not-delivered", "3"),
                ("in-doubt: unknown", "4"),
            ]
        },
    ),
    *(
        Case(
            f"a clock that is {ahead} s ahead loses nothing",
            clock_is_ahead(ahead),
            NOTHING,
        )
        for ahead in (-7200, -50, 50, 7200)
    ),
]


def world(number: int) -> Lines:
    lines = Lines(f"world{number}")
    CASES[number].build(lines)
    return lines


@dataclass(frozen=True)
class Worlds:
    """The messages of all worlds, and what is covered."""

    messages: DataFrame
    covered: DataFrame

    def audit(self, now_s: float) -> list[tuple[str, str, str]]:
        """(kind, msg_id, the two accounts), in order."""
        limits = Limits(now=NOON + timedelta(seconds=now_s))
        rows = anomalies(self.messages, self.covered, limits).collect()
        return sorted(
            (
                f"{row['kind']}: {row['ended']}" if row["ended"] else row["kind"],
                row["msg_id"],
                " ".join((row["sender"], row["receiver"])),
            )
            for row in rows
        )


@pytest.fixture(scope="module")
def worlds(spark: SparkSession) -> Iterator[Worlds]:
    lines = Lines()
    for number in range(len(CASES)):
        lines += world(number)
    events = lines.frame(spark)
    messages = deliveries(events).cache()
    yield Worlds(messages, coverage(events).cache())
    messages.unpersist()


@pytest.fixture(scope="module")
def audits(worlds: Worlds) -> dict[float, list[tuple[str, str, str]]]:
    return {now_s: worlds.audit(now_s) for now_s in (SOON, LATER)}


@pytest.mark.parametrize(
    ("number", "now_s"),
    [
        pytest.param(number, now_s, id=f"{case.sentence} ({now_s:.0f} s)")
        for number, case in enumerate(CASES)
        for now_s in case.found
    ],
)
def test_an_audit_finds_exactly_what_is_wrong(
    number: int, now_s: float, audits: dict[float, list[tuple[str, str, str]]]
) -> None:
    """Who gets false alarms stops to read them; who misses a loss pays for it."""
    accounts = {f"a@world{number}", f"b@world{number}"}
    here = [
        (kind, msg_id)
        for kind, msg_id, who in audits[now_s]
        if accounts.intersection(who.split())
    ]
    assert here == CASES[number].found[now_s]


def test_only_the_accounts_that_are_said_to_be_covered_are(
    spark: SparkSession, lines: Lines
) -> None:
    """An operator may know that the journals of some are incomplete."""
    silent_receiver(lines)
    events = lines.frame(spark)
    limits = Limits(now=NOON + timedelta(seconds=LATER))
    covered = coverage(events, ["a@x"])
    assert anomalies(deliveries(events), covered, limits).collect() == []


def test_the_evidence_is_all_that_is_known_of_the_message(
    spark: SparkSession, lines: Lines
) -> None:
    """Who is told of a loss wants to see it."""
    no_hand_over("held", "done")(lines)
    events = lines.frame(spark)
    limits = Limits(now=NOON + timedelta(days=1))
    (row,) = anomalies(deliveries(events), coverage(events), limits).collect()
    assert '"outcome":"delivered"' in row["evidence"]
    assert '"held_at":"2026-01-05T12:00:00.500Z"' in row["evidence"]
    assert '"hand_overs":0' in row["evidence"]
