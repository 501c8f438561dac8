"""stdout has whole lines, whatever happens to the disk, the pipe or the process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import pty
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fork_settings
from qos.cli.output import note, print_json, print_text
from qos.cli.status import CommandError, Status
from qos.testing.processes import Child
from waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qos.testing.server import LoopbackServer
    from tests.cli.conftest import Commands, Running

TO = "bob@localhost/1"

#: Well above what the store of a test needs.
_FILE_BYTES_MAX = 64 * 2**20

_LIMITED = (
    "import os, resource, sys\n"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({_FILE_BYTES_MAX},) * 2)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)

_WHOLE = b'{"whole": true}\n'


async def start_listen(
    commands: Commands, *words: str, stdout: int, wrapper: tuple[str, ...] = ()
) -> Running:
    """`listen` as Bob; with a wrapper, its Python has an unbuffered stdout."""
    if wrapper:
        process = await asyncio.create_subprocess_exec(
            *(*Child.mortal(), *wrapper),
            *commands.command_line("listen", *words, user="bob"),
            env={**commands.environment("bob"), "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        running = commands.running(process)
    else:
        usual = commands.function
        with Connection(os.dup(stdout), readable=False) as carried:
            commands.function = functools.partial(fork_settings.command, stdout=carried)
            running = await commands.start("listen", *words, user="bob")
        commands.function = usual
    await running.note("ready")
    return running


@contextlib.contextmanager
def appending(path: Path) -> Iterator[int]:
    """The file, as a shell opens it for `>>`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def lines_of(path: Path, *, after: int) -> list[bytes]:
    with path.open("rb") as file:
        file.seek(after)
        return file.read().splitlines()


async def test_a_disk_that_fills_up_within_a_line_loses_no_message(
    commands: Commands, tmp_path: Path
) -> None:
    """A short write is a failure; the torn half does not damage the next line."""
    path = tmp_path / "out.jsonl"
    size = _FILE_BYTES_MAX - 20
    with path.open("wb") as file:
        file.truncate(size - 1)
        file.seek(size - 1)
        file.write(b"\n")
    limited = (sys.executable, "-P", "-c", _LIMITED)
    with appending(path) as file:
        listener = await start_listen(commands, stdout=file, wrapper=limited)
        sender = await commands.start("send", TO, "--body", "x", user="alice")
        ended = await listener.end()
        assert ended.status == Status.OUTPUT, ended.err
        assert "cannot write to stdout: File too large" in ended.err
        assert "messages that were not printed stay in the store: 1" in ended.err
        assert path.stat().st_size == _FILE_BYTES_MAX
        listener = await start_listen(commands, stdout=file)
        assert (await sender.end()).out[0]["outcome"] == "delivered"
        listener.process.send_signal(signal.SIGTERM)
        assert (await listener.end()).status == 0
    torn, whole = lines_of(path, after=size)
    assert len(torn) == 20
    message = json.loads(whole)
    assert (message["body"], message["redelivered"]) == ("x", True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_listener_whose_reader_is_stuck_can_be_stopped_and_loses_nothing(
    number: int, commands: Commands
) -> None:
    """Waiting must not block its connection; a half-written line is printed again."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    listener = await start_listen(commands, stdout=writer)
    os.close(writer)
    bodies = [c * 2500 for c in "abc"]
    words = ("send", TO, "--lines", "--ordered")
    sender = await commands.start(*words, user="alice")
    sending = asyncio.create_task(sender.end("\n".join(bodies).encode()))
    assert await asyncio.to_thread(os.read, reader, 1) == b"{"
    listener.process.send_signal(number)
    async with limit():
        ended = await listener.end()
    assert ended.status == (0 if number == signal.SIGTERM else 130), ended.err
    assert "messages that were not printed stay in the store" in ended.err
    with os.fdopen(reader, "rb") as file:
        *whole, _torn = (b"{" + file.read()).split(b"\n")
    seen = [json.loads(line)["body"] for line in whole]
    listener = await commands.listen("bob")
    while len(set(seen)) < len(bodies):
        line = await listener.line()
        assert line["redelivered"] or line["body"] not in seen
        seen.append(line["body"])
    assert {line["outcome"] for line in (await sending).out} == {"delivered"}
    assert sorted(set(seen)) == bodies


async def test_a_slow_reader_gets_every_line(commands: Commands) -> None:
    """Each line comes in many pieces; the messages stay in order."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    listener = await start_listen(commands, "--count", "5", stdout=writer)
    os.close(writer)
    bodies = [c * 20_000 for c in "abcde"]
    words = ("send", TO, "--lines", "--ordered")
    sender = await commands.start(*words, user="alice")
    sending = asyncio.create_task(sender.end("\n".join(bodies).encode()))

    def read() -> list[str]:
        with os.fdopen(reader, "rb", buffering=0) as file:
            data = b"".join(iter(lambda: file.read(1000), b""))
        return [json.loads(line)["body"] for line in data.splitlines()]

    async with limit():
        assert await asyncio.to_thread(read) == bodies
    assert (await sending).status == 0
    assert (await listener.end()).status == 0


def unread_bytes(port: int) -> int:
    """The bytes in the sockets of this machine that are connected to a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    return sum(
        int(socket[4].partition(":")[2], base=16)
        for socket in sockets
        if int(socket[2].partition(":")[2], base=16) == port
    )


async def test_a_listener_whose_reader_is_stuck_stops_reading_from_the_server(
    commands: Commands, server: LoopbackServer
) -> None:
    """Plain messages have no quota, and memory is limited. Later it goes on."""
    reader, writer = os.pipe()
    count, size = 120, 200_000  # 24 MB, and it keeps 16 MiB
    listener = await start_listen(commands, "--count", str(count), stdout=writer)
    os.close(writer)
    lines = b"".join(b"%d " % number + b"x" * size + b"\n" for number in range(count))
    words = ("send", TO, "--lines", "--level", "unacknowledged")
    assert (await commands.run(*words, user="alice", input_=lines)).status == 0
    unread = [0]
    async with limit():
        while unread[-1] == 0 or len(set(unread[-10:])) > 1:
            await asyncio.sleep(0.1)
            unread.append(unread_bytes(server.port))

    def read() -> list[str]:
        with os.fdopen(reader, "rb") as file:
            return [json.loads(line)["body"] for line in file]

    async with limit():
        bodies = await asyncio.to_thread(read)
    assert sorted(int(body.partition(" ")[0]) for body in bodies) == [*range(count)]
    assert (await listener.end()).status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_sender_whose_reader_is_stuck_can_be_stopped(
    number: int, commands: Commands
) -> None:
    """For example `send … | less` after the terminal was closed."""
    listener = await commands.listen("bob")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    sender = await commands.start("send", TO, "--lines", user="alice", stdout=writer)
    os.close(writer)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"x\n" * 100)
    for _ in range(100):  # 100 outcomes do not fit into the pipe
        await listener.line()
    sender.process.send_signal(number)
    async with limit():
        assert (await sender.end()).status == 130
    os.close(reader)


async def test_sighup_does_not_end_what_runs_until_it_is_stopped(
    commands: Commands, tmp_path: Path
) -> None:
    """Service managers send it so that files are read again."""
    with appending(tmp_path / "out.jsonl") as file:
        listener = await start_listen(commands, stdout=file)
    listener.process.send_signal(signal.SIGHUP)
    await listener.note("SIGHUP: going on")
    assert (await commands.run("send", TO, "--body", "x", user="alice")).status == 0
    listener.process.send_signal(signal.SIGTERM)
    assert (await listener.end()).status == 0


async def test_sighup_ends_what_runs_in_a_terminal(commands: Commands) -> None:
    """It has been closed, and nobody would stop the command ever."""
    ours, theirs = os.openpty()
    listener = await start_listen(commands, stdout=theirs)
    os.close(theirs)
    listener.process.send_signal(signal.SIGHUP)
    assert (await listener.end()).status == 130
    os.close(ours)


async def test_nohup_keeps_a_command_from_ending_with_its_terminal(
    commands: Commands, tmp_path: Path
) -> None:
    """A SIGHUP that is ignored at the start of the command stays ignored."""
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with appending(tmp_path / "out.jsonl") as file:
        listener = await start_listen(
            commands, "--count", "1", stdout=file, wrapper=ignoring
        )
    listener.process.send_signal(signal.SIGHUP)
    assert (await commands.run("send", TO, "--body", "x", user="alice")).status == 0
    assert (await listener.end()).status == 0


async def test_fsync_is_for_files_and_prints_as_without(
    commands: Commands, tmp_path: Path
) -> None:
    """No test can make a power cut.

    This one shows that fsync is called for each line.
    """
    path = tmp_path / "out.jsonl"
    with appending(path) as file:
        listener = await start_listen(
            *(commands, "--fsync", "--count", "20"), stdout=file
        )
    words = ("send", TO, "--lines", "--ordered")
    bodies = [str(n) for n in range(20)]
    sent = await commands.run(*words, user="alice", input_="\n".join(bodies).encode())
    assert sent.status == 0
    assert (await listener.end()).status == 0
    lines = lines_of(path, after=0)
    assert [json.loads(line)["body"] for line in lines] == bodies
    refused = await commands.run("listen", "--fsync", user="bob")
    assert (refused.status, refused.err) == (
        2,
        "xmpp-qos: --fsync: stdout is not a file\n",
    )


async def test_stderr_that_cannot_be_written_changes_no_exit_status(
    commands: Commands,
) -> None:
    """Notes are for people; scripts use the status."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$@" 2>/dev/full', "sh"),
        *commands.command_line("outbox", "list", "--store", "memory:"),
    )
    async with limit():
        assert await process.wait() == Status.USAGE


# -- the writer by itself ------------------------------------------------------


@pytest.fixture
def onto(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a descriptor our stdout."""

    def onto(descriptor: int) -> None:
        file = os.fdopen(descriptor, "w", closefd=False)
        monkeypatch.setattr("sys.stdout", file)

    return onto


async def test_a_torn_line_of_an_earlier_process_is_ended_first(
    onto: Any, tmp_path: Path
) -> None:
    """Whether the file was opened for append, or the position is at its end."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"to')
    with appending(path) as file:
        onto(file)
        await print_json({"whole": True})
        await print_json({"whole": True})
    assert path.read_bytes() == b'{"to\n' + _WHOLE * 2


async def test_the_position_in_a_file_counts_where_it_is_not_opened_for_append(
    onto: Any, tmp_path: Path
) -> None:
    """A shell that has opened it for a group of commands is at its end.

    `1<>` is not.
    """
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"torn" + b"x" * 20)
    with path.open("r+b", buffering=0) as file:
        onto(file.fileno())
        await print_json({"whole": True})
    assert path.read_bytes().startswith(_WHOLE)


async def test_a_torn_line_at_the_position_is_ended_first(
    onto: Any, tmp_path: Path
) -> None:
    """For the second command of a group in parentheses."""
    path = tmp_path / "out.jsonl"
    with path.open("wb", buffering=0) as file:
        file.write(b"torn")
        onto(file.fileno())
        await print_json({"whole": True})
    assert path.read_bytes() == b"torn\n" + _WHOLE


@pytest.mark.parametrize("before", [b"", b"{}\n"])
async def test_no_empty_line_is_written_where_none_is_torn(
    before: bytes, onto: Any, tmp_path: Path
) -> None:
    """Readers of JSON lines cannot handle it."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(before)
    with appending(path) as file:
        onto(file)
        await print_json({"whole": True})
    assert path.read_bytes() == before + _WHOLE


async def test_short_writes_go_on_and_a_failed_line_is_ended_before_the_next(
    onto: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may accept a part of the data, and later nothing at all."""
    path = tmp_path / "out.jsonl"
    real = os.write
    room = [3, 1, 1]

    def write(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: room.pop(0)])

    with appending(path) as file:
        onto(file)
        monkeypatch.setattr("os.write", write)
        for _ in range(2):  # the second time nothing at all is written
            with pytest.raises(CommandError, match="No space left") as failed:
                await print_json({"whole": True})
            assert failed.value.status == Status.OUTPUT
        room.extend([1] * 40)
        await print_json({"whole": True})
        await print_text("a\nb\n")
    assert path.read_bytes() == b'{"who\n' + _WHOLE + b"a\nb\n"


async def test_a_non_blocking_pipe_gets_the_whole_line(onto: Any) -> None:
    """ssh and others make a stdout non-blocking that they share with us."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    onto(writer)
    printing = asyncio.create_task(print_json({"x": "y" * 300_000}))
    with os.fdopen(reader, "rb", buffering=0) as file:
        data = b""
        while not data.endswith(b"\n"):
            data += await asyncio.to_thread(file.read, 10_000) or b""
    await printing
    os.close(writer)
    assert json.loads(data) == {"x": "y" * 300_000}


async def test_lines_written_at_the_same_time_stay_whole(onto: Any) -> None:
    """Commands with many messages at a time print each outcome when it comes."""
    reader, writer = os.pipe()
    onto(writer)
    texts = [c * 50_000 for c in "abcdef"]
    printing = asyncio.gather(*(print_json({"x": text}) for text in texts))
    with os.fdopen(reader, "rb", buffering=0) as file:
        data = b""
        while data.count(b"\n") < len(texts):
            data += await asyncio.to_thread(file.read, 10_000) or b""
    await printing
    os.close(writer)
    assert [json.loads(line)["x"] for line in data.splitlines()] == texts


async def test_a_reader_that_goes_while_a_line_waits_ends_the_command(
    onto: Any,
) -> None:
    """For example `listen | head -1` with a long line."""
    reader, writer = os.pipe()
    onto(writer)
    printing = asyncio.create_task(print_json({"x": "y" * 300_000}))
    assert await asyncio.to_thread(os.read, reader, 1) == b"{"
    os.close(reader)
    with pytest.raises(CommandError, match="nobody reads stdout") as failed:
        async with limit():
            await printing
    assert failed.value.status == Status.PIPE
    os.close(writer)


async def test_a_terminal_is_sent_no_control_characters(onto: Any) -> None:
    """C1 controls act on a terminal like escape sequences; bidi marks hide text."""
    terminal, end = pty.openpty()
    onto(end)
    text = "blå \x1b[2J \x9b2J \x7f \u202e \u2066 \u2028 \ud800"
    await print_json({"body": text})
    shown = os.read(terminal, 65536)
    os.close(terminal)
    os.close(end)
    assert "blå".encode() in shown
    line = shown.decode().rstrip("\r\n")
    assert json.loads(line) == {"body": text}
    assert line.isprintable()


def test_a_note_is_one_line_whatever_others_have_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The text of a service's error could forge other lines, or hide itself."""
    note("not done\nxmpp-qos: done\r\x1b[2J\x9b\u202e\u2029\t\ud800")
    assert capsys.readouterr().err == (
        "xmpp-qos: not done\\nxmpp-qos: done\\r\\x1b[2J\\x9b\\u202e\\u2029\\t\\ud800\n"
    )
