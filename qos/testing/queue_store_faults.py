"""The part of the contract of a queue store that is about failing and dying at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    PurgeNode,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import ItemState, PurgedItems
from qos.core.queue.push import SavePushLink, SavePushSubscriber
from qos.errors import StoreError
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_model import QueueModel
from qos.testing.queue_store_records import (
    archived_item,
    ended_item,
    item,
    node,
    opened,
    push_link,
    push_subscriber,
    subscription,
    terminus,
    write,
)
from qos.testing.queue_store_state import State, state_of
from qos.testing.store_faults import Copies, Fault, Probe, at_each_step, run

__all__ = ["QueueFaultContract"]

_IDS = (*(f"id-{seq}" for seq in range(100)), "pushed")
_AFTERWARDS = SaveItem(item(99, gen=1), "afterwards")


class QueueFaultContract:
    """The tests of a write that fails, and of a process that dies in it."""

    def new_store(self, folder: Path) -> QueueStore:
        """A store that is not open yet and keeps its data in this folder.

        Another call with the same folder returns another store for the same data.
        """
        raise NotImplementedError

    def watch(self, store: QueueStore, probe: Probe) -> None:
        """Call `probe` before each step on the disk, in the thread that makes the step.

        If it raises an OSError, the step must fail with that error. A store without
        such a hook does nothing here; the tests that need it then pass.
        """
        if hasattr(store, "probe"):
            store.probe = probe

    #: The contents before, and one write to them: all of it must be there, or none.
    BEFORE: Sequence[Change] = (
        SaveNode(node()),
        SaveSubscription(subscription("w@example.org/1")),
        SaveTerminus(terminus("w@example.org/2")),
        SaveItem(item(1), "one"),
        SaveItem(item(2), "two"),
        SaveItem(archived_item(3), "three"),
        SaveEnded(ended_item(4)),
        SavePushSubscriber(push_subscriber("pushed")),
        SavePushLink(push_link("pushed", 2)),
    )
    CHANGES: Sequence[Sequence[Change]] = (
        [SaveItem(item(5), "five")],
        [SaveItem(item(1, state=ItemState.ACQUIRED, holder="w@example.org/1"))],
        [RemoveItem(1), SaveEnded(ended_item(1))],
        [ForgetOld(100.0, 1)],
        [ForgetOld(100.0, 9)],
        [RemoveNode("jobs", 0)],
        [RemoveNode("jobs", 0), RemovePurged(2), RemovePurged(2), RemovePurged(2)],
        [PurgeNode(PurgedItems(node="jobs", gen=0, purged_at=3.0, forget_at=9.0))],
        [
            PurgeNode(PurgedItems(node="jobs", gen=0, purged_at=3.0, forget_at=9.0)),
            SaveNode(replace(node(), gen=1)),
            SaveItem(item(5, gen=1), "five"),
            RemovePurged(2),
        ],
        [
            SaveItem(item(5), "five"),
            SaveItem(item(2, state=ItemState.ACQUIRED, holder="w@example.org/1")),
            RemoveItem(1),
            SaveEnded(ended_item(1)),
            SaveNode(replace(node(), accepted=1)),
            SavePushLink(push_link("pushed", 5)),
        ],
    )

    @pytest.mark.parametrize("changes", CHANGES)
    def test_a_write_that_fails_at_any_step_changes_nothing(
        self, tmp_path: Path, changes: Sequence[Change]
    ) -> None:
        """The disk is full for one step; then there is space again."""

        async def fails_at(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            store, expected = self.new_store(folder), QueueModel()
            fault = Fault(step)
            async with opened(store):
                await write(store, *self.BEFORE)
                expected.make(self.BEFORE)
                self.watch(store, fault)
                for batch in (changes, [_AFTERWARDS]):
                    message = store.url
                    try:
                        await write(store, *batch)
                    except StoreError as error:
                        message = str(error)
                    else:
                        expected.make(batch)
                    assert store.url in message
                    assert _shown(store) == expected.state()
            again = self.new_store(folder)
            async with opened(again):
                assert _shown(again) == expected.state()
            return fault.hit

        run(at_each_step(fails_at))

    @pytest.mark.parametrize("changes", CHANGES)
    def test_a_process_that_dies_at_any_step_leaves_all_or_none(
        self, tmp_path: Path, changes: Sequence[Change]
    ) -> None:
        """Even if the next process dies during its recovery."""
        model = QueueModel()
        model.make(self.BEFORE)
        before = model.state()
        model.make(changes)
        after = model.state()

        async def survives(copies: Copies, *, then_dies: bool) -> None:
            for folder in sorted(copies.to.iterdir()):
                store = self.new_store(folder)
                again = Copies(
                    folder, to=copies.to.with_name(f"{copies.to.name}-{folder.name}")
                )
                if then_dies:
                    self.watch(store, again)
                async with opened(store):
                    assert _shown(store) in (before, after)
                    self.watch(store, lambda _step: None)
                    await write(store, _AFTERWARDS)
                async with opened(self.new_store(folder)) as contents:
                    assert item(99, gen=1) in contents.items
                if then_dies:
                    await survives(again, then_dies=False)

        async def scenario() -> None:
            (tmp_path / "live").mkdir()
            store = self.new_store(tmp_path / "live")
            copies = Copies(tmp_path / "live", to=tmp_path / "left")
            async with opened(store):
                await write(store, *self.BEFORE)
                self.watch(store, copies)
                await write(store, *changes)
            await survives(copies, then_dies=True)

        run(scenario())


def _shown(store: QueueStore) -> State:
    return state_of(store, ("jobs",), _IDS)
