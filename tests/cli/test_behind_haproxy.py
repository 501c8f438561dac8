"""A worker, a service and an AMQP consumer behind haproxy with its usual time-outs, idle."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from proton.utils import BlockingConnection

from qos.testing.prosody import Prosody
from tests.cli.conftest import ACCOUNTS, COMPONENTS, Commands
from waiting import LIMIT_S, limit
from web_proxies import TCP_PROXY, WebProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.xmpp, pytest.mark.long, pytest.mark.timeout(5 * LIMIT_S)]

#: haproxy ends a connection on which nothing came for 50 s.
IDLE_S = 65.0

SERVICE = "queue.localhost"

#: For the worker, and for the consumer.
NODES = ("orders", "letters")


def take(port: int) -> str:
    """Wait as an AMQP client of another maker for a message; returns its id.

    The client asks for no heartbeats.
    """
    url = f"amqp://shop:secret@127.0.0.1:{port}"
    wait_s = IDLE_S + LIMIT_S
    connection = BlockingConnection(url, allowed_mechs="PLAIN", timeout=wait_s)
    try:
        receiver = connection.create_receiver("letters", credit=1)
        message = receiver.receive(timeout=wait_s)
        receiver.accept()
        return str(message.id)
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def behind(port: int, folder: Path) -> AsyncIterator[int]:
    """haproxy in front of this port; yields its own."""
    proxy = WebProxy(TCP_PROXY, folder, port)
    await proxy.start()
    try:
        yield proxy.port
    finally:
        await proxy.stop()


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    """Commands that reach their server through haproxy."""
    folder = tmp_path / "prosody"
    folder.mkdir()
    async with (
        Prosody(folder, accounts=ACCOUNTS, components=COMPONENTS) as server,
        behind(server.c2s_port, tmp_path / "c2s") as clients,
        behind(server.component_port, tmp_path / "component") as components,
    ):
        commands = Commands(tmp_path, clients, components)
        yield commands
        await commands.close()


async def test_what_is_idle_behind_haproxy_is_not_cut_and_gets_its_item(
    commands: Commands, tmp_path: Path
) -> None:
    """The worker, the service and the consumer each keep their connection alive."""
    users = commands.user_file()
    serving = await commands.serve("--amqp", "127.0.0.1:0", "--amqp-users", users)
    for node in NODES:
        made = await commands.run(
            *("queue", "create", SERVICE, node, "--set", "access_model=open"),
            user="alice",
        )
        assert made.status == 0, made.err
    worker = await commands.start(
        "worker", SERVICE, "orders", "--", "true", user="alice"
    )
    await worker.note("ready")
    (url,) = (line for line in serving.err if "amqp://" in line)
    async with behind(int(url.rpartition(":")[2]), tmp_path / "amqp") as port:
        taking = asyncio.create_task(asyncio.to_thread(take, port))
        await asyncio.sleep(IDLE_S)
        for node in NODES:
            published = await commands.run(
                *("queue", "publish", SERVICE, node, "--text", "x"), user="alice"
            )
            assert published.status == 0, published.err
        line = await worker.line()
        assert (line["outcome"], line["delivery_count"]) == ("accepted", 0)
        async with limit():
            assert await taking == published.out[0]["id"]
    for running in (worker, serving):
        running.process.terminate()
        ended = await running.end()
        assert (ended.status, ended.out) == (0, []), ended.err
        # Neither "trying again" nor "connected again".
        assert "again" not in ended.err
