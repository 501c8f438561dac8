"""Storage of a follower between its steps, beside its records, by number of the step.

::

    FOLDER/plan/upto=7        the files of step 7; written before any of them is read
    FOLDER/seen/upto=4        all files up to step 4 that may be listed again
    FOLDER/boots/upto=7       after step 7: the runs of all boots (see boot_runs),
    FOLDER/problems/upto=7    the problems of lines and files,
    FOLDER/pending/upto=7     the messages whose verdict may change later,
    FOLDER/again/upto=7       the same, with their latest verdict,
    FOLDER/marks/upto=7       and the progress: see Marks

A repeated step uses the files of its plan, and reads the data from before it. So its
result is the same, however often it is interrupted. It is complete when its marks
exist. Data that only an earlier step needs is removed when the next one begins.

This module knows neither tables nor the rules for lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import date
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from qos.audit import boot_runs, store
from qos.audit.forgetting import without_forgotten
from qos.audit.locations import for_people
from qos.audit.new_files import PROBLEM, NewFile
from qos.audit.parallel import in_parallel
from qos.audit.subject_records import Part

__all__ = ["FollowStorage", "Incomplete", "Marks"]

_MARKS: Final = (
    "batch int, lines bigint, events bigint, first date, last date, latest date, "
    "shown_from date, open_from date, parts array<struct<first:int,last:int,latest:date>>"
)

#: Former versions have stored neither a reason nor a time.
_FILE: Final = (
    "path string, day string, problem string, size bigint, reason string, "
    "changed_ms bigint"
)

#: After this many steps, the lists of their files are merged.
_TOGETHER: Final = 64


class Incomplete(Exception):
    """A part of the stored data is missing; the text is one line."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The progress of a follower.

    Attributes:
        batch: the number of its last step.
        lines: the number of all lines read; `events` of them are events.
        first: the first day of an event that is in a table.
        last: the last day of such an event.
        latest: the last day that enough nodes have reached; see qos.audit.watermark.
        shown_from: the first day that this step could change.
        open_from: the first day that the next step can change; None: any.
        parts: the valid parts of the records.
    """

    batch: int = -1
    lines: int = 0
    events: int = 0
    first: date | None = None
    last: date | None = None
    latest: date | None = None
    shown_from: date | None = None
    open_from: date | None = None
    parts: tuple[Part, ...] = ()


class FollowStorage:
    """The folder of a follower."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def marks(self, upto: int | None = None) -> Marks:
        """The marks after the last complete step, or empty ones before the first.

        Args:
            upto: the last step that counts; None: any.

        Raises:
            Incomplete: they are missing, though a step was complete.
        """
        whole = [step for step in self._whole("marks") if upto is None or step <= upto]
        last = max(whole, default=-1)
        if last < 0:
            # Only the plan of the first step may exist.
            if max(self._numbers("plan"), default=0) > 0:
                raise Incomplete(
                    f"{for_people(self._folder)} is not complete: its marks are not there. Remove "
                    "it all, and it begins anew"
                )
            return Marks()
        row = self._read("marks", last, _MARKS).first()
        assert row is not None
        values = row.asDict()
        values["parts"] = tuple(Part(*part) for part in values["parts"])
        return Marks(**values)

    def boots(self, step: int) -> DataFrame:
        """The runs of lines after a step."""
        return self._read("boots", step, boot_runs.RUN)

    def problems(self, step: int) -> DataFrame:
        """The problems of lines and files after a step."""
        return self._read("problems", step, PROBLEM)

    def pending(self, step: int, schema: StructType) -> DataFrame:
        """The messages without a final verdict after a step."""
        name = "again" if step in self._whole("again") else "pending"
        return self._read(name, step, schema)

    def save_again(self, pending: DataFrame, step: int) -> None:
        """Store these messages with verdicts that were made without a new line."""
        self._overwrite(pending, "again", step)

    def save(self, marks: Marks, runs: DataFrame, **frames: DataFrame) -> None:
        """Store the results of a step, which is complete then.

        Args:
            marks: after the step.
            runs: the runs of all boots.
            frames: `problems` and `pending`, if they are needed later.
        """
        in_parallel(
            *(
                partial(self._overwrite, frame, name, marks.batch)
                for name, frame in {"boots": runs, **frames}.items()
            )
        )
        values = tuple(asdict(marks).values())
        row = self._spark.createDataFrame([values], _MARKS)
        store.overwrite(row, self._at("marks", marks.batch))

    def plan(self, step: int) -> list[NewFile]:
        """The files of a step that was begun; empty: it was not."""
        if step not in self._whole("plan"):
            return []
        return self._files("plan", step)

    def save_plan(self, files: Sequence[NewFile], step: int) -> None:
        """Store the files of a step."""
        self._write_files(files, "plan", step)

    def seen(self, upto: int) -> list[NewFile]:
        """The files of the steps up to this one, except the forgotten ones."""
        whole = max(self._whole("seen"), default=-1)
        files = self._files("seen", whole) if whole >= 0 else []
        for step in sorted(self._whole("plan")):
            if whole < step <= upto:
                files += self._files("plan", step)
        return files

    def clean(self, marks: Marks, files: Sequence[NewFile]) -> None:
        """Remove all data that is not needed after a complete step.

        Args:
            marks: after the step.
            files: the files that must not be forgotten, up to this step.
        """
        for name in ("boots", "problems", "pending", "again", "marks"):
            self._remove(name, marks.batch)
        whole = max(self._whole("seen"), default=-1)
        if marks.batch - whole >= _TOGETHER:
            self._write_files(files, "seen", marks.batch)
            self._remove("seen", marks.batch)
            self._remove("plan", marks.batch + 1)

    def _remove(self, name: str, oldest: int) -> None:
        for number in self._numbers(name):
            if number < oldest:
                store.remove(self._spark, self._at(name, number))

    def _numbers(self, name: str) -> Iterator[int]:
        for child in store.children(self._spark, f"{self._folder}/{name}"):
            if child.startswith("upto="):
                yield int(child.removeprefix("upto="))

    def _whole(self, name: str) -> Iterator[int]:
        """The steps whose data was written to the end."""
        for number in self._numbers(name):
            if store.is_complete(self._spark, self._at(name, number)):
                yield number

    def _overwrite(self, frame: DataFrame, name: str, step: int) -> None:
        rows = without_forgotten(frame, self._folder)
        store.overwrite(rows, self._at(name, step))

    def _at(self, name: str, step: int) -> str:
        return f"{self._folder}/{name}/upto={step}"

    def _read(self, name: str, step: int, schema: str | StructType) -> DataFrame:
        if step < 0:
            return self._spark.createDataFrame([], schema)
        folder = store.literal(self._at(name, step))
        return self._spark.read.schema(schema).parquet(folder)

    def _files(self, name: str, step: int) -> list[NewFile]:
        rows = self._read(name, step, _FILE).collect()
        return [
            NewFile(**{**row.asDict(), "reason": row["reason"] or ""}) for row in rows
        ]

    def _write_files(self, files: Sequence[NewFile], name: str, step: int) -> None:
        rows = list(map(astuple, files))
        store.overwrite(self._spark.createDataFrame(rows, _FILE), self._at(name, step))
