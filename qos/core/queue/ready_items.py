"""The items that can be delivered now, in order, for workers with different wishes.

Each distinct selector of the node's subscriptions has a *view*: a heap of the ready items
that pass it. One more view has all items. So the next item for some workers is at the top
of a heap, whatever the number of items that none of them wants. An entry whose item is no
longer ready is dropped when it comes to the top.

An item may exclude workers (`undeliverable-here`). Items that exclude nobody are apart
from those that do. A worker that some item excludes, an *excluder*, has heaps of its own,
of the excluding items that it can take; all others share one. There are at most
EXCLUDERS_MAX such workers: a further one gets only items that exclude nobody.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from qos.core.queue.item import Item, ItemState
from qos.core.queue.item_names import ItemNames, is_read_from_payload
from qos.core.queue.properties import properties_size
from qos.core.queue.selector import Selector, parse

__all__ = ["EXCLUDERS_MAX", "FILTERS_MAX", "SLICE", "Kind", "ReadyItems"]

#: The distinct selectors of a node: each is evaluated for each item.
FILTERS_MAX = 32

#: The workers with heaps of their own: an item that excludes somebody is added to each.
EXCLUDERS_MAX = 64

#: The items that a new selector is evaluated for in one step, so that a step stays short.
#: Many bytes of properties count as another item: patterns are searched for in them.
SLICE = 1000
_SLICE_BYTES = 256

#: The number of outdated entries that are kept, beyond as many as there are valid ones.
_SLACK = 1000

#: Order: the priority (negative), `Item.order`, `Item.seq`; then the id.
_Entry: TypeAlias = tuple[int, int, int, str]


class _View:
    """The ready items that pass a selector.

    Attributes:
        selector: None: every item passes.
        bit: of this view, in the marks of an item.
        users: how many subscriptions have the selector.
        plain: a heap of the items that exclude nobody.
        excluding: a heap of the items that exclude somebody.
        own: by excluder, a heap of the excluding items that it can take.
        unclassified: entries for which the selector has not been evaluated; until there
            are none, nothing is taken by this view.
    """

    __slots__ = (
        "bit",
        "excluding",
        "own",
        "plain",
        "selector",
        "unclassified",
        "users",
    )

    def __init__(self, selector: Selector | None, bit: int) -> None:
        self.selector = selector
        self.bit = bit
        self.users = 0
        self.plain: list[_Entry] = []
        self.excluding: list[_Entry] = []
        self.own: dict[str, list[_Entry]] = {}
        self.unclassified: list[_Entry] = []


#: What a worker can take: the view of its subscription; and of the items that exclude
#: somebody, all (''), those that do not exclude this full JID, or none (None).
Kind: TypeAlias = tuple[_View, str | None]


class ReadyItems:
    """The items of a node that are available and not delayed."""

    def __init__(self, items: Mapping[str, Item]) -> None:
        """Start without ready items.

        Args:
            items: the items of the node, by id.
        """
        self._items = items
        self._all = _View(None, 1)
        #: By the text of the selector; '': all items.
        self._views: dict[str, _View] = {"": self._all}
        # Those whose selector is not evaluated for all items yet.
        self._new: list[_View] = []
        # By item, the bits of the views that it passes. Only while there are selectors.
        self._marks: dict[str, int] = {}
        # The full JIDs that items exclude; True: with heaps of its own. None of them is
        # forgotten before the heaps are cleaned. Then: the items that exclude somebody
        # and have become ready since that, and those that were there.
        self._excluders: dict[str, bool] = {}
        self._excluding_since = self._excluding_kept = 0
        #: The names that selectors want to know of payloads.
        self.payload_names: Collection[str] = ()

    # -- selectors ---------------------------------------------------------

    def has_room_for(self, selector: str, before: str) -> bool:
        """Whether a subscription may have this selector instead of that before."""
        ends = before != "" and self._views[before].users == 1
        return selector in self._views or len(self._views) - ends <= FILTERS_MAX

    def want(self, selector: str) -> None:
        """Count a subscription with this selector; '': it has none."""
        view = self._views.get(selector)
        if view is None:
            used = sum(each.bit for each in self._views.values())
            # The lowest bit that is free.
            view = _View(parse(selector), ~used & (used + 1))
            view.unclassified = [*self._all.plain, *self._all.excluding]
            self._views[selector] = view
            if view.unclassified:
                self._new.append(view)
            self._find_payload_names()
        view.users += 1

    def unwant(self, selector: str) -> None:
        """Stop counting a subscription with this selector."""
        view = self._views[selector]
        view.users -= 1
        if not view.users and view is not self._all:
            del self._views[selector]
            self._new = [each for each in self._new if each is not view]
            self._find_payload_names()
            if len(self._views) == 1:
                self._marks.clear()

    def _find_payload_names(self) -> None:
        self.payload_names = {
            name
            for view in self._views.values()
            if view.selector is not None
            for name in view.selector.names
            if is_read_from_payload(name)
        }

    @property
    def classifying(self) -> bool:
        """Whether a new selector is still to be evaluated for some items."""
        return bool(self._new)

    def is_classifying(self, selector: str) -> bool:
        """Whether this selector of a subscription is still to be evaluated for some."""
        return bool(self._views[selector].unclassified)

    def classify(self) -> None:
        """Evaluate new selectors for the next items."""
        left = SLICE
        while self._new and left > 0:
            view = self._new[0]
            entry = view.unclassified.pop()
            if not view.unclassified:
                del self._new[0]
            left -= 1
            item = self._item(entry, self._all)
            if item is not None:
                left -= properties_size(item.properties) // _SLICE_BYTES
                self._classify(view, item, entry)

    def _classify(self, view: _View, item: Item, entry: _Entry) -> None:
        assert view.selector is not None
        # The bit may be of an earlier selector, and the item from before the first one.
        marks = self._marks.get(item.item_id, self._all.bit) & ~view.bit
        if view.selector.matches(ItemNames(item)):
            marks |= view.bit
            self._push(view, item, entry)
        self._marks[item.item_id] = marks

    def matches(self, selector: str, item: Item) -> bool:
        """Whether the item passes this selector of a subscription."""
        condition = self._views[selector].selector
        return condition is None or condition.matches(ItemNames(item))

    def is_unmatched(self, item: Item, selectors: Collection[str]) -> bool:
        """Whether a ready item passes none of these selectors of subscriptions."""
        views = [self._views[each] for each in selectors]
        if any(view.unclassified for view in views):
            return False
        marks = self._marks.get(item.item_id, self._all.bit)
        return not any(marks & view.bit for view in views)

    # -- items -------------------------------------------------------------

    def add(self, item: Item) -> None:
        """Add an item that is available and not delayed."""
        entry = (-item.priority, item.order, item.seq, item.item_id)
        if item.excluded:
            self._note_excluders(item)
        self._push(self._all, item, entry)
        if len(self._views) > 1:
            marks, names = self._all.bit, ItemNames(item)
            for view in self._views.values():
                if view.selector is not None and view.selector.matches(names):
                    marks |= view.bit
                    self._push(view, item, entry)
            self._marks[item.item_id] = marks

    def discard(self, item: Item) -> None:
        """Forget an item that is not ready any more; its entries are dropped later."""
        self._marks.pop(item.item_id, None)

    def _push(self, view: _View, item: Item, entry: _Entry) -> None:
        if not item.excluded:
            self._push_to(view.plain, view, entry)
            return
        self._push_to(view.excluding, view, entry)
        for holder, own in self._excluders.items():
            if own and holder not in item.excluded:
                self._push_to(view.own.setdefault(holder, []), view, entry)

    def _push_to(self, heap: list[_Entry], view: _View, entry: _Entry) -> None:
        heapq.heappush(heap, entry)
        if len(heap) > 2 * len(self._items) + _SLACK:
            self._clean(heap, view)
            if heap is self._all.plain:
                # If nothing is excluded any more, nothing else would find that out.
                self._forget_excluders()

    def _clean(self, heap: list[_Entry], view: _View) -> None:
        """Drop outdated and duplicate entries."""
        heap[:] = [each for each in set(heap) if self._item(each, view)]
        heapq.heapify(heap)

    def any(self) -> bool:
        """Whether an item may be ready; True can be wrong, False cannot."""
        return bool(self._all.plain or self._all.excluding)

    # -- excluders ---------------------------------------------------------

    def _note_excluders(self, item: Item) -> None:
        self._excluding_since += 1
        if (
            len(self._excluders | dict.fromkeys(item.excluded)) > EXCLUDERS_MAX
            # So many that the search for former excluders costs each of them little.
            and self._excluding_since > self._excluding_kept
        ):
            self._forget_excluders()
        for holder in item.excluded:
            if holder in self._excluders:
                continue
            self._excluders[holder] = sum(self._excluders.values()) < EXCLUDERS_MAX
            if self._excluders[holder]:
                for view in self._views.values():
                    self._own_heap(view, holder)

    def _own_heap(self, view: _View, holder: str) -> None:
        """Make the heap of an excluder."""
        made = [
            entry
            for entry in view.excluding
            if (item := self._item(entry, view)) and holder not in item.excluded
        ]
        heapq.heapify(made)
        view.own[holder] = made

    def _forget_excluders(self) -> None:
        """Forget the excluders whose items are not ready any more."""
        excluded: set[str] = set()
        for view in self._views.values():
            self._clean(view.excluding, view)
        for entry in self._all.excluding:
            excluded |= self._items[entry[-1]].excluded
        self._excluders = {}
        for holder in sorted(excluded):
            self._excluders[holder] = len(self._excluders) < EXCLUDERS_MAX
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
        if not item.excluded:
            return True
        return holder is not None and holder not in item.excluded

    def pop(self, kinds: Iterable[Kind]) -> Item | None:
        """The next item that workers of one of these kinds can take; None: no item."""
        first: _Entry | None = None
        of: tuple[_View, list[_Entry]] | None = None
        for view, holder in kinds:
            if view.unclassified:
                continue
            excluding = (
                view.excluding if holder == "" else view.own.get(holder or "", [])
            )
            for heap in (view.plain, excluding):
                top = self._top(view, heap) if heap else None
                if top is not None and (first is None or top < first):
                    first, of = top, (view, heap)
        if of is None:
            return None
        view, heap = of
        return self._item(heapq.heappop(heap), view)

    def _top(self, view: _View, heap: list[_Entry]) -> _Entry | None:
        while heap:
            if self._item(heap[0], view) is not None:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _item(self, entry: _Entry, view: _View) -> Item | None:
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
