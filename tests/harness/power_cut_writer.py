"""The program whose store loses its power: it makes given writes, and confirms them.

`main` with PLAN and ACKS as arguments is one life of it. It knows a (pickled) plan, but
not the observer. It appends to the file ACKS `open ID` when the store is open, and
`done N` when the first N writes are done, or are shown: both are promises.
"""

from __future__ import annotations

import asyncio
import enum
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from qos.stores import files, files_folder
from qos.stores.durable_store import DurableStore
from qos.stores.files_folder import AtomicFolder
from qos.stores.sqlite_file import SqliteFile

__all__ = ["Plan", "Weakness"]

#: The number of pages in the WAL at which SQLite copies them into the file: low, so
#: that a short life includes that, and a WAL that begins again.
_CHECKPOINT_PAGES = 16


class Weakness(enum.Enum):
    """A store that must lose data: a test that does not find that finds nothing."""

    NONE = "none"
    NORMAL = "synchronous=NORMAL"
    OFF = "synchronous=OFF"
    NO_FOLDER_SYNC = "no sync of folders"
    NO_FILE_SYNC = "no sync of files"
    NO_COMMIT_FILE = "no commit.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """One life.

    Attributes:
        store: the class of the store.
        path: its path.
        writes: all writes.
        first: how many of them are done.
        groups: how many more to make, by group: those of one group share commits.
        dies_after: a step of the store and a count; the process dies at the step that
            follows. None: it lives to close its store, and open and close it again.
        weakness: the step that is left out.
    """

    store: Callable[[Path], DurableStore[Any, Any]]
    path: Path
    writes: Sequence[Sequence[Any]]
    first: int
    groups: Sequence[int]
    dies_after: tuple[str, int] | None
    weakness: Weakness


class _Writer:
    def __init__(self, plan: Plan, acks: Path) -> None:
        self._plan = plan
        self._acks = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._steps: Counter[str] = Counter()
        self._done = plan.first
        self._store = plan.store(plan.path)
        self._store.probe = self._probe

    async def live(self) -> None:
        self._open()
        for count in self._plan.groups:
            numbers = range(self._done, self._done + count)
            await asyncio.gather(*[self._write(number) for number in numbers])
            self._done += count
        await self._store.close()
        self._open()
        await self._store.close()
        if self._plan.dies_after is not None:
            raise RuntimeError(f"never came to {self._plan.dies_after}")

    def _open(self) -> None:
        self._store.open()
        if isinstance(self._store, SqliteFile):
            self._set_up(self._store)
        self._tell(f"open {self._store.store_id}")
        # A program that opens the store acts on its contents.
        self._tell(f"done {self._done}")

    def _set_up(self, store: SqliteFile[Any, Any]) -> None:
        assert store._writer is not None
        store._writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if self._plan.weakness in {Weakness.NORMAL, Weakness.OFF}:
            store._writer.execute(f"PRAGMA {self._plan.weakness.value}")

    async def _write(self, number: int) -> None:
        written = self._store.write(self._plan.writes[number])
        assert written is not None
        await written
        self._tell(f"done {number + 1}")

    def _tell(self, text: str) -> None:
        os.write(self._acks, text.encode())

    def _probe(self, step: str) -> None:
        if self._plan.dies_after is None:
            return
        before, times = self._plan.dies_after
        if self._steps[before] == times:
            os._exit(0)
        self._steps[step] += 1


def _weakened(weakness: Weakness) -> AbstractContextManager[object]:
    """A step that a store of files leaves out."""
    if weakness is Weakness.NO_FOLDER_SYNC:
        patches = ExitStack()
        for module in (files, files_folder):
            patches.enter_context(mock.patch.object(module, "sync"))
        return patches
    if weakness is Weakness.NO_FILE_SYNC:
        return mock.patch("os.fsync")
    if weakness is Weakness.NO_COMMIT_FILE:
        return mock.patch.object(AtomicFolder, "_transact", AtomicFolder._make)
    return nullcontext()


def main() -> None:
    """Run the life."""
    plan_file, acks = map(Path, sys.argv[1:])
    # Written a moment ago by our parent.
    plan = pickle.loads(plan_file.read_bytes())  # noqa: S301
    with _weakened(plan.weakness):
        asyncio.run(_Writer(plan, acks).live())
