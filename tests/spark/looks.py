"""The cost of the looks of a follower, each with the journals of another hour.

Run by `make looks`, or `make looks LOOKS=30`. Prints a row for each look, and then the
cost of the looks of the last day, compared with that of the first day. Returns 1 if it
is more than 1.5 times as high.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any, cast

from pyspark.sql import SparkSession

from benchmarks.synth import Plan, synthesise
from qos.audit.follow import Follower
from qos.audit.tables import Limits
from qos.spark.session import spark_session
from spark_stages import stages

DEVICES = 40
MESSAGES_A_DAY = 36_000
LATE = timedelta(days=1)

#: The most that a look of the last day may cost, as a ratio.
_MORE = 1.5


@dataclass(frozen=True)
class Cost:
    """The cost of a look; `cpu_s` is that of Java and Python together."""

    hour: str
    lines: int
    wall_s: float
    cpu_s: float
    stages: int
    read: int


def journals(made: Path, into: Path) -> Iterator[tuple[str, int]]:
    """Let the journals of one hour after the other come; give each, and its lines."""
    by_hour: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(made.glob("date=*/*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            by_hour[json.loads(line)["at"][:13]][path.stem].append(line)
    for hour, files in sorted(by_hour.items()):
        day = into / f"date={hour[:10]}"
        day.mkdir(parents=True, exist_ok=True)
        for stem, lines in files.items():
            (day / f"{stem}{hour[11:]}.jsonl").write_text("".join(lines))
        yield hour, sum(map(len, files.values()))


def looks(spark: SparkSession, work: Path, count: int) -> Iterator[Cost]:
    """So many looks."""
    days = -(-count // 24)
    plan = Plan(DEVICES, MESSAGES_A_DAY * days, lost=5, duplicated=5, days=days)
    synthesise(plan, work / "made")
    now = datetime(2026, 1, 5, tzinfo=UTC)
    come, out = work / "journals", str(work / "out")
    come.mkdir()
    follower = Follower(
        spark, [str(come)], out, limits=lambda: Limits(now=now), lateness=LATE
    )
    for (hour, lines), _ in zip(
        journals(work / "made", come), range(count), strict=False
    ):
        now = datetime.fromisoformat(f"{hour}:00:00+00:00") + timedelta(hours=1)
        before, cpu_s, began = stages(spark), _cpu_s(spark), time.monotonic()
        follower.look()
        wall_s = time.monotonic() - began
        after = stages(spark).items()
        new = [
            each.records for stage, each in after if stage not in before and each.tasks
        ]
        used_s = _cpu_s(spark) - cpu_s
        yield Cost(hour, lines, wall_s, used_s, len(new), sum(new))


def _cpu_s(spark: SparkSession) -> float:
    java = cast(Any, spark.sparkContext)._jvm.java.lang.ProcessHandle.current().pid()
    text = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()
    return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK") + sum(
        os.times()[:4]
    )


def main(count: int) -> int:
    """Print the cost of each look; return the exit status."""
    print("look  hour           lines  seconds  CPU s  stages  records read")
    found: list[Cost] = []
    with (
        tempfile.TemporaryDirectory() as name,
        spark_session("looks", quiet=True) as spark,
    ):
        for cost in looks(spark, Path(name), count):
            found.append(cost)
            print(
                f"{len(found):>4}  {cost.hour}  {cost.lines:>6,}  {cost.wall_s:>7.1f}  "
                f"{cost.cpu_s:>5.1f}  {cost.stages:>6}  {cost.read:>12,}",
                flush=True,
            )
    # Without the first look, in which Java is cold; and the same hours of another day.
    first = found[1:24]
    hours = {cost.hour[11:] for cost in first}
    last = [cost for cost in found[-24:] if cost.hour[11:] in hours]
    ratios = {
        name: mean(getattr(cost, name) for cost in last)
        / mean(getattr(cost, name) for cost in first)
        for name in ("lines", "wall_s", "cpu_s", "read")
    }
    print(
        "last day beside the first:", {name: round(r, 2) for name, r in ratios.items()}
    )
    return 1 if ratios["cpu_s"] > _MORE * ratios["lines"] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
