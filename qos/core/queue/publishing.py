"""Publishing: telling repeated items from new ones, and checking for room."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from qos.core.queue.item import PRIORITY, EndedItem, Item, Node
from qos.core.queue.item_index import ItemIndex
from qos.core.queue.item_names import names_of_payload
from qos.core.queue.node_options import NodeOptions
from qos.core.queue.properties import Properties
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.url_segments import why_no_segment

__all__ = ["ONCE_S_MAX", "has_room", "new_item", "new_items", "once_s"]

#: As long as that a publisher may try again to post by a one-off link.
ONCE_S_MAX = 3600.0

#: A time that the service has given out may be rounded up, by less than this.
_AHEAD_S = 1.0


def new_items(
    live: ItemIndex,
    entries: Sequence[PublishedItem],
    publisher: str,
    *,
    node: Node,
    options: NodeOptions,
    present: Mapping[str, Item],
    ended_items: Mapping[str, Sequence[EndedItem]],
    next_seq: Callable[[], int],
    payload_names: Collection[str],
    bytes_left: int,
    issued_at: float | None = None,
    now: float,
) -> list[tuple[Item, str]]:
    """The new items, each with its payload. Dedupe comes before the limits.

    Args:
        live: counts the items that are available or locked.
        entries: of different ids.
        publisher: the bare JID.
        node: the node.
        options: of the node.
        present: those of them that are there, by id.
        ended_items: the remembered ends, by id.
        next_seq: gives the next item number of the store.
        payload_names: the names that selectors want to know of the payload.
        bytes_left: of all nodes of the account that created this one.
        issued_at: see `Publish`.
        now: the time.

    Raises:
        Refusal: an id is taken or cannot be in a URL, or there is no room.
    """
    assert len({entry.item_id for entry in entries}) == len(entries)
    new = _not_repeated(
        present, entries, publisher, options, ended_items, issued_at, now
    )
    if not new:
        return []
    if issued_at is not None and not _is_fresh(now - issued_at, options):
        raise Refusal(
            "the link is too old to tell whether it was used; take a new one",
            condition="gone",
            type="cancel",
        )
    _check_room(live, new, node.name, options, bytes_left)
    items = []
    for entry in new:
        names = names_of_payload(entry.payload, payload_names) if payload_names else {}
        item = new_item(entry, publisher, node, options, names, next_seq(), now)
        items.append((item, entry.payload))
    return items


def _not_repeated(
    present: Mapping[str, Item],
    entries: Sequence[PublishedItem],
    publisher: str,
    options: NodeOptions,
    ended_items: Mapping[str, Sequence[EndedItem]],
    issued_at: float | None,
    now: float,
) -> list[PublishedItem]:
    """The entries that are not there yet, nor remembered; see `new_items`."""
    new = []
    for entry in entries:
        # There are several if a dead item has been requeued.
        earlier_items: list[Item | EndedItem] = [
            before
            for before in ended_items.get(entry.item_id, ())
            if now < before.ended_at + options.dedupe_window
        ]
        if entry.item_id in present:
            earlier_items.append(present[entry.item_id])
        if not earlier_items:
            if why := why_no_segment(entry.item_id):
                raise Refusal(f"the item {why}", condition="bad-request", type="modify")
            new.append(entry)
        elif issued_at is not None and any(
            item.publisher == publisher for item in earlier_items
        ):
            return []
        elif not any(_is_same(item, entry, publisher) for item in earlier_items):
            raise Refusal(
                f"there is another item {entry.item_id!r}",
                condition="conflict",
                type="cancel",
            )
    return new


def once_s(options: NodeOptions) -> float:
    """Seconds for which an id that the service has given out can be used.

    Within the dedupe window after that, no use of it is forgotten.
    """
    return min(options.dedupe_window, ONCE_S_MAX)


def _is_fresh(age_s: float, options: NodeOptions) -> bool:
    """Whether no use of an id can have been forgotten that was given out so long ago.

    If it was given out later than now, the clock was ahead then, and its age is not known.
    """
    return -_AHEAD_S <= age_s < once_s(options)


def _is_same(earlier: Item | EndedItem, entry: PublishedItem, publisher: str) -> bool:
    return (earlier.publisher, earlier.digest) == (publisher, entry.digest)


def has_room(live: ItemIndex, options: NodeOptions, size: int) -> bool:
    """Whether one more item of this many bytes is within the limits of the node."""
    return _exceeded(live.count + 1, live.size + size, options) is None


def _check_room(
    live: ItemIndex,
    new: Sequence[PublishedItem],
    node: str,
    options: NodeOptions,
    bytes_left: int,
) -> None:
    items, size = live.count, live.size
    for entry in new:
        items, size = items + 1, size + entry.size
        limit = _exceeded(items, size, options)
        if limit is not None:
            raise Refusal(
                f"{entry.item_id!r} finds no room: the limit of {node!r} is {limit}",
                condition="resource-constraint",
                type="wait",
            )
    if size - live.size > bytes_left:
        raise Refusal(
            f"the nodes of the account that created {node!r} hold as many bytes as are "
            "possible here (`xmpp-qos queue serve --bytes-per-account`)",
            condition="resource-constraint",
            type="wait",
        )


def _exceeded(items: int, size: int, options: NodeOptions) -> str | None:
    """The limit that this many items or bytes would exceed, in words; None: none."""
    if options.max_items is not None and items > options.max_items:
        return f"{options.max_items} items"
    if options.max_bytes is not None and size > options.max_bytes:
        return f"{options.max_bytes} bytes"
    return None


def new_item(
    entry: PublishedItem,
    publisher: str,
    node: Node,
    options: NodeOptions,
    payload_values: Properties,
    seq: int,
    now: float,
) -> Item:
    """The item as it begins; see `new_items`.

    Args:
        entry: as it was published.
        publisher: the bare JID.
        node: the node.
        options: of the node.
        payload_values: what selectors want to know of the payload.
        seq: its number.
        now: the time.
    """
    ttl = options.ttl if entry.ttl is None else entry.ttl
    properties = entry.properties
    if payload_values:
        properties = {**properties, **payload_values}
    return Item(
        seq=seq,
        node=node.name,
        gen=node.gen,
        item_id=entry.item_id,
        publisher=publisher,
        digest=entry.digest,
        size=entry.size,
        priority=PRIORITY if entry.priority is None else entry.priority,
        published_at=now,
        available_at=now + entry.delay,
        expires_at=None if ttl is None else now + ttl,
        properties=properties,
    )
