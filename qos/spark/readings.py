"""Sensor readings (XEP-0323) in the payloads of a queue or of messages, one row each.

Payloads are never in a journal. A frame with payloads comes from the source
`xmpp-queue`, or from the application.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qos.spark.sensor_data import Reading, parse_fields

__all__ = ["readings", "unreadable"]

_TYPES = {
    "timestamp": TimestampType(),
    "value": DoubleType(),
    "flags": ArrayType(StringType()),
}

_READING = StructType(
    [StructField(name, _TYPES.get(name, StringType())) for name in Reading._fields]
)

_SENSOR_DATA = StructType(
    [
        StructField("readings", ArrayType(_READING)),
        StructField("problem", StringType()),
    ]
)


def readings(items: DataFrame, payload: str = "payload") -> DataFrame:
    """One row for each value (XEP-0323 §4) that can be read.

    Args:
        items: rows with the XML of a `fields` element as text.
        payload: the name of that column.

    Returns:
        The other columns of `items`, then `node`, `source`, `timestamp`, `field`,
        `kind`, `value` (a number, or null), `text` (as it was written), `unit`,
        `flags`; see qos.spark.sensor_data.Reading. No order.
    """
    names = [name for name in items.columns if name != payload]
    rows = items.select(
        *names, F.explode(_parsed(payload)["readings"]).alias("reading")
    )
    return rows.select(
        *names, *(F.col("reading")[name].alias(name) for name in _FIELDS)
    )


def unreadable(items: DataFrame, payload: str = "payload") -> DataFrame:
    """The rows that cannot be read completely.

    Some of their values may be among the `readings`; all other rows are there
    completely.

    Returns:
        The columns of `items`, and `problem`: the first problem.
    """
    rows = items.withColumn("problem", _parsed(payload)["problem"])
    return rows.where(F.col("problem").isNotNull())


_FIELDS = Reading._fields


def _parsed(payload: str) -> Column:
    parse = F.udf(parse_fields, _SENSOR_DATA, useArrow=False)
    return parse(F.coalesce(F.col(payload), F.lit("")))
