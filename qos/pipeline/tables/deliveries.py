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

from qos.core.model import Level
from qos.journal.schema import Event, ReceiverEvent, Role, SenderEvent
from qos.pipeline.tables.once import (
    bare,
    by_hour,
    event_is,
    once,
    role_is,
    seconds_between,
)

__all__ = ["COLUMNS", "OUTCOMES", "deliveries"]

_S, _R = SenderEvent, ReceiverEvent
OUTCOMES = (_S.DELIVERED, _S.NOT_DELIVERED, _S.IN_DOUBT, _S.WITHDRAWN)
_HAND_OVERS = (_R.HANDED_OVER, _R.REDELIVERED)

_KEY = ("sender", "msg_id", "level")


def deliveries(events: DataFrame, *, unique: bool = False) -> DataFrame:
    """One row a message.

    Args:
        events: of days; see qos.pipeline.schema.EVENT.
        unique: no line is there twice. Else that is seen to, which takes its time.

    Returns:
        Columns, null where nothing is known:

        - `date`, `hour`: of `begun_at`, which is when the sender accepted it, or else
          the first time it is heard of
        - `level`, `sender` and `receiver` (accounts), `msg_id`, `to` (as it was
          addressed), `sender_node`, `receiver_node`
        - the first time of each step at the sender: `accepted_at`, `offered_at`,
          `received_at`, `released_at`; and at the receiver: `held_at`,
          `to_hand_over_at`, `handed_over_at` (the first, of whatever kind),
          `done_at`; the last time: `expired_at`, `held_again_at`, `sender_last_at`
        - `outcome` at the sender, `ended_at`, `condition`: of the last that it says
        - `attempts`: iqs sent; `retries`: those beyond what it takes without loss
        - `bytes`; null where the beginning of the message was not seen at all
        - `holds`: how often it was held anew; `hand_overs`: not marked as a repeat; `redeliveries`: those that were
        - `latency_s`: from accepted to delivered, by the clock of the sender
    """
    wanted = role_is(Role.SENDER, Role.RECEIVER) & F.col("msg_id").isNotNull()
    refused = role_is(Role.RECEIVER) & event_is(_R.REFUSED)
    messages = events.where(wanted & ~refused).select(
        bare(F.coalesce("source", F.when(_sends(), F.col("node")), F.lit(""))).alias(
            "sender"
        ),
        *("msg_id", "level", "boot", "seq", "at", "node", "role", "event", "to"),
        *("attempt", "bytes", "condition"),
    )
    if not unique:
        messages = once(messages, *_KEY)
    rows = _by_message(_by_teller(messages))
    rows = rows.withColumns(
        {
            "outcome": F.col("end.end"),
            "ended_at": F.col("end.last_at"),
            "condition": F.col("end.condition"),
        }
    ).withColumns(
        {
            "begun_at": F.coalesce("accepted_at", "sender_first_at", "first_at"),
            "receiver": F.coalesce(bare(F.col("to")), bare(F.col("at_receiver"))),
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
    *("sender_node", "receiver_node", "begun_at"),
    *("accepted_at", "offered_at", "received_at", "released_at"),
    *("outcome", "ended_at", "condition", "sender_last_at"),
    *("held_at", "to_hand_over_at", "handed_over_at", "done_at"),
    *("expired_at", "held_again_at"),
    *("attempts", "retries", "bytes", "holds", "hand_overs", "redeliveries"),
    "latency_s",
)


def _sends() -> Column:
    return role_is(Role.SENDER)


def _receives() -> Column:
    return role_is(Role.RECEIVER)


def _by_teller(messages: DataFrame) -> DataFrame:
    """What each node says of a message, and how it says that it has ended.

    Only times and numbers are made here: for those Spark needs not sort, and most of
    it is done before anything moves.
    """
    ends = _sends() & event_is(*OUTCOMES)
    return (
        messages.withColumns(
            {
                "end": F.when(ends, F.col("event")),
                "condition": F.when(ends, F.col("condition")),
            }
        )
        .groupBy(*_KEY, "role", "node", "to", "end", "condition")
        .agg(
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.max("seq").alias("last_seq"),
            F.max("attempt").alias("attempts"),
            F.max("bytes").alias("bytes"),
            _first(_S.ACCEPTED).alias("accepted_at"),
            _first(_S.OFFERED).alias("offered_at"),
            _first(_S.RECEIVED).alias("received_at"),
            # Of the sender or the receiver.
            _first(_S.RELEASED).alias("released_at"),
            _first(_R.HELD).alias("held_at"),
            _last(_R.HELD).alias("held_again_at"),
            _first(*_HAND_OVERS).alias("handed_over_at"),
            _first(_R.DONE).alias("done_at"),
            _last(_R.EXPIRED).alias("expired_at"),
            F.count_if(event_is(_R.HELD)).alias("holds"),
            F.count_if(event_is(_R.HANDED_OVER)).alias("hand_overs"),
            F.count_if(event_is(_R.REDELIVERED)).alias("redeliveries"),
        )
    )


def _by_message(told: DataFrame) -> DataFrame:
    """All that is said of each message."""
    # What is sorted by a number first need not compare much text.
    number = F.xxhash64(*_KEY).alias("number")
    rows = told.select(number, "*").repartition("number").groupBy("number", *_KEY)
    return rows.agg(*_sender(), *_receiver(), F.min("first_at").alias("first_at"))


def _first(*events: Event) -> Column:
    return F.min(F.when(event_is(*events), F.col("at")))


def _last(*events: Event) -> Column:
    return F.max(F.when(event_is(*events), F.col("at")))


def _sender() -> list[Column]:
    # Of several outcomes the last counts: a line is written before it is true.
    order = F.when(F.col("end").isNotNull(), F.struct("last_at", "last_seq"))
    end = F.struct("end", "last_at", "condition")
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
    return [
        F.max(F.when(_receives(), at)).alias("at_receiver"),
        F.max(F.when(_receives(), F.col("node"))).alias("receiver_node"),
        F.min(F.when(_receives(), F.col("released_at"))).alias("to_hand_over_at"),
        *(F.min(name).alias(name) for name in ("held_at", "handed_over_at", "done_at")),
        *(F.max(name).alias(name) for name in ("held_again_at", "expired_at")),
        *(F.sum(name).alias(name) for name in _COUNTS),
        F.max(F.when(_receives(), F.col("bytes"))).alias("bytes_held"),
    ]


#: Events of the receiver alone, like the times that are not looked at twice above.
_COUNTS = ("holds", "hand_overs", "redeliveries")


def _retries() -> Column:
    """Attempts beyond one a step."""
    steps = F.when(
        (F.col("level") == Level.ASSURED.value) & F.col("released_at").isNotNull(), 2
    ).otherwise(1)
    return F.greatest(F.col("attempts") - steps, F.lit(0))
