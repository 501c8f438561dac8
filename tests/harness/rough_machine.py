"""A machine that is not as it should be: its disk is slow, or its clock starts wrong.

Each process of a role reads that from files, so that it can change at any moment, and for
processes that have been started before.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qos.stores import sqlite_file

__all__ = ["RoughMachine"]

_LOOK_S: Final = 0.02


class RoughMachine:
    """The disk and the clocks of all processes that have `install` called.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        self._slow = folder / "slow-disk"
        self._clocks = folder / "clocks"

    # -- the side of the test ----------------------------------------------

    @contextlib.contextmanager
    def slow_disk(self, seconds: float) -> Iterator[None]:
        """Each write to a disk takes so many seconds longer within, and no longer."""
        self._slow.write_text(f"{seconds}")
        try:
            yield
        finally:
            self._slow.unlink(missing_ok=True)

    @contextlib.contextmanager
    def wrong_clock(self, jid: str, ahead_s: float) -> Iterator[None]:
        """Processes of this JID that start within have a clock that is ahead by this."""
        clock = self._clock(jid)
        clock.parent.mkdir(exist_ok=True)
        clock.write_text(f"{ahead_s}")
        try:
            yield
        finally:
            clock.unlink(missing_ok=True)

    def _clock(self, jid: str) -> Path:
        return self._clocks / jid.replace("/", " ")

    # -- the side of the processes -----------------------------------------

    def install(self, jid: str) -> None:
        """Be on this machine, in a process of this JID that has not begun yet."""
        ahead_s = _number(self._clock(jid))
        if ahead_s:
            runs = time.time
            time.time = lambda: runs() + ahead_s
        fsync, transaction = os.fsync, sqlite_file._transaction

        def slow_fsync(file: int) -> None:
            self._wait()
            fsync(file)

        @contextlib.contextmanager
        def slow_transaction(db: sqlite3.Connection) -> Iterator[None]:
            with transaction(db):
                yield
                self._wait()

        os.fsync = slow_fsync  # type: ignore[assignment]
        sqlite_file._transaction = slow_transaction

    def _wait(self) -> None:
        """Take the time of a write, unless the disk is quick again."""
        until = time.monotonic() + _number(self._slow)
        while time.monotonic() < until and self._slow.exists():
            time.sleep(_LOOK_S)


def _number(file: Path) -> float:
    """The number in a file; 0: there is none, or it is just being written."""
    with contextlib.suppress(OSError, ValueError):
        return float(file.read_text())
    return 0.0
