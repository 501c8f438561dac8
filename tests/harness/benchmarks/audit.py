"""A benchmark of the audit, compared with reading and counting the same journals.

Both run in the same session, in turns, so that the ratio is also valid on a busy
machine. This module knows the given session, but no terminal.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import linear_regression, median
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from benchmarks.synth import EXPECTED, Plan
from benchmarks.usage import usage_of
from qos.audit import read
from qos.audit.driver import audit
from qos.audit.tables import Limits
from qos.journal.schema import FIELDS

__all__ = [
    "Growth",
    "Measured",
    "Memory",
    "WrongResult",
    "growth",
    "measure",
    "plan_for",
]

#: The number of messages of a device that sends or gets one every minute and a half.
_MESSAGES_A_DEVICE = 1000

#: The lines of a journal that `synthesise` makes then, all roles together; one line in
#: ten counts the messages of a window.
_LINES_A_MESSAGE = 10.0

#: The anomalies in journals of any size.
_LOST, _DUPLICATED, _STUCK = 7, 5, 3

_LOOK_S = 0.1

#: Text and whole numbers: the fields of a line before they are checked.
_FIELDS = StructType(
    [
        StructField(each.name, LongType() if each.kind == "int" else StringType())
        for each in FIELDS
    ]
)


class WrongResult(Exception):
    """The audit has not found the known anomalies: its time is of no interest."""


@dataclass(slots=True)
class Measured:
    """The times of journals of one size, in seconds, for each turn.

    Attributes:
        lines: the number of lines of the journals.
        files: the number of their files.
        bytes: their size.
        read: the time to read the files with the schema, parse every field, and count.
        inferred: the time to count `spark.read.json(folder)`, which first finds out the
            schema.
        audit: the time of the audit, including its tables and report.
        jvm_bytes: the largest memory of the JVM during the measurement.
        python_bytes: the largest memory of this process. Both are 0 without a /proc.
    """

    lines: int
    files: int
    bytes: int
    read: list[float] = field(default_factory=list)
    inferred: list[float] = field(default_factory=list)
    audit: list[float] = field(default_factory=list)
    jvm_bytes: int = 0
    python_bytes: int = 0

    @property
    def ratio(self) -> float:
        """The ratio of the audit to reading with a schema: the median of the turns."""
        return _ratio(self.audit, self.read)

    @property
    def ratio_inferred(self) -> float:
        """The ratio of the audit to counting without a schema."""
        return _ratio(self.audit, self.inferred)


def plan_for(events: int) -> Plan:
    """A plan for journals of about this number of lines, with some anomalies."""
    least = _LOST + _DUPLICATED + _STUCK
    messages = max(round(events / _LINES_A_MESSAGE), least)
    devices = math.ceil(messages / _MESSAGES_A_DEVICE)
    return Plan(
        devices=devices,
        messages=messages,
        lost=_LOST,
        duplicated=_DUPLICATED,
        stuck=_STUCK,
    )


def measure(
    spark: SparkSession,
    journals: Path,
    out: Path,
    *,
    repeat: int,
    progress: Callable[[str], None] = lambda step: None,
) -> Measured:
    """Read and count journals, and audit them, in turns.

    Args:
        spark: the session.
        journals: a folder made by `synthesise`.
        out: a folder for the tables.
        repeat: the number of turns.
        progress: called with a description of the present step.

    Raises:
        WrongResult: lines or anomalies differ from the known ones.
    """
    expected = json.loads((journals / EXPECTED).read_text(encoding="utf-8"))
    files = [path.stat().st_size for path in journals.glob("date=*/*.jsonl")]
    found = Measured(expected["lines"], len(files), sum(files))
    with Memory(spark) as memory:
        for turn in range(1, repeat + 1):
            which = f", turn {turn} of {repeat}"
            progress(f"reading and counting{which}")
            with _timed(found.read):
                _same("lines", _count(spark, journals), found.lines)
            progress(f"counting without a schema{which}")
            with _timed(found.inferred):
                _same(
                    "lines", _reader(spark).json(_glob(journals)).count(), found.lines
                )

            def tell(step: str, which: str = which) -> None:
                progress(f"audit: {step}{which}")

            limits = Limits(now=datetime.now(UTC))
            with _timed(found.audit):
                summary = audit(
                    spark, [str(journals)], str(out), limits=limits, progress=tell
                )
            _same("events", summary.events, found.lines)
            _same("anomalies", dict(summary.anomalies), _kinds(expected["anomalies"]))
    found.jvm_bytes, found.python_bytes = memory.jvm_bytes, memory.python_bytes
    return found


@dataclass(frozen=True, slots=True)
class Growth:
    """The time of an audit: a fixed cost, and a cost for each line.

    Both are taken from the straight line that best fits all sizes.

    Attributes:
        fixed_s: the fixed cost, in seconds.
        line_us: the cost of each line, in microseconds.
        ratio: `line_us` divided by the time of `spark.read.json(folder).count()` for
            each line.
    """

    fixed_s: float
    line_us: float
    ratio: float


def growth(measured: Sequence[Measured]) -> Growth | None:
    """See Growth; None: there is only one size, or noise hides the cost of a line."""
    if len({each.lines for each in measured}) < 2:
        return None
    lines = [each.lines for each in measured]
    audit = linear_regression(lines, [median(each.audit) for each in measured])
    count = linear_regression(lines, [median(each.inferred) for each in measured])
    if min(audit.slope, count.slope) <= 0:
        return None
    return Growth(audit.intercept, audit.slope * 1e6, audit.slope / count.slope)


class Memory:
    """Watches the memory of the JVM and of this process while it is open.

    Attributes:
        jvm_bytes: the largest memory of the JVM so far.
        python_bytes: the largest memory of this process so far.
    """

    def __init__(self, spark: SparkSession) -> None:
        process = cast(Any, spark.sparkContext)._jvm.java.lang.ProcessHandle
        self._jvm = int(process.current().pid())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.jvm_bytes = self.python_bytes = 0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.jvm_bytes = max(self.jvm_bytes, _resident(self._jvm))
            self.python_bytes = max(self.python_bytes, _resident(os.getpid()))
            if self._stopped.wait(_LOOK_S):
                return


def _resident(pid: int) -> int:
    """The memory of a process, in bytes; 0: it has ended."""
    usage = usage_of(pid)
    return 0 if usage is None else usage.rss_bytes


def _count(spark: SparkSession, journals: Path) -> int:
    lines = _reader(spark).schema(_FIELDS).json(_glob(journals))
    # Spark leaves out fields that are not needed.
    fields = [F.count(name) for name in _FIELDS.names]
    row = lines.agg(F.count("*"), *fields).first()
    assert row is not None
    return int(row[0])


def _reader(spark: SparkSession) -> Any:
    return spark.read.option("recursiveFileLookup", "true")


def _glob(journals: Path) -> str:
    return f"{read.literal(str(journals))}/date=*"


@contextmanager
def _timed(times: list[float]) -> Iterator[None]:
    began = time.monotonic()
    yield
    times.append(time.monotonic() - began)


def _ratio(some: Sequence[float], others: Sequence[float]) -> float:
    return median(a / b for a, b in zip(some, others, strict=True))


def _kinds(anomalies: Sequence[dict[str, str]]) -> dict[str, int]:
    kinds = [each["kind"] for each in anomalies]
    return {kind: kinds.count(kind) for kind in kinds}


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongResult(f"there are {expected} {what}, and {found} were found")
