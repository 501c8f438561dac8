"""The commits of Delta tables: those of audits carry a mark, all others are foreign.

Somebody else may change a table of an audit: delete the rows of an account or of old
days, compact it, vacuum it. Such a commit stays. It is neither taken back, nor refused,
nor hidden from readers. A table that no audit has made is none of an audit, wherever it
lies.

This module needs deltalake, and no Spark.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection
from typing import Any, Final

import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler

__all__ = [
    "DESCRIPTION",
    "described",
    "foreign_since",
    "infos_since",
    "is_marked",
    "is_of_audit",
    "is_ours",
    "ours",
    "shown_version",
]

#: The mark of each commit of this process.
_WRITER: Final = uuid.uuid4().hex

#: The marks of all processes.
_A_WRITER: Final = re.compile("[0-9a-f]{32}")

#: The end of the description of each table that an audit has created.
DESCRIPTION: Final = "a table of xmpp-qos audit"

#: Former versions have created tables without a description: an audit has made one of
#: the last commits.
_COMMITS_READ: Final = 100


def ours(cause: str = "") -> CommitProperties:
    """The mark of a commit of this process, which fails if there is a newer version.

    Args:
        cause: a word for the history of the table, if the commit is not of an audit.
    """
    mark = {"writer": _WRITER, **({"cause": cause} if cause else {})}
    return CommitProperties(custom_metadata=mark, max_commit_retries=0)


def described(comment: str) -> str:
    """The description of a table of an audit.

    Args:
        comment: a sentence about its rows, or "".
    """
    return f"{comment} It is {DESCRIPTION}" if comment else DESCRIPTION


def is_ours(entry: dict[str, Any]) -> bool:
    """Whether a commit in the history of a table is by this process."""
    return entry.get("writer") == _WRITER


def is_marked(entry: dict[str, Any]) -> bool:
    """Whether a commit in the history of a table is by any audit."""
    return _A_WRITER.fullmatch(str(entry.get("writer"))) is not None


def is_of_audit(table: DeltaTable) -> bool:
    """Whether an audit has made a table."""
    if (table.metadata().description or "").endswith(DESCRIPTION):
        return True
    return any(map(is_marked, table.history(_COMMITS_READ)))


def infos_since(table: DeltaTable, version: int) -> dict[int, dict[str, Any]]:
    """What the commits after a version say of themselves, by their versions.

    `DeltaTable.history` leaves out a commit that says nothing, and then counts wrong.

    Args:
        table: at its last version.
        version: the last version that counts as known.
    """
    files = pafs.PyFileSystem(DeltaStorageHandler.from_table(table._table))
    numbers = range(version + 1, table.version() + 1)
    return {number: _info(files, number) for number in numbers}


def foreign_since(table: DeltaTable, version: int) -> dict[int, str]:
    """The foreign commits after a version: the operation of each, by its version.

    A commit that says nothing of itself is foreign.

    Args: see infos_since.
    """
    return {
        number: str(info.get("operation", "?"))
        for number, info in infos_since(table, version).items()
        if not is_marked(info)
    }


def shown_version(foreign: Collection[int], recorded: int) -> int:
    """The version of a table that readers see.

    It is the version that the last audit has recorded, with the foreign commits that
    follow it directly. What an audit has committed since then is not finished.

    Args:
        foreign: the versions of foreign commits; see foreign_since.
        recorded: the recorded version.
    """
    shown = recorded
    while shown + 1 in foreign:
        shown += 1
    return shown


def _info(files: pafs.FileSystem, version: int) -> dict[str, Any]:
    try:
        with files.open_input_stream(f"_delta_log/{version:020}.json") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        # Its log was cleaned: then nobody knows who has made it.
        return {}
    # Some writers have it first, others last.
    for line in (*lines[:1], *lines[:0:-1]):
        if info := json.loads(line).get("commitInfo"):
            return dict(info)
    return {}
