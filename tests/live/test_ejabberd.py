"""Messages and queues on ejabberd, and the class that runs it.

It takes some seconds to start, so each test proves a little more than its name says.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clients import LoginError, Tls, connected_client
from devices import NO_RETRY, component, device, exchange_all_levels
from qos.errors import RequestRefused
from qos.testing.ejabberd import Ejabberd, EjabberdError
from qos.testing.prosody import mutual
from qos.worker import Worker
from queue_service import served
from waiting import limit
from xep_0254 import XEP_0254, NewItem

QUEUE = "queue.localhost"
OTHER = "other.example"
NODE = "orders"
TLS: tuple[Tls, ...] = ("starttls", "direct")


def server_in(folder: Path) -> Ejabberd:
    """Names that Erlang would misread if they were not quoted."""
    return Ejabberd(
        folder,
        accounts={"alice": 'secret "of\\ älice', "bob": "secret of bob"},
        rosters=mutual(("alice", "bob")),
        components={QUEUE: "secret of queue"},
        tls=True,
        stanza_bytes_max=262_144,
    )


@pytest.fixture
async def ejabberd(tmp_path: Path) -> AsyncIterator[Ejabberd]:
    folder = tmp_path / "ejabberd"
    folder.mkdir()
    async with server_in(folder) as server:
        yield server


@contextlib.asynccontextmanager
async def working(server: Ejabberd, folder: Path) -> AsyncIterator[Worker]:
    """A queue service with a node and a worker."""
    async with (
        served(server, folder, jid=QUEUE),
        connected_client(server, "alice/boss", {"xep_0254": {}}, tls="direct") as alice,
        connected_client(server, "bob/bee", {"xep_0254": {}}, tls="direct") as bob,
    ):
        boss = XEP_0254.of(alice)
        await boss.create(
            QUEUE, NODE, {"pubsub#access_model": "open", "pubsub#publish_model": "open"}
        )
        await boss.publish(QUEUE, NODE, [NewItem("<x xmlns='urn:x'/>", "i")])
        async with Worker(bob, QUEUE, NODE) as worker:
            yield worker
        assert (await boss.stats(QUEUE, NODE))["accepted"] == 1


async def test_all_levels_and_a_queue_item_arrive_over_ejabberd(
    ejabberd: Ejabberd, tmp_path: Path
) -> None:
    """Results with one server only may depend on that server."""
    async with (
        device(ejabberd, "alice/a", smacks=True, tls="starttls", **NO_RETRY) as alice,
        device(ejabberd, "bob/b", tls="direct", **NO_RETRY) as bob,
    ):
        assert isinstance(alice.xmpp.socket, ssl.SSLObject)
        await exchange_all_levels(alice, bob, "bob@localhost/b", "alice@localhost/a")
        await exchange_all_levels(bob, alice, "alice@localhost/a", "bob@localhost/b")
    async with working(ejabberd, tmp_path) as worker:
        async with limit():
            job = await anext(worker)
        async with job:
            assert job.id == "i"
    # A login without TLS would prove nothing about TLS.
    ejabberd.ca_file = None
    for tls in TLS:
        with pytest.raises(LoginError):
            async with connected_client(ejabberd, "alice/a", tls=tls):
                pass


class Alone(Ejabberd):
    """ejabberd without s2s, which says so for an absent component."""

    def _config(self) -> dict[str, object]:
        return {**super()._config(), "s2s_access": "none"}


async def test_what_ejabberd_says_for_a_service_that_is_away_decides_nothing(
    tmp_path: Path,
) -> None:
    """Its `forbidden` is not from the service, which has the item and the lock."""
    folder = tmp_path / "ejabberd"
    folder.mkdir()
    accounts = {"bob": "secret of bob"}
    components = {QUEUE: "secret of queue"}
    async with (
        Alone(folder, accounts=accounts, components=components) as server,
        connected_client(server, "bob/bee", {"xep_0254": {}}) as bob,
    ):
        boss = XEP_0254.of(bob)
        with pytest.raises(RequestRefused) as caught:
            await boss.create(QUEUE, NODE)
        assert (caught.value.condition, caught.value.by) == ("forbidden", "")
        async with Worker(bob, QUEUE, NODE, grace_s=0) as worker:
            async with served(server, tmp_path, jid=QUEUE):
                await boss.create(QUEUE, NODE)
                await boss.publish(QUEUE, NODE, [NewItem("<x xmlns='urn:x'/>", "i")])
                async with limit():
                    job = await anext(worker)
            accepting = asyncio.create_task(job.accept())
            with pytest.raises(RequestRefused, match="forbidden"):
                await boss.stats(QUEUE, NODE)
            async with served(server, tmp_path, jid=QUEUE):
                async with limit():
                    await accepting
                assert (await boss.stats(QUEUE, NODE))["accepted"] == 1


async def test_each_component_of_ejabberd_gets_what_is_for_its_own_domain(
    tmp_path: Path,
) -> None:
    """Otherwise a second component could answer requests to the queue service."""
    folder = tmp_path / "ejabberd"
    folder.mkdir()
    accounts = {"bob": "secret of bob"}
    components = {QUEUE: "secret of queue", OTHER: "secret of other"}
    async with (
        Ejabberd(folder, accounts=accounts, components=components) as server,
        served(server, tmp_path, jid=QUEUE),
        component(server, OTHER),
        connected_client(server, "bob/boss", {"xep_0254": {}}) as bob,
    ):
        boss = XEP_0254.of(bob)
        await boss.create(QUEUE, NODE)
        for _ in range(20):
            await boss.stats(QUEUE, NODE)


async def test_a_killed_ejabberd_starts_again_and_no_other_takes_its_ports(
    ejabberd: Ejabberd, tmp_path: Path
) -> None:
    """The campaign kills it again and again, beside other tests."""
    await ejabberd.kill()
    await ejabberd.start()
    async with connected_client(ejabberd, "alice/a", tls="starttls") as alice:
        assert alice.client_roster["bob@localhost"]["subscription"] == "both"
    folder = tmp_path / "second"
    folder.mkdir()
    second = server_in(folder)
    second.c2s_port = ejabberd.c2s_port
    with pytest.raises(EjabberdError, match="ports"):
        await second.start()
    assert not second.running
    assert ejabberd.running


async def test_a_missing_ejabberd_is_a_failure_with_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EjabberdError, match=r"^ejabberd is not installed .*\.?$"):
        await server_in(tmp_path).start()
