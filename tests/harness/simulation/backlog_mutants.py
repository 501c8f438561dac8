"""Deliberate faults in what a queue leaves on disk only; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["BACKLOG"]

_COUNTS = ("counts_are_a_recount",)
_TEST = "core/queue/test_backlog.py::"
_DELAYED = "core/queue/test_delayed_backlog.py::"
_LETTERS = "core/queue/test_letters_backlog.py::"
_ENGINE = "engine/test_queue_backlog.py::"

BACKLOG = (
    Mutant(
        "what-lies-behind-the-head-goes-first",
        "qos.core.queue.ready_items",
        "        if best is None or first is None or first > self._frontier:\n",
        "        if best is None or first is None:\n",
        "What was published first, or has a higher priority, is given first.",
        test=_TEST + "test_what_excludes_a_worker_comes_after_what_was_never_given",
    ),
    Mutant(
        "a-shorter-head-has-the-old-frontier",
        "qos.core.queue.item_index",
        "        self.backlog.frontier = behind(place_of(plain[HEAD - 1]))\n",
        "",
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
        test=_TEST + "test_an_item_that_is_too_large_for_workers_is_there_once",
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
        "            if self.backlog.may_wait(item):\n",
        "            if True:\n",
        "What has expired is not looked for on disk twice, so it stays in memory.",
        test=_TEST + "test_an_item_whose_time_has_come_is_not_left_on_disk",
    ),
    Mutant(
        "only-the-first-end-on-disk-counts",
        "qos.core.queue.backlog",
        "self.expires_at = _earlier(self.expires_at, item.expires_at)",
        "self.expires_at = self.expires_at or item.expires_at",
        "Items expire in time, in whatever order they come.",
        test=_TEST + "test_items_with_a_ttl_wait_on_disk_and_end_in_time",
    ),
    Mutant(
        "nothing-expires-on-disk",
        "qos.core.queue.item_index",
        "(self.backlog.expires_at, self.backlog.delayed_until)",
        "(self.backlog.delayed_until,)",
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
        "            self.backlog.drop(item)\n\n",
        "            pass\n\n",
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
        "            if start < place_of(item) < end and not item.is_held_back(now)\n",
        "            if start < place_of(item) < start\n",
        "What has been decided is read, though it is not written yet.",
        test=_ENGINE + "test_what_is_decided_in_a_step_is_read_in_it",
    ),
    Mutant(
        "what-has-ended-is-read-as-it-was",
        "qos.engine.pending_ended",
        "        items = [item for item in stored_items if item.seq not in self._items]\n",
        "        items = [*stored_items]\n",
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
        "        if self.backlog.is_unread and self.ready.has_selectors:\n",
        "        if self.backlog.is_unread and not self.ready.has_selectors:\n",
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
    Mutant(
        "a-delay-on-disk-is-not-waited-for",
        "qos.core.queue.item_index",
        "(self.backlog.expires_at, self.backlog.delayed_until)",
        "(self.backlog.expires_at,)",
        "A delay ends in time, wherever its item lies.",
        test=_DELAYED + "test_delayed_items_wait_on_disk_and_come_in_time",
    ),
    Mutant(
        "a-delay-on-disk-holds-nothing-back",
        "qos.core.queue.backlog",
        "now=max(now, self._over[0])",
        "now=math.inf",
        "What is held back stays on disk, though others behind it are read.",
        test=_DELAYED + "test_a_worker_finds_what_lies_behind_delayed_items",
    ),
    Mutant(
        "a-delay-that-is-over-begins-again",
        "qos.core.queue.backlog",
        "now=max(now, self._over[0])",
        "now=now",
        "What was due before the clock was set back is not looked for again.",
        test=_DELAYED + "test_a_delay_that_is_over_does_not_begin_again",
    ),
    Mutant(
        "what-is-due-in-front-of-the-frontier-stays-on-disk",
        "qos.core.queue.backlog",
        "in_head = [item for item in page if place_of(item) < self.frontier]",
        "in_head = [item for item in page if place_of(item) > self.frontier]",
        "Every item in front of the frontier is in memory, if it is ready.",
        test=_DELAYED + "test_delayed_items_wait_on_disk_and_come_in_time",
    ),
    Mutant(
        "delays-after-a-slice-are-forgotten",
        "qos.core.queue.backlog",
        "            self.delayed_until = now\n",
        "            self.delayed_until = None\n",
        "Slices follow until all is seen whose delay is over.",
        test=_DELAYED + "test_what_is_due_at_one_moment_is_given_by_its_place",
    ),
    Mutant(
        "what-is-due-counts-as-delayed",
        "qos.core.queue.backlog",
        "        self.delayed -= due - len(items)\n",
        "",
        "What lies behind the frontier is no longer delayed either.",
        test=_DELAYED
        + "test_delays_end_without_a_worker_and_memory_has_the_head_alone",
    ),
    Mutant(
        "a-delayed-item-that-ends-counts-as-delayed",
        "qos.core.queue.backlog",
        "        self.delayed -= self._is_delayed(item)\n",
        "",
        "An item that is withdrawn while it is held back counts no more.",
        test=_DELAYED + "test_delayed_items_are_browsed_withdrawn_and_purged",
    ),
    Mutant(
        "what-was-purged-is-due",
        "qos.core.queue.backlog",
        (
            "        self.frontier, self.passes = LAST, False\n"
            "        self.expires_at = self.delayed_until = None\n"
        ),
        "        self.frontier, self.passes = LAST, False\n",
        "What was purged needs no attention.",
        test=_DELAYED + "test_delayed_items_are_browsed_withdrawn_and_purged",
    ),
    Mutant(
        "a-look-that-finds-nothing-is-the-last",
        "qos.core.queue.backlog",
        "        self.passes = self.is_unread and not items\n",
        "",
        "What lies behind delayed items is found, a part of them in each step.",
        test=_DELAYED + "test_a_worker_finds_what_lies_behind_delayed_items",
    ),
    Mutant(
        "a-look-goes-on-without-a-worker",
        "qos.core.queue.deliveries",
        "        backlog.passes = False\n",
        "",
        "Steps do not follow each other for ever.",
        test=_DELAYED + "test_nobody_looks_for_items_without_a_worker_for_them",
    ),
    Mutant(
        "all-that-is-held-back-stays-in-memory",
        "qos.core.queue.item_index",
        "                stays = self.counts.delayed(now) < HEAD\n",
        "                stays = True\n",
        "A backlog costs disk, whatever holds it back.",
        test=_DELAYED + "test_delayed_items_wait_on_disk_and_come_in_time",
    ),
    Mutant(
        "what-comes-back-too-late-waits",
        "qos.core.queue.item_index",
        "            and backlog.may_wait(item)\n",
        "",
        "An item whose ttl ended while somebody had it ends when he gives it back.",
        test=_DELAYED + "test_what_is_given_back_too_late_ends",
    ),
    Mutant(
        "what-is-too-large-for-workers-is-forgotten-on-disk",
        "qos.core.queue.item_index",
        "            and not self.ready.is_oversized(item)\n",
        "",
        "An item that no XMPP worker can be sent is given to none again.",
        test=_TEST + "test_an_item_that_is_too_large_for_workers_is_there_once",
    ),
    Mutant(
        "releases-on-disk-count-for-ever",
        "qos.core.queue.backlog",
        "            uncount(self._releases, item.releases)\n",
        "            pass\n",
        "The counts are those of what is there.",
        test=_DELAYED + "test_the_counts_of_releases_are_those_of_disk_and_memory",
    ),
    Mutant(
        "a-delay-on-its-way-to-the-disk-does-not-end",
        "qos.engine.pending_ended",
        "sorted([*pending, *unchanged], key=delay_end)[:limit]",
        "sorted(unchanged, key=delay_end)[:limit]",
        "What has been decided is due in time, though it is not written yet.",
        test=_ENGINE + "test_delays_of_what_is_being_written_end_in_time",
    ),
    Mutant(
        "what-is-withdrawn-is-due-all-the-same",
        "qos.engine.pending_ended",
        (
            "            unchanged += [item for item in chunk if item.seq not in self._items]\n"
            "            if len(chunk) < limit:\n"
            "                break\n"
            "            after = delay_end(chunk[-1])\n"
        ),
        (
            "            unchanged += chunk\n"
            "            if len(chunk) < limit:\n"
            "                break\n"
            "            after = delay_end(chunk[-1])\n"
        ),
        "What is read is as it has been decided to be, not as it is on disk.",
        test=_ENGINE + "test_delays_of_what_is_being_written_end_in_time",
    ),
    Mutant(
        "the-next-delay-is-that-of-the-disk",
        "qos.engine.pending_ended",
        "            if item.is_held_back(now)\n",
        "            if item.is_held_back(math.inf)\n",
        "What has been decided is due in time, though it is not written yet.",
        test=_ENGINE + "test_a_delay_that_is_being_written_is_the_next_to_end",
    ),
    Mutant(
        "a-look-that-ends-early-skips-the-rest",
        "qos.stores.queue_plain",
        "            if stop < end:\n",
        "            if stop < end and items:\n",
        "Those behind many delayed items are found by the next look.",
        test="stores/test_queue_file.py::"
        "test_a_look_for_items_that_are_ready_ends_though_it_has_found_none",
    ),
    Mutant(
        "letters-stay-in-memory",
        "qos.core.queue.item",
        "            and not self.excluded\n",
        "            and not (self.excluded or self.origin)\n",
        "A dead-letter queue is as deep as its disk.",
        test=_LETTERS + "test_letters_wait_on_disk_and_are_handled_in_order",
    ),
    Mutant(
        "a-start-counts-no-letters",
        "qos.core.queue.service",
        "                letters=start.letters.get(node.name),\n",
        "                letters=None,\n",
        "The dead items of a queue are those in its dead-letter queue, after a start too.",
        test=_LETTERS + "test_pages_and_ids_show_letters_wherever_they_are",
    ),
    Mutant(
        "purged-letters-still-count",
        "qos.core.queue.letters",
        "        self._counts.clear()\n",
        "",
        "A purge of a dead-letter queue is one of the dead items of another.",
        test=_LETTERS + "test_a_purge_takes_letters_from_both_queues",
    ),
    Mutant(
        "a-letter-on-its-way-is-on-no-page",
        "qos.engine.pending_ended",
        "        letters = [item for item in pending if item.seq > after]\n",
        "        letters: list[Item] = []\n",
        "What has been decided is shown, though it is not written yet.",
        test=_ENGINE + "test_letters_that_are_being_written_are_found",
    ),
    Mutant(
        "a-letter-that-was-requeued-is-on-a-page",
        "qos.engine.pending_ended",
        (
            "            unchanged += [item for item in chunk if item.seq not in self._items]\n"
            "            if len(chunk) < limit:\n"
            "                break\n"
            "            after = chunk[-1].seq\n"
            "        return sorted([*letters"
        ),
        (
            "            unchanged += chunk\n"
            "            if len(chunk) < limit:\n"
            "                break\n"
            "            after = chunk[-1].seq\n"
            "        return sorted([*letters"
        ),
        "What is shown is as it has been decided to be, not as it is on disk.",
        test=_ENGINE + "test_letters_that_are_being_written_are_found",
    ),
    Mutant(
        "a-letter-on-its-way-has-no-id",
        "qos.engine.pending_ended",
        "            *(item for item in pending if item.origin_id in origin_ids),\n",
        "",
        "What has been decided is found, though it is not written yet.",
        test=_ENGINE + "test_letters_that_are_being_written_are_found",
    ),
    Mutant(
        "a-letter-that-was-requeued-has-its-id",
        "qos.engine.pending_ended",
        "            *(item for item in letters if item.seq not in self._items),\n",
        "            *letters,\n",
        "What is found is as it has been decided to be, not as it is on disk.",
        test=_ENGINE + "test_letters_that_are_being_written_are_found",
    ),
    Mutant(
        "a-requeued-item-is-held-back",
        "qos.core.queue.item_lifecycle",
        "        available_at=item.published_at,\n",
        "        available_at=item.published_at + 1e9,\n",
        "A requeued item has no delay.",
        test="core/queue/test_item_lifecycle.py",
    ),
    Mutant(
        "a-read-goes-past-what-is-new",
        "qos.core.queue.backlog",
        "self.frontier = min([end, *new])",
        "self.frontier = end",
        "A letter that comes in the step that reads the rest is given.",
        test=_LETTERS
        + "test_a_letter_that_comes_in_the_step_that_reads_past_it_is_not_lost",
    ),
    Mutant(
        "a-new-delay-has-no-end",
        "qos.core.queue.backlog",
        "            if new[0] < math.inf:\n",
        "            if new[0] < now:\n",
        "A delay that begins in the step that ends all others has an end.",
        test=_DELAYED
        + "test_a_delay_that_ends_in_the_step_that_begins_another_is_followed_by_it",
    ),
    Mutant(
        "a-new-ttl-has-no-end",
        "qos.core.queue.backlog",
        "        if new < _NO_MOMENT:\n",
        "        if new < _NEVER:\n",
        "An item expires that was given back in the step that ended all others.",
        test=_DELAYED
        + "test_a_ttl_that_ends_in_the_step_that_gives_an_item_back_is_not_the_last",
    ),
)
