"""Brings small tables of earlier versions of this library into their present form.

A column whose type or name has changed is written again, in one commit for each table.
Only tables that are small by what they are: those of messages and items keep the former
columns for their old rows (see qos.audit.comments.FORMER).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from qos.audit import delta
from qos.audit.batch_tables import without_rows
from qos.audit.snapshot import spark_frame
from qos.audit.tables import Limits

__all__ = ["upgrade"]


def upgrade(spark: SparkSession, out: str) -> None:
    """Write the tables again whose columns have another form by now.

    It is part of an audit: readers see it when that has ended.

    Args:
        spark: the session.
        out: the folder of the tables.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    for name, is_former in (
        ("anomalies", _has_text_evidence),
        ("refusals", _has_reason),
    ):
        folder = f"{out}/{name}"
        table = delta.open_table(spark, folder)
        if table is not None and is_former(table):
            _rewrite(spark, folder, name, table)


def _has_text_evidence(table: DeltaTable) -> bool:
    types = {field.name: field.type for field in table.schema().fields}
    return getattr(types.get("evidence"), "type", "") == "string"


def _has_reason(table: DeltaTable) -> bool:
    names = {field.name for field in table.schema().fields}
    return "reason" in names and "condition" not in names


def _rewrite(spark: SparkSession, folder: str, name: str, table: DeltaTable) -> None:
    like = without_rows(spark, Limits(now=datetime.now(UTC)))[name].schema
    rows = spark_frame(spark, table)
    rows = _anomalies(rows, like) if name == "anomalies" else _refusals(rows)
    delta.replace(
        rows.select(*like.names),
        folder,
        partition_by=["date"],
        table=table,
        keeps_columns=False,
    )


def _anomalies(rows: DataFrame, like: StructType) -> DataFrame:
    evidence = F.from_json(
        "evidence", json.dumps(like["evidence"].dataType.jsonValue())
    )
    if "real_outcome" not in rows.columns:
        rows = rows.withColumnRenamed("ended", "real_outcome")
    return rows.withColumn("evidence", evidence)


def _refusals(rows: DataFrame) -> DataFrame:
    return rows.withColumn("condition", F.nullif("reason", F.lit("")))
