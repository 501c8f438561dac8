"""Arrow, while lines are checked, and Spark make the same summary of them."""

import random
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frames import Lines
from qos.audit import boot_runs, endpoint_summary, pairing
from qos.audit.lines import CHECKED
from qos.audit.tables import deliveries_of, repeated
from qos.journal.schema import EVENTS, Role

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

ROLES = {f"{role.value}@x/1": role for role in Role}


def random_lines(chance: random.Random, count: int) -> Lines:
    """Lines of any node, about few messages, at few times: many coincide."""
    made = Lines()
    for _ in range(count):
        node = chance.choice(sorted(ROLES))
        role = ROLES[node]
        made.line(
            node,
            role.value,
            chance.choice([event.value for event in EVENTS[role]]),
            chance.randint(0, 5),
            boot=chance.choice(["one", "two"]),
            level=chance.choice([None, "assured", "acknowledged"]),
            msg_id=chance.choice([None, "m1", "m2", "m3"]),
            source=chance.choice([None, "a@x/1", "a@x/2"]),
            to=chance.choice([None, "b@x", "b@x/1"]),
            attempt=chance.choice([None, 1, 2]),
            bytes=chance.choice([None, 10, 20]),
            condition=chance.choice([None, "gone"]),
            journal=chance.choice([None, 1, 2]),
        )
    return made


def in_arrow(some: Lines) -> pa.Table:
    return pa.Table.from_pylist(some.rows, CHECKED)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """As Spark returns them."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name, value in row.items():
            if hasattr(value, "astimezone"):
                row[name] = value.astimezone(UTC).replace(tzinfo=None)
    return rows


def test_a_node_tells_the_same_of_a_message_in_spark_and_in_arrow(
    spark: SparkSession,
) -> None:
    """An audit makes its deliveries from the one, a follower from the other."""
    some = random_lines(random.Random(1), 1000)
    frame = endpoint_summary.in_spark(
        some.frame(spark).where(endpoint_summary.is_of_message())
    )
    table = in_arrow(some)
    made = endpoint_summary.in_arrow(
        table.filter(endpoint_summary.are_of_messages(table))
    )
    assert made.column_names == frame.columns
    # In Spark each end of a message has a row.
    assert 100 < len(made) < frame.count() < 750
    in_one = spark.createDataFrame(rows_of(made), frame.schema)
    tellers = in_one.select("source", "msg_id", "level", "node", "to")
    assert tellers.distinct().count() == len(made)
    assert messages(in_one) == messages(frame)
    assert any("in-doubt" in row for row in messages(frame))


def messages(by_teller: DataFrame) -> list[str]:
    """As text, as they have no order."""
    return sorted(map(repr, deliveries_of(by_teller).collect()))


def test_a_line_that_is_given_twice_changes_no_message(spark: SparkSession) -> None:
    """The distribution of the lines does not matter.

    Rows of the same lines give one row.
    """
    some = random_lines(random.Random(2), 750)
    parts = [Lines(), Lines(), Lines()]
    for number, row in enumerate(some.rows):
        # Each line is in two of the parts.
        parts[number % 3].rows.append(row)
        parts[(number + 1) % 3].rows.append(row)
    tables = [in_arrow(part) for part in parts]
    given = pa.concat_tables(
        endpoint_summary.in_arrow(table.filter(endpoint_summary.are_of_messages(table)))
        for table in tables
    )
    once = endpoint_summary.in_spark(
        some.frame(spark).where(endpoint_summary.is_of_message())
    )
    twice = spark.createDataFrame(rows_of(given), once.schema)
    assert twice.count() > once.count()
    assert messages(twice) == messages(once)
    assert any(row["hand_overs"] > 2 for row in deliveries_of(once).collect())


def records(spark: SparkSession, parts: list[Lines]) -> DataFrame:
    """The records that Arrow makes of each part."""
    made = pa.concat_tables(
        endpoint_summary.in_arrow(table.filter(endpoint_summary.are_of_messages(table)))
        for table in map(in_arrow, parts)
    )
    like = endpoint_summary.in_spark(Lines().frame(spark))
    return spark.createDataFrame(rows_of(made), like.schema)


def lines_of_messages(chance: random.Random, count: int) -> Lines:
    """Lines of many messages; a few have several records of a side."""
    made = random_lines(chance, count)
    for row in made.rows:
        # Every line of a message has them.
        number = chance.randint(1, count // 10)
        usual = number % 9 > 0
        row |= {"msg_id": f"m{number}", "level": "assured", "source": "sender@x/1"}
        row["to"] = "b@x/1" if usual else row["to"]
    return made


def test_joined_records_make_the_same_messages(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever join Spark takes, and if too many messages have repeated records."""
    some = lines_of_messages(random.Random(3), 1500)
    # A node's lines about a message may be in two files.
    parts = [Lines(), Lines()]
    for row in some.rows:
        is_second = row["msg_id"].endswith("7") and row["at"].second % 2
        parts[1 if is_second else 0].rows.append(row)
    found = records(spark, parts).localCheckpoint()
    again = repeated(found).count()
    whole = messages(found)
    assert 10 < again < len(whole) - 50
    like = deliveries_of(found).schema.simpleString()
    for hashed, few in ((10**6, 10**6), (0, 10**6), (10**6, 0)):
        monkeypatch.setattr(pairing, "_HASHED_MAX", hashed)
        monkeypatch.setattr(pairing, "_FEW", few)
        joined = pairing.messages_of(found)
        rows = joined.collect()
        assert sorted(map(repr, rows)) == whole, (hashed, few)
        assert joined.schema.simpleString() == like, (hashed, few)
        both = [row for row in rows if row["sender_node"] and row["held_at"]]
        assert len(both) > 25, (hashed, few)


def test_records_that_are_never_repeated_are_only_joined(spark: SparkSession) -> None:
    """Without such a message, nothing is aggregated."""
    some = lines_of_messages(random.Random(4), 1000)
    for row in some.rows:
        row["to"] = "b@x/1"
    found = records(spark, [some])
    assert repeated(found).isEmpty()
    joined = pairing.messages_of(found)
    assert sorted(map(repr, joined.collect())) == messages(found)


@pytest.mark.parametrize("count", [0, 1, 150])
def test_stretches_of_lines_tell_what_the_lines_do(
    count: int, spark: SparkSession
) -> None:
    """However the lines lie: gaps, and the clock."""
    chance = random.Random(count)
    some = random_lines(chance, count)
    some.rows = [row for row in some.rows if chance.random() < 0.9]
    some.rows.sort(key=lambda row: (row["boot"], row["seq"]))
    some.rows += chance.sample(some.rows, len(some.rows) // 9)
    stretches = boot_runs.stretches(in_arrow(some))
    assert len(stretches) <= len(some.rows)
    told = F.lit(boot_runs.TOLD)
    each = boot_runs.runs(some.of_journals(spark), told, F.col("journal"))
    together = spark.createDataFrame(rows_of(stretches), each.schema)
    found, expected = (
        sorted(boot_runs.merged(pieces, tolerance_s=2).collect(), key=repr)
        for pieces in (together, each)
    )
    assert found == expected
