"""Accounts that asked to be forgotten: no table has a row about them, now or later.

The list of accounts is a Delta table of its own, among the data that an audit keeps for
itself. It is written before anything is removed: if the process is killed, later audits
respect it, and the command can be repeated. Every row that is written into a table later
passes `without_forgotten`, whatever the journals and the kept data say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from functools import reduce
from typing import Final
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from qos.audit import delta
from qos.audit.locations import whole_url

__all__ = [
    "FORGOTTEN",
    "forgotten",
    "is_about",
    "is_about_at_all",
    "remember",
    "without_forgotten",
]

#: The folder of the list, in the folder of the tables.
FORGOTTEN: Final = ".audit/forgotten"

_COLUMNS: Final = "account string, at timestamp"


def forgotten(spark: SparkSession, out: str) -> frozenset[str]:
    """The accounts that are forgotten in a folder of tables."""
    table = delta.open_table(spark, f"{whole_url(out)}/{FORGOTTEN}")
    if table is None:
        return frozenset()
    return frozenset(table.to_pyarrow_table()["account"].to_pylist())


def remember(spark: SparkSession, out: str, account: str) -> frozenset[str]:
    """Put an account on the list; returns the whole list."""
    accounts = forgotten(spark, out)
    if account not in accounts:
        rows = [(account, datetime.now(UTC))]
        folder = f"{whole_url(out)}/{FORGOTTEN}"
        # Former rows stay, each with its time. If somebody else adds the account at the
        # same time, it has two rows, which say the same.
        delta.replace(
            spark.createDataFrame(rows, _COLUMNS), folder, removed=(), cause="forget"
        )
    return accounts | {account}


def without_forgotten(rows: DataFrame, folder: str) -> DataFrame:
    """The rows for a table without those about forgotten accounts.

    Args:
        rows: the rows.
        folder: the folder of the table.
    """
    out = folder.rstrip("/").rpartition("/")[0]
    accounts = forgotten(rows.sparkSession, out)
    return rows.where(~is_about(accounts, rows.schema)) if accounts else rows


def is_about(accounts: Collection[str], schema: StructType) -> Column:
    """Whether a row is about one of these accounts, in any of its columns.

    It has the JID of the account or of one of its devices, or the name of its journal.
    """
    pattern = _pattern(accounts)
    checks: list[Column] = [
        F.coalesce(text.rlike(pattern), F.lit(False))
        for field in schema
        if (text := _text_of(field.name, field.dataType)) is not None
    ]
    return reduce(Column.__or__, checks, F.lit(False))


def is_about_at_all(accounts: Collection[str]) -> Column:
    """The same, of a row whose columns are not known yet."""
    return F.to_json(F.struct("*")).rlike(_pattern(accounts))


def _pattern(accounts: Collection[str]) -> str:
    names = sorted({*accounts, *(quote(account, safe="@") for account in accounts)})
    name = "|".join(map(re.escape, names))
    # Before and after a JID; and in a path, of a file of its journal.
    return rf'(^|/\.?|[ "])({name})($|[/ "]|%2F|-[^/]*-[0-9][^/]*\.jsonl)'


def _text_of(name: str, kind: DataType) -> Column | None:
    """The value of a column as one text; None: it has no text in it."""
    column = F.col(f"`{name}`")
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType):
        return F.array_join(column, " ")
    has_parts = isinstance(kind, (ArrayType, MapType, StructType))
    return F.to_json(column) if has_parts else None
