"""The part of the contract of a queue store that is about clocks that were set."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from qos.core.queue.effects import (
    Change,
    NoteSeen,
    PurgeNode,
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
from qos.testing.queue_store_ended import QueueEndedContract
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
from qos.testing.store_faults import Copies, Fault, at_each_step, run

__all__ = ["QueueClockContract"]

#: The newest time in the store: when an item was locked.
_NEWEST = 1_800_000_000.5
_AT = _NEWEST - 100.0

_LOCKED = item(
    1,
    published_at=_AT,
    available_at=_AT,
    state=ItemState.ACQUIRED,
    holder="w@example.org/1",
    token="t",  # noqa: S106 - of a delivery
    locked_at=_NEWEST,
    deadline=_NEWEST + 30.0,
)
_CHANGES: tuple[Change, ...] = (
    SaveNode(node(created_at=_AT)),
    SaveSubscription(subscription("w@example.org/1", dormant_since=_AT)),
    SaveTerminus(terminus("w@example.org/2", until=_AT + 60.0)),
    SaveTerminus(terminus("w@example.org/3", until=None)),
    SaveItem(_LOCKED, "one"),
    SaveItem(
        item(
            2,
            published_at=_AT,
            available_at=_NEWEST + 5.0,
            expires_at=_NEWEST + 9.0,
            order=1,
        ),
        "two",
    ),
    SaveItem(
        archived_item(
            3, published_at=_AT, available_at=_AT, ended_at=_AT, forget_at=_NEWEST + 7.0
        ),
        "three",
    ),
    SaveEnded(ended_item(4, ended_at=_AT, forget_at=_AT + 600.0)),
    SaveItem(item(5, published_at=_AT, available_at=_AT, gen=1), "five"),
    PurgeNode(PurgedItems(node="jobs", gen=1, purged_at=_AT, forget_at=_AT + 600.0)),
    SavePushSubscriber(push_subscriber("pushed", created_at=_AT)),
    SavePushLink(push_link("pushed", 2, kept_at=_AT)),
)


class QueueClockContract(QueueEndedContract):
    """The tests of a store that is opened at a time that does not fit to its times."""

    @pytest.mark.parametrize(
        "now",
        [
            *(_NEWEST, _NEWEST + 60.0, _NEWEST + 360 * 86_400.0),
            *(12.0, _NEWEST - 0.25, _NEWEST - 5 * 3600.0, 4e9),
        ],
    )
    def test_all_times_move_with_a_clock_that_was_set(
        self, tmp_path: Path, now: float
    ) -> None:
        """A lock lasts as long as it would have, and no item is published twice."""
        model = _model()
        model.move(now)

        async def scenario() -> None:
            await self._fill(tmp_path)
            for again in (now, None, now + 60.0):
                if again is not None:
                    model.move(again)
                async with opened(store := self.new_store(tmp_path), again):
                    assert _shown(store) == model.state()
                    assert store.clock == model.clock
                    assert store.heard_at == model.heard_at

        run(scenario())

    def test_the_rule_is_that_of_the_core(self, tmp_path: Path) -> None:
        """In numbers: the lock has 30 seconds, and the end is as old as it was."""
        now = 12.0

        async def scenario() -> None:
            await self._fill(tmp_path)
            async with opened(store := self.new_store(tmp_path), now) as contents:
                locked, delayed = contents.items
                assert (locked.locked_at, locked.deadline) == (now, now + 30.0)
                assert (delayed.available_at, delayed.expires_at) == (17.0, 21.0)
                assert (delayed.locked_at, delayed.deadline) == (0.0, 0.0)
                (ended,) = store.ended("jobs", "id-4")
                assert (ended.ended_at, ended.forget_at) == (-88.0, 512.0)

        run(scenario())

    def test_a_clock_that_was_an_hour_behind_comes_back(self, tmp_path: Path) -> None:
        """No hour has passed for any item, and what passes from then on counts."""

        async def scenario() -> None:
            await self._fill(tmp_path)
            for ahead_s in (-7200.0, -3600.0, 0.0):
                store = self.new_store(tmp_path)
                async with opened(store, _NEWEST + ahead_s) as contents:
                    assert contents.items[0].locked_at == _NEWEST + ahead_s
                    assert store.clock.moved_s == ahead_s
            async with opened(self.new_store(tmp_path), _NEWEST + 60.0) as contents:
                assert contents.items[0].locked_at == _NEWEST

        run(scenario())

    def test_a_service_that_was_there_has_seen_time_pass(self, tmp_path: Path) -> None:
        """It notes that once a minute at least, so that idle time counts."""
        seen_at, heard_at = _NEWEST + 3600.0, _NEWEST + 300.0

        async def scenario() -> None:
            await self._fill(tmp_path)
            model = _model()
            async with opened(store := self.new_store(tmp_path)):
                await write(store, NoteSeen(seen_at, heard_at))
                model.apply(NoteSeen(seen_at, heard_at))
            for now in (12.0, 5.0, seen_at):
                model.move(now)
                async with opened(store := self.new_store(tmp_path), now) as contents:
                    assert contents.items[0].deadline == now - 3570.0
                    assert store.heard_at == model.heard_at == now - 3300.0
                    assert _shown(store) == model.state()

        run(scenario())

    def test_in_an_empty_store_no_time_moves(self, tmp_path: Path) -> None:
        """The first start may be in 1970, and the second too."""

        async def scenario() -> None:
            for now in (_NEWEST, 12.0, 3.0):
                async with opened(store := self.new_store(tmp_path), now):
                    assert _shown(store) == QueueModel().state()

        run(scenario())

    def test_a_process_that_dies_while_times_move_leaves_all_or_none(
        self, tmp_path: Path
    ) -> None:
        """With half of them moved, the rest would look as old as a clock can lie."""
        now = 12.0
        before, after = _model(), _model()
        after.move(now)

        async def scenario() -> None:
            (tmp_path / "live").mkdir()
            await self._fill(tmp_path / "live")
            store = self.new_store(tmp_path / "live")
            copies = Copies(tmp_path / "live", to=tmp_path / "left")
            self.watch(store, copies)
            async with opened(store, now):
                self.watch(store, lambda _step: None)
            for folder in sorted(copies.to.iterdir()):
                async with opened(store := self.new_store(folder)):
                    assert _shown(store) in (before.state(), after.state())
                async with opened(store := self.new_store(folder), now):
                    assert _shown(store) == after.state()

        run(scenario())

    def test_a_disk_that_fails_while_times_move_is_no_end(self, tmp_path: Path) -> None:
        """The next start moves all of them."""
        now = 12.0
        after = _model()
        after.move(now)

        async def fails_at(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            await self._fill(folder)
            store = self.new_store(folder)
            fault = Fault(step)
            self.watch(store, fault)
            with contextlib.suppress(StoreError):
                async with opened(store, now):
                    self.watch(store, lambda _step: None)
            async with opened(store := self.new_store(folder), now):
                assert _shown(store) == after.state()
            return fault.hit

        run(at_each_step(fails_at))

    async def _fill(self, folder: Path) -> None:
        async with opened(store := self.new_store(folder)):
            await write(store, *_CHANGES)


def _model() -> QueueModel:
    model = QueueModel()
    model.make(_CHANGES)
    return model


def _shown(store: QueueStore) -> State:
    return state_of(store, ["jobs"], [*(f"id-{seq}" for seq in range(9)), "pushed"])
