"""Verdicts: what the lines prove, and above all what they do not prove.

Each case is separate: accounts a and b of its own domain. All cases go through Spark
together, because a query takes some seconds for any amount of data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frames import NOON, Lines, after, runs_of
from qos.audit.tables import (
    Limits,
    anomalies,
    deliveries,
    judged,
    judged_ok,
    routes_hourly,
    unproven_hourly,
    with_suspicion,
)
from qos.journal.files import quoted
from qos.journal.schema import ITEMS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")
DOUBT = ("accepted", "offered", "received", "released", "in-doubt")

#: The time of the audit, in seconds after noon: everything open is old by then.
NOW_S = 6 * 3600.0

DAY_S = 86_400.0


def kept(lines: Lines, *devices: str, **fields: object) -> Lines:
    """The journals of these devices begin long before noon; see `until`."""
    for device in devices or ("a", "b"):
        _says(lines, device, -900, **fields)
    return lines


def until(lines: Lines, at: float, *devices: str, **fields: object) -> Lines:
    """They continue until then: each has a line about something else."""
    for device in devices or ("a", "b"):
        _says(lines, device, at, **fields)
    return lines


def _says(lines: Lines, device: str, at: float, **fields: object) -> None:
    node = f"{device}@{lines.domain}" if "/" in device else f"{device}@{lines.domain}/1"
    if "/" in device:
        user, _, resource = device.partition("/")
        node = f"{user}@{lines.domain}/{resource}"
    lines.line(node, "worker", "lost", at, **fields)


# -- worlds ----------------------------------------------------------------


def all_well(lines: Lines) -> None:
    kept(lines).sent(*SENT).got(*GOT)
    lines.sent("accepted", "offered", "not-delivered", msg_id="refused")
    lines.sent("accepted", "withdrawn", msg_id="withdrawn")
    lines.got("held", msg_id="withdrawn")
    lines.got("held", "expired", msg_id="expired", source="c@elsewhere/1")
    until(lines, 600)


def no_hand_over(*receiver: str) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        until(kept(lines).sent(*SENT).got(*receiver), 600)

    return build


def strangers(lines: Lines) -> None:
    kept(lines).sent(*SENT, to="stranger@elsewhere/1")
    # Of b only the device /1 has a journal.
    lines.sent(*SENT, msg_id="2", to=f"b@{lines.domain}/2")
    lines.got(*GOT, msg_id="3", source="stranger@elsewhere/1")
    until(lines, 600)


def acknowledged(lines: Lines) -> None:
    kept(lines).sent(*SENT, level="acknowledged")
    for at in (0, 9):
        events = ("released", "handed-over", "done")
        lines.got(*events, at=at, msg_id="iq", level="acknowledged")
    until(lines, 600)


def sibling_began_later(lines: Lines) -> None:
    """Its account has a journal all the time, but of another device."""
    kept(lines).sent(*SENT, to=f"b@{lines.domain}/2")
    kept(lines, "b/2", boot="late")
    lines.rows[-1]["at"] = NOON + timedelta(seconds=300)
    until(until(lines, 600), 600, "b/2", boot="late")


def not_closed_yet(lines: Lines) -> None:
    """The receiver's last line is of a minute after the message, and no more."""
    kept(lines).sent(*SENT).sent(*SENT, msg_id="held")
    lines.got("held", "released", msg_id="held")
    until(until(lines, 600, "a"), 60, "b")


def power_cut(lines: Lines) -> None:
    """The tail of a boot is gone with the power; then the device starts again."""
    kept(lines).sent(*SENT).got("held", "released")
    until(until(lines, 600, "a"), 600, "b", boot="after the power cut")


def journal_off(lines: Lines) -> None:
    """For a day the device has kept none, so that nothing is known of that time."""
    kept(lines, "a")
    kept(lines, "b", boot="before")
    lines.sent(*SENT)
    until(until(lines, 600, "a"), DAY_S, "b", boot="after")


def without(lines: Lines, node: str, *events: str) -> None:
    """Remove these lines: their numbers are missing."""
    name = f"{node}@{lines.domain}/1"
    lines.rows = [
        row
        for row in lines.rows
        if not (row["node"] == name and row["event"] in events)
    ]


def middle_file_is_missing(lines: Lines) -> None:
    all_well(lines)
    without(lines, "b", "held", "released", "handed-over", "done", "expired")


def only_the_hand_over_is_missing(lines: Lines) -> None:
    kept(lines).sent(*SENT).got(*GOT)
    lines.got(*GOT, msg_id="of a stranger", source="stranger@elsewhere/1")
    without(until(lines, 600), "b", "handed-over")


def sender_has_a_hole(lines: Lines) -> None:
    all_well(lines)
    without(lines, "a", *SENT, "not-delivered", "withdrawn")


def upgraded(lines: Lines) -> None:
    """The receiver writes lines that only a newer version can read."""
    kept(lines).sent(*SENT)
    for at in range(4):
        until(lines, at, "b", unreadable=True)
    until(lines, 600)


def clock_went_back(lines: Lines) -> None:
    kept(lines).sent(*SENT)
    until(lines, 300, "b")
    until(until(lines, -800, "b"), 600)


def to_an_account(lines: Lines) -> None:
    """The device that has begun to receive it is known.

    Nothing is known of the other.
    """
    kept(lines).sent(*SENT, to=f"b@{lines.domain}")
    lines.sent(*SENT, to=f"b@{lines.domain}", msg_id="held").got(
        "held", "released", to=f"b@{lines.domain}", msg_id="held"
    )
    until(lines, 600)


def released_later(lines: Lines) -> None:
    """The receiver's journal began between the acceptance and the release."""
    kept(lines, "b")
    lines.rows[-1]["at"] = NOON + timedelta(seconds=100)
    lines.sent("accepted", "offered", at=-10)
    lines.sent("received", "released", "delivered", at=300)
    until(lines, 600)


def released_in_a_hole(lines: Lines) -> None:
    released_later(lines)
    without(lines, "a", "received")


def one_name_two_journals(lines: Lines) -> None:
    """Two processes keep journals as the same node: one of them has handed it over."""
    kept(kept(lines), "b", boot="another")
    lines.sent(*SENT)
    until(until(lines, 600), 600, "b", boot="another")


def namesake(
    at: float, *, more: bool = False, who: str = "b"
) -> Callable[[Lines], None]:
    """Another device has the same full JID, and its last line is of this time.

    Only the one with the first journal may have a line about the message; of `more`, it
    has one.
    """

    def build(lines: Lines) -> None:
        kept(kept(lines), who, boot="another", journal=2)
        if who == "b":
            lines.sent(*SENT)
        if more or who == "a":
            lines.got(*(GOT if who == "a" else ("held", "released")))
        until(until(lines, 600), at, who, boot="another", journal=2)

    return build


def copied(lines: Lines) -> None:
    """A copy of the beginning of a journal is in another folder."""
    kept(lines)
    lines.rows += [{**row, "journal": 2} for row in lines.rows]
    until(lines.sent(*SENT), 600)


def moved(lines: Lines) -> None:
    """The device has begun a new journal in another folder."""
    kept(kept(lines, "a"), "b", boot="before", journal=2)
    until(lines, -800, "b", boot="before", journal=2)
    kept(lines, "b")
    lines.rows[-1]["at"] = NOON - timedelta(seconds=700)
    until(lines.sent(*SENT), 600)


def named(node: str, *, file: str = "") -> Callable[[Lines], None]:
    """Of another journal there is only a file that is not closed, perhaps of another
    node.
    """

    def build(lines: Lines) -> None:
        jid = node.format(lines.domain)
        kept(lines, "a").sent(*SENT, to=jid)
        for at in (-900, 600):
            lines.line(jid, "worker", "lost", at)
        of = (file or node).format(lines.domain)
        name = f".{quoted(of)}-00ff00ff00ff00ff-1.jsonl"
        lines.open_files.append(f"/other/date=2026-01-05/{name}")
        until(lines, 600, "a")

    return build


def component(
    *got: str,
    until_s: float = 600,
    of_device: bool = False,
    to: str = "lamp@gate.{}/1",
) -> Callable[[Lines], None]:
    """A message to an address of a component, which has a journal of its domain.

    Args:
        got: what it told of the message.
        until_s: when its journal ends.
        of_device: the address itself has a journal, too.
        to: the address.
    """

    def build(lines: Lines) -> None:
        domain = lines.domain
        gate, address = f"gate.{domain}", to.format(domain)
        kept(lines, "a").sent(*SENT, to=address)
        lines.line(gate, "worker", "lost", -900)
        if of_device:
            for at in (-900, 60):
                lines.line(address, "worker", "lost", at, journal=2)
        if got:
            lines.got(*got, node=gate, to=address)
        lines.line(gate, "worker", "lost", until_s)
        until(lines, 600, "a")

    return build


def strangers_gate(lines: Lines) -> None:
    until(kept(lines, "a").sent(*SENT, to=f"lamp@gate.{lines.domain}/1"), 600, "a")


def with_items(build: Callable[[Lines], None]) -> Callable[[Lines], None]:
    """Beside what this builds, the component has a writer of items."""

    def built(lines: Lines) -> None:
        build(lines)
        own = f"gate.{lines.domain}"
        path = f"date=2026-01-05/{quoted(own)}-0123456789abcdef{ITEMS}-1.jsonl"
        lines.open_files.append(f"/elsewhere/{path}")
        for at in (-900, 0, 900):
            lines.line(own, "journal", "opened", at)
            lines.rows[-1]["boot"] += ITEMS

    return built


def from_a_component(*sent: str) -> Callable[[Lines], None]:
    """A message from an address of a component."""

    def build(lines: Lines) -> None:
        gate = f"gate.{lines.domain}"
        source = f"door@{gate}/1"
        kept(lines, "b").got(*GOT, source=source)
        lines.line(gate, "worker", "lost", -900)
        if sent:
            lines.sent(*sent, node=gate, source=source)
        lines.line(gate, "worker", "lost", 600)
        until(lines, 600, "b")

    return build


def another_device_took_it(lines: Lines) -> None:
    to = f"b@{lines.domain}/1"
    kept(lines).sent(*SENT)
    lines.got(*GOT, node=f"b@{lines.domain}/2", to=to)
    until(lines, 600)


def twice(*, holds: int = 1, **fields: Any) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        kept(lines)
        for _ in range(holds):
            lines.got("held", **fields)
        lines.got("released", "handed-over", "done", "handed-over", at=5, **fields)
        if not fields:
            lines.sent(*SENT)
        until(lines, 600)

    return build


def twice_with_a_hole(lines: Lines) -> None:
    """The line that says that it was held again may be the one that is missing."""
    twice(holds=2, source="hole@elsewhere/2")(lines)
    held = [row for row in lines.rows if row["event"] == "held"]
    lines.rows.remove(held[1])


def twice_after_a_hole(lines: Lines) -> None:
    """The first hold is missing: the run is complete, but the message is not."""
    source = "before@elsewhere/2"
    kept(lines).got(*GOT, source=source).got(*GOT, at=30, source=source)
    until(lines, 600)
    held = [row for row in lines.rows if row["event"] == "held"]
    lines.rows.remove(held[0])


def foreigner_and_a_wrong_clock(lines: Lines) -> None:
    kept(lines, "b").got("held", "released", source="f@elsewhere/1")
    lines.got("handed-over", "done", at=-300, source="f@elsewhere/1")


def marked_as_a_repeat(lines: Lines) -> None:
    kept(lines).sent(*SENT).got("held", "released", "handed-over")
    lines.got("redelivered", "done", at=30, boot="another")


def unknown_to_its_sender(lines: Lines) -> None:
    until(kept(lines).got(*GOT), 600)


def orphan_that_is_not_closed(lines: Lines) -> None:
    until(kept(lines).got(*GOT), 60)


def orphan_before_its_sender(lines: Lines) -> None:
    kept(lines, "b").got(*GOT)
    until(until(lines, 30, "a"), 600)


def orphan_without_its_hold(lines: Lines) -> None:
    unknown_to_its_sender(lines)
    without(lines, "b", "held")


def orphan_of_an_account(lines: Lines) -> None:
    until(kept(lines).got(*GOT, source=f"a@{lines.domain}"), 600)


def waits(
    sender: tuple[str, ...], receiver: tuple[str, ...], *, until_s: float = 2 * 3600
) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        until(kept(lines).sent(*sender).got(*receiver), until_s)

    return build


def outstanding_over_a_restart(lines: Lines) -> None:
    waits(("accepted", "offered"), ())(lines)
    until(lines, 3 * 3600, "a", boot="after")


def held_with_a_hole(lines: Lines) -> None:
    waits((), ("held", "released", "expired", "held"))(lines)
    without(lines, "b", "expired")


def wrong_when_it_was_sent(lines: Lines) -> None:
    """The sender's clock was hours ahead, and is set right after the message."""
    kept(lines).sent(*SENT, at=7200)
    until(until(lines, 900, "a"), 9000, "b")


def in_doubt(lines: Lines) -> None:
    kept(lines).sent(*DOUBT, msg_id="1").got(*GOT, msg_id="1")
    lines.sent(*DOUBT, msg_id="2").got("held", "expired", msg_id="2")
    lines.sent(*DOUBT, msg_id="3")
    lines.sent(*DOUBT, msg_id="4", to="stranger@elsewhere/1")
    lines.sent(*DOUBT, msg_id="5").got("held", "released", msg_id="5")
    until(lines, 600)


def clock_is_ahead(seconds: float) -> Callable[[Lines], None]:
    def build(lines: Lines) -> None:
        for number in range(5):
            lines.sent(*SENT, at=300 * number, msg_id=str(number))
            lines.got(*GOT, at=300 * number + seconds, msg_id=str(number))

    return build


@dataclass(frozen=True)
class Case:
    """The expected result of an audit, as (verdict, msg_id); everything else is ok."""

    sentence: str
    build: Callable[[Lines], None]
    found: Sequence[tuple[str, str]] = ()


CASES = [
    Case("what went well is ok", all_well),
    Case(
        "done but never handed over is lost",
        no_hand_over("held", "released", "done"),
        [("lost", "m1")],
    ),
    Case(
        "delivered and only released at the receiver is lost",
        no_hand_over("held", "released"),
        [("lost", "m1")],
    ),
    Case("delivered and only held is lost", no_hand_over("held"), [("lost", "m1")]),
    Case(
        "delivered to a receiver that says nothing is lost",
        no_hand_over(),
        [("lost", "m1")],
    ),
    Case(
        "a component is a device without a resource",
        component(to="gate.{}"),
        [("lost", "m1")],
    ),
    Case(
        "a node without a journal is accused of nothing",
        strangers,
        [
            ("lost? no-journal", "2"),
            ("lost? no-journal", "m1"),
            ("orphaned? no-journal", "3"),
        ],
    ),
    Case("acknowledged messages have two ids, and may come twice", acknowledged),
    Case(
        "a sibling that began later is not its account",
        sibling_began_later,
        [("lost? began-later", "m1")],
    ),
    Case(
        "what may be in a file that is not closed is not lost",
        not_closed_yet,
        [("lost? not-closed", "held"), ("lost? not-closed", "m1")],
    ),
    Case(
        "the tail of a power cut is not proven by the next boot",
        power_cut,
        [("lost? journal-off", "m1")],
    ),
    Case(
        "a journal that was off for a day proves nothing of that day",
        journal_off,
        [("lost? journal-off", "m1")],
    ),
    Case(
        "a file in the middle that was not copied is a hole",
        middle_file_is_missing,
        [("lost? hole", "m1")],
    ),
    Case(
        "a hole where the hand-over was is a hole, also before a done",
        only_the_hand_over_is_missing,
        [("lost? hole", "m1")],
    ),
    Case(
        "a hole of the sender orphans nothing",
        sender_has_a_hole,
        [("orphaned? hole", "m1"), ("stuck? not-closed", "withdrawn")],
    ),
    Case(
        "lines of a newer version hide what they say",
        upgraded,
        [("lost? newer-version", "m1")],
    ),
    Case(
        "a clock that went back proves nothing of its run",
        clock_went_back,
        [("lost? clock", "m1")],
    ),
    Case(
        "of a message to an account only its own lines tell the device",
        to_an_account,
        [("lost", "held"), ("lost? which-device", "m1")],
    ),
    Case(
        "a journal that began before a message was released is asked for it",
        released_later,
        [("lost", "m1")],
    ),
    Case(
        "with a hole of the sender it may have been released before",
        released_in_a_hole,
        [("lost? began-later", "m1")],
    ),
    Case(
        "two journals of one name prove nothing of each other",
        one_name_two_journals,
        [("lost? which-device", "m1")],
    ),
    Case(
        "a journal that ends earlier does not speak for its namesake",
        namesake(-500),
        [("lost? which-journal", "m1")],
    ),
    Case(
        "nor where the other one has lines of the message",
        namesake(-500, more=True),
        [("lost? which-journal", "m1")],
    ),
    Case(
        "nor does one sender for its namesake",
        namesake(-500, who="a"),
        [("orphaned? which-journal", "m1")],
    ),
    Case(
        "two namesakes that are both silent are a proof",
        namesake(600),
        [("lost", "m1")],
    ),
    Case(
        "and so are two senders",
        namesake(600, who="a"),
        [("orphaned", "m1")],
    ),
    Case("a copy of a journal is of the same device", copied, [("lost", "m1")]),
    Case(
        "a journal that was moved may be of two devices",
        moved,
        [("lost? which-journal", "m1")],
    ),
    Case(
        "a file that is not closed shows by its name that there is a namesake",
        named("b@{}/1"),
        [("lost? which-journal", "m1")],
    ),
    Case(
        "also if the name is so long that it is cut",
        named("b@{}/" + "\u00e4" * 100),
        [("lost? which-journal", "m1")],
    ),
    Case(
        "a file of another node does not",
        named("b@{}/2", file="b@{}/3"),
        [("lost", "m1")],
    ),
    Case(
        "another device does not hand over for the one that was addressed",
        another_device_took_it,
        [("lost", "m1")],
    ),
    Case("a component hands over for all its addresses", component(*GOT)),
    Case(
        "also what is sent to itself",
        component(*GOT, to="gate.{}"),
    ),
    Case("and to an account of it", component(*GOT, to="lamp@gate.{}")),
    Case(
        "the silence of a component is a proof for its addresses",
        component(),
        [("lost", "m1")],
    ),
    Case(
        "but not after its journal ends",
        component(until_s=0.5),
        [("lost? not-closed", "m1")],
    ),
    Case(
        "nor for an address that has a journal of its own",
        component(of_device=True),
        [("lost? not-closed", "m1")],
    ),
    Case(
        "another domain is no proof",
        component(to="lamp@other.{}/1"),
        [("lost? no-journal", "m1")],
    ),
    Case(
        "a journal of items of the same name neither helps nor harms",
        with_items(component()),
        [("lost", "m1")],
    ),
    Case(
        "and is no journal of messages",
        with_items(strangers_gate),
        [("lost? no-journal", "m1")],
    ),
    Case("a component sends for all its addresses", from_a_component(*SENT)),
    Case(
        "and what it does not know is orphaned",
        from_a_component(),
        [("orphaned", "m1")],
    ),
    Case("two hand-overs are duplicated", twice(), [("duplicated", "m1")]),
    Case("one that is marked as a repeat is not", marked_as_a_repeat),
    Case(
        "a stranger may use a msg_id again",
        twice(holds=2, source="again@elsewhere/1"),
        [("orphaned? no-journal", "m1")],
    ),
    Case(
        "a stranger's message that was held once is handed over once",
        twice(source="doubled@elsewhere/2"),
        [("duplicated", "m1")],
    ),
    Case(
        "a stranger's message may have been held again in a hole",
        twice_with_a_hole,
        [("duplicated? hole", "m1")],
    ),
    Case(
        "a stranger's message may have been held before a hole",
        twice_after_a_hole,
        [("duplicated? hole", "m1")],
    ),
    Case(
        "of a foreigner nothing is known, whatever the clock was",
        foreigner_and_a_wrong_clock,
        [("orphaned? no-journal", "m1")],
    ),
    Case(
        "a hand-over that its sender does not know is orphaned",
        unknown_to_its_sender,
        [("orphaned", "m1")],
    ),
    Case(
        "a sender's file that is not closed orphans nothing",
        orphan_that_is_not_closed,
        [("orphaned? not-closed", "m1")],
    ),
    Case(
        "a sender without a journal at that time orphans nothing",
        orphan_before_its_sender,
        [("orphaned? began-later", "m1")],
    ),
    Case(
        "without the hold nobody knows when it was sent",
        orphan_without_its_hold,
        [("orphaned? hole", "m1")],
    ),
    Case(
        "a message from an account is of any of its devices",
        orphan_of_an_account,
        [("orphaned? which-device", "m1")],
    ),
    Case(
        "what was accepted waits in the outbox",
        waits(("accepted",), ()),
        [("stuck", "m1")],
    ),
    Case(
        "what is held and not released is stuck once",
        waits(("accepted", "offered", "received"), ("held",)),
        [("stuck", "m1")],
    ),
    Case(
        "what is released and not handed over is stuck once",
        waits(SENT[:4], ("held", "released")),
        [("stuck", "m1")],
    ),
    Case("held for a stranger is stuck", waits((), ("held",)), [("stuck", "m1")]),
    Case(
        "released by a stranger is stuck",
        waits((), ("held", "released")),
        [("stuck", "m1")],
    ),
    Case(
        "what expired and was held again is stuck",
        waits((), ("held", "expired", "held")),
        [("stuck", "m1")],
    ),
    Case(
        "how it went on may be in a file that is not closed",
        waits(("accepted", "offered"), (), until_s=1800),
        [("stuck? not-closed", "m1")],
    ),
    Case(
        "how it went on may be in the next boot, that was not off for long",
        outstanding_over_a_restart,
        [("stuck? journal-off", "m1")],
    ),
    Case(
        "what was held and then not seen for a while may have been handed over",
        held_with_a_hole,
        [("stuck? hole", "m1")],
    ),
    Case(
        "a clock that was wrong proves nothing of what was written then",
        wrong_when_it_was_sent,
        [("lost? clock", "m1")],
    ),
    Case(
        "held, and then the journal ends",
        waits((), ("held",), until_s=1800),
        [("stuck? not-closed", "m1")],
    ),
    Case(
        "in doubt tells how it really ended",
        in_doubt,
        [
            ("in-doubt: delivered", "1"),
            ("in-doubt: not-delivered", "2"),
            ("in-doubt: not-delivered", "3"),
            ("in-doubt: unknown", "4"),
            ("in-doubt: unknown", "5"),
        ],
    ),
    *(
        Case(f"a clock that is {ahead} s ahead loses nothing", clock_is_ahead(ahead))
        for ahead in (-7200, -50, 50, 7200)
    ),
]


def world(number: int) -> Lines:
    lines = Lines(f"world{number}")
    CASES[number].build(lines)
    return lines


@dataclass(frozen=True)
class Worlds:
    """The messages of all cases, and of the world `word`, computed once.

    Attributes:
        messages: before they are judged.
        judged: each of them.
    """

    messages: DataFrame
    judged: DataFrame


#: Of all worlds.
LIMITS = Limits(now=NOON + timedelta(seconds=NOW_S))

#: The domain of a world that is no case: see the test of `rests_on`.
WORD = "word"


@pytest.fixture(scope="module")
def worlds(spark: SparkSession) -> Worlds:
    lines = Lines()
    for number in range(len(CASES)):
        lines += world(number)
    lines += word()
    messages = deliveries(lines.frame(spark)).localCheckpoint()
    # As in an audit: they are read many times.
    runs = runs_of(lines, spark).localCheckpoint()
    of_all = judged(messages, runs, LIMITS)
    return Worlds(messages, of_all.localCheckpoint())


def word() -> Lines:
    """A loss, and a hand-over that its sender does not know."""
    lines = kept(Lines(WORD)).sent(*SENT).got("held", "done")
    return until(lines.got(*GOT, at=5, msg_id="orphan"), 600)


@pytest.fixture(scope="module")
def verdicts(worlds: Worlds) -> list[tuple[str, str, str]]:
    """(verdict, msg_id, the two accounts) of all cases, without those that are ok."""
    found = []
    for row in worlds.judged.where("verdict != 'ok'").collect():
        verdict = row["verdict"]
        if verdict == "unproven":
            verdict = f"{row['suspected']}? {row['reason']}"
        elif row["real_outcome"]:
            verdict = f"{verdict}: {row['real_outcome']}"
        found.append((verdict, row["msg_id"], f"{row['sender']} {row['receiver']}"))
    return sorted(found)


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, id=case.sentence) for number, case in enumerate(CASES)],
)
def test_an_audit_says_exactly_what_the_lines_prove(
    number: int, verdicts: list[tuple[str, str, str]]
) -> None:
    """False alarms make people stop reading; a missed loss is expensive."""
    here = [
        (verdict, msg_id)
        for verdict, msg_id, who in verdicts
        if re.search(rf"\bworld{number}\b", who)
    ]
    assert here == list(CASES[number].found)


def test_a_message_that_is_no_suspect_is_ok_as_if_it_were_judged(
    worlds: Worlds,
) -> None:
    """An audit judges only suspects: one that is missed would never be accused."""
    of_all = worlds.judged
    marked = with_suspicion(worlds.messages, LIMITS).localCheckpoint()
    others = judged_ok(marked.where("not is_suspect"), LIMITS)
    suspects = marked.where("is_suspect").select("level", "sender", "msg_id")
    expected = of_all.join(suspects, suspects.columns, "left_anti")
    assert others.count() > 10
    assert others.schema.names == of_all.schema.names
    columns = of_all.columns
    assert sorted(map(repr, others.select(columns).collect())) == sorted(
        map(repr, expected.select(columns).collect())
    )


def test_a_verdict_names_those_whose_word_it_rests_on(worlds: Worlds) -> None:
    """A user who hears of a loss wants to know the source, and all evidence."""
    messages = worlds.judged.where(F.col("receiver") == f"b@{WORD}")
    rows = {row["msg_id"]: row for row in anomalies(messages).collect()}
    a, b = f"a@{WORD}/1", f"b@{WORD}/1"
    assert rows["m1"]["rests_on"] == [a, b]
    assert rows["orphan"]["rests_on"] == [b, a]
    evidence = rows["m1"]["evidence"]
    assert evidence["outcome"] == "delivered"
    assert evidence["held_at"] == after(0.5)
    assert evidence["hand_overs"] == 0


@pytest.mark.long
def test_what_is_not_proven_is_counted_by_route_and_reason(
    spark: SparkSession, lines: Lines
) -> None:
    """The share of the traffic that can be judged, and the journals that are missing
    for the rest.
    """
    strangers(lines)
    lines.sent(*SENT, at=700, msg_id="well").got(*GOT, at=700, msg_id="well")
    limits = Limits(now=NOON + timedelta(days=1))
    messages = judged(
        deliveries(lines.frame(spark)), runs_of(lines, spark), limits
    ).cache()
    routes = routes_hourly(messages).select(
        "sender", "receiver", "messages", "judged", "unproven"
    )
    assert sorted(tuple(row) for row in routes.collect()) == [
        ("a@x", "b@x", 2, 1, 1),
        ("a@x", "stranger@elsewhere", 1, 0, 1),
        ("stranger@elsewhere", "b@x", 0, 0, 1),
    ]
    reasons = unproven_hourly(messages)
    assert sorted(tuple(row)[2:] for row in reasons.collect()) == [
        ("a@x", "b@x", "lost", "no-journal", "b@x/2", 1),
        ("a@x", "stranger@elsewhere", "lost", "no-journal", "stranger@elsewhere/1", 1),
        (
            *("stranger@elsewhere", "b@x", "orphaned", "no-journal"),
            *("stranger@elsewhere/1", 1),
        ),
    ]
