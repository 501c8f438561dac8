"""The items of a node that are available or locked, found in every way they are asked for.

By id, by holder, by who is next, by when something happens to them, by where they died.
An item is a value: what has changed is dropped as it was and put as it is.
"""

from __future__ import annotations

from qos.core.queue.dispatch import ItemTimers, ReadyItems
from qos.core.queue.holders import Holders
from qos.core.queue.item import Item, ItemState
from qos.core.strings import bare

__all__ = ["ItemIndex"]


class ItemIndex:
    """The items of one node.

    Attributes:
        items: by id.
        size: bytes of their payloads.
        letters: the ids of dead letters, by the node that they came from.
        holders: who has what.
        backlog: what can be given out.
        moments: when something happens by itself.
    """

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.size = 0
        self.letters: dict[str, set[str]] = {}
        self.holders = Holders()
        self.backlog = ReadyItems(self.items.get)
        self.moments = ItemTimers(self.items.get)

    def put(self, item: Item, now: float) -> None:
        """Hold an item that is not held."""
        self.items[item.item_id] = item
        self.size += item.size
        if item.origin:
            self.letters.setdefault(item.origin, set()).add(item.item_id)
        if item.state is ItemState.ACQUIRED:
            self.holders.add(item)
        elif not item.is_held_back(now):
            self.give_out(item)
        self.moments.expect(item, now, count=len(self.items))

    def drop(self, item: Item) -> None:
        """Do not hold it any more, in this state."""
        del self.items[item.item_id]
        self.size -= item.size
        if item.origin:
            letters = self.letters[item.origin]
            letters.discard(item.item_id)
            if not letters:
                del self.letters[item.origin]
        if item.state is ItemState.ACQUIRED:
            self.holders.discard(item)

    def give_out(self, item: Item) -> None:
        """It can be delivered now."""
        self.backlog.add(item, count=len(self.items))

    def locks(self, jid: str) -> list[Item]:
        """What this full JID has, with what is locked for its account."""
        ids = (*self.holders.held(jid), *self.holders.durable(bare(jid)))
        items = (self.items[item_id] for item_id in ids)
        return sorted(items, key=lambda item: (item.locked_at, item.seq))
