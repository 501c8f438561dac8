"""Contexts of TLS whose files somebody replaces while they are in use.

Certificates end after some weeks or months, and a program that renews them only writes
files. So these are looked at before each handshake.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from typing import TypeAlias

from qos.errors import UsageError

__all__ = ["Tls", "TlsFiles"]

log = logging.getLogger(__name__)

#: Of each file: when it was changed, and its size. None: it cannot be looked at.
_Versions: TypeAlias = "list[tuple[int, int] | None]"

#: Returns the context for a handshake that begins now.
Tls: TypeAlias = Callable[[], ssl.SSLContext]


class TlsFiles:
    """A context of TLS, which is made again when one of its files has changed.

    As long as the new files cannot be used, the last ones that could are.
    """

    def __init__(self, make: Tls, *paths: str | os.PathLike[str] | None) -> None:
        """Make the first context.

        Args:
            make: makes a context of what is in the files.
            paths: of the files; None stands for no file.

        Raises:
            OSError, ValueError, UsageError: as `make` does.
        """
        self._make = make
        self._paths = [path for path in paths if path is not None]
        self._versions = self._look()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        """The context for a handshake that begins now."""
        versions = self._look()
        if versions != self._versions:
            self._versions = versions
            names = " and ".join(map(str, self._paths))
            try:
                self._context = self._make()
            except (OSError, ValueError, UsageError) as error:
                log.warning("%s: not read again, the old ones stay: %s", names, error)
            else:
                log.info("%s: read again", names)
        return self._context

    def _look(self) -> _Versions:
        return [_version(path) for path in self._paths]


def _version(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
