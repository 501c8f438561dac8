"""The store in a folder, one file a message, for whoever wants to look into it.

::

    DIR/
      store.json              what this is, its version and its id
      lock                    locked while the store is open
      remembered.json         the named values
      outgoing/00…042.json    a message of the outbox, by its seq
      outgoing/last-00…041    the largest seq so far, when its message has ended
      incoming/<hash>.json    a received message, by the SHA-256 of its key
      commit.json             changes that are decided and not all made

Every file is written under a temporary name, synced, and renamed into place;
then the folder is synced. One change is one rename or one removal, so it is all
or none by itself. Of several, all files are made under their temporary names
first, and `commit.json` lists the renames and removals: before it is in place
none of them is made, and from then on all will be, if need be when the store is
opened again.

Files whose names are not like the above are left alone. One that is named so and
cannot be read as such is damage; the error names it.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiofiles.os

from qos.core.effects import Save
from qos.core.model import Incoming, Outgoing, OutgoingState
from qos.errors import StoreDamaged, StoreReadOnly, StoreTooNew
from qos.stores.base import (
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    Contents,
    Remember,
    incoming_from,
    outgoing_from,
)
from qos.stores.group_commit import DurableStore, disk_error, sync
from qos.stores.memory import QueueIndex

__all__ = ["FORMAT", "VERSION", "FilesStore"]

FORMAT = "xmpp-qos store"
VERSION = 1

_ABOUT = "store.json"
_LOCK = "lock"
_REMEMBERED = "remembered.json"
_COMMIT = "commit.json"
_FOLDERS = ("outgoing", "incoming")
_TEMPORARY = ".tmp"
_LAST = "last-"

_MESSAGE = re.compile(r"(\d{20}|[0-9a-f]{64})\.json")
_MARKER = re.compile(rf"{_LAST}\d{{20}}")

#: Files written at a time. The disk confirms several in not much more than the
#: time of one: 64 files of 1.5 kB took 22 ms one by one, 8 ms by eight.
_THREADS = 8

#: A file to rename, and its new name; None: to remove.
_Move: TypeAlias = tuple[str, str | None]

_Record = TypeVar("_Record", Outgoing, Incoming)


class FilesStore(DurableStore[Contents, Change]):
    """`files:DIR`. Memory holds the ids of the messages, the folder the rest.

    For some thousand messages; `sqlite:` takes more, and is several times faster.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("files", path)
        # One hop to a thread for a whole file: `aiofiles.open` takes one for each
        # of open, write, flush, sync and close, which doubled the time.
        self._stage = aiofiles.os.wrap(self._save)
        self._settle = aiofiles.os.wrap(self._transact)
        self._threads: ThreadPoolExecutor | None = None
        self._clear()

    def _clear(self) -> None:
        self._queue = QueueIndex()
        self._ids: dict[int, str] = {}
        self._seqs: dict[str, int] = {}
        self._received: dict[str, float] = {}
        self._remembered: dict[str, str] = {}
        #: The largest seq so far, and the file that says so when no message does.
        self._last = 0
        self._marker: str | None = None
        #: What is decided and not all made, and where its new files are till then.
        self._unfinished: list[_Move] = []
        self._staged: dict[str, str] = {}
        #: The disk did not confirm something: nobody can say what it will keep.
        self._unsynced = False

    # -- reading -----------------------------------------------------------

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return list(islice(self._queued(self._queue.after(flow, after)), limit))

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return list(islice(self._queued(self._queue.expiring(now)), limit))

    def next_expiry(self) -> float | None:
        """See Store."""
        self._need_open()
        return self._queue.next_expiry()

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""
        self._need_open()
        return self._outgoing(sorted(self._ids))

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""
        self._need_open()
        seq = self._seqs.get(msg_id)
        return None if seq is None else next(self._outgoing([seq]), None)

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        self._need_open()
        keys = sorted(self._received, key=lambda key: (self._received[key], key))
        found = (self._read(_incoming_name(key), incoming_from) for key in keys)
        return (record for record in found if record is not None)

    def _queued(self, seqs: Iterable[int]) -> Iterator[Outgoing]:
        # A file may be ahead of the index, by the commit that is under way.
        for record in self._outgoing(seqs):
            if record.state is OutgoingState.QUEUED:
                yield record

    def _outgoing(self, seqs: Iterable[int]) -> Iterator[Outgoing]:
        for seq in seqs:
            record = self._read(_outgoing_name(seq), outgoing_from)
            if record is not None:
                yield record

    def _read(
        self, name: str, from_plain: Callable[[dict[str, Any]], _Record]
    ) -> _Record | None:
        """The record in a file, or None if it is gone."""
        for place in (self._staged.get(name, name), name):
            try:
                record = from_plain(self._json(place))
                if name != _name(record):
                    raise ValueError("it is of another message than its name")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error(self.url, error) from error
            except (KeyError, TypeError, ValueError) as error:
                raise self._broken(name, error) from error
            return record
        return None

    def _json(self, name: str) -> Any:
        return json.loads((self._path / name).read_bytes())

    def _broken(self, name: str, error: Exception) -> StoreDamaged:
        return StoreDamaged(self.url, f"{self._path / name} cannot be read: {error!r}")

    # -- writing -----------------------------------------------------------

    def _start(
        self, changes: list[Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        return _Uncancelled(self._commit(changes, before))

    async def _commit(
        self, changes: list[Change], before: Callable[[], None] | None
    ) -> None:
        if before is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, before)
        content, moves = self._plan(changes)
        try:
            if self._unsynced:
                raise OSError(errno.EIO, "the disk did not confirm an earlier write")
            if self._unfinished:
                await self._settle([], executor=self._threads)
            await self._make_all(content, moves)
        except OSError as error:
            raise disk_error(self.url, error) from error
        self._note(changes)

    async def _make_all(self, content: dict[str, Any], moves: list[_Move]) -> None:
        saves = [_Uncancelled(self._write(*item)) for item in content.items()]
        try:
            for failure in await asyncio.gather(*saves, return_exceptions=True):
                if failure is not None:
                    raise failure
            if moves:
                await self._settle(moves, executor=self._threads)
        except BaseException:
            if not self._unsynced:
                self._discard(content)
            raise

    async def _write(self, name: str, value: object) -> None:
        await self._stage(name, value, executor=self._threads)

    def _plan(self, changes: list[Change]) -> tuple[dict[str, Any], list[_Move]]:
        """What to write into which file, and the moves that then make the changes."""
        content: dict[str, Any] = {}
        removed: dict[str, str | None] = {}
        for change in changes:
            if isinstance(change, Remember):
                values = content.setdefault(_REMEMBERED, dict(self._remembered))
                values[change.name] = change.value
                continue
            record = change.record
            name = _name(record)
            content.pop(name, None)
            removed.pop(name, None)
            if isinstance(change, Save):
                content[name] = record
            elif isinstance(record, Incoming):
                if record.key in self._received:
                    removed[name] = None
            elif record.seq in self._ids:
                last = record.seq == self._last
                removed[name] = _marker_name(record.seq) if last else None
        moves: list[_Move] = [(name + _TEMPORARY, name) for name in content]
        return content, moves + list(removed.items())

    def _note(self, changes: Sequence[Change]) -> None:
        """The changes are made: keep the index."""
        for change in changes:
            if isinstance(change, Remember):
                self._remembered[change.name] = change.value
                continue
            record = change.record
            if isinstance(record, Incoming):
                self._received.pop(record.key, None)
                if isinstance(change, Save):
                    self._received[record.key] = record.changed_at
            else:
                self._seqs.pop(self._ids.pop(record.seq, ""), None)
                self._queue.discard(record.seq)
                if isinstance(change, Save):
                    self._ids[record.seq] = record.msg_id
                    self._seqs[record.msg_id] = record.seq
                    self._queue.update(record)
        # At the end: what came and went in one commit has left no file.
        for change in changes:
            if isinstance(change, Save) and isinstance(change.record, Outgoing):
                seq = change.record.seq
                self._last = max(self._last, seq if seq in self._ids else 0)

    # What follows runs in threads, but one `_transact` at a time.

    def _save(self, name: str, value: object) -> None:
        """Write a file under its temporary name."""
        self.probe(f"write {name}")
        with open(self._path / (name + _TEMPORARY), "wb", opener=_private) as file:
            file.write(_encode(value))
            file.flush()
            self.probe(f"sync {name}")
            os.fsync(file.fileno())

    def _transact(self, moves: list[_Move]) -> None:
        """Make the moves, all or none, after what is left of those before.

        Once they are decided it is no error if one of them fails: the next
        commit, or who opens the store next, will make them.
        """
        if self._unfinished:
            self._finish()
        if len(moves) < 2:
            self._make(moves)
            return
        self._sync_folders(moves)
        self._save(_COMMIT, moves)
        self._rename(_COMMIT + _TEMPORARY, _COMMIT)
        self._sync(_COMMIT)
        self._staged = {new: old for old, new in moves if new is not None}
        self._unfinished = moves
        with suppress(OSError):
            self._finish()

    def _finish(self) -> None:
        self._make(self._unfinished)
        self._remove(_COMMIT)
        self._sync(_COMMIT)
        self._unfinished = []
        self._staged = {}

    def _make(self, moves: list[_Move]) -> None:
        """Make the moves, or those that are not made yet; their order is no matter."""
        if self._threads is None or len(moves) == 1:
            for move in moves:
                self._make_one(*move)
        else:
            made = [self._threads.submit(self._make_one, *move) for move in moves]
            # All of them: none may be under way when this one is tried again.
            wait(made)
            for one in made:
                one.result()
        self._sync_folders(moves)

    def _make_one(self, old: str, new: str | None) -> None:
        if new is None:
            self._remove(old)
        elif (self._path / old).exists() or not (self._path / new).exists():
            self._rename(old, new)
            if _MARKER.fullmatch(os.path.basename(new)):
                with suppress(OSError):  # It is made; this is for order's sake.
                    self._mark(new)

    def _mark(self, marker: str) -> None:
        """The largest seq stands in the name of this file now."""
        os.truncate(self._path / marker, 0)
        if self._marker is not None and self._marker != marker:
            self._remove(self._marker)
        self._marker = marker

    def _rename(self, old: str, new: str) -> None:
        self.probe(f"rename {old}")
        os.replace(self._path / old, self._path / new)

    def _remove(self, name: str) -> None:
        self.probe(f"remove {name}")
        (self._path / name).unlink(missing_ok=True)

    def _sync_folders(self, moves: list[_Move]) -> None:
        for name in {os.path.dirname(old): old for old, _ in moves}.values():
            self._sync(name)

    def _sync(self, name: str) -> None:
        """Sync the folder that this name is in."""
        folder = (self._path / name).parent
        try:
            self.probe(f"sync {folder.name}/")
            sync(folder)
        except OSError:
            self._unsynced = True
            raise

    def _discard(self, names: Iterable[str]) -> None:
        """Remove what was written under temporary names."""
        for name in names:
            with suppress(OSError):
                (self._path / (name + _TEMPORARY)).unlink(missing_ok=True)

    # -- opening and closing -----------------------------------------------

    @property
    def _lock_path(self) -> Path:
        return self._path / _LOCK

    def _take_lock(self) -> int:
        self._path.mkdir(mode=0o700, exist_ok=True)
        return super()._take_lock()

    def _recognize(self) -> None:
        try:
            names = set(os.listdir(self._path))
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise StoreDamaged(self.url, "is not a folder") from None
        if _ABOUT not in names:
            # Nothing, or what a process left that died while it made the store.
            ours = {_LOCK, _ABOUT + _TEMPORARY, *_FOLDERS}
            if names - ours or any(map(self._list, names & set(_FOLDERS))):
                raise StoreDamaged(self.url, f"has files, but no {_ABOUT}")
            return
        try:
            about = self._json(_ABOUT)
            if about["format"] != FORMAT:
                raise ValueError("it is of another application")
            version, self.store_id = int(about["version"]), str(about["id"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._broken(_ABOUT, error) from error
        if version > VERSION:
            raise StoreTooNew(
                self.url,
                f"has version {version}, and this program knows up to {VERSION}",
            )

    def _list(self, folder: str) -> list[str]:
        return sorted(os.listdir(self._path / folder))

    def _load(self) -> Contents:
        self._clear()
        for folder in ("", *_FOLDERS):
            place = self._path / folder
            place.mkdir(mode=0o700, exist_ok=True)
            if not os.access(place, os.W_OK, effective_ids=True):
                raise StoreReadOnly(self.url, f"{place} cannot be written")
        if not (self._path / _ABOUT).exists():
            self._create()
        self._recover()
        contents = self._contents()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="qos-store")
        return contents

    def _create(self) -> None:
        self.store_id = secrets.token_hex(16)
        about = {"format": FORMAT, "version": VERSION, "id": self.store_id}
        self._save(_ABOUT, about)
        self._rename(_ABOUT + _TEMPORARY, _ABOUT)
        self._sync(_ABOUT)
        sync(self._path.parent)

    def _recover(self) -> None:
        """Make what was decided, and clear away what was not."""
        if (self._path / _COMMIT).exists():
            try:
                self._unfinished = [(old, new) for old, new in self._json(_COMMIT)]
                self._finish()
            except (FileNotFoundError, TypeError, ValueError) as error:
                raise self._broken(_COMMIT, error) from error
        self._discard([_ABOUT, _REMEMBERED, _COMMIT])
        for folder in _FOLDERS:
            for name in self._list(folder):
                final = name.removesuffix(_TEMPORARY)
                if final != name and _MESSAGE.fullmatch(final):
                    self._discard([f"{folder}/{final}"])

    def _contents(self) -> Contents:
        contents = Contents()
        for name in self._list("outgoing"):
            if _MARKER.fullmatch(name):
                self._last = max(self._last, int(name.removeprefix(_LAST)))
                if self._marker is not None:
                    self._remove(self._marker)
                self._marker = f"outgoing/{name}"
        for outgoing in self._records("outgoing", outgoing_from):
            contents.outbox_messages += 1
            contents.outbox_bytes += outgoing.size
            if outgoing.state in {OutgoingState.OFFERED, OutgoingState.RELEASING}:
                contents.outgoing.append(outgoing)
        contents.incoming = list(self._records("incoming", incoming_from))
        contents.incoming.sort(key=lambda record: (record.changed_at, record.key))
        if (self._path / _REMEMBERED).exists():
            try:
                self._remembered = dict(self._json(_REMEMBERED))
            except (TypeError, ValueError) as error:
                raise self._broken(_REMEMBERED, error) from error
        contents.remembered = dict(self._remembered)
        contents.queued = self._queue.counts()
        contents.next_seq = self._last + 1
        return contents

    def _records(
        self, folder: str, from_plain: Callable[[dict[str, Any]], _Record]
    ) -> Iterator[_Record]:
        """Read all records of a folder into the index, by name."""
        names = filter(_MESSAGE.fullmatch, self._list(folder))
        read = (self._read(f"{folder}/{name}", from_plain) for name in names)
        for record in filter(None, read):
            self._note([Save(record)])
            yield record

    async def _release(self) -> None:
        if self._unfinished:
            with suppress(OSError):
                self._finish()
        threads, self._threads = self._threads, None
        assert threads is not None
        threads.shutdown()
        self._clear()


class _Uncancelled(asyncio.Task[None]):
    """A task that cannot be cancelled: its thread would go on all the same.

    A loop that cancels its tasks when it ends waits for this one.
    """

    def cancel(self, msg: object = None) -> bool:
        """Refuse."""
        return False


def _name(record: Outgoing | Incoming) -> str:
    if isinstance(record, Outgoing):
        return _outgoing_name(record.seq)
    return _incoming_name(record.key)


def _outgoing_name(seq: int) -> str:
    return f"outgoing/{seq:020d}.json"


def _incoming_name(key: str) -> str:
    # A key may hold what no file name can, and be longer than one.
    return f"incoming/{hashlib.sha256(key.encode()).hexdigest()}.json"


def _marker_name(seq: int) -> str:
    return f"outgoing/{_LAST}{seq:020d}"


def _encode(value: object) -> bytes:
    if isinstance(value, Outgoing):
        value = {name: getattr(value, name) for name in OUTGOING_FIELDS}
    elif isinstance(value, Incoming):
        value = {name: getattr(value, name) for name in INCOMING_FIELDS}
    text = json.dumps(value, ensure_ascii=False, indent=1, default=_plain)
    return text.encode() + b"\n"


def _plain(value: enum.Enum) -> object:
    return value.value


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
