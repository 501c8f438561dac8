"""The stores of the message sink: one for each number of a partition, in one folder.

A receiver knows a repeated message by its id and by the id of its sender's store. A
repeat may come from another partition, so all stores of a folder have the same id. The
folder keeps it in a file, which the driver makes before any task runs.

A task opens the store of its partition. If a later run has fewer partitions, no task
opens some stores: `with_messages` finds those in which messages still wait.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from qos.private import make_private
from qos.stores.durable_store import sync
from qos.stores.sqlite import SqliteStore

__all__ = ["SenderStores"]

_ID_FILE: Final = "sender-id"

#: Stores of earlier versions are named by the number alone, and have ids of their own.
_STORE: Final = re.compile(r"(?:sender-)?(?P<partition>[0-9]+)\.sqlite")


class SenderStores:
    """The stores in a folder; made by the driver, and copied to the tasks.

    Attributes:
        sender_id: the id of the stores.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder, and its id, if they are not there.

        Raises:
            OSError: it cannot be made, read or written.
        """
        self._folder = folder
        make_private(folder)
        self.sender_id = _id_of(folder)

    def store(self, partition: int) -> SqliteStore:
        """The store of a partition, not open."""
        path = self._folder / f"sender-{partition}.sqlite"
        return SqliteStore(path, new_id=self.sender_id)

    def with_messages(self) -> Iterator[tuple[int, SqliteStore]]:
        """The stores with messages that have not ended, each with its partition."""
        for path in sorted(self._folder.iterdir()):
            match = _STORE.fullmatch(path.name)
            if match is not None and _has_messages(path):
                yield int(match["partition"]), SqliteStore(path)


def _id_of(folder: Path) -> str:
    file = folder / _ID_FILE
    if not file.exists():
        # It appears complete, or not at all.
        new = folder / f"{_ID_FILE}-new"
        new.write_text(secrets.token_hex(16))
        sync(new)
        new.rename(file)
        sync(folder)
    return file.read_text().strip()


def _has_messages(path: Path) -> bool:
    """Whether messages wait in a store; True if only its opening can tell.

    The checks of an opening would take their time at the end of each batch.
    """
    uri = f"file:{quote(str(path))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
            return db.execute("SELECT 1 FROM outgoing LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True
