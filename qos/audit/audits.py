"""The table `audits`: the versions of the tables that belong together.

An audit commits each table separately. Its row in `audits`, which comes last, makes
them a snapshot for readers (see `snapshot`). An audit that is killed before that has
changed nothing for readers, and the next audit takes back what it had committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from qos.audit import delta, hadoop
from qos.audit.delta import CannotWrite
from qos.audit.locations import local_path
from qos.audit.parquet_files import add_actions
from qos.audit.snapshot import AUDITS, audits

__all__ = ["HIDDEN", "RETENTION", "STAGED", "Audits"]

#: The time for which a snapshot can be read after it was replaced.
RETENTION: Final = timedelta(days=7)

#: The longest time between removing replaced data from a table and writing the row of
#: the audit.
_AUDIT_TAKES_MAX: Final = timedelta(days=1)

#: The folder, among those of the tables, for a lock and for unfinished work.
HIDDEN: Final = ".audit"
STAGED: Final = f"{HIDDEN}/staged"

#: Delta logs keep their entries for 30 days. Entries older than this are not removed
#: before all versions that can be read are younger.
_LOG_IS_KEPT: Final = timedelta(days=20)

#: Tables that every version of this library has written.
_ALWAYS: Final = ("deliveries", "problems")

_ROW: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("finished_at", pa.timestamp("us", tz="UTC")),
        ("first_day", pa.date32()),
        ("last_day", pa.date32()),
        ("versions", pa.map_(pa.string(), pa.int64())),
    ]
)
_COLUMNS: Final = (
    "number long, finished_at timestamp, first_day date, last_day date, "
    "versions map<string, bigint>"
)


class Audits:
    """The snapshots in a folder.

    Only one process may write there: see qos.audit.follow_lock.

    Args:
        spark: the session.
        out: the folder of the tables.
        retention: the time for which a snapshot can be read after it was replaced.
    """

    def __init__(
        self, spark: SparkSession, out: str, *, retention: timedelta = RETENTION
    ) -> None:
        self._spark = spark
        self._out = out
        self._retention = retention
        #: The number of the last audit that has ended; 0: none.
        self.number = 0
        #: By table, the version that was found: later versions must be ours.
        self._before: dict[str, int] = {}

    def recover(self) -> None:
        """Take back the changes of an audit that did not end.

        Raises:
            CannotWrite: there are tables of an earlier version of this library, or
                tables are not possible there.
        """
        if "%" in self._out:
            # deltalake looks in another place for the log of such a table.
            raise CannotWrite(f"{self._out}: give a folder without a % in its name")
        self._refuse_former_layout()
        hadoop.remove(self._spark, f"{self._out}/{STAGED}")
        self._log = self._audits()
        rows = audits(self._log)
        recorded = dict(rows[-1]["versions"]) if rows else {}
        self.number = rows[-1]["number"] if rows else 0
        self._before = {
            name: self._recover_table(f"{self._out}/{name}", table, recorded.get(name))
            for name, table in self._tables()
        }

    def record(self, first: date | None, last: date | None) -> None:
        """Show the tables, as they are now, to readers.

        Args:
            first: the first audited day.
            last: the last audited day.

        Raises:
            CannotWrite: another audit has written into them as well.
        """
        now = datetime.now(UTC)
        rows = audits(self._log)
        tables = dict(self._tables())
        for name, table in tables.items():
            self._refuse_others(name, table)
        # Not with each look of --follow.
        is_first_today = bool(rows) and rows[-1]["finished_at"].date() != now.date()
        if is_first_today:
            for name, table in tables.items():
                self._vacuum(f"{self._out}/{name}", table)
        # A row is needed until the files of its versions may be removed.
        needed_rows = [
            row
            for row, newer in itertools.pairwise(rows)
            if newer["finished_at"] >= now - self._retention
        ]
        versions = {name: table.version() for name, table in tables.items()}
        row = {
            "number": rows[-1]["number"] + 1 if rows else 1,
            "finished_at": now,
            "first_day": first,
            "last_day": last,
            "versions": list(versions.items()),
        }
        former = [*needed_rows, *rows[-1:]]
        self._write([*former, row])
        self._before = versions
        if is_first_today:
            self._vacuum(f"{self._out}/{AUDITS}", self._log)
        if is_first_today and former[0]["finished_at"] > now - _LOG_IS_KEPT:
            for table in (*tables.values(), self._log):
                table.cleanup_metadata()

    def _tables(self) -> Iterator[tuple[str, DeltaTable]]:
        for name in sorted(hadoop.folders(self._spark, self._out)):
            if name.startswith((".", "_")) or name == AUDITS:
                continue
            table = delta.open_table(self._spark, f"{self._out}/{name}")
            if table is not None:
                yield name, table

    def _audits(self) -> DeltaTable:
        folder = f"{self._out}/{AUDITS}"
        table = delta.open_table(self._spark, folder)
        if table is not None:
            delta.sweep(self._spark, folder, table)
            return table
        columns = self._spark.createDataFrame([], _COLUMNS).schema
        return delta.create(self._spark, folder, columns)

    def _recover_table(
        self, folder: str, table: DeltaTable, recorded: int | None
    ) -> int:
        """Return the version of the table that readers see."""
        with delta.errors_name(folder):
            if recorded is None and table.version() > 0:
                delta.commit(table, [], table.schema(), _partition_by(table))
                table.update_incremental()
            elif recorded is not None and table.version() > recorded:
                table.restore(recorded, commit_properties=delta.ours())
        delta.sweep(self._spark, folder, table)
        return table.version()

    def _refuse_former_layout(self) -> None:
        for name in _ALWAYS:
            folder = f"{self._out}/{name}"
            names = hadoop.children(self._spark, folder)
            if names and "_delta_log" not in names:
                raise CannotWrite(
                    f"{self._out}: {name} is no Delta table, but of an earlier version "
                    "of this library: give another folder, or remove the tables there"
                )

    def _refuse_others(self, name: str, table: DeltaTable) -> None:
        """Refuse changes of others: without a lock, two audits may interfere."""
        newer = table.version() - self._before.get(name, -1)
        if newer and not all(delta.is_ours(entry) for entry in table.history(newer)):
            raise CannotWrite(
                f"{self._out}: another audit has written into {name} meanwhile: start "
                "this one again when that one has ended"
            )

    def _vacuum(self, folder: str, table: DeltaTable) -> None:
        with delta.errors_name(folder):
            keep = self._retention + _AUDIT_TAKES_MAX
            table.vacuum(
                round(keep.total_seconds() / 3600),
                dry_run=False,
                enforce_retention_duration=False,
                commit_properties=delta.ours(),
            )
            table.update_incremental()
        delta.sweep(self._spark, folder, table)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        folder = f"{self._out}/{AUDITS}"
        files, write = delta.files_of(self._spark, folder), delta.new_write()
        if local_path(folder) is not None:
            files.create_dir(write)
        with files.open_output_stream(f"{write}/part.parquet") as file:
            pq.write_table(pa.Table.from_pylist(rows, _ROW), file)
        with delta.errors_name(folder):
            # It fails if there is another row than those that were read.
            delta.commit(self._log, add_actions(files, write), self._log.schema())
            self._log.update_incremental()


def _partition_by(table: DeltaTable) -> list[str]:
    return list(table.metadata().partition_columns)
