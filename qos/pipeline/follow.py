"""An audit that goes on: the tables of `audit`, kept up to date while journals come.

A query of Structured Streaming finds the files, and remembers which it has had. Each of
its batches stages the lines, and makes the tables of the days again that those can
change, with the functions that `audit` has. No table is ever changed in place, and
whatever a batch does it can do again: it may be interrupted anywhere.

A day is open for `late` days after the latest one that was seen. What comes later is in
no table: it is a problem, `late-line`, with its place and count. Of what is over, only
the tables are kept, and one line a boot.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline import boot_runs, read, store, tables
from qos.pipeline.claim import FOLDER, CannotFollow, alone, check_options
from qos.pipeline.driver import (
    CLOCK_BACK_S,
    NEVER,
    Days,
    Summary,
    draw,
    write_tables,
)
from qos.pipeline.follow_lines import (
    LATE_LINE,
    kept,
    problems_of,
    runs_of,
    spans_of,
    staged,
)
from qos.pipeline.schema import EVENT
from qos.pipeline.staging import Incomplete, Marks, Staging
from qos.pipeline.tables import Limits

__all__ = ["FOLDER", "LATE_LINE", "CannotFollow", "Follower", "Look", "follow"]

#: Batches, after which what was staged is gathered: each is some files more to read.
_GATHER = 20

#: A clock may be ahead by so much; what is later still does not close a day.
_AHEAD = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Look:
    """What came of looking for new journals once.

    Attributes:
        batch: the last batch that there was; -1: none yet.
        new: whether anything in the tables or the report is new.
        summary: of the days that can still change.
        at: the moment of it, by which anomalies were judged.
    """

    batch: int
    new: bool
    summary: Summary
    at: datetime


def follow(
    spark: SparkSession,
    journals: Sequence[str],
    out: str,
    *,
    limits: Callable[[], Limits],
    late: timedelta,
    every_s: float | None,
    stopped: threading.Event,
    told: Callable[[Look], None] = lambda look: None,
    progress: Callable[[str], None] = lambda step: None,
) -> Look:
    """Keep the tables and the report up to date until it is stopped.

    Args:
        spark: its time zone must be UTC.
        journals: see qos.pipeline.read.read_lines.
        out: see qos.pipeline.driver.audit.
        limits: asked each time, as `now` goes on.
        late: whole days for which a day is open after the latest one.
        every_s: how often new files are looked for; None: once only.
        stopped: ends it, but not a batch that is under way.
        told: what came of each look.
        progress: told what is being done.

    Returns:
        What came of the last look.

    Raises:
        CannotFollow: `out` belongs to others.
    """
    with alone(out):
        follower = Follower(
            spark, journals, out, limits=limits, late=late, progress=progress
        )
        while True:
            began = time.monotonic()
            look = follower.look()
            told(look)
            if every_s is None or stopped.wait(
                max(0.0, began + every_s - time.monotonic())
            ):
                return look


class Follower:
    """Follows journals, a look at a time. Nobody else may do so with the same `out`.

    Args: see follow.

    Raises:
        CannotFollow: `out` was begun with other journals, or another `late`.
    """

    def __init__(
        self,
        spark: SparkSession,
        journals: Sequence[str],
        out: str,
        *,
        limits: Callable[[], Limits],
        late: timedelta,
        progress: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._spark = spark
        self._journals = sorted(set(journals))
        self._out = out
        self._limits = limits
        self._late = late
        self._progress = progress
        self._staging = Staging(spark, f"{out}/{FOLDER}")
        self._failure: Exception | None = None
        self._look: Look | None = None
        self._checked = False

    def look(self) -> Look:
        """Take in what is new, and judge again what is there.

        Returns when both is on disk.
        """
        if not self._checked:
            check_options(self._spark, self._out, self._journals, self._late)
            self._checked = True
        before = self._look
        self._progress("looking for new files")
        query = (
            read.stream_lines(self._spark, self._journals)
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", f"{self._out}/{FOLDER}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            # Spark says much, and not what it was.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            query.stop()
        if self._look is None or self._look is before:
            self._look = self._again(before)
        return self._look

    def _batch(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark, perhaps more than once with the same."""
        self._failure = None
        try:
            self._look = self._take_in(frame, batch)
        except Incomplete as error:
            self._failure = CannotFollow(str(error))
            raise
        except Exception as error:
            self._failure = error
            raise

    def _take_in(self, frame: DataFrame, batch: int) -> Look:
        limits = self._limits()
        before = self._staging.marks(batch - 1)
        self._staging.clean(before)
        self._progress(f"reading batch {batch}")
        lines = self._staging.stage(staged(frame, before.open_from), batch)
        events = self._staging.events(before, batch)
        spans = spans_of(lines, events).persist()
        try:
            marks = self._marks(lines, before, batch, limits)
            days = _days(spans, marks)
            known = boot_runs.merged(
                self._staging.boots(before.batch).unionByName(runs_of(lines)),
                tolerance_s=CLOCK_BACK_S,
            )
            problems = self._staging.problems(before.batch).unionByName(
                problems_of(lines, spans, before.open_from)
            )
            if _is_to_gather(before, marks):
                self._progress("gathering what is kept")
                self._staging.gather(kept(events, marks.open_from), batch)
                marks = replace(marks, whole=batch)
            self._staging.save(marks, known, problems)
        finally:
            spans.unpersist()
        summary = self._write(events, days, marks, limits)
        return Look(batch, True, summary, limits.now)

    def _marks(
        self, lines: DataFrame, before: Marks, batch: int, limits: Limits
    ) -> Marks:
        good = F.col("problem").isNull()
        timely = good & ~F.col("late")
        until = limits.now.astimezone(UTC).date() + _AHEAD
        day = F.when(timely, F.col("date"))
        seen = lines.agg(
            F.count("*").alias("lines"),
            F.count_if(good).alias("events"),
            F.min(day).alias("first"),
            F.max(day).alias("last"),
            F.max(F.when(F.col("date") <= F.lit(until), day)).alias("latest"),
        ).first()
        assert seen is not None
        first = _least(before.first, seen["first"])
        latest = _most(before.latest, seen["latest"])
        return Marks(
            batch=batch,
            lines=before.lines + seen["lines"],
            events=before.events + seen["events"],
            first=first,
            last=_most(before.last, seen["last"]),
            latest=latest,
            shown_from=_most(first, before.open_from),
            open_from=None if latest is None else latest - self._late,
            whole=before.whole,
        )

    def _again(self, before: Look | None) -> Look:
        """No new line: judge the anomalies again, as time has passed."""
        limits = self._limits()
        marks = self._staging.marks()
        if before is not None and before.batch >= 0:
            written = self._tables(marks)
            known = boot_runs.coverage(self._staging.boots(marks.batch))
            found = tables.anomalies(written["deliveries"], known, limits)
            if _counts(found) == _counts(written["anomalies"]) and _same_files(
                self._file_problems(), self._problem_table()
            ):
                return replace(before, new=False, at=limits.now)
        nothing = self._spark.createDataFrame([], EVENT)
        summary = self._write(nothing, NEVER, marks, limits)
        return Look(marks.batch, True, summary, limits.now)

    def _write(
        self, events: DataFrame, days: Days, marks: Marks, limits: Limits
    ) -> Summary:
        """Make the tables of these days, judge all that are open, draw the report."""
        began = time.monotonic()
        known = self._staging.boots(marks.batch)
        with _lines_of(events, days, marks) as events:
            write_tables(
                events.select(*EVENT.names),
                boot_runs.coverage(known),
                self._out,
                days,
                limits,
                judged=_shown(marks),
                progress=self._progress,
            )
        self._progress("looking for problems of the journals")
        problems = (
            self._staging.problems(marks.batch)
            .unionByName(self._file_problems())
            .unionByName(boot_runs.missing_lines(known))
            .unionByName(boot_runs.clocks_back(known, tolerance_s=CLOCK_BACK_S))
        )
        store.replace_table(problems, f"{self._out}/problems")
        self._progress("drawing the report")
        summary = Summary(
            first=marks.shown_from,
            last=marks.last,
            lines=marks.lines,
            events=marks.events,
        )
        summary = draw(
            self._tables(marks), self._problem_table(), self._out, summary, limits
        )
        return replace(summary, seconds=time.monotonic() - began)

    def _tables(self, marks: Marks) -> dict[str, DataFrame]:
        """As they are on disk, of the days that are open."""
        return {
            name: store.read_table(table, f"{self._out}/{name}", *_shown(marks))
            for name, table in self._like.items()
        }

    @functools.cached_property
    def _like(self) -> dict[str, DataFrame]:
        """Tables only to know their columns by; none of them is computed."""
        events = self._spark.createDataFrame([], EVENT)
        messages = tables.deliveries(events)
        return {
            "deliveries": messages,
            "anomalies": tables.anomalies(
                messages, tables.coverage(events), self._limits()
            ),
            "routes_hourly": tables.routes_hourly(messages),
            "refusals": tables.refusals(events),
            "queue_items": tables.queue_items(events),
            "workers_hourly": tables.workers_hourly(events),
        }

    def _file_problems(self) -> DataFrame:
        # Spark can list no folder that is not there yet.
        begun = [
            journal
            for journal in self._journals
            if any(
                name.startswith("date=")
                for name in (
                    journal.rpartition("/")[2],
                    *store.children(self._spark, journal),
                )
            )
        ]
        if not begun:
            return self._staging.problems(-1)
        return read.file_problems(read.read_files(self._spark, begun))

    def _problem_table(self) -> DataFrame:
        like = self._staging.problems(-1)
        return store.read_table(like, f"{self._out}/problems")


def _days(spans: DataFrame, marks: Marks) -> Days:
    """The days of which a row may be another one now."""
    row = spans.agg(F.min("first").alias("first"), F.max("last").alias("last")).first()
    assert row is not None
    if row["first"] is None or marks.shown_from is None:
        return NEVER
    return max(row["first"], marks.shown_from), row["last"]


def _shown(marks: Marks) -> Days:
    return marks.shown_from or NEVER[0], marks.last or NEVER[1]


@contextlib.contextmanager
def _lines_of(events: DataFrame, days: Days, marks: Marks) -> Iterator[DataFrame]:
    """All lines of what has a line in these days."""
    if days == NEVER or days[0] == marks.first:
        yield events
        return
    within = events.where(F.col("date").between(*map(F.lit, days)))
    belongs = events.join(within.select("subject").distinct(), "subject", "left_semi")
    belongs = belongs.persist()
    try:
        yield belongs
    finally:
        belongs.unpersist()


def _is_to_gather(before: Marks, marks: Marks) -> bool:
    if marks.batch - before.whole >= _GATHER:
        return True
    # Else there is nothing that is not needed any more.
    moved = marks.open_from is not None and marks.open_from != before.open_from
    return moved and _least(marks.first, marks.open_from) != marks.open_from


def _least(*days: date | None) -> date | None:
    return min((day for day in days if day is not None), default=None)


def _most(*days: date | None) -> date | None:
    return max((day for day in days if day is not None), default=None)


def _counts(found: DataFrame) -> dict[tuple[str, str | None], int]:
    rows = found.groupBy("kind", "ended").count().collect()
    return {(row["kind"], row["ended"]): row["count"] for row in rows}


def _same_files(files: DataFrame, problems: DataFrame) -> bool:
    kinds = [read.Problem.EMPTY_FILE.value, read.Problem.FOREIGN_FILE.value]
    before = problems.where(F.col("kind").isin(*kinds))
    return {tuple(row) for row in files.collect()} == {
        tuple(row) for row in before.collect()
    }
