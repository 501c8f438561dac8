"""A sender and a receiver that are killed again and again: see crash_device.py.

A seed decides which of them dies where; the exact moment is not determined.
"""

import asyncio
import contextlib
import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import crash_device
from forked import Forked
from message_roles import End, read_log
from qos.testing.xmpp_server import XmppServer
from role import Connect
from waiting import limit, until

SENDER, RECEIVER = "alice@localhost/controller", "bob@localhost/device"

#: The victim and the way. It is killed while it starts, or at any moment of a session;
#: or it kills itself: when it gets a request or an answer, before looking at it, or while
#: the application handles the message.
DEATHS = [
    *((("sender",), how) for how in ("starting", "running", "received", "hold", "")),
    *((("receiver",), how) for how in ("starting", "running", "assured", "deliver")),
    *((("receiver",), how) for how in ("acknowledged", "before log", "after log")),
    *((("sender", "receiver"), how) for how in ("starting", "running")),
]

#: The moment of a kill, in seconds after the start of the process or of its session.
STARTING_S_MAX = 0.4
RUNNING_S_MAX = 0.2

#: The messages that begin and end after the last kill, while both live on.
_UNDISTURBED = 10


class Pair:
    """A sender, a receiver, and the files that they leave.

    Args:
        server: the server of both.
        folder: for all their files.
        seed: decides which of them dies where.
        store: the kind of both stores.
        journal: of both; None: they keep none.
    """

    def __init__(
        self,
        server: XmppServer,
        folder: Path,
        *,
        seed: int,
        store: str,
        journal: Path | None = None,
    ) -> None:
        self._server = server
        self._folder = folder
        self._store = store
        self._journal = journal
        self._rng = random.Random(seed)
        self._lives: Counter[str] = Counter()
        self._processes: dict[str, Forked] = {}

    def log(self, role: str) -> list[dict[str, Any]]:
        """The log of a device over all its runs."""
        return read_log(self._folder / f"{role}.log")

    @property
    def stderr(self) -> str:
        """The stderr of all processes."""
        return (self._folder / "stderr").read_text()

    async def run(self, rounds: int) -> None:
        """Kill this many times; then let all accepted messages end."""
        deaths: list[tuple[tuple[str, ...], str]] = []
        while len(deaths) < rounds:
            deaths += self._rng.sample(DEATHS, len(DEATHS))
        try:
            for role in ("receiver", "sender"):
                await self._start(role)
            for victims, how in deaths[:rounds]:
                await self._kill(victims, how)
            await self._undisturbed()
            await self._end("sender")
            await self._start("sender", drain=True)
            async with limit():
                assert await self._processes["sender"].wait() == 0
            self._tell("receiver", "end", 0)
            async with limit():
                assert await self._processes["receiver"].wait() == 0
        finally:
            for role in self._processes:
                await self._end(role)

    async def _kill(self, victims: tuple[str, ...], how: str) -> None:
        """One round: a process dies, and is started again."""
        if how == "starting":
            for role in victims:
                await self._end(role)
                await self._start(role)
            await asyncio.sleep(self._rng.uniform(0, STARTING_S_MAX))
        else:
            await self._flowing()
        if how == "running":
            await asyncio.sleep(self._rng.uniform(0, RUNNING_S_MAX))
        elif how != "starting":
            (role,) = victims
            self._tell(role, how, self._rng.randint(1, 12))
            async with limit():
                await self._processes[role].wait()
        for role in victims:
            await self._end(role)
        for role in victims:
            await self._start(role)

    async def _undisturbed(self) -> None:
        """Let some messages begin and end without a kill: all of them can be proved."""
        before = len(self.log("sender"))

        def ended() -> bool:
            since = self.log("sender")[before:]
            begun = {line["id"] for line in since if line["event"] == "begun"}
            there = (line["id"] for line in since if line["event"] == "ended")
            return len(begun.intersection(there)) >= _UNDISTURBED

        await until(ended)

    def _tell(self, role: str, how: str, count: int) -> None:
        """See crash_device.py."""
        self._processes[role].stdin.write(json.dumps([how, count]).encode() + b"\n")

    async def _flowing(self) -> None:
        """Wait until messages are accepted again: both have recovered."""
        log = self._folder / "receiver.log"
        before = log.stat().st_size if log.exists() else 0
        await until(lambda: log.exists() and log.stat().st_size > before)

    async def _start(self, name: str, *, drain: bool = False) -> None:
        role: Literal["sender", "receiver"]
        role, jid = ("sender", SENDER) if name == "sender" else ("receiver", RECEIVER)
        self._lives[role] += 1
        end = End(
            connect=Connect.of_account(self._server, jid.replace("@localhost", "")),
            role=role,
            number=self._lives[role],
            store=f"{self._store}:{self._folder / role}.store",
            log=str(self._folder / f"{role}.log"),
            smacks=self._rng.random() < 0.5,
            to=(RECEIVER, RECEIVER.partition("/")[0]),
            drain=drain,
            journal=str(self._journal or ""),
        )
        stderr = self._folder / "stderr"
        self._processes[role] = await Forked.start(crash_device.live, end, stderr)

    async def _end(self, role: str) -> None:
        """Kill it; it must not have ended in another way."""
        process = self._processes[role]
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        assert process.returncode in {-signal.SIGKILL, 0}, f"{role}: {self.stderr}"
