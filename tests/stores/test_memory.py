from __future__ import annotations

from pathlib import Path

from qos.core.message.effects import Save
from qos.stores import MemoryStore, Store
from qos.testing.store_contract import StoreContract
from qos.testing.store_records import opened, outgoing


class TestContract(StoreContract):
    def new_store(self, folder: Path) -> Store:
        return MemoryStore()


async def test_a_write_is_done_when_it_returns() -> None:
    """There is nothing to wait for, and no event loop to wait in."""
    store: Store = MemoryStore()
    async with opened(store):
        assert store.write([Save(outgoing(1))]) is None
        assert list(store.outgoing()) == [outgoing(1)]
    assert not store.durable
