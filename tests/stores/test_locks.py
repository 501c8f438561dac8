"""Opening a store: one process to write, any number to read; links are not followed."""

import asyncio
import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holder import holder
from qos.core.message.effects import End, Forget, Save
from qos.errors import (
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
)
from qos.stores import Contents, FilesStore, SqliteStore, sqlite
from qos.testing.store_records import ended, incoming, opened, outgoing, write

_HOLD = """
import asyncio, sys
from qos.core.message.effects import Save
from qos.stores import store_from_url
from qos.testing.store_records import outgoing, write

async def main():
    store = store_from_url(sys.argv[1])
    store.open()
    await write(store, Save(outgoing(1)))
    print("open", flush=True)
    sys.stdin.read(1)
    await write(store, Save(outgoing(2)))
    print("written", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""

Kind = type[SqliteStore] | type[FilesStore]


@pytest.fixture(params=[SqliteStore, FilesStore])
def kind(request: pytest.FixtureRequest) -> Kind:
    return SqliteStore if request.param is SqliteStore else FilesStore


@pytest.fixture
def other(kind: Kind, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store `s` open, with one message in it."""
    with holder(_HOLD, kind(tmp_path / "s").url) as process:
        yield process


def write_more(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write("x")
    other.stdin.flush()
    assert other.stdout.readline() == "written\n"


def ids(store: SqliteStore | FilesStore) -> list[int]:
    return [record.seq for record in store.outgoing()]


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# -- one to write --------------------------------------------------------------


def test_no_file_that_is_removed_lets_a_second_process_in(
    kind: Kind, other: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The data itself is locked.

    After a clean-up two processes would send everything.
    """
    data = {"s", "s-wal", "s-shm", "store.json"}
    for path in [*tmp_path.iterdir(), *(tmp_path / "s").glob("*")]:
        if path.is_file() and path.name not in data:
            path.unlink()
    with pytest.raises(StoreInUse, match="another process"):
        kind(tmp_path / "s").open()
    write_more(other)


async def test_a_link_to_a_store_is_the_same_store(kind: Kind, tmp_path: Path) -> None:
    """Even a hard link: the lock belongs to the file."""
    (tmp_path / "soft").symlink_to(tmp_path / "s")
    async with opened(kind(tmp_path / "s")):
        with pytest.raises(StoreInUse):
            kind(tmp_path / "soft").open()
        if kind is SqliteStore:
            os.link(tmp_path / "s", tmp_path / "hard")
            with pytest.raises(StoreInUse):
                kind(tmp_path / "hard").open()


async def test_who_makes_a_store_has_it_locked_from_the_beginning(
    tmp_path: Path,
) -> None:
    """Two processes that start at the same time cannot both create it."""
    store = SqliteStore(tmp_path / "s")
    refused: list[str] = []

    def probe(step: str) -> None:
        if step == "create":
            with pytest.raises(StoreInUse) as error:
                SqliteStore(tmp_path / "s").open()
            refused.append(str(error.value))

    store.probe = probe
    async with opened(store):
        await write(store, Save(outgoing(1)))
        assert ids(store) == [1]
    assert len(refused) == 1
    assert os.listdir(tmp_path) == ["s"]


# -- any number to read --------------------------------------------------------


def test_a_store_is_read_beside_the_process_that_writes_it(
    kind: Kind, other: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Committed data is seen, and nothing can be written."""

    async def read() -> None:
        store = kind(tmp_path / "s")
        store.open_to_read()
        assert ids(store) == [1]
        write_more(other)
        with pytest.raises(StoreReadOnly, match="for reading only"):
            store.write([Save(outgoing(3))])
        await store.close()
        store.open_to_read()
        assert ids(store) == [1, 2]
        await store.close()

    asyncio.run(read())


async def test_a_store_is_read_in_the_process_that_writes_it(
    kind: Kind, tmp_path: Path
) -> None:
    """SQLite's locks, which belong to the process, are not lost by it."""
    store, reader = kind(tmp_path / "s"), kind(tmp_path / "s")
    async with opened(store):
        await write(store, Save(outgoing(1)), Save(incoming("k")), End(ended(9)))
        reader.open_to_read()
        assert ids(reader) == [1]
        assert [record.key for record in reader.incoming()] == ["k"]
        assert [each.seq for each in reader.ended()] == [9]
        await reader.close()
        await write(store, Save(outgoing(2)))
        assert ids(store) == [1, 2]


async def test_to_read_a_closed_store_changes_nothing_in_it(
    kind: Kind, tmp_path: Path
) -> None:
    """SQLite adds its two other files, which the next process that opens it removes."""
    store = kind(tmp_path / "s")
    async with opened(store):
        await write(store, Save(outgoing(1)))
    before = tree(tmp_path)
    store.open_to_read()
    assert ids(store) == [1]
    await store.close()
    after = tree(tmp_path)
    assert after.pop("s-wal", b"") == b""
    after.pop("s-shm", None)
    assert after == before


async def test_of_files_what_is_decided_is_read_and_left_to_be_made(
    tmp_path: Path,
) -> None:
    """The writer has decided on several changes, and has made none of them."""
    folder = tmp_path / "s"
    store = FilesStore(folder)
    async with opened(store):
        await write(store, Save(outgoing(1)), Save(outgoing(2)))
    first, third = (f"outgoing/{seq:020d}.json" for seq in (1, 3))
    other = FilesStore(tmp_path / "other")
    async with opened(other):
        await write(other, Save(outgoing(3)))
    (tmp_path / "other" / third).rename(folder / f"{third}.tmp")
    (folder / "commit.json").write_text(
        f'[["{third}.tmp", "{third}"], ["{first}", null]]'
    )
    left = tree(folder)
    store.open_to_read()
    assert ids(store) == [2, 3]
    await store.close()
    assert tree(folder) == left
    async with opened(store):
        assert ids(store) == [2, 3]


async def test_of_files_one_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """The message is delivered while others are listed."""
    store, reader = FilesStore(tmp_path / "s"), FilesStore(tmp_path / "s")
    async with opened(store):
        await write(store, Save(outgoing(1)), Save(outgoing(2)))
        reader.open_to_read()
        await write(store, Forget(outgoing(1)))
        assert ids(reader) == [2]
        await reader.close()


def test_a_store_that_is_not_there_is_not_made_by_reading(
    kind: Kind, tmp_path: Path
) -> None:
    """Not in an empty folder either."""
    if kind is FilesStore:
        (tmp_path / "s").mkdir()
    before = tree(tmp_path)
    with pytest.raises(StoreError, match="there is no such store"):
        kind(tmp_path / "s").open_to_read()
    assert tree(tmp_path) == before


def test_what_is_no_store_is_not_read(kind: Kind, tmp_path: Path) -> None:
    """With the same error as from `open`."""
    (tmp_path / "s").write_bytes(b"something else" * 100)
    with pytest.raises(StoreDamaged):
        kind(tmp_path / "s").open_to_read()


async def test_an_older_file_is_brought_up_to_date_and_a_newer_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader would not understand its tables."""
    with monkeypatch.context() as older:
        older.setattr(
            *(SqliteStore, "_migrations", property(lambda _: sqlite.MIGRATIONS[:2]))
        )
        older.setattr(SqliteStore, "_contents", lambda _: Contents())
        async with opened(SqliteStore(tmp_path / "s")):
            pass
    store = SqliteStore(tmp_path / "s")
    store.open_to_read()
    assert list(store.incoming()) == []
    await store.close()
    db = sqlite3.connect(tmp_path / "s")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreTooNew):
        SqliteStore(tmp_path / "s").open_to_read()


# -- links, and folders of others ----------------------------------------------


@pytest.mark.parametrize("name", ["store.json", f"outgoing/{1:020d}.json"])
async def test_a_link_in_the_place_of_a_temporary_file_is_not_written_through(
    name: str, tmp_path: Path
) -> None:
    """Otherwise a person who can put a link into the folder could have any of our files
    overwritten.
    """
    target = tmp_path / "precious"
    target.write_text("mine")
    link = tmp_path / "s" / f"{name}.tmp"
    store = FilesStore(tmp_path / "s")
    if name == "store.json":
        link.parent.mkdir()
        link.symlink_to(target)
    async with opened(store):
        if name != "store.json":
            link.symlink_to(target)
        await write(store, Save(outgoing(1)))
        assert ids(store) == [1]
    assert target.read_text() == "mine"
    assert not link.is_symlink()


@pytest.mark.parametrize(
    "name", ["store.json", "remembered.json", f"outgoing/{1:020d}.json"]
)
async def test_a_link_in_the_place_of_a_file_is_refused(
    name: str, tmp_path: Path
) -> None:
    """Its target is not part of the store: it must be neither read nor truncated."""
    store = FilesStore(tmp_path / "s")
    async with opened(store):
        await write(store, Save(outgoing(1)))
    target, path = tmp_path / "precious", tmp_path / "s" / name
    target.write_bytes(path.read_bytes() if path.exists() else b"{}")
    before = target.read_bytes()
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    with pytest.raises(StoreError, match="is a symbolic link"):
        store.open()
    assert target.read_bytes() == before


async def test_a_link_that_became_the_marker_is_not_cut_off(tmp_path: Path) -> None:
    """The file of the last message is renamed, and emptied."""
    store = FilesStore(tmp_path / "s")
    target = tmp_path / "precious"
    target.write_text("mine")
    async with opened(store):
        await write(store, Save(outgoing(1)))
        path = tmp_path / "s" / f"outgoing/{1:020d}.json"
        path.unlink()
        path.symlink_to(target)
        await write(store, Forget(outgoing(1)))
    assert target.read_text() == "mine"


async def test_a_link_to_a_folder_may_be_the_store_but_not_be_in_it(
    tmp_path: Path,
) -> None:
    """The user has named the first one, but nobody the other."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    async with opened(FilesStore(tmp_path / "link")):
        pass
    (tmp_path / "elsewhere" / "incoming").rmdir()
    (tmp_path / "elsewhere" / "incoming").symlink_to(tmp_path)
    with pytest.raises(StoreDamaged, match="incoming is not a folder"):
        FilesStore(tmp_path / "link").open()


@pytest.mark.parametrize("part", ["", "outgoing"])
async def test_a_folder_that_everybody_can_write_into_is_refused(
    part: str, tmp_path: Path
) -> None:
    """A person who can put files there can put messages there."""
    store = FilesStore(tmp_path / "s")
    async with opened(store):
        pass
    (tmp_path / "s" / part).chmod(0o777)
    with pytest.raises(StoreError, match=r"everybody can write into .*chmod o-w"):
        store.open()
    (tmp_path / "s" / part).chmod(0o770)
    async with opened(store):
        pass


@pytest.mark.parametrize(("owner", "user"), [(0, 1000), (1000, 1000), (1000, 0)])
async def test_a_folder_of_ours_or_of_root_is_taken(
    owner: int, user: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Administrators make folders for services; and root may use all folders."""
    _owned(monkeypatch, owner, user)
    async with opened(FilesStore(tmp_path / "s")):
        pass


async def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a folder in /tmp, made before ours, could read and change our
    messages.
    """
    _owned(monkeypatch, 1001, 1000)
    with pytest.raises(StoreError, match="belongs to another user"):
        FilesStore(tmp_path / "s").open()


def _owned(monkeypatch: pytest.MonkeyPatch, owner: int, user: int) -> None:
    """Let every path belong to this owner, and let us be this user."""
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        values = list(real(path))
        values[stat.ST_UID] = owner
        return os.stat_result(values)

    monkeypatch.setattr(Path, "lstat", lstat)
    monkeypatch.setattr("os.geteuid", lambda: user)
