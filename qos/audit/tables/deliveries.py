"""One row for each message: the records of its sender and its receiver, joined.

The join is by the level, the account of the sender and the msg_id. Only the sender of
an acknowledged message knows its msg_id; the receiver knows the id of the iq. If these
differ, such a message has two rows, one for each side.

Each time is by the clock of the node that wrote it, so only times of one side can be
compared. No row tells the order of events at different nodes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit import endpoint_summary
from qos.audit.tables.once import bare, by_hour, role_is, seconds_between
from qos.core.message.model import Level
from qos.journal.schema import Role, SenderEvent

__all__ = ["COLUMNS", "deliveries", "deliveries_of"]

_S = SenderEvent

_KEY = ("sender", "msg_id", "level")


def deliveries(events: DataFrame) -> DataFrame:
    """One row for each message.

    Args:
        events: the lines of some days, perhaps repeated; see qos.audit.schema.EVENT.

    Returns:
        Columns, null if the value is not known:

        - `date`, `hour`: of `begun_at`, the time when the sender accepted it, or else
          the time of its first line
        - `level`, `sender` and `receiver` (accounts), `msg_id`, `to` (the address
          used), `sender_node`, `receiver_node`; `source`: the sending device according
          to the receiver, if it is one device; `handed_over_by`: the nodes that handed
          it over, the first and the last by name
        - the first time of each step at the sender: `accepted_at`, `offered_at`,
          `received_at`, `released_at`; and at the receiver: `held_at`,
          `to_hand_over_at`, `handed_over_at` (the first, of any kind), `done_at`; the
          last time: `expired_at`, `held_again_at`, `sender_last_at`,
          `handed_over_last_at`; and the times of the receiver's first and last line:
          `receiver_first_at`, `receiver_last_at`
        - `outcome` at the sender, `ended_at`, `condition`: of its last outcome
        - `attempts`: iqs sent; `retries`: those beyond the number needed without loss
        - `bytes`; null if there is no line of the beginning of the message
        - `holds`: how often it was newly held; `hand_overs`: those not marked as a
          repeat; `redeliveries`: those that were marked
        - `latency_s`: from accepted to delivered, by the clock of the sender
    """
    return deliveries_of(
        endpoint_summary.in_spark(events.where(endpoint_summary.is_of_message()))
    )


def deliveries_of(by_teller: DataFrame) -> DataFrame:
    """The same, from the records of each node; see qos.audit.endpoint_summary."""
    rows = _by_message(by_teller)
    rows = rows.withColumns(
        {
            "outcome": F.col("end.end"),
            "ended_at": F.col("end.ended_at"),
            "condition": F.col("end.condition"),
            **{
                name: endpoint_summary.count_in("sets", name)
                for name in endpoint_summary.SETS
            },
        }
    ).withColumns(
        {
            "begun_at": F.coalesce("accepted_at", "sender_first_at", "first_at"),
            "receiver": F.coalesce(bare(F.col("to")), bare(F.col("at_receiver"))),
            "source": F.when(F.col("source") == F.col("source_last"), F.col("source")),
            "handed_over_by": F.array_distinct(
                F.array_compact(F.array("first_by", "last_by"))
            ),
            "bytes": F.coalesce("bytes_sent", "bytes_held"),
            "retries": _retries(),
            "latency_s": F.when(
                F.col("outcome") == _S.DELIVERED.value,
                seconds_between("accepted_at", "ended_at"),
            ),
        }
    )
    return by_hour(rows, "begun_at").select(*COLUMNS)


COLUMNS = (
    *("date", "hour", "level", "sender", "receiver", "msg_id", "to"),
    *("sender_node", "receiver_node", "source", "handed_over_by", "begun_at"),
    *("accepted_at", "offered_at", "received_at", "released_at"),
    *("outcome", "ended_at", "condition", "sender_last_at"),
    *("held_at", "to_hand_over_at", "handed_over_at", "done_at"),
    *("expired_at", "held_again_at", "handed_over_last_at"),
    *("receiver_first_at", "receiver_last_at"),
    *("attempts", "retries", "bytes", "holds", "hand_overs", "redeliveries"),
    "latency_s",
)


def _sends() -> Column:
    return role_is(Role.SENDER)


def _receives() -> Column:
    return role_is(Role.RECEIVER)


def _by_message(by_teller: DataFrame) -> DataFrame:
    """All records of each message."""
    source = F.coalesce("source", F.when(_sends(), F.col("node")), F.lit(""))
    by_teller = by_teller.withColumn("sender", bare(source))
    # If rows are first sorted by a number, little text has to be compared.
    number = F.xxhash64(*_KEY).alias("number")
    rows = by_teller.select(number, "*").repartition("number").groupBy("number", *_KEY)
    return rows.agg(*_sender(), *_receiver(), F.min("first_at").alias("first_at"))


def _sender() -> list[Column]:
    # Of several outcomes the last counts: a line is written before it is true.
    order = F.when(F.col("end").isNotNull(), F.struct("ended_at", "end_seq"))
    end = F.struct("end", "ended_at", "condition")
    return [
        F.max(F.when(_sends(), F.col("to"))).alias("to"),
        F.max(F.when(_sends(), F.col("node"))).alias("sender_node"),
        F.min(F.when(_sends(), F.col("first_at"))).alias("sender_first_at"),
        F.max(F.when(_sends(), F.col("last_at"))).alias("sender_last_at"),
        *(
            F.min(F.when(_sends(), F.col(name))).alias(name)
            for name in ("accepted_at", "offered_at", "received_at", "released_at")
        ),
        F.max_by(end, order).alias("end"),
        F.max(F.when(_sends(), F.col("attempts"))).alias("attempts"),
        F.max(F.when(_sends(), F.col("bytes"))).alias("bytes_sent"),
    ]


def _receiver() -> list[Column]:
    at = F.coalesce("to", "node")
    source = F.when(_receives(), F.col("source"))
    hands_over = F.when(F.col("handed_over_at").isNotNull(), F.col("node"))
    return [
        F.max(F.when(_receives(), at)).alias("at_receiver"),
        F.max(F.when(_receives(), F.col("node"))).alias("receiver_node"),
        F.min(F.when(_receives(), F.col("released_at"))).alias("to_hand_over_at"),
        *(F.min(name).alias(name) for name in ("held_at", "handed_over_at", "done_at")),
        *(
            F.max(name).alias(name)
            for name in ("held_again_at", "expired_at", "handed_over_last_at")
        ),
        F.min(F.when(_receives(), F.col("first_at"))).alias("receiver_first_at"),
        F.max(F.when(_receives(), F.col("last_at"))).alias("receiver_last_at"),
        F.min(source).alias("source"),
        F.max(source).alias("source_last"),
        F.min(hands_over).alias("first_by"),
        F.max(hands_over).alias("last_by"),
        endpoint_summary.all_sets().alias("sets"),
        F.max(F.when(_receives(), F.col("bytes"))).alias("bytes_held"),
    ]


def _retries() -> Column:
    """Attempts beyond one for each step."""
    steps = F.when(
        (F.col("level") == Level.ASSURED.value) & F.col("released_at").isNotNull(), 2
    ).otherwise(1)
    return F.greatest(F.col("attempts") - steps, F.lit(0))
