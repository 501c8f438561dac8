"""Recovery.

The files of a dead writer are taken over, those of a living one are not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from journals import read_journal
from qos.journal import Entry, QueueEvent, ReceiverEvent, Role, SenderEvent
from qos.journal.writer import JournalWriter
from waiting import limit

NODE = "meter@example.org/1"
STORE = "5" * 32

PROGRAM = """
import asyncio, os, signal, sys
from qos.journal.writer import JournalWriter
from qos.journal import Entry, SenderEvent

async def main():
    writer = JournalWriter(sys.argv[1], sys.argv[2])
    for _ in range(3):
        writer.note(
            Entry(
                SenderEvent.ACCEPTED,
                level="assured",
                msg_id="m",
                source=sys.argv[2],
                to="lamp@x",
                bytes=1,
            )
        )
    writer.commit_begins()()
    print("ready", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def die(writer: JournalWriter) -> None:
    """End as in a kill: only the kernel closes the file."""
    files = writer._files
    assert files._file is not None
    os.close(files._file._file)
    files._file = None
    writer._ended = True


async def dead(
    folder: Path, *entries: Entry, node: str = NODE, store_id: str = STORE
) -> Path:
    """The hidden file of a writer that died after these lines."""
    writer = JournalWriter(folder, node, store_id=store_id)
    writer.note(*entries)
    before = writer.commit_begins()
    assert before is not None
    before()
    assert writer._files._file is not None
    path = writer._files._file.path
    die(writer)
    await writer.close()
    return path


def accepted(msg_id: str = "m1") -> Entry:
    return Entry(SenderEvent.ACCEPTED, msg_id=msg_id, source=NODE, to="lamp@x")


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/.*"))


async def start(folder: Path, node: str = NODE, store_id: str = STORE) -> JournalWriter:
    writer = JournalWriter(folder, node, store_id=store_id)
    begun = list(writer.begun)
    await writer.close()
    writer.begun = begun
    return writer


async def test_a_file_of_a_killed_process_is_put_into_place(tmp_path: Path) -> None:
    """With a real process and a real kill; while it lived its file was left alone."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", PROGRAM, tmp_path, NODE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    await start(tmp_path)
    assert len(hidden(tmp_path)) == 1
    assert read_journal(tmp_path) == []
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await start(tmp_path)
    assert hidden(tmp_path) == []
    assert [line["seq"] for line in read_journal(tmp_path)] == [2, 3, 4]
    lines = read_journal(tmp_path, own=True)
    ends = [line["event"] for line in lines if line["role"] == "journal"]
    # Only the two later files were closed.
    assert ends == ["opened", *["opened", "counted", "closed"] * 2]


async def test_a_file_that_an_older_version_has_named_is_put_into_place(
    tmp_path: Path,
) -> None:
    """It did not quote a leading `_`, and Spark would not see the file."""
    node = "_meter@example.org/1"
    path = await dead(tmp_path, accepted(), node=node)
    path.rename(path.with_name(path.name.replace(".%5F", "._")))
    await start(tmp_path, node=node)
    assert hidden(tmp_path) == []
    assert path.with_name(path.name[1:]).exists()


async def test_a_torn_line_is_dropped_wherever_it_is_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines before it stay, and the log names the file."""
    for torn in (b"{", b'{"v":1,', b"\0" * 5000, b"x" * 200_000):
        caplog.clear()
        path = await dead(tmp_path, accepted())
        whole = path.read_bytes()
        path.write_bytes(whole + torn)
        with caplog.at_level(logging.WARNING):
            await start(tmp_path)
        assert path.with_name(path.name[1:]).read_bytes() == whole
        assert str(path) in caplog.text
        assert f"{len(torn)} bytes" in caplog.text
    assert hidden(tmp_path) == []


async def test_a_file_without_a_whole_line_is_removed(tmp_path: Path) -> None:
    """It has nothing to read."""
    path = await dead(tmp_path, accepted())
    for content in (b"", b'{"v":1'):
        path.write_bytes(content)
        await start(tmp_path)
        assert read_journal(tmp_path) == []
        assert hidden(tmp_path) == []


async def test_a_bad_line_is_told_of_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers count it; the recovery neither drops nor repairs it."""
    path = await dead(tmp_path, accepted("m1"))
    content = b"rubbish\n[]\n{}\n" + path.read_bytes()
    path.write_bytes(content)
    writer = await start(tmp_path)
    assert path.with_name(path.name[1:]).read_bytes() == content
    assert f"{path}: 3 lines" in caplog.text
    assert [begun.text("msg_id") for begun in writer.begun] == ["m1"]


async def test_files_of_other_nodes_and_of_others_are_left_alone(
    tmp_path: Path,
) -> None:
    """Their own nodes take them over; and anybody can use a name like ours."""
    other = await dead(tmp_path, accepted(), node="meter@example.org/12")
    foreign = other.with_name(".notes.jsonl")
    foreign.write_text("mine")
    await start(tmp_path)
    assert hidden(tmp_path) == sorted([other, foreign])


async def test_a_file_that_cannot_be_read_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A device must be able to start; the file stays."""
    path = await dead(tmp_path, accepted())
    path.unlink()
    path.mkdir()
    await start(tmp_path)
    assert str(path) in caplog.text
    assert path.is_dir()


async def test_what_has_begun_is_found_and_what_went_on_is_not(tmp_path: Path) -> None:
    """For the first kind it is not known whether its commit was lost."""
    sent, held = ("a", "b", "c", "d"), ("a", "b", "c")
    await dead(
        tmp_path,
        *map(accepted, sent),
        *[
            Entry(ReceiverEvent.HELD, msg_id=msg_id, source="x@y/1", to=NODE)
            for msg_id in held
        ],
        *[Entry(QueueEvent.PUBLISHED, queue="q", item=item) for item in ("a", "b")],
        Entry(SenderEvent.OFFERED, msg_id="a", source=NODE, to="lamp@x"),
        Entry(SenderEvent.RECEIVED, msg_id="b", source=NODE, to="lamp@x"),
        Entry(SenderEvent.DELIVERED, msg_id="c", source=NODE, to="lamp@x"),
        Entry(ReceiverEvent.RELEASED, msg_id="b", source="x@y/1", to=NODE),
        Entry(ReceiverEvent.REFUSED, source="x@y/1", to=NODE),
        Entry(QueueEvent.ACQUIRED, queue="q", item="a"),
        Entry(QueueEvent.ACCEPTED, queue="q", item="b"),
    )
    writer = await start(tmp_path)
    assert [(each.role, each.text("msg_id")) for each in writer.begun[:-1]] == [
        (Role.SENDER, "a"),
        (Role.SENDER, "d"),
        (Role.RECEIVER, "a"),
        (Role.RECEIVER, "c"),
    ]
    assert writer.begun[-1].role is Role.QUEUE
    assert writer.begun[-1].text("item") == "a"


async def test_it_is_not_looked_into_what_another_store_has_begun(
    tmp_path: Path,
) -> None:
    """A node may have two stores.

    Without the other store, no message of it can be called lost.
    """
    await dead(tmp_path, accepted(), store_id="6" * 32)
    await dead(tmp_path, accepted(), store_id="")
    writer = await start(tmp_path)
    assert writer.begun == []
    assert hidden(tmp_path) == []
    assert (await start(tmp_path, store_id="")).begun == []


async def test_files_with_beginnings_stay_hidden_until_their_ends_are_written(
    tmp_path: Path,
) -> None:
    """If it is killed before that, the next start finds them again."""
    path = await dead(tmp_path, accepted())
    writer = JournalWriter(tmp_path, NODE, store_id=STORE)
    assert path in hidden(tmp_path)
    writer.note(accepted("other"))
    assert path in hidden(tmp_path)
    before = writer.commit_begins()
    assert before is not None
    before()
    assert path not in hidden(tmp_path)
    await writer.close()


@pytest.mark.parametrize(
    "line",
    [
        b'{"role": "sender", "event": "accepted", "from": [], "to": "x", "msg_id": "m"}',
        b'{"role": "sender", "event": "accepted", "from": "x", "to": "x", "msg_id": {}}',
        b'{"role": "queue", "event": "published", "queue": "q", "item": [[]]}',
        b'{"role": "sender", "event": {}, "from": "x", "to": "x", "msg_id": "m"}',
        b'{"role": [], "event": "accepted"}',
        b'["role"]',
    ],
)
async def test_a_value_of_the_wrong_type_is_told_of_and_the_start_goes_on(
    line: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk may return anything; that must not keep a device from starting."""
    path = await dead(tmp_path, accepted("m1"))
    with path.open("ab") as file:
        file.write(line + b"\n")
    writer = await start(tmp_path)
    assert [each.text("msg_id") for each in writer.begun] == ["m1"]
    assert "1 lines are no lines of a journal" in caplog.text


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
async def test_what_only_has_the_name_of_a_hidden_file_is_left_as_it_is(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the target of a symbolic link would be truncated to its last whole
    line.
    """
    path = await dead(tmp_path, accepted())
    path.unlink()
    target = tmp_path / "precious"
    if kind == "link":
        target.write_bytes(b"no line feed at all")
    if kind in {"link", "dangling"}:
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    async with limit():
        writer = await start(tmp_path)
    assert writer.begun == []
    assert hidden(tmp_path) == [path]
    assert str(path) in caplog.text
    if kind == "link":
        assert target.read_bytes() == b"no line feed at all"
