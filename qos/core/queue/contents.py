"""The contents of the store of a queue service: at its start, and when it is asked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from qos.core.queue.item import EndedItem, Item, ItemOutcome, Node, Subscription
from qos.core.queue.places import DelayEnd, Place
from qos.core.queue.terminus import Terminus

__all__ = [
    "EndedItems",
    "Moment",
    "PlainItems",
    "QueueContents",
    "StepFailed",
    "StoredItems",
]


#: When the ttl of an item ends, and its seq.
Moment: TypeAlias = tuple[float, int]


class StepFailed(Exception):
    """The store cannot be read, and a step that has changed something needs it."""


class EndedItems(Protocol):
    """The records that are not held in memory: the store is asked for them."""

    def ended(
        self, node: str, item_ids: Sequence[str], *, since: float
    ) -> dict[str, list[EndedItem]]:
        """The remembered ends, after `since`, of items with these ids; by id."""

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """The ends with these pairs of item id and token, by item id."""

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        """Accepted items that are kept at `now`, or (rejected) dead ones, by seq."""

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        """The archived items that had this id, by seq.

        Some may be about to be removed.
        """

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        """How many of the archived items are kept at `now`; None: more than `most`."""


class StoredItems(EndedItems, Protocol):
    """Those, and the plain items (`Item.is_plain`) of each node by its generation."""

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """Plain items that are not held back, in the order of delivery, from this place on.

        Returns:
            The items, and where they end. No other one lies before that.
        """

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """The plain items with these ids, by id."""

    def plain_item(self, node: str, gen: int, item_id: str) -> Item | None:
        """The plain item with this id; asked when something has been changed.

        Raises:
            StepFailed: the store cannot be read.
        """

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """The first plain items with a larger seq, or the last ones; by seq."""

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """Plain items with a ttl in the order of its end, after this one."""

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """Plain items whose delay ends after this place, and not after `until`, in order."""

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """The dead letters from the node of this identity with a larger seq, by seq."""

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """The dead letters from the node of this identity that had one of these ids."""

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """No delay of a plain item ends after now and before that; None: none ends."""


class PlainItems(NamedTuple):
    """The plain items of a node.

    Attributes:
        items: how many there are.
        size: bytes of their payloads.
        expires_at: none of them expires before; None: none of them does.
        delayed: how many are held back.
        delayed_until: none of these delays ends before; None: there is none.
        counted_at: the time at which these are held back.
        releases: how many items were released so many times in a row, if they were: pairs
            of the number of releases and the number of items.
    """

    items: int = 0
    size: int = 0
    expires_at: float | None = None
    delayed: int = 0
    delayed_until: float | None = None
    counted_at: float = -math.inf
    releases: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class QueueContents:
    """The contents of the store that a queue service needs when it starts.

    Attributes:
        nodes: all nodes, by name.
        subscriptions: all subscriptions, by node and JID.
        items: the items that are available or acquired, by seq; without plain ones if they
            are counted.
        plain: the counts of the plain items of each node that has some; None: they are not
            counted, and queues keep all items in memory.
        termini: the durable termini of links of gateways.
        letters: how many dead letters each node has, by the identity of the node where they
            died.
        dead: how many items each node keeps as dead; a node with none is left out.
        next_seq: one more than the largest seq that was ever used.
        next_order: one more than the largest `Item.order` of an item that is there.
        next_gen: one more than the largest generation of a deleted node of which something
            is there; 0: there is none.
    """

    nodes: list[Node] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    termini: list[Terminus] = field(default_factory=list)
    plain: dict[str, PlainItems] | None = None
    letters: dict[str, dict[str, int]] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    next_seq: int = 1
    next_order: int = 1
    next_gen: int = 0
