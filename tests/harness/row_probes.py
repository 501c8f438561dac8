"""Probes of each row that an SQLite connection changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

__all__ = ["probe_rows"]


def probe_rows(
    writer: sqlite3.Connection, tables: Iterable[str], probe: Callable[[str], None]
) -> None:
    """Call a probe before and after each change of a row, in the thread that makes it.

    A later probe takes the place of this one.

    Args:
        writer: the connection.
        tables: the names of the tables.
        probe: called with the name of the step.
    """
    writer.create_function("probe", 1, probe)
    for table in tables:
        for when in ("BEFORE", "AFTER"):
            for what in ("INSERT", "UPDATE", "DELETE"):
                step = f"{when} {what} ON {table}"
                writer.execute(
                    f'CREATE TEMP TRIGGER IF NOT EXISTS "{step}" {step}'
                    f" BEGIN SELECT probe('{step}'); END"
                )
