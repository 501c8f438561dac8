"""An audit of made-up fleets, whose generator and truth share no code with it.

More of them: `QOS_SEEDS=100 pytest tests/spark/test_fleet.py`. See tests/fleet.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from generator import Plan, fleet
from layout import lay_out
from nodes import SECOND
from qos.journal.schema import SCHEMA_VERSION
from qos.pipeline.driver import audit
from qos.pipeline.tables import Limits
from recount import TABLES, Recount, comparable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

#: The versions of the schema that a journal may be in today.
VERSIONS = tuple(range(1, SCHEMA_VERSION + 1))


def seeds() -> range:
    return range(int(os.environ.get("QOS_SEEDS", "1")))


def rows(out: Path, name: str, columns: Sequence[str]) -> Counter[tuple[object, ...]]:
    """These columns of a table of an audit, as `Recount` has them."""
    with duckdb.connect() as base:
        table = base.from_arrow(DeltaTable(out / name).to_pyarrow_table())
        kinds = dict(zip(table.columns, map(str, table.types), strict=True))
        wanted = ", ".join(in_numbers(each, kinds[each]) for each in columns)
        return comparable(table.project(wanted).fetchall())


def in_numbers(column: str, kind: str) -> str:
    """A moment, or an hour, as numbers; in SQL."""
    if column == "hour":
        return "epoch_us(date::TIMESTAMP) // 3600000000 + hour"
    return f"epoch_us({column})" if kind.startswith("TIMESTAMP") else column


@pytest.mark.parametrize("seed", seeds())
def test_each_table_has_the_rows_that_duckdb_counts(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Row for row, from the same files, by SQL that was written from the documents."""
    made = fleet(Plan(seed, faults=3, versions=VERSIONS))
    journals, out = tmp_path / "journals", tmp_path / "out"
    lay_out(made, seed).write(journals)
    limits = Limits(now=datetime.fromtimestamp(made.now / SECOND, UTC))
    audit(spark, [str(journals)], str(out), limits=limits)
    recount = Recount(journals, version=SCHEMA_VERSION)
    for name in TABLES:
        found = rows(out, name, recount.columns(name))
        assert found == recount.rows(name), name
        assert found, name
