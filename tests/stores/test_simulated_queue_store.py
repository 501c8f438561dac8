"""The queue store of the simulation keeps the contract, as far as a disk in memory can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from qos.core.queue.effects import Change, SaveItem
from qos.errors import StoreError
from qos.stores.durable_store import disk_error
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_contract import QueueStoreContract
from qos.testing.queue_store_model import QueueModel
from qos.testing.store_faults import Copies, Probe
from simulation.queue_disk import QueueDisk
from simulation.queue_store import QueueServiceDisk, SimulatedQueueStore


class TestContract(QueueStoreContract):
    """A step is a commit. The disk is in no folder, so no copy of it can be made."""

    disks: dict[Path, QueueServiceDisk]

    @pytest.fixture(autouse=True)
    def _new_disks(self) -> None:
        self.disks = {}

    def new_store(self, folder: Path) -> QueueStore:
        disk = self.disks.setdefault(folder, AnyDisk(str(folder)))
        return SimulatedQueueStore(disk, RunningClock(), lambda: None)

    def watch(self, store: QueueStore, probe: Probe) -> None:
        assert isinstance(store, SimulatedQueueStore)
        if isinstance(probe, Copies):
            return

        def fails(_commit: int) -> StoreError | None:
            try:
                probe("commit")
            except OSError as error:
                return disk_error(store.url, error)
            return None

        store.disk.fails = fails


class AnyDisk(QueueServiceDisk):
    """A disk that takes any changes, also those that no service would make."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda _change: None, lambda: None)
        self.kept = AnyChanges()

    def refusal(self, changes: Sequence[Change]) -> StoreError | None:
        """A change of an item that is not there."""
        after = QueueModel(items=dict(self.kept.items))
        for change in changes:
            match change:
                case SaveItem(item, None) if item.seq not in after.items:
                    return StoreError(f"sim:{self.name}", "there is no such item")
            after.apply(change)
        return None


class AnyChanges(QueueDisk):
    """The contents of such a disk."""

    def apply(self, change: Change) -> None:
        """See QueueModel."""
        QueueModel.apply(self, change)


class RunningClock:
    """The clock of the loop that runs."""

    def now(self) -> float:
        """See Clock."""
        return asyncio.get_running_loop().time()

    def call_at(
        self, when: float, callback: Callable[[], object]
    ) -> asyncio.TimerHandle:
        """See Clock."""
        return asyncio.get_running_loop().call_at(when, callback)
