"""The shipped commands in the campaign; and proof that it finds their faults."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from campaign.commands import HomeFiles
from campaign.disk import SmallDisk
from campaign.pipe import PipeReader
from campaign.printed import (
    Printed,
    count_commands,
    missing,
    read_printed,
)
from command_roles import Shipped
from message_roles import End, read_log
from qos.cli.status import Status
from qos.testing.server import LoopbackServer
from role import Connect
from role_processes import Processes, RoleProcess
from waiting import limit, until

Entry = Mapping[str, object]


def files_in(folder: Path) -> HomeFiles:
    (folder / "output").mkdir()
    return HomeFiles(folder, SmallDisk(folder / "output", 1))


def lines(*entries: Entry) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def printed(number: int, *, redelivered: bool = False) -> Entry:
    """The line that `listen` prints for a message."""
    body = f"assured 1-{number}"
    return {"level": "assured", "redelivered": redelivered, "body": body}


def delivered(number: int) -> list[Entry]:
    """The hub's note that a message is delivered."""
    message: Entry = {"id": f"m{number}", "body": f"assured 1-{number}"}
    return [
        {"event": "begun", **message, "deadline_s": None, "withdrawn": False},
        {"event": "accepted", **message},
        {"event": "ended", **message, "status": "delivered"},
    ]


def queue_with(path: Path, *items: tuple[str, str, str | None]) -> Path:
    """A store with these items: node, id, outcome."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE item (node TEXT, item_id TEXT, outcome TEXT)")
        db.executemany("INSERT INTO item VALUES (?, ?, ?)", items)
        db.commit()
    return path


# -- reading stdout ----------------------------------------------------------


class GrowingFile(io.RawIOBase):
    """A file whose pieces are written one by one, each after the end was read."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [piece for text in pieces for piece in (text, b"")]

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next piece, which is empty at an end."""
        piece = self._pieces.pop(0) if self._pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


def test_a_log_ends_at_a_line_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the line, which may be there a moment later, is no line."""
    file = GrowingFile(b'{"a": 1}\n{"b', b'": 2}\n{"c": 3}\n')
    monkeypatch.setattr(Path, "open", lambda *_: io.BufferedReader(file))
    assert read_log(tmp_path) == [{"a": 1}]


def test_a_line_that_is_torn_off_is_told_from_one_that_is_glued(tmp_path: Path) -> None:
    """A kill causes the first. The second loses a message for a reader of lines."""
    whole = lines(printed(1)).rstrip("\n")
    path = tmp_path / "out"
    path.write_text(f"{whole}\n{whole[:20]}\n\n{whole[:20]}{whole}\n{whole}x\n{{")
    found = read_printed(path, tmp_path / "missing")
    assert found.whole == [printed(1)]
    assert found.torn == 2
    assert found.glued == [f"{whole[:20]}{whole}", f"{whole}x"]


def test_what_is_printed_twice_without_a_mark_is_doubled(tmp_path: Path) -> None:
    """A message printed again after a restart, with a mark, is recognized."""
    files = files_in(tmp_path)
    files.hub.write_text(lines(*(e for n in range(1, 6) for e in delivered(n))))
    in_file, by_pipe = files.printed
    whole = lines(printed(5)).rstrip("\n")
    in_file.write_text(
        lines(printed(1), printed(2, redelivered=True), printed(3))
        # Torn off, and printed again.
        + f"{lines(printed(4))[:30]}\n"
        + lines(printed(4, redelivered=True))
        # Glued: it cannot be read.
        + f"{whole[:10]}{whole}\n"
    )
    by_pipe.write_text(lines(printed(1), printed(2), {**printed(9), "level": "x"}))
    store = queue_with(tmp_path / "queue.sqlite")
    tally = count_commands(files, store)["messages, listen"]
    assert tally.delivered == 5
    assert tally.doubled == 1  # 1
    assert tally.again == 1  # 2
    assert tally.lost == 1  # 5
    # 5, which is delivered according to its sender; the glued line; and one that was
    # never sent.
    assert tally.false == 3
    assert missing(files, store) == 1


def test_an_outcome_that_send_has_printed_must_be_true(tmp_path: Path) -> None:
    """It is compared with the receiver's messages."""
    files = files_in(tmp_path)
    outcome = {"to": "hub@localhost", "attempts": 1}
    files.desk_printed.write_text(
        lines(
            {**outcome, "msg_id": "m1", "outcome": "delivered"},
            {**outcome, "msg_id": "m2", "outcome": "delivered"},
            {**outcome, "msg_id": "m3", "outcome": "not delivered"},
            {**outcome, "msg_id": "m4", "outcome": "delivered"},
            {**outcome, "msg_id": "m4", "outcome": "in doubt"},
            # Of `outbox list`.
            {"msg_id": "m9", "state": "queued"},
        )
    )
    took = [
        {"event": "took", "id": name, "body": ""}
        for name in ("m1", "m3", "m4", "m5", "m5")
    ]
    files.hub.write_text(lines(*took))
    store = queue_with(tmp_path / "queue.sqlite")
    tally = count_commands(files, store)["messages, send"]
    assert tally.lost == 1  # m2
    assert tally.doubled == 1  # m5
    assert tally.false == 2  # m3 and m4


def test_each_wrong_deed_of_a_queue_and_its_worker_is_counted(tmp_path: Path) -> None:
    """Also an item in a queue that was never published to it."""
    files = files_in(tmp_path)
    outcome = {"to": "queue.localhost", "attempts": 2}
    files.desk_printed.write_text(
        lines(
            {"id": "i1"},
            {"id": "i2"},
            {**outcome, "msg_id": "m1", "outcome": "delivered"},
        )
    )
    files.errand_printed.write_text(
        lines(*({"id": f"i{n}", "outcome": "accepted"} for n in (1, 1, 3)))
    )
    files.done.write_text("i1\n")
    store = queue_with(
        tmp_path / "queue.sqlite",
        ("errands", "i1", "accepted"),
        ("errands", "i4", None),
        ("vault", "i5", None),
    )
    tally = count_commands(files, store)["items, worker"]
    assert tally.lost == 2  # i2, and what m1 has published
    assert tally.doubled == 1  # i1
    # i3 was accepted but not done, and the service knows nothing of it.
    assert tally.false == 2  # i3, and i5 in the vault
    assert tally.open == 1  # i4


# -- the pipe ----------------------------------------------------------------


async def test_a_reader_that_stops_lets_the_pipe_fill_up(tmp_path: Path) -> None:
    """And it loses nothing when the reader continues."""
    fifo, out = tmp_path / "fifo", tmp_path / "out"
    async with PipeReader(fifo, out) as reader:
        assert not reader.full
        reader.stop()
        writing = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        size = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                size += os.write(writing, b"x" * 1000)
        assert reader.full
        reader.go_on()
        await until(lambda: out.stat().st_size >= size)
        assert not reader.full
        os.write(writing, b"the end")
        os.close(writing)
    assert out.read_text().endswith("xthe end")


# -- the commands ------------------------------------------------------------


@dataclass
class Stage:
    """A hub that sends to `listen`, at the embedded server.

    Attributes:
        files: the files of both.
        server: the server of both.
        processes: starts them.
    """

    files: HomeFiles
    server: LoopbackServer
    processes: Processes

    def connect(self, name: str) -> Connect:
        return Connect(
            jid=f"{name}@localhost/1",
            password="secret",  # noqa: S106 - of accounts inside a test
            host=self.server.host,
            port=self.server.port,
        )

    async def hub(self, to: str = "home@localhost/1", padding: int = 0) -> RoleProcess:
        return await self.processes.start(
            End(
                connect=self.connect("hub"),
                role="sender",
                number=1,
                store=self.files.store("hub"),
                log=str(self.files.hub),
                to=(to,),
                padding=padding,
            )
        )

    async def command(self, *words: str, stdout: Path, **options: Any) -> RoleProcess:
        connect = self.connect("home")
        login = ("--jid", connect.jid, "--tls", "off")
        where = ("--host", connect.host, "--port", str(connect.port))
        return await self.processes.start(
            Shipped(
                connect=connect,
                words=(words[0], *login, *where, *words[1:]),
                stdout=str(stdout),
                stderr=str(self.files.folder / "stderr"),
                **options,
            )
        )

    def delivered(self) -> int:
        """The number of messages that are delivered according to the hub."""
        log = read_log(self.files.hub)
        return sum(entry.get("status") == "delivered" for entry in log)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    files = files_in(tmp_path)
    accounts = dict.fromkeys(("home", "hub"), "secret")
    rosters = {"home": {"hub@localhost": "both"}}
    async with (
        LoopbackServer(accounts=accounts, rosters=rosters) as server,
        Processes(tmp_path) as processes,
    ):
        yield Stage(files, server, processes)


SHORT_WRITE = "a short write is taken for success"
NO_TAKER = "a confirm without a taker"

#: Some lines, and a part of one.
FEW_BYTES = 2_000


@pytest.mark.crash
async def test_a_full_disk_ends_listen_and_no_message_is_lost(stage: Stage) -> None:
    """Status 74.

    The next run prints the messages that were confirmed but not printed.
    """
    stdout, _ = stage.files.printed
    # Each message is a file of its own, and shorter than the limit.
    words = ("listen", "--store", f"files:{stage.files.folder / 'held'}")
    listen = await stage.command(*words, stdout=stdout, file_bytes_max=FEW_BYTES)
    hub = await stage.hub()
    async with limit():
        assert await asyncio.shield(listen.ended) == Status.OUTPUT
    assert read_printed(stdout).torn == 1
    listen = await stage.command(*words, stdout=stdout)
    before = stage.delivered()
    await until(lambda: stage.delivered() > before)
    await hub.kill()
    store = queue_with(stage.files.folder / "queue.sqlite")
    await until(lambda: not missing(stage.files, store))
    tally = count_commands(stage.files, store)["messages, listen"]
    assert (tally.doubled, tally.false) == (0, 0), tally.examples


@pytest.mark.crash
async def test_a_short_write_that_is_taken_for_success_is_found(stage: Stage) -> None:
    """Otherwise the campaign would not notice a loss of messages."""
    stdout, _ = stage.files.printed
    listen = await stage.command(
        *("listen", "--store", "memory:"),
        stdout=stdout,
        file_bytes_max=FEW_BYTES,
        mutant=SHORT_WRITE,
    )
    hub = await stage.hub()
    lines_max = FEW_BYTES // len(lines(printed(1)))
    await until(lambda: stage.delivered() > lines_max)
    await hub.kill()
    await listen.kill()
    store = queue_with(stage.files.folder / "queue.sqlite")
    assert missing(stage.files, store)


@pytest.mark.crash
async def test_a_message_that_send_confirms_and_nobody_takes_is_found(
    stage: Stage,
) -> None:
    """While `listen` restarts, another command may be the only one online."""
    words = ("send", "hub@localhost/away", "--body", "x", "--store", "memory:")
    send = await stage.command(*words, stdout=stage.files.desk_printed, mutant=NO_TAKER)
    hub = await stage.hub("home@localhost")
    await until(lambda: stage.delivered() > 0)
    await hub.kill()
    await send.kill()
    store = queue_with(stage.files.folder / "queue.sqlite")
    assert missing(stage.files, store)


async def torn_off(stage: Stage, reader: PipeReader, *words: str) -> None:
    """Kill runs of `listen` at the full pipe until one leaves a part of a line."""
    _, piped = stage.files.printed
    while not piped.read_bytes() or piped.read_bytes().endswith(b"\n"):
        listen = await stage.command(*words, stdout=stage.files.fifo)
        before = stage.delivered()
        await until(lambda: stage.delivered() > before)  # noqa: B023
        reader.stop()
        await until(lambda: reader.full)
        await listen.kill()
        reader.go_on()
        await until(lambda: not reader.full)


@pytest.mark.crash
async def test_a_kill_at_a_full_pipe_glues_no_line_to_that_of_the_next_life(
    stage: Stage,
) -> None:
    """The pipe stays, as in `while true; do xmpp-qos listen …; done | reader`."""
    words = ("listen", "--store", stage.files.store("home"))
    _, piped = stage.files.printed
    async with PipeReader(stage.files.fifo, piped) as reader:
        hub = await stage.hub(padding=9_000)
        await torn_off(stage, reader, *words)
        size = piped.stat().st_size
        await stage.command(*words, stdout=stage.files.fifo)
        await until(lambda: piped.stat().st_size > size)
        await hub.kill()
    assert read_printed(piped).torn
    assert read_printed(piped).glued == []


@pytest.mark.crash
async def test_a_line_torn_off_in_a_pipe_is_ended_before_a_life_with_a_file(
    stage: Stage,
) -> None:
    """That run prints the message again, so the pipe never gets the rest of its line."""
    in_file, piped = stage.files.printed
    fifo = stage.files.fifo
    async with PipeReader(fifo, piped):
        fifo.write_text(lines(printed(1))[:30])
        words = ("listen", "--store", "memory:")
        await stage.command(*words, stdout=in_file, begins_line_in=str(fifo))
        await until(in_file.exists)
        fifo.write_text(lines(printed(2)))
    assert read_printed(piped) == Printed([dict(printed(2))], torn=1)
