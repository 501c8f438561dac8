"""The data of the report.

Only anomalies that were not withdrawn, and nothing left out.
"""

from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from frames import NOON
from qos.audit.report_collect import collect
from qos.audit.report_data import DayTotals, Proof, ReportData
from qos.audit.report_headline import nothing_judged
from qos.audit.tables import Limits, queues_hourly, routes_hourly

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

DAY, BEFORE = date(2026, 1, 5), date(2026, 1, 4)
LIMITS = Limits(now=NOON + timedelta(hours=6))


def table(spark: SparkSession, columns: str, *rows: tuple[object, ...]) -> DataFrame:
    """A small table; of `columns` each is a name and a type."""
    return spark.createDataFrame(list(rows), columns)


def deliveries(spark: SparkSession) -> DataFrame:
    """Two messages of a day, three of the next, and one that its receiver alone saw."""
    rows = [
        (BEFORE, NOON - timedelta(days=1), NOON, "delivered", 0.5, "ok"),
        (BEFORE, NOON - timedelta(days=1), NOON, "delivered", 1.5, "ok"),
        (DAY, NOON, NOON, "delivered", 2.5, "ok"),
        (DAY, NOON, NOON, "delivered", 2.5, "ok"),
        (DAY, NOON + timedelta(hours=1), NOON, None, None, "unproven"),
        (DAY, NOON, None, None, None, "unproven"),
    ]
    return table(
        spark,
        "date date, begun_at timestamp, sender_last_at timestamp, outcome string, "
        "latency_s double, verdict string",
        *rows,
    ).select(
        "*",
        _hour("begun_at"),
        F.lit("a@x").alias("sender"),
        F.lit("b@x").alias("receiver"),
        F.lit("assured").alias("level"),
        *(F.lit(0).alias(name) for name in _NUMBERS),
    )


_NUMBERS = ("retries", "hand_overs", "redeliveries", "bytes")


def anomalies(spark: SparkSession) -> DataFrame:
    """One valid anomaly on each day, and one that a later audit has withdrawn."""
    return table(
        spark,
        "date date, kind string, msg_id string, begun_at timestamp, "
        "withdrawn_at timestamp",
        (BEFORE, "lost", "m1", NOON, None),
        (DAY, "lost", "m2", NOON, None),
        (DAY, "lost", "m3", NOON, NOON),
        (DAY, "orphaned", "m4", NOON, NOON),
    ).withColumns({"sender": F.lit("a@x"), "evidence": F.struct("kind")})


def items(spark: SparkSession) -> DataFrame:
    """Of two queues."""
    return table(
        spark,
        "service string, queue string, published_at timestamp, "
        "first_acquired_at timestamp, outcome string, deliveries int, wait_s double",
        ("q.x", "one", NOON, NOON, "accepted", 1, 0.5),
        ("q.x", "one", NOON, None, None, 0, None),
        ("q.x", "two", NOON - timedelta(hours=1), None, None, 0, None),
        ("q.x", "two", NOON, NOON, "dead", 3, 2.0),
        ("q.x", "two", NOON, NOON, "accepted", 2, 1.0),
    ).select("*", F.to_date("published_at").alias("date"), _hour("published_at"))


def _hour(name: str) -> Column:
    return F.hour(name).alias("hour")


@pytest.fixture(scope="module")
def collected(spark: SparkSession) -> ReportData:
    messages = deliveries(spark)
    all_days = {
        "deliveries": messages,
        "routes_hourly": routes_hourly(messages),
        "anomalies": anomalies(spark),
    }
    tables = {name: each.where(F.col("date") == DAY) for name, each in all_days.items()}
    tables["queue_items"] = items(spark)
    tables["queues_hourly"] = queues_hourly(items(spark))
    tables["refusals"] = table(
        spark, "source string, receiver string, condition string, refusals long"
    )
    counts = ["started", "accepted", "released", "modified", "rejected", "lost", "open"]
    tables["workers_hourly"] = table(
        spark,
        "worker string, queue string, busy_s double, handling_p95 double, "
        + ", ".join(f"{name} long" for name in counts),
    )
    tables["unproven_hourly"] = table(
        spark,
        "sender string, receiver string, suspected string, reason string, node string, "
        "messages long",
        ("a@x", "b@x", "lost", "hole", "b@x/1", 2),
        ("a@x", "b@x", "lost", "hole", "b@x/1", 1),
        ("c@x", "b@x", "lost", "hole", "b@x/1", 1),
        ("c@x", "d@x", "orphaned", "no-journal", None, 1),
    )
    tables["windows_hourly"] = table(
        spark,
        "sender string, receiver string, level string, sent long, received long, "
        "windows long, complete long, without_sender long, without_receiver long",
        ("a@x", "b@x", "assured", 5, 5, 12, 12, 0, 0),
        ("a@x", "b@x", "assured", 5, 4, 12, 10, 0, 2),
        ("c@x", "b@x", "assured", 0, 4, 12, 0, 12, 3),
        ("d@x", "b@x", "assured", 1, 1, 12, 12, 0, 0),
    )
    problems = table(
        spark,
        "kind string, place string, count long, example string",
        ("open-file", "/j/.a", 1, ""),
        ("open-file", "/j/.b", 1, ""),
        ("torn-line", "/j/c", 4, "{"),
    )
    return collect(tables, problems, LIMITS, last=DAY, history=all_days)


def test_how_much_could_be_judged_is_summed_over_hours(collected: ReportData) -> None:
    """By reason all messages, and the largest groups one by one."""
    proof = collected.proof
    assert isinstance(proof, Proof)
    assert (proof.judged, proof.unproven, proof.share) == (2, 2, 1 / 2)
    assert proof.reasons == {"hole": 4, "no-journal": 1}
    names = ("sender", "receiver", "suspected", "reason", "node", "messages")
    assert [tuple(row[name] for name in names) for row in proof.routes] == [
        ("a@x", "b@x", "lost", "hole", "b@x/1", 3),
        ("c@x", "b@x", "lost", "hole", "b@x/1", 1),
        ("c@x", "d@x", "orphaned", "no-journal", None, 1),
    ]


def test_windows_are_summed_and_what_is_missing_is_told_by_route(
    collected: ReportData,
) -> None:
    """The routes with the most missing first, and no complete route."""
    found = collected.windows
    assert found is not None
    assert (found.windows, found.complete) == (48, 34)
    assert (found.without_sender, found.without_receiver) == (12, 5)
    names = ("sender", "sent", "received", "windows", "complete")
    assert [tuple(row[name] for name in names) for row in found.routes] == [
        ("c@x", 0, 4, 12, 0),
        ("a@x", 10, 9, 24, 22),
    ]


def test_what_was_withdrawn_is_no_anomaly(collected: ReportData) -> None:
    """A later audit knew better."""
    assert collected.anomaly_counts == {"lost": 1}
    assert [row["msg_id"] for row in collected.anomalies] == ["m2"]
    assert nothing_judged(collected) == ""


def test_a_day_is_compared_with_the_day_before(collected: ReportData) -> None:
    """An earlier audit may have made it.

    A message that only a receiver has recorded does not count.
    """
    assert collected.trend == (DayTotals(BEFORE, 2, 1.5, 1), DayTotals(DAY, 3, 2.5, 1))
    assert collected.levels == [{"level": "assured", "messages": 3, "p95": 2.5}]
    assert collected.outcomes == {"delivered": 2, "open": 1}


def test_the_queues_are_summed(collected: ReportData) -> None:
    """And told one by one, the largest first."""
    total = collected.queue_totals
    assert total is not None
    names = ("items", "accepted", "dead", "open", "again", "oldest_s")
    assert [total[name] for name in names] == [5, 2, 1, 2, 2, 7 * 3600]
    assert [row["queue"] for row in collected.queues] == ["two", "one"]
    assert collected.queues[1]["oldest_s"] == 6 * 3600


def test_open_files_do_not_hide_other_problems(collected: ReportData) -> None:
    """A fleet that is running has one for each node."""
    assert collected.files_open == 2
    assert [row["place"] for row in collected.problems] == ["/j/c", "/j/.a", "/j/.b"]


def test_moments_are_in_utc(collected: ReportData) -> None:
    """The page says so."""
    (moment,) = {row["moment"] for row in collected.latency}
    assert moment == datetime(2026, 1, 5, 12, tzinfo=UTC)
