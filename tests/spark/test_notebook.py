"""The example notebook runs from top to bottom, and what it shows is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.synth import EXPECTED, Plan, synthesise
from qos.audit.driver import audit
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "fleet_report.ipynb"

#: A month of a small fleet.
MONTH = Plan(devices=8, messages=2_400, lost=9, duplicated=2, days=30)

#: Added to the notebook: what is in its pictures.
TOLD = """
import json
json.dump([losing["lost"].to_dict(), by_hour["p99"].to_dict(), len(daily)], open("told", "w"))
"""

#: Of neighbours among the bounds of the buckets.
BUCKET = 10**0.1


def cells() -> list[dict[str, Any]]:
    return list(json.loads(NOTEBOOK.read_text())["cells"])


def test_the_notebook_is_kept_without_output() -> None:
    """Whoever opens it sees what their own tables say, and nothing else."""
    for cell in cells():
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def executed(folder: Path) -> list[dict[str, Any]]:
    """The outputs of the notebook, as Jupyter's command makes them in this folder."""
    notebook = json.loads(NOTEBOOK.read_text())
    code = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    notebook["cells"].append(code[-1] | {"id": "told", "source": TOLD})
    copy = folder / NOTEBOOK.name
    copy.write_text(json.dumps(notebook))
    command = Path(sys.executable).with_name("jupyter-execute")
    done = subprocess.run(
        [command, "--inplace", "--timeout=300", copy.name],
        cwd=folder,
        # Nothing of a user's is read or written.
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    after = json.loads(copy.read_text())["cells"]
    return [
        output for cell in after for output in cell.get("outputs", ()) if cell["source"]
    ]


def percentile(values: list[float], share: float) -> float:
    """The smallest value that so many of all are at most."""
    ordered = sorted(values)
    return next(
        value
        for rank, value in enumerate(ordered, 1)
        if rank >= share * len(ordered) - 1e-9
    )


@pytest.mark.long
def test_the_notebook_shows_what_the_journals_of_a_month_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The lost messages of each receiver, the p99 of each hour, and each day."""
    journals = tmp_path / "journals"
    synthesise(MONTH, journals, processes=1)
    limits = Limits(now=datetime(2026, 3, 1, tzinfo=UTC))
    audit(spark, [str(journals)], str(tmp_path / "audit"), limits=limits)
    outputs = executed(tmp_path)

    assert not [each for each in outputs if each.get("name") == "stderr"]
    pictures = [each for each in outputs if "image/png" in each.get("data", ())]
    assert len(pictures) == 3

    rows = snapshot(str(tmp_path / "audit"))["deliveries"].to_pyarrow_table()
    receivers = {row["msg_id"]: row["receiver"] for row in rows.to_pylist()}
    anomalies = json.loads((journals / EXPECTED).read_text())["anomalies"]
    lost = Counter(
        receivers[each["msg_id"]] for each in anomalies if each["kind"] == "lost"
    )
    latencies = defaultdict(list)
    for row in rows.to_pylist():
        if row["latency_s"] is not None:
            latencies[row["hour"]].append(row["latency_s"])
    told_lost, told_p99, days = json.loads((tmp_path / "told").read_text())
    assert Counter(told_lost) == lost
    assert lost.total() == MONTH.lost
    assert days == MONTH.days
    assert sorted(map(int, told_p99)) == sorted(latencies) == [*range(24)]
    for hour, p99 in told_p99.items():
        true = percentile(latencies[int(hour)], 0.99)
        assert true <= p99 * 1.000001
        assert p99 <= true * BUCKET * 1.000001 or p99 == 0.001, hour
