"""Problems with the disk are reported by name, and nothing stored is lost."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holder import holder
from qos.core.message.effects import Forget, Save
from qos.core.message.model import Outgoing
from qos.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
)
from qos.stores import FilesStore, Remember, SqliteStore
from qos.testing.store_records import incoming, opened, outgoing, records, write

if TYPE_CHECKING:
    from tests.stores.conftest import Disk, MakeStore, Place

SENT = [outgoing(seq, payload=f"{seq}" * 900) for seq in range(1, 9)]
HELD = [incoming(f"k{number}") for number in range(4)]


def fill(store: SqliteStore | FilesStore) -> None:
    """Write some messages to disk, and close the store."""

    async def fills() -> None:
        async with opened(store):
            await write(store, *map(Save, SENT), *map(Save, HELD))

    asyncio.run(fills())


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file below, with its content, except the memory that SQLite shares."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if not path.name.endswith("-shm")
    }


def refuses(store: SqliteStore | FilesStore, kind: type[StoreError]) -> str:
    """The store cannot be opened, says so, and has changed no file."""
    before = snapshot(store._path.parent)
    with pytest.raises(StoreError) as caught:
        store.open()
    assert type(caught.value) is kind
    assert caught.value.url == store.url
    assert str(store._path.name) in str(caught.value)
    after = snapshot(store._path.parent)
    assert {name: after[name] for name in before} == before
    # An empty file does not count: a lock, or one that SQLite makes to read.
    assert all(after[name] == b"" for name in after.keys() - before.keys())
    return str(caught.value)


# -- it is not there, or not ours ------------------------------------------


def test_a_folder_that_is_not_there_is_not_made(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """A mistyped path must not begin a second, empty store."""
    folder = tmp_path / "nowhere"
    assert str(folder) in refuses(make_store(folder), StoreError)
    assert not folder.exists()


def test_a_store_of_the_other_kind_is_not_ours(tmp_path: Path) -> None:
    """A folder where a file is expected, and the other way round."""
    fill(FilesStore(tmp_path / "folder"))
    fill(SqliteStore(tmp_path / "file"))
    assert "not a file" in refuses(SqliteStore(tmp_path / "folder"), StoreDamaged)
    assert "not a folder" in refuses(FilesStore(tmp_path / "file"), StoreDamaged)


def test_the_database_of_another_application_is_left_alone(tmp_path: Path) -> None:
    """Not even a lock is put beside it."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE outgoing (mine)")
    assert "another application" in refuses(SqliteStore(path), StoreDamaged)
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Opening a pipe for reading would block for ever."""
    os.mkfifo(tmp_path / "store.db")
    refuses_pipe = SqliteStore(tmp_path / "store.db")
    with pytest.raises(StoreDamaged, match="not a file"):
        refuses_pipe.open()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    """Not even a lock is put into it."""
    (tmp_path / "notes.txt").write_text("mine")
    assert "store.json" in refuses(FilesStore(tmp_path), StoreDamaged)
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_a_folder_of_messages_without_their_store_is_not_new(tmp_path: Path) -> None:
    """With a new id, peers would believe that we forgot everything."""
    fill(FilesStore(tmp_path / "store"))
    (tmp_path / "store" / "store.json").unlink()
    refuses(FilesStore(tmp_path / "store"), StoreDamaged)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": "other"}', '{"format": "xmpp-qos store"}'],
)
def test_a_store_json_that_is_none_is_damage(tmp_path: Path, text: str) -> None:
    """It says what the folder is; without it nothing is certain."""
    fill(FilesStore(tmp_path / "store"))
    (tmp_path / "store" / "store.json").write_text(text)
    assert "store.json" in refuses(FilesStore(tmp_path / "store"), StoreDamaged)


# -- it is broken ----------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\0" * 5000, os.urandom(5000)],
    # All processes of a test must name them alike.
    ids=["nothing", "a word", "zeros", "garbage"],
)
def test_a_file_that_is_no_database_is_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    """Even an empty one: we never leave one, so this one has lost its content."""
    path = tmp_path / "store.db"
    path.write_bytes(content)
    refuses(SqliteStore(path), StoreDamaged)
    assert path.read_bytes() == content


def test_a_database_cut_off_anywhere_is_damaged(tmp_path: Path) -> None:
    """Half of an outbox must not be taken for all of it."""
    path = tmp_path / "store.db"
    fill(SqliteStore(path))
    content = path.read_bytes()
    for size in range(0, len(content), 1000):
        path.write_bytes(content[:size])
        refuses(SqliteStore(path), StoreDamaged)
    path.write_bytes(content)
    fill(SqliteStore(path))


def test_garbage_in_any_page_of_a_database_is_damage(tmp_path: Path) -> None:
    """It must be found when the store is opened, not later."""
    path = tmp_path / "store.db"
    fill(SqliteStore(path))
    content = path.read_bytes()
    for start in range(0, len(content), 4096):
        garbage = os.urandom(4096)
        path.write_bytes(content[:start] + garbage + content[start + 4096 :])
        refuses(SqliteStore(path), StoreDamaged)


def test_a_wal_without_its_database_is_damage(tmp_path: Path) -> None:
    """SQLite would delete it when it creates the new file."""
    path = tmp_path / "store.db"
    (tmp_path / "store.db-wal").write_bytes(b"some messages")
    assert "-wal" in refuses(SqliteStore(path), StoreDamaged)


def test_a_database_that_lost_its_id_is_damaged(tmp_path: Path) -> None:
    """With a new id, peers would believe that we forgot everything."""
    path = tmp_path / "store.db"
    fill(SqliteStore(path))
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM about")
        db.commit()
    with pytest.raises(StoreDamaged, match="id"):
        SqliteStore(path).open()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE outgoing SET state = 'lost', flow = 'f'",
        "UPDATE outgoing SET level = 'high', state = 'offered'",
        "UPDATE outgoing SET hold = CAST(x'ff' AS TEXT), state = 'offered'",
        "UPDATE incoming SET state = 'lost'",
        "UPDATE incoming SET key = CAST(x'ff' AS TEXT) WHERE id = 1",
    ],
)
def test_a_row_that_is_no_record_is_damage(tmp_path: Path, statement: str) -> None:
    """For example because somebody has edited it."""
    path = tmp_path / "store.db"
    fill(SqliteStore(path))
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()

    async def reads() -> None:
        store = SqliteStore(path)
        async with opened(store):
            records(store)

    with pytest.raises(StoreDamaged, match=str(path)):
        asyncio.run(reads())


@pytest.mark.parametrize(
    "name",
    [
        "outgoing/00000000000000000003.json",
        "incoming/",
        "remembered.json",
        "commit.json",
    ],
)
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: b"", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], id="truncated"),
        pytest.param(lambda text: b"\xff\x00garbage", id="garbage"),
        pytest.param(lambda text: b"7", id="another value"),
        pytest.param(lambda text: b'[["a", "b"]]', id="a list"),
    ],
)
def test_a_file_of_ours_that_is_broken_is_named(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """The operator can repair or remove it; the rest is not changed."""
    folder = tmp_path / "store"
    fill(FilesStore(folder))
    file = folder / name
    if name == "incoming/":
        file = next(file.iterdir())
    file.write_bytes(damage(file.read_bytes() if file.exists() else b"[[1]"))
    if name == "remembered.json" and damage(b"") == b'[["a", "b"]]':
        return  # This change makes an equal dict.
    assert str(file) in refuses(FilesStore(folder), StoreDamaged)
    file.unlink()
    fill(FilesStore(folder))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"offered"', b'"lost"'),
        (b'"seq": 3', b'"seq": 4'),
        (b'"seq": 3', b'"seq": "x"'),
        (b'"peer": null,', b""),
        (b'"peer": null,', b'"pear": null,'),
    ],
)
def test_a_message_that_was_edited_wrongly_is_named(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    """A copy of a message under another name would be sent twice."""
    folder = tmp_path / "store"
    fill(FilesStore(folder))
    file = folder / "outgoing/00000000000000000003.json"
    text = file.read_bytes().replace(b'"queued"', b'"offered"')
    if b"peer" in old:
        text = text.replace(b'"seq"', b'"sequence"')
    assert old in text
    file.write_bytes(text.replace(old, new))
    assert str(file) in refuses(FilesStore(folder), StoreDamaged)


def test_damage_that_comes_later_is_found_when_it_is_read(tmp_path: Path) -> None:
    """Everything undamaged is still there."""
    store = FilesStore(tmp_path / "store")

    async def scenario() -> None:
        async with opened(store):
            await write(store, *map(Save, SENT))
            file = tmp_path / "store/outgoing/00000000000000000003.json"
            file.write_bytes(b"{")
            with pytest.raises(StoreDamaged, match="003"):
                store.find_outgoing("msg-3")
            flow = SENT[0].flow
            queued = [each.seq for each in store.queued(flow, after=0, limit=9)]
            assert queued == [
                each.seq for each in SENT if each.flow == flow and each.seq != 3
            ]
            file.unlink()
            assert store.find_outgoing("msg-3") is None
            file.mkdir()
            with pytest.raises(StoreError, match="003"):
                store.find_outgoing("msg-3")
            assert store.find_outgoing("msg-4") == SENT[3]
            file.rmdir()

    asyncio.run(scenario())


# -- it is too new ---------------------------------------------------------


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """Even if only the WAL has the new version yet."""
    path, killed = tmp_path / "store.db", tmp_path / "killed"
    fill(SqliteStore(path))
    killed.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()
        for file in tmp_path.glob("store.db*"):
            shutil.copy(file, killed)
    for folder in (tmp_path, killed):
        assert "99" in refuses(SqliteStore(folder / "store.db"), StoreTooNew)

    fill(FilesStore(tmp_path / "store"))
    about = tmp_path / "store/store.json"
    about.write_text(about.read_text().replace('"version": 1', '"version": 99'))
    assert "99" in refuses(FilesStore(tmp_path / "store"), StoreTooNew)


# -- somebody else has it --------------------------------------------------

HOLDS = """
import sys
from qos.stores import store_from_url
store_from_url(sys.argv[1]).open()
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_has_it_until_it_dies(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """However it dies, no lock is left that somebody would have to remove."""
    store = make_store(tmp_path)
    fill(store)
    with holder(HOLDS, store.url), pytest.raises(StoreInUse, match=store.url):
        store.open()
    fill(store)


async def test_who_is_refused_takes_no_lock_away(tmp_path: Path) -> None:
    """Closing a file drops all locks of the process on it, SQLite's too."""

    def locks() -> list[str]:
        inode = os.stat(tmp_path / "store.db").st_ino
        with open("/proc/locks") as file:
            lines = [line for line in file if f":{inode} " in line]
        return [line.partition(":")[2] for line in lines]

    async with opened(SqliteStore(tmp_path / "store.db")):
        before = locks()
        assert before
        with pytest.raises(StoreInUse):
            SqliteStore(tmp_path / "store.db").open()
        assert locks() == before


async def test_a_tool_that_holds_the_database_is_waited_for(tmp_path: Path) -> None:
    """An operator may look into it; one that keeps it locked is reported."""
    store = SqliteStore(tmp_path / "store.db")
    async with opened(store):
        with closing(sqlite3.connect(store._path, isolation_level=None)) as tool:
            assert store._writer is not None
            store._writer.execute("PRAGMA busy_timeout = 50")
            tool.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreInUse, match="locked"):
                await write(store, Save(SENT[0]))
            tool.execute("ROLLBACK")
            tool.execute("BEGIN")
            tool.execute("SELECT * FROM outgoing").fetchall()
            await write(store, Save(SENT[1]))
        assert list(store.outgoing()) == [SENT[1]]


# -- it is full ------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_is_no_end(
    make_store: MakeStore, disk: Disk
) -> None:
    """Only new writes fail; the store goes on as soon as there is space."""
    store = make_store(disk.folder)

    async def scenario() -> None:
        async with opened(store):
            await write(store, *map(Save, SENT), *map(Save, HELD))
            disk.fill()
            try:
                for changes in (
                    [Save(outgoing(50, payload="x" * 100_000))],
                    [Save(outgoing(51, payload="x" * 100_000)), Forget(SENT[0])],
                ):
                    with pytest.raises(StoreFull, match=store.url):
                        await write(store, *changes)
                    assert records(store) == (SENT, HELD)
            finally:
                disk.free()
            await write(store, Save(outgoing(52)), Forget(SENT[0]))
            assert records(store) == ([*SENT[1:], outgoing(52)], HELD)
        async with opened(store):
            assert records(store) == ([*SENT[1:], outgoing(52)], HELD)

    asyncio.run(scenario())


def test_a_disk_that_fills_up_slowly_fails_between_two_writes(
    make_store: MakeStore, disk: Disk
) -> None:
    """Each write is there completely or not at all, whichever byte was the last."""
    store = make_store(disk.folder)

    async def scenario() -> None:
        stored: list[Outgoing] = []
        async with opened(store):
            full = False
            while not full:
                record = outgoing(len(stored) + 1, payload="x" * 5000)
                if len(stored) == 30:
                    disk.fill()
                try:
                    await write(store, Save(record), Save(incoming(str(record.seq))))
                    stored.append(record)
                except StoreFull:
                    full = True
                finally:
                    if full:
                        disk.free()
                assert list(store.outgoing()) == stored
        async with opened(make_store(disk.folder)) as contents:
            assert contents.outbox_messages == len(contents.incoming) == len(stored)
            assert len(stored) >= 10

    asyncio.run(scenario())


def test_a_store_on_a_full_disk_can_be_opened_when_there_is_space(
    make_store: MakeStore, disk: Disk
) -> None:
    """Creating one fails, opening one may fail; its contents stay."""
    fill(make_store(disk.folder))
    (disk.folder / "new").mkdir()
    new = make_store(disk.folder / "new")
    disk.fill()
    try:
        with pytest.raises(StoreFull, match=new.url):
            new.open()
        store = make_store(disk.folder)
        with suppress(StoreFull):
            store.open()
            asyncio.run(store.close())
    finally:
        disk.free()
    fill(new)

    async def finds() -> None:
        async with opened(store):
            assert records(store) == (SENT, HELD)

    asyncio.run(finds())


def test_a_store_is_made_whole_or_not_at_all(make_store: MakeStore, disk: Disk) -> None:
    """However much space is left; a part that was begun is removed."""
    made = 0
    for step in range(60):
        folder = disk.folder / str(step)
        folder.mkdir()
        store = make_store(folder)
        disk.fill(but=step * 4096)
        try:
            with suppress(StoreFull):
                store.open()
                asyncio.run(store.close())
                made += 1
        finally:
            disk.free()
        fill(store)
        shutil.rmtree(folder)
    assert 0 < made < 60


# -- it is read-only -------------------------------------------------------


def test_a_read_only_folder_is_said_to_be_one(
    make_store: MakeStore, place: Place
) -> None:
    """For an existing store, and for a new one."""
    store = make_store(place.folder)
    fill(store)
    before = snapshot(place.folder)
    (place.folder / "new").mkdir()
    with place.read_only():
        for refused in (store, make_store(place.folder / "new")):
            with pytest.raises(StoreReadOnly, match=refused.url):
                refused.open()
    (place.folder / "new").rmdir()
    assert snapshot(place.folder) == before
    fill(store)


def test_a_part_of_a_store_that_is_read_only_is_named(place: Place) -> None:
    """SQLite would open it, and fail at the first message."""
    parts: list[tuple[SqliteStore | FilesStore, Path]] = [
        (SqliteStore(place.folder / "store.db"), place.folder / "store.db"),
        (FilesStore(place.folder / "store"), place.folder / "store/outgoing"),
    ]
    for store, part in parts:
        fill(store)
        read_only = pytest.raises(StoreReadOnly, match=str(part))
        with place.read_only(part), read_only:
            store.open()
        fill(store)


def test_a_file_system_that_cannot_lock_is_not_used(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock two processes would use the store at once."""

    def flock(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreError, match="No locks available"):
        make_store(tmp_path).open()


async def test_a_message_survives_what_is_no_store_error(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """A value of a wrong type fails its commit, and the next one is made."""
    store = make_store(tmp_path)
    async with opened(store):
        with pytest.raises(UnicodeEncodeError):
            await write(store, Save(SENT[0]), Remember("x", "\ud800"))
        await write(store, Save(SENT[1]))
        assert list(store.outgoing()) == [SENT[1]]
