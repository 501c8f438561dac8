"""Backups: copies of stores in a folder, which are whole or refused.

A backup has a list of its files, with the SHA-256 of each. It gets its name when all of it is
on disk. What is not on the list, or differs from it, is not restored, and neither is the
rest: the files of a queue service belong together.

SQLite copies what is there at one moment, while a process goes on writing. Of a queue service
the messages are copied before the queues: what a message has published is in the queues
then, and a message that is handed over again is known there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from qos.errors import StoreDamaged, StoreError
from qos.private import make_private
from qos.stores.durable_store import sync
from qos.stores.files import FilesStore
from qos.stores.message_schema import APPLICATION_ID as OF_MESSAGES
from qos.stores.queue_schema import APPLICATION_ID as OF_QUEUES
from qos.stores.queue_store import MESSAGES

__all__ = ["LIST", "Copied", "back_up", "restore"]

#: The list of the files of a backup.
LIST = "backup.json"

_FORMAT, _VERSION = "xmpp-qos backup", 1

#: SQLite's own files beside a database.
_BESIDE = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Copied:
    """A file of a backup.

    Attributes:
        name: its path in the folder.
        bytes: its size.
        sha256: of its content.
    """

    name: str
    bytes: int
    sha256: str


async def back_up(stores: Sequence[str], folder: Path) -> list[Copied]:
    """Copy stores into a new folder.

    Args:
        stores: their URLs, `sqlite:PATH` or `files:DIR`. What a process keeps beside
            `sqlite:PATH` is copied, too.
        folder: it must not be there, or be empty.

    Raises:
        StoreError: a store cannot be copied, or the folder cannot be made. There is no
            backup then. A `files:` store that a process has open is in use.
    """
    names = [_name_of(url) for url in stores]
    for name in names:
        if names.count(name) > 1:
            raise StoreError(str(folder), f"two of the stores have the name {name!r}")
    with _errors(folder):
        staging = _begun(folder)
        try:
            for url, name in zip(stores, names, strict=True):
                await _copy(url, staging / name)
            return _completed(staging, folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _begun(folder: Path) -> Path:
    """The folder under the name that it has until the backup is complete."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(str(folder), "is there, and is no empty folder")
    make_private(folder.parent)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))


def _completed(staging: Path, folder: Path) -> list[Copied]:
    copied = [_described(staging, path) for path in _files(staging)]
    _write_list(staging, copied)
    if folder.exists():
        folder.rmdir()
    staging.rename(folder)
    sync(folder.parent)
    return copied


def restore(folder: Path, to: Path) -> list[Copied]:
    """Copy all files of a backup into a folder.

    Args:
        folder: the backup.
        to: a folder in which none of these files is.

    Raises:
        StoreError: the backup is not whole, or a file is there; nothing was restored.
    """
    with _errors(folder):
        copied = _listed(folder)
        for file in copied:
            _check(folder, file)
    with _errors(to):
        make_private(to)
        for file in copied:
            for suffix in _BESIDE:
                path = to / f"{file.name}{suffix}"
                if path.exists():
                    raise StoreError(str(path), "is there")
        targets: list[Path] = []
        try:
            for file in copied:
                make_private((to / file.name).parent)
                targets.append(to / file.name)
                shutil.copyfile(folder / file.name, targets[-1])
                targets[-1].chmod(0o600)
                sync(targets[-1])
                sync(targets[-1].parent)
        except BaseException:
            for path in targets:
                path.unlink(missing_ok=True)
            raise
    return copied


# -- copying ---------------------------------------------------------------


def _path_of(url: str) -> Path:
    scheme, _, path = url.partition(":")
    if scheme not in {"sqlite", "files"} or not path:
        raise StoreError(url, "is no sqlite:PATH or files:DIR")
    # As in DurableStore: an unknown home is no error, and `~…` is a name then.
    return Path(os.path.expanduser(path))


def _name_of(url: str) -> str:
    return _path_of(url).absolute().name


async def _copy(url: str, to: Path) -> None:
    path = _path_of(url)
    if not path.exists():
        raise StoreError(url, "there is no such store")
    if url.startswith("files:"):
        store = FilesStore(path)
        store.open()
        try:
            shutil.copytree(path, to)
        finally:
            await store.close()
        for file in _files(to):
            sync(file)
        return
    beside = path.with_name(path.name + MESSAGES)
    if beside.exists():
        _copy_database(f"sqlite:{beside}", beside, to.with_name(to.name + MESSAGES))
    _copy_database(url, path, to)


def _copy_database(url: str, path: Path, to: Path) -> None:
    try:
        with (
            contextlib.closing(_connected(path)) as source,
            contextlib.closing(sqlite3.connect(to)) as copy,
        ):
            (kind,) = source.execute("PRAGMA application_id").fetchone()
            if kind not in {OF_MESSAGES, OF_QUEUES}:
                raise StoreDamaged(url, "is the database of another application")
            source.backup(copy)
            (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreDamaged(url, f"is damaged: {verdict}")
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(url, f"cannot be copied: {error}") from error
    for suffix in _BESIDE[1:]:
        to.with_name(to.name + suffix).unlink(missing_ok=True)
    to.chmod(0o600)
    sync(to)


def _connected(path: Path) -> sqlite3.Connection:
    name = quote(str(path.absolute()))
    return sqlite3.connect(f"file:{name}?mode=ro", uri=True)


# -- the list --------------------------------------------------------------


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _described(folder: Path, path: Path) -> Copied:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Copied(str(path.relative_to(folder)), path.stat().st_size, digest)


def _write_list(folder: Path, copied: Sequence[Copied]) -> None:
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "files": [asdict(file) for file in copied],
    }
    (folder / LIST).write_text(json.dumps(about, indent=1) + "\n")
    sync(folder / LIST)
    for directory in {(folder / file.name).parent for file in copied} | {folder}:
        sync(directory)


def _listed(folder: Path) -> list[Copied]:
    try:
        about: Any = json.loads((folder / LIST).read_text())
        if (about["format"], about["version"]) != (_FORMAT, _VERSION):
            raise ValueError("it is of another program or version")
        files = [Copied(**file) for file in about["files"]]
        if not files or not all(_is_inside(file.name) for file in files):
            raise ValueError("it lists no files of the folder")
    except FileNotFoundError:
        raise StoreError(str(folder), f"is no backup: there is no {LIST}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(str(folder / LIST), f"cannot be read: {error}") from error
    return files


def _is_inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in Path(name).parts


def _check(folder: Path, expected: Copied) -> None:
    path = folder / expected.name
    if not path.is_file():
        text = f"is not whole: {expected.name} is missing, and nothing was restored"
        raise StoreError(str(folder), text)
    if _described(folder, path) != expected:
        text = f"{expected.name} is not what was written, and nothing was restored"
        raise StoreDamaged(str(folder), text)


@contextlib.contextmanager
def _errors(folder: Path) -> Iterator[None]:
    """Name what the system refuses."""
    try:
        yield
    except OSError as error:
        path = error.filename or folder
        raise StoreError(str(path), str(error.strerror or error)) from error
