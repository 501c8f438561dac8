"""The records of nodes about each message and item so far.

A *part* has all records of the subjects (qos.audit.subjects) that one step of an audit
has touched, the earlier ones and the new ones. So all records of a subject are in the
newest part that has it. From earlier parts, a step reads only the numbers of subjects,
and then the rows of the steps that it found there::

    FOLDER/parts/7-7/told     each node's records of messages (qos.audit.endpoint_summary)
    FOLDER/parts/7-7/lines    the lines of items, workers, refusals and counts
    FOLDER/parts/1-6          parts of former steps, gathered in one

Parts whose days are all closed become one part, with only the subjects that have not
ended. Each row has the number of its step, and the rows of a part are in the order of
steps. So reading those of a few steps takes as long in a gathered part as in their own
ones. Parts never change; the user of these parts knows which of them are valid (see
Part). An interrupted step is repeated, and writes its part again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from qos.audit import endpoint_summary, store
from qos.audit.forgetting import without_forgotten
from qos.audit.parallel import in_parallel
from qos.audit.schema import EVENT
from qos.audit.subjects import is_open, message_is_open
from qos.audit.tables import WRITTEN_WITHIN
from qos.audit.tables.columns import role_is
from qos.journal.schema import Role

__all__ = ["GATHERED", "Part", "RecordStore", "Records", "few", "gathered"]

#: The number of parts of about the same size that become one.
GATHERED: Final = 16

_KINDS: Final = ("told", "lines")

#: The most subject numbers, of 8 bytes each, that every task may have.
_FEW: Final = 200_000


class Part(NamedTuple):
    """The name of a part: the first and the last step of its rows.

    Attributes:
        latest: the last of their days that was not in the future; None: not known.
    """

    first: int
    last: int
    latest: date | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """The records of some subjects; each row has its `subject`.

    Attributes:
        messages: see qos.audit.endpoint_summary.
        lines: events that are not about messages.
        roles: the roles that `lines` may have.
        is_nothing: whether there is certainly no row.
    """

    messages: DataFrame
    lines: DataFrame
    roles: frozenset[Role] = frozenset(Role)
    is_nothing: bool = False

    def __add__(self, other: Records) -> Records:
        """Both; a line may be in both."""
        if self.is_nothing or other.is_nothing:
            return other if self.is_nothing else self
        return Records(
            self.messages.unionByName(other.messages),
            self.lines.unionByName(other.lines),
            self.roles | other.roles,
        )

    def subjects(self) -> DataFrame:
        """The subjects, each once."""
        all_of_them = self.messages.select("subject").union(
            self.lines.select("subject")
        )
        return all_of_them.distinct()


class RecordStore:
    """The parts in a folder.

    Args:
        spark: the session.
        folder: for these parts only.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._schemas = {
            name: StructType(
                [
                    StructField("subject", LongType()),
                    StructField("step", IntegerType()),
                    *schema.fields,
                ]
            )
            for name, schema in _schemas(spark).items()
        }

    def nothing(self) -> Records:
        """No row."""
        messages, lines = (self._read(name, ()).drop("step") for name in _KINDS)
        return Records(messages, lines, frozenset(), is_nothing=True)

    def look_up(self, subjects: DataFrame, parts: Sequence[Part]) -> Records:
        """All records of some subjects.

        Args:
            subjects: a column `subject`, without repetitions.
            parts: the valid ones.
        """
        if not parts:
            return self.nothing()
        keys = few(subjects.localCheckpoint())
        reads = (partial(self._found, name, keys, parts) for name in _KINDS)
        messages, lines = in_parallel(*reads)
        return Records(messages, lines)

    def write(self, records: Records, step: int) -> Part:
        """Write the part of a step, and return it; it is not valid yet.

        The caller must set its last day.
        """
        part = Part(step, step)
        frames = zip(_KINDS, (records.messages, records.lines), strict=True)
        rows = [(frame.withColumn("step", F.lit(step)), name) for name, frame in frames]
        in_parallel(*(partial(self._write, *pair, part) for pair in rows))
        return part

    def gather(
        self, parts: Sequence[Part], all_parts: Sequence[Part], open_from: date | None
    ) -> Part:
        """Make one part of consecutive ones.

        Two kinds of rows are left out: those that a newer part has, and those of
        subjects that ended before a day.

        Args:
            parts: the parts to gather, two or more.
            all_parts: all valid parts, including these.
            open_from: the day; None: no rows are left out for their age.
        """
        whole = Part(parts[0].first, parts[-1].last, parts[-1].latest)
        newest = [part for part in all_parts if part.last >= whole.first]
        for name in _KINDS:
            steps = self._newest(self._read(name, newest))
            rows = self._read(name, parts).join(steps, ["subject", "step"], "left_semi")
            if open_from is not None:
                rows = _since(rows, name, open_from)
            self._write(rows, name, whole)
        return whole

    def read(self, part: Part) -> Records:
        """All rows of a part."""
        messages, lines = (self._read(name, [part]).drop("step") for name in _KINDS)
        return Records(messages, lines)

    def lines(self, parts: Sequence[Part]) -> DataFrame:
        """The lines of all subjects, some of them repeated."""
        return self._read("lines", parts).drop("step")

    def lines_of(self, subjects: DataFrame, parts: Sequence[Part]) -> DataFrame:
        """The lines of some subjects; see look_up."""
        return self._found("lines", few(subjects), parts)

    def clean(self, parts: Collection[Part]) -> None:
        """Remove the parts that are not valid."""
        names = {_name(part) for part in parts}
        for name in store.children(self._spark, f"{self._folder}/parts"):
            if name not in names:
                store.remove(self._spark, f"{self._folder}/parts/{name}")

    def _found(
        self, name: str, subjects: DataFrame, parts: Sequence[Part]
    ) -> DataFrame:
        rows = self._read(name, parts)
        # Of all rows, at most two columns are read.
        steps = self._newest(rows.join(subjects, "subject", "left_semi")).persist()
        try:
            numbers = [row["step"] for row in steps.select("step").distinct().collect()]
            if not numbers:
                return self._read(name, ()).drop("step")
            relevant_parts = [
                part
                for part in parts
                if any(part.first <= step <= part.last for step in numbers)
            ]
            rows = self._read(name, relevant_parts).where(F.col("step").isin(numbers))
            rows = rows.join(steps, ["subject", "step"], "left_semi").drop("step")
            return rows.localCheckpoint()
        finally:
            steps.unpersist()

    @staticmethod
    def _newest(rows: DataFrame) -> DataFrame:
        return rows.groupBy("subject").agg(F.max("step").alias("step"))

    def _write(self, rows: DataFrame, name: str, part: Part) -> None:
        rows = without_forgotten(rows, self._folder)
        rows = rows.select(*self._schemas[name].names)
        if part.first != part.last:
            rows = rows.repartitionByRange("step").sortWithinPartitions("step")
        rows.write.mode("overwrite").parquet(self._at(name, part))

    def _read(self, name: str, parts: Iterable[Part]) -> DataFrame:
        paths = [store.literal(self._at(name, part)) for part in parts]
        if not paths:
            return self._spark.createDataFrame([], self._schemas[name])
        return self._spark.read.schema(self._schemas[name]).parquet(*paths)

    def _at(self, name: str, part: Part) -> str:
        return f"{self._folder}/parts/{_name(part)}/{name}"


def few(subjects: DataFrame) -> DataFrame:
    """The same subjects; if few, all tasks get them, and no other row moves.

    Args:
        subjects: already computed, because Spark does not know their number.
    """
    subjects = subjects.select("subject")
    return F.broadcast(subjects) if subjects.count() <= _FEW else subjects


def gathered(parts: Sequence[Part], open_from: date | None) -> Sequence[Part]:
    """The parts that should become one; empty: they are few enough.

    These are the parts of closed days, of which little remains then; or the newest
    ones, if there are many. Each row is gathered as often as there are sizes of parts,
    and once more when its day is closed. So the data that a step reads and writes
    depends only on the open days.

    Args:
        parts: the valid ones, the oldest first.
        open_from: the first day that is open; None: any.
    """
    if open_from is not None:
        closed = [part for part in parts if (part.latest or date.min) < open_from]
        if len(closed) > 1:
            return closed
    size = 1
    rest = list(parts)
    while rest:
        same = []
        while rest and _steps(rest[-1]) <= size:
            same.append(rest.pop())
        if len(same) >= GATHERED:
            return same[::-1]
        size *= GATHERED
    return []


def _since(rows: DataFrame, name: str, day: date) -> DataFrame:
    """The rows of subjects with a line since a day, or without an end."""
    # A day's count may be for a window up to half a day earlier, which has other
    # counts.
    later = F.when(role_is(Role.JOURNAL), F.lit(4 * WRITTEN_WITHIN))
    last, has_ended = F.col("at") + F.coalesce(later, F.lit(timedelta())), ~is_open()
    if name == "told":
        last, has_ended = F.col("last_at"), ~message_is_open()
    of_each = rows.groupBy("subject").agg(
        F.to_date(F.max(last)).alias("last"), has_ended.alias("ended")
    )
    over = of_each.where(F.col("ended") & (F.col("last") < F.lit(day)))
    return rows.join(over, "subject", "left_anti")


def _steps(part: Part) -> int:
    return part.last - part.first + 1


def _name(part: Part) -> str:
    return f"{part.first}-{part.last}"


def _schemas(spark: SparkSession) -> dict[str, StructType]:
    events = spark.createDataFrame([], EVENT)
    return {"told": endpoint_summary.in_spark(events).schema, "lines": EVENT}
