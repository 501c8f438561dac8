"""Commands typed into Profanity, a client of others, at a terminal of tmux's."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from queue_service import Served, item, peers, unlock
from waiting import limit, until

NODE = "orders"

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.long,
    pytest.mark.timeout(180),
]


class Terminal:
    """A terminal with one program in it."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }

    async def start(self, program: str) -> None:
        size = ("-x", "160", "-y", "60")
        await self._tmux("-f", "/dev/null", "new-session", "-d", *size, program)

    async def enter(self, line: str) -> None:
        await self._tmux("send-keys", "-l", line)
        await self._tmux("send-keys", "Enter")

    async def shows(self, text: str) -> None:
        """Wait until the screen shows a text; at its end, a failure shows the screen."""
        screen = ""

        async def is_there() -> bool:
            nonlocal screen
            screen = await self._tmux("capture-pane", "-p")
            return text in screen

        try:
            await until(is_there)
        except TimeoutError:
            pytest.fail(f"no {text!r} in:\n{screen.rstrip()}")

    async def enter_until(self, line: str, text: str) -> None:
        """Enter a line again and again, until the screen shows a text."""
        while text not in await self._tmux("capture-pane", "-p"):
            await self.enter(line)
            await asyncio.sleep(0.5)

    async def stop(self) -> None:
        await self._tmux("kill-server")

    async def _tmux(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", self._socket, *words),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return out.decode()


@asynccontextmanager
async def profanity(queues: Served, user: str, folder: Path) -> AsyncIterator[Terminal]:
    """Profanity, logged in."""
    for program in ("profanity", "tmux"):
        assert shutil.which(program), f"Debian package {program} is missing"
    server, terminal = queues.server, Terminal(folder)
    await terminal.start("profanity")
    try:
        await terminal.shows("Type '/help' to show complete help")
        where = f"server {server.address} port {server.c2s_port} tls disable"
        await terminal.enter(f"/connect {user}@{server.domain} {where}")
        await terminal.shows("Enter password")
        await terminal.enter(server.accounts[user])
        await terminal.shows("logged in successfully")
        yield terminal
    finally:
        await terminal.stop()


async def test_an_operator_looks_after_a_queue_in_profanity(
    queues: Served, tmp_path: Path
) -> None:
    """Its forms go on with nothing but a form, and it shows no tables."""
    async with peers(queues, "alice/raw") as (raw,):
        await raw.create(NODE)
        await raw.publish(NODE, item("i1"), item("i2"))
        await raw.subscribe(NODE, 1)
        for _ in range(2):
            dead = await raw.item()
            await raw.done(unlock(NODE, dead.named, content="<q:rejected/>"))
        await raw.until_stats(NODE, dead="2")
    async with profanity(queues, "alice", tmp_path) as terminal:

        async def execute(name: str) -> None:
            await terminal.enter(f"/cmd exec xmpp-qos:admin#{name} {queues.jid}")

        # It refuses until it has discovered the components of its server.
        async with limit():
            await terminal.enter_until(f"/cmd list {queues.jid}", "admin#workers")
        await execute("queues")
        await terminal.shows("orders: Available 0, Acquired 0, Delayed 0, Dead 2")
        await execute("dead")
        await terminal.shows("Form title: Requeue the dead items of a queue")
        await terminal.enter(f"/field1 {NODE}")
        await terminal.shows("Field updated")
        await terminal.enter("/form submit")
        # It shows no options of which none is chosen, but takes them.
        await terminal.shows("[field1] Dead items")
        await terminal.enter("/field1 add i2")
        await terminal.shows("Field updated")
        await terminal.enter("/form submit")
        await terminal.shows("Requeued in 'orders': 1.")
        await execute("purge")
        await terminal.shows("Form title: Purge a queue: remove all its items")
        await terminal.enter(f"/field1 {NODE}")
        await terminal.shows("Field updated")
        await terminal.enter("/form submit")
        await terminal.shows("0 delayed, 1 dead.")
        await terminal.enter("/field1 on")
        await terminal.shows("TRUE")
        await terminal.enter("/form submit")
        await terminal.shows("Removed all items of 'orders'.")
        await execute("nothing")
        await terminal.shows("there is no command 'xmpp-qos:admin#nothing'")
