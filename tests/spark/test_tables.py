"""Routes, refusals, queues and workers."""

from bisect import bisect_left
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from frames import NOON, Lines, after, only
from qos.audit.read import Problem
from qos.audit.report_collect import bucket_of
from qos.audit.tables import (
    contradicting_counts,
    deliveries,
    queue_items,
    queues_hourly,
    refusals,
    routes_hourly,
    windows_hourly,
    workers_hourly,
)
from qos.audit.tables import counted as windows_counted
from qos.audit.tables.buckets import BUCKETS, bucket_counts, counts_by_bucket
from qos.audit.tables.routes import merged_percentiles

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

DAY = NOON.date()


def test_a_route_has_its_counts_and_its_latencies(
    spark: SparkSession, lines: Lines
) -> None:
    """By sender, receiver, level and hour."""
    for number in range(1, 101):
        at = number * 10
        lines.sent(
            "accepted", "offered", "released", at=at, msg_id=str(number), attempt=2
        )
        lines.sent("delivered", at=at + number / 100, msg_id=str(number), attempt=2)
    lines.sent("accepted", "offered", "in-doubt", at=50, msg_id="doubt", attempt=4)
    lines.sent("accepted", at=60, msg_id="open")
    lines.got("held", "released", "handed-over", at=70, msg_id="one side")
    messages = deliveries(lines.frame(spark)).withColumn("verdict", F.lit("ok"))
    row = only(routes_hourly(messages))
    assert row.pop("latency_sketch")
    counts = row.pop("latency_counts")
    # From 10 ms, 20 ms and so on to a second, each at most its bound.
    assert (len(counts), sum(counts), counts[0], counts[10]) == (102, 100, 0, 1)
    assert (counts[30], counts[29], sum(counts[31:])) == (21, 16, 0)
    assert row == {
        "date": DAY,
        "hour": 12,
        "sender": "a@x",
        "receiver": "b@x",
        "level": "assured",
        "messages": 102,
        "delivered": 100,
        "not_delivered": 0,
        "in_doubt": 1,
        "withdrawn": 0,
        "open": 1,
        "one_sided": 1,
        "judged": 103,
        "unproven": 0,
        "retried": 1,
        "retries": 3,
        "retry_rate": 1 / 102,
        "hand_overs": 1,
        "redeliveries": 0,
        "bytes": 10300,
        "latency_p50": 0.5,
        "latency_p95": 0.95,
        "latency_p99": 0.99,
    }


def test_a_line_with_an_absurd_number_stops_no_audit(
    spark: SparkSession, lines: Lines
) -> None:
    """Every writer of a line could give a message any number of bytes."""
    for number in range(2):
        huge = {"msg_id": f"m{number}", "bytes": 2**63 - 1}
        lines.line("a@x/1", "sender", "accepted", 0, level="assured", to="b@x", **huge)
        lines.line("a@x/1", "receiver", "refused", 0, source="s@x", **huge)
    frame = lines.frame(spark)
    messages = deliveries(frame).withColumn("verdict", F.lit("ok"))
    assert only(routes_hourly(messages))["messages"] == 2
    assert only(refusals(frame))["refusals"] == 2


def test_refusals_are_by_source_and_reason(spark: SparkSession, lines: Lines) -> None:
    """A stranger may use many resources, but it is one account."""
    for number in range(3):
        fields = {"source": f"s@x/{number}", "condition": "not-allowed", "bytes": 10}
        lines.line("b@x/1", "receiver", "refused", number, **fields)
    lines.line("b@x/1", "receiver", "refused", 9, condition="bad-request")
    frame = lines.frame(spark)
    rows = refusals(frame.unionByName(frame)).orderBy("refusals").collect()
    assert [(row["source"], row["condition"], row["refusals"]) for row in rows] == [
        ("", "bad-request", 1),
        ("s@x", "not-allowed", 3),
    ]
    assert (rows[1]["receiver"], rows[1]["bytes"]) == ("b@x", 30)
    assert (rows[1]["first_at"], rows[1]["last_at"]) == (after(0), after(2))


def counted(lines: Lines, node: str, window: int, **fields: object) -> None:
    """A node's count, at the end of the window with this number."""
    count = {"sent": 0, "received": 0, "since": NOON + timedelta(seconds=300 * window)}
    at = 300 * (window + 1)
    lines.line(node, "journal", "counted", at, **(count | fields))


def test_a_window_is_complete_when_both_ends_have_counted_it(
    spark: SparkSession, lines: Lines
) -> None:
    """Each end with its own counts.

    Those of a restart are added up, and a repeated line is not.
    """
    route = {"level": "assured", "source": "a@x", "to": "b@x"}
    counted(lines, "a@x/1", 0, sent=3, **route)
    counted(lines, "a@x/1", 0, sent=2, boot="after a restart", **route)
    # A node's count for another node's end is not valid.
    counted(lines, "b@x/1", 0, sent=9, received=5, **route)
    # A window without messages; or without a count.
    counted(lines, "a@x/1", 1, sent=1, **route)
    counted(lines, "b@x/1", 1)
    counted(lines, "a@x/1", 2, sent=1, **route)
    counted(lines, "b@x/1", 3, received=2, **route)
    # With more routes than it counts apart, this one may be among the others.
    counted(lines, "a@x/1", 4, sent=50)
    counted(lines, "b@x/1", 4, received=1, **route)
    counted(lines, "c@x/1", 0, sent=7, **route)
    counted(lines, "b@x/1", 12, received=1, **route)
    # A count of another day, and one that no node can have: no line stops an audit.
    counted(lines, "a@x/1", 0, since=NOON - timedelta(days=3), sent=1, **route)
    for boot in ("one", "two"):
        huge = {"sent": 2**63 - 1, "level": "acknowledged", "boot": boot}
        counted(lines, "b@x/1", 1, source="b@x", to="a@x", **huge)
    frame = lines.frame(spark)
    found = windows_hourly(frame.unionByName(frame)).where("level = 'assured'")
    rows = found.orderBy("hour").collect()
    common = {"date": DAY, "level": "assured", "sender": "a@x", "receiver": "b@x"}
    assert [row.asDict() for row in rows] == [
        common
        | {
            "hour": 12,
            "sent": 7,
            "received": 8,
            "windows": 5,
            "complete": 2,
            "without_sender": 2,
            "without_receiver": 1,
        },
        common
        | {
            "hour": 13,
            "sent": 0,
            "received": 1,
            "windows": 1,
            "complete": 0,
            "without_sender": 1,
            "without_receiver": 0,
        },
    ]


def test_a_component_counts_for_the_addresses_of_its_domain(
    spark: SparkSession, lines: Lines
) -> None:
    """A window without a message of it is counted, too; another domain's is not."""
    there = {"level": "assured", "source": "a@x", "to": "lamp@gate.x"}
    back = {"level": "assured", "source": "lamp@gate.x", "to": "a@x"}
    counted(lines, "a@x/1", 0, sent=2, **there)
    counted(lines, "gate.x", 0, received=2, **there)
    counted(lines, "gate.x", 0, sent=1, **back)
    counted(lines, "other.x", 0, sent=5, **back)
    counted(lines, "a@x/1", 0, received=1, **back)
    counted(lines, "a@x/1", 1, sent=4, **there)
    counted(lines, "gate.x", 1)
    counted(lines, "a@x/1", 2, sent=7, **there)
    rows = windows_hourly(lines.frame(spark)).orderBy("sender").collect()
    names = ("sender", "sent", "received", "windows", "complete", "without_receiver")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("a@x", 13, 2, 3, 2, 1),
        ("lamp@gate.x", 1, 1, 1, 1, 0),
    ]


def test_a_count_that_contradicts_itself_is_missing(
    spark: SparkSession, lines: Lines
) -> None:
    """A line is unique by its boot and number.

    Of two with other values, one at least is wrong. Their sum certainly is. A node
    with the same boot in its lines cannot take away the counts of another.
    """
    route = {"level": "assured", "source": "a@x", "to": "b@x"}
    counted(lines, "b@x/1", 0, received=3, **route)
    counted(lines, "b@x/1", 1, received=4, **route)
    for window, (sent, other) in enumerate(((3, 5), (4, 4))):
        counted(lines, "a@x/1", window, sent=sent, **route)
        counted(lines, "a@x/1", window, sent=other, **route)
        lines.rows[-1]["seq"] = lines.rows[-2]["seq"]
        counted(lines, "c@x/1", window, sent=9, **route)
        lines.rows[-1] |= {name: lines.rows[-2][name] for name in ("boot", "seq")}
    assert only(windows_hourly(lines.frame(spark))) == {
        "date": DAY,
        "hour": 12,
        "level": "assured",
        "sender": "a@x",
        "receiver": "b@x",
        "sent": 4,
        "received": 7,
        "windows": 2,
        "complete": 1,
        "without_sender": 1,
        "without_receiver": 0,
    }


def test_counts_that_contradict_each_other_are_a_problem(
    spark: SparkSession, lines: Lines
) -> None:
    """By account, boot and hour, so that each has one row, however often it is seen.

    A repeated line contradicts nothing.
    """
    route = {"level": "assured", "source": "a@x", "to": "b@x"}
    for window, others in enumerate([(3,), (4, 5), (6, 6), (1, 2, 3)] + [(7, 8)] * 20):
        counted(lines, "a@x/1", window, sent=others[0], **route)
        for other in others[1:]:
            lines.rows.append(lines.rows[-1] | {"sent": other})
    # Another node of the account may not have the same boot.
    counted(lines, "b@x/1", 5, received=1, **route)
    lines.rows.append(lines.rows[-1] | {"node": "b@x/2", "received": 2})
    frame = lines.frame(spark)
    found = contradicting_counts(windows_counted(frame.unionByName(frame)))
    assert sorted(map(tuple, found.collect())) == [
        (
            Problem.CONTRADICTING_COUNTS.value,
            "a@x boot of a@x/1 2026-01-05 12:00",
            10,
            "line 2: two counts of the window of 2026-01-05 12:05:00",
        ),
        (
            Problem.CONTRADICTING_COUNTS.value,
            "a@x boot of a@x/1 2026-01-05 13:00",
            12,
            "line 13: two counts of the window of 2026-01-05 13:00:00",
        ),
        (
            Problem.CONTRADICTING_COUNTS.value,
            "b@x boot of b@x/1 2026-01-05 12:00",
            1,
            "line 1: two counts of the window of 2026-01-05 12:25:00",
        ),
    ]


def queue_line(lines: Lines, event: str, at: float, **fields: object) -> None:
    given = {"queue": "orders", "item": "1"} | fields
    lines.line("q.x", "queue", event, at, **given)


def test_an_item_has_its_whole_life_in_a_row(spark: SparkSession, lines: Lines) -> None:
    """Its waits, its deliveries, and the worker that accepted it."""
    queue_line(lines, "published", 0, source="a@x/1", bytes=70)
    queue_line(lines, "acquired", 2, to="w1@x/w", attempt=1)
    queue_line(lines, "timed-out", 32, source="w1@x/w")
    queue_line(lines, "acquired", 40, to="w2@x/w", attempt=2)
    queue_line(lines, "accepted", 41, source="w2@x/w")
    assert only(queue_items(lines.frame(spark))) == {
        "date": DAY,
        "hour": 12,
        "service": "q.x",
        "queue": "orders",
        "item": "1",
        "life": 1,
        "publisher": "a@x",
        "bytes": 70,
        "published_at": after(0),
        "first_acquired_at": after(2),
        "ended_at": after(41),
        "outcome": "accepted",
        "condition": None,
        "handled_by": "w2@x/w",
        "holders": ["w1@x/w", "w2@x/w"],
        "deliveries": 2,
        "released": 0,
        "modified": 0,
        "rejected": 0,
        "timed_out": 1,
        "gone": 0,
        "requeued": 0,
        "wait_s": 2.0,
        "total_s": 41.0,
    }


def test_a_queue_has_its_hours(spark: SparkSession, lines: Lines) -> None:
    """Its items by the hour in which they were published."""
    for number, end in enumerate(("accepted", "dead", "released")):
        queue_line(lines, "published", number, item=str(number))
        queue_line(lines, "acquired", 10, to="w@x", item=str(number))
        queue_line(lines, end, 20, source="w@x", item=str(number))
    queue_line(lines, "acquired", 30, to="w@x", item="2")
    queue_line(lines, "published", 3600, item="later")
    rows = queues_hourly(queue_items(lines.frame(spark))).orderBy("hour").collect()
    assert [sum(row["wait_counts"]) for row in rows] == [3, 0]
    unseen = dict.fromkeys(("wait_sketch", "wait_counts"))
    assert [row.asDict() | unseen for row in rows] == [
        {
            "date": DAY,
            "hour": 12,
            "service": "q.x",
            "queue": "orders",
            "items": 3,
            "accepted": 1,
            "dead": 1,
            "open": 1,
            "again": 1,
            "oldest_open_at": after(2),
            "wait_p50": 9.0,
            "wait_p95": 10.0,
            "wait_p99": 10.0,
            **unseen,
        },
        {
            "date": DAY,
            "hour": 13,
            "service": "q.x",
            "queue": "orders",
            "items": 1,
            "accepted": 0,
            "dead": 0,
            "open": 1,
            "again": 0,
            "oldest_open_at": after(3600),
            **dict.fromkeys(("wait_p50", "wait_p95", "wait_p99")),
            **unseen,
        },
    ]


def test_hours_together_have_the_percentiles_of_all_their_values(
    spark: SparkSession, lines: Lines
) -> None:
    """Exact if there are few; and none if nothing was delivered."""
    for number in range(1, 101):
        at = number * 60
        lines.sent("accepted", at=at, msg_id=str(number))
        lines.sent("delivered", at=at + number / 100, msg_id=str(number))
    lines.sent("accepted", at=0, msg_id="open", to="c@x")
    messages = deliveries(lines.frame(spark)).withColumn("verdict", F.lit("ok"))
    hours = routes_hourly(messages)
    whole = hours.groupBy("receiver").agg(*merged_percentiles("latency_sketch"))
    b, c = whole.orderBy("receiver").collect()
    assert hours.count() == 3
    assert (b[1:], c[1:]) == ((0.5, 0.95, 0.99), (None, None, None))


def test_an_id_that_is_published_again_is_another_item(
    spark: SparkSession, lines: Lines
) -> None:
    """After its end; a line that a crash has doubled is not."""
    queue_line(lines, "published", 0)
    queue_line(lines, "published", 1, boot="after a crash")
    queue_line(lines, "acquired", 2, to="w@x")
    queue_line(lines, "accepted", 3, source="w@x")
    queue_line(lines, "published", 60)
    rows = queue_items(lines.frame(spark)).orderBy("life").collect()
    assert [(row["life"], row["outcome"]) for row in rows] == [
        (1, "accepted"),
        (2, None),
    ]
    assert (rows[0]["published_at"], rows[1]["published_at"]) == (after(0), after(60))


def test_a_dead_item_that_is_requeued_lives_on(
    spark: SparkSession, lines: Lines
) -> None:
    """It is the same work."""
    queue_line(lines, "published", 0)
    queue_line(lines, "acquired", 1, to="w@x")
    queue_line(lines, "rejected", 2, source="w@x", condition="no good")
    queue_line(lines, "dead", 2, condition="no good")
    dead = only(queue_items(lines.frame(spark)))
    assert (dead["outcome"], dead["condition"], dead["rejected"]) == (
        "dead",
        "no good",
        1,
    )
    queue_line(lines, "requeued", 100)
    alive = only(queue_items(lines.frame(spark)))
    assert (alive["outcome"], alive["ended_at"], alive["requeued"]) == (None, None, 1)


def test_a_worker_has_its_hours(spark: SparkSession, lines: Lines) -> None:
    """How many it began, how they ended, and how long it was busy."""
    for number, end in enumerate(("accepted", "modified", "lost")):
        item = {"queue": "q.x/orders", "item": str(number)}
        lines.line("w@x/w", "worker", "started", number * 10, attempt=1, **item)
        lines.line("w@x/w", "worker", end, number * 10 + number + 1, **item)
    # The same item a second time, and then the worker dies.
    item = {"queue": "q.x/orders", "item": "1"}
    lines.line("w@x/w", "worker", "started", 50, attempt=2, **item)
    assert only(workers_hourly(lines.frame(spark))) == {
        "date": DAY,
        "hour": 12,
        "worker": "w@x/w",
        "queue": "q.x/orders",
        "started": 4,
        "accepted": 1,
        "released": 0,
        "modified": 1,
        "rejected": 0,
        "lost": 1,
        "open": 1,
        "busy_s": 6.0,
        "handling_p50": 2.0,
        "handling_p95": 3.0,
        "handling_p99": 3.0,
    }


@pytest.mark.parametrize(
    ("length_s", "bucket_s"),
    [
        (0, 1),
        pytest.param(30, 1, marks=pytest.mark.long),
        pytest.param(200, 5, marks=pytest.mark.long),
        (3600, 60),
        pytest.param(86_400, 3600, marks=pytest.mark.long),
        (90 * 86_400, 23 * 3600),
    ],
)
def test_a_figure_has_neither_one_point_nor_thousands(
    length_s: int, bucket_s: int, spark: SparkSession
) -> None:
    """A demo of half a minute, a day and three months.

    Each has a useful number of points.
    """
    lines = Lines().sent("accepted", "offered")
    lines.sent("accepted", at=length_s, msg_id="m2")
    events = lines.frame(spark)
    messages = deliveries(events).withColumn("verdict", F.lit("ok"))
    items = queue_items(events)
    tables = {
        "deliveries": messages,
        "queue_items": items,
        "routes_hourly": routes_hourly(messages),
        "queues_hourly": queues_hourly(items),
    }
    assert bucket_of(tables) == bucket_s


def test_each_length_of_time_is_in_the_bucket_that_the_guide_names(
    spark: SparkSession,
) -> None:
    """At most its bound, and above the one before; the counts are exact."""
    bounds = [0.001 * 10 ** (i / 10) for i in range(BUCKETS - 1)]
    # Just below a bound, just above it; and what is below and above all of them.
    values = [bound * factor for bound in bounds for factor in (0.9999, 1.0001)]
    values += [0.0, 0.001, 3e7, 3e7]
    expected = [bisect_left(bounds, value) for value in values]
    times = spark.createDataFrame([(value,) for value in values], "s double")
    nothing = spark.createDataFrame([(None,)], "s double")
    rows = times.unionByName(nothing).groupBy().agg(bucket_counts("s").alias("s"))
    assert only(rows.select(counts_by_bucket("s")))["s_counts"] == [
        expected.count(number) for number in range(BUCKETS)
    ]
    none = nothing.groupBy().agg(bucket_counts("s").alias("s"))
    assert only(none.select(counts_by_bucket("s")))["s_counts"] == [0] * BUCKETS
