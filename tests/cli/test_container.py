"""`worker` in a container: process 1, a root that cannot be written, and no /tmp."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qos.testing.processes import Child
from tests.cli.test_worker import SERVICE, publish
from waiting import limit, until

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Running

#: Namespaces of mounts and processes. Mounts need root; the users of a namespace of users
#: can have them.
CONTAINER = (
    *("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",))),
    *("--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"),
    *("sh", str(Path(__file__).parents[1] / "harness" / "read_only.sh")),
)

#: Fails where there is a place for a file; else counts its input, and leaves an orphan.
SCRIPT = """
for folder in / /tmp /var/tmp /dev/shm "$HOME"; do
  touch "$folder/x" 2>/dev/null && exit 65
done
echo "has $(wc -c) bytes"
(sleep 0.2 &)
"""

ITEMS = 6


async def start(commands: Commands, *words: str) -> Running:
    """Start a worker in a container."""
    environment = commands.environment("alice")
    environment.pop("TMPDIR", None)
    process = await asyncio.create_subprocess_exec(
        *(*Child.mortal(), *CONTAINER),
        *commands.command_line("worker", *SERVICE, *words, user="alice"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return commands.running(process)


def children(pid: int) -> list[int]:
    """The processes of this parent, zombies included."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return list(map(int, text.split()))


async def test_a_worker_needs_no_place_for_a_file_and_reaps_as_process_1(
    queues: Commands,
) -> None:
    """Its commands get their input, and what they leave behind is reaped."""
    worker = await start(queues, "--content", "--", "sh", "-c", SCRIPT)
    await worker.note("ready")
    (pid,) = children(worker.process.pid)
    await publish(queues, *["x" * 50_000] * ITEMS)
    for _ in range(ITEMS):
        line = await worker.line()
        assert (line["outcome"], line["exit"]) == ("accepted", 0), worker.err
        assert await worker.note("has") == "has 50000 bytes"
    await until(lambda: not children(pid))
    os.kill(pid, signal.SIGTERM)
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, []), ended.err


async def test_there_is_no_place_for_a_file_in_such_a_container() -> None:
    """Otherwise the other test says nothing."""
    code = "import tempfile; tempfile.gettempdir()"
    environment = {**os.environ, "HOME": "/root"}
    environment.pop("TMPDIR", None)
    process = await asyncio.create_subprocess_exec(
        *(*Child.mortal(), *CONTAINER, sys.executable, "-P", "-c", code),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    async with limit():
        _, err = await process.communicate()
    assert b"No usable temporary directory" in err
