"""A day that is audited again is replaced as a whole, and others stay."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from qos.pipeline import store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(180),
]

FIFTH, SIXTH, SEVENTH = (date(2026, 1, day) for day in (5, 6, 7))


def table(spark: SparkSession, *rows: tuple[date, int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "date date, hour int, name string")


def test_a_rerun_of_a_day_replaces_it(spark: SparkSession, tmp_path: Path) -> None:
    """Also an hour of which nothing is left; and never a day beside it."""
    folder = str(tmp_path / "table {1} [a]")
    before = table(
        spark,
        *((FIFTH, 1, "stays"), (SIXTH, 1, "old"), (SIXTH, 2, "old")),
        *((SIXTH, 3, "old"), (SEVENTH, 1, "stays")),
    )
    store.replace_days(before, folder, FIFTH, SEVENTH)
    after = table(
        spark, (SIXTH, 1, "new"), (SIXTH, 4, "new"), (SEVENTH, 1, "of another day")
    )
    for _ in range(2):
        store.replace_days(after, folder, SIXTH, SIXTH)
        rows = store.read_table(before, folder).collect()
        assert sorted(map(tuple, rows)) == [
            (FIFTH, 1, "stays"),
            (SIXTH, 1, "new"),
            (SIXTH, 4, "new"),
            (SEVENTH, 1, "stays"),
        ]
    assert store.read_table(before, folder, SEVENTH, SEVENTH).count() == 1


def test_a_table_without_rows_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """By anybody, who does not know what its columns are; and nothing of it stays."""
    folder = str(tmp_path / "t")
    empty = table(spark)
    store.replace_days(empty, folder, FIFTH, SIXTH)
    found = spark.read.parquet(folder)
    assert found.collect() == store.read_table(empty, folder).collect() == []
    assert dict(found.dtypes) == dict(empty.dtypes)
    store.replace_days(table(spark, (SEVENTH, 1, "a")), folder, SEVENTH, SEVENTH)
    found = spark.read.parquet(folder).select(empty.columns)
    assert found.collect() == [(SEVENTH, 1, "a")]
    store.replace_days(table(spark, (FIFTH, 2, "b")), folder, FIFTH, FIFTH)
    assert [path.parent.name for path in tmp_path.glob("t/date=*-05/*/*.parquet")] == [
        "hour=2"
    ]


def test_a_small_table_without_rows_can_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As a table of days is."""
    store.replace_table(table(spark), str(tmp_path / "t"))
    assert spark.read.parquet(f"{tmp_path}/t").dtypes == table(spark).dtypes
