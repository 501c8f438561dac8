"""The contract of a store of a queue service.

Such a store keeps nodes, subscriptions, termini, items with their payloads, remembered
ends, and the push subscribers of an HTTP gateway with their links. It keeps the values
of `qos.core.queue.item` as the changes of `qos.core.queue.effects` say, and decides
nothing. `qos.testing.queue_store_contract` is this contract as tests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from qos.core.queue.contents import Moment, QueueContents
from qos.core.queue.effects import Change
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.places import DelayEnd, Place
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.wall_clock import ClockHistory
from qos.stores.base import Journal

__all__ = ["ItemRow", "PurgedRows", "QueueStore"]


class ItemRow(NamedTuple):
    """The row of an item that may be there for nobody but the store."""

    node: str
    item_id: str
    seq: int


class PurgedRows(Protocol):
    """The rows of items that were purged, or deleted with their node; see RemovePurged."""

    def live_rows(self, node: str, item_ids: Collection[str]) -> list[ItemRow]:
        """The rows with these ids of a node that are not archived.

        With those whose rows RemovePurged has still to remove.
        """

    def next_purged(self, rows: int) -> list[ItemRow]:
        """What RemovePurged with this number of rows would remove, by id and seq.

        Without archived items and ends.
        """

    def has_purged(self) -> bool:
        """Whether rows of purged items or deleted nodes may be there, for RemovePurged."""


@runtime_checkable
class QueueStore(PurgedRows, Protocol):
    """Keeps everything of one queue service.

    An item is identified by its seq. Saving a value again replaces it; removing one
    that is not there does nothing. Each change does what its class says.

    Everything that a queue has confirmed must survive its process. So a store is on
    disk, and a written change survives a crash.

    All reads see committed data, which may be a moment before the future of the write
    is done. They raise a StoreError if the store is not open, or damaged.

    Used by one thread, that of the event loop; only `open` may run elsewhere.

    Attributes:
        url: the name for users. A service that registers xep_qos keeps the messages
            which it receives in the store of messages with this URL and `-messages` at
            its end.
        store_id: random, made with the store and kept as long as it lives. Valid once
            it is open; before that it may be ''.
        journal: written before each commit, if there is one, so that the store never
            has a change that the journal does not have (`qos.stores.group_commit`).
    """

    url: str
    store_id: str
    journal: Journal | None

    @property
    def clock(self) -> ClockHistory:
        """By how much its times have moved so far; valid once it is open."""

    @property
    def heard_at(self) -> float | None:
        """When XMPP workers could be heard last, as the store knew when it was opened.

        As the last NoteSeen says, moved as all other times. Without one, the time of the
        last publish or lock; None: there is none.
        """

    def open(
        self, now: float | None = None, *, paged_at: float | None = None
    ) -> QueueContents:
        """Open or create the store, and return its contents.

        Blocks; the time grows with the number of items in the result. A closed store may
        be opened again.

        Args:
            now: the time of the process. If it does not fit to the times in the store,
                all of these move by `qos.core.wall_clock.shift`, on disk, before the
                contents are read. None: nothing moves.
            paged_at: see `contents`.

        Raises:
            StoreInUse: another process, or another store object of this one, has it
                open.
            StoreTooNew, StoreDamaged, StoreReadOnly, StoreFull, StoreError: as they
                say; the store is left as it was.
        """

    def contents(self, *, paged_at: float | None = None) -> QueueContents:
        """The result of `open`, as of now.

        Args:
            paged_at: count plain items (`Item.is_plain`) in place of showing them, and
                those that are held back at this time; None: show all.

        Nodes are by name, subscriptions by node and JID, termini by JID, and the items
        that are not archived by seq. The next seq is larger than each that was there at
        the end of any commit, even if its item is gone.
        """

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Write the changes, all or none, after all earlier writes.

        A process that dies in a write leaves all of its changes or none.

        Returns:
            None if there are no changes, or a future that is done when they are on
            disk. It may fail with a StoreError; then none of the changes was made, and
            the next write may succeed. All writes of a commit share the future, which
            cannot be cancelled, and fail together. To change an item that is not there
            (a SaveItem without a payload) fails the write: it builds on a write that
            has failed.

        Raises:
            StoreError: it is not open.
        """

    async def close(self) -> None:
        """Finish all writes, then let go of the store.

        May be repeated. A write that is not possible any more fails its own future.
        """

    def payloads(self, seqs: Sequence[int]) -> dict[int, str]:
        """The payloads of these items; missing items are left out."""

    def ended(self, node: str, item_id: str) -> list[EndedItem]:
        """The remembered ends of items with this id, in any order."""

    def all_ended(
        self, node: str, item_ids: Sequence[str], *, since: float = -math.inf
    ) -> dict[str, list[EndedItem]]:
        """The remembered ends of items with these ids, by id.

        Ids without any are left out.

        Args:
            node: the name of the node.
            item_ids: their ids.
            since: only ends after this time.
        """

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """The ends with these pairs of item id and token, by item id.

        Pairs without an end are left out.
        """

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int = 0,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        """The items that a node keeps after this outcome, with seq > after, by seq.

        Items whose `forget_at` is not after now are left out: their time is over,
        though they may still be in the store. A list shorter than the limit is the end.
        """

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        """How many items a node keeps after this outcome; see archived.

        None: there are more than `most`, perhaps with some whose time is over. It takes
        as long then as for `most`.
        """

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        """The items with this id that a node keeps after this outcome, by seq."""

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """The plain items of this generation of a node (`Item.is_plain`), in order.

        The order is that of delivery. Those that are held back at `now` are passed over.
        It may stop before it has found anything, since that takes time.

        Args:
            node: the name of the node.
            gen: the generation.
            start: only those from this place on.
            limit: so many at most.
            now: the time.

        Returns:
            The items, and where they end: no other one lies before that. At the end of
            all it is `qos.core.queue.places.LAST`.
        """

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """The plain items of this generation of a node with these ids, by id."""

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """The plain items of this generation of a node that have a ttl, by its end and seq.

        Args:
            node: the name of the node.
            gen: the generation.
            after: only those behind this end and seq.
            limit: so many at most; a shorter list is the end.
        """

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """The plain items of this generation of a node with a delay, by its end.

        Args:
            node: the name of the node.
            gen: the generation.
            after: only those whose delay ends after this place.
            until: only those whose delay ends until this time.
            limit: so many at most; a shorter list is the end.
        """

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """The dead letters of this generation of a node from one other node, by seq.

        Those that are available or locked.

        Args:
            node: the name of the node where they are.
            gen: its generation.
            identity: of the node where they died.
            after: only those with a larger seq.
            limit: so many at most; a shorter list is the end.
        """

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """Those of them that had one of these ids where they died, in any order."""

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """When the next delay of a plain item, or of a locked one, ends after now."""

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """The plain items of this generation of a node with seq > after, by seq.

        Of more than the limit the first ones, or the last ones.
        """

    def check(self) -> asyncio.Future[None] | None:
        """Look for damage that `open` has not looked for, in the background.

        Returns:
            What is done when it is over, with the StoreError if something is wrong; None:
            there is nothing left to look at.
        """

    def has_old(self, now: float) -> bool:
        """Whether ForgetOld with this time would remove anything.

        It takes as long whatever the number of rows is, old ones or not.
        """

    def push_subscribers(self) -> list[PushSubscriber]:
        """All push subscribers, the oldest first."""

    def push_links(self, subscriber_id: str) -> dict[int, PushLink]:
        """The links of the messages that are on their way to a subscriber, by seq."""

    async def link_key(self) -> str:
        """A secret of this store, made when it is asked for the first time.

        It is on disk when this returns. It is for the one-off links of an HTTP gateway,
        which survive restarts.
        """
