"""The queue store in SQLite keeps the contract, through any changes and any crash."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest

from killed_runs import Runs
from qos.core.queue.effects import Change
from qos.stores import sqlite_changes
from qos.stores.queue_base import QueueStore
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.queue_store_changes import IDS, NODES, Chance
from qos.testing.queue_store_contract import QueueStoreContract
from qos.testing.queue_store_model import QueueModel
from qos.testing.queue_store_records import opened, write
from qos.testing.queue_store_state import state_of
from qos.testing.store_faults import Probe
from row_probes import probe_rows

TABLES = (
    "node",
    "subscription",
    "terminus",
    "item",
    "item_payload",
    "ended",
    "purged",
    "push_subscriber",
    "push_link",
)


@pytest.mark.timeout(240)
class TestContract(QueueStoreContract):
    """The steps are the commit, and before and after each row that it changes."""

    @pytest.fixture
    def tmp_path(self, ram_path: Path) -> Path:
        """In memory, if the system has one: no test waits for a disk."""
        return ram_path

    def new_store(self, folder: Path) -> QueueStore:
        return SqliteQueueStore(folder / "store.db")

    def watch(self, store: QueueStore, probe: Probe) -> None:
        assert isinstance(store, SqliteQueueStore)
        store.probe = probe
        if store._writer is not None:
            probe_rows(store._writer, TABLES, probe)


@pytest.mark.timeout(240)
class TestContractOfGreatCommits(TestContract):
    """A commit with more changes than fit into one statement has several statements."""

    @pytest.fixture(autouse=True)
    def _small_statements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_changes, "_ROWS_MAX", 2)


@pytest.mark.parametrize("seed", range(5))
def test_an_item_is_found_by_its_seq_in_any_state(ram_path: Path, seed: int) -> None:
    """Also one that no question of a service would find."""
    chance, model = Chance(random.Random(seed)), QueueModel()

    async def scenario() -> None:
        async with opened(store := SqliteQueueStore(ram_path / "store.db")):
            for _ in range(10):
                await write(store, *chance.write(model))
            seqs = range(model.last_seq + 2)
            found = {seq: each for seq in seqs if (each := store.get(seq))}
            assert found == model.items

    asyncio.run(scenario())


# -- any death --------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_killed_at_the_nth_step_for_growing_n(ram_path: Path) -> None:
    """Of a write all or nothing is there, and everything acknowledged is there."""
    chance, model = Chance(random.Random("queue 4")), QueueModel()
    writes: list[Sequence[Change]] = []
    states = [deepcopy(model.state())]
    for _ in range(6):
        writes.append(chance.write(model))
        states.append(deepcopy(model.state()))
    # Otherwise a state would not say how many writes there were.
    assert all(states.count(state) == 1 for state in states)
    step, alive, seen = 0, False, set()

    async def written() -> int:
        """How many of the writes are in the store."""
        async with opened(store := SqliteQueueStore(folder / "store.db")):
            there = state_of(store, NODES, IDS)
            return max(n for n, state in enumerate(states) if state == there)

    with Runs(Path(__file__).with_name("crashing_queue_writer.py")) as writer:
        while not alive:
            folder = ram_path / str(step)
            folder.mkdir()
            (folder / "writes").write_bytes(pickle.dumps(writes))
            alive = writer.survives(folder, step)
            acks = folder / "acks"
            acknowledged = acks.stat().st_size if acks.exists() else 0
            count = asyncio.run(written())
            assert count >= acknowledged
            seen.add(count)
            step += 1
    # The writes that were made at once shared a commit.
    assert seen == {0, 1, len(writes)}
    assert step > 40
