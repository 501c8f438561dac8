"""Deliberate faults in what a queue leaves on disk only; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["BACKLOG"]

_COUNTS = ("counts_are_a_recount",)
_TEST = "core/queue/test_backlog.py::"
_ENGINE = "engine/test_queue_backlog.py::"

BACKLOG = (
    Mutant(
        "what-lies-behind-the-head-goes-first",
        "qos.core.queue.ready_items",
        "        if backlog is not None and backlog.count and first > backlog.frontier:\n",
        "        if backlog is not None and backlog.count and first > first:\n",
        "What was published first, or has a higher priority, is given first.",
        test=_TEST + "test_what_is_given_back_comes_after_what_was_never_given",
    ),
    Mutant(
        "a-shorter-head-has-the-old-frontier",
        "qos.core.queue.item_index",
        "        self.backlog.frontier = last\n",
        "        self.backlog.frontier = max(self.backlog.frontier, place_of(plain[-1]))\n",
        "What leaves memory lies behind the frontier.",
        test=_TEST + "test_workers_get_all_of_it_in_order",
    ),
    Mutant(
        "what-is-read-still-counts-as-unread",
        "qos.core.queue.backlog",
        "        for item in items:\n            self.drop(item)\n",
        "",
        "An item is counted once, wherever it is.",
        by=_COUNTS,
    ),
    Mutant(
        "what-is-in-memory-is-read-again",
        "qos.core.queue.backlog",
        "if item.item_id not in in_memory and self.may_wait(item)",
        "if self.may_wait(item)",
        "An item is there once, though it came before its turn to be read.",
        test=_TEST + "test_an_item_that_comes_while_a_selector_reads_is_there_once",
    ),
    Mutant(
        "a-head-ends-behind-what-nobody-has-read",
        "qos.core.queue.item_index",
        "            last = min(last, self.backlog.frontier)\n",
        "            pass\n",
        "What lies in front of the frontier is in memory.",
        test=_TEST + "test_what_is_in_memory_behind_the_head_does_not_move_its_end",
    ),
    Mutant(
        "what-ends-in-a-step-is-read-in-it",
        "qos.core.queue.backlog",
        "        return item.expires_at is None or _moment(item) > self._expired\n",
        "        return True\n",
        "An item ends once, whatever its row says in the step that ends it.",
        test=_TEST + "test_items_expire_in_slices",
    ),
    Mutant(
        "what-should-have-ended-is-left-on-disk",
        "qos.core.queue.item_index",
        "in filter(self.backlog.may_wait, plain[HEAD:])",
        "in plain[HEAD:]",
        "What has expired is not looked for on disk twice, so it stays in memory.",
        test=_TEST + "test_an_item_whose_time_has_come_is_not_left_on_disk",
    ),
    Mutant(
        "only-the-first-end-on-disk-counts",
        "qos.core.queue.backlog",
        "item.expires_at if first is None else min(first, item.expires_at)",
        "item.expires_at if first is None else first",
        "Items expire in time, in whatever order they come.",
        test=_TEST + "test_items_with_a_ttl_wait_on_disk_and_end_in_time",
    ),
    Mutant(
        "nothing-expires-on-disk",
        "qos.core.queue.item_index",
        "        return at if end is None else end if at is None else min(at, end)\n",
        "        return at\n",
        "Items expire in time, wherever they lie.",
        test=_TEST + "test_items_with_a_ttl_wait_on_disk_and_end_in_time",
    ),
    Mutant(
        "what-expires-after-a-slice-is-forgotten",
        "qos.core.queue.backlog",
        "moments[count][0] if count < len(page) else None",
        "None",
        "Slices follow until everything has ended whose time has come.",
        test=_TEST + "test_items_with_a_ttl_wait_on_disk_and_end_in_time",
    ),
    Mutant(
        "an-end-on-its-way-to-the-disk-is-missed",
        "qos.engine.pending_ended",
        "sorted([*pending, *unchanged])[:limit]]",
        "sorted(unchanged)[:limit]]",
        "What has been decided expires, though it is not written yet.",
        test=_ENGINE + "test_what_is_being_written_expires_in_time",
    ),
    Mutant(
        "what-is-withdrawn-expires-all-the-same",
        "qos.engine.pending_ended",
        "[entry for entry in moments if entry[1] not in self._items]",
        "moments",
        "What is read is as it has been decided to be, not as it is on disk.",
        test=_ENGINE + "test_what_is_being_written_expires_in_time",
    ),
    Mutant(
        "a-purge-leaves-what-is-on-disk",
        "qos.core.queue.item_index",
        "        self.backlog.clear(gen)\n",
        "        self.backlog._gen = gen\n",
        "A purge removes all items, wherever they are.",
        test=_TEST + "test_a_purge_takes_what_is_on_disk_and_remembers_its_ids",
    ),
    Mutant(
        "what-ends-on-disk-still-counts",
        "qos.core.queue.item_index",
        "            self.backlog.drop(item)\n            return\n",
        "            return\n",
        "An item that is withdrawn before it was read counts no more.",
        test=_TEST + "test_an_item_on_disk_is_withdrawn",
    ),
    Mutant(
        "an-id-on-disk-is-free",
        "qos.core.queue.item_index",
        "            items |= self.backlog.find(rest)\n",
        "            pass\n",
        "The id of an item is known, wherever the item is.",
        by=("stored_once",),
        seed=198,
    ),
    Mutant(
        "what-is-on-its-way-is-not-read",
        "qos.engine.pending_ended",
        "        return sorted([*pending, *unchanged], key=place_of)[:limit]\n",
        "        return sorted(unchanged, key=place_of)[:limit]\n",
        "What has been decided is read, though it is not written yet.",
        test=_ENGINE + "test_what_is_decided_in_a_step_is_read_in_it",
    ),
    Mutant(
        "what-has-ended-is-read-as-it-was",
        "qos.engine.pending_ended",
        (
            "            unchanged += [item for item in chunk if item.seq not in self._items]\n"
            "            if len(chunk) < limit:\n"
        ),
        "            unchanged += chunk\n            if len(chunk) < limit:\n",
        "What is read is as it has been decided to be, not as it is on disk.",
        test=_ENGINE + "test_what_is_withdrawn_is_not_read",
    ),
    Mutant(
        "a-purge-on-its-way-frees-the-ids-on-disk",
        "qos.engine.pending_ended",
        "                item = self.find_plain(node, gen, [item_id]).get(item_id)\n",
        "                item = None\n",
        "The id of a purged item is remembered from the purge on.",
        test=_ENGINE + "test_the_ids_of_a_purge_are_known_before_it_is_written",
    ),
    Mutant(
        "a-start-counts-nothing-on-disk",
        "qos.core.queue.service",
        "                plain=plain.get(node.name),\n",
        "                plain=None,\n",
        "After a start what waits on disk waits for its workers.",
        by=_COUNTS,
        seed=237,
    ),
    Mutant(
        "selectors-see-the-head-alone",
        "qos.core.queue.item_index",
        "        if self.backlog.count and self.ready.has_selectors:\n",
        "        if self.backlog.count and not self.ready.has_selectors:\n",
        "A selector is evaluated for each item, wherever it is.",
        test=_TEST + "test_a_selector_reads_what_is_on_disk_in_slices",
    ),
    Mutant(
        "a-topic-leaves-items-on-disk",
        "qos.core.queue.topic_node",
        "    keeps_all = True\n",
        "    keeps_all = False\n",
        "A topic drops its oldest items, wherever they are.",
        test=_TEST + "test_a_topic_keeps_all_its_items_in_memory",
    ),
)
