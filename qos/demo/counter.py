"""The counter, in a process of its own, so that it can be killed at any moment.

It runs as ``python -m qos.demo.counter``, see `qos.testing.child`, and reports
``counted`` after each event that it has counted.

It counts exactly once in this way: before the handler returns, the event is in the
counter's own database, on disk, with the id of the message. If the counter is killed
before that, it has not counted the event, and the message is handed over again. If it
is killed later, but before the plugin has noted the end of the hand-over, the message
also comes again, marked *redelivered*. Only in this case the counter checks whether it
knows the id.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slixmpp.stanza import Message

from qos.demo.device import Device, reporting
from qos.testing import child
from xep_0337 import XEP_0337
from xep_qos import XEP_QOS

__all__ = ["COUNTED", "NAME", "NUMBER", "Book", "Count", "read_book"]

#: The name of its account, and of its files.
NAME = "counter"

#: The word that it reports.
COUNTED = "counted"

#: The tag with the number of a passing. The counter only stores it, to find out
#: afterwards what was lost and what came twice.
NUMBER = "number"

_TABLES = """
CREATE TABLE IF NOT EXISTS counted
  (source TEXT, msg_id TEXT, event TEXT, number INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS recognized (source TEXT, msg_id TEXT);
"""


@dataclass(frozen=True, slots=True)
class Count:
    """One event as the counter has counted it.

    Attributes:
        event: its id.
        number: the number of the passing.
        at: the time, by `time.monotonic`, which is the same for all processes.
    """

    event: str
    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Book:
    """The notes of the counter.

    Attributes:
        counts: everything that it has counted, in this order.
        recognized: the number of messages that came again, were recognized and not
            counted.
    """

    counts: list[Count]
    recognized: int


def read_book(folder: Path) -> Book:
    """The notes of the counter with this folder."""
    with closing(_open(folder)) as database:
        rows = database.execute("SELECT event, number, at FROM counted ORDER BY rowid")
        counts = [Count(*row) for row in rows]
        known = database.execute("SELECT COUNT(*) FROM recognized").fetchone()
        return Book(counts, known[0])


def _open(folder: Path) -> sqlite3.Connection:
    database = sqlite3.connect(folder / "counted.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(_TABLES)
    return database


class _Counter:
    """Counts the events that are handed over to this device."""

    def __init__(self, device: Device, folder: Path, say: child.Say) -> None:
        self._say = say
        self._qos = XEP_QOS.of(device.client)
        self.database = _open(folder)
        device.client.add_event_handler("event_log", self._received)

    def _received(self, message: Message) -> None:
        info = self._qos.incoming(message)
        source = str(message["from"])
        msg_id = info.msg_id if info else None
        if info and info.redelivered and self._has_counted(source, msg_id):
            self._write("recognized", source, msg_id)
            return
        for event in XEP_0337.parse(message):
            number = next(int(tag.value) for tag in event.tags if tag.name == NUMBER)
            self._write("counted", source, msg_id, event.id, number, time.monotonic())
            self._say(COUNTED)

    def _has_counted(self, *key: str | None) -> bool:
        found = self.database.execute(
            "SELECT 1 FROM counted WHERE source = ? AND msg_id = ?", key
        )
        return found.fetchone() is not None

    def _write(self, table: str, *row: str | float | None) -> None:
        """Write a row; it is on disk when this returns."""
        marks = ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608


async def _run(told: dict[str, Any], say: child.Say) -> None:
    folder = Path(told["folder"])
    device = Device(
        NAME,
        password=told["password"],
        port=told["port"],
        plugins=reporting(folder, NAME, told.get("journal")),
    )
    counter = _Counter(device, folder, say)
    device.start()
    try:
        await asyncio.Event().wait()
    finally:
        await device.aclose()
        counter.database.close()


if __name__ == "__main__":
    child.run_task(_run)
