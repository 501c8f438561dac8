"""A queue service on a queue store of the application."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from slixmpp import ClientXMPP

from qos.engine.clock import LoopClock
from qos.stores.queue_store import SqliteQueueStore
from simulation.queue_store import QueueServiceDisk, SimulatedQueueStore
from xep_0254 import QueueService
from xep_qos import XEP_QOS


def new_store() -> SimulatedQueueStore:
    disk = QueueServiceDisk("own", lambda _change: None, lambda: None)
    clock = LoopClock(asyncio.get_running_loop())
    return SimulatedQueueStore(disk, clock, lambda: None)


async def test_a_service_opens_a_store_of_your_own_and_closes_it() -> None:
    """Its messages are in the store of xep_qos, which was there before."""
    client = ClientXMPP("queue@localhost/1", "secret")
    client.register_plugin("xep_qos", {"store": "memory:"})
    store = new_store()
    service = QueueService(client, store)
    assert store.disk.holder is service.engine.store is store
    await service.aclose()
    assert store.disk.holder is None
    await XEP_QOS.of(client).aclose()


async def test_without_xep_qos_the_url_of_the_store_must_name_one_of_messages() -> None:
    """Messages must not be kept somewhere else, or in memory, without a word."""
    client = ClientXMPP("queue@localhost/1", "secret")
    store = new_store()
    with pytest.raises(ValueError, match="sim:own-messages"):
        QueueService(client, store)
    assert store.disk.holder is None
    assert "xep_qos" not in client.plugin


async def test_messages_are_beside_a_store_in_sqlite(tmp_path: Path) -> None:
    """As if the URL had been given."""
    client = ClientXMPP("queue@localhost/1", "secret")
    service = QueueService(client, SqliteQueueStore(tmp_path / "queues.db"))
    assert XEP_QOS.of(client).store.url == f"sqlite:{tmp_path}/queues.db-messages"
    await service.aclose()
