"""The published tables of an audit, read without its code and without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from oracle import Key, Verdict
from recount import TABLES, Recount, comparable

__all__ = ["differences", "rows", "wrong_verdicts"]


def differences(out: Path, recount: Recount) -> dict[str, object]:
    """The rows that only the audit has, and that only the recount has, by table.

    Args:
        out: the folder of the tables: Delta, or Parquet by date and hour.
        recount: of the journals.
    """
    found: dict[str, object] = {}
    for name in TABLES:
        here, there = rows(out / name, recount.columns(name)), recount.rows(name)
        if here != there:
            found[name] = (here - there, there - here)
    return found


def wrong_verdicts(out: Path, truth: Mapping[Key, Verdict]) -> dict[Key, object]:
    """The messages with a wrong verdict: the audit's, and the true one.

    If there are several true reasons why nothing is proved, the audit may name any of
    them.
    """
    columns = ("sender", "msg_id", "level", "verdict", "reason", "rests_on")
    wrong: dict[Key, object] = {}
    with duckdb.connect() as base:
        found = _table(base, out / "deliveries").project(", ".join(columns)).fetchall()
    assert {Key(*row[:3]) for row in found} == set(truth)
    for *key, verdict, reason, rests_on in found:
        true = truth[Key(*key)]
        right = verdict == true.verdict
        if true.verdict == "unproven":
            right = right and reason in true.reasons
        elif true.verdict != "ok":
            right = right and set(rests_on) == set(true.rests_on)
        if not right:
            wrong[Key(*key)] = ((verdict, reason, rests_on), true)
    return wrong


def rows(folder: Path, columns: Sequence[str]) -> Counter[tuple[object, ...]]:
    """These columns of a table, if it exists; times and hours as numbers."""
    with duckdb.connect() as base:
        if not any(folder.rglob("*.parquet")):
            return Counter()
        table = _table(base, folder)
        kinds = dict(zip(table.columns, map(str, table.types), strict=True))
        wanted = ", ".join(_in_numbers(each, kinds[each]) for each in columns)
        return comparable(table.project(wanted).fetchall())


def _table(base: duckdb.DuckDBPyConnection, folder: Path) -> duckdb.DuckDBPyRelation:
    if (folder / "_delta_log").exists():
        return base.from_arrow(DeltaTable(folder).to_pyarrow_table())
    return base.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True)


def _in_numbers(column: str, kind: str) -> str:
    if column == "hour":
        return "epoch_us(date::TIMESTAMP) // 3600000000 + hour"
    return f"epoch_us({column})" if kind.startswith("TIMESTAMP") else column
