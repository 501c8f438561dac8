"""The identity of a row by the columns that a user names.

Values are as a sink gets them: rows of Arrow, by Spark's own conversion.
"""

import argparse
import datetime
import decimal
import math
from typing import Any

import pyarrow as pa  # has none
import pytest
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from qos.spark.identity import BadIdentity, Identity, identity_of
from qos.spark.options import BadOption
from qos.spark.rows import RowIds
from sink_tasks import in_task, no_task

pytestmark = [pytest.mark.spark]

task = pytest.fixture(autouse=True)(no_task)

NOON = datetime.datetime(2026, 11, 21, 12)  # noqa: DTZ001 - it has no zone in Spark

POINT = StructType([StructField("x", LongType()), StructField("y", StringType())])

#: Values that Spark says are different, of each type that can identify a row.
VALUES: list[tuple[DataType, list[Any]]] = [
    (StringType(), ["", "1", "true", "None", "a,b", "ä", "\0"]),
    (LongType(), [0, 1, -1, 2**63 - 1]),
    (BooleanType(), [True, False]),
    (BinaryType(), [b"", b"\0", b"\xff\0"]),
    (DoubleType(), [0.0, 0.1, 1.0, math.nextafter(1.0, 2.0), math.inf, math.nan]),
    (DecimalType(38, 2), [decimal.Decimal(f"{n}.10") for n in (0, 1, 10**35)]),
    (DateType(), [datetime.date(2026, 11, 21), datetime.date(2026, 11, 22)]),
    (
        TimestampNTZType(),
        [NOON, NOON + datetime.timedelta(microseconds=1), NOON.replace(hour=0)],
    ),
    (ArrayType(LongType()), [[], [1], [1, 2], [2, 1], [None], [None, None]]),
    (ArrayType(StringType()), [["a", "b"], ["a,b"], ["a", "b", ""]]),
    (POINT, [Row(x=1, y="2"), Row(x=1, y=None), Row(x=None, y="1"), Row(x=12, y="")]),
    (
        MapType(StringType(), LongType()),
        [{}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}, {"a": None}],
    ),
    (MapType(StringType(), ArrayType(StringType())), [{"a": ["b"]}, {"a": ["b", "c"]}]),
]


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def rows(kind: DataType, values: list[Any]) -> list[Row]:
    """Rows with one column `a.b`, as a task of Spark gets them."""
    whole = StructType([StructField("a.b", kind)])
    arrow = [
        {"x": value.x, "y": value.y} if isinstance(value, Row) else value
        for value in values
    ]
    table = pa.Table.from_pylist(
        [{"a.b": value} for value in arrow], schema=to_arrow_schema(whole)
    )
    return list(ArrowTableToRowsConversion.convert(table, whole))


def identity(named: str | None, columns: StructType, **options: Any) -> Identity:
    given = argparse.Namespace(**{"id": named, "repeats": None, "run": None, **options})
    return identity_of("xmpp", given, columns)


def ids(identity: Identity, given: list[Row]) -> list[str]:
    in_task()
    made = RowIds(identity, "")
    return [made.of(row) for row in given]


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=[kind.simpleString() for kind, _ in VALUES]
)
def test_equal_values_have_one_id_and_others_another(
    kind: DataType, values: list[Any]
) -> None:
    """Also where a value looks like another in print."""
    named = identity("a.b", StructType([StructField("a.b", kind)]))
    made = ids(named, rows(kind, values))
    assert len(set(made)) == len(values)
    assert ids(named, rows(kind, values)) == made


def test_what_spark_says_is_equal_is_one() -> None:
    """A zero has no sign, a decimal no scale, and a map no order; 0.5 is not "0.5"."""
    numbers = rows(DoubleType(), [0.0, -0.0, 0.5])
    named = identity("a.b", StructType([StructField("a.b", DoubleType())]))
    zero, minus_zero, half = ids(named, numbers)
    assert zero == minus_zero != half
    assert half not in ids(named, rows(StringType(), ["0.5"]))
    scales = [
        ids(named, rows(DecimalType(38, scale), [decimal.Decimal("1.5")]))
        for scale in (1, 20)
    ]
    assert scales[0] == scales[1]
    maps = rows(MapType(StringType(), LongType()), [{"a": 1, "b": 2}, {"b": 2, "a": 1}])
    assert len(set(ids(named, maps))) == 1


def test_the_order_of_the_columns_does_not_count() -> None:
    """Neither in the option, nor in the rows. A name counts: 1 of 2 is not 2 of 1."""
    columns = schema(order=LongType(), line=LongType(), to=StringType())
    row = Row(order=1, line=2, to="x")
    (first,) = ids(identity("order,line", columns), [row])
    assert [first] == ids(identity(" line , `order` ", columns), [row])
    assert [first] == ids(
        identity("order,line", columns), [Row(to="y", line=2, order=1)]
    )
    assert [first] != ids(
        identity("order,line", columns), [Row(order=2, line=1, to="x")]
    )
    whole = ids(identity("*", columns), [row, Row(to="x", line=2, order=1)])
    assert whole[0] == whole[1] != first


@pytest.mark.parametrize(
    ("option", "column"),
    [
        ("`a,b`", "a,b"),
        ("`a``b`", "a`b"),
        ("` `", " "),
        ("`*`", "*"),
        ("a b", "a b"),
        ("a.b", "a.b"),
        ("`a.b`", "a.b"),
    ],
)
def test_any_name_of_a_column_can_be_given(option: str, column: str) -> None:
    """In backquotes, as in Spark's SQL."""
    columns = StructType([StructField(name, LongType()) for name in (column, "z")])
    assert identity(option, columns).columns == (column,)
    assert identity(f"z, {option}", columns).columns == ("z", column)


def test_a_named_column_that_is_null_is_no_id() -> None:
    """Unknown ids are not one row. With `*` rows are compared as wholes, as by DISTINCT.

    A null inside of a value is part of that value.
    """
    columns = schema(order=LongType(), line=LongType())
    row = Row(order=1, line=None)
    with pytest.raises(BadIdentity, match="its id column 'line' is null"):
        ids(identity("order,line", columns), [row])
    whole = ids(identity("*", columns), [row, row, Row(order=None, line=1)])
    assert whole[0] == whole[1] != whole[2]


REFUSED: list[tuple[DataType, str]] = [
    (TimestampType(), r"name a column with unix_micros\(…\) of it"),
    (ArrayType(TimestampType()), "is a timestamp"),
    (MapType(StringType(), TimestampType()), "is a timestamp"),
    (StructType([StructField("at", TimestampType())]), "is a timestamp"),
    (VariantType(), "cannot be a variant"),
    (CalendarIntervalType(), "cannot be a interval"),
    (DayTimeIntervalType(), "cannot be a interval day to second"),
]


@pytest.mark.parametrize(
    ("kind", "said"), REFUSED, ids=[kind.simpleString() for kind, _ in REFUSED]
)
def test_a_type_without_certain_values_is_refused(kind: DataType, said: str) -> None:
    """Before any row is written. Python gets a timestamp in local time, zone unknown."""
    with pytest.raises(BadOption, match=f"xmpp: option id: column 'a.b' .*{said}"):
        identity("a.b", StructType([StructField("a.b", kind)]))
