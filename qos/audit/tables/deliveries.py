"""One row a message: what its sender and its receiver say of it, joined.

What joins is the level, the account of the sender and the msg_id. The msg_id of an
acknowledged message is known to its sender only, and the receiver knows the id of the
iq: such a message has two rows, one of each side, where those are not the same.

Each time is by the clock of the node that wrote it, so only those of one side can be
compared; and no row says that something came before something else at another node.
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
    """One row a message.

    Args:
        events: of days, duplicates included; see qos.audit.schema.EVENT.

    Returns:
        Columns, null where nothing is known:

        - `date`, `hour`: of `begun_at`, which is when the sender accepted it, or else
          the first time it is heard of
        - `level`, `sender` and `receiver` (accounts), `msg_id`, `to` (as it was
          addressed), `sender_node`, `receiver_node`; `source`: the device that sent it
          as the receiver has it, if that is one device; `handed_over_by`: the nodes
          that handed it over, the first and the last by name
        - the first time of each step at the sender: `accepted_at`, `offered_at`,
          `received_at`, `released_at`; and at the receiver: `held_at`,
          `to_hand_over_at`, `handed_over_at` (the first, of whatever kind),
          `done_at`; the last time: `expired_at`, `held_again_at`, `sender_last_at`,
          `handed_over_last_at`; and the first and the last time that the receiver
          tells of it: `receiver_first_at`, `receiver_last_at`
        - `outcome` at the sender, `ended_at`, `condition`: of the last that it says
        - `attempts`: iqs sent; `retries`: those beyond what it takes without loss
        - `bytes`; null where the beginning of the message was not seen at all
        - `holds`: how often it was held anew; `hand_overs`: not marked as a repeat;
          `redeliveries`: those that were
        - `latency_s`: from accepted to delivered, by the clock of the sender
    """
    return deliveries_of(
        endpoint_summary.in_spark(events.where(endpoint_summary.is_of_message()))
    )


def deliveries_of(by_teller: DataFrame) -> DataFrame:
    """The same, of what each node says of a message; see qos.audit.endpoint_summary."""
    rows = _by_message(by_teller)
    rows = rows.withColumns(
        {
            "outcome": F.col("end.end"),
            "ended_at": F.col("end.ended_at"),
            "condition": F.col("end.condition"),
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
    """All that is said of each message."""
    source = F.coalesce("source", F.when(_sends(), F.col("node")), F.lit(""))
    by_teller = by_teller.withColumn("sender", bare(source))
    # What is sorted by a number first need not compare much text.
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
        *(
            F.size(endpoint_summary.merged_sets(name)).cast("long").alias(name)
            for name in endpoint_summary.SETS
        ),
        F.max(F.when(_receives(), F.col("bytes"))).alias("bytes_held"),
    ]


def _retries() -> Column:
    """Attempts beyond one a step."""
    steps = F.when(
        (F.col("level") == Level.ASSURED.value) & F.col("released_at").isNotNull(), 2
    ).otherwise(1)
    return F.greatest(F.col("attempts") - steps, F.lit(0))
