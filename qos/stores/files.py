"""The store in a folder, one file a message, for whoever wants to look into it.

The folder itself is locked (flock) while the store is open::

    DIR/
      store.json              what this is, its version and its id
      remembered.json         the named values
      outgoing/00…042.json    a message of the outbox, by its seq
      outgoing/last-00…041    the largest seq so far, when its message has ended
      ended/00…041.json       how a message of the outbox has ended, by its seq
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
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import aiofiles.os

from qos.core.message.effects import Save
from qos.core.message.model import Ended, Incoming, Outgoing, OutgoingState
from qos.errors import StoreDamaged, StoreError, StoreReadOnly, StoreTooNew
from qos.stores.base import (
    Change,
    Contents,
    ended_from,
    incoming_from,
    outgoing_from,
)
from qos.stores.files_index import (
    LAST,
    MARKER,
    MESSAGE,
    REMEMBERED,
    TEMPORARY,
    FilesIndex,
    Move,
    encode,
    incoming_name,
    name_of,
    outgoing_name,
)
from qos.stores.group_commit import DurableStore, disk_error, sync

__all__ = ["FORMAT", "VERSION", "FilesStore"]

FORMAT = "xmpp-qos store"
VERSION = 1

_ABOUT = "store.json"
_COMMIT = "commit.json"
_FOLDERS = ("outgoing", "ended", "incoming")

#: Files written at a time. The disk confirms several in not much more than the
#: time of one: 64 files of 1.5 kB took 22 ms one by one, 8 ms by eight.
_THREADS = 8

_Message = TypeVar("_Message", Outgoing, Incoming)
_Record = TypeVar("_Record", Outgoing, Incoming, Ended)


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
        self._index = FilesIndex()
        #: The file that says what the largest seq is when no message does.
        self._marker: str | None = None
        #: What is decided and not all made, and where its new files are till then.
        self._unfinished: list[Move] = []
        self._staged: dict[str, str] = {}
        #: The disk did not confirm something: nobody can say what it will keep.
        self._unsynced = False

    def transaction(self) -> None:
        """See Store: there is none."""

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

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        self._need_open()
        keys = self._index.received_keys()
        found = (self._read(incoming_name(key), incoming_from) for key in keys)
        return (record for record in found if record is not None)

    def _queued(self, seqs: Iterable[int]) -> Iterator[Outgoing]:
        # A file may be ahead of the index, by the commit that is under way.
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
        for place in (self._staged.get(name, name), name):
            try:
                record = from_plain(self._json(place))
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

    def _json(self, name: str) -> Any:
        with open(self._path / name, "rb", opener=_no_link) as file:
            return json.loads(file.read())

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
        content, moves = self._index.plan(changes)
        try:
            if self._unsynced:
                raise OSError(errno.EIO, "the disk did not confirm an earlier write")
            if self._unfinished:
                await self._settle([], executor=self._threads)
            await self._make_all(content, moves)
        except OSError as error:
            raise disk_error(self.url, error) from error
        self._index.note(changes)

    async def _make_all(self, content: dict[str, Any], moves: list[Move]) -> None:
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

    # What follows runs in threads, but one `_transact` at a time.

    def _save(self, name: str, value: object) -> None:
        """Write a file under its temporary name."""
        self.probe(f"write {name}")
        with open(self._path / (name + TEMPORARY), "wb", opener=_new_file) as file:
            file.write(encode(value))
            file.flush()
            self.probe(f"sync {name}")
            os.fsync(file.fileno())

    def _transact(self, moves: list[Move]) -> None:
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
        self._rename(_COMMIT + TEMPORARY, _COMMIT)
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

    def _make(self, moves: list[Move]) -> None:
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
            if MARKER.fullmatch(os.path.basename(new)):
                with suppress(OSError):  # It is made; this is for order's sake.
                    self._mark(new)

    def _mark(self, marker: str) -> None:
        """The largest seq stands in the name of this file now."""
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(self._path / marker, flags))
        if self._marker is not None and self._marker != marker:
            self._remove(self._marker)
        self._marker = marker

    def _rename(self, old: str, new: str) -> None:
        self.probe(f"rename {old}")
        os.replace(self._path / old, self._path / new)

    def _remove(self, name: str) -> None:
        self.probe(f"remove {name}")
        (self._path / name).unlink(missing_ok=True)

    def _sync_folders(self, moves: list[Move]) -> None:
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
                (self._path / (name + TEMPORARY)).unlink(missing_ok=True)

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
            # Nothing, or what a process left that died while it made the store.
            ours = {_ABOUT + TEMPORARY, *_FOLDERS}
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
        if not self._locks:
            self._path.mkdir(mode=0o700, exist_ok=True)
            self._lock_data()
            self._recognize()  # somebody else may have made it meanwhile
        for folder in ("", *_FOLDERS):
            place = self._path / folder
            place.mkdir(mode=0o700, exist_ok=True)
            self._check_folder(place)
        if not (self._path / _ABOUT).exists():
            self._create()
        self._recover()
        # What a killed process has left unsynced: whoever opens the store acts on what it
        # shows, and may write nothing before.
        for folder in (*_FOLDERS, ""):
            sync(self._path / folder)
        sync(self._path.parent)
        contents = self._contents()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="qos-store")
        return contents

    def _check_folder(self, place: Path) -> None:
        """Raise unless it can be written, and nobody else could put links into it."""
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise StoreDamaged(self.url, f"{place} is not a folder")
        if not os.access(place, os.W_OK, effective_ids=True):
            raise StoreReadOnly(self.url, f"{place} cannot be written")
        user = os.geteuid()
        if user != 0 and status.st_uid not in {0, user}:
            raise StoreError(self.url, f"{place} belongs to another user")
        if status.st_mode & stat.S_IWOTH:
            raise StoreError(
                self.url, f"everybody can write into {place}: chmod o-w it first"
            )

    def _create(self) -> None:
        self.store_id = secrets.token_hex(16)
        about = {"format": FORMAT, "version": VERSION, "id": self.store_id}
        self._save(_ABOUT, about)
        self._rename(_ABOUT + TEMPORARY, _ABOUT)
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
        self._discard([_ABOUT, REMEMBERED, _COMMIT])
        for folder in _FOLDERS:
            for name in self._list(folder):
                final = name.removesuffix(TEMPORARY)
                if final != name and MESSAGE.fullmatch(final):
                    self._discard([f"{folder}/{final}"])

    def _contents(self) -> Contents:
        contents = Contents()
        for name in filter(MESSAGE.fullmatch, self._list("ended")):
            ended = self._read(f"ended/{name}", ended_from)
            if ended is not None:
                self._index.ended[ended.seq] = ended
        for name in self._list("outgoing"):
            if MARKER.fullmatch(name):
                self._index.last = max(self._index.last, int(name.removeprefix(LAST)))
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
        if (self._path / REMEMBERED).exists():
            try:
                self._index.remembered = dict(self._json(REMEMBERED))
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
        names = filter(MESSAGE.fullmatch, self._list(folder))
        read = (self._read(f"{folder}/{name}", from_plain) for name in names)
        for record in filter(None, read):
            self._index.note([Save(record)])
            yield record

    def _load_to_read(self) -> bool:
        self._clear()
        moves: list[Move] = []
        with suppress(FileNotFoundError):
            moves = [(old, new) for old, new in self._json(_COMMIT)]
        # What is decided counts, whether the process that has it open has made it or not.
        self._staged = {new: old for old, new in moves if new is not None}
        there = {f"{each}/{name}" for each in _FOLDERS for name in self._list(each)}
        for name in sorted((there | set(self._staged)) - {old for old, _ in moves}):
            folder, _, file = name.partition("/")
            if not MESSAGE.fullmatch(file):
                continue
            if folder == "ended":
                ended = self._read(name, ended_from)
                if ended is not None:
                    self._index.ended[ended.seq] = ended
            elif folder == "outgoing":
                self._note(self._read(name, outgoing_from))
            else:
                self._note(self._read(name, incoming_from))
        return True

    def _note(self, record: Outgoing | Incoming | None) -> None:
        if record is not None:
            self._index.note([Save(record)])

    async def _release(self) -> None:
        if self._unfinished:
            with suppress(OSError):
                self._finish()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self._clear()


class _Uncancelled(asyncio.Task[None]):
    """A task that cannot be cancelled: its thread would go on all the same.

    A loop that cancels its tasks when it ends waits for this one.
    """

    def cancel(self, msg: object = None) -> bool:
        """Refuse."""
        return False


def _new_file(path: str, flags: int) -> int:
    """Open a file that is new: nobody else has it open, and no link leads elsewhere."""
    flags = (flags & ~os.O_TRUNC) | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:  # what a write has left that failed
        os.unlink(path)
        return os.open(path, flags, 0o600)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
