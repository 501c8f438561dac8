"""A look for damage in an SQLite file.

It reads the whole file, or all of some tables with their indices: a second for a million
items, and longer from a cold disk. So a large file is looked at in the background.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

__all__ = ["BackgroundCheck", "check"]


def check(db: sqlite3.Connection, tables: Sequence[str] = ()) -> str:
    """What is wrong with the file, or `ok`.

    Args:
        db: a connection.
        tables: those to look at, of which an earlier version may not have all; (): at
            everything.
    """
    names = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    present = {name for (name,) in db.execute(names)}
    for subject in [table for table in tables if table in present] or ["1"]:
        (verdict,) = db.execute(f"PRAGMA quick_check({subject})").fetchone()
        if verdict != "ok":
            return str(verdict)
    return "ok"


class BackgroundCheck:
    """A look at the tables of a file, with a connection and in a thread of its own."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        look: Callable[[sqlite3.Connection], None],
    ) -> None:
        """Begin with it; call it in a running event loop.

        Args:
            connect: makes the connection; called in the thread.
            look: takes the connection, and raises an error if something is wrong.
        """
        self._connect = connect
        self._look = look
        self._connection: sqlite3.Connection | None = None
        self._is_stopped = False
        thread = ThreadPoolExecutor(1, thread_name_prefix="qos-check")
        loop = asyncio.get_running_loop()
        #: Done when it is over; with the error, if there is one.
        self.done: asyncio.Future[None] = loop.run_in_executor(thread, self._run)
        thread.shutdown(wait=False)

    def _run(self) -> None:
        with closing(self._connect()) as self._connection:
            try:
                if not self._is_stopped:
                    self._look(self._connection)
            except BaseException:
                if not self._is_stopped:
                    raise
            finally:
                self._connection = None

    async def stop(self) -> None:
        """Stop it, and wait until it has."""
        self._is_stopped = True
        if self._connection is not None:
            self._connection.interrupt()
        await asyncio.wait([self.done])
