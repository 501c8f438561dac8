"""The landing: items of a queue in files, from the moment that Spark may count on them.

::

    LANDING/
      landing.json            what this is: its id, and its owner
      lock                    locked while a query uses it
      items-0000000042.jsonl  the items of one offset, an item a line
      claim-….jsonl           items that were claimed, and are not ours yet
      ids.sqlite              the ids of files that were removed

Every file is written under a temporary name, synced, renamed into place, and then the
folder is synced. So a file is there completely or not at all, and it never changes.
When all items of a file have ended, here and at the service, their ids are put into
`ids.sqlite`, and the file is removed. An item that comes again within 30 days is
recognized.

This module knows files, and nothing of streams, services and Spark. On a cluster the
driver and all executors must see the folder under the same path.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from qos.private import make_private
from qos.spark.landed_items import LandingError, file_name, items_in, lines_of
from xep_0254.events import DeliveredItem

__all__ = ["Landing"]

VERSION: Final = 1

_ABOUT = "landing.json"
_LOCK = "lock"
_IDS = "ids.sqlite"
_TEMPORARY = ".tmp"
_ITEMS = re.compile(r"items-([0-9]{10})\.jsonl")
_CLAIM = re.compile(r"claim-[0-9a-f]{32}\.jsonl")

#: Seconds for the process of a killed driver to notice, and to release the folder.
_LOCK_S_MAX = 60.0
_LOCK_S = 0.1

#: Days for which an ended item is remembered. It comes again only if the service has
#: lost its settlement, for example after a backup was restored.
_KEPT_DAYS = 30

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ended (item_id TEXT PRIMARY KEY, day INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS removed (below INTEGER NOT NULL);
"""


class Landing:
    """An open landing; one process at a time has it.

    Attributes:
        id: made together with the landing.
        next: the number of the next file; all files below it are there.
    """

    def __init__(
        self,
        folder: Path,
        owner: Mapping[str, str],
        *,
        probe: Callable[[str], None] = lambda _step: None,
        lock_s_max: float = _LOCK_S_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the landing, and create it if it is missing.

        Args:
            folder: its folder.
            owner: the query and queue that it is created for; others are refused.
            probe: called before each step on the disk, for tests.
            lock_s_max: how long to wait for another process to release it.
            clock: the time, seconds since the epoch.

        Raises:
            LandingError: it is in use, has another owner, or is damaged; or the disk
                has an error.
        """
        self.folder = folder
        self._probe = probe
        self._clock = clock
        #: By item id: its file, and its newest token.
        self._items: dict[str, tuple[int, str]] = {}
        self._unended: dict[int, set[str]] = {}
        try:
            make_private(folder)
            self._lock = self._locked(lock_s_max)
            try:
                self.id = self._about(owner)
                self._db = self._open_ids()
                self._read()
            except BaseException:
                os.close(self._lock)
                raise
        except (OSError, sqlite3.Error) as error:
            text = error.strerror if isinstance(error, OSError) else None
            raise LandingError(folder, text or str(error)) from None

    def close(self) -> None:
        """Release the landing."""
        self._db.close()
        os.close(self._lock)

    # -- contents --------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number of the first file that has not been removed."""
        return min(self._unended, default=self.next)

    def file_of(self, item_id: str) -> int | None:
        """The file of an item; -1: one that was removed; None: not landed."""
        entry = self._items.get(item_id)
        if entry is not None:
            return entry[0]
        cursor = self._db.execute("SELECT 1 FROM ended WHERE item_id = ?", (item_id,))
        return None if cursor.fetchone() is None else -1

    def unended(self, below: int) -> list[tuple[str, str]]:
        """The items of all files below this one that the service may still have.

        Returns:
            Their ids and newest tokens.
        """
        return [
            (item_id, self._items[item_id][1])
            for number in sorted(self._unended)
            if number < below
            for item_id in self._unended[number]
        ]

    # -- changes ---------------------------------------------------------------

    def land(self, items: Sequence[DeliveredItem]) -> int:
        """Write the next file; on return it is on disk.

        Args:
            items: one or more, none of them landed before.

        Returns:
            The number of the next file.
        """
        number = self.next
        self._write(file_name(number), lines_of(items))
        self._landed(number, items)
        return self.next

    def redelivered(self, item_id: str, token: str) -> None:
        """Note that a landed item has come again, with this token."""
        entry = self._items.get(item_id)
        if entry is not None:
            self._items[item_id] = (entry[0], token)

    def ended(self, item_id: str) -> None:
        """Note that this landed item is gone.

        The service has deleted it, or has none.
        """
        entry = self._items.get(item_id)
        if entry is not None:
            self._unended[entry[0]].discard(item_id)

    def compact(self, below: int) -> None:
        """Remove files that are done.

        Args:
            below: Spark will never ask for files below this number.
        """
        numbers = []
        for number in sorted(self._unended):
            if number >= below or self._unended[number]:
                break
            numbers.append(number)
        if not numbers:
            return
        item_ids = [
            item_id
            for item_id, (number, _) in self._items.items()
            if number <= numbers[-1]
        ]
        self._probe("ids")
        with self._db:
            self._db.executemany(
                "INSERT OR IGNORE INTO ended VALUES (?, ?)",
                ((item_id, self._day()) for item_id in item_ids),
            )
            forgotten = self._day() - _KEPT_DAYS
            self._db.execute("DELETE FROM ended WHERE day < ?", (forgotten,))
            self._db.execute("DELETE FROM removed")
            self._db.execute("INSERT INTO removed VALUES (?)", (numbers[-1] + 1,))
        for number in numbers:
            self._remove(file_name(number))
            del self._unended[number]
        for item_id in item_ids:
            del self._items[item_id]

    # -- claims ------------------------------------------------------------

    def claim(self, items: Sequence[DeliveredItem]) -> str:
        """Write down that these items are about to be claimed.

        Returns the name of the claim.
        """
        name = f"claim-{secrets.token_hex(16)}.jsonl"
        self._write(name, lines_of(items))
        return name

    def claims(self) -> dict[str, list[DeliveredItem]]:
        """The claims that have not been settled, by name."""
        return {
            name: list(items_in(self.folder / name)) for name in self._names(_CLAIM)
        }

    def settle(self, name: str, won: Sequence[DeliveredItem]) -> None:
        """Land the items that were won by a claim, and end the claim.

        The service has ended these items. A claim that is settled twice, because of a
        crash between two steps, lands nothing twice.
        """
        new = [item for item in won if self.file_of(item.item_id) is None]
        if new:
            self.land(new)
            for item in new:
                self.ended(item.item_id)
        self._remove(name)

    # -- the disk ----------------------------------------------------------

    def _locked(self, wait_s: float) -> int:
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        give_up_at = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    os.close(lock)
                    raise LandingError(
                        self.folder, "another query uses it; each needs its own"
                    ) from None
                time.sleep(_LOCK_S)
            else:
                return lock

    def _about(self, owner: Mapping[str, str]) -> str:
        path = self.folder / _ABOUT
        for leftover in self.folder.glob(f"*{_TEMPORARY}"):
            self._probe(f"remove {leftover.name}")
            leftover.unlink()
        try:
            about = json.loads(path.read_text("utf-8"))
            version, landing, owned = (
                about["version"],
                str(about["landing"]),
                about["owner"],
            )
        except FileNotFoundError:
            if self._names(_ITEMS):
                raise LandingError(
                    self.folder, f"there are items in it, and no {_ABOUT}"
                ) from None
            landing = secrets.token_hex(16)
            about = {"version": VERSION, "landing": landing, "owner": dict(owner)}
            self._write(_ABOUT, json.dumps(about))
            return landing
        except (ValueError, KeyError, TypeError):
            raise LandingError(self.folder, f"{_ABOUT} is damaged") from None
        if version != VERSION:
            raise LandingError(
                self.folder, f"it is of version {version}, and this knows {VERSION}"
            )
        if owned != owner:
            raise LandingError(
                self.folder, f"it is that of {_said(owned)}, not of {_said(owner)}"
            )
        return landing

    def _open_ids(self) -> sqlite3.Connection:
        # Used by one thread at a time, but not always by the same one.
        db = sqlite3.connect(self.folder / _IDS, check_same_thread=False)
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        if len(db.execute("PRAGMA table_info(ended)").fetchall()) == 1:
            # Written by a former version, which kept ids for good.
            db.execute("ALTER TABLE ended ADD COLUMN day INTEGER")
            db.execute("UPDATE ended SET day = ?", (self._day(),))
        db.execute("CREATE INDEX IF NOT EXISTS ended_by_day ON ended (day)")
        db.commit()
        return db

    def _day(self) -> int:
        return int(self._clock() // 86_400)

    def _read(self) -> None:
        row = self._db.execute("SELECT below FROM removed").fetchone()
        self.next = removed = 0 if row is None else row[0]
        for name in self._names(_ITEMS):
            number = int(name[6:16])
            if number < removed:
                self._remove(name)
                continue
            if number != self.next:
                raise LandingError(self.folder, f"{file_name(self.next)} is missing")
            self._landed(number, list(items_in(self.folder / name)))

    def _names(self, form: re.Pattern[str]) -> list[str]:
        return sorted(name for name in os.listdir(self.folder) if form.fullmatch(name))

    def _landed(self, number: int, items: Iterable[DeliveredItem]) -> None:
        self._unended[number] = set()
        for item in items:
            self._items[item.item_id] = (number, item.token)
            self._unended[number].add(item.item_id)
        self.next = number + 1

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        temporary = path.with_name(name + _TEMPORARY)
        self._probe(f"write {name}")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            self._probe(f"sync {name}")
            file.flush()
            os.fsync(file.fileno())
        self._probe(f"rename {name}")
        temporary.rename(path)
        self._sync()

    def _remove(self, name: str) -> None:
        self._probe(f"remove {name}")
        (self.folder / name).unlink(missing_ok=True)

    def _sync(self) -> None:
        self._probe("sync folder")
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _said(owner: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in owner.items())
