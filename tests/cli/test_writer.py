"""No write to stdout or stderr can hold up a command, and what is dropped is counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from qos.cli import ready
from qos.cli.output import flush_notes, note, print_json
from qos.cli.writer import NOTES_BYTES_MAX
from small_pipe import SmallPipe
from waiting import limit, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands

SERVICE = ("queue.localhost", "orders")

_LINE = f"a line of a command {'x' * 80}"


@pytest.fixture
def pipe() -> Any:
    pipe = SmallPipe()
    yield pipe
    pipe.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_worker_whose_stderr_nobody_reads_works_on_and_hears_a_signal(
    stream: str, queues: Commands, tmp_path: Path
) -> None:
    """Its command writes more than any pipe takes, and is not kept waiting for ever."""
    script = f"yes '{_LINE}' | head -n 20000"
    if stream == "stderr":
        script += " >&2"
    words = ("worker", *SERVICE, "--", "sh", "-c", script)
    worker = await queues.start(*words, user="alice")
    await worker.note("ready")
    for _ in range(2):
        assert (await queues.queue("publish", "--payload", "<x/>")).status == 0
        line = await worker.line()
        assert (line["outcome"], line["delivery_count"]) == ("accepted", 0)
    worker.process.terminate()
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, [])
    dropped = re.findall(
        r"^xmpp-qos: (\d+) lines were dropped here: stderr could not be written$",
        ended.err,
        re.MULTILINE,
    )
    written = ended.notes.count(_LINE)
    # The worker's own last words may be among those that were dropped.
    assert 40_000 <= written + sum(map(int, dropped)) <= 40_002


async def test_dropped_lines_are_counted_where_they_are_missing(
    pipe: SmallPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that comes back sees the gap, and everything after it."""
    pipe.replace("stderr", monkeypatch)
    text = "x" * 90
    count = 2 * NOTES_BYTES_MAX // 100
    for number in range(count):
        note(f"{text} {number}", name="")
    await until(lambda: pipe.read().endswith(b"written\n"))
    note("goes on")
    await until(lambda: pipe.read().endswith(b"goes on\n"))
    *lines, gap, last = pipe.read().decode().splitlines()
    assert lines == [f"{text} {number}" for number in range(len(lines))]
    missing = count - len(lines)
    assert missing > 0
    assert gap == (
        f"xmpp-qos: {missing} lines were dropped here: stderr could not be written"
    )
    assert last == "xmpp-qos: goes on"


async def test_a_stderr_that_cannot_be_written_and_then_can_tells_the_gap(
    pipe: SmallPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a log file on a full disk."""
    pipe.replace("stderr", monkeypatch)
    write, failing = os.write, True

    def fail(descriptor: int, data: bytes) -> int:
        if failing and descriptor == pipe.writer:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("os.write", fail)
    note("lost")
    flush_notes()
    failing = False
    note("kept")
    flush_notes()
    assert pipe.read() == (
        b"xmpp-qos: 1 line was dropped here: stderr could not be written\n"
        b"xmpp-qos: kept\n"
    )


async def test_notes_and_lines_of_one_pipe_come_in_their_order(
    pipe: SmallPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `2>&1`, or at a terminal."""
    pipe.replace("stderr", monkeypatch)
    with os.fdopen(os.dup(pipe.writer), "w") as other:
        monkeypatch.setattr("sys.stdout", other)
        for number in range(20):
            note(f"before {number}", name="")
            await print_json({"n": number})
        monkeypatch.undo()
    expected = "".join(f'before {n}\n{{"n": {n}}}\n' for n in range(20))
    await until(lambda: pipe.read().decode() == expected)


@pytest.mark.parametrize("kind", ["file", "pipe"])
async def test_a_write_that_stands_still_does_not_hold_up_the_loop(
    kind: str, tmp_path: Path, pipe: SmallPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file on a lost network; a pipe whose room another process has just taken."""
    file = (tmp_path / "out").open("wb", buffering=0)
    descriptor = file.fileno() if kind == "file" else pipe.writer
    monkeypatch.setattr("sys.stdout", os.fdopen(descriptor, "w", closefd=False))
    write, stands, goes_on = os.write, threading.Event(), threading.Event()

    def wait(number: int, data: bytes) -> int:
        if number == descriptor:
            stands.set()
            assert goes_on.wait(60)
        return write(number, data)

    monkeypatch.setattr("os.write", wait)
    printing = asyncio.create_task(print_json({"n": 1}))
    await until(stands.is_set)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not printing.done()
    goes_on.set()
    async with limit():
        await printing
    file.close()
    got = (tmp_path / "out").read_bytes() if kind == "file" else pipe.read()
    assert got == b'{"n": 1}\n'


async def test_a_line_that_was_given_up_before_its_turn_is_never_written(
    pipe: SmallPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts as not printed is not there, as far as that can be."""
    pipe.replace("stdout", monkeypatch)
    first = asyncio.create_task(print_json({"x": "y" * 100_000}))
    await until(lambda: len(pipe.read()) > 0)
    second = asyncio.create_task(print_json({"given": "up"}))
    third = asyncio.create_task(print_json({"n": 3}))
    for _ in range(10):
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await asyncio.sleep(0)
    await until(lambda: pipe.read().endswith(b'{"n": 3}\n'))
    await asyncio.gather(first, third)
    assert b"given" not in pipe.read()


async def test_a_busy_systemd_does_not_hold_up_the_loop_and_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is full; a command that never says that it is ready would be killed."""
    name = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.setblocking(False)
        count = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
            others.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    others.sendto(b"OTHER=1", name)
                    count += 1
        ready.tell_systemd()
        said: list[bytes] = []

        def read() -> bool:
            try:
                while True:
                    said.append(systemd.recv(100))
            except BlockingIOError:
                return b"READY=1" in said

        await until(read)
    assert said == [b"OTHER=1"] * count + [b"READY=1"]
