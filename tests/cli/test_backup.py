"""`xmpp-qos backup` and `restore`: all of a store, or nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qos.cli import main
from qos.core.message.effects import Save
from qos.stores import FilesStore, SqliteStore
from qos.testing.store_records import everything, outgoing

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Running

#: As `xmpp-qos queue serve` names them.
QUEUES, RECEIVED = "queues.db", "queues.db-messages"

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command here: its status, its lines, and its stderr."""

    def run(*words: object) -> tuple[int, list[dict[str, Any]], str]:
        status = main([str(each) for each in words])
        told = capsys.readouterr()
        return status, [json.loads(line) for line in told.out.splitlines()], told.err

    return run


def filled(store: SqliteStore | FilesStore) -> object:
    """Write some messages into a new store; returns all that is in it."""

    async def fill() -> object:
        store.open()
        for seq in range(1, 4):
            written = store.write((Save(outgoing(seq)),))
            assert written is not None
            await written
        found = everything(store)
        await store.close()
        return found

    return asyncio.run(fill())


async def test_a_queue_service_that_runs_is_copied_with_its_messages(
    queues: Commands, serving: Running, tmp_path: Path
) -> None:
    """Both files, which nobody would find in the folder by their names."""
    published = await queues.queue("publish", "--text", "before", "--id", "before")
    assert published.status == 0
    backup, new = tmp_path / "backup", tmp_path / "new"
    made = await queues.run("backup", f"sqlite:{tmp_path / QUEUES}", backup)
    assert made.status == 0, made.err
    assert [line["file"] for line in made.out] == [QUEUES, RECEIVED]
    assert "2 files, " in made.err
    assert (await queues.queue("publish", "--text", "after")).status == 0
    serving.process.send_signal(signal.SIGTERM)
    assert (await serving.end()).status == 0
    restored = await queues.run("restore", backup, new)
    assert restored.status == 0, restored.err
    assert sorted(each.name for each in new.iterdir()) == [QUEUES, RECEIVED]
    await queues.serve("--store", f"sqlite:{new / QUEUES}")
    browsed = (await queues.queue("browse")).out
    assert [item["id"] for item in browsed] == ["before"]


@pytest.mark.parametrize("kind", [SqliteStore, FilesStore])
def test_a_store_comes_back_as_it_was(
    tmp_path: Path, run: Run, kind: type[SqliteStore | FilesStore]
) -> None:
    store = kind(tmp_path / "lamp.store")
    before = filled(store)
    status, out, err = run("backup", store.url, tmp_path / "backup")
    assert status == 0, err
    assert all(line["file"].startswith("lamp.store") for line in out)
    total = sum(line["bytes"] for line in out)
    files, are = ("1 file", "is") if len(out) == 1 else (f"{len(out)} files", "are")
    files_are = f"{files} {are}"
    said = f"{files}, {total:,} bytes, {are} in {tmp_path / 'backup'}\n"
    assert err == f"xmpp-qos: {said}"
    status, out, err = run("restore", tmp_path / "backup", tmp_path / "new")
    assert (status, err) == (
        0,
        f"xmpp-qos: {files_are} in {tmp_path / 'new'}; what was done since is "
        "forgotten\n",
    )
    copy = kind(tmp_path / "new" / "lamp.store")
    copy.open()
    assert everything(copy) == before
    asyncio.run(copy.close())


def test_a_folder_of_files_in_use_is_not_copied(tmp_path: Path, run: Run) -> None:
    """Its files change together, and nobody can copy them together."""
    store = FilesStore(tmp_path / "lamp")
    filled(store)
    store.open()
    status, out, err = run("backup", store.url, tmp_path / "backup")
    assert (status, out) == (5, [])
    assert "another process, or another store of this one, has it open" in err
    assert not (tmp_path / "backup").exists()
    asyncio.run(store.close())


@pytest.fixture
def backup(tmp_path: Path, run: Run) -> Path:
    """Of two stores, made and closed."""
    urls = []
    for name in ("lamp.db", "door.db"):
        store = SqliteStore(tmp_path / name)
        filled(store)
        urls.append(store.url)
    assert run("backup", *urls, tmp_path / "backup")[0] == 0
    return tmp_path / "backup"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "lamp.db").unlink(), "lamp.db is missing"),
        (lambda folder: (folder / "backup.json").unlink(), "is no backup"),
        (lambda folder: (folder / "backup.json").write_text("{}"), "cannot be read"),
        (
            lambda folder: (folder / "backup.json").write_text(
                '{"format": "xmpp-qos backup", "version": 1, "files": '
                '[{"name": "../x", "bytes": 1, "sha256": ""}]}'
            ),
            "cannot be read",
        ),
        (
            lambda folder: (folder / "door.db").write_bytes(
                (folder / "door.db").read_bytes()[:-1] + b"x"
            ),
            "door.db is not what was written",
        ),
    ],
    ids=["missing", "without a list", "no list", "outside", "changed"],
)
def test_half_of_a_backup_is_not_restored(
    backup: Path, tmp_path: Path, run: Run, harm: Callable[[Path], object], said: str
) -> None:
    """The files of a service belong together; and nothing of a stranger's is written."""
    harm(backup)
    status, out, err = run("restore", backup, tmp_path / "new")
    assert (status, out) == (5, [])
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_written_over(
    backup: Path, tmp_path: Path, run: Run, suffix: str
) -> None:
    """SQLite would put an old WAL into a restored file."""
    new = tmp_path / "new"
    new.mkdir()
    (new / f"lamp.db{suffix}").write_text("mine")
    status, _, err = run("restore", backup, new)
    assert status == 5
    assert "is there" in err
    assert [each.name for each in new.iterdir()] == [f"lamp.db{suffix}"]


@pytest.mark.parametrize(
    ("stores", "said"),
    [
        (["sqlite:{}/gone.db"], "there is no such store"),
        (["{}/lamp.db"], "is no sqlite:PATH or files:DIR"),
        (["memory:"], "is no sqlite:PATH or files:DIR"),
        (["sqlite:{}/lamp.db", "sqlite:{}/lamp.db"], "have the name 'lamp.db'"),
        (["sqlite:{}/text"], "cannot be copied"),
        (["sqlite:{}/other.db"], "is the database of another application"),
    ],
)
def test_what_is_no_store_is_not_copied(
    backup: Path, tmp_path: Path, run: Run, stores: list[str], said: str
) -> None:
    """Nor is anything else then: there is no half of a backup."""
    (tmp_path / "text").write_text("no database" * 100)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE a (b)")
    other.close()
    before = sorted(each.name for each in tmp_path.iterdir())
    words = [each.format(tmp_path) for each in stores]
    status, out, err = run(
        "backup", f"sqlite:{tmp_path / 'door.db'}", *words, tmp_path / "b"
    )
    assert (status, out) == (5, [])
    assert said in err
    assert "Traceback" not in err
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_a_store_in_a_home_that_nobody_knows_is_not_there(
    tmp_path: Path, run: Run
) -> None:
    """The same name as in `--store`, which is a folder `~…` then."""
    store = "sqlite:~nobody-of-this-name/x.db"
    status, _, err = run("backup", store, tmp_path / "to")
    assert (status, "there is no such store" in err) == (5, True)


def test_a_folder_with_something_in_it_is_no_place_for_a_backup(
    backup: Path, tmp_path: Path, run: Run
) -> None:
    status, _, err = run("backup", f"sqlite:{tmp_path / 'lamp.db'}", backup)
    assert status == 5
    assert "is no empty folder" in err
    (tmp_path / "empty").mkdir()
    assert run("backup", f"sqlite:{tmp_path / 'lamp.db'}", tmp_path / "empty")[0] == 0
