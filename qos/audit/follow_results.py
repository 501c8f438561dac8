"""The results of a follower beside the rows of a step: problems, summary and report.

Here are also the changes of former days: rows whose verdict another step may change, the
files of closed days, and days that are not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property, partial

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import boot_runs, store
from qos.audit.audits import Audits
from qos.audit.batch_tables import without_rows
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.data_quality import write_problems
from qos.audit.follow_marks import shown
from qos.audit.follow_storage import FollowStorage, Marks
from qos.audit.new_files import NewFile, file_problems
from qos.audit.parallel import in_parallel
from qos.audit.results import Summary, draw, kept_from
from qos.audit.snapshot import spark_frame
from qos.audit.step_tables import MESSAGE
from qos.audit.swap import join_files
from qos.audit.tables import Limits
from qos.audit.tables.columns import domain
from qos.audit.tables.journal_coverage import names_of

__all__ = ["FollowResults"]


class FollowResults:
    """The tables and the report of a follower.

    Args:
        spark: the session.
        out: the folder of the tables.
        storage: the folder of the follower.
        audits: the audits of `out`.
        limits: see qos.audit.follow.follow.
        keep_days: see qos.audit.follow.Follower.
        progress: called with a description of the present step.

    Attributes:
        open_files: the files to come that are in the report; None: there is no report.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        storage: FollowStorage,
        audits: Audits,
        *,
        limits: Callable[[], Limits],
        keep_days: int | None,
        progress: Callable[[str], None],
    ) -> None:
        self.open_files: Sequence[NewFile] | None = None
        self._spark = spark
        self._out = out
        self._storage = storage
        self._audits = audits
        self._limits = limits
        self._keep_days = keep_days
        #: The first day whose rows are kept: others have been removed.
        self._oldest: date | None = None
        self._progress = progress

    @cached_property
    def columns(self) -> dict[str, DataFrame]:
        """Tables that only give the names and types of their columns."""
        return without_rows(self._spark, self._limits())

    def undecided(
        self, boots: DataFrame, before: Marks
    ) -> tuple[DataFrame | None, DeltaTable | None]:
        """The messages of earlier steps whose verdict may now change.

        Most were kept by the former step. Such a message gets a row again if somebody
        has deleted its row, as it does by another line of it.

        Args:
            boots: the runs of all lines, also of this step.
            before: the marks of the former step.

        Returns:
            The messages; and the table `deliveries` as it was opened to read some of
            them, None if none was read from it.
        """
        if before.batch < 0:
            return None, None
        like = self.columns["deliveries"]
        undecided = self._storage.pending(before.batch, like.schema)
        earlier_names = names_of(self._storage.boots(before.batch))
        new = names_of(boots).join(earlier_names, earlier_names.columns, "left_anti")
        new = new.select("name").distinct().localCheckpoint()
        if new.isEmpty():
            return undecided, None
        # A device has begun a journal, or its first files have come, or its clock went
        # back, or another journal has its name: then there may be another reason.
        folder = f"{self._out}/deliveries"
        table = store.opened(like, folder)
        first, last = shown(before)
        rows = spark_frame(
            self._spark, table, schema=like.schema, first=first, last=last
        )
        rows = rows.where(F.col("verdict") == "unproven")
        component = domain(F.col("uncovered"))
        names = F.array("uncovered", component, "sender_node", "receiver_node")
        rows = rows.withColumn("name", F.explode(names))
        rows = rows.join(new, "name", "left_semi").dropDuplicates([*MESSAGE])
        return undecided.unionByName(rows.select(*like.columns)), table

    def join_files(self, first: date | None, open_from: date | None) -> None:
        """Merge the files of the days that are closed from now on into a few."""
        if open_from is None or first == open_from:
            return
        self._progress("joining the files of closed days")
        last = open_from - timedelta(days=1)
        in_parallel(
            *(
                partial(join_files, self._spark, f"{self._out}/{name}", first, last)
                for name in self.columns
            )
        )

    def remove_old(self, limits: Limits, *, again: bool) -> bool:
        """Remove the rows of days that are not kept; returns whether there were any.

        Args:
            limits: of this look.
            again: whether rows of such a day may have been written since the last time.
        """
        oldest = kept_from(limits.now, self._keep_days)
        if oldest is None or (oldest == self._oldest and not again):
            return False
        self._oldest = oldest
        return self._audits.remove_before(oldest)

    def write_problems(
        self, problems: DataFrame, boots: DataFrame, open_files: Sequence[NewFile]
    ) -> None:
        """Write the tables of problems.

        Args:
            problems: of lines and files.
            boots: the runs of all lines.
            open_files: the files to come.
        """
        self._progress("looking for problems of the journals")
        boots = boot_runs.together(boots, tolerance_s=CLOCK_BACK_S)
        rows = (
            problems.unionByName(file_problems(self._spark, open_files))
            .unionByName(boot_runs.missing_lines(boots))
            .unionByName(boot_runs.clocks_back(boots, tolerance_s=CLOCK_BACK_S))
        )
        write_problems(rows, self._out)
        self.open_files = open_files

    def draw(
        self, marks: Marks, limits: Limits, *, untied: int, started_at: float
    ) -> Summary:
        """Write the report and the metrics; returns the summary.

        Args:
            marks: after the step.
            limits: of this look.
            untied: see qos.audit.results.Summary.
            started_at: the start of the look, by the monotonic clock, in seconds.
        """
        self._progress("drawing the report")
        summary = Summary(
            first=marks.shown_from,
            last=marks.last,
            lines=marks.lines,
            events=marks.events,
            untied=untied,
        )
        frames = {
            name: store.read_table(table, f"{self._out}/{name}", *shown(marks))
            for name, table in self.columns.items()
        }
        like = self._storage.problems(-1)
        problems = store.read_table(like, f"{self._out}/problems")
        summary = draw(frames, problems, self._out, summary, limits)
        return replace(summary, seconds=time.monotonic() - started_at)
