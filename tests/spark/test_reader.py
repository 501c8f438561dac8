"""A reader that never stops, beside audits that are killed: each read is a whole one."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.synth import Plan, synthesise
from qos.audit.driver import audit
from qos.audit.tables import Limits
from qos.testing.processes import Child

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(7200 if "READS" in os.environ else 600),
]

#: More by hand: READS=10000 KILLS=20 pytest -s tests/spark/test_reader.py
READS = int(os.environ.get("READS", "200"))
KILLS = int(os.environ.get("KILLS", "1"))
#: The limits when other tests run beside this one.
PAUSE_S = 0.0 if "READS" in os.environ else 0.05

#: An audit is killed a moment after it has announced one of these steps.
MOMENTS = (
    *("writing routes_hourly", "drawing the report", "writing deliveries"),
    *("writing anomalies", "writing refusals", "writing queue_items"),
    *("writing workers_hourly", "reading the journals"),
)

FOLDER = Path(__file__).parent


class Auditor:
    """A process that audits without end, in a group of its own with its JVM."""

    def __init__(self, out: Path, journals: Sequence[Path]) -> None:
        self._process = subprocess.Popen(
            (
                *(*Child.mortal(), sys.executable),
                *(FOLDER / "auditing_child.py", out, *journals),
            ),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, step: str) -> None:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline().rstrip("\n")) != step:
            assert line, self._process.wait()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


@pytest.mark.long
def test_each_read_beside_killed_audits_is_of_one_whole_audit(
    tmp_path: Path, spark: SparkSession
) -> None:
    """By DuckDB and by pyarrow; and what was opened before is still there."""
    journals, out, stop = tmp_path / "journals", tmp_path / "out", tmp_path / "stop"
    first, one = (
        tmp_path / "first",
        Plan(devices=5, messages=60, lost=2, duplicated=1, stuck=2, hours=1),
    )
    synthesise(one, first, processes=1)
    (day,) = first.glob("date=*")
    with min(day.iterdir()).open("a") as file:
        file.write("nonsense\n")
    limits = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
    audit(spark, [str(first)], str(out), limits=limits)
    other = Plan(devices=5, messages=90, lost=1, duplicated=3, stuck=1, hours=2)
    synthesise(other, journals, processes=1)
    states = (
        {"sent": 60, "anomalies": {"duplicated": 1, "lost": 2, "stuck": 2}},
        {"sent": 90, "anomalies": {"duplicated": 3, "lost": 1, "stuck": 1}},
    )
    arguments = (str(each) for each in (out, READS, PAUSE_S, stop, json.dumps(states)))
    reader = subprocess.Popen(
        (*Child.mortal(), sys.executable, FOLDER / "reading_child.py", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    chance = random.Random(1)
    turns = [journals, first]
    auditor = Auditor(out, turns)
    try:
        for moment in itertools.islice(itertools.cycle(MOMENTS), KILLS):
            auditor.until(moment)
            time.sleep(chance.choice((0.0, 0.1, 0.3)))
            auditor.kill()
            assert reader.poll() is None, reader.communicate()
            auditor = Auditor(out, turns)
            auditor.until("done")
            turns.reverse()
        stop.write_text("")
        said, err = reader.communicate()
    finally:
        auditor.kill()
        reader.kill()
    assert (reader.returncode, err) == (0, "")
    found = json.loads(said)
    print(KILLS, "kills;", found)
    assert sum(found["seen"].values()) >= READS
    assert found["changes"] >= KILLS
