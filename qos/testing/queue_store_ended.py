"""The part of the contract of a queue store that is about ended items, and about pushes."""

# ruff: noqa: S106 - tokens of deliveries
from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import (
    Change,
    ForgetOld,
    PurgeNode,
    RemoveNode,
    RemovePurged,
    SaveEnded,
    SaveItem,
    SaveNode,
)
from qos.core.queue.item import ItemOutcome, PurgedItems
from qos.core.queue.push import (
    LINK_S,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_reads import QueueReadContract
from qos.testing.queue_store_records import (
    archived_item,
    ended_item,
    item,
    node,
    opened,
    push_link,
    push_subscriber,
    write,
)
from qos.testing.queue_store_state import state_of
from qos.testing.store_faults import run

__all__ = ["QueueEndedContract"]


#: What the test of outdated rows writes, the oldest first: archived items, and ends.
_OLD_IDS = ("id-3", "id-2", "id-1", "id-7", "id-8")


class QueueEndedContract(QueueReadContract):
    """The tests of remembered ends, archived items, and push subscribers."""

    # -- items that have ended ---------------------------------------------

    def test_each_end_of_an_id_is_remembered(self, tmp_path: Path) -> None:
        """An id was used again, or its item was requeued."""
        first = ended_item(1, item_id="a", token="t1", ended_at=2.0)
        second = ended_item(2, item_id="a", token="t2", ended_at=3.0)
        other_ends = [
            ended_item(3, item_id="b", token="t1"),
            ended_item(4, item_id="a", token="t1", node="others"),
        ]
        silent = ended_item(5, item_id="c", outcome=None)
        again = replace(silent, forget_at=200.0)

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(
                    store, *map(SaveEnded, (first, second, *other_ends, silent))
                )
                # Both ended without a token.
                await write(store, SaveEnded(again))
            async with opened(store := self.new_store(tmp_path)):
                assert set(store.ended("jobs", "a")) == {first, second}
                assert store.ended("jobs", "c") == [again]
                answer = store.all_ended("jobs", ["a", "b", "none"])
                assert answer.keys() == {"a", "b"}
                assert answer["b"] == [other_ends[0]]
                tokens = [("a", "t2"), ("b", "t1"), ("b", "t2"), ("none", "t1")]
                found_settled = store.settled("jobs", tokens)
                assert found_settled == {"a": second, "b": other_ends[0]}

        run(scenario())

    def test_an_end_is_in_the_dedupe_window_or_not(self, tmp_path: Path) -> None:
        """The window of a node may be shorter than the end is remembered."""
        ends = [ended_item(seq, item_id="a", ended_at=float(seq)) for seq in (1, 2, 3)]

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(store, *map(SaveEnded, ends))
                for since in (0.5, 1.0, 2.9, 3.0):
                    recent = {end for end in ends if end.ended_at > since}
                    answer = store.all_ended("jobs", ["a"], since=since)
                    assert answer.keys() == ({"a"} if recent else set())
                    assert set(answer.get("a", [])) == recent

        run(scenario())

    def test_what_is_outdated_is_forgotten(self, tmp_path: Path) -> None:
        """A moment before its time it is there, and at its time it is not."""
        dead = archived_item(3, ItemOutcome.REJECTED)

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(
                    store,
                    SaveItem(item(1), "live"),
                    SaveItem(archived_item(2), "accepted"),
                    SaveItem(dead, "dead"),
                    SaveEnded(ended_item(4)),
                    SavePushLink(push_link("pushed", 1, kept_at=100.0 - LINK_S)),
                    SavePushLink(push_link("pushed", 2, kept_at=100.5 - LINK_S)),
                )
                before = state_of(store, ["jobs"], ["id-4", "pushed"])
                await write(store, ForgetOld(99.9, 9))
                assert state_of(store, ["jobs"], ["id-4", "pushed"]) == before
                assert not store.has_old(99.9)
                assert store.has_old(100.0)
                await write(store, ForgetOld(100.0, 9))
                assert not store.has_old(100.0)
            async with opened(store := self.new_store(tmp_path)):
                after = state_of(store, ["jobs"], ["id-4", "pushed"])
                assert after.contents.items == [item(1)]
                assert after.payloads == {1: "live", 3: "dead"}
                assert after.archived == {3: dead}
                assert after.ended == frozenset()
                assert after.push_links.keys() == {("pushed", 2)}

        run(scenario())

    def test_what_is_outdated_goes_in_slices_the_oldest_first(
        self, tmp_path: Path
    ) -> None:
        """Whoever is killed between two of them goes on where it was."""
        items = [archived_item(seq, forget_at=20.0 - seq) for seq in range(1, 4)]
        ends = [ended_item(9 - seq, forget_at=10.0) for seq in (1, 2)]
        links = [push_link("pushed", seq, kept_at=0.0) for seq in (1, 2)]
        rest = (
            SaveItem(archived_item(4, forget_at=LINK_S + 1.0), "rest"),
            SaveEnded(ended_item(9, forget_at=LINK_S + 1.0)),
            SavePushLink(push_link("pushed", 3, kept_at=1.0)),
        )
        fills: tuple[Change, ...] = (
            *rest,
            *(SaveItem(each, "x") for each in items),
            *map(SaveEnded, ends),
            *map(SavePushLink, links),
        )
        order = [*_OLD_IDS, 1, 2]

        async def goes(folder: Path, rows: int) -> None:
            async with opened(store := self.new_store(folder)):
                await write(store, *fills)
                assert _old_rows(store) == order
            removed = 0
            while removed < len(order):
                async with opened(store := self.new_store(folder)):
                    assert store.has_old(LINK_S)
                    await write(store, ForgetOld(LINK_S, rows))
                    removed = min(removed + rows, len(order))
                    assert _old_rows(store) == order[removed:]
            async with opened(store := self.new_store(folder)):
                assert not store.has_old(LINK_S)
                await write(store, ForgetOld(LINK_S, rows))
                assert store.payloads([4]) == {4: "rest"}
                assert len(store.ended("jobs", "id-9")) == 1
                assert store.push_links("pushed").keys() == {3}

        async def scenario() -> None:
            for rows in (1, 2, 4, 9):
                folder = tmp_path / str(rows)
                folder.mkdir()
                await goes(folder, rows)

        run(scenario())

    def test_an_archive_is_read_by_page(self, tmp_path: Path) -> None:
        """In the order of publishing, each page beginning after the last."""
        accepted = [archived_item(seq, item_id=f"id-{seq % 2}") for seq in (1, 2, 5, 8)]
        other_items = [
            archived_item(3, ItemOutcome.REJECTED),
            archived_item(4, node="others"),
            item(6, outcome=ItemOutcome.ACCEPTED),
        ]
        outdated = archived_item(7, forget_at=50.0)

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                items = [*reversed(accepted), *other_items, outdated]
                await write(
                    store,
                    SaveNode(node()),
                    *(SaveItem(entry, "x") for entry in items),
                )

                def page(after: int, limit: int) -> list[int]:
                    entries = store.archived(
                        "jobs", ItemOutcome.ACCEPTED, after=after, limit=limit, now=50.0
                    )
                    return [entry.seq for entry in entries]

                assert [page(0, 3), page(5, 3), page(8, 3)] == [[1, 2, 5], [8], []]
                count = partial(store.count_archived, "jobs", ItemOutcome.ACCEPTED)
                assert count(most=5, now=50.0) == 4
                assert count(most=5, now=49.0) == count(most=5) == 5
                assert count(most=4, now=49.0) is count(most=4, now=50.0) is None
                matches = store.find_archived("jobs", "id-0", ItemOutcome.ACCEPTED)
                assert matches == [accepted[1], accepted[3]]
                assert store.contents().dead == {"jobs": 1}

        run(scenario())

    def test_purged_items_are_ends_and_go_in_slices(self, tmp_path: Path) -> None:
        """Nobody sees whether their rows are still there, but for their payloads."""
        purged = PurgedItems(node="jobs", gen=3, purged_at=5.0, forget_at=900.0)
        live = [item(seq, gen=3) for seq in range(1, 6)]
        dead = archived_item(6, ItemOutcome.REJECTED, gen=3)
        accepted = archived_item(7, gen=3)
        rest = [item(8, gen=4), item(9, node="others", gen=3)]
        ends = {entry.item_id: [purged.end_of(entry)] for entry in live}

        def check(store: QueueStore) -> None:
            contents = store.contents()
            assert (contents.items, contents.dead) == (rest, {})
            ids = [f"id-{seq}" for seq in range(1, 10)]
            assert store.all_ended("jobs", ids) == ends
            assert store.all_ended("jobs", ids, since=5.0) == {}
            for outcome, entries in (
                (accepted.outcome, [accepted]),
                (dead.outcome, []),
            ):
                assert outcome is not None
                assert store.archived("jobs", outcome, limit=9) == entries
                assert store.count_archived("jobs", outcome, most=9) == len(entries)
                assert store.find_archived("jobs", "id-7", outcome) == entries
                assert store.find_archived("jobs", "id-6", outcome) == []

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                items = (*live, dead, accepted, *rest)
                await write(store, *(SaveItem(entry, "x") for entry in items))
                assert not store.has_purged()
                await write(store, PurgeNode(purged))
            rows = [9]
            purging = True
            while purging:
                async with opened(store := self.new_store(tmp_path)):
                    check(store)
                    await write(store, RemovePurged(2))
                    rows.append(len(store.payloads(range(10))))
                    assert 0 <= rows[-2] - rows[-1] <= 2
                    check(store)
                    purging = store.has_purged()
            assert rows[-1] == 3

        run(scenario())

    def test_items_and_ends_of_a_deleted_node_go_in_slices(
        self, tmp_path: Path
    ) -> None:
        """A new node of this name has none of them, however many are still there."""
        before = [item(seq, gen=seq % 2) for seq in range(1, 4)]
        before += [archived_item(4), archived_item(5, ItemOutcome.REJECTED, gen=1)]
        ends = [ended_item(6), ended_item(7, gen=1), ended_item(7, token="t")]
        # Of the new node; the second has come as a dead letter, with an old seq.
        live = [item(2, gen=2), item(9, gen=2), item(10, node="others")]
        again = ended_item(9, item_id="id-6", gen=2)
        dead = archived_item(8, ItemOutcome.REJECTED, gen=2)
        ids = [f"id-{seq}" for seq in range(1, 11)]

        def check(store: QueueStore) -> None:
            contents = store.contents()
            assert (contents.items, contents.dead) == (live, {"jobs": 1})
            assert contents.next_gen == (2 if store.has_purged() else 0)
            assert store.all_ended("jobs", ids) == {"id-6": [again]}
            assert store.settled("jobs", [("id-7", "t"), ("id-7", "")]) == {}
            for outcome, seqs in ((ItemOutcome.ACCEPTED, []), (dead.outcome, [8])):
                assert outcome is not None
                page = store.archived("jobs", outcome, limit=9)
                assert [entry.seq for entry in page] == seqs
                assert store.count_archived("jobs", outcome, most=9) == len(seqs)
            assert not store.find_archived("jobs", "id-4", ItemOutcome.ACCEPTED)
            assert not store.find_archived("jobs", "id-5", ItemOutcome.REJECTED)

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                await write(store, *(SaveItem(entry, "x") for entry in before))
                await write(store, *map(SaveEnded, ends), SaveNode(node()))
                await write(store, RemoveNode("jobs", 1))
                assert store.contents() == QueueContents(next_seq=6, next_gen=2)
                items = (*live, dead)
                await write(store, *(SaveItem(entry, "y") for entry in items))
                await write(store, SaveEnded(again), SaveNode(node(gen=2)))
            rows, purging = [8], True
            while purging:
                async with opened(store := self.new_store(tmp_path)):
                    check(store)
                    await write(store, RemovePurged(2))
                    rows.append(len(store.payloads(range(11))))
                    assert 0 <= rows[-2] - rows[-1] <= 2
                    check(store)
                    purging = store.has_purged()
            assert rows[-1] == len((*live, dead))
            assert len(rows) > 5

        run(scenario())

    # -- push --------------------------------------------------------------

    def test_push_subscribers_come_oldest_first_and_have_links(
        self, tmp_path: Path
    ) -> None:
        """A message that was posted before a crash may be known to its target."""
        subscribers = [
            push_subscriber("b", created_at=2.0),
            push_subscriber("c", created_at=1.0, enabled=False, reason="gone"),
            push_subscriber("a", created_at=3.0, disable_on_failure=True),
        ]
        links = [push_link("b", 1), push_link("b", 2), push_link("a", 1)]
        newer = push_link("b", 2, url="https://example.org/newer")

        async def scenario() -> None:
            async with opened(store := self.new_store(tmp_path)):
                saved = map(SavePushSubscriber, subscribers)
                await write(store, *saved, *map(SavePushLink, (*links, newer)))
            async with opened(store := self.new_store(tmp_path)):
                oldest = [subscribers[1], subscribers[0], subscribers[2]]
                assert store.push_subscribers() == oldest
                assert store.push_links("b") == {1: links[0], 2: newer}
                await write(store, RemovePushLink("b", 1))
                assert store.push_links("b") == {2: newer}
                await write(store, RemovePushSubscriber("b"))
                assert store.push_links("b") == {}
                assert store.push_links("a") == {1: links[2]}
                assert store.push_subscribers() == [subscribers[1], subscribers[2]]

        run(scenario())


def _old_rows(store: QueueStore) -> list[object]:
    """The ids of _OLD_IDS, and the seqs of links of pushes, that the store still has."""
    archive = store.archived("jobs", ItemOutcome.ACCEPTED, limit=9)
    # With an archived item goes its payload.
    seqs = {archived.seq for archived in archive}
    assert store.payloads([1, 2, 3]).keys() == seqs - {4}
    ids = {archived.item_id for archived in archive}
    ids |= store.all_ended("jobs", ["id-7", "id-8"]).keys()
    links = store.push_links("pushed").keys() & {1, 2}
    return [*(item_id for item_id in _OLD_IDS if item_id in ids), *sorted(links)]
