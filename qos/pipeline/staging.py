"""What a stream keeps between its batches, as Parquet: by the number of the batch.

::

    STAGED/lines/kind=batch/upto=7/date=…   the checked lines of batch 7
    STAGED/lines/kind=whole/upto=4/date=…   what is kept of those up to batch 4
    STAGED/boots/upto=7                     the state after batch 7: see boot_runs,
    STAGED/problems/upto=7                  the problems of lines,
    STAGED/marks/upto=7                     and how far it is: see Marks

A batch that is run again writes to its own places and reads what was there before it,
so that it comes to the same however often it is interrupted. What only an earlier
batch needs is removed when that one is surely over: when the next begins.

Knows neither tables nor what decides about lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from qos.pipeline import boot_runs, store
from qos.pipeline.schema import EVENT

__all__ = ["PROBLEM", "STAGED", "Incomplete", "Marks", "Staging"]

#: A checked line as it is staged. `late`: it goes into no table any more.
STAGED: Final = StructType(
    [
        *(StructField(field.name, field.dataType) for field in EVENT),
        StructField("file", StringType()),
        StructField("problem", StringType()),
        StructField("example", StringType()),
        StructField("subject", LongType()),
        StructField("late", BooleanType()),
        StructField("kind", StringType()),
        StructField("upto", IntegerType()),
        StructField("date", DateType()),
    ]
)

#: See qos.pipeline.read.file_problems.
PROBLEM: Final = "kind string, place string, count bigint, example string"

_MARKS: Final = (
    "batch int, lines bigint, events bigint, first date, last date, latest date, "
    "shown_from date, open_from date, whole int"
)


class Incomplete(Exception):
    """Something of what was kept is not there any more; in one line."""


@dataclass(frozen=True, slots=True)
class Marks:
    """How far a stream is.

    Attributes:
        batch: its last one.
        lines: all that were read; `events` of them are events.
        first: the first day of an event that is in a table.
        last: the last one.
        latest: the last one that was not in the future.
        shown_from: the first day that this batch could change.
        open_from: the first day that the next one can change; None: any.
        whole: the batch up to which the lines were last gathered.
    """

    batch: int = -1
    lines: int = 0
    events: int = 0
    first: date | None = None
    last: date | None = None
    latest: date | None = None
    shown_from: date | None = None
    open_from: date | None = None
    whole: int = -1


class Staging:
    """The folder of a stream."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def marks(self, batch: int | None = None) -> Marks:
        """The marks after a batch; None: the last one. Before any: those of none.

        Raises:
            Incomplete: there are none after this batch.
        """
        there = set(self._numbers("marks"))
        if batch is None:
            batch = max(there, default=-1)
        if batch < 0:
            return Marks()
        if batch not in there:
            raise Incomplete(
                f"{self._folder} is not complete: nothing of batch {batch} is there. "
                "Remove it all, and it begins anew"
            )
        row = self._read("marks", batch, _MARKS).first()
        assert row is not None
        return Marks(**row.asDict())

    def boots(self, batch: int) -> DataFrame:
        """The runs of lines after a batch."""
        return self._read("boots", batch, boot_runs.RUN)

    def problems(self, batch: int) -> DataFrame:
        """The problems of lines after a batch."""
        return self._read("problems", batch, PROBLEM)

    def save(self, marks: Marks, runs: DataFrame, problems: DataFrame) -> None:
        """Keep the state after a batch."""
        for name, frame in (("boots", runs), ("problems", problems)):
            store.replace_table(frame, self._at(name, marks.batch))
        row = self._spark.createDataFrame([tuple(asdict(marks).values())], _MARKS)
        store.replace_table(row, self._at("marks", marks.batch))

    def stage(self, lines: DataFrame, batch: int) -> DataFrame:
        """Keep the lines of a batch, and return them as they are kept."""
        # As they come: a stream has no adaptive plans, and would put a day in one task.
        self._write(lines, "batch", batch)
        return self._lines(("batch", batch))

    def events(self, marks: Marks, batch: int) -> DataFrame:
        """The events that are kept, up to a batch: columns of EVENT and `subject`.

        Args:
            marks: after the batch before.
            batch: which.
        """
        each = [("batch", number) for number in range(marks.whole + 1, batch + 1)]
        whole = [("whole", marks.whole)] if marks.whole >= 0 else []
        lines = self._lines(*whole, *each)
        return lines.where(F.col("problem").isNull() & ~F.col("late"))

    def gather(self, events: DataFrame, batch: int) -> None:
        """Keep only these events of all that came up to a batch."""
        # Few files, and no task that has all of a big day to itself.
        self._write(events.hint("rebalance", "date"), "whole", batch)

    def clean(self, marks: Marks) -> None:
        """Remove what is not needed after a batch that is over."""
        if marks.batch < 0:
            # It begins anew, so what is there is of another beginning.
            for name in ("lines", "boots", "problems", "marks"):
                store.remove(self._spark, f"{self._folder}/{name}")
            return
        for kind, needed in (("batch", marks.whole + 1), ("whole", marks.whole)):
            self._clean(f"lines/kind={kind}", needed)
        for name in ("boots", "problems", "marks"):
            self._clean(name, marks.batch)

    def _clean(self, name: str, needed: int) -> None:
        for number in self._numbers(name):
            if number < needed:
                store.remove(self._spark, f"{self._folder}/{name}/upto={number}")

    def _numbers(self, name: str) -> Iterator[int]:
        for child in store.children(self._spark, f"{self._folder}/{name}"):
            if child.startswith("upto="):
                yield int(child.removeprefix("upto="))

    def _at(self, name: str, batch: int) -> str:
        return f"{self._folder}/{name}/upto={batch}"

    def _read(self, name: str, batch: int, schema: str) -> DataFrame:
        if batch < 0:
            return self._spark.createDataFrame([], schema)
        folder = store.literal(self._at(name, batch))
        return self._spark.read.schema(schema).parquet(folder)

    def _lines(self, *parts: tuple[str, int]) -> DataFrame:
        folder = f"{self._folder}/lines"
        paths = [
            store.literal(f"{folder}/kind={kind}/upto={number}")
            for kind, number in parts
        ]
        reader = self._spark.read.option("basePath", store.literal(folder))
        return reader.schema(STAGED).parquet(*paths)

    def _write(self, lines: DataFrame, kind: str, batch: int) -> None:
        names = [name for name in STAGED.names if name not in {"kind", "upto"}]
        lines = lines.select(*names)
        folder = f"{self._folder}/lines/kind={kind}/upto={batch}"
        lines.write.partitionBy("date").mode("overwrite").parquet(folder)
