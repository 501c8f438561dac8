"""The part of the contract of a queue store that is about its contents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import (
    Change,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    RemoveSubscription,
    RemoveTerminus,
    SaveEnded,
    SaveItem,
    SaveLock,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import ItemOutcome, ItemState
from qos.core.queue.push import (
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.errors import StoreError
from qos.testing.queue_store_faults import QueueFaultContract
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
from qos.testing.queue_store_state import state_of
from qos.testing.store_faults import run

__all__ = ["QueueReadContract"]


class QueueReadContract(QueueFaultContract):
    """The tests of what is in a store after changes, and after a restart."""

    # -- what is there -----------------------------------------------------

    def test_a_new_store_is_empty(self, tmp_path: Path) -> None:
        """A new store must not contain items that nobody published."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store) as contents:
                assert contents == store.contents() == QueueContents()
                assert store.payloads([1]) == {}
                assert store.ended("jobs", "id-1") == []
                assert store.all_ended("jobs", ["id-1"]) == {}
                assert store.settled("jobs", [("id-1", "token")]) == {}
                for outcome in ItemOutcome:
                    assert store.archived("jobs", outcome, limit=9) == []
                    assert store.count_archived("jobs", outcome, most=0) == 0
                    assert store.find_archived("jobs", "id-1", outcome) == []
                assert store.push_subscribers() == []
                assert store.push_links("pushed") == {}

        run(scenario())

    def test_what_was_written_is_there_after_a_restart(self, tmp_path: Path) -> None:
        """The purpose of a store: it is read in the order that the contract says."""
        nodes = [node("jobs", lifetime="delete-on-no-links"), node("a"), node("dead")]
        wishes = [subscription("w@b/2"), subscription("w@b/1")]
        links = [terminus("w@b/4"), terminus("w@b/3", until=None)]
        items = [item(2, annotations="wQA=", order=7), item(1, holder="w@b/1")]
        dead = archived_item(3, ItemOutcome.REJECTED)

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(
                    store,
                    *map(SaveNode, nodes),
                    *map(SaveSubscription, wishes),
                    *map(SaveTerminus, links),
                    *(SaveItem(entry, f"{entry.seq}") for entry in (*items, dead)),
                )
            again = self.new_store(tmp_path)
            async with opened(again) as contents:
                assert contents == QueueContents(
                    nodes=[nodes[1], nodes[2], nodes[0]],
                    subscriptions=[wishes[1], wishes[0]],
                    termini=[links[1], links[0]],
                    items=[items[1], items[0]],
                    dead={"jobs": 1},
                    next_seq=4,
                    next_order=8,
                )
                assert contents == again.contents()
                assert again.payloads([1, 2, 3, 4]) == {1: "1", 2: "2", 3: "3"}

        run(scenario())

    def test_saving_a_value_again_replaces_it(self, tmp_path: Path) -> None:
        """A step of an item is one item, not two; and its payload stays."""
        locked = item(1, state=ItemState.ACQUIRED, holder="w@b/1")
        moved = item(1, node="dead", item_id="other")

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, SaveItem(item(1), "one"))
                for step in (locked, item(1, delivery_count=1), moved):
                    await write(store, SaveItem(step))
                    assert store.contents().items == [step]
                    assert store.payloads([1]) == {1: "one"}
                narrow = replace(moved, state=ItemState.ACQUIRED, holder="w@b/2")
                await write(store, SaveLock(narrow))
                assert store.contents().items == [narrow]
                assert store.payloads([1]) == {1: "one"}
                await write(store, SaveItem(moved))
                await write(store, SaveItem(item(2), "two"), SaveItem(item(2, order=1)))
                assert store.contents().items == [moved, item(2, order=1)]
                for accepted in (1, 2):
                    saved = node(accepted=accepted)
                    wish = subscription("w@b/1", batch=accepted)
                    link = terminus("w@b/2", cursor=accepted)
                    await write(
                        store,
                        SaveNode(saved),
                        SaveSubscription(wish),
                        SaveTerminus(link),
                    )
                    contents = store.contents()
                    assert contents.nodes == [saved]
                    assert contents.subscriptions == [wish]
                    assert contents.termini == [link]

        run(scenario())

    def test_what_is_removed_is_gone(self, tmp_path: Path) -> None:
        """To remove what is not there, or the same twice, is not an error."""
        removals: list[Change] = [
            RemoveItem(1),
            RemoveSubscription("jobs", "w@b/1"),
            RemoveTerminus("w@b/2"),
            RemovePushLink("pushed", 1),
            RemovePushSubscriber("pushed"),
            RemoveNode("jobs", 0),
        ]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(
                    store,
                    SaveItem(item(1), "one"),
                    SaveSubscription(subscription("w@b/1")),
                    SaveTerminus(terminus("w@b/2")),
                    SavePushSubscriber(push_subscriber("pushed")),
                    SavePushLink(push_link("pushed", 1)),
                    SaveNode(node()),
                )
                for removal in (*removals, *removals):
                    await write(store, removal)
                while store.has_purged():
                    await write(store, RemovePurged(1))
                empty = QueueContents(next_seq=2)
                assert store.contents() == empty
                assert store.payloads([1]) == {}
                assert store.push_subscribers() == []
                assert store.push_links("pushed") == {}
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents == empty

        run(scenario())

    def test_with_a_node_goes_everything_in_it(self, tmp_path: Path) -> None:
        """A new node with this name must not find anything; other nodes keep theirs."""

        def of(name: str, number: int, gen: int = 0) -> list[Change]:
            jid = f"w@b/{number}"
            return [
                SaveNode(replace(node(name), gen=gen)),
                SaveSubscription(subscription(jid, node=name)),
                SaveTerminus(terminus(jid, node=name)),
                SaveItem(item(number, node=name, gen=gen), name),
                SaveItem(archived_item(number + 1, node=name, gen=gen), name),
                SaveEnded(ended_item(9, node=name, gen=gen)),
                SavePushSubscriber(push_subscriber(f"{number}", node=name)),
                SavePushLink(push_link(f"{number}", number)),
            ]

        async def scenario() -> None:
            names, ids = ("jobs", "others"), ("id-9", "1", "3")
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *of("others", 1))
                expected = state_of(store, names, ids)
                await write(store, *of("jobs", 3), RemoveNode("jobs", 0))
                await write(store, *of("jobs", 5, gen=1))
                await write(store, RemoveNode("jobs", 1))
                while store.has_purged():
                    await write(store, RemovePurged(3))
                state = state_of(store, names, ids)
                contents = replace(state.contents, next_seq=3)
                paged = replace(state.paged, next_seq=3)
                assert replace(state, contents=contents, paged=paged) == expected

        run(scenario())

    @pytest.mark.parametrize("count", [1, 9, 600])
    def test_items_are_changed_together_if_all_of_them_are_there(
        self, tmp_path: Path, count: int
    ) -> None:
        """A lost item must not return as an item without a payload."""
        items = [item(seq) for seq in range(1, count + 1)]
        locked = [replace(entry, holder="w@b/1") for entry in items]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *(SaveItem(entry, "x") for entry in items))
                await write(store, *map(SaveItem, locked))
                assert store.contents().items == locked
                await write(store, RemoveItem(count))
                with pytest.raises(StoreError):
                    await write(store, SaveNode(node()), *map(SaveItem, items))
                assert store.contents().items == locked[:-1]
                assert store.contents().nodes == []
                # The next one is made.
                await write(store, SaveNode(node()))
                assert store.contents().nodes == [node()]

        run(scenario())

    def test_a_seq_never_comes_back(self, tmp_path: Path) -> None:
        """Even after its item is gone: the seq orders the queue."""

        async def scenario() -> None:
            expected = 1
            for seq in (1, 2, 7):
                async with opened(self.new_store(tmp_path)) as contents:
                    assert contents.next_seq == expected
                    store = self.new_store(tmp_path)
                expected = seq + 1
                async with opened(store):
                    await write(store, SaveItem(item(seq), "x"))
                    await write(store, RemoveItem(seq))
                    assert store.contents().next_seq == expected

        run(scenario())

    @pytest.mark.parametrize("size", [0, 1, 2**20])
    def test_payloads_of_any_size(self, tmp_path: Path, size: int) -> None:
        """An empty payload is not the same as no payload."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(store, SaveItem(item(1), "é" * size))
            async with opened(store := self.new_store(tmp_path)):
                assert store.payloads([1]) == {1: "é" * size}

        run(scenario())

    def test_payloads_of_many_items_are_read_at_once(self, tmp_path: Path) -> None:
        """An event may carry many; those that are not there are left out."""

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                saved = [SaveItem(item(seq), f"{seq}") for seq in range(1, 1001)]
                await write(store, *saved)
                await write(store, RemoveItem(300))
                payloads = store.payloads(range(0, 2000, 3))
                seqs = [*range(3, 300, 3), *range(303, 1001, 3)]
                assert payloads == {seq: f"{seq}" for seq in seqs}

        run(scenario())
