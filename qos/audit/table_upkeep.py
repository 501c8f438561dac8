"""Changes of a table that write no file: its comments, and the days that it keeps."""

from __future__ import annotations

from datetime import date

from deltalake import DeltaTable

from qos.audit import comments
from qos.audit.commits import described, ours
from qos.audit.delta import KEEPS_ITS_LOG, errors_name, name_of, set_schema
from qos.audit.delta_schema import commented

__all__ = ["describe", "remove_before"]


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
    if "date" not in table.metadata().partition_columns:
        return False
    with errors_name(folder):
        # If there is no such row, nothing is committed.
        removed = table.delete(
            f"date < '{day}'",
            commit_properties=ours(cause),
            post_commithook_properties=KEEPS_ITS_LOG,
        )
    return bool(removed["num_removed_files"])


def describe(folder: str, table: DeltaTable) -> None:
    """Give a table and its columns the comments of this version of the library.

    No data is written. A table that has them is left alone.

    Args:
        folder: the folder of the table.
        table: at its last version; afterwards at that of the last commit made here.

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
