"""Deliberate faults in the counts and slices of a queue; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["COUNTS"]

_BY = ("counts_are_a_recount",)
_DEAD = "core/queue/test_dead_letters.py::"
_EXPIRY = "core/queue/test_expiry.py::"
_LETTERS = "core/queue/test_letters.py::"
_ORDER = "core/queue/test_seq_order.py::"

COUNTS = (
    Mutant(
        "locked-items-are-still-available",
        "qos.core.queue.item_index",
        "        self.waiting -= 1\n",
        "        self.waiting -= 0\n",
        "An item that is given out is not counted as available.",
        by=_BY,
    ),
    Mutant(
        "bytes-of-what-has-ended-count",
        "qos.core.queue.item_index",
        "        self._size -= item.size\n",
        "        self._size -= 0\n",
        "An item that has ended takes no bytes of the limits.",
        by=_BY,
    ),
    Mutant(
        "each-accept-is-the-first",
        "qos.core.queue.node",
        "accepted=self.node.accepted + accepted)",
        "accepted=accepted)",
        "Every item that was ever accepted is counted.",
        by=_BY,
    ),
    Mutant(
        "the-dead-are-not-counted",
        "qos.core.queue.dead_letters",
        "            queue.dead += 1\n",
        "            queue.dead += 0\n",
        "An item that dies and stays is counted as dead.",
        by=_BY,
    ),
    Mutant(
        "a-start-counts-no-dead",
        "qos.core.queue.service",
        "dead=start.dead.get(node.name, 0),",
        "dead=0,",
        "After a start the dead of the disk are counted.",
        by=_BY,
    ),
    Mutant(
        "releases-are-counted-for-ever",
        "qos.core.queue.item_index",
        "            uncount(self._releases, item.releases)\n",
        "            uncount(self._releases, item.releases, 0)\n",
        "The releases of an item that is taken count no more.",
        by=_BY,
        seed=2,
    ),
    Mutant(
        "the-oldest-item-stays-the-oldest",
        "qos.core.queue.seq_order",
        "            self._inexact.add(number)\n",
        "            self._inexact.discard(number)\n",
        "After the oldest item has ended, the next one is the oldest.",
        by=_BY,
    ),
    Mutant(
        "requeued-items-are-still-dead",
        "qos.core.queue.requeuing",
        "        queue.dead -= 1\n",
        "        queue.dead -= 0\n",
        "A requeued item is dead no more.",
        test=f"{_DEAD}test_a_requeued_item_is_the_item_itself_again",
    ),
    Mutant(
        "a-requeue-of-all-has-no-end",
        "qos.core.queue.requeuing",
        " if _seq(dead) <= until]",
        "]",
        "What comes in while all is requeued, and dies, is not part of it.",
        test=f"{_DEAD}test_what_dies_again_meanwhile_is_met_once",
    ),
    Mutant(
        "an-older-item-of-an-id-is-requeued",
        "qos.core.queue.requeuing",
        "        if item.seq == newest[item_id][1].seq\n",
        "",
        "Of several dead items with one id the one that died last is requeued.",
        test=f"{_DEAD}test_of_several_dead_with_one_id_the_last_counts_wherever_it_is",
    ),
    Mutant(
        "handled-letters-are-still-dead",
        "qos.core.queue.letters",
        "        uncount(self._counts, item.origin_identity)\n",
        "        pass\n",
        "A dead letter that was handled is not counted where it died.",
        test=f"{_LETTERS}test_dead_letters_are_counted_until_they_are_gone",
    ),
    Mutant(
        "a-page-of-letters-looks-at-all",
        "qos.core.queue.browsing",
        "    page += queue.live.letters.page(after, limit)\n",
        "    page += queue.live.letters.page(0, 9999)\n",
        "A page of dead letters costs as much as one of few.",
        test=f"{_LETTERS}test_a_page_of_dead_letters_costs_as_much_as_one_of_few",
    ),
    Mutant(
        "outdated-times-pile-up",
        "qos.core.queue.seq_order",
        "if len(self._heap) > 2 * len(self._buckets) + _SLACK:",
        "if len(self._heap) < 0:",
        "What has passed through an empty queue takes no memory.",
        test=f"{_ORDER}test_an_empty_queue_that_is_passed_through_keeps_nothing",
    ),
    Mutant(
        "all-items-expire-in-one-step",
        "qos.core.queue.timers",
        "if count == EXPIRED_MAX or not heap or",
        "if not heap or",
        "Others are answered while many items expire.",
        test=(f"{_EXPIRY}test_many_items_expire_in_slices_with_requests_between_them"),
    ),
    Mutant(
        "the-next-slice-is-not-awaited",
        "qos.core.queue.timers",
        "for heap in (self._heap, self._ttl_ends) if heap]",
        "for heap in (self._heap,) if heap]",
        "Where more items expire than fit into a slice, the next step goes on.",
        test=(f"{_EXPIRY}test_many_items_expire_in_slices_with_requests_between_them"),
    ),
    Mutant(
        "an-item-is-given-after-its-ttl",
        "qos.core.queue.deliveries",
        "if item.expires_at is not None and item.expires_at <= now:",
        "if item.expires_at == -1:",
        "An item whose ttl is over is given to nobody while it waits for its slice.",
        test=f"{_EXPIRY}test_an_item_whose_ttl_is_over_is_never_given",
    ),
    Mutant(
        "a-locked-item-expires",
        "qos.core.queue.timers",
        "            if item.state is ItemState.AVAILABLE:\n                count",
        "            if item.state:\n                count",
        "A worker can finish what it has begun.",
        test=(
            f"{_EXPIRY}test_a_locked_item_expires_when_it_comes_back_"
            "and_takes_no_place_in_a_slice"
        ),
    ),
)
