"""A day that is audited again is replaced as a whole, and others stay."""

import os
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import duckdb
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import delta, hadoop, parquet_files, store
from qos.audit.delta import CannotWrite
from qos.audit.locations import (
    delta_uri,
    local_path,
    spark_folder,
    storage_options,
)
from qos.audit.snapshot import files, spark_frame
from qos.audit.swap import join_files, swap
from spark_stages import stages

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

FIFTH, SIXTH, SEVENTH = (date(2026, 1, day) for day in (5, 6, 7))


def table(spark: SparkSession, *rows: tuple[date, int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "date date, hour int, name string")


@pytest.mark.parametrize(
    "scheme",
    [
        "",
        pytest.param("file:", marks=pytest.mark.long),
        pytest.param("file://", marks=pytest.mark.long),
    ],
)
def test_a_rerun_of_a_day_replaces_it(
    scheme: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its folder may have any name; and other days stay."""
    folder = f"{scheme}{tmp_path}/table {{1}} [a] +&"
    before = table(
        spark,
        *((FIFTH, 1, "stays"), (SIXTH, 1, "old"), (SIXTH, 2, "old")),
        *((SIXTH, 3, "old"), (SEVENTH, 1, "stays")),
    )
    store.replace_days(before, folder, FIFTH, SEVENTH)
    earlier = store.read_table(before, folder)
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
    assert store.count_rows(spark, folder, SIXTH, SIXTH) == 2
    # A frame that was read before can still be read.
    assert sorted(earlier.collect()) == sorted(before.collect())
    assert [path.name for path in tmp_path.iterdir()] == ["table {1} [a] +&"]


def test_a_table_without_rows_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """By any reader, without knowing its columns."""
    folder = str(tmp_path / "t")
    empty = table(spark)
    assert store.read_table(empty, folder).collect() == []
    assert store.count_rows(spark, folder) == 0
    store.replace_days(empty, folder, FIFTH, SIXTH)
    found = spark_frame(spark, DeltaTable(folder))
    assert found.collect() == store.read_table(empty, folder).collect() == []
    assert found.dtypes == empty.dtypes
    store.replace_days(table(spark, (SEVENTH, 1, "a")), folder, SEVENTH, SEVENTH)
    assert spark_frame(spark, DeltaTable(folder)).collect() == [(SEVENTH, 1, "a")]
    store.replace_days(empty, folder, SEVENTH, SEVENTH)
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 0


def test_days_without_rows_are_written_without_a_job_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Most tables of a small audit have none, and a job takes as long as for many."""
    folder = str(tmp_path / "t")
    empty = table(spark)
    before = stages(spark)
    store.clear_days(empty, folder, FIFTH, SIXTH)
    assert store.read_table(empty, folder).dtypes == empty.dtypes
    assert stages(spark) == before
    rows = [(day, 1, "a") for day in (FIFTH, SIXTH, SEVENTH)]
    store.replace_days(table(spark, *rows), folder, FIFTH, SEVENTH)
    store.clear_days(empty, folder, FIFTH, SIXTH)
    assert spark_frame(spark, DeltaTable(folder)).collect() == rows[2:]
    with pytest.raises(CannotWrite, match="name is of another version"):
        store.clear_days(empty.withColumn("name", F.lit(1)), folder, FIFTH, SIXTH)


def test_a_small_table_is_replaced_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has no days; and may have no rows."""
    folder = str(tmp_path / "t")
    # Left by a process that was killed at its beginning.
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    rows = [(FIFTH, 1, "a"), (SIXTH, 2, "b")]
    for each in (rows, rows[1:], []):
        store.replace_table(table(spark, *each), folder)
        read = store.read_table(table(spark), folder)
        assert (read.collect(), read.dtypes) == (each, table(spark).dtypes)


def test_a_day_is_a_few_files(spark: SparkSession, tmp_path: Path) -> None:
    """However many tasks have made it, and however many hours and days there are."""
    folder = str(tmp_path / "t")
    rows = [(day, number % 24, "x") for number in range(500) for day in (FIFTH, SIXTH)]
    many = table(spark, *rows).repartition(16)
    # As an audit has it, but not the tests.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        for _ in range(2):
            store.replace_days(many, folder, FIFTH, date(2026, 1, 8))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(DeltaTable(folder).file_uris()) == 2


def test_rows_of_few_days_do_not_move_to_be_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each task writes its own: a day of a fleet would take long to sort again."""
    folder = str(tmp_path / "t")
    rows = [(day, number, "x") for number in range(8) for day in (FIFTH, SIXTH)]
    store.replace_days(table(spark, *rows).repartition(2), folder, FIFTH, SEVENTH)
    files = DeltaTable(folder).file_uris()
    assert 2 < len(files) <= 4


def test_the_log_knows_what_is_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """So that readers open only files that may have the rows they look for."""
    folder = str(tmp_path / "t")
    moments = [datetime(2026, 1, 5, 12, 0, 0, micro, UTC) for micro in (1, 999_999)]
    rows = [(FIFTH, moment, None, "x" * 65, 1.5, True) for moment in moments]
    columns = "date date, at timestamp, text string, long string, x double, yes boolean"
    frame = spark.createDataFrame(rows, columns).withColumn("n", F.lit(7))
    frame = frame.coalesce(1)
    store.replace_days(frame, folder, FIFTH, FIFTH)
    (action,) = (
        DeltaTable(folder).get_add_actions(flatten=True).to_struct_array().to_pylist()
    )
    found = {name: value for name, value in action.items() if value is not None}
    del found["path"], found["size_bytes"], found["modification_time"]
    assert found == {
        "num_records": 2,
        "partition.date": FIFTH,
        **{f"null_count.{n}": 0 for n in ("at", "long", "x", "yes", "n")},
        "null_count.text": 2,
        # In milliseconds, as Delta demands: no row is outside.
        "min.at": moments[0].replace(microsecond=0),
        "max.at": moments[0].replace(microsecond=0) + timedelta(seconds=1),
        "min.n": 7,
        "max.n": 7,
    }
    (log,) = Path(folder, "_delta_log").glob("*1.json")
    assert r"\"at\": \"2026-01-05T12:00:00.000Z\"" in log.read_text()
    # No file is left out that has a row of this kind.
    data = DeltaTable(folder).to_pyarrow_dataset()
    for where, count in (
        ("\"at\" = '2026-01-05 12:00:00.999999Z'", 1),
        ("text IS NULL", 2),
    ):
        assert len(duckdb.from_arrow(data).filter(where).fetchall()) == count


def test_of_two_writers_of_a_table_one_gets_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise both would replace the day, and it would have the rows of both."""
    folder = str(tmp_path / "t")
    store.replace_days(table(spark), folder, FIFTH, SEVENTH)
    real = parquet_files.add_actions

    def meanwhile(*args: object, **keywords: object) -> object:
        monkeypatch.setattr(delta, "add_actions", real)
        store.replace_days(table(spark, (FIFTH, 1, "other")), folder, FIFTH, FIFTH)
        return real(*args, **keywords)  # type: ignore[arg-type]  # as they are given

    monkeypatch.setattr(delta, "add_actions", meanwhile)
    with pytest.raises(
        CannotWrite, match="or somebody else, has written into it meanwh"
    ):
        store.replace_days(table(spark, (FIFTH, 1, "one")), folder, FIFTH, FIFTH)
    assert store.read_table(table(spark), folder).collect() == [(FIFTH, 1, "other")]


def test_a_new_column_is_added_and_another_type_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A later version of the library may have more columns.

    Older days stay as they are.
    """
    folder = str(tmp_path / "t")
    store.replace_days(table(spark, (FIFTH, 1, "a")), folder, FIFTH, FIFTH)
    more = table(spark, (SIXTH, 2, "b")).withColumn("more", F.lit("new"))
    store.replace_days(more, folder, SIXTH, SIXTH)
    rows = store.read_table(more, folder).orderBy("date").collect()
    assert rows == [(FIFTH, 1, "a", None), (SIXTH, 2, "b", "new")]
    other = more.withColumn("hour", F.lit("twelve"))
    with pytest.raises(CannotWrite, match="its column hour is of another version"):
        store.replace_days(other, folder, SIXTH, SIXTH)
    assert store.read_table(more, folder).orderBy("date").collect() == rows


def test_a_folder_has_a_name_for_spark_and_one_for_deltalake(
    spark: SparkSession,
) -> None:
    """There is no object store here: only the names for both are compared."""
    assert delta_uri("s3a://bucket/a b") == "s3://bucket/a b"
    assert spark_folder("s3://bucket/a/t/") == "s3a://bucket/a/t"
    assert delta_uri("abfss://c@a.example/t") == "abfss://c@a.example/t"
    assert delta_uri("file:///a b/t") == delta_uri("file:/a b/t") == "/a b/t"
    assert spark_folder("file:///a%20b/t/") == spark_folder("/a b/t") == "file:///a b/t"
    assert local_path("hdfs:///a") is None
    assert storage_options(spark, "/a") is None
    hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", "me")
    hadoop.set("fs.s3a.endpoint", "http://127.0.0.1:9000")
    try:
        assert storage_options(spark, "s3a://bucket/a") == {
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        hadoop.unset("fs.s3a.access.key")
        hadoop.unset("fs.s3a.endpoint")


def test_files_of_others_are_not_taken_for_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nor removed."""
    (tmp_path / "t" / "date=2026-01-05" / "hour=1").mkdir(parents=True)
    with pytest.raises(CannotWrite, match="belong to no Delta table: give another"):
        store.replace_days(table(spark), f"{tmp_path}/t", FIFTH, FIFTH)
    assert [path.name for path in tmp_path.glob("t/*")] == ["date=2026-01-05"]


def test_a_report_can_be_written_where_spark_can_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not on this machine only: a report that is announced has to be there."""
    file = tmp_path / "out" / "report.html"
    for content in (b"<p>of yesterday, and longer</p>", "<p>\N{SNOWMAN}</p>".encode()):
        hadoop.write(spark, f"file:{file}", content)
        assert file.read_bytes() == content


def test_files_of_some_days_are_joined_and_no_row_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The files of each version can still be read; a second join does nothing."""
    folder = f"{tmp_path}/table"
    for hour in (1, 2, 3):
        rows = [(day, hour, f"{day} {hour}") for day in (FIFTH, SIXTH, SEVENTH)]
        frame = table(spark, *rows)
        keys = frame.select("name")
        hours = [(day, hour) for day in (FIFTH, SIXTH, SEVENTH)]
        swap(frame, folder, on=["name"], keys=keys, hours=hours)
    before = DeltaTable(folder)
    expected = sorted(map(tuple, spark_frame(spark, before).collect()))
    assert len(expected) == 9
    for _ in range(2):
        join_files(spark, folder, FIFTH, SIXTH)
        joined = DeltaTable(folder)
        assert joined.version() == before.version() + 1
        for each in (before, joined):
            assert sorted(map(tuple, spark_frame(spark, each).collect())) == expected
    days = Counter(files(joined)["partition.date"].to_pylist())
    assert days == {FIFTH: 1, SIXTH: 1, SEVENTH: 3}
    log = Path(folder, "_delta_log", f"{joined.version():020}.json").read_text()
    assert '"dataChange":true' not in log
    join_files(spark, f"{tmp_path}/none", None, SIXTH)
    assert not (tmp_path / "none").exists()
    # A row of a joined file is found, and replaced.
    again = table(spark, (FIFTH, 2, f"{FIFTH} 2"), (FIFTH, 4, "new"))
    hours = [(FIFTH, 2), (FIFTH, 4)]
    swap(again, folder, on=["name"], keys=again.select("name"), hours=hours)
    rows = sorted(map(tuple, spark_frame(spark, DeltaTable(folder)).collect()))
    assert rows == sorted([*expected, (FIFTH, 4, "new")])


def test_a_file_keeps_its_hours_when_rows_of_the_hour_before_are_swapped(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise each look would write the whole day again, and read it for an hour."""
    folder = f"{tmp_path}/table"
    for hour in range(4):
        rows = [(FIFTH, hour, f"{hour}"), (FIFTH, hour, f"late {hour}")]
        hours = [(FIFTH, hour)]
        if hour:
            rows.append((FIFTH, hour - 1, f"late {hour - 1}"))
            hours.append((FIFTH, hour - 1))
        frame = table(spark, *rows)
        swap(frame, folder, on=["name"], keys=frame.select("name"), hours=hours)
    found = files(DeltaTable(folder))
    assert sum(found["num_records"].to_pylist()) == 8
    least, most = (found[f"{end}.hour"].to_pylist() for end in ("min", "max"))
    assert all(last - first <= 1 for first, last in zip(least, most, strict=True))


def test_files_of_many_hours_that_are_written_again_stay_apart_by_their_hours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late rows of a whole day make fewer files of it, but no file of the whole day."""
    monkeypatch.setattr("qos.audit.swap._KEPT_APART", 3)
    moments = iter(range(7))
    monkeypatch.setattr(delta, "new_write", lambda: f"write={next(moments)}")
    folder = f"{tmp_path}/table"
    for hour in range(6):
        frame = table(spark, (FIFTH, hour, "x"), (FIFTH, hour, "late")).coalesce(1)
        delta.replace(frame, folder, partition_by=["date"], removed=())
    late = table(spark, *((FIFTH, hour, "late") for hour in range(6)))
    hours = [(FIFTH, hour) for hour in range(6)]
    swap(late, folder, on=["name", "hour"], keys=late, hours=hours)
    found = files(DeltaTable(folder)).select(["min.hour", "max.hour", "num_records"])
    spans = {tuple(row.values()) for row in found.to_pylist()}
    assert spans >= {(0, 1, 2), (2, 3, 2), (4, 5, 2)}


def test_a_joined_file_is_not_too_big(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a late row of one hour would cause a whole day to be written again."""
    folder = f"{tmp_path}/table"
    for hour in range(6):
        frame = table(spark, (FIFTH, hour, "x"))
        keys = frame.select("hour")
        swap(frame, folder, on=["hour"], keys=keys, hours=[(FIFTH, hour)])
    size = max(files(DeltaTable(folder))["size_bytes"].to_pylist())
    monkeypatch.setattr("qos.audit.swap._FILE_BYTES", 2 * size)
    join_files(spark, folder, None, FIFTH)
    found = files(DeltaTable(folder))
    assert sorted(found["num_records"].to_pylist()) == [2, 2, 2]
    spans = zip(
        found["min.hour"].to_pylist(), found["max.hour"].to_pylist(), strict=True
    )
    assert sorted(spans) == [(0, 1), (2, 3), (4, 5)]


def test_what_a_merge_of_files_leaves_when_it_fails_goes_a_day_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    """deltalake writes the merged file, and only then finds that others were first."""
    folder = str(tmp_path / "t")
    for hour in range(3):
        rows = table(spark, (FIFTH, hour, "first"))
        swap(rows, folder, on=["hour"], keys=rows.select("hour"), hours=[(FIFTH, hour)])
    behind = DeltaTable(folder)
    store.replace_days(table(spark, (FIFTH, 9, "last")), folder, FIFTH, FIFTH)
    with pytest.raises(CommitFailedError):
        behind.optimize.compact()
    (left,) = tmp_path.glob("t/date=*/*.parquet")
    assert delta.sweep(spark, folder, DeltaTable(folder)) == []
    assert left.exists()
    long_ago = time.time() - 2 * 86_400
    os.utime(left, (long_ago, long_ago))
    swept = delta.sweep(spark, folder, DeltaTable(folder))
    assert swept == [str(left.relative_to(folder))]
    assert not left.exists()
    # What belongs to any version stays, however old it is.
    rows = table(spark, (FIFTH, 1, "later"))
    swap(rows, folder, on=["hour"], keys=rows.select("hour"), hours=[(FIFTH, 1)])
    join_files(spark, folder, None, FIFTH)
    store.replace_days(table(spark, (FIFTH, 2, "again")), folder, FIFTH, FIFTH)
    (merged,) = tmp_path.glob("t/date=*/*.parquet")
    os.utime(merged, (long_ago, long_ago))
    assert delta.sweep(spark, folder, DeltaTable(folder)) == []
    counts = [
        DeltaTable(folder, version).to_pyarrow_table().num_rows
        for version in range(1, DeltaTable(folder).version() + 1)
    ]
    assert counts == [1, 2, 3, 1, 2, 2, 1]
