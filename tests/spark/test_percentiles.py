"""A percentile over routes, as docs/tables.md computes it from the counts by bucket."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from qos.audit.snapshot import snapshot

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

CODE = Path(__file__).parents[2] / "docs" / "code"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


def test_spark_duckdb_and_pandas_find_the_bucket_of_the_true_percentile(
    spark: SparkSession,
    audited: Audited,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest percentile of a row was three times as much."""
    monkeypatch.chdir(tmp_path)
    Path("audit").symlink_to(audited.out)
    names: dict[str, Any] = {"__file__": str(CODE / "p99.py")}
    exec((CODE / "p99.py").read_text(), names)  # noqa: S102 - our own guide
    latencies = defaultdict(list)
    for row in snapshot("audit")["deliveries"].to_pyarrow_table().to_pylist():
        if row["latency_s"] is not None:
            latencies[row["level"]].append(row["latency_s"])
    found = {row["level"]: row["p99_s"] for row in names["by_spark"]}
    assert found.keys() == latencies.keys()
    for level, values in latencies.items():
        true = sorted(values)[math.ceil(0.99 * len(values)) - 1]
        assert true <= found[level] * (1 + 1e-9) < true * 10**0.1 * (1 + 2e-9)
    for others in (dict(names["by_duckdb"]), names["by_pandas"]):
        assert others == pytest.approx(found)
