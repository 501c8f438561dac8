"""The contract of a store of a queue service, as tests that your own store can inherit.

::

    class TestMyQueueStore(QueueStoreContract):
        def new_store(self, folder: Path) -> QueueStore:
            return MyQueueStore(folder / "mine")

pytest then collects them. Needs pytest, and hypothesis as the contract of a store does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from qos.core.queue.effects import SaveItem, SaveNode
from qos.core.queue.item import ItemOutcome
from qos.errors import StoreError, StoreInUse
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_changes import Chance, check_reads
from qos.testing.queue_store_clocks import QueueClockContract
from qos.testing.queue_store_model import QueueModel
from qos.testing.queue_store_records import item, node, opened, write
from qos.testing.store_faults import run

__all__ = ["QueueStoreContract"]


class QueueStoreContract(QueueClockContract):
    """The tests. A subclass makes the store: see `new_store`."""

    def test_a_queue_service_takes_it_for_a_store(self, tmp_path: Path) -> None:
        """Before it is opened: it has every method and attribute of QueueStore."""
        assert isinstance(self.new_store(tmp_path), QueueStore)

    # -- writing -----------------------------------------------------------

    def test_writes_are_made_in_their_order(self, tmp_path: Path) -> None:
        """Even if nobody waits between them, and they share a commit."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(store, SaveItem(item(1), "x"))
                last: asyncio.Future[None] | None = None
                for count in range(300):
                    last = store.write([SaveItem(item(1, delivery_count=count))])
                    if count % 50 == 0:
                        await asyncio.sleep(0)
                assert last is not None
                await last
                assert store.contents().items == [item(1, delivery_count=299)]

        run(scenario())

    def test_what_is_written_at_once_shares_a_commit(self, tmp_path: Path) -> None:
        """A queue in which each item waits for the disk alone is worth nothing."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                writes = [
                    store.write([SaveItem(item(seq), "x")]) for seq in range(1, 200)
                ]
                assert len(set(writes)) == 1
                assert writes[0] is not None
                assert not writes[0].cancel()
                await writes[0]
                assert len(store.contents().items) == 199

        run(scenario())

    def test_what_was_written_is_there_when_the_store_is_closed_at_once(
        self, tmp_path: Path
    ) -> None:
        """Closing a store must not lose what was written before."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                commit = store.write([SaveItem(item(1), "x")])
            assert commit is not None
            assert commit.done()
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents.items == [item(1)]

        run(scenario())

    def test_nothing_is_written_by_no_changes(self, tmp_path: Path) -> None:
        """A write without changes ends at once."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                assert store.write([]) is None

        run(scenario())

    def test_a_writer_that_is_cancelled_takes_nobody_along(
        self, tmp_path: Path
    ) -> None:
        """The future is shared, and a task that waits for it may be cancelled."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                tasks = [
                    asyncio.create_task(write(store, SaveItem(item(seq), "x")))
                    for seq in (1, 2, 3)
                ]
                await asyncio.sleep(0)
                tasks[1].cancel()
                await asyncio.wait(tasks)
                assert tasks[0].exception() is None
                assert tasks[2].exception() is None
                assert store.contents().items == [item(seq) for seq in (1, 2, 3)]

        run(scenario())

    def test_the_journal_is_ahead_of_each_commit(self, tmp_path: Path) -> None:
        """Whenever the process dies, each change in the store is in the journal, too."""
        journal, unwritten = _Journal(), []

        def step(name: str) -> None:
            if journal.written == journal.ended:
                unwritten.append(name)

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                store.journal = journal
                self.watch(store, step)
                for seq in (1, 2):
                    await write(store, SaveItem(item(seq), "x"))
                self.watch(store, lambda _step: None)
            assert journal.wanted
            assert journal.written == journal.ended == 2
            assert unwritten == []

        run(scenario())

    # -- opening and closing -----------------------------------------------

    def test_a_store_has_an_id_for_its_life(self, tmp_path: Path) -> None:
        """A journal belongs to one store, and must not be taken for another's."""

        async def scenario() -> None:
            (tmp_path / "other").mkdir()
            ids = []
            for folder in (tmp_path, tmp_path, tmp_path / "other"):
                async with opened(store := self.new_store(folder)):
                    ids.append(store.store_id)
            assert all(ids)
            assert ids[0] == ids[1] != ids[2]

        run(scenario())

    def test_a_store_is_open_once(self, tmp_path: Path) -> None:
        """Two services would deliver every item twice."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                for candidate in (store, self.new_store(tmp_path)):
                    with pytest.raises(StoreInUse, match=candidate.url):
                        candidate.open()
                    await write(store, SaveItem(item(1), "x"))
                assert store.contents().items == [item(1)]
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
                    assert len(contents.items) == turn - 1
                    await write(store, SaveItem(item(turn), "x"))
                await store.close()

        run(scenario())

    def test_a_store_that_is_not_open_says_so(self, tmp_path: Path) -> None:
        """Before it is opened, and after: it must not look empty, nor accept anything."""
        accepted = ItemOutcome.ACCEPTED

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            uses: list[Callable[[], object]] = [
                lambda: store.write([SaveNode(node())]),
                store.contents,
                lambda: store.payloads([1]),
                lambda: store.ended("jobs", "a"),
                lambda: store.all_ended("jobs", ["a"]),
                lambda: store.settled("jobs", [("a", "t")]),
                lambda: store.archived("jobs", accepted, limit=1),
                lambda: store.count_archived("jobs", accepted, most=9),
                lambda: store.find_archived("jobs", "a", accepted),
                store.push_subscribers,
                lambda: store.push_links("a"),
            ]
            for _ in range(2):
                for use in uses:
                    with pytest.raises(StoreError, match="not open"):
                        use()
                with pytest.raises(StoreError, match="not open"):
                    await store.link_key()
                async with opened(store):
                    await write(store, SaveNode(node()))

        run(scenario())

    def test_the_key_of_links_is_made_once_and_kept(self, tmp_path: Path) -> None:
        """A link of before a restart is genuine, and no other store could have made it."""

        async def scenario() -> None:
            (tmp_path / "other").mkdir()
            keys: list[str] = []
            for folder in (tmp_path, tmp_path, tmp_path / "other"):
                async with opened(store := self.new_store(folder)):
                    # Beside a commit, which is in another turn of the same thread.
                    commit = store.write([SaveNode(node())])
                    keys += await asyncio.gather(store.link_key(), store.link_key())
                    assert commit is not None
                    await commit
            assert keys[0] == keys[1] == keys[2] == keys[3] != keys[4] == keys[5]
            assert all(len(bytes.fromhex(key)) >= 16 for key in keys)

        run(scenario())

    # -- against a model ---------------------------------------------------

    @pytest.mark.parametrize("seed", range(20))
    def test_it_does_what_dicts_would_do(self, tmp_path: Path, seed: int) -> None:
        """Random changes: visible at once, and after any number of restarts."""
        dice = random.Random(seed)  # noqa: S311 - nothing is secret
        chance, model = Chance(dice), QueueModel()

        async def one_life() -> None:
            async with opened(store := self.new_store(tmp_path)) as contents:
                assert contents == model.contents()
                check_reads(store, model)
                for _ in range(dice.randint(1, 5)):
                    await write(store, *chance.write(model))
                    check_reads(store, model)

        for _ in range(4):
            run(one_life())


class _Journal:
    """A journal that counts.

    Attributes:
        wanted: whether a commit was announced.
        written: how often the journal was written.
        ended: how many commits have ended.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.written = self.ended = 0

    def commit_wanted(self) -> None:
        """See Journal."""
        self.wanted = True

    def commit_begins(self) -> Callable[[], None]:
        """See Journal."""
        return self._write

    def _write(self) -> None:
        self.written += 1

    def commit_ended(self, *, idle: bool) -> None:
        """See Journal."""
        self.ended += not idle
