from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qos.core.message.effects import Forget, Save
from qos.core.message.model import OutgoingState
from qos.errors import StoreError, StoreFull
from qos.stores import FilesStore, Remember, Store
from qos.testing.store_contract import StoreContract
from qos.testing.store_records import incoming, opened, outgoing, records, write


@pytest.mark.timeout(240)
class TestContract(StoreContract):
    def new_store(self, folder: Path) -> Store:
        return FilesStore(folder / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def names(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }


ALWAYS = {"store.json"}
FIRST, SECOND, THIRD = (f"outgoing/{seq:020d}.json" for seq in (1, 2, 3))


def fails(step: str, *, times: int = 1) -> Callable[[str], None]:
    """A probe: the disk is full at this step, the first few times."""
    left = times

    def probe(at: str) -> None:
        nonlocal left
        if at == step and left:
            left -= 1
            raise OSError(errno.ENOSPC, f"No space left on device, at {step!r}")

    return probe


# -- what an operator sees -------------------------------------------------


async def test_a_message_is_a_file_that_can_be_read(folder: Path) -> None:
    """In the order of acceptance, with the documented words."""
    store = FilesStore(folder)
    sent = outgoing(1, payload="<message><body>häll ☃ 'x'</body></message>")
    async with opened(store):
        await write(store, Save(sent), Save(incoming("k")), Remember("a", "b"))
        (received,) = (folder / "incoming").iterdir()
        assert names(folder) - {f"incoming/{received.name}"} == ALWAYS | {
            FIRST,
            "remembered.json",
        }
        text = (folder / FIRST).read_text()
    assert "häll ☃ 'x'" in text
    assert text.count("\n") > 10
    plain = json.loads(text)
    assert (plain["msg_id"], plain["state"]) == (sent.msg_id, "queued")
    assert json.loads(received.read_text())["key"] == "k"
    assert json.loads((folder / "remembered.json").read_text()) == {"a": "b"}
    assert json.loads((folder / "store.json").read_text()) == {
        "format": "xmpp-qos store",
        "version": 1,
        "id": store.store_id,
    }


async def test_only_its_owner_may_look_into_it(folder: Path) -> None:
    """Whatever the umask: it contains messages."""
    umask = os.umask(0)
    try:
        store = FilesStore(folder)
        async with opened(store):
            await write(store, Save(outgoing(1)), Remember("a", "b"))
    finally:
        os.umask(umask)
    for place, _, files in os.walk(folder):
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
        for file in files:
            assert stat.S_IMODE(os.stat(f"{place}/{file}").st_mode) == 0o600


async def test_files_that_are_none_of_ours_are_left_alone(folder: Path) -> None:
    """Notes of the operator, copies, files of a file manager."""
    store = FilesStore(folder)
    async with opened(store):
        await write(store, Save(outgoing(1)))
    theirs = ["README", "outgoing/README", "outgoing/1.json", f"{FIRST}.bak"]
    theirs += ["incoming/.DS_Store", "outgoing/x.json.tmp", "store.json.orig"]
    for name in theirs:
        (folder / name).write_text("theirs")
    async with opened(store) as contents:
        assert contents.outbox_messages == 1
        await write(store, Forget(outgoing(1)))
    assert names(folder) >= set(theirs)


async def test_what_a_crash_left_half_written_is_cleared_away(folder: Path) -> None:
    """It was never acknowledged."""
    store = FilesStore(folder)
    async with opened(store):
        await write(store, Save(outgoing(1)))
    left = [SECOND, "store.json", "remembered.json", "commit.json"]
    left.append(f"incoming/{'0' * 64}.json")
    for name in left:
        (folder / f"{name}.tmp").write_text("{")
    async with opened(store):
        assert records(store) == ([outgoing(1)], [])
    assert names(folder) == ALWAYS | {FIRST}


async def test_a_store_that_was_not_finished_is_made_anew(folder: Path) -> None:
    """The process died while it made the folder."""
    (folder / "outgoing").mkdir(parents=True)
    (folder / "store.json.tmp").write_text("{")
    async with opened(FilesStore(folder)) as contents:
        assert contents.next_seq == 1
    assert names(folder) == ALWAYS


async def test_of_an_outbox_that_is_empty_the_last_number_is_left(
    folder: Path,
) -> None:
    """In a file name; the message itself is gone from the disk."""
    store = FilesStore(folder)
    async with opened(store):
        for seq in (1, 2, 3):
            await write(store, Save(outgoing(seq)))
        for seq in (3, 1, 2):
            await write(store, Forget(outgoing(seq)))
        marker = f"outgoing/last-{3:020d}"
        assert names(folder) == ALWAYS | {marker}
        assert (folder / marker).read_bytes() == b""
        await write(store, Save(outgoing(4)))
        await write(store, Forget(outgoing(4)))
        assert names(folder) == ALWAYS | {f"outgoing/last-{4:020d}"}
    # A crash in between leaves two.
    (folder / marker).touch()
    async with opened(store) as contents:
        assert contents.next_seq == 5
    assert names(folder) == ALWAYS | {f"outgoing/last-{4:020d}"}


# -- when it goes wrong in the middle --------------------------------------

TWO = (Save(outgoing(1)), Save(outgoing(2)))


async def test_moves_that_are_decided_are_made_with_the_next_commit(
    folder: Path,
) -> None:
    """The disk was full at the second rename; until then everything can be read."""
    store = FilesStore(folder)
    async with opened(store):
        store.probe = fails(f"rename {SECOND}.tmp")
        await write(store, *TWO)
        assert names(folder) == ALWAYS | {FIRST, f"{SECOND}.tmp", "commit.json"}
        assert records(store) == ([outgoing(1), outgoing(2)], [])
        assert len(store.queued("lamp0@example.org", after=0, limit=9)) == 1
        await write(store, Save(outgoing(3)))
        assert names(folder) == ALWAYS | {FIRST, SECOND, THIRD}
        assert len(records(store)[0]) == 3


async def test_as_long_as_they_cannot_be_made_nothing_new_is_written(
    folder: Path,
) -> None:
    """Files that the moves need are not removed."""
    store = FilesStore(folder)
    step = replace(outgoing(2), state=OutgoingState.OFFERED)
    async with opened(store):
        store.probe = fails(f"rename {SECOND}.tmp", times=3)
        await write(store, *TWO)
        for changes in ([Save(step)], [Save(step), Save(outgoing(3))]):
            with pytest.raises(StoreFull):
                await write(store, *changes)
            assert records(store) == ([outgoing(1), outgoing(2)], [])
        await write(store, Save(step))
        assert records(store) == ([outgoing(1), step], [])
    async with opened(store):
        assert records(store) == ([outgoing(1), step], [])


@pytest.mark.parametrize("times", [2, 9])
async def test_moves_that_are_decided_are_made_at_the_end_or_the_next_start(
    folder: Path, times: int
) -> None:
    """They were acknowledged."""
    store = FilesStore(folder)
    async with opened(store):
        store.probe = fails(f"rename {SECOND}.tmp", times=times)
        await write(store, *TWO)
    assert ("commit.json" in names(folder)) == (times > 1)
    store.probe = lambda _step: None
    async with opened(store):
        assert records(store) == ([outgoing(1), outgoing(2)], [])
    assert names(folder) == ALWAYS | {FIRST, SECOND}


async def test_what_the_disk_does_not_confirm_ends_all_writing(folder: Path) -> None:
    """After a failed sync the contents of the disk are unknown until they are read."""
    store = FilesStore(folder)
    async with opened(store):
        await write(store, Save(outgoing(1)))
        store.probe = fails("sync outgoing/")
        with pytest.raises(StoreError):
            await write(store, Save(outgoing(2)))
        for _ in range(2):
            with pytest.raises(StoreError, match="confirm"):
                await write(store, Save(outgoing(3)))
    async with opened(store) as contents:
        assert contents.outbox_messages in {1, 2}
        await write(store, Save(outgoing(3)))


async def test_a_file_that_vanished_from_a_commit_is_damage(folder: Path) -> None:
    """Somebody has removed a file of a decided move that was not made yet."""
    store = FilesStore(folder)
    async with opened(store):
        store.probe = fails(f"rename {SECOND}.tmp", times=9)
        await write(store, *TWO)
    (folder / f"{SECOND}.tmp").unlink()
    with pytest.raises(StoreError, match=r"commit\.json"):
        FilesStore(folder).open()


async def test_order_is_kept_when_a_marker_cannot_be_tidied(folder: Path) -> None:
    """The message is forgotten; a second marker does no harm."""
    store = FilesStore(folder)
    async with opened(store):
        await write(store, Save(outgoing(1)))
        await write(store, Forget(outgoing(1)))
        await write(store, Save(outgoing(2)))
        store.probe = fails(f"remove outgoing/last-{1:020d}")
        await write(store, Forget(outgoing(2)))
        assert records(store) == ([], [])
    async with opened(store) as contents:
        assert contents.next_seq == 3


async def test_a_reader_sees_no_half_of_a_commit_that_is_under_way(
    folder: Path,
) -> None:
    """Files change before the index does.

    Messages that are no longer queued are left out.
    """
    store = FilesStore(folder)
    async with opened(store):
        await write(store, *TWO, Save(outgoing(3)))
        seen: list[list[int]] = []
        loop = asyncio.get_running_loop()

        def probe(step: str) -> None:
            if step == "sync outgoing/":
                seen.append(asyncio.run_coroutine_threadsafe(look(), loop).result())

        async def look() -> list[int]:
            found = store.queued("lamp1@example.org", after=0, limit=9)
            return [record.seq for record in found]

        store.probe = probe
        await write(store, Forget(outgoing(1)))
        await write(store, Save(replace(outgoing(3), state=OutgoingState.OFFERED)))
        assert seen == [[3], []]


# -- when the power is cut -------------------------------------------------


async def test_all_is_synced_before_it_is_named_and_names_before_they_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill does not show it: unsynced data is lost only in a power cut."""
    done: list[tuple[str, str]] = []
    fsync, replaces = os.fsync, os.replace

    def name_of(file: int) -> str:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        return "." if path == folder else str(path.relative_to(folder))

    def noted_fsync(file: int) -> None:
        fsync(file)
        done.append(("sync", name_of(file)))

    def noted_replace(old: Path, new: Path) -> None:
        replaces(old, new)
        done.append(("name", str(new.relative_to(folder))))

    store = FilesStore(folder)
    async with opened(store):
        await write(store, *TWO, Save(incoming("old")))
        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "replace", noted_replace)

        await write(store, Save(outgoing(3)))
        assert done == [
            ("sync", f"{THIRD}.tmp"),
            ("name", THIRD),
            ("sync", "outgoing"),
        ]
        done.clear()

        await write(store, Forget(incoming("old")))
        assert done == [("sync", "incoming")]
        done.clear()

        await write(store, Save(incoming("new")), Forget(outgoing(1)))
        new = next(name for name in names(folder) if name.startswith("incoming"))
        assert done[0] == ("sync", f"{new}.tmp")
        assert set(done[1:3]) == {("sync", "incoming"), ("sync", "outgoing")}
        assert done[3:7] == [
            ("sync", "commit.json.tmp"),
            ("name", "commit.json"),
            ("sync", "."),
            ("name", new),
        ]
        assert set(done[7:9]) == {("sync", "incoming"), ("sync", "outgoing")}
        assert done[9:] == [("sync", ".")]
