"""Rows of an earlier audit that stay: those about nodes whose journals are missing.

Only the missing journals can prove them. What an audit finds without these journals is
less: a message that is unproven, or no row at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["FormerRows", "Missing"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A node without a journal on days on which an earlier audit had one.

    Attributes:
        node: its name.
        first: the first of the days.
        last: the last one.
        days: how many they are.
    """

    node: str
    first: date
    last: date
    days: int


@dataclass(frozen=True, slots=True)
class _Table:
    """What tells whether a row is about a node.

    Attributes:
        key: the columns by which two rows are of the same; a null is a value.
        nodes: columns with a node.
        lists: columns with several nodes.
        accounts: columns with the account or the component of a node.
    """

    key: Sequence[str]
    nodes: Sequence[str] = ()
    lists: Sequence[str] = ()
    accounts: Sequence[str] = ()


#: The tables that are made of lines; all others are made of their rows.
_TABLES: Final = {
    "deliveries": _Table(
        ("sender", "receiver", "msg_id", "level"),
        nodes=("sender_node", "receiver_node"),
        lists=("handed_over_by", "rests_on"),
    ),
    "windows_hourly": _Table(
        ("date", "hour", "level", "sender", "receiver"),
        accounts=("sender", "receiver"),
    ),
    "refusals": _Table(
        ("date", "hour", "source", "receiver", "condition", "level"),
        accounts=("receiver",),
    ),
    "queue_items": _Table(("service", "queue", "item", "life"), nodes=("service",)),
    "workers_hourly": _Table(("date", "hour", "worker", "queue"), nodes=("worker",)),
}


@dataclass(frozen=True, slots=True)
class FormerRows:
    """The rows of tables that an audit leaves as they are.

    Attributes:
        missing: nodes without a journal, with the days.
        margin: a row may rest on lines of as much later.
    """

    missing: Collection[Missing]
    margin: timedelta

    def __bool__(self) -> bool:
        """Whether any node is missing."""
        return bool(self.missing)

    def may_be_in(self, name: str) -> bool:
        """Whether the table of this name may have such rows."""
        return name in _TABLES and bool(self.missing)

    def and_new(self, name: str, rows: DataFrame, table_rows: DataFrame) -> DataFrame:
        """The rows for a table: the former ones that stay, and the new ones beside them.

        Args:
            name: the name of a table that may have former ones.
            rows: the new rows of the days of the audit.
            table_rows: the rows of these days in the table. Only the version that has
                them may be replaced: otherwise a row comes back that somebody else
                deletes meanwhile.
        """
        table = _TABLES[name]
        former = table_rows.where(self._is_about_missing(table)).localCheckpoint()
        keys = former.select(*(F.col(key).alias(f"former {key}") for key in table.key))
        same = (F.col(key).eqNullSafe(F.col(f"former {key}")) for key in table.key)
        new = rows.join(keys, reduce(Column.__and__, same), "left_anti")
        return new.unionByName(former.select(*rows.columns))

    def _is_about_missing(self, table: _Table) -> Column:
        """Whether a row is about a node that is missing near its day."""
        by_days: dict[tuple[date, date], list[str]] = {}
        for node in self.missing:
            days = node.first - self.margin, node.last
            by_days.setdefault(days, []).append(node.node)
        return reduce(
            Column.__or__,
            (
                F.col("date").between(F.lit(first), F.lit(last))
                & _names_any(table, nodes)
                for (first, last), nodes in by_days.items()
            ),
        )


def _names_any(table: _Table, nodes: Collection[str]) -> Column:
    """Whether a row names one of these nodes."""
    names = sorted(nodes)
    accounts = sorted({node.partition("/")[0] for node in nodes})
    checks = [F.col(column).isin(names) for column in table.nodes]
    listed = F.array(*map(F.lit, names))
    checks += [F.arrays_overlap(column, listed) for column in table.lists]
    for column in table.accounts:
        # A component speaks for all addresses of its domain.
        domain = F.substring_index(column, "@", -1)
        checks.append(F.col(column).isin(accounts) | domain.isin(accounts))
    return reduce(Column.__or__, (F.coalesce(check, F.lit(False)) for check in checks))
