"""The part of the contract of a store that is about writing, opening and closing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qos.core.message.effects import End, Save
from qos.errors import StoreError, StoreInUse
from qos.stores.base import ForgetEnded
from qos.testing.store_clocks import ClockContract
from qos.testing.store_faults import run
from qos.testing.store_records import ended, opened, outgoing, write

__all__ = ["UseContract"]


class UseContract(ClockContract):
    """The tests of commits, and of a store that is opened, open or closed."""

    # -- writing -----------------------------------------------------------

    def test_writes_are_made_in_their_order(self, tmp_path: Path) -> None:
        """Even if nobody waits between them, and they share a commit."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                last: asyncio.Future[None] | None = None
                for attempt in range(300):
                    last = store.write([Save(outgoing(1, attempts=attempt))])
                    if attempt % 50 == 0:
                        await asyncio.sleep(0)
                if last is not None:
                    await last
                assert list(store.outgoing()) == [outgoing(1, attempts=299)]

        run(scenario())

    def test_what_was_written_is_there_when_the_store_is_closed_at_once(
        self, tmp_path: Path
    ) -> None:
        """Closing a store must not lose what was written before."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                commit = store.write([Save(outgoing(1))])
            assert commit is None or commit.done()
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents.outbox_messages == int(store.durable)

        run(scenario())

    def test_nothing_is_written_by_no_changes(self, tmp_path: Path) -> None:
        """A write without changes ends at once."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                assert store.write([]) is None

        run(scenario())

    def test_a_writer_that_is_cancelled_takes_nobody_along(
        self, tmp_path: Path
    ) -> None:
        """The future is shared, and a task that waits for it may be cancelled."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                tasks = [
                    asyncio.create_task(write(store, Save(outgoing(seq))))
                    for seq in (1, 2, 3)
                ]
                await asyncio.sleep(0)
                tasks[1].cancel()
                await asyncio.wait(tasks)
                assert tasks[0].exception() is None
                assert tasks[2].exception() is None
                assert list(store.outgoing()) == [outgoing(seq) for seq in (1, 2, 3)]

        run(scenario())

    # -- opening and closing -----------------------------------------------

    def test_a_store_has_an_id_for_its_life(self, tmp_path: Path) -> None:
        """A peer sees from it whether our store is still the same."""

        async def scenario() -> None:
            stores = [self.new_store(tmp_path), self.new_store(tmp_path)]
            (tmp_path / "other").mkdir()
            stores.append(self.new_store(tmp_path / "other"))
            ids = []
            for store in stores:
                async with opened(store):
                    ids.append(store.store_id)
            assert all(ids)
            assert (ids[0] == ids[1]) is stores[0].durable
            assert ids[0] != ids[2]

        run(scenario())

    def test_a_store_is_open_once(self, tmp_path: Path) -> None:
        """Two engines on one store would send everything twice."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                with pytest.raises(StoreInUse, match=store.url):
                    store.open()
                await write(store, Save(outgoing(1)))
                if store.durable:
                    second = self.new_store(tmp_path)
                    with pytest.raises(StoreInUse, match=second.url):
                        second.open()
                await write(store, Save(outgoing(2)))
                assert len(list(store.outgoing())) == 2
            async with opened(self.new_store(tmp_path)):
                pass

        run(scenario())

    def test_a_store_may_be_opened_again(self, tmp_path: Path) -> None:
        """Closing it twice, or before it was opened, is harmless."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            await store.close()
            for turn in (1, 2):
                async with opened(store) as contents:
                    assert contents.outbox_messages == (turn - 1) * store.durable
                    await write(store, Save(outgoing(turn)))
                await store.close()

        run(scenario())

    def test_a_store_that_is_not_open_says_so(self, tmp_path: Path) -> None:
        """A closed store must not look empty, nor accept what it would not keep."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(outgoing(1)))
            uses: list[Callable[[], object]] = [
                lambda: store.write([Save(outgoing(2))]),
                lambda: store.queued("a@b", after=0, limit=1),
                lambda: store.expiring(1.0, limit=1),
                store.next_expiry,
                lambda: list(store.outgoing()),
                lambda: store.find_outgoing("msg-1"),
                lambda: list(store.ended()),
                lambda: store.find_ended("msg-1"),
                lambda: list(store.incoming()),
            ]
            for use in uses:
                with pytest.raises(StoreError, match="not open"):
                    use()

        run(scenario())

    def test_of_two_ends_of_a_message_in_one_commit_the_last_counts(
        self, tmp_path: Path
    ) -> None:
        """Even if the first end is old enough to be forgotten in that commit."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            again = ended(1, ended_at=2.0)
            async with opened(store):
                await write(store, End(ended(1, ended_at=0.0)))
                await write(store, End(again), ForgetEnded(before=1.0, below=0))
                assert list(store.ended()) == [again]
            async with opened(store):
                assert list(store.ended()) == ([again] if store.durable else [])

        run(scenario())
