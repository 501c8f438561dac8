"""The files of a journal: their names, and the recovery of files of a dead writer.

A file is written under a hidden name, and is locked (flock) as long as its writer
lives. A hidden file that is not locked belongs to a dead boot. Recovery drops its torn
last line and renames it into place.

Everything here blocks.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from qos import forks
from qos.journal.schema import (
    Event,
    QueueEvent,
    ReceiverEvent,
    Role,
    SenderEvent,
)
from qos.private import make_private

__all__ = ["ActiveFile", "Begun", "Recovered", "begun", "quoted", "recover"]

log = logging.getLogger(__name__)

#: The longest node part of a file's name: a whole name has at most 255 bytes.
_NODE_CHARS_MAX = 160

#: Replacements for characters that must not begin a file's name; see `quoted`.
_FIRST = {"_": "%5F", ".": "%2E"}

#: The events by which a message or an item enters a store. After them, _SAYS_NOTHING:
#: events that do not prove that the entry was stored, as they may belong to the same
#: commit or do not depend on it.
_BEGINS: dict[Role, Event] = {
    Role.SENDER: SenderEvent.ACCEPTED,
    Role.RECEIVER: ReceiverEvent.HELD,
    Role.QUEUE: QueueEvent.PUBLISHED,
}
_SAYS_NOTHING: dict[str, frozenset[str]] = {
    "sender": frozenset({"offered"}),
    "receiver": frozenset({"refused"}),
    "queue": frozenset({"acquired"}),
}

#: The fields that identify the message or item of a line.
_IDS_OF_MESSAGE = ("from", "to", "msg_id")
_IDS_OF_ITEM = ("queue", "item")


@dataclass(frozen=True, slots=True)
class Begun:
    """A line of a dead boot: a message or item began, and no later line is about it.

    Perhaps its commit was lost, so that the store does not know it. The fields are
    those of `qos.journal.schema.FIELDS`.
    """

    role: Role
    fields: dict[str, object]

    def text(self, name: str) -> str:
        """The value of a text field, or ''."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


class ActiveFile:
    """The file that is being written: hidden and locked."""

    def __init__(self, folder: Path, *, node: str, boot: str, number: int, day: str):
        """Create the file.

        Raises:
            OSError: it cannot be created; `filename` names it.
        """
        self.day = day
        self.size = 0
        day_folder = folder / f"date={day}"
        make_private(day_folder)
        name = f"{quoted(node)}-{boot}-{number}.jsonl"
        self._place = day_folder / name
        self.path = day_folder / f".{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        forks.keep(self._file)
        try:
            # This waits only if a recovery has just found the file; then the file is
            # gone afterwards.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if not _is_at(self._file, self.path):
                text = "was taken for that of a dead writer"
                raise FileNotFoundError(errno.ENOENT, text, str(self.path))
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        forks.forget(self._file)
        os.close(self._file)

    def write(self, text: bytes) -> None:
        """Write whole lines to the kernel, without sync: all of them, or none.

        Raises:
            OSError: the write failed.
        """
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # If this fails too, a torn line stays, as after a power cut.
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(text)

    def publish(self, probe: Callable[[str], None]) -> None:
        """Sync the file and rename it into place; an empty file is removed.

        Args:
            probe: see JournalWriter.

        Raises:
            OSError: that failed; the next start of the node will do it.
        """
        try:
            probe("sync")
            if self.size == 0:
                self.path.unlink()
                return
            os.fsync(self._file)
            probe("rename")
            os.rename(self.path, self._place)
            _sync_folder(self._place.parent)
        finally:
            self._close()


def quoted(node: str) -> str:
    """The node, quoted for the names of its files.

    A name must not begin with `_`, since Spark ignores such files, nor with `.`, which
    marks files that are being written.
    """
    text = _as_before(node)
    return _FIRST.get(text[:1], text[:1]) + text[1:]


def _as_before(node: str) -> str:
    """The node as older versions quoted it: the dead writer may have been one."""
    text = quote(node, safe="@")
    if len(text) <= _NODE_CHARS_MAX:
        return text
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"{text[: _NODE_CHARS_MAX - 17]}~{digest}"


@dataclass(slots=True)
class Recovered:
    """A repaired file of a dead boot; it stays locked until it is in place."""

    path: Path
    file: int
    #: Whether the file was written for the same store.
    ours: bool = False

    def publish(self, probe: Callable[[str], None]) -> None:
        """Rename the file into place.

        Raises:
            OSError: that failed; the next start will do it.
        """
        try:
            probe("rename")
            name = self.path.name[1:]
            name = _FIRST.get(name[0], name[0]) + name[1:]
            os.rename(self.path, self.path.with_name(name))
            _sync_folder(self.path.parent)
        finally:
            os.close(self.file)


def recover(folder: Path, *, node: str, ours: str) -> list[Recovered]:
    """Take over the files that dead writers of this node have left in the folder.

    A file that cannot be read or repaired is logged and stays as it is.

    Args:
        folder: of the journal; it need not exist.
        node: the node that the files belong to.
        ours: the prefix of the boots of our store, or ''.

    Returns:
        The files, in the order in which they were written.
    """
    names = "|".join(
        re.escape(spelling) for spelling in (quoted(node), _as_before(node))
    )
    name = re.compile(rf"\.(?:{names})-([0-9A-Za-z]+)-([0-9]+)\.jsonl")
    entries: list[tuple[int, int, Recovered]] = []
    for path in folder.glob("date=*/.*.jsonl"):
        match = name.fullmatch(path.name)
        if match is None:
            continue
        try:
            file = _taken(path)
            if file is not None:
                recovered = Recovered(path, file, match[1].startswith(ours or "-"))
                written_at = os.fstat(file).st_mtime_ns
                entries.append((written_at, int(match[2]), recovered))
        except OSError as error:
            log.error("%s: a dead writer's file cannot be taken: %s", path, error)
    return [recovered for *_, recovered in sorted(entries, key=lambda entry: entry[:2])]


def _taken(path: Path) -> int | None:
    """The file, locked and repaired; None: its writer lives, or nothing is left."""
    try:
        # These flags refuse a symbolic link and do not wait for the other end of a
        # pipe: such a file must not be truncated.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path, flags)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "is not a file")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(file, path):
            if _cut(file, path):
                return file
            path.unlink()
    except BlockingIOError:
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _cut(file: int, path: Path) -> int:
    """Drop a torn last line; returns the remaining size."""
    size = end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        log.warning("%s: dropped a torn line of %d bytes", path, size - end)
        os.ftruncate(file, end)
        os.fsync(file)
    return end


def begun(files: Iterable[Recovered]) -> list[Begun]:
    """The messages and items that began in these files and have no later line there.

    Only files of our store count.

    Args:
        files: in the order in which they were written.
    """
    subjects: dict[tuple[object, ...], Begun] = {}
    for file in files:
        if file.ours:
            _look(file, subjects)
    return list(subjects.values())


def _look(recovered: Recovered, subjects: dict[tuple[object, ...], Begun]) -> None:
    bad = 0
    # The open file is read, not its name: the file may have been renamed into place
    # meanwhile.
    with os.fdopen(os.dup(recovered.file), "rb") as lines:
        lines.seek(0)
        for text in lines:
            try:
                fields = json.loads(text)
                role = Role(fields["role"])
                event = _text(fields["event"])
                ids = _IDS_OF_ITEM if role is Role.QUEUE else _IDS_OF_MESSAGE
                key = (role, *(_text(fields.get(name, "")) for name in ids))
            except (ValueError, TypeError, KeyError, RecursionError):
                bad += 1
                continue
            if role not in _BEGINS:
                continue
            if event == _BEGINS[role].value:
                subjects[key] = Begun(role, fields)
            elif event not in _SAYS_NOTHING[role.value]:
                subjects.pop(key, None)
    if bad:
        log.warning("%s: %d lines are no lines of a journal", recovered.path, bad)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
