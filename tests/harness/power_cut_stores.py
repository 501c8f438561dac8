"""The stores whose power is cut, and the writes to each.

Needs pytest and hypothesis, as `qos.testing.store_contract` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from power_cut_writer import Weakness
from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import IncomingState, OutgoingState
from qos.core.queue.effects import (
    ForgetOld,
    RemoveItem,
    RemoveNode,
    RemoveSubscription,
    SaveEnded,
    SaveItem,
    SaveLock,
    SaveNode,
    SaveSubscription,
)
from qos.core.queue.item import (
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.stores.base import ForgetEnded, Remember
from qos.stores.durable_store import DurableStore
from qos.stores.files import FilesStore
from qos.stores.files_index import outgoing_name
from qos.stores.queue_store import SqliteQueueStore
from qos.stores.sqlite import SqliteStore
from qos.testing.queue_store_records import ended_item, item
from qos.testing.store_records import ended, incoming, outgoing

__all__ = ["FILES", "KINDS", "QUEUE", "SQLITE", "Kind"]

#: Larger than a page of SQLite, and than several together.
_PAYLOAD = "<message xmlns='jabber:client'>" + "x" * 9000 + "</message>"


@dataclass(frozen=True, slots=True)
class Kind:
    """A store that is tried.

    Attributes:
        name: in the table.
        store: its class.
        writes: the writes, in order; each is there completely or not at all.
        snapshot: the contents of an open store and the result of its `open`.
        deaths: where each life but the last ends: after a step (see Plan), or in its
            n-th sync.
        weaknesses: with each of these it must lose something.
    """

    name: str
    store: Callable[[Path], DurableStore[Any, Any]]
    writes: Sequence[Sequence[Any]]
    snapshot: Callable[[Any, Any], object]
    deaths: tuple[tuple[str, int] | int, ...]
    weaknesses: tuple[Weakness, ...]


def _message_writes() -> list[list[Any]]:
    # None ends an item of another in its group: a seq that came and went in one commit
    # may be given again.
    done = ended(5, state=OutgoingState.DELIVERED)
    return [
        [Save(outgoing(1))],
        [Save(outgoing(2, payload=_PAYLOAD)), Save(incoming("a", payload=_PAYLOAD))],
        [Remember("resource", "1")],
        [Save(outgoing(1, state=OutgoingState.OFFERED))],
        [End(ended(1)), Save(outgoing(3)), Remember("resource", "2")],
        [Save(incoming("a", payload=_PAYLOAD, state=IncomingState.RELEASING))],
        [Forget(incoming("a")), Save(incoming("b"))],
        [Forget(outgoing(3))],
        [Save(outgoing(4)), Save(outgoing(5, payload=_PAYLOAD)), Save(incoming("c"))],
        [End(done), Forget(outgoing(4)), Remember("last", "5")],
        [Save(incoming("d", payload=_PAYLOAD))],
        [Forget(incoming("b")), ForgetEnded(before=0.0, below=2)],
        [Save(outgoing(number, payload=_PAYLOAD)) for number in range(6, 10)],
        [End(ended(number)) for number in range(6, 10)],
        [Save(incoming("c", state=IncomingState.RELEASING)), Save(outgoing(10))],
        [Forget(incoming("c"))],
    ]


def _message_snapshot(store: SqliteStore | FilesStore, contents: object) -> object:
    return (
        *(contents, list(store.outgoing())),
        *(list(store.incoming()), list(store.ended())),
    )


def _item(seq: int, **changes: Any) -> Item:
    """An item as large as a page, or larger."""
    return item(
        seq,
        item_id=f"item {seq}",
        digest=f"{seq:064x}",
        size=9000,
        published_at=1_700_000_000.5 + seq,
        **changes,
    )


def _queue_writes() -> list[list[Any]]:
    node = Node(name="jobs", identity="i", created_at=1.0, config={"ttl": "5"})
    more = Node(name="more", identity="j", created_at=2.0)
    wish = Subscription(
        node="jobs",
        jid="bee@example.org/1",
        subid="s",
        via="bee@example.org/1",
        queue_requests=3,
    )
    gone = ended_item(1, item_id="item 1", ended_at=3.0, forget_at=9.0)
    late = replace(gone, seq=2, item_id="item 2", forget_at=99.0)
    held = {"state": ItemState.ACQUIRED, "holder": "bee@example.org/1", "token": "t"}
    dead = {"state": ItemState.ARCHIVED, "outcome": ItemOutcome.REJECTED}
    return [
        [SaveNode(node), SaveSubscription(wish)],
        [SaveItem(_item(1), _PAYLOAD), SaveItem(_item(2), "<x/>")],
        [SaveLock(_item(1, **held))],
        [SaveItem(_item(3), _PAYLOAD), SaveNode(replace(node, accepted=1))],
        [RemoveItem(1), SaveEnded(gone)],
        [SaveItem(_item(2, delivery_count=1, order=4))],
        [SaveItem(_item(seq), _PAYLOAD) for seq in range(4, 8)],
        [SaveItem(_item(4, **dead)), RemoveItem(2), SaveEnded(late)],
        [RemoveSubscription("jobs", "bee@example.org/1")],
        [ForgetOld(10.0, 9), SaveLock(_item(3, **held))],
        [RemoveItem(5), SaveNode(more)],
        [SaveItem(_item(8, node="more"), _PAYLOAD)],
        [RemoveNode("jobs", 0)],
        [SaveItem(_item(9, node="more"), "<y/>")],
        # An item of a topic, which drops an older one, and its copies; one has no room.
        [
            SaveItem(_item(10, node="more"), _PAYLOAD),
            *(RemoveItem(8), SaveNode(replace(more, dropped=8))),
            *(SaveItem(_item(seq, node="copies"), _PAYLOAD) for seq in (11, 12)),
            SaveNode(Node(name="copies", identity="k", created_at=3.0, missed=1)),
        ],
    ]


def _queue_snapshot(store: SqliteQueueStore, contents: Any) -> object:
    seqs = range(contents.next_seq)
    ids = [f"item {seq}" for seq in seqs]
    return (
        *(contents, [store.get(seq) for seq in seqs], store.payloads(seqs)),
        [store.all_ended(name, ids) for name in ("jobs", "more")],
        store.archived("jobs", ItemOutcome.REJECTED, limit=99),
    )


#: More than there are before the first write, so that it belongs to one commit.
_IN_A_SYNC = 15

_OF_SQLITE = (Weakness.NORMAL, Weakness.OFF)

SQLITE = Kind(
    *("messages, sqlite", SqliteStore, _message_writes(), _message_snapshot),
    *((_IN_A_SYNC,), _OF_SQLITE),
)
QUEUE = Kind(
    *("queue, sqlite", SqliteQueueStore, _queue_writes(), _queue_snapshot),
    *((_IN_A_SYNC,), _OF_SQLITE),
)
FILES = Kind(
    *("messages, files", FilesStore, _message_writes(), _message_snapshot),
    # Before the new name is synced; in the middle of a decided commit.
    ((f"rename {outgoing_name(1)}.tmp", 1), (f"rename {outgoing_name(5)}.tmp", 1)),
    (Weakness.NO_FOLDER_SYNC, Weakness.NO_FILE_SYNC, Weakness.NO_COMMIT_FILE),
)

KINDS = (SQLITE, QUEUE, FILES)
