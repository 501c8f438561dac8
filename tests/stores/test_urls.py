from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qos.errors import LocalProtocolError, StoreInUse
from qos.stores import FilesStore, MemoryStore, SqliteStore, store_from_url
from qos.testing.store_records import opened


def test_a_url_names_a_store_and_does_not_open_it(tmp_path: Path) -> None:
    """A command reports wrong arguments before it touches a disk."""
    urls = {
        "memory:": MemoryStore,
        f"files:{tmp_path}/folder": FilesStore,
        f"sqlite:{tmp_path}/file:with?odd#name%20.db": SqliteStore,
    }
    for url, kind in urls.items():
        store = store_from_url(url)
        assert isinstance(store, kind)
        assert store.url == url
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory:x", "files:", "sqlite:", "redis:x", "a.db", "sqlite:a\0b"],
)
def test_a_url_that_names_none_is_the_callers_fault(url: str) -> None:
    """The message repeats it, and says what would be right."""
    with pytest.raises(LocalProtocolError, match="must be the URL memory:") as caught:
        store_from_url(url)
    assert repr(url) in str(caught.value)


def test_odd_paths_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite takes some for URIs, and `~` means the home folder only at the beginning."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = ["file:x?mode=ro", ":memory:", "100%25.db", "a b", "é", "-x"]
    urls = [f"sqlite:{name}" for name in names] + [f"files:{name}.d" for name in names]

    async def opens() -> None:
        for url in [*urls, "sqlite:~/home.db"]:
            async with opened(store_from_url(url)):
                pass

    asyncio.run(opens())
    found = {entry.name for entry in tmp_path.iterdir()}
    files = {*names, "home.db"}
    assert found == files | {f"{name}.d" for name in names}


async def test_two_links_to_a_store_are_one_store(tmp_path: Path) -> None:
    """The lock belongs to the file, whatever its name."""
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    async with opened(SqliteStore(tmp_path / "real.db")):
        with pytest.raises(StoreInUse):
            SqliteStore(tmp_path / "link.db").open()
