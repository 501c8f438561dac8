"""The items that can be delivered now, in order, for workers with different wishes.

Each distinct selector of the node's subscriptions has a *view*: a heap of the ready items
that pass it. One more view has all items. So the next item for some workers is at the top
of a heap, whatever the number of items that none of them wants. An entry whose item is no
longer ready is dropped when it comes to the top.

Selectors have a bounded time in each step (`selector_time`). A view for which there was
no time gets its items later, in slices, and gives out nothing until it has them all.

An item may exclude workers (`undeliverable-here`). Items that exclude nobody are apart
from those that do. A worker that some item excludes, an *excluder*, has heaps of its own,
of the excluding items that it can take; all others share one. There are at most
EXCLUDERS_MAX such workers: a further one gets only items that exclude nobody.

An *oversized* item excludes all XMPP workers, since their events would be too large for the
server of the service. Those of them that no item excludes otherwise share a heap of the
excluding items that they can take. Consumers of gateways can take it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from qos.core.counting import uncount
from qos.core.queue.backlog import Backlog
from qos.core.queue.consumer_jids import is_consumer_jid
from qos.core.queue.item import Item, ItemState
from qos.core.queue.item_names import ItemNames, is_read_from_payload
from qos.core.queue.places import LAST, Place, place_of
from qos.core.queue.selector import Names, Selector, parse
from qos.core.queue.selector_time import SelectorTime
from qos.core.queue.shares import has_room
from qos.core.strings import bare

__all__ = ["EXCLUDERS_MAX", "FILTERS_MAX", "SLICE", "Kind", "ReadyItems"]

#: The distinct selectors of a node: each is evaluated for each item.
FILTERS_MAX = 32

#: The workers with heaps of their own: an item that excludes somebody is added to each.
EXCLUDERS_MAX = 64

#: The most waiting items that selectors of a node are evaluated for in one step, if that
#: is not ended by the time first.
SLICE = 1000

#: The number of outdated entries that are kept, beyond as many as there are valid ones.
_SLACK = 1000

#: The name of all XMPP workers that no item excludes otherwise; no JID is like that.
_BY_XMPP = "/"


class _View:
    """The ready items that pass a selector.

    Attributes:
        selector: None: every item passes.
        bit: of this view, in the marks of an item.
        accounts: how many subscriptions with the selector each account has; they pay for
            its evaluation.
        plain: a heap of the items that exclude nobody.
        excluding: a heap of the items that exclude somebody.
        own: by excluder, a heap of the excluding items that it can take.
        unclassified: entries for which the selector has not been evaluated; until there
            are none, nothing is taken by this view.
    """

    __slots__ = (
        "accounts",
        "bit",
        "excluding",
        "own",
        "plain",
        "selector",
        "unclassified",
    )

    def __init__(self, selector: Selector | None, bit: int) -> None:
        self.selector = selector
        self.bit = bit
        self.accounts: dict[str, int] = {}
        self.plain: list[Place] = []
        self.excluding: list[Place] = []
        self.own: dict[str, list[Place]] = {}
        self.unclassified: list[Place] = []


#: What a worker can take: the view of its subscription; and of the items that exclude
#: somebody, all (''), those that do not exclude this full JID (or _BY_XMPP), or none (None).
Kind: TypeAlias = tuple[_View, str | None]


class ReadyItems:
    """The items of a node that are available and not delayed."""

    def __init__(
        self,
        items: Mapping[str, Item],
        time: SelectorTime | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        """Start without ready items.

        Args:
            items: the items of the node that are in memory, by id.
            time: of the selectors of all nodes; None: it is not measured.
            backlog: the items that are on disk only; None: there are none.
        """
        self._items = items
        self._backlog = backlog
        self._time = time or SelectorTime()
        self._all = _View(None, 1)
        #: By the text of the selector; '': all items.
        self._views: dict[str, _View] = {"": self._all}
        # Those whose selector is not evaluated for all items yet, by turns.
        self._new: deque[_View] = deque()
        #: Selectors that have become too dear, each with an account that subscribes.
        self.given_up: dict[tuple[str, str], None] = {}
        # By item, the bits of the views that it passes. Only while there are selectors.
        self._marks: dict[str, int] = {}
        # How many items have the same bits.
        self._marked: Counter[int] = Counter()
        # The full JIDs that items exclude; True: with heaps of its own. None of them is
        # forgotten before the heaps are cleaned. Then: the items that exclude somebody
        # and have become ready since that, and those that were there.
        self._excluders: dict[str, bool] = {}
        self._excluding_since = self._excluding_kept = 0
        # The seqs of the items that are too large for XMPP, perhaps of some former ones.
        self._oversized: set[int] = set()
        #: The names that selectors want to know of payloads.
        self.payload_names: Collection[str] = ()

    # -- selectors ---------------------------------------------------------

    def has_room_for(
        self, selector: str, before: str, account: str, *, owner: bool
    ) -> bool:
        """Whether a subscription of an account may have this selector.

        Args:
            selector: that it shall have.
            before: that it has now; '': none.
            account: the bare JID.
            owner: the account owns the node.
        """
        if selector in self._views:
            return True
        own = total = 0
        for text, view in self._views.items():
            if view is not self._all:
                # Without the subscription that is to change.
                mine = view.accounts.get(account, 0) - (text == before)
                own += mine > 0
                total += mine > 0 or view.accounts.keys() != {account}
        return has_room(own, total, FILTERS_MAX, owner=owner)

    def want(self, selector: str, account: str) -> None:
        """Count a subscription of an account with this selector; '': it has none."""
        view = self._views.get(selector)
        if view is None:
            used_bits = sum(view.bit for view in self._views.values())
            # The lowest bit that is free.
            view = _View(parse(selector), ~used_bits & (used_bits + 1))
            entries = (*self._all.plain, *self._all.excluding)
            view.unclassified = [
                entry for entry in entries if self._item(entry, self._all)
            ]
            self._views[selector] = view
            if view.unclassified:
                self._new.append(view)
            self._find_payload_names()
        view.accounts[account] = view.accounts.get(account, 0) + 1

    def unwant(self, selector: str, account: str) -> None:
        """Stop counting a subscription of an account with this selector."""
        view = self._views[selector]
        view.accounts[account] -= 1
        if not view.accounts[account]:
            del view.accounts[account]
            self.given_up.pop((selector, account), None)
        if not view.accounts and view is not self._all:
            del self._views[selector]
            if view.unclassified:
                self._new.remove(view)
            self._find_payload_names()
            if len(self._views) == 1:
                self._marks.clear()
                self._marked.clear()

    def _find_payload_names(self) -> None:
        self.payload_names = {
            name
            for view in self._views.values()
            if view.selector is not None
            for name in view.selector.names
            if is_read_from_payload(name)
        }

    @property
    def has_selectors(self) -> bool:
        """Whether subscriptions have selectors: these are evaluated for all items."""
        return len(self._views) > 1

    @property
    def _awaits_more(self) -> bool:
        """Whether selectors are still to be evaluated for items that are on disk only."""
        return self.has_selectors and self._frontier < LAST

    @property
    def _frontier(self) -> Place:
        return LAST if self._backlog is None else self._backlog.frontier

    @property
    def classifying(self) -> bool:
        """Whether a selector is still to be evaluated for some items."""
        return bool(self._new) or (len(self._views) > 1 and self._awaits_more)

    def is_classifying(self, selector: str) -> bool:
        """Whether items are still to be offered to subscriptions with this selector."""
        return bool(self._views[selector].unclassified) or self._awaits_more

    def classify(self) -> None:
        """Evaluate selectors for the next items that wait for that.

        It goes on until the part of the step is over, or for SLICE items. The next call
        begins with another selector.
        """
        items_left = SLICE
        while self._new and items_left > 0 and not self._time.is_over:
            view = self._new[0]
            entry = view.unclassified.pop()
            if not view.unclassified:
                self._new.popleft()
            items_left -= 1
            item = self._item(entry, self._all)
            if item is not None:
                self._classify(view, item, entry)
        self._new.rotate(-1)

    def _classify(self, view: _View, item: Item, entry: Place) -> None:
        # The bit may be of an earlier selector, and the item from before the first one.
        marks = self._marks.get(item.item_id, self._all.bit) & ~view.bit
        if self._passes(view, ItemNames(item)):
            marks |= view.bit
            self._push(view, item, entry)
        self._set_marks(item, marks)

    def _passes(self, view: _View, names: Names) -> bool:
        if view.selector is None:
            return True
        passes, spent = self._time.evaluate(view.selector, names, view.accounts)
        for account in spent:
            self.given_up[view.selector.text, account] = None
        return passes

    @property
    def selector_seconds(self) -> float:
        """Seconds that the selectors of all nodes have taken so far."""
        return self._time.taken

    def matches(self, selector: str, item: Item) -> bool:
        """Whether the item passes this selector of a subscription."""
        return self._passes(self._views[selector], ItemNames(item))

    def unmatched(self, selectors: Collection[str]) -> int:
        """How many ready items pass none of these selectors of subscriptions.

        0 while one of them is still to be evaluated for some items.
        """
        views = [self._views[selector] for selector in selectors]
        if self._awaits_more or any(view.unclassified for view in views):
            return 0
        bits = sum(view.bit for view in views)
        return sum(count for marks, count in self._marked.items() if not marks & bits)

    # -- items -------------------------------------------------------------

    def add(self, item: Item) -> None:
        """Add an item that is available and not delayed."""
        entry = place_of(item)
        if item.excluded or item.seq in self._oversized:
            self._note_excluders(item)
        self._push(self._all, item, entry)
        if len(self._views) > 1:
            self._mark(item, entry)

    def _mark(self, item: Item, entry: Place) -> None:
        """Add an item to the views that it passes."""
        marks, names = self._all.bit, ItemNames(item)
        for view in self._views.values():
            if view is self._all:
                continue
            if view.unclassified or self._time.is_over:
                self._defer(view, entry)
            elif self._passes(view, names):
                marks |= view.bit
                self._push(view, item, entry)
        self._set_marks(item, marks)

    def _set_marks(self, item: Item, marks: int | None) -> None:
        """Note the views that an item passes; None: it is not ready any more."""
        before = self._marks.pop(item.item_id, None)
        if before is not None:
            uncount(self._marked, before)
        if marks is not None:
            self._marks[item.item_id] = marks
            self._marked[marks] += 1

    def _defer(self, view: _View, entry: Place) -> None:
        if not view.unclassified:
            self._new.append(view)
        view.unclassified.append(entry)
        if len(view.unclassified) > 2 * len(self._items) + _SLACK:
            self._clean(view.unclassified, self._all)

    def discard(self, item: Item) -> None:
        """Forget an item that is not ready any more; its entries are dropped later."""
        self._set_marks(item, None)

    def clear(self) -> None:
        """Forget all items; none of them comes back."""
        for view in self._views.values():
            view.plain, view.excluding, view.own = [], [], {}
            view.unclassified = []
        self._new.clear()
        self._marks.clear()
        self._marked.clear()
        self._excluders = {}
        self._excluding_since = self._excluding_kept = 0
        self._oversized = set()

    def _push(self, view: _View, item: Item, entry: Place) -> None:
        if not item.excluded and item.seq not in self._oversized:
            self._push_to(view.plain, view, entry)
            return
        self._push_to(view.excluding, view, entry)
        for holder, own in self._excluders.items():
            if own and not self.excludes(item, holder):
                self._push_to(view.own.setdefault(holder, []), view, entry)

    def _push_to(self, heap: list[Place], view: _View, entry: Place) -> None:
        heapq.heappush(heap, entry)
        if len(heap) > 2 * len(self._items) + _SLACK:
            self._clean(heap, view)
            if heap is self._all.plain:
                # If nothing is excluded any more, nothing else would find that out.
                self._forget_excluders()

    def _clean(self, heap: list[Place], view: _View) -> None:
        """Drop outdated and duplicate entries."""
        heap[:] = [entry for entry in set(heap) if self._item(entry, view)]
        heapq.heapify(heap)

    def any(self) -> bool:
        """Whether an item may be ready; True can be wrong, False cannot."""
        return bool(self._all.plain or self._all.excluding)

    # -- items that are too large for XMPP -----------------------------------

    def is_oversized(self, item: Item) -> bool:
        """Whether an item is too large for XMPP workers."""
        return item.seq in self._oversized

    def oversize(self, item: Item) -> None:
        """Give an item to no XMPP worker from now on; it is not ready now."""
        if len(self._oversized) > 2 * len(self._items) + _SLACK:
            self._oversized &= {entry.seq for entry in self._items.values()}
        self._oversized.add(item.seq)

    def fit_again(self) -> bool:
        """Give all items to XMPP workers again: their server may take more.

        Returns:
            Whether there may be some that were too large.
        """
        oversized, self._oversized = self._oversized, set()
        for entry in list(self._all.excluding):
            item = self._item(entry, self._all)
            if item is not None and item.seq in oversized:
                self.add(item)
        return bool(oversized)

    # -- excluders ---------------------------------------------------------

    def excludes(self, item: Item, holder: str) -> bool:
        """Whether this full JID cannot get an item, though it passes its selector."""
        if item.seq in self._oversized and not is_consumer_jid(holder):
            return True
        return holder in item.excluded

    def _excluded_by(self, item: Item) -> frozenset[str]:
        oversized = item.seq in self._oversized
        return item.excluded | {_BY_XMPP} if oversized else item.excluded

    def _note_excluders(self, item: Item) -> None:
        excluded = self._excluded_by(item)
        self._excluding_since += 1
        if (
            len(self._excluders | dict.fromkeys(excluded)) > EXCLUDERS_MAX
            # So many that the search for former excluders costs each of them little.
            and self._excluding_since > self._excluding_kept
        ):
            self._forget_excluders()
        for holder in excluded:
            if holder in self._excluders:
                continue
            self._follow(holder)
            if self._excluders[holder]:
                for view in self._views.values():
                    self._own_heap(view, holder)

    def _follow(self, holder: str) -> None:
        """Note an excluder; with heaps of its own, if its account may have more."""
        followed = [excluder for excluder, own in self._excluders.items() if own]
        account = bare(holder)
        own = sum(bare(excluder) == account for excluder in followed)
        has_own = has_room(own, len(followed), EXCLUDERS_MAX)
        self._excluders[holder] = has_own or holder == _BY_XMPP

    def _own_heap(self, view: _View, holder: str) -> None:
        """Make the heap of an excluder."""
        heap = [
            entry
            for entry in view.excluding
            if (item := self._item(entry, view)) and not self.excludes(item, holder)
        ]
        heapq.heapify(heap)
        view.own[holder] = heap

    def _forget_excluders(self) -> None:
        """Forget the excluders whose items are not ready any more."""
        excluded: set[str] = set()
        for view in self._views.values():
            self._clean(view.excluding, view)
        for entry in self._all.excluding:
            excluded |= self._excluded_by(self._items[entry[-1]])
        self._excluders = {}
        for holder in sorted(excluded):
            self._follow(holder)
        for view in self._views.values():
            view.own = {}
            for holder, own in self._excluders.items():
                if own:
                    self._own_heap(view, holder)
        self._excluding_since = 0
        self._excluding_kept = len(self._all.excluding)

    # -- dispatch ----------------------------------------------------------

    def kind_of(self, selector: str, holder: str) -> Kind:
        """The items that a full JID with this selector can take."""
        own = self._excluders.get(holder)
        if own is None and self._oversized and not is_consumer_jid(holder):
            holder, own = _BY_XMPP, self._excluders.get(_BY_XMPP)
        return self._views[selector], "" if own is None else holder if own else None

    def takes_excluding(self, holder: str) -> bool:
        """Whether this full JID gets items that exclude somebody else; see EXCLUDERS_MAX."""
        return self._excluders.get(holder, True)

    def takes(self, kind: Kind, item: Item) -> bool:
        """Whether workers of this kind can take a ready item."""
        view, holder = kind
        marks = self._marks.get(item.item_id, self._all.bit)
        if view.unclassified or not marks & view.bit:
            return False
        if holder == "" or not self._excluded_by(item):
            return True
        return holder is not None and not self.excludes(item, holder)

    def pop(self, kinds: Iterable[Kind]) -> Item | None:
        """The next item that workers of one of these kinds can take.

        None: no item that is in memory; or those on disk come first.
        """
        first: Place | None = None
        best: tuple[_View, list[Place]] | None = None
        for view, holder in kinds:
            if view.unclassified:
                continue
            excluding = (
                view.excluding if holder == "" else view.own.get(holder or "", [])
            )
            for heap in (view.plain, excluding):
                top = self._top(view, heap) if heap else None
                if top is not None and (first is None or top < first):
                    first, best = top, (view, heap)
        if best is None or first is None or first > self._frontier:
            return None
        view, heap = best
        return self._item(heapq.heappop(heap), view)

    def _top(self, view: _View, heap: list[Place]) -> Place | None:
        while heap:
            if self._item(heap[0], view) is not None:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _item(self, entry: Place, view: _View) -> Item | None:
        """The item of an entry; None: it is outdated."""
        _, order, seq, item_id = entry
        item = self._items.get(item_id)
        if (
            item is not None
            and item.state is ItemState.AVAILABLE
            and item.seq == seq
            and item.order == order
            and (view is self._all or self._marks.get(item_id, 0) & view.bit)
        ):
            return item
        return None
