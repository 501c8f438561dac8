"""A file of lines that somebody edits while it is in use."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from qos.errors import UsageError

__all__ = ["LineFile"]

T = TypeVar("T")


class LineFile(Generic[T]):
    """The content of a file, which is read again when it has changed.

    Empty lines, and those that begin with `#`, are skipped.

    Attributes:
        last: the content when the file was last read without an error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        parse: Callable[[Iterator[str]], T],
        *,
        private: bool = False,
    ) -> None:
        """Read the file.

        Args:
            path: of the file, in UTF-8.
            parse: makes the content of the other lines; a ValueError is about the line
                that it has taken last.
            private: others may not use the file.

        Raises:
            UsageError: the file cannot be read, a line is wrong, or others may use it.
        """
        self._path = Path(path)
        self._parse = parse
        self._private = private
        self._version: tuple[int, int] | None = None
        self.last: T = self.now()

    def now(self) -> T:
        """The content of the file now.

        Raises:
            UsageError: as the constructor does.
        """
        try:
            status = self._path.stat()
            version = status.st_mtime_ns, status.st_size
            if version == self._version:
                return self.last
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from None
        if self._private and status.st_mode & stat.S_IRWXO:
            raise UsageError(f"{self._path} is open to all: chmod 600 {self._path}")
        number = 0

        def entries() -> Iterator[str]:
            nonlocal number
            for line in lines:
                number += 1
                if line.strip() and not line.startswith("#"):
                    yield line

        try:
            self.last = self._parse(entries())
        except ValueError as error:
            text = f"{self._path}, line {number}: {error}"
            raise UsageError(text) from None
        self._version = version
        return self.last
