"""A store is named by a URL or a path; anything else is refused by a clear error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import qos.stores
from qos.errors import InvalidArgument
from qos.stores import FilesStore, SqliteStore, store_from_url
from qos.stores.queue_store import SqliteQueueStore, queue_store_from_url
from wrong_values import accepted

#: Not called by applications: values, and the protocol of a store.
VALUES = {"Change", "Contents", "MemoryStore", "Remember", "Store"}

NO_URLS = ("", "memory", "sqlite:", "files:", "sqlite:\0", "bogus:x")
TABLE: dict[str, tuple[Callable[..., object], tuple[str, ...]]] = {
    "FilesStore": (FilesStore, ("", "\0")),
    "SqliteStore": (SqliteStore, ("", "\0")),
    "store_from_url": (store_from_url, NO_URLS),
}


def test_every_public_name_of_the_stores_is_in_the_table() -> None:
    """A new store must also refuse wrong arguments."""
    assert set(qos.stores.__all__) == VALUES | set(TABLE)


@pytest.mark.parametrize("name", TABLE)
async def test_a_wrong_path_or_url_is_refused_and_leaves_no_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`FilesStore("")` would be the folder that the process happens to be in."""
    monkeypatch.chdir(tmp_path)
    function, wrong = TABLE[name]
    (parameter,) = ("url",) if name == "store_from_url" else ("path",)
    assert await accepted(function, {parameter: "memory:"}, {parameter: wrong}) == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("url", [*NO_URLS, "memory:", "files:x", None, 5, b"sqlite:x"])
def test_the_store_of_a_queue_is_a_file_of_sqlite(url: str) -> None:
    """Everything that a queue has confirmed must survive its process."""
    with pytest.raises(InvalidArgument, match="store must be the URL sqlite:PATH"):
        queue_store_from_url(url)


@pytest.mark.parametrize("path", ["", "\0", None, b"x", 5])
def test_the_path_of_a_queue_store_is_checked(path: str) -> None:
    """Like that of the other stores."""
    with pytest.raises(InvalidArgument, match="path must be a path"):
        SqliteQueueStore(path)
