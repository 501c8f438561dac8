"""A continuous audit: the tables of `audit`, kept up to date while journals come.

Each look lists the new files, and takes them in by one step. The step stages their
lines, finds the earlier records of the same messages and items
(qos.audit.subject_records), and makes their rows again (qos.audit.step_tables). The cost
of a step depends only on its own lines, however many there were before. A step can repeat
everything that it does: it may be interrupted anywhere.

A day is open for `lateness` days after the latest day that enough nodes have reached
(qos.audit.watermark). Later lines are in no table:
they are a problem, `late-line`, with place and count. Of ended messages and items only
the tables are kept, and one line for each boot. Open ones are kept until they end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from qos.audit import boot_runs, read, store, tables
from qos.audit.audits import STAGED, Audits
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.carry_over import records_of
from qos.audit.follow_lock import FOLDER, CannotFollow, alone, check_options
from qos.audit.follow_marks import marks_after, shown
from qos.audit.follow_plan import perhaps_again, plan_from, remembered
from qos.audit.follow_problems import (
    late_lines,
    with_contradictions,
    without_files,
)
from qos.audit.follow_results import FollowResults
from qos.audit.follow_storage import FollowStorage, Incomplete, Marks
from qos.audit.journals import tied_folders, with_folder
from qos.audit.locations import whole_url
from qos.audit.named_journals import named_runs
from qos.audit.new_files import NewFile, file_problems, files_since, is_to_come
from qos.audit.parallel import in_parallel
from qos.audit.results import Summary
from qos.audit.small_journals import are_small, without_compiling
from qos.audit.staged_journals import Staged, stage
from qos.audit.step_tables import Step, pending
from qos.audit.subject_records import Part, Records, RecordStore, gathered
from qos.audit.tables import Limits
from qos.audit.upgrade import upgrade
from qos.journal.schema import Role

__all__ = ["FOLDER", "CannotFollow", "Follower", "Look", "follow"]


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look for new journals.

    Attributes:
        batch: the number of the last batch; -1: none yet.
        new: whether anything in the tables or the report is new.
        summary: of the days that can still change.
        at: the time of the look, by which anomalies were judged.
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
    lateness: timedelta,
    every_s: float | None,
    stop: threading.Event,
    keep_days: int | None = None,
    on_look: Callable[[Look], None] = lambda look: None,
    progress: Callable[[str], None] = lambda step: None,
) -> Look:
    """Keep the tables and the report up to date until it is stopped.

    Args:
        spark: its time zone must be UTC.
        journals: see qos.audit.journals.
        out: see qos.audit.driver.audit.
        limits: called each time, because `now` changes.
        lateness: the whole days for which a day is open; see qos.audit.watermark.
        every_s: the time between two looks for new files; None: look once only.
        stop: ends it, but not a running batch.
        keep_days: see Follower.
        on_look: called with the result of each look.
        progress: called with a description of the present step.

    Returns:
        The result of the last look.

    Raises:
        CannotFollow: `out` belongs to other journals.
        CannotWrite: see qos.audit.driver.audit.
    """
    with alone(out):
        follower = Follower(
            spark,
            journals,
            out,
            limits=limits,
            lateness=lateness,
            keep_days=keep_days,
            progress=progress,
        )
        while True:
            started_at = time.monotonic()
            look = follower.look()
            on_look(look)
            if every_s is None or stop.wait(
                max(0.0, started_at + every_s - time.monotonic())
            ):
                return look


class Follower:
    """Follows journals, one look at a time. Only one may exist for the same `out`.

    Args:
        spark: see follow, as are those that follow.
        journals: see there.
        out: see there.
        limits: see there.
        lateness: see there.
        keep_days: the whole days before today whose rows are kept, more than a day is
            open. None: all.
        progress: see there.

    Raises:
        CannotFollow: `out` was begun with other journals, or another `lateness`.
    """

    def __init__(
        self,
        spark: SparkSession,
        journals: Sequence[str],
        out: str,
        *,
        limits: Callable[[], Limits],
        lateness: timedelta,
        keep_days: int | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._spark = spark
        self._journals = [with_folder(journal, whole_url) for journal in journals]
        self._folders, self._tied = tied_folders(self._journals)
        self._out = out = whole_url(out)
        self._limits = limits
        self._lateness = lateness
        self._progress = progress
        self._storage = FollowStorage(spark, f"{out}/{FOLDER}")
        self._record_store = RecordStore(spark, f"{out}/{FOLDER}")
        self._audits = Audits(spark, out)
        self._results = FollowResults(
            spark,
            out,
            self._storage,
            self._audits,
            limits=limits,
            keep_days=keep_days,
            progress=progress,
        )
        self._look: Look | None = None
        #: The files of complete steps, by their paths.
        self._files: dict[str, NewFile] | None = None
        #: The files to come.
        self._open: list[NewFile] = []

    def look(self) -> Look:
        """Take in new files, and judge the existing rows again.

        Returns when both results are on disk.
        """
        try:
            if self._files is None:
                self._audits.recover()
                upgrade(self._spark, self._out)
                begun_with = check_options(
                    self._spark, self._out, self._journals, self._lateness
                )
                self._folders, self._tied = tied_folders(begun_with)
                complete = self._storage.seen(self._storage.marks().batch)
                self._files = {file.path: file for file in complete}
            self._progress("looking for new files")
            marks = self._storage.marks()
            files = self._plan(marks)
        except Incomplete as error:
            raise CannotFollow(str(error)) from None
        # The first look of a process has no compiled code yet. For few lines, it takes
        # less time without.
        is_short = self._look is None and are_small(file.size for file in files)
        with without_compiling(self._spark, active=is_short):
            self._look = self._take_in(files, marks) if files else self._again(marks)
        return self._look

    def _plan(self, marks: Marks) -> list[NewFile]:
        """The files of the next step; first those of an interrupted one."""
        assert self._files is not None
        step = marks.batch + 1
        first = None if marks.open_from is None else marks.open_from - self._lateness
        planned = self._storage.plan(step)
        self._files = remembered(self._files, first)
        if not planned:
            self._storage.clean(marks, list(self._files.values()))
        listed = files_since(
            self._spark, self._folders, first, self._files, without_time=True
        )
        self._open = [file for file in listed if is_to_come(file)]
        new = [file for file in listed if not is_to_come(file)]
        plan = plan_from(planned, new)
        if plan != planned:
            self._storage.save_plan(plan, step)
        return plan

    def _take_in(self, files: list[NewFile], before: Marks) -> Look:
        started_at = time.monotonic()
        limits = self._limits()
        step = before.batch + 1
        self._progress(f"reading batch {step}")
        self._record_store.clean(before.parts)
        folder = f"{self._out}/{STAGED}"
        store.remove(self._spark, folder)
        sizes = {file.path: file.size for file in files if file.problem is None}
        try:
            staged = stage(
                self._spark,
                sizes,
                folder,
                open_from=before.open_from,
                tied=self._tied,
            )
            new = records_of(staged)
            earlier = self._record_store.look_up(new.subjects(), before.parts)
            records = new + earlier
            part = self._record_store.write(records, step)
            marks, boots, problems = in_parallel(
                lambda: marks_after(
                    staged,
                    self._storage.boots(before.batch),
                    before,
                    now=limits.now,
                    lateness=self._lateness,
                ),
                lambda: self._boots(staged, files, before).localCheckpoint(),
                lambda: self._problems(staged, files, before).localCheckpoint(),
            )
            parts = (*before.parts, part._replace(latest=marks.latest))
        finally:
            store.remove(self._spark, folder)
        undecided, former = self._results.undecided(boots, before)
        now = replace(self._record_store.read(part), roles=records.roles)
        if Role.JOURNAL in now.roles:
            problems = with_contradictions(problems, now.lines)
        messages, _ = in_parallel(
            self._step(earlier, now, parts, undecided, boots, limits, former).write,
            lambda: self._results.write_problems(problems, boots, self._open),
        )
        self._results.join_files(before.open_from, marks.open_from)
        self._results.remove_old(limits, again=True)
        self._audits.record(*shown(marks))
        marks = replace(marks, parts=self._gathered(parts, marks))
        pending_messages = pending(messages, marks.open_from)
        self._storage.save(marks, boots, problems=problems, pending=pending_messages)
        assert self._files is not None
        self._files |= {file.path: file for file in files}
        summary = self._drawn(marks, limits, started_at)
        return Look(step, True, summary, limits.now)

    def _step(
        self,
        before: Records,
        now: Records,
        parts: Sequence[Part],
        undecided: DataFrame | None,
        boots: DataFrame,
        limits: Limits,
        former: DeltaTable | None = None,
    ) -> Step:
        return Step(
            self._spark,
            self._out,
            before=before,
            now=now,
            undecided=undecided,
            limits=limits,
            judged=lambda messages: tables.judged(messages, boots, limits),
            lines_between=self._record_store.lines(parts).where,
            lines_of=lambda subjects: self._record_store.lines_of(subjects, parts),
            former=former,
            progress=self._progress,
        )

    def _boots(self, staged: Staged, files: list[NewFile], before: Marks) -> DataFrame:
        """The runs of all lines up to this step, and of the names of all files."""
        return boot_runs.merged(
            self._storage.boots(before.batch)
            .unionByName(staged.runs)
            .unionByName(staged.late_runs)
            .unionByName(self._named([*files, *self._open])),
            tolerance_s=CLOCK_BACK_S,
        )

    def _named(self, files: list[NewFile]) -> DataFrame:
        return named_runs(self._spark, files, self._tied)

    def _problems(
        self, staged: Staged, files: list[NewFile], before: Marks
    ) -> DataFrame:
        assert self._files is not None
        again = perhaps_again(files, self._files)
        earlier_runs = self._storage.boots(before.batch)
        return (
            without_files(self._storage.problems(before.batch), again)
            .unionByName(read.line_problems(staged.lines))
            .unionByName(file_problems(self._spark, files))
            .unionByName(late_lines(staged.late_runs, before.open_from, earlier_runs))
        )

    def _gathered(self, parts: tuple[Part, ...], marks: Marks) -> tuple[Part, ...]:
        whole_parts = list(parts)
        while group := gathered(whole_parts, marks.open_from):
            self._progress("gathering what is kept")
            begin = whole_parts.index(group[0])
            whole = self._record_store.gather(group, whole_parts, marks.open_from)
            whole_parts[begin : begin + len(group)] = [whole]
        return tuple(whole_parts)

    def _again(self, marks: Marks) -> Look:
        """Without new lines: judge rows again whose verdict may change with time."""
        started_at = time.monotonic()
        limits = self._limits()
        before = self._look
        boots = self._storage.boots(marks.batch)
        if self._open:
            boots = boots.unionByName(self._named(self._open))
        like = self._results.columns["deliveries"]
        undecided = self._storage.pending(marks.batch, like.schema)
        nothing = self._record_store.nothing()
        step = self._step(nothing, nothing, (), undecided, boots, limits)
        if marks.batch < 0:
            step.write()
            is_new = True
        elif undecided.isEmpty():
            # No verdict can change.
            is_new = False
        else:
            judged, is_new = step.write_messages()
            if is_new:
                pending_messages = pending(judged, marks.open_from)
                self._storage.save_again(pending_messages, marks.batch)
        is_new |= self._results.remove_old(limits, again=is_new)
        if before is not None and not is_new and self._open == self._results.open_files:
            return replace(before, new=False, at=limits.now)
        problems = self._storage.problems(marks.batch)
        self._results.write_problems(problems, boots, self._open)
        self._audits.record(*shown(marks))
        summary = self._drawn(marks, limits, started_at)
        return Look(marks.batch, True, summary, limits.now)

    def _drawn(self, marks: Marks, limits: Limits, started_at: float) -> Summary:
        untied = len(self._folders) - len(self._tied.folders)
        return self._results.draw(marks, limits, untied=untied, started_at=started_at)
