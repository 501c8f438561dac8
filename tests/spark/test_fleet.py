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

from fleets import Fleets, audited_fleets
from published import differences

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


def test_each_table_has_the_rows_that_duckdb_counts(
    fleets: Fleets, spark: SparkSession, tmp_path: Path
) -> None:
    """Row for row, from the same files, by SQL that was written from the documents."""
    assert differences(fleets.out, fleets.recount) == {}
    for seed in range(1, int(os.environ.get("QOS_SEEDS", "1"))):
        more = audited_fleets(spark, tmp_path / str(seed), seed)
        assert differences(more.out, more.recount) == {}, seed
