"""Deliberate faults in what a queue service writes of locks, purges and old rows; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["ROWS"]

_OWNERS = "core/queue/test_owners.py::"
_ENGINE = "engine/test_queue_engine.py::"
_STORES = "stores/test_queue_store.py::TestContract::"
_OLD = "test_what_is_old_goes_some_rows_in_a_commit_until_nothing_is"
_SLICES = "test_what_is_outdated_goes_in_slices_the_oldest_first"

ROWS = (
    Mutant(
        "take-over-is-written-as-a-lock",
        "qos.core.queue.deliveries",
        "            effects.append(SaveItem(after))\n        return effects\n\n    def unheard",
        "            effects.append(SaveLock(after))\n        return effects\n\n    def unheard",
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
        '        db.executemany(\n            f"INSERT OR REPLACE INTO ended',
        '        db.executemany(\n            f"INSERT OR REPLACE INTO temp.ended',
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
        "            if item_id in purge.items\n",
        "            if item_id not in purge.items\n",
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
)
