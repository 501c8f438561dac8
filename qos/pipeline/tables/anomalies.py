"""What should not be: messages that were lost, doubled, orphaned, stuck or in doubt.

Only what the journals prove is an anomaly. Three things must not make one:

- A node without a journal, or whose journal began later: see `coverage`.
- A journal of which the last file is not closed yet. It is not there to be read, so
  what is missing at the end of a journal is judged only when the node has written
  something later, or after `stuck_after_s`.
- Clocks that differ, by up to `skew_s`. Times of two nodes are compared only to find
  out what a journal covers; never to find out what came first.

An acknowledged message arrives *at least* once, and its two sides do not join, so it
can be stuck, or in doubt, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.core.model import Level
from qos.journal.schema import SenderEvent
from qos.pipeline.tables.deliveries import COLUMNS
from qos.pipeline.tables.once import seconds_between

__all__ = ["KINDS", "Limits", "anomalies"]

#: lost: the sender says delivered, and it was never handed over.
#: duplicated: handed over more than once, and not marked `redelivered`.
#: orphaned: handed over, and its sender knows nothing of it.
#: stuck: held or outstanding for too long.
#: in-doubt: so says the sender; `ended` says how it really ended.
KINDS = ("lost", "duplicated", "orphaned", "stuck", "in-doubt")

_S = SenderEvent


@dataclass(frozen=True, slots=True)
class Limits:
    """By what an anomaly is judged.

    Attributes:
        now: the moment of the audit (with a time zone).
        stuck_after_s: held or outstanding for longer is stuck. Not less than the time
            after which the writers close their files.
        skew_s: how far the clocks of two nodes may differ.
    """

    now: datetime
    stuck_after_s: float = 3600.0
    skew_s: float = 60.0


def anomalies(deliveries: DataFrame, covered: DataFrame, limits: Limits) -> DataFrame:
    """One row for each thing that is wrong with a message.

    Args:
        deliveries: see qos.pipeline.tables.deliveries.
        covered: see qos.pipeline.tables.coverage.
        limits: see Limits.

    Returns:
        Columns `date`, `hour`, `kind`, `ended` (only of in-doubt: delivered,
        not-delivered or unknown), `level`, `sender`, `receiver`, `msg_id`, `begun_at`
        and `evidence`: all that is known of the message, as JSON.
    """
    # Not those that the frame says: to ask it is not allowed in every pipeline.
    names = [name for name in COLUMNS if name not in {"date", "hour"}]
    rows = _with_coverage(deliveries, covered)
    facts = _Facts(limits)
    kinds = F.array_compact(
        F.array(
            F.when(facts.lost, "lost"),
            F.when(facts.duplicated, "duplicated"),
            F.when(facts.orphaned, "orphaned"),
            F.when(facts.stuck, "stuck"),
            F.when(facts.in_doubt, "in-doubt"),
        )
    )
    rows = rows.withColumns({"kind": F.explode(kinds), "really": facts.really})
    return rows.select(
        "date",
        "hour",
        "kind",
        F.when(F.col("kind") == "in-doubt", F.col("really")).alias("ended"),
        *("level", "sender", "receiver", "msg_id", "begun_at"),
        F.to_json(F.struct(*names)).alias("evidence"),
    )


def _with_coverage(deliveries: DataFrame, covered: DataFrame) -> DataFrame:
    """With from when to when there are journals of the sender, and of the receiver."""
    accounts = covered.groupBy("account").agg(
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.bool_or(F.col("node") == F.col("account")).alias("by_account"),
        F.collect_set("node").alias("nodes"),
    )
    senders = F.broadcast(
        accounts.select(
            F.col("account").alias("sender"),
            F.col("first_at").alias("sender_from"),
            F.col("last_at").alias("sender_until"),
        )
    )
    receivers = F.broadcast(
        accounts.select(
            F.col("account").alias("receiver"),
            F.col("first_at").alias("receiver_from"),
            F.col("last_at").alias("receiver_until"),
            "by_account",
            "nodes",
        )
    )
    rows = deliveries.join(senders, "sender", "left").join(
        receivers, "receiver", "left"
    )
    # To one device of an account: another of its devices may have a journal here.
    this_device = F.col("to").contains("/") & ~F.col("by_account")
    elsewhere = this_device & ~F.array_contains("nodes", F.col("to"))
    known = F.col("nodes").isNotNull() & ~F.coalesce(elsewhere, F.lit(False))
    return rows.withColumn("receiver_known", known)


class _Facts:
    """What is true of a message; each is a column that is never null."""

    def __init__(self, limits: Limits) -> None:
        self._now = F.lit(limits.now).cast("timestamp")
        self._stuck_after_s = limits.stuck_after_s
        self._skew_s = limits.skew_s

    @property
    def lost(self) -> Column:
        delivered = F.col("outcome") == _S.DELIVERED.value
        return _sure(self._assured & delivered & self._surely_not_handed_over)

    @property
    def duplicated(self) -> Column:
        # A stranger may use a msg_id again, once it has been delivered; and then it
        # was held again.
        again = ~self._sender_seen & (F.col("hand_overs") <= F.col("holds"))
        return _sure(self._assured & (F.col("hand_overs") > 1) & ~again)

    @property
    def orphaned(self) -> Column:
        kept = seconds_between("sender_from", "begun_at") >= self._skew_s
        settled = self._settled("sender_until", "handed_over_at")
        return _sure(
            self._assured & self._handed_over & ~self._sender_seen & kept & settled
        )

    @property
    def stuck(self) -> Column:
        outstanding = (
            self._sender_seen
            & F.col("outcome").isNull()
            & self._is_old(F.coalesce("accepted_at", "begun_at"))
            & self._is_old(F.col("sender_last_at"))
        )
        expired = F.coalesce(
            F.col("expired_at") >= F.coalesce("held_again_at", "to_hand_over_at"),
            F.lit(False),
        )
        held = (
            ~self._sender_seen
            & ~self._handed_over
            & ~expired
            & self._is_old(F.coalesce("held_again_at", "to_hand_over_at"))
        )
        return _sure(outstanding) | _sure(held)

    @property
    def in_doubt(self) -> Column:
        return _sure(F.col("outcome") == _S.IN_DOUBT.value)

    @property
    def really(self) -> Column:
        return (
            F.when(self._handed_over, "delivered")
            .when(_sure(self._assured & self._surely_not_handed_over), "not-delivered")
            .otherwise("unknown")
        )

    @property
    def _assured(self) -> Column:
        return F.col("level") == Level.ASSURED.value

    @property
    def _sender_seen(self) -> Column:
        return F.col("sender_last_at").isNotNull()

    @property
    def _handed_over(self) -> Column:
        return F.col("handed_over_at").isNotNull()

    @property
    def _surely_not_handed_over(self) -> Column:
        """The journal of the receiver goes on after it, and says nothing of it."""
        seen = F.coalesce(
            "held_at", "to_hand_over_at", "done_at", "expired_at"
        ).isNotNull()
        kept = seconds_between("receiver_from", "begun_at") >= self._skew_s
        settled = self._settled("receiver_until", "ended_at")
        over = F.col("done_at").isNotNull()
        known = F.col("receiver_known") & kept & settled
        return ~self._handed_over & (over | (seen & settled) | (~seen & known))

    def _settled(self, until: str, moment: str) -> Column:
        """Whether a journal that is seen up to a time must have what was before.

        The moment is by the clock of another node.
        """
        later = F.coalesce(seconds_between(moment, until) >= self._skew_s, F.lit(False))
        return later | F.coalesce(self._is_old(F.col(moment)), F.lit(False))

    def _is_old(self, moment: Column) -> Column:
        return seconds_between(moment, self._now) >= self._stuck_after_s


def _sure(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
