"""All records of a subject are found again, and little else is read."""

import random
import shutil
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frames import NOON, Lines
from qos.audit import endpoint_summary
from qos.audit.subject_records import GATHERED, Part, Records, RecordStore, gathered
from qos.audit.subjects import message_subject, subject
from qos.audit.tables import deliveries, deliveries_of, queue_items

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

DAY_S = 86_400.0


def known(spark: SparkSession, lines: Lines) -> Records:
    """The records that a step gets from some lines."""
    events = lines.frame(spark)
    messages = endpoint_summary.in_spark(events.where(endpoint_summary.is_of_message()))
    others = events.where(~F.coalesce(endpoint_summary.is_of_message(), F.lit(False)))
    return Records(
        messages.withColumn("subject", message_subject()),
        others.withColumn("subject", subject()),
    )


def steps(state: RecordStore, given: list[Records], parts: list[Part]) -> list[Part]:
    """The parts after each has been taken in."""
    for new in given:
        step = parts[-1].last + 1 if parts else 0
        found = state.look_up(new.subjects(), parts)
        parts = [*parts, state.write(new + found, step)]
    return parts


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def some_lines() -> Lines:
    """Messages of two sides, an item with several lives, and what is refused."""
    lines = Lines()
    for number in range(6):
        at = 100.0 * number
        ends = ("accepted", "offered", "received", "released", "delivered")
        lines.sent(*ends[: 5 - number % 2], at=at, msg_id=f"m{number}")
        lines.got("held", "released", "handed-over", "done", at=at, msg_id=f"m{number}")
        item = {"queue": "q", "item": f"i{number % 4}"}
        lines.line("q@x", "queue", "published", at, bytes=3, source="a@x/1", **item)
        lines.line("q@x", "queue", "acquired", at + 1, to="w@x/1", **item)
        lines.line("q@x", "queue", "accepted", at + 2, source="w@x/1", **item)
    lines.line("b@x/1", "receiver", "refused", 5, source="z@x", condition="policy")
    return lines


@pytest.mark.long
def test_lines_in_any_order_come_to_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each row is made only from the newest part; a gathered part gives the same."""
    lines = some_lines()
    chance = random.Random(3)
    mixed = [*lines.rows, *chance.sample(lines.rows, 9)]
    chance.shuffle(mixed)
    given = []
    for number in range(3):
        some = Lines()
        some.rows = mixed[number::3]
        given.append(known(spark, some))
    events = lines.frame(spark)
    messages, items = rows(deliveries(events)), rows(queue_items(events))
    subjects = known(spark, lines).subjects().localCheckpoint()
    begun = steps(RecordStore(spark, str(tmp_path / "apart")), given[:2], [])
    shutil.copytree(tmp_path / "apart", tmp_path / "gathered")
    for name in ("apart", "gathered"):
        state, parts = RecordStore(spark, str(tmp_path / name)), begun
        if name == "gathered":
            parts = [state.gather(parts, parts, None)]
            assert parts == [Part(0, 1)]
        parts = steps(state, given[2:], parts)
        state.clean(parts)
        names = {f"{part.first}-{part.last}" for part in parts}
        assert {path.name for path in (tmp_path / name / "parts").iterdir()} == names
        found = state.look_up(subjects, parts)
        assert rows(deliveries_of(found.messages)) == messages, name
        assert rows(queue_items(found.lines)) == items, name
        of_each = Counter(row["subject"] for row in found.messages.collect())
        assert len(of_each) == 6, name


def test_only_the_parts_that_know_a_subject_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And of a gathered part only the rows of the steps that do."""
    state = RecordStore(spark, str(tmp_path))
    one, other = (
        known(spark, Lines().sent("accepted", msg_id=name)) for name in ("m1", "m2")
    )
    parts = steps(state, [one, other, one], [])
    found = state.look_up(one.subjects(), parts)
    assert found.messages.select("msg_id").distinct().collect() == [("m1",)]
    assert found.messages.count() == 2
    assert found.lines.count() == 0
    assert state.look_up(one.subjects(), []).messages.count() == 0


def test_what_has_ended_long_ago_is_not_gathered(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Open subjects stay, however old they are."""
    lines = Lines()
    lines.sent("accepted", "delivered", msg_id="old")
    lines.sent("accepted", "offered", msg_id="old and open")
    lines.sent("accepted", "delivered", msg_id="new", at=3 * DAY_S)
    lines.sent("accepted", "delivered", msg_id="held").got("held", msg_id="held")
    # Another node says the end of it; and a device that of a message to its account.
    lines.got("held", "done", msg_id="held", node="h@x/1", to="h@x/1")
    lines.got("held", msg_id="done", to="b@x").got("done", msg_id="done")
    lines.line("q@x", "queue", "published", 0, queue="q", item="open")
    lines.line("q@x", "queue", "published", 1, queue="q", item="ended")
    lines.line("q@x", "queue", "purged", 2, queue="q", item="ended")
    for day in (-2, -1, 0):
        since = NOON + timedelta(days=day)
        counts = {"since": since, "sent": day, "received": 0}
        lines.line("a@x/1", "journal", "counted", day * DAY_S + 300, **counts)
    state = RecordStore(spark, str(tmp_path))
    parts = steps(state, [known(spark, lines), state.nothing()], [])
    whole = state.read(state.gather(parts, parts, date(2026, 1, 6)))
    # With a count of the sixth those of the evening before may be needed again.
    counted = whole.lines.where("event = 'counted'").select("sent").collect()
    assert {row["sent"] for row in counted} == {-1, 0}
    messages = {row["msg_id"] for row in whole.messages.select("msg_id").collect()}
    assert messages == {"old and open", "new", "held"}
    items = whole.lines.where("item is not null").select("item").collect()
    assert {row["item"] for row in items} == {"open"}


def gather_all(parts: list[Part], open_from: date | None) -> int:
    """Gather what is to be gathered; returns how many steps were in it."""
    moved = 0
    while some := gathered(parts, open_from):
        begin = parts.index(some[0])
        assert parts[begin : begin + len(some)] == list(some)
        whole = Part(some[0].first, some[-1].last, some[-1].latest)
        parts[begin : begin + len(some)] = [whole]
        moved += whole.last - whole.first + 1
    return moved


def test_the_number_of_parts_grows_as_a_logarithm() -> None:
    """And each step is gathered as often as there are sizes of parts."""
    parts: list[Part] = []
    moved = 0
    for step in range(GATHERED**2 * 3):
        parts.append(Part(step, step))
        moved += gather_all(parts, None)
        assert len(parts) <= 3 * GATHERED
    assert parts[0].first == 0
    assert moved <= 2 * GATHERED**2 * 3


def test_parts_of_closed_days_become_one() -> None:
    """A step looks through the open days, and the open subjects of earlier days."""
    looks_a_day, late = 24, timedelta(days=3)
    parts: list[Part] = []
    for step in range(looks_a_day * 40):
        day = NOON.date() + timedelta(days=step // looks_a_day)
        open_from = day - late
        parts.append(Part(step, step, day))
        gather_all(parts, open_from)
        closed = [part for part in parts if (part.latest or day) < open_from]
        assert len(closed) <= 1
        of_others = step + 1 - sum(part.last - part.first + 1 for part in closed)
        assert of_others <= looks_a_day * (late.days + 1) + GATHERED
