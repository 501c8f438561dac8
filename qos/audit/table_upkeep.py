"""Changes of a table that write no file: its comments, and the days that it keeps."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

from deltalake import DeltaTable

from qos.audit import comments
from qos.audit.commits import described, ours
from qos.audit.delta import KEEPS_ITS_LOG, commit, errors_name, name_of, set_schema
from qos.audit.delta_schema import commented
from qos.audit.snapshot import files

__all__ = ["describe", "remove_before"]

_DAY: Final = timedelta(days=1)


def remove_before(folder: str, table: DeltaTable, day: date, *, cause: str) -> bool:
    """Remove all rows of the days before one, in one commit; no file is written.

    Args:
        folder: the folder of the table.
        table: at its last version, and afterwards too.
        day: the first day that stays.
        cause: see qos.audit.commits.ours.

    Returns:
        Whether there was such a row.

    Raises:
        CannotWrite: another process has committed meanwhile.
    """
    partition_by = table.metadata().partition_columns
    last = day - _DAY
    if "date" not in partition_by or not len(files(table, last=last)):
        return False
    older = (date.min, last)
    with errors_name(folder):
        commit(table, [], table.schema(), partition_by, older, cause=cause)
        table.update_incremental()
    return True


def describe(folder: str, table: DeltaTable) -> None:
    """Give a table and its columns the comments of this version of the library.

    No data is written. A table that has them is left alone.

    Args:
        folder: the folder of the table.
        table: at its last version, and afterwards too.

    Raises:
        CannotWrite: another process has committed meanwhile.
    """
    name = name_of(folder)
    description = described(comments.TABLES[name])
    with errors_name(folder):
        schema = commented(table.schema(), name)
        if schema != table.schema() and table.metadata().partition_columns:
            set_schema(table, schema)
        for field in schema.fields if schema != table.schema() else ():
            # Of a table without partitions, no part can be replaced by nothing.
            table.alter.set_column_metadata(
                field.name,
                field.metadata,
                commit_properties=ours(),
                post_commithook_properties=KEEPS_ITS_LOG,
            )
        if table.metadata().description != description:
            table.alter.set_table_description(
                description,
                commit_properties=ours(),
                post_commithook_properties=KEEPS_ITS_LOG,
            )
            table.update_incremental()
