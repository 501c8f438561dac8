"""Where messages are kept until they have ended."""

from __future__ import annotations

from qos.errors import LocalProtocolError
from qos.stores.base import Change, Contents, Remember, Store
from qos.stores.files import FilesStore
from qos.stores.memory import MemoryStore
from qos.stores.sqlite import SqliteStore

__all__ = [
    "Change",
    "Contents",
    "FilesStore",
    "MemoryStore",
    "Remember",
    "SqliteStore",
    "Store",
    "store_from_url",
]


def store_from_url(url: str) -> Store:
    """The store that a user names, not open yet.

    Args:
        url: `memory:`, `files:DIR` or `sqlite:PATH`; a path may begin with `~`.

    Raises:
        LocalProtocolError: it is none of these.
    """
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryStore()
    if path and "\0" not in path:
        if scheme == "files":
            return FilesStore(path)
        if scheme == "sqlite":
            return SqliteStore(path)
    raise LocalProtocolError(
        f"{url!r} names no store: expected memory:, files:DIR or sqlite:PATH"
    )
