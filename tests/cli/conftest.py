"""The command as users run it: a process of its own, at the embedded server.

Most are forks of one that has imported it; see `Forked` and `turned_clock`.
"""

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import turned_clock
from forked import Forked
from qos.testing import sasl
from qos.testing.processes import Child
from qos.testing.prosody import Prosody, mutual
from qos.testing.server import LoopbackServer
from qos.users import hashed
from waiting import LIMIT_S, limit

ACCOUNTS = {name: f"secret of {name}" for name in ("alice", "bob", "mallory")}

QUEUES = "queue.localhost"
COMPONENTS = {QUEUES: "secret of queues"}

# Warnings are shown, for tests of stderr.
COMMAND = (
    *(sys.executable, "-P", "-W", "default", "-c"),
    "import sys; from qos.cli import main; sys.exit(main())",
)


@functools.cache
def hash_of(password: str) -> str:
    """Made once: it costs as much as a login."""
    return hashed(password)


@dataclass
class Ended:
    """A command that has ended: its status, its JSON lines, its notes."""

    status: int
    out: list[dict[str, object]]
    err: str

    @property
    def notes(self) -> list[str]:
        return self.err.splitlines()


@dataclass
class Running:
    """A command that runs."""

    process: asyncio.subprocess.Process | Forked
    err: list[str] = field(default_factory=list)

    async def note(self, word: str) -> str:
        """Read stderr up to a line with this word."""
        assert self.process.stderr is not None
        async with limit():
            while line := (await self.process.stderr.readline()).decode():
                self.err.append(line.rstrip("\n"))
                if word in line:
                    return line.rstrip("\n")
        raise AssertionError(f"ended without {word!r}: {self.err}")

    async def line(self) -> dict[str, object]:
        """Read a line of stdout."""
        assert self.process.stdout is not None
        async with limit():
            line = b"\n"
            # An empty line may precede a redelivered message.
            while line == b"\n":
                line = await self.process.stdout.readline()
        return dict(json.loads(line))

    def close_stdout(self) -> None:
        """Stop reading its stdout, and let the command notice."""
        assert isinstance(self.process, Forked)
        self.process.close_stdout()

    def turn_clock(self) -> None:
        """Let an hour pass for it."""
        assert isinstance(self.process, Forked)
        self.process.send_signal(turned_clock.TURNS)

    async def end(
        self, input_: bytes | None = None, *, at_most_s: float = LIMIT_S
    ) -> Ended:
        """Write the rest of its stdin, and wait for its end."""
        async with asyncio.timeout(at_most_s):
            out, err = await self.process.communicate(input_ or b"")
        assert self.process.returncode is not None
        return Ended(
            self.process.returncode,
            [json.loads(line) for line in (out or b"").splitlines() if line],
            "".join(f"{line}\n" for line in self.err) + err.decode(),
        )


class Commands:
    """Starts commands that are logged in to one server.

    Args:
        folder: for the stores, one for each user.
        port: of the server, on 127.0.0.1.
        component_port: likewise, if there are queues.

    Attributes:
        forked: whether it starts forks, which have the command line of their parent.
        function: what a fork runs.
    """

    def __init__(self, folder: Path, port: int, component_port: int = 0) -> None:
        self.folder = folder
        self.port = port
        self.component_port = component_port
        self.forked = True
        self.function: Callable[..., int] = turned_clock.command
        self._running: list[asyncio.subprocess.Process | Forked] = []

    def store(self, user: str) -> str:
        return f"sqlite:{self.folder / user}.db"

    def user_file(self) -> str:
        """A file with one user, as `queue amqp-user` or `http-user` would write it."""
        file = self.folder / "users"
        file.touch(0o600)
        file.write_text(f"shop:{hash_of('secret')}\n")
        return str(file)

    def command_line(
        self, *words: str | Path, user: str | None = None, tls: str = "off"
    ) -> list[str]:
        """The command line; with a user it has the options to connect."""
        return [*COMMAND, *self._words(*words, user=user, tls=tls)]

    def _words(self, *words: str | Path, user: str | None, tls: str) -> list[str]:
        options: list[str] = []
        if user is not None:
            options = [
                # Several workers of one account need different resources.
                *("--jid", f"{user}@localhost{'' if words[0] == 'worker' else '/1'}"),
                *("--host", "127.0.0.1", "--port", str(self.port), "--tls", tls),
                *("--retry-first", "0.3", "--retry-max", "1"),
            ]
            if words[0] not in {"queue", "worker"}:
                options += ["--store", self.store(user)]
        verbs = 2 if words[0] in {"outbox", "inbox", "queue"} else 1
        if words[:2] == ("queue", "dead"):
            verbs = 3
        return [*map(str, words[:verbs]), *options, *map(str, words[verbs:])]

    def environment(
        self, user: str | None, password: str | None = None
    ) -> dict[str, str]:
        """The environment of a command: its stores are in the folder."""
        environment = {**os.environ, "HOME": str(self.folder)}
        environment.pop("XDG_STATE_HOME", None)
        if user is not None or password is not None:
            environment["XMPP_QOS_PASSWORD"] = password or ACCOUNTS[str(user)]
        return environment

    async def start(
        self,
        *words: str | Path,
        user: str | None = None,
        password: str | None = None,
        tls: str = "off",
        stdout: int = asyncio.subprocess.PIPE,
    ) -> Running:
        """Start a command."""
        environment = self.environment(user, password)
        process: asyncio.subprocess.Process | Forked
        if self.forked and stdout == asyncio.subprocess.PIPE:
            given = self._words(*words, user=user, tls=tls)
            process = await Forked.start(self.function, given, environment)
        else:
            process = await asyncio.create_subprocess_exec(
                *Child.mortal(),
                *self.command_line(*words, user=user, tls=tls),
                stdin=asyncio.subprocess.PIPE,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        return self.running(process)

    def running(self, process: asyncio.subprocess.Process | Forked) -> Running:
        """A command that is running; killed at the end, if it still runs."""
        self._running.append(process)
        return Running(process)

    async def run(
        self,
        *words: str | Path,
        user: str | None = None,
        password: str | None = None,
        tls: str = "off",
        input_: bytes = b"",
    ) -> Ended:
        """Start a command and wait for its end."""
        running = await self.start(*words, user=user, password=password, tls=tls)
        return await running.end(input_)

    async def listen(self, user: str, *words: str) -> Running:
        """Start `listen`; returns when it is ready."""
        running = await self.start("listen", *words, user=user)
        await running.note("ready")
        return running

    async def queue(
        self, verb: str, *words: str | Path, user: str = "alice", input_: bytes = b""
    ) -> Ended:
        """Run a verb of `queue` on the queue `orders` of the component."""
        names = (QUEUES, "orders")
        return await self.run(
            "queue", *verb.split(), *names, *words, user=user, input_=input_
        )

    async def serve(self, *words: str | Path) -> Running:
        """Start a queue service as a component; returns when it is ready."""
        running = await self.start(
            *("queue", "serve", "--component", QUEUES),
            *("--port", str(self.component_port)),
            *("--store", f"sqlite:{self.folder / 'queues.db'}"),
            *("--retry-first", "0.3", "--retry-max", "1", *words),
            password=COMPONENTS[QUEUES],
        )
        assert await running.note("ready") == f"ready {QUEUES}"
        return running

    async def close(self) -> None:
        """Kill the commands that still run."""
        for process in self._running:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            with contextlib.suppress(ValueError):
                await process.communicate(b"")


@pytest.fixture
def accounts() -> dict[str, str]:
    """Passwords by user, for the accounts of `Commands`."""
    return ACCOUNTS


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways to log in: SCRAM costs slixmpp 4096 hashes, and test_connecting.py has it."""
    monkeypatch.setattr(sasl, "MECHANISMS", {"PLAIN": sasl.plain})


@pytest.fixture
async def server(logins: None) -> AsyncIterator[LoopbackServer]:
    """Alice and Bob know each other; Mallory is a stranger."""
    rosters = {"alice": {"bob@localhost": "both"}}
    async with LoopbackServer(
        accounts=ACCOUNTS, rosters=rosters, components=COMPONENTS
    ) as server:
        yield server


@pytest.fixture
async def commands(tmp_path: Path, server: LoopbackServer) -> AsyncIterator[Commands]:
    """Commands at the embedded server."""
    commands = Commands(tmp_path, server.port, server.component_port)
    yield commands
    await commands.close()


@pytest.fixture
async def serving(commands: Commands) -> Running:
    """A queue service as a component."""
    return await commands.serve()


@pytest.fixture
async def queues(commands: Commands, serving: Running) -> Commands:
    """A queue service as a component, with a queue of Alice's."""
    created = await commands.queue("create", "--set", "access_model=open")
    assert (created.status, created.out) == (0, [{"node": "orders"}]), created.err
    return commands


@pytest.fixture(params=["embedded", pytest.param("prosody", marks=pytest.mark.xmpp)])
async def commands_anywhere(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Commands]:
    """Commands at the embedded server, and at a real server."""
    if request.param == "embedded":
        rosters = {"alice": {"bob@localhost": "both"}}
        server: LoopbackServer | Prosody = LoopbackServer(
            accounts=ACCOUNTS, rosters=rosters
        )
    else:
        folder = tmp_path / "prosody"
        folder.mkdir()
        server = Prosody(folder, accounts=ACCOUNTS, rosters=mutual(("alice", "bob")))
    async with server:
        port = server.c2s_port if isinstance(server, Prosody) else server.port
        commands = Commands(tmp_path, port)
        yield commands
        await commands.close()


@pytest.fixture
async def commands_at(
    tmp_path: Path,
) -> AsyncIterator[Callable[[int], Commands]]:
    """Commands at the server on this port."""
    made: list[Commands] = []

    def make(port: int) -> Commands:
        made.append(Commands(tmp_path, port))
        return made[-1]

    yield make
    for commands in made:
        await commands.close()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password, and a folder for the stores and the files of a command."""
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
