"""One row for each message: the records of its sender and its receiver, joined.

The join is by the level, the accounts of the sender and the receiver, and the msg_id.
So what a node says of a message to itself is about no message to another, even if its
sender uses the same msg_id for that. Only the sender of an acknowledged message knows its
msg_id; the receiver knows the id of the iq. If these differ, such a message has two rows,
one for each side.

Each time is by the clock of the node that wrote it, so only times of one side can be
compared. No row tells the order of events at different nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit import endpoint_summary
from qos.audit.tables.columns import bare, by_hour, lasting_s, role_is
from qos.core.message.model import Level
from qos.journal.schema import Role, SenderEvent

__all__ = [
    "COLUMNS",
    "deliveries",
    "deliveries_of",
    "numbered",
    "paired",
    "repeated",
]

_S = SenderEvent

_KEY = ("sender", "receiver", "msg_id", "level")


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
        - `latency_s`: from accepted to delivered, by the clock of the sender; null if
          that was wrong at one of them
    """
    return deliveries_of(
        endpoint_summary.in_spark(events.where(endpoint_summary.is_of_message()))
    )


def deliveries_of(by_teller: DataFrame) -> DataFrame:
    """The same, from the records of each node; see qos.audit.endpoint_summary."""
    return _finished(_by_message(by_teller))


def repeated(by_teller: DataFrame) -> DataFrame:
    """The messages of which one side has several records; a column `number`."""
    rows = numbered(by_teller).groupBy("number")
    sides = rows.agg(
        F.count_if(_sends()).alias("sender"), F.count_if(_receives()).alias("receiver")
    )
    return sides.where(F.greatest("sender", "receiver") > 1).select("number")


def paired(by_teller: DataFrame, *, join: str) -> DataFrame:
    """The same as `deliveries_of`, but only for messages that are not `repeated`.

    A join of the two sides takes a third of the time of the aggregates.

    Args:
        by_teller: see deliveries_of.
        join: the kind of join, as a hint for Spark.
    """
    rows = numbered(by_teller)
    keys = ("number", *_KEY)
    sender = rows.where(_sends()).select(
        *keys,
        *(_field(column.field).alias(name) for name, column in _SENDER.items()),
        F.col("end").alias("outcome"),
        "ended_at",
        "condition",
    )
    receiver = rows.where(_receives()).select(
        *keys,
        *(_field(column.field).alias(name) for name, column in _RECEIVER.items()),
        *(F.size(name).cast("long").alias(name) for name in endpoint_summary.SETS),
    )
    pairs = sender.join(receiver.hint(join), [*keys], "full")
    return _finished(
        pairs.withColumns(
            {
                "first_at": F.least("sender_first_at", "receiver_first_at"),
                **{
                    name: F.coalesce(name, F.lit(0).cast("long"))
                    for name in endpoint_summary.SETS
                },
            }
        )
    )


def numbered(by_teller: DataFrame) -> DataFrame:
    """The records with the two accounts of their message, and its `number`.

    Two messages may have the same number by chance.
    """
    source = F.coalesce("source", F.when(_sends(), F.col("node")), F.lit(""))
    to = F.coalesce("to", F.when(_receives(), F.col("node")), F.lit(""))
    rows = by_teller.withColumns({"sender": bare(source), "receiver": bare(to)})
    return rows.withColumn("number", F.xxhash64(*_KEY))


def _finished(rows: DataFrame) -> DataFrame:
    """The columns of `deliveries`, from those of both sides."""
    rows = rows.withColumns(
        {
            "begun_at": F.coalesce("accepted_at", "sender_first_at", "first_at"),
            "source": F.when(F.col("source") == F.col("source_last"), F.col("source")),
            "handed_over_by": F.array_distinct(
                F.array_compact(F.array("first_by", "last_by"))
            ),
            "bytes": F.coalesce("bytes_sent", "bytes_held"),
            "retries": _retries(),
            "latency_s": F.when(
                F.col("outcome") == _S.DELIVERED.value,
                lasting_s("accepted_at", "ended_at"),
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


class _Of(NamedTuple):
    """A column of one side: the least or the greatest value of its records.

    Attributes:
        function: F.min or F.max.
        field: the field of a record; see `_field`.
    """

    function: Callable[[Column], Column]
    field: str


_SENDER: Final = {
    "to": _Of(F.max, "to"),
    "sender_node": _Of(F.max, "node"),
    "sender_first_at": _Of(F.min, "first_at"),
    "sender_last_at": _Of(F.max, "last_at"),
    "accepted_at": _Of(F.min, "accepted_at"),
    "offered_at": _Of(F.min, "offered_at"),
    "received_at": _Of(F.min, "received_at"),
    "released_at": _Of(F.min, "released_at"),
    "attempts": _Of(F.max, "attempts"),
    "bytes_sent": _Of(F.max, "bytes"),
}
_RECEIVER: Final = {
    "receiver_node": _Of(F.max, "node"),
    "to_hand_over_at": _Of(F.min, "released_at"),
    "held_at": _Of(F.min, "held_at"),
    "handed_over_at": _Of(F.min, "handed_over_at"),
    "done_at": _Of(F.min, "done_at"),
    "held_again_at": _Of(F.max, "held_again_at"),
    "expired_at": _Of(F.max, "expired_at"),
    "handed_over_last_at": _Of(F.max, "handed_over_last_at"),
    "receiver_first_at": _Of(F.min, "first_at"),
    "receiver_last_at": _Of(F.max, "last_at"),
    "source": _Of(F.min, "source"),
    "source_last": _Of(F.max, "source"),
    "first_by": _Of(F.min, "hands over"),
    "last_by": _Of(F.max, "hands over"),
    "bytes_held": _Of(F.max, "bytes"),
}


def _field(name: str) -> Column:
    if name == "hands over":
        return F.when(F.col("handed_over_at").isNotNull(), F.col("node"))
    return F.col(name)


def _by_message(by_teller: DataFrame) -> DataFrame:
    """All records of each message."""
    # If rows are first sorted by a number, little text has to be compared.
    rows = numbered(by_teller).repartition("number").groupBy("number", *_KEY)
    # Of several outcomes the last counts: a line is written before it is true.
    order = F.when(F.col("end").isNotNull(), F.struct("ended_at", "end_seq"))
    records = rows.agg(
        *(_of_side(_sends(), name, column) for name, column in _SENDER.items()),
        *(_of_side(_receives(), name, column) for name, column in _RECEIVER.items()),
        F.max_by(F.struct("end", "ended_at", "condition"), order).alias("end"),
        endpoint_summary.all_sets().alias("sets"),
        F.min("first_at").alias("first_at"),
    )
    return records.withColumns(
        {
            "outcome": F.col("end.end"),
            "ended_at": F.col("end.ended_at"),
            "condition": F.col("end.condition"),
            **{
                name: endpoint_summary.count_in("sets", name)
                for name in endpoint_summary.SETS
            },
        }
    )


def _of_side(is_of_side: Column, name: str, column: _Of) -> Column:
    """A column of one side, from the records of both."""
    return column.function(F.when(is_of_side, _field(column.field))).alias(name)


def _retries() -> Column:
    """Attempts beyond one for each step."""
    steps = F.when(
        (F.col("level") == Level.ASSURED.value) & F.col("released_at").isNotNull(), 2
    ).otherwise(1)
    return F.greatest(F.col("attempts") - steps, F.lit(0))
