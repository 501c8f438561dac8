"""The cost of an audit when files, bytes or days of history grow, each by itself.

Run by `make scale`. Prints a table; returns 1 if a day costs more because of other
days.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.audit import Memory
from benchmarks.synth import FIRST_DAY, Plan, synthesise
from qos.audit.driver import audit
from qos.audit.new_files import files_since
from qos.audit.tables import Limits
from qos.spark.session import spark_session
from spark_stages import stages

LINES = 60_000
FILES = (100, 1_000, 10_000)
TIMES = (1, 4, 16)
DAYS = (1, 10, 100)

#: The most that other days may increase the time of a day; the machine is not quiet.
_SLOWER = 1.5


@dataclass(frozen=True)
class Journals:
    """Journals that differ in one number."""

    grows: str
    folder: Path
    last: date


@dataclass(frozen=True)
class Cost:
    """The cost of an audit of the last day."""

    files: int
    mb: float
    days: int
    listed_s: float
    audited_s: float
    stages: int
    tasks: int
    python_mb: float
    java_mb: float


def made(work: Path) -> Iterator[Journals]:
    """One journal after the other.

    Each can be removed when the next one is requested.
    """
    # A small one, so that Java is warm.
    day = work / "warm"
    synthesise(Plan(devices=5, messages=500), day, processes=1)
    yield Journals("(to warm up)", day, FIRST_DAY)
    for times in TIMES:
        folder = work / f"bytes-{times}"
        synthesise(Plan(devices=50, messages=LINES // 12 * times), folder)
        yield Journals("bytes", folder, FIRST_DAY)
    base = work / "bytes-1"
    for files in FILES:
        folder = work / f"files-{files}"
        _split(base, folder, files)
        yield Journals("files", folder, FIRST_DAY)
    for days in DAYS:
        folder = work / f"days-{days}"
        source = base / f"date={FIRST_DAY}"
        for number in range(1, days):
            earlier = folder / f"date={FIRST_DAY - timedelta(days=number + 3)}"
            shutil.copytree(source, earlier, copy_function=os.link)
        shutil.copytree(source, folder / source.name, copy_function=os.link)
        yield Journals("days", folder, FIRST_DAY)


def _split(base: Path, folder: Path, files: int) -> None:
    """The same lines in about so many files."""
    paths = sorted(base.glob("date=*/*.jsonl"))
    lines = [path.read_text().splitlines(keepends=True) for path in paths]
    size = -(-sum(map(len, lines)) // files)
    for path, each in zip(paths, lines, strict=True):
        stem = path.name.removesuffix(".jsonl").rpartition("-")[0]
        target = folder / path.parent.name
        target.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, len(each), size), 1):
            part = "".join(each[start : start + size])
            (target / f"{stem}-{number}.jsonl").write_text(part)


def measured(spark: SparkSession, journals: Journals, out: Path) -> Cost:
    """List the files of the last day and audit it, in a session that is warm."""
    before = stages(spark)
    began = time.monotonic()
    files = files_since(spark, [str(journals.folder)], journals.last)
    listed_s = time.monotonic() - began
    limits = Limits(now=datetime.now(UTC))
    with Memory(spark) as memory:
        began = time.monotonic()
        last = journals.last
        audit(
            spark,
            [str(journals.folder)],
            str(out),
            limits=limits,
            first=last,
            last=last,
        )
        audited_s = time.monotonic() - began
    after = stages(spark).items()
    tasks = [each.tasks for stage, each in after if stage not in before]
    return Cost(
        len(files),
        sum(file.size for file in files) / 1e6,
        len(list(journals.folder.glob("date=*"))),
        listed_s,
        audited_s,
        len(tasks),
        sum(tasks),
        memory.python_bytes / 1e6,
        memory.jvm_bytes / 1e6,
    )


def main() -> int:
    """Print a row for each; return the exit status."""
    print(
        "grows     files       MB  days  listed s  audited s  stages  tasks  MB of Python, Java"
    )
    by_days: list[Cost] = []
    with (
        tempfile.TemporaryDirectory() as name,
        spark_session("scale", quiet=True) as spark,
    ):
        work = Path(name)
        for journals in made(work):
            cost = measured(spark, journals, work / "out")
            shutil.rmtree(work / "out")
            if journals.grows == "days":
                by_days.append(cost)
            print(
                f"{journals.grows:12} {cost.files:>6,} {cost.mb:>7.1f} {cost.days:>5} "
                f"{cost.listed_s:>9.3f} {cost.audited_s:>10.1f} {cost.stages:>7} "
                f"{cost.tasks:>6} {cost.python_mb:>10.0f}, {cost.java_mb:.0f}",
                flush=True,
            )
    alone, *others = by_days
    slower = [cost for cost in others if cost.audited_s > _SLOWER * alone.audited_s]
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
