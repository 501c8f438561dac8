"""A worker that is killed, on a server that keeps its session (XEP-0198)."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qos.testing.processes import Child
from queue_service import ACCOUNTS, LOCKING, SERVICE, item, own_server, peers, served
from waiting import LIMIT_S, limit

NODE = "orders"
EXAMPLE = Path(__file__).parents[2] / "examples" / "worker.py"

#: The example, with a handler that prints the count of the delivery and does not end.
HANGING = f"""
import asyncio, re
source = open({str(EXAMPLE)!r}).read()
source = re.sub(r"print[(].*", "print(job.delivery_count, flush=True); "
    "await asyncio.Event().wait()", source)
exec(compile(source, "worker.py", "exec"))
"""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(4 * LIMIT_S)]


@asynccontextmanager
async def worker(jid: str, port: int) -> AsyncIterator[Process]:
    """The worker, which is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(*Child.mortal(), sys.executable, "-P", "-c", HANGING),
        *(jid, str(port), SERVICE, NODE),
        env=os.environ | {"XMPP_QOS_PASSWORD": ACCOUNTS["bob"]},
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def first_line(process: Process) -> bytes:
    assert process.stdout is not None
    async with limit():
        return await process.stdout.readline()


async def test_the_item_of_a_killed_worker_comes_again_to_its_resource(
    tmp_path: Path,
) -> None:
    """Long before the lock ends, although the server keeps the session of the dead."""
    folder = tmp_path / "prosody"
    folder.mkdir()
    async with (
        own_server(folder) as server,
        served(server, tmp_path) as queues,
        peers(queues, "alice/a") as (alice,),
    ):
        await alice.create(NODE, LOCKING)
        await alice.publish(NODE, item("1"))
        async with worker("bob@localhost/1", server.c2s_port) as bob:
            assert await first_line(bob) == b"0\n"
        assert (await alice.stats(NODE))["acquired"] == "1", "the lock is still held"
        async with worker("bob@localhost/1", server.c2s_port) as bob:
            assert await first_line(bob) == b"1\n"
