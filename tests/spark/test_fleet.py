"""An audit of made-up fleets, whose generator and truth share no code with it.

More of them: `QOS_SEEDS=100 pytest tests/spark/test_fleet.py`. See tests/fleet; the same
truth from `audit --follow`, a declarative pipeline and a cluster is in the tests of
these.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fleets import NOW, Fleets, make_fleets
from published import differences, rows, wrong_verdicts
from qos.audit.driver import audit
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-tables"),
    pytest.mark.timeout(600),
]


def test_an_audit_counts_and_judges_as_others_do(
    fleets: Fleets, audited_fleets: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """DuckDB counts each table row for row; and verdicts are what the lines prove."""
    check(fleets, audited_fleets)
    for seed in range(1, int(os.environ.get("QOS_SEEDS", "1"))):
        others, out = make_fleets(tmp_path / f"{seed}", seed), tmp_path / f"out-{seed}"
        audit(spark, [str(others.journals)], str(out), limits=Limits(now=NOW))
        check(others, out)


def check(fleets: Fleets, out: Path) -> None:
    assert differences(out, fleets.recount) == {}
    accused = rows(out / "anomalies", ("kind", "sender", "msg_id"))
    # No accusation without a fault, whatever is missing.
    assert set(accused) <= set(fleets.faults)
    assert wrong_verdicts(out, fleets.truth) == {}
