"""A queue by its commands, on a real Prosody, as users would try it by hand."""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from forked import Forked, command
from qos.testing.prosody import Prosody
from waiting import limit, until

pytestmark = pytest.mark.crash

QUEUE, NODE = "comp.localhost", "lines"

#: Appends a line to the file in its argument, with a single write.
WORK = 'read -r payload; printf "%s\\n" "$payload" >> "$1"'


class Desk:
    """Starts commands; those that still run are ended with it."""

    def __init__(self, server: Prosody) -> None:
        self._server = server
        self._running: list[Forked] = []

    async def serve(self, store: Path) -> Forked:
        """Run the service, until it is ready."""
        words = ("queue", "serve", "--component", QUEUE, "--store", f"sqlite:{store}")
        server = self._server
        process = await self._start(
            (*words, "--host", server.address, "--port", str(server.component_port)),
            server.components[QUEUE],
        )
        async with limit():
            assert await process.stderr.readline() == f"ready {QUEUE}\n".encode()
        return process

    async def start(self, *words: str, user: str) -> Forked:
        """Start a command of a user's."""
        verbs = 2 if words[0] == "queue" else 1
        server = self._server
        options = (
            *("--jid", f"{user}@{server.domain}", "--tls", "off"),
            *("--host", server.address, "--port", str(server.c2s_port)),
        )
        words = (*words[:verbs], QUEUE, NODE, *options, *words[verbs:])
        return await self._start(words, server.accounts[user])

    async def run(self, *words: str, user: str, input_: str = "") -> list[Any]:
        """Run a command to its end, which must be successful; returns its lines."""
        async with limit():
            return await finish(await self.start(*words, user=user), input_)

    async def _start(self, words: tuple[str, ...], password: str) -> Forked:
        environment = {**os.environ, "XMPP_QOS_PASSWORD": password}
        process = await Forked.start(command, words, environment)
        self._running.append(process)
        return process

    async def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate(b"")


async def finish(process: Forked, input_: str = "", *, status: int = 0) -> list[Any]:
    """Write stdin of a command, and wait for its end; returns its lines."""
    out, err = await process.communicate(input_.encode())
    assert process.returncode == status, err.decode()
    assert b"Traceback" not in err, err.decode()
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
async def desk(prosody: Prosody) -> AsyncIterator[Desk]:
    desk = Desk(prosody)
    yield desk
    await desk.close()


def lines_in(file: Path) -> list[str]:
    """The worked-on lines of text, each complete."""
    if not file.exists():
        return []
    payloads = [ET.fromstring(line) for line in file.read_text().splitlines()]  # noqa: S314 - ours
    return [payload.text or "" for payload in payloads]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.long)])
async def test_every_line_is_done_by_two_workers_of_which_one_is_killed(
    desk: Desk, tmp_path: Path, count: int
) -> None:
    """The first experiment of somebody who wants to see whether it works."""
    lines = [f"line {number} <&> äöü" for number in range(count)]
    outputs = [tmp_path / "one", tmp_path / "two"]
    parallel = 4

    async def work(output: Path, *options: str) -> Forked:
        command = ("--", "sh", "-c", WORK, "sh", str(output))
        words = ("worker", *options, "--parallel", str(parallel))
        return await desk.start(*words, *command, user="bob")

    await desk.serve(tmp_path / "queue.sqlite")
    # What the killed worker has comes again when its locks end.
    made = await desk.run("queue", "create", "--set", "lock_timeout=5", user="alice")
    assert made == [{"node": NODE}]
    await desk.run("queue", "affiliate", "bob@localhost=member", user="alice")
    text = "".join(f"{line}\n" for line in lines)
    published = await desk.run("queue", "publish", "--lines", user="alice", input_=text)
    assert sorted(each["line"] for each in published) == list(range(1, count + 1))
    assert len({each["id"] for each in published}) == count

    victim = await work(outputs[0])
    other = await work(outputs[1])
    # Read from now on, so that a full pipe blocks neither worker.
    killed = asyncio.create_task(finish(victim, status=-signal.SIGKILL))
    ending = asyncio.create_task(finish(other))
    await until(lambda: all(len(lines_in(each)) >= 20 for each in outputs))
    victim.kill()
    await killed

    def done() -> Counter[str]:
        return Counter(line for output in outputs for line in lines_in(output))

    # However long it takes, as long as it goes on.
    while (so_far := len(done())) < len(lines):
        await until(lambda: len(done()) > so_far)

    async def stats() -> Any:
        (line,) = await desk.run("queue", "stats", user="alice")
        return line

    # What the killed worker had done, and had not reported, comes to the other one.
    async with limit():
        while (await stats())["accepted"] != count:
            assert other.returncode is None
    other.terminate()
    ended = await ending
    # Nothing is left.
    assert await finish(await work(outputs[1], "--drain", "1")) == []

    assert done().keys() == set(lines)
    # Only items that the killed worker had in hand, or had not reported yet, were done
    # again.
    assert done().total() - len(lines) <= parallel
    assert len(lines_in(outputs[0])) < len(lines), "the kill came too late"
    assert {each["outcome"] for each in ended} == {"accepted"}
    assert {each["id"] for each in ended} < {each["id"] for each in published}
    counts = await stats()
    left = {name: counts[name] for name in ("available", "acquired", "delayed", "dead")}
    assert left == {"available": 0, "acquired": 0, "delayed": 0, "dead": 0}
    assert counts["accepted"] == count
