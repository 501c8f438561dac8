"""Deliberate faults in what a queue service writes of locks, purges and old rows; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["ROWS"]

_OWNERS = "core/queue/test_owners.py::"
_ENGINE = "engine/test_queue_engine.py::"
_JOURNAL = "engine/test_queue_journal.py::"
_STORES = "stores/test_queue_store.py::TestContract::"
_OLD = "test_what_is_old_goes_some_rows_in_a_commit_until_nothing_is"
_DELETED = "test_items_and_ends_of_a_deleted_node_go_in_slices"
_SLICES = "test_what_is_outdated_goes_in_slices_the_oldest_first"

ROWS = (
    Mutant(
        "take-over-is-written-as-a-lock",
        "qos.core.queue.deliveries",
        "SaveItem(after, before=item))\n        return effects\n\n    def unheard",
        "SaveLock(after, before=item))\n        return effects\n\n    def unheard",
        "The place of an item in the order is on disk: a lock alone does not write it.",
        test=(
            "core/queue/test_subscribe.py::"
            "test_a_new_worker_takes_over_the_durable_locks_of_one_that_is_gone"
        ),
    ),
    Mutant(
        "lock-writes-the-whole-row",
        "qos.stores.queue_rows",
        "if item.seq not in new and item.seq not in stepped:",
        "if item.seq < 0:",
        "A lock leaves the indices of the items alone.",
        test=(
            "stores/test_queue_file.py::test_a_lock_leaves_the_indices_of_items_alone"
        ),
    ),
    Mutant(
        "purge-goes-by-the-numbers-of-items",
        "qos.core.queue.item_lifecycle",
        "        gen=node.gen,\n        item_id=item_id,",
        "        item_id=item_id,",
        "A dead letter and a requeued item, which keep their numbers, are of the node as "
        "it is.",
        test=(
            f"{_OWNERS}test_what_comes_after_a_purge_is_there_whatever_it_was_before"
        ),
    ),
    Mutant(
        "a-purge-forgets-its-ids",
        "qos.stores.queue_purges",
        'seq IN {_THESE}"\n    db.execute(',
        'seq IN {_THESE} AND FALSE"\n    db.execute(',
        "A purged item is a remembered end, also when its row is gone.",
        test=f"{_STORES}test_purged_items_are_ends_and_go_in_slices",
    ),
    Mutant(
        "a-purge-forgets-its-ids-until-their-rows-go",
        "qos.stores.queue_store",
        " AND item.node = ? AND item_id IN ({marks}) AND purged_at > ?",
        " AND item.node = ? AND item_id IN ({marks}) AND purged_at > ? AND FALSE",
        "A purged item is a remembered end from the moment of the purge.",
        test=f"{_STORES}test_purged_items_are_ends_and_go_in_slices",
    ),
    Mutant(
        "a-purge-on-its-way-forgets-its-ids",
        "qos.engine.pending_ended",
        "                ends.append(purge.purged.end_of(item))\n",
        "                purge.purged.end_of(item)\n",
        "A purge that is being written is decided.",
        test=f"{_ENGINE}test_a_purge_is_one_commit_and_its_rows_go_in_later_ones",
    ),
    Mutant(
        "purged-items-are-back-after-a-start",
        "qos.stores.queue_store",
        "f\"WHERE state <> 'archived' AND {SHOWN} ORDER BY seq\"",
        "\"WHERE state <> 'archived' ORDER BY seq\"",
        "A purge holds for every read, though the rows are there.",
        test=f"{_ENGINE}test_what_was_purged_is_removed_after_a_restart_too",
    ),
    Mutant(
        "a-purge-stops-with-its-process",
        "qos.engine.queue_commit",
        "self._has_purged |= self._store.has_purged()",
        "pass",
        "Rows of purged items are removed after a restart too.",
        test=f"{_ENGINE}test_what_was_purged_is_removed_after_a_restart_too",
    ),
    Mutant(
        "a-purge-takes-what-is-kept",
        "qos.stores.queue_purges",
        'if item_gen == gen and outcome != "accepted"',
        "if item_gen == gen",
        "Accepted items are kept for their time, whatever is purged.",
        test=f"{_STORES}test_purged_items_are_ends_and_go_in_slices",
    ),
    Mutant(
        "deleted-items-are-back",
        "qos.stores.queue_purges",
        "WHERE {_IS_PURGED}) AND {_is_not_deleted('item')}\"",
        'WHERE {_IS_PURGED})"',
        "A delete holds for every read, though the rows are there.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-new-node-knows-the-ends-of-a-deleted-one",
        "qos.stores.queue_purges",
        'SHOWN_ENDS: Final = _is_not_deleted("ended")',
        'SHOWN_ENDS: Final = "TRUE"',
        "A delete holds for remembered ends too.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-delete-takes-items-of-the-new-node",
        "qos.stores.queue_purges",
        "for _, seq, item_gen, _, _ in items if item_gen <= gen",
        "for _, seq, item_gen, _, _ in items",
        "Only what was there when the node was deleted goes.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-delete-takes-ends-of-the-new-node",
        "qos.stores.queue_purges",
        "for *key, end_gen in ends if end_gen <= gen",
        "for *key, end_gen in ends",
        "Only what was remembered when the node was deleted goes.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-delete-leaves-the-ends",
        "qos.stores.queue_purges",
        "        ends_next = len(items) < limit\n",
        "        ends_next = len(items) < limit\n        if ends_next:\n            "
        'db.execute("DELETE FROM deleted WHERE node = ?", (node,))\n',
        "The ends of a deleted node are hidden until the last of them is gone.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-start-forgets-the-generations-of-deleted-nodes",
        "qos.stores.queue_purges",
        "SELECT COALESCE(MAX(gen) + 1, 0) FROM deleted",
        "SELECT 0",
        "A new node of the name of a deleted one has a later generation, also after a "
        "start.",
        test=f"{_STORES}{_DELETED}",
    ),
    Mutant(
        "a-new-node-begins-at-generation-zero",
        "qos.core.queue.owner_requests",
        "        gen=service.next_gen,\n",
        "",
        "A new node of the name of a deleted one has a later generation.",
        by=("what_is_written_is_shown",),
        seed=3,
    ),
    Mutant(
        "a-delete-counts-no-generation",
        "qos.core.queue.service",
        "        self.next_gen = max(self.next_gen, queue.node.gen + 1)\n",
        "",
        "The generation of a new node is later than that of each deleted one.",
        by=("what_is_written_is_shown",),
        seed=3,
    ),
    Mutant(
        "an-end-has-no-generation",
        "qos.core.queue.item_lifecycle",
        "        outcome=outcome,\n        gen=item.gen,\n",
        "        outcome=outcome,\n",
        "The ends in a new node are not those of the deleted one of its name.",
        test=(
            f"{_OWNERS}test_a_delete_is_one_change_and_what_was_there_goes_in_slices"
        ),
    ),
    Mutant(
        "a-delete-stops-with-its-commit",
        "qos.engine.queue_commit",
        "frozenset((PurgeNode, RemoveNode))",
        "frozenset((PurgeNode,))",
        "The rows of a deleted node go, though nothing was purged.",
        test=(f"{_ENGINE}test_a_delete_is_one_commit_and_its_rows_go_in_later_ones"),
    ),
    Mutant(
        "all-that-is-old-goes-in-one-commit",
        "qos.engine.queue_commit",
        "            rows = _FORGOTTEN_ROWS + len(changes)\n",
        "            rows = 10**9\n",
        "No commit removes more old rows than others can wait for.",
        test=f"{_ENGINE}{_OLD}",
    ),
    Mutant(
        "forgetting-stops-after-a-commit",
        "qos.engine.queue_commit",
        " and not self._store.has_old(self._old_at)",
        "",
        "Commits follow until nothing is old.",
        test=f"{_ENGINE}{_OLD}",
    ),
    Mutant(
        "each-table-may-lose-so-many-old-rows",
        "qos.stores.queue_forgetting",
        "limit -= db.execute(removal, (now, limit)).rowcount",
        "db.execute(removal, (now, limit))",
        "The bound of a commit is one for all tables.",
        test=f"{_STORES}{_SLICES}",
    ),
    Mutant(
        "old-payloads-stay",
        "qos.stores.queue_forgetting",
        "            db.execute(_REMOVE_PAYLOADS, (now, limit))\n",
        "",
        "A payload goes with its item.",
        test=f"{_STORES}{_SLICES}",
    ),
    Mutant(
        "purged-items-have-no-end-in-the-journal",
        "qos.journal.items",
        "entries += purged.slice(change.rows)",
        "pass",
        "The journal names each item of a purge.",
        test=f"{_JOURNAL}test_each_purged_item_is_named_once",
    ),
    Mutant(
        "rows-go-with-the-deletion-that-comes-before-them",
        "qos.engine.queue_commit",
        "changes.insert(0, RemovePurged(rows))",
        "changes.append(RemovePurged(rows))",
        "The rows that go are those which the journal has named.",
        test=f"{_JOURNAL}test_each_purged_item_is_named_once",
    ),
    Mutant(
        "the-row-of-an-id-that-is-used-again-stays",
        "qos.journal.items",
        "                self.used_again.append(RemoveItem(seq))\n",
        "",
        "An item does not end after the next one with its id has come.",
        test=f"{_JOURNAL}test_an_id_that_is_used_again_has_two_lives",
    ),
    Mutant(
        "what-is-replaced-is-counted-twice",
        "qos.stores.queue_store",
        "PRAGMA recursive_triggers = ON",
        "PRAGMA recursive_triggers = OFF",
        "The counts of the store are those of its rows.",
        test="stores/test_queue_counts.py::"
        "test_an_item_that_is_saved_again_at_once_is_counted_once",
    ),
    Mutant(
        "a-damaged-store-is-served",
        "qos.engine.queue_engine",
        "        if isinstance(error, StoreDamaged):\n",
        "        if isinstance(error, StoreFull):\n",
        "A service ends when its store is found damaged.",
        test="engine/test_queue_errors.py::"
        "test_a_service_is_given_up_when_its_store_is_found_damaged",
    ),
)
