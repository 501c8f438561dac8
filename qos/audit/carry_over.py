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
from qos.audit.follow_storage import FollowStorage, Marks
from qos.audit.judging import Judge
from qos.audit.staged_journals import Staged
from qos.audit.step_tables import Step, pending
from qos.audit.subject_records import Records, RecordStore, few
from qos.audit.subjects import message_subject, subject
from qos.journal.schema import Role

__all__ = ["CarryOver", "records_of"]

#: How long a message that has ended is kept while its verdict may still change.
_SUSPECTS_KEPT: Final = timedelta(days=7)

#: The largest difference of time by which lines of other nodes are related to a
#: message.
_RUNS_BEFORE: Final = timedelta(days=1)


def records_of(staged: Staged) -> Records:
    """The known facts about each subject, from staged lines."""
    events = read.events_of(staged.lines)
    return Records(
        staged.messages.withColumn("subject", message_subject()),
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
        oldest: the first day whose rows are kept; None: all are.
        number: the number of the last audit that has ended. Data kept by a later audit
            that was killed does not fit the tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        first: date | None,
        last: date | None,
        oldest: date | None,
        number: int,
    ) -> None:
        self._spark = spark
        self._out = out
        self._first = first
        self._last = last
        self._oldest = oldest
        self._record_store = RecordStore(spark, f"{out}/{HIDDEN}")
        self._storage = FollowStorage(spark, f"{out}/{HIDDEN}")
        self._number = number
        self._marks = self._storage.marks(number)
        self._record_store.clean(self._marks.parts)
        self._storage.clean(self._marks, [])
        self._former = self._record_store.nothing()
        if first is not None and self._marks.parts:
            self._former = self._record_store.read(self._marks.parts[0])

    @property
    def is_used(self) -> bool:
        """Whether the audit takes up what an earlier one has left."""
        return self._first is not None

    def records(self, new: Records) -> Records:
        """The knowledge carried into the audit, together with what it has read."""
        return self._former + new

    def runs(self, pieces: DataFrame) -> DataFrame:
        """The runs of all known lines."""
        if self._first is not None:
            pieces = pieces.unionByName(self._storage.boots(self._marks.batch))
        return pieces

    def write(
        self, records: Records, runs: DataFrame, messages: DataFrame, judge: Judge
    ) -> None:
        """Replace the rows of earlier days, and keep what is carried out of the audit.

        Args:
            records: see there.
            runs: merged runs.
            messages: those of the audit's days, with their verdicts.
            judge: gives messages their verdicts.
        """
        items = tables.queue_items(records.lines).where(self._is_within())
        if Role.QUEUE not in records.roles:
            items = items.limit(0)
        later = self._record_store.nothing()
        if self._first is not None and self._marks.parts:
            first_days = _begun(self._former).localCheckpoint()
            is_early = F.col("begun") < F.lit(self._first)
            if self._oldest is not None:
                is_early &= F.col("begun") >= F.lit(self._oldest)
            early = few(first_days.where(is_early))
            now, before = _only(records, early), _only(self._former, early)
            step = self._step(before, now, judge)
            judged, _ = step.write_messages()
            step.write_items()
            messages = messages.unionByName(judged.select(*messages.columns))
            items = items.unionByName(tables.queue_items(now.lines))
            if self._last is not None:
                after = few(first_days.where(F.col("begun") > F.lit(self._last)))
                later = _only(self._former, after)
        since = self._last and self._last - _SUSPECTS_KEPT
        open_subjects = pending(messages, since).select(_of_message().alias("subject"))
        open_subjects = open_subjects.union(
            items.where(F.col("outcome").isNull()).select(_of_item().alias("subject"))
        )
        open_subjects = few(open_subjects.distinct().localCheckpoint())
        self._save(_only(records, open_subjects) + later, runs)

    def _step(self, before: Records, now: Records, judge: Judge) -> Step:
        like = tables.deliveries_of(now.messages)
        nothing = tables.judged(like.limit(0), judge.runs, judge.limits)
        return Step(
            self._spark,
            self._out,
            before=before,
            now=now,
            undecided=nothing,
            limits=judge.limits,
            judged=judge,
            lines_between=now.lines.where,
            lines_of=lambda subjects: now.lines,
            compares=True,
        )

    def _save(self, records: Records, runs: DataFrame) -> None:
        number = self._number + 1
        part = self._record_store.write(records, number)
        # If nothing is left, no run is needed.
        since = self._record_store.read(part).messages.agg(
            (F.min("first_at") - F.lit(_RUNS_BEFORE)).alias("since")
        )
        runs = runs.join(F.broadcast(since), F.col("last_at") >= F.col("since"))
        runs = runs.drop("since")
        self._storage.save(Marks(batch=number, parts=(part,)), runs)

    def _is_within(self) -> Column:
        within = F.lit(True)
        if self._first is not None:
            within &= F.col("date") >= F.lit(self._first)
        if self._last is not None:
            within &= F.col("date") <= F.lit(self._last)
        return within


def _begun(records: Records) -> DataFrame:
    """The day of the first line of each subject."""
    moments = records.messages.select(
        "subject", F.col("first_at").alias("at")
    ).unionByName(records.lines.select("subject", "at"))
    return moments.groupBy("subject").agg(F.to_date(F.min("at")).alias("begun"))


def _only(records: Records, keys: DataFrame) -> Records:
    """The knowledge about some subjects, the keys."""
    return Records(
        records.messages.join(keys, "subject", "left_semi"),
        records.lines.join(keys, "subject", "left_semi"),
    )


def _of_message() -> Column:
    """The subject of a row of `deliveries`."""
    return F.xxhash64(F.lit("message"), "sender", "msg_id", "level")


def _of_item() -> Column:
    """The subject of a row of `queue_items`."""
    return F.xxhash64(F.lit("item"), "service", "queue", "item")
