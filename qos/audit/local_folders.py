"""Lists folders of this machine; an entry that cannot be read is a result, not an error.

A name may be no UTF-8, a link may lead nowhere or to itself, and a file or folder may
belong to somebody else. Each of these is an entry with a reason. Only what is removed
while its folder is listed is no entry: it is there no more.

This module knows nothing of journals, and nothing of Spark.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "files_below", "names_in", "printable", "reason"]

_NOT_UTF8 = "its name is not UTF-8: rename it"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or a folder that cannot be listed.

    Attributes:
        path: as text; a byte that is no UTF-8 is written by its number.
        size: in bytes.
        reason: why it cannot be read; "" if it can.
        is_folder: whether it is a folder that cannot be listed.
        changed_ms: when it was changed, in milliseconds since the epoch; None: unknown.
    """

    path: str
    size: int
    reason: str = ""
    is_folder: bool = False
    changed_ms: int | None = None


def names_in(folder: Path) -> list[str]:
    """The names in a folder.

    Raises:
        OSError: it cannot be listed, or is not there.
    """
    return os.listdir(folder)


def files_below(
    folder: Path, is_wanted: Callable[[str], bool] = lambda path: True
) -> Iterator[Entry]:
    """The files in a folder and its subfolders, also behind links, each folder once.

    Subfolders whose names begin with a dot or an underscore are left out.

    Args:
        folder: the folder.
        is_wanted: whether a file is of interest, by its path.
    """
    errors: list[OSError] = []
    listed = _Listed(folder)
    for parent, folders, names in os.walk(
        folder, onerror=errors.append, followlinks=True
    ):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "_"))
            and listed.adds(os.path.join(parent, name))
        ]
        for name in names:
            path = os.path.join(parent, name)
            if is_wanted(path) and (entry := _entry(path)) is not None:
                yield entry
    for error in errors:
        path = os.fsdecode(error.filename)
        if os.path.lexists(path):
            yield Entry(printable(path), 0, reason(error), is_folder=True)


def printable(path: str) -> str:
    """A path as text that Spark, a terminal and a page can take."""
    return os.fsencode(path).decode(errors="backslashreplace")


def reason(error: OSError) -> str:
    """Why something cannot be read, in the words of the system."""
    return os.strerror(error.errno) if error.errno else str(error)


def _entry(path: str) -> Entry | None:
    """The entry of a file; None: it was removed, or got another name, just now."""
    try:
        status = os.stat(path)
        size, changed_ms = status.st_size, status.st_mtime_ns // 1_000_000
        if not os.access(path, os.R_OK):
            return Entry(printable(path), size, os.strerror(errno.EACCES))
    except FileNotFoundError as error:
        # A link that leads nowhere is there; a file that is renamed just now is not.
        if not os.path.islink(path):
            return None
        return Entry(printable(path), 0, f"link to a missing file: {reason(error)}")
    except OSError as error:
        return Entry(printable(path), 0, reason(error))
    text = printable(path)
    why = "" if text == path else _NOT_UTF8
    return Entry(text, size, why, changed_ms=changed_ms)


class _Listed:
    """The folders that have been listed, and those above the first.

    A link may lead to one of them: then it would be listed again, or without an end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[tuple[int, int]] | None = None

    def adds(self, path: str) -> bool:
        """Whether a folder was not known yet; it is from now on."""
        if self._known is None:
            # Nearly no folder has subfolders.
            first = self._folder.resolve()
            self._known = {_identity(each) for each in (first, *first.parents)}
        try:
            identity = _identity(path)
        except OSError:
            # The listing of it has the same error, which is reported.
            return True
        is_new = identity not in self._known
        self._known.add(identity)
        return is_new


def _identity(path: Path | str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
