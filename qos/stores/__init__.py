"""The stores, which keep messages until they have ended."""

from __future__ import annotations

from qos.errors import InvalidArgument
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

_URLS = "the URL memory:, files:DIR or sqlite:PATH"


def store_from_url(url: str) -> Store:
    """The store that a user names, not open yet.

    Args:
        url: `memory:`, `files:DIR` or `sqlite:PATH`; a path may begin with `~`.

    Raises:
        InvalidArgument: the URL is none of these.
    """
    if not isinstance(url, str):
        raise InvalidArgument("store", url, _URLS)
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryStore()
    if path and "\0" not in path:
        if scheme == "files":
            return FilesStore(path)
        if scheme == "sqlite":
            return SqliteStore(path)
    raise InvalidArgument("store", url, _URLS)
