"""The table `audits`: the versions of the tables that belong together.

An audit commits each table separately. Its row in `audits`, which comes last, makes
them a snapshot for readers (see `snapshot`). An audit that is killed before that has
changed nothing for readers, and the next audit takes back what it had committed. What
somebody else has committed stays: see qos.audit.commits.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import SparkSession

from qos.audit import commits, delta, hadoop, table_upkeep
from qos.audit.batch_tables import TABLES
from qos.audit.delta import CannotWrite
from qos.audit.locations import for_people
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

#: The tables of an audit, besides `audits`. Others in the folder are not ours.
_OURS: Final = frozenset({*TABLES, "problems", "data_quality"})

_log = logging.getLogger(__name__)

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
        #: The number of the last audit that has ended; 0: none. And its days.
        self.number = 0
        self.days: tuple[date | None, date | None] = None, None
        #: By table, the version that was found: later versions must be ours.
        self._before: dict[str, int] = {}

    def recover(self) -> None:
        """Take back the changes of an audit that did not end.

        Raises:
            CannotWrite: there are tables of an earlier version of this library, or of
                somebody else by the names of ours; or tables are not possible there.
        """
        if "%" in self._out:
            # deltalake looks in another place for the log of such a table.
            raise CannotWrite(
                f"{for_people(self._out)}: give a folder without a % in its name"
            )
        self._refuse_former_layout()
        hadoop.remove(self._spark, f"{self._out}/{STAGED}")
        self._log_table = self._audits()
        rows = audits(self._log_table)
        recorded = dict(rows[-1]["versions"]) if rows else {}
        self.number = rows[-1]["number"] if rows else 0
        if rows:
            self.days = rows[-1]["first_day"], rows[-1]["last_day"]
        tables = dict(self._tables())
        self._refuse_foreign_tables(tables, recorded)
        self._before = {
            name: self._recover_table(f"{self._out}/{name}", table, recorded.get(name))
            for name, table in tables.items()
        }
        self._before[AUDITS] = self._log_table.version()

    def record(self, first: date | None, last: date | None) -> None:
        """Show the tables, as they are now, to readers.

        Args:
            first: the first audited day.
            last: the last audited day.

        Raises:
            CannotWrite: another audit has written into them as well.
        """
        now = datetime.now(UTC)
        self._log_table.update_incremental()
        rows = audits(self._log_table)
        tables = dict(self._tables())
        for name, table in {**tables, AUDITS: self._log_table}.items():
            self._refuse_other_audits(name, table)
            table_upkeep.describe(f"{self._out}/{name}", table)
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
        self._before = {**versions, AUDITS: self._log_table.version()}
        if is_first_today:
            self._vacuum(f"{self._out}/{AUDITS}", self._log_table)
            self._before[AUDITS] = self._log_table.version()
        if is_first_today and former[0]["finished_at"] > now - _LOG_IS_KEPT:
            for name, table in {**tables, AUDITS: self._log_table}.items():
                with delta.errors_name(f"{self._out}/{name}"):
                    table.cleanup_metadata()

    def remove_before(self, day: date) -> bool:
        """Remove the rows of the days before one from all tables of days.

        Readers see it with `record`.

        Args:
            day: the first day that stays.

        Returns:
            Whether there was such a row.

        Raises:
            CannotWrite: see qos.audit.table_upkeep.remove_before.
        """
        removed = [
            table_upkeep.remove_before(f"{self._out}/{name}", table, day, cause="keep")
            for name, table in self._tables()
        ]
        return any(removed)

    def names(self) -> list[str]:
        """The tables that were found by `recover`."""
        return sorted({*self._before} - {AUDITS})

    def _tables(self) -> Iterator[tuple[str, DeltaTable]]:
        folders = hadoop.folders(self._spark, self._out)
        for name in sorted(_OURS.intersection(folders)):
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
        known = recorded or 0
        foreign = commits.foreign_since(table, known)
        if foreign:
            self._say_foreign(folder, foreign.values())
        shown = commits.shown_version(foreign, known)
        # A commit of an audit that was killed cannot be taken back below a foreign one.
        is_last = max(foreign, default=known) <= shown < table.version()
        with delta.errors_name(folder):
            if recorded is not None and is_last:
                self._restore(folder, table, shown)
            elif recorded is None and is_last and not foreign:
                table.delete(
                    commit_properties=commits.ours(),
                    post_commithook_properties=delta.KEEPS_ITS_LOG,
                )
        delta.sweep(self._spark, folder, table)
        return table.version()

    def _restore(self, folder: str, table: DeltaTable, version: int) -> None:
        """Take back the commits of an audit that was killed, as far as possible."""
        try:
            table.restore(version, commit_properties=commits.ours())
        except CommitFailedError:
            # Somebody else has committed since the table was opened.
            raise
        except DeltaError as error:
            # Somebody has removed the files of that version: a VACUUM of theirs.
            _log.warning(
                "%s: what an audit that was killed has written stays, since former "
                "files are gone: %s",
                for_people(folder),
                (str(error).splitlines() or [""])[0],
            )

    def _refuse_foreign_tables(
        self, tables: dict[str, DeltaTable], recorded: Collection[str]
    ) -> None:
        for name, table in tables.items():
            if name not in recorded and not commits.is_of_audit(table):
                raise CannotWrite(
                    f"{for_people(self._out)}: {name} is a Delta table that no audit "
                    "has made: give another folder, or move the table"
                )

    def _refuse_former_layout(self) -> None:
        for name in _ALWAYS:
            folder = f"{self._out}/{name}"
            names = hadoop.children(self._spark, folder)
            if names and "_delta_log" not in names:
                raise CannotWrite(
                    f"{for_people(self._out)}: {name} is no Delta table, but of an "
                    "earlier version of this library: give another folder, or remove "
                    "the tables there"
                )

    def _refuse_other_audits(self, name: str, table: DeltaTable) -> None:
        """Refuse changes of other audits: without a lock, two may interfere.

        Changes that no audit has made stay, and readers see them with this audit.
        """
        before = self._before.get(name, -1)
        for info in commits.infos_since(table, before).values():
            # This audit has written its own row of `audits` last of all.
            is_own = name != AUDITS and commits.is_ours(info)
            if commits.is_marked(info) and not is_own:
                raise CannotWrite(
                    f"{for_people(self._out)}: another audit has written into {name} "
                    "meanwhile: start this one again when that one has ended"
                )
        foreign = commits.foreign_since(table, before)
        if foreign:
            self._say_foreign(f"{self._out}/{name}", foreign.values())

    @staticmethod
    def _say_foreign(folder: str, operations: Collection[str]) -> None:
        names = ", ".join(dict.fromkeys(operations))
        _log.warning(
            "%s: somebody else has changed this table (%s): that stays",
            for_people(folder),
            names,
        )

    def _vacuum(self, folder: str, table: DeltaTable) -> None:
        """Remove the files that no version within the retention has.

        If somebody brings such a file back after the table was opened, the first commit
        of the VACUUM fails, before any file is removed.
        """
        with delta.errors_name(folder):
            keep = self._retention + _AUDIT_TAKES_MAX
            table.vacuum(
                round(keep.total_seconds() / 3600),
                dry_run=False,
                enforce_retention_duration=False,
                commit_properties=commits.ours(),
            )
        delta.sweep(self._spark, folder, table)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        folder = f"{self._out}/{AUDITS}"
        files, write = delta.files_of(self._spark, folder), delta.new_write()
        with files.open_output_stream(f"{write}/part.parquet") as file:
            pq.write_table(pa.Table.from_pylist(rows, _ROW), file)
        with delta.errors_name(folder):
            # It fails if there is another row than those that were read.
            table = self._log_table
            delta.commit(table, add_actions(files, write), table.schema())
            # Not at the last version, which may have a later commit of another audit.
            table.load_as_version(table.version() + 1)
