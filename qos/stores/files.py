"""The store in a folder, one file for each message, for users who want to look into it.

The folder itself is locked (flock) while the store is open::

    DIR/
      store.json              what this is, its version and its id
      remembered.json         the named values
      outgoing/00…042.json    a message of the outbox, by its seq
      outgoing/last-00…041    the largest seq so far, when its message has ended
      ended/00…041.json       the end of a message of the outbox, by its seq
      incoming/<hash>.json    a received message, by the SHA-256 of its key
      commit.json             changes that are decided and not all made

`qos.stores.files_folder` tells how several files change together, and which files are
left when a process dies.

Files with other names are left alone. A file with such a name that cannot be read as
such is damage; the error names it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from qos.core.message.effects import End, Save
from qos.core.message.model import Ended, Incoming, Outgoing, OutgoingState
from qos.core.wall_clock import ClockHistory
from qos.errors import StoreDamaged, StoreError, StoreTooNew
from qos.stores.base import (
    Change,
    Contents,
    ended_from,
    incoming_from,
    outgoing_from,
)
from qos.stores.durable_store import DurableStore, disk_error, sync
from qos.stores.files_folder import COMMIT, AtomicFolder, Uncancelled, check_place
from qos.stores.files_index import (
    LAST,
    MARKER,
    MESSAGE,
    REMEMBERED,
    TEMPORARY,
    FilesIndex,
    Move,
    incoming_name,
    name_of,
    outgoing_name,
)
from qos.stores.times import clock_from, clock_text, happened_at, moved

__all__ = ["FORMAT", "VERSION", "FilesStore"]

FORMAT = "xmpp-qos store"
VERSION = 1

_ABOUT = "store.json"
_FOLDERS = ("outgoing", "ended", "incoming")

_Message = TypeVar("_Message", Outgoing, Incoming)
_Record = TypeVar("_Record", Outgoing, Incoming, Ended)


class FilesStore(DurableStore[Contents, Change]):
    """`files:DIR`. Memory has the ids of the messages, the folder everything else.

    For some thousand messages; `sqlite:` takes more, and is several times faster.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("files", path)
        self._folder = AtomicFolder(self._path, lambda step: self.probe(step))
        self._clear()

    def _clear(self) -> None:
        self._index = FilesIndex()
        #: The newest time at which something has happened, before `open` has returned.
        self._newest: float | None = None
        self._folder.clear()

    def transaction(self) -> None:
        """None: this store has no transactions. See Store."""

    # -- reading -----------------------------------------------------------

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return list(islice(self._queued(self._index.queue.after(flow, after)), limit))

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return list(islice(self._queued(self._index.queue.expiring(now)), limit))

    def next_expiry(self) -> float | None:
        """See Store."""
        self._need_open()
        return self._index.queue.next_expiry()

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""
        self._need_open()
        return self._outgoing(sorted(self._index.ids))

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""
        self._need_open()
        seq = self._index.seqs.get(msg_id)
        return None if seq is None else next(self._outgoing([seq]), None)

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """See Store."""
        self._need_open()
        return self._index.how_ended(msg_id)

    def find_ended(self, msg_id: str) -> Ended | None:
        """See Store."""
        ends = [end for end in self.ended(msg_id) if end.digest]
        return ends[-1] if ends else None

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        self._need_open()
        return self._incoming()

    def _incoming(self) -> Iterator[Incoming]:
        keys = self._index.received_keys()
        records = (self._read(incoming_name(key), incoming_from) for key in keys)
        return (record for record in records if record is not None)

    def _queued(self, seqs: Iterable[int]) -> Iterator[Outgoing]:
        # During a commit, a file may be ahead of the index.
        for seq in seqs:
            try:
                record = next(self._outgoing([seq]), None)
            except StoreError as error:
                self._leave_out(f"the queued message {seq}", error)
                continue
            if record is not None and record.state is OutgoingState.QUEUED:
                yield record

    def _outgoing(self, seqs: Iterable[int]) -> Iterator[Outgoing]:
        for seq in seqs:
            record = self._read(outgoing_name(seq), outgoing_from)
            if record is not None:
                yield record

    def _read(
        self, name: str, from_plain: Callable[[dict[str, Any]], _Record]
    ) -> _Record | None:
        """The record in a file, or None if it is gone."""
        for place in (self._folder.staged.get(name, name), name):
            try:
                record = from_plain(self._folder.read(place))
                if name != name_of(record):
                    raise ValueError("it is of another message than its name")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error(self.url, error) from error
            except (KeyError, TypeError, ValueError) as error:
                raise self._broken(name, error) from error
            return record
        return None

    def _broken(self, name: str, error: Exception) -> StoreDamaged:
        return StoreDamaged(self.url, f"{self._path / name} cannot be read: {error!r}")

    # -- writing -----------------------------------------------------------

    def _start(
        self, changes: list[Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        return Uncancelled(self._commit(changes, before))

    async def _commit(
        self, changes: list[Change], before: Callable[[], None] | None
    ) -> None:
        if before is not None:
            await self._folder.run(before)
        content, moves = self._index.plan(changes)
        try:
            await self._folder.commit(content, moves)
        except OSError as error:
            raise disk_error(self.url, error) from error
        self._index.note(changes)

    # -- opening and closing -----------------------------------------------

    def exists(self) -> bool:
        """See DurableStore."""
        if self._path.is_dir():
            return (self._path / _ABOUT).exists()
        return self._path.exists()

    def _lock_data(self) -> bool:
        if not self._path.is_dir():
            return False
        self._take_lock(self._path, os.O_RDONLY | os.O_DIRECTORY)
        return True

    def _recognize(self) -> None:
        try:
            names = set(os.listdir(self._path))
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise StoreDamaged(self.url, "is not a folder") from None
        if _ABOUT not in names:
            # Nothing, or the remains of a process that died while it created the store.
            ours = {_ABOUT + TEMPORARY, *_FOLDERS}
            if names - ours or any(map(self._folder.names, names & set(_FOLDERS))):
                raise StoreDamaged(self.url, f"has files, but no {_ABOUT}")
            return
        try:
            about = self._folder.read(_ABOUT)
            if about["format"] != FORMAT:
                raise ValueError("it is of another application")
            version, self.store_id = int(about["version"]), str(about["id"])
            self.clock = clock_from(about.get("clock"))
        except (KeyError, TypeError, ValueError) as error:
            raise self._broken(_ABOUT, error) from error
        if version > VERSION:
            raise StoreTooNew(
                self.url,
                f"has version {version}, and this program knows up to {VERSION}",
            )

    def _load(self, now: float | None) -> Contents:
        self._clear()
        if not self._locks:
            self._path.mkdir(mode=0o700, exist_ok=True)
            self._lock_data()
            self._recognize()  # another process may have created it meanwhile
        for folder in ("", *_FOLDERS):
            place = self._path / folder
            place.mkdir(mode=0o700, exist_ok=True)
            check_place(place, self.url)
        if not (self._path / _ABOUT).exists():
            self._create()
        self._recover()
        self._recognize()  # a commit that was finished may have changed the clock
        # Sync the writes of a killed process: a program acts on the contents shown, and
        # may write nothing before.
        for folder in (*_FOLDERS, ""):
            sync(self._path / folder)
        sync(self._path.parent)
        contents = self._contents()
        if now is not None:
            self._move(contents, now)
        self._folder.start()
        return contents

    def _move(self, contents: Contents, now: float) -> None:
        """Move all times, if they do not fit to the present time."""
        by_s, clock = self._shift(self._newest, now)
        if not by_s:
            return
        outgoing = self._outgoing(sorted(self._index.ids))
        changes: list[Change] = [Save(moved(record, by_s)) for record in outgoing]
        changes += [Save(moved(record, by_s)) for record in self._incoming()]
        changes += [End(moved(record, by_s)) for record in self._index.ended.values()]
        content, moves = self._index.plan(changes)
        content[_ABOUT] = self._about(clock)
        self._folder.commit_at_once(content, [*moves, (_ABOUT + TEMPORARY, _ABOUT)])
        self.clock = clock
        self._index.note(changes)
        contents.outgoing = [moved(record, by_s) for record in contents.outgoing]
        contents.incoming = [moved(record, by_s) for record in contents.incoming]

    def _create(self) -> None:
        self.store_id = secrets.token_hex(16)
        self._folder.save(_ABOUT, self._about(ClockHistory()))
        self._folder.rename(_ABOUT + TEMPORARY, _ABOUT)
        self._folder.sync(_ABOUT)
        sync(self._path.parent)

    def _about(self, clock: ClockHistory) -> dict[str, Any]:
        about = {"format": FORMAT, "version": VERSION, "id": self.store_id}
        return (
            about if clock == ClockHistory() else about | {"clock": clock_text(clock)}
        )

    def _recover(self) -> None:
        """Make the decided moves, and remove everything that was not decided."""
        try:
            self._folder.recover()
        except (FileNotFoundError, TypeError, ValueError) as error:
            raise self._broken(COMMIT, error) from error
        self._folder.discard([_ABOUT, REMEMBERED, COMMIT])
        for folder in _FOLDERS:
            for name in self._folder.names(folder):
                final = name.removesuffix(TEMPORARY)
                if final != name and MESSAGE.fullmatch(final):
                    self._folder.discard([f"{folder}/{final}"])

    def _contents(self) -> Contents:
        contents = Contents()
        times: list[float] = []
        for name in filter(MESSAGE.fullmatch, self._folder.names("ended")):
            end = self._read(f"ended/{name}", ended_from)
            if end is not None:
                self._index.ended[end.seq] = end
                times += happened_at(end)
        for name in self._folder.names("outgoing"):
            if MARKER.fullmatch(name):
                self._index.last = max(self._index.last, int(name.removeprefix(LAST)))
                if self._folder.marker is not None:
                    self._folder.remove(self._folder.marker)
                self._folder.marker = f"outgoing/{name}"
        for outgoing in self._records("outgoing", outgoing_from):
            contents.outbox_messages += 1
            if outgoing.account:
                messages, size = contents.accounts.get(outgoing.account, (0, 0))
                contents.accounts[outgoing.account] = messages + 1, size + outgoing.size
            contents.outbox_bytes += outgoing.size
            times += happened_at(outgoing)
            if outgoing.state in {OutgoingState.OFFERED, OutgoingState.RELEASING}:
                contents.outgoing.append(outgoing)
        contents.incoming = list(self._records("incoming", incoming_from))
        contents.incoming.sort(key=lambda record: (record.changed_at, record.key))
        for record in contents.incoming:
            times += happened_at(record)
        self._newest = max(times, default=None)
        if (self._path / REMEMBERED).exists():
            try:
                self._index.remembered = dict(self._folder.read(REMEMBERED))
            except (TypeError, ValueError) as error:
                raise self._broken(REMEMBERED, error) from error
        contents.remembered = dict(self._index.remembered)
        contents.queued = self._index.queue.counts()
        contents.next_seq = self._index.last + 1
        return contents

    def _records(
        self, folder: str, from_plain: Callable[[dict[str, Any]], _Message]
    ) -> Iterator[_Message]:
        """Read all records of a folder into the index, by name."""
        names = filter(MESSAGE.fullmatch, self._folder.names(folder))
        records = (self._read(f"{folder}/{name}", from_plain) for name in names)
        for record in filter(None, records):
            self._index.note([Save(record)])
            yield record

    def _load_to_read(self) -> bool:
        self._clear()
        moves: list[Move] = []
        with suppress(FileNotFoundError):
            # Decided moves count, whether the process that has the store open has made
            # them or not.
            moves = self._folder.read_decided()
        present = {
            f"{folder}/{name}"
            for folder in _FOLDERS
            for name in self._folder.names(folder)
        }
        for name in sorted(
            (present | set(self._folder.staged)) - {old for old, _ in moves}
        ):
            folder, _, file = name.partition("/")
            if not MESSAGE.fullmatch(file):
                continue
            if folder == "ended":
                end = self._read(name, ended_from)
                if end is not None:
                    self._index.ended[end.seq] = end
            elif folder == "outgoing":
                self._note(self._read(name, outgoing_from))
            else:
                self._note(self._read(name, incoming_from))
        return True

    def _note(self, record: Outgoing | Incoming | None) -> None:
        if record is not None:
            self._index.note([Save(record)])

    async def _release(self) -> None:
        self._folder.close()
        self._clear()
