"""One row for each message, whichever node recorded it, however often and in any order."""

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, after, only
from qos.audit.tables import deliveries

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

SENT = ("accepted", "offered", "received", "released", "delivered")
GOT = ("held", "released", "handed-over", "done")


def test_a_message_is_one_row_with_the_times_of_both_sides(
    spark: SparkSession, lines: Lines
) -> None:
    """The two sides share only the account of the sender and the msg_id."""
    lines.sent(*SENT, attempt=2).got(*GOT, source="a@x/other")
    row = only(deliveries(lines.frame(spark)))
    assert (
        row
        | {
            "date": NOON.date(),
            "hour": 12,
            "level": "assured",
            "sender": "a@x",
            "receiver": "b@x",
            "msg_id": "m1",
            "sender_node": "a@x/1",
            "receiver_node": "b@x/1",
            "accepted_at": after(0),
            "offered_at": after(1),
            "received_at": after(2),
            "released_at": after(3),
            "outcome": "delivered",
            "ended_at": after(4),
            "held_at": after(0.5),
            "to_hand_over_at": after(1.5),
            "handed_over_at": after(2.5),
            "done_at": after(3.5),
            "attempts": 2,
            "retries": 0,
            "bytes": 100,
            "holds": 1,
            "hand_overs": 1,
            "redeliveries": 0,
            "latency_s": 4.0,
        }
        == row
    )


def test_lines_that_are_given_twice_count_once(
    spark: SparkSession, lines: Lines
) -> None:
    """A copied journal does not mean a second hand-over."""
    lines.sent(*SENT).got(*GOT)
    frame = lines.frame(spark)
    row = only(deliveries(frame.unionByName(frame).unionByName(frame)))
    assert (row["hand_overs"], row["holds"], row["outcome"]) == (1, 1, "delivered")


def test_of_several_outcomes_the_last_counts(spark: SparkSession, lines: Lines) -> None:
    """A line is written before it is true: a crash may have come between."""
    lines.sent("accepted", "released", "in-doubt", condition="x")
    lines.sent("delivered", at=60, boot="another")
    row = only(deliveries(lines.frame(spark)))
    assert (row["outcome"], row["condition"]) == ("delivered", None)
    assert row["ended_at"] == after(60)


def test_what_was_marked_as_a_repeat_is_no_second_hand_over(
    spark: SparkSession, lines: Lines
) -> None:
    """After a crash, the receiver itself records that it may be a repeat."""
    lines.got("held", "released", "handed-over")
    lines.got("redelivered", "done", at=50, boot="another")
    row = only(deliveries(lines.frame(spark)))
    assert (row["hand_overs"], row["redeliveries"]) == (1, 1)
    assert row["sender_last_at"] is None


def test_retries_are_the_attempts_beyond_one_a_step(
    spark: SparkSession, lines: Lines
) -> None:
    """An assured message takes two iqs; one that was not released took one."""
    lines.sent(*SENT, msg_id="smooth", attempt=2)
    lines.sent(*SENT, msg_id="rough", attempt=5)
    lines.sent("accepted", "offered", "not-delivered", msg_id="never", attempt=3)
    lines.sent(
        "accepted",
        "offered",
        "delivered",
        msg_id="ack",
        attempt=1,
        level="acknowledged",
    )
    rows = deliveries(lines.frame(spark)).collect()
    assert {row["msg_id"]: row["retries"] for row in rows} == {
        "smooth": 0,
        "rough": 3,
        "never": 2,
        "ack": 0,
    }


def test_refusals_queues_and_workers_are_no_messages(
    spark: SparkSession, lines: Lines
) -> None:
    """They have tables of their own; a refusal with a msg_id is not a delivery."""
    lines.got("refused", condition="not-allowed")
    lines.line("q@x", "queue", "published", 0, queue="n", item="i")
    lines.line("w@x", "worker", "started", 0, queue="q@x/n", item="i")
    assert deliveries(lines.frame(spark)).count() == 0


def test_the_row_is_of_the_hour_in_which_the_message_began(
    spark: SparkSession, lines: Lines
) -> None:
    """Otherwise a rerun of the next day would make it a second time."""
    lines.sent("accepted", at=12 * 3600 - 1).sent("delivered", at=12 * 3600 + 5)
    row = only(deliveries(lines.frame(spark)))
    assert (row["date"], row["hour"]) == (NOON.date(), 23)


@pytest.mark.parametrize("years", [50, -50])
def test_a_message_that_has_begun_by_a_wrong_clock_has_no_latency(
    spark: SparkSession, lines: Lines, years: int
) -> None:
    """Its process has started again with the right one. Before, it took minus 50 years."""
    began = years * 365 * 86_400.0
    lines.sent("accepted", "offered", at=began)
    lines.sent("received", "released", "delivered", at=10, boot="another")
    row = only(deliveries(lines.frame(spark)))
    assert (row["outcome"], row["latency_s"]) == ("delivered", None)
    assert row["accepted_at"] == after(began)
