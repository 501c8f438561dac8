"""Secrets stay secret: passwords, and the contents of messages and items.

Also with --debug, and when something fails. A payload appears only where it is asked
for: in the output of `listen`, on the stdin of a worker's command, and in `show` and
`browse`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fork_settings

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Ended, Running

PAYLOAD = "canary-of-the-payload"
GUESS = "canary-of-a-wrong-password"
TO = "bob@localhost/1"
DEBUG = "--debug"


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The worst umask: files without an explicit mode are readable by all."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def forks_with_this_umask(commands: Commands) -> None:
    commands.function = functools.partial(fork_settings.command, umask=0)


@contextlib.contextmanager
def own_command_line(commands: Commands) -> Iterator[None]:
    """What is started here is no fork: that has the command line of its parent."""
    commands.forked = False
    yield
    commands.forked = True


class Canaries:
    """Searches for secrets.

    Args:
        secrets: the passwords, and the payload.
    """

    def __init__(self, *secrets: str) -> None:
        words = [PAYLOAD, GUESS, *secrets]
        # SASL PLAIN for the accounts of these tests, and a password alone.
        for user in ("alice", "bob", "mallory"):
            words += [f"\0{user}\0{secret}" for secret in (GUESS, *secrets)]
        encoded = [base64.b64encode(word.encode()).decode() for word in words]
        self._words = [word.encode() for word in (*words, *encoded)]

    def check(self, data: bytes, where: object) -> None:
        found = [word for word in self._words if word in data]
        assert not found, (where, found)

    def check_ended(self, ended: Ended, *, is_asked_for: bool = False) -> None:
        self.check(ended.err.encode(), "stderr")
        out = str(ended.out)
        if is_asked_for:
            out = out.replace(PAYLOAD, "")
        self.check(out.encode(), "stdout")

    def check_processes(self, *running: Running) -> None:
        """The processes and their children: anybody can list their command lines."""
        for pid in family([each.process.pid for each in running]):
            path = Path(f"/proc/{pid}/cmdline")
            self.check(path.read_bytes(), path)


def family(pids: list[int]) -> list[int]:
    """These processes, and their descendants."""
    found = list(pids)
    for pid in found:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text().split())
    return found


@pytest.fixture
def canaries(accounts: dict[str, str]) -> Canaries:
    return Canaries(*accounts.values(), "secret of queues")


def check_files(folder: Path, canaries: Canaries, *, stores: set[str]) -> set[str]:
    """Files have mode 0600, folders 0700; and only a store has the payload.

    Returns:
        The suffixes of the files.
    """
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
        if path.is_file() and path.name.partition(".")[0] not in stores:
            canaries.check(path.read_bytes(), path)
    return {path.suffix for path in folder.rglob("*")}


async def test_messages_leave_nothing_but_what_listen_prints(
    commands: Commands, canaries: Canaries, tmp_path: Path
) -> None:
    """Delivered, refused, not delivered, malformed, and with a wrong password."""
    line = f"{PAYLOAD}\n".encode()
    journal = ("--journal", tmp_path / "some" / "journals" / "here", DEBUG)
    send = ("send", TO, "--lines", *journal, "--deadline", "600")
    with own_command_line(commands):
        listener = await commands.start("listen", *journal, user="bob")
        await listener.note("ready")
        sender = await commands.start(*send, user="alice")
    canaries.check_processes(listener, sender)
    sent = await sender.end(line)
    assert sent.status == 0, sent.err
    assert (await listener.line())["body"] == PAYLOAD
    # A stranger is refused, and an unreadable message is reported without its text.
    refused = await commands.run(*send, user="mallory", input_=line)
    assert refused.status == 1, refused.err
    file = tmp_path / "broken.xml"
    file.write_text(f"<message><body>{PAYLOAD}</message>")
    malformed = await commands.run("send", TO, DEBUG, "--xml", file, user="alice")
    file.unlink()
    assert malformed.status == 2
    nobody = ("send", "carol@localhost/1", "--lines", "--deadline", "0.3", DEBUG)
    away = await commands.run(*nobody, user="alice", input_=line)
    assert away.status == 1
    wrong = await commands.run(
        "send", TO, "--lines", DEBUG, user="alice", password=GUESS, input_=line
    )
    assert wrong.status == 4, wrong.err
    listed = [
        await commands.run(*words, "--store", commands.store(user), DEBUG)
        for words, user in ((("outbox", "list"), "alice"), (("inbox", "list"), "bob"))
    ]
    listener.process.terminate()
    heard = await listener.end()
    for ended in (sent, refused, malformed, away, wrong, heard, *listed):
        canaries.check_ended(ended)
    seen = check_files(tmp_path, canaries, stores={"alice", "bob", "mallory"})
    assert ".jsonl" in seen


async def test_queues_leave_nothing_but_what_the_workers_command_reads(
    commands: Commands,
    canaries: Canaries,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Published, worked on, rejected.

    And a worker's command gets none of our passwords.
    """
    monkeypatch.setenv("XMPP_QOS_BROKER_PASSWORD", "of another command")
    journal = ("--journal", tmp_path / "journal", DEBUG)
    with own_command_line(commands):
        serving = await commands.serve(*journal)
    created = await commands.queue("create", DEBUG, "--set", "access_model=open")
    line = f"{PAYLOAD}\n".encode()
    published = await commands.queue("publish", "--lines", DEBUG, input_=line)
    assert published.status == 0, published.err
    script = "import os, sys; print(dict(os.environ)); sys.exit(65)"
    command = ("--", sys.executable, "-P", "-c", script)
    queue = ("queue.localhost", "orders")
    with own_command_line(commands):
        worker = await commands.start(
            "worker", *queue, *journal[2:], *command, user="bob"
        )
    canaries.check_processes(serving, worker)
    assert (await worker.line())["outcome"] == "rejected"
    worker.process.terminate()
    worked = await worker.end()
    assert "QOS_ITEM_ID" in worked.err
    assert "XMPP_QOS_" not in worked.err
    dead = await commands.queue("dead list", DEBUG)
    assert len(dead.out) == 1
    serving.process.terminate()
    served = await serving.end()
    for ended in (created, published, worked, served):
        canaries.check_ended(ended)
    canaries.check_ended(dead, is_asked_for=True)
    check_files(tmp_path, canaries, stores={"queues", "queues-messages"})


async def test_a_password_file_is_named_and_not_shown(
    commands: Commands, canaries: Canaries, tmp_path: Path
) -> None:
    """Whatever is wrong with the file, or with the login."""
    file = tmp_path / "password"
    file.write_text(GUESS)
    words = ("listen", "--password-file", file, DEBUG, "--connect-timeout", "60")
    with own_command_line(commands):
        running = await commands.start(*words, user="alice")
    canaries.check_processes(running)
    ended = await running.end()
    assert ended.status == 4
    canaries.check_ended(ended)
    file.write_bytes(GUESS.encode() + b"\xff")
    unreadable = await commands.run(*words, user="alice")
    assert unreadable.status == 2
    assert str(file) in unreadable.err
    canaries.check_ended(unreadable)
