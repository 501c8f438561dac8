"""Messages and items without an end, which one audit leaves to the next.

An audit of a day does not read the days long before it. So each audit keeps all
knowledge of the messages and items that have no end, or no final verdict. The next
audit takes this up, and replaces their rows, whatever their day. So a message or an
item that takes several days is one row, even when each day is audited by itself.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import read, tables
from qos.audit.audits import HIDDEN
from qos.audit.judging import Judge
from qos.audit.stage import Staged
from qos.audit.staging import Marks, Staging
from qos.audit.state import Known, State, few
from qos.audit.step import Step, pending
from qos.audit.subjects import message_subject, subject
from qos.journal.schema import Role

__all__ = ["CarryOver", "known_of"]

#: How long a message that has ended is kept while its verdict may still change.
_SUSPECTS_KEPT: Final = timedelta(days=7)

#: The largest difference of time by which lines of other nodes are related to a
#: message.
_RUNS_BEFORE: Final = timedelta(days=1)


def known_of(staged: Staged) -> Known:
    """The known facts about each subject, from staged lines."""
    events = read.events_of(staged.lines)
    return Known(
        staged.told.withColumn("subject", message_subject()),
        events.withColumn("subject", subject()),
        staged.roles,
    )


class CarryOver:
    """Messages and items that are carried into an audit, and out of it.

    Args:
        spark: the session.
        out: the folder of the tables.
        first: the first day of the audit; None: it reads everything, and needs no
            earlier data.
        last: the last day.
        number: the number of the last audit that has ended. Data kept by a later audit
            that was killed does not fit the tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        first: date | None,
        last: date | None,
        number: int,
    ) -> None:
        self._spark = spark
        self._out = out
        self._first = first
        self._last = last
        self._state = State(spark, f"{out}/{HIDDEN}")
        self._staging = Staging(spark, f"{out}/{HIDDEN}")
        self._number = number
        self._marks = self._staging.marks(number)
        self._state.clean(self._marks.parts)
        self._staging.clean(self._marks, [])
        self._former = self._state.nothing()
        if first is not None and self._marks.parts:
            self._former = self._state.read(self._marks.parts[0])

    def known(self, new: Known) -> Known:
        """The knowledge carried into the audit, together with what it has read."""
        return self._former + new

    def runs(self, pieces: DataFrame) -> DataFrame:
        """The runs of all known lines."""
        if self._first is not None:
            pieces = pieces.unionByName(self._staging.boots(self._marks.batch))
        return pieces

    def write(
        self, known: Known, runs: DataFrame, messages: DataFrame, judge: Judge
    ) -> None:
        """Replace the rows of earlier days, and keep what is carried out of the audit.

        Args:
            known: see there.
            runs: merged runs.
            messages: those of the audit's days, with their verdicts.
            judge: gives messages their verdicts.
        """
        items = tables.queue_items(known.lines).where(self._is_within())
        if Role.QUEUE not in known.roles:
            items = items.limit(0)
        later = self._state.nothing()
        if self._first is not None and self._marks.parts:
            begun = _begun(self._former).localCheckpoint()
            early = few(begun.where(F.col("begun") < F.lit(self._first)))
            now, before = _only(known, early), _only(self._former, early)
            step = self._step(before, now, judge)
            judged, _ = step.write_messages()
            step.write_items()
            messages = messages.unionByName(judged.select(*messages.columns))
            items = items.unionByName(tables.queue_items(now.lines))
            if self._last is not None:
                after = few(begun.where(F.col("begun") > F.lit(self._last)))
                later = _only(self._former, after)
        since = self._last and self._last - _SUSPECTS_KEPT
        left = pending(messages, since).select(_of_message().alias("subject"))
        left = left.union(
            items.where(F.col("outcome").isNull()).select(_of_item().alias("subject"))
        )
        left = few(left.distinct().localCheckpoint())
        self._save(_only(known, left) + later, runs)

    def _step(self, before: Known, now: Known, judge: Judge) -> Step:
        like = tables.deliveries_of(now.told)
        nothing = tables.judged(like.limit(0), judge.runs, judge.limits)
        return Step(
            self._spark,
            self._out,
            before=before,
            now=now,
            others=nothing,
            limits=judge.limits,
            judged=judge,
            lines_between=now.lines.where,
            lines_of=lambda subjects: now.lines,
        )

    def _save(self, left: Known, runs: DataFrame) -> None:
        number = self._number + 1
        part = self._state.write(left, number)
        # If nothing is left, no run is needed.
        since = self._state.read(part).told.agg(
            (F.min("first_at") - F.lit(_RUNS_BEFORE)).alias("since")
        )
        runs = runs.join(F.broadcast(since), F.col("last_at") >= F.col("since"))
        runs = runs.drop("since")
        self._staging.save(Marks(batch=number, parts=(part,)), runs)

    def _is_within(self) -> Column:
        within = F.lit(True)
        if self._first is not None:
            within &= F.col("date") >= F.lit(self._first)
        if self._last is not None:
            within &= F.col("date") <= F.lit(self._last)
        return within


def _begun(known: Known) -> DataFrame:
    """The day of the first line of each subject."""
    moments = known.told.select("subject", F.col("first_at").alias("at")).unionByName(
        known.lines.select("subject", "at")
    )
    return moments.groupBy("subject").agg(F.to_date(F.min("at")).alias("begun"))


def _only(known: Known, keys: DataFrame) -> Known:
    """The knowledge about some subjects, the keys."""
    return Known(
        known.told.join(keys, "subject", "left_semi"),
        known.lines.join(keys, "subject", "left_semi"),
    )


def _of_message() -> Column:
    """The subject of a row of `deliveries`."""
    return F.xxhash64(F.lit("message"), "sender", "msg_id", "level")


def _of_item() -> Column:
    """The subject of a row of `queue_items`."""
    return F.xxhash64(F.lit("item"), "service", "queue", "item")
