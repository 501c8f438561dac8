"""The store of a queue service as one SQLite file.

See `qos.stores.queue_base` for what it promises. The file can be read with any SQLite
tool, even while it is in use. The payloads are in a table of their own, so that a lock
does not write a payload again. See queue_schema.py for the tables, queue_rows.py for the
rows, sqlite_file.py for durability.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import asyncio
import math
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import Change
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.queue.terminus import Terminus
from qos.errors import InvalidArgument, StoreError
from qos.stores.queue_base import ItemRow, QueueStore
from qos.stores.queue_conditions import IN_MEMORY
from qos.stores.queue_counts import CountReads
from qos.stores.queue_forgetting import HAS_OLD
from qos.stores.queue_plain import IDS, PlainReads
from qos.stores.queue_purges import (
    ENDS,
    HAS_PURGED,
    NEXT_GEN,
    SHOWN,
    SHOWN_ENDS,
    next_purged,
)
from qos.stores.queue_rows import (
    ENDED,
    HEARD_AT,
    ITEM,
    NODE,
    PUSH_LINK,
    PUSH_SUBSCRIBER,
    SEEN_AT,
    SUBSCRIPTION,
    TERMINUS,
    rows,
)
from qos.stores.queue_schema import APPLICATION_ID, MIGRATIONS
from qos.stores.queue_values import (
    ended_from,
    item_from,
    node_from,
    push_subscriber_from,
    subscription_from,
    terminus_from,
)
from qos.stores.sqlite_changes import Row, names
from qos.stores.sqlite_file import Migrations, SqliteFile
from qos.stores.times import QUEUE_TABLES, moves, newest

__all__ = [
    "APPLICATION_ID",
    "MESSAGES",
    "MIGRATIONS",
    "SqliteQueueStore",
    "queue_store_from_url",
    "queue_store_of",
]

#: The store of the messages that a queue service receives has the name of its own store, and
#: this at the end.
MESSAGES = "-messages"

#: The number of payloads that one statement looks up.
_PAYLOADS = 256


_SEEN = f"EXISTS (SELECT 1 FROM about WHERE name = '{SEEN_AT}')"


def _unless_seen(value: str, rows: str) -> tuple[str, str]:
    """For `newest`: a time of all rows, of a file that does not say when it was used."""
    all_rows = f"(SELECT MAX({value}) FROM {rows})"
    return "at", f"(SELECT CASE WHEN {_SEEN} THEN NULL ELSE {all_rows} END AS at)"


_SELECT_ENDED = f"SELECT {names(ENDED)} FROM ended WHERE {SHOWN_ENDS} AND node = ? AND"


class SqliteQueueStore(PlainReads, CountReads, SqliteFile[QueueContents, Change]):
    """`sqlite:PATH`, for a queue service; see QueueStore."""

    _application_id = APPLICATION_ID
    _checks_later = True
    _tables = (
        "about",
        "node",
        "subscription",
        "terminus",
        "item",
        "ended",
        "purged",
        "deleted",
        "push_subscriber",
        "push_link",
        "item_count",
    )
    _newest = newest(
        ("CAST(value AS REAL)", f"about WHERE name = '{SEEN_AT}'"),
        # Since then: the item that was published last, and those that are locked.
        ("published_at", "(SELECT published_at FROM item ORDER BY seq DESC LIMIT 1)"),
        (
            "locked_at",
            f"item INDEXED BY item_in_memory WHERE {IN_MEMORY} AND state = 'acquired'",
        ),
        # A file of an earlier version does not say when it was used.
        _unless_seen("published_at", "item"),
        _unless_seen("ended_at", "item WHERE state = 'archived'"),
        _unless_seen("ended_at", "ended"),
    )
    heard_at: float | None = None
    _paged_at: float | None = None
    _moves = (
        *moves(QUEUE_TABLES),
        f"UPDATE about SET value = value + :by_s WHERE name IN ('{SEEN_AT}', '{HEARD_AT}')",
    )

    @property
    def _migrations(self) -> Migrations:
        return MIGRATIONS

    def _connect_writer(self) -> sqlite3.Connection:
        writer = super()._connect_writer()
        # So that INSERT OR REPLACE takes what it replaces out of the counts.
        writer.execute("PRAGMA recursive_triggers = ON")
        return writer

    def open(
        self, now: float | None = None, *, paged_at: float | None = None
    ) -> QueueContents:
        """See QueueStore."""
        self._paged_at = paged_at
        return super().open(now)

    def contents(self, *, paged_at: float | None = None) -> QueueContents:
        """See QueueStore."""
        self._paged_at = paged_at
        return self._contents()

    def payloads(self, seqs: Sequence[int]) -> dict[int, str]:
        """See QueueStore."""
        payloads: dict[int, str] = {}
        for start in range(0, len(seqs), _PAYLOADS):
            batch = seqs[start : start + _PAYLOADS]
            marks = ", ".join("?" * len(batch))
            sql = f"SELECT seq, payload FROM item_payload WHERE seq IN ({marks})"
            payloads.update(self._read(sql, *batch))
        return payloads

    def get(self, seq: int) -> Item | None:
        """The item with this seq, in any state."""
        items = self._items("WHERE seq = ?", seq)
        return items[0] if items else None

    def ended(self, node: str, item_id: str) -> list[EndedItem]:
        """See QueueStore."""
        return self.all_ended(node, [item_id]).get(item_id, [])

    def all_ended(
        self, node: str, item_ids: Sequence[str], *, since: float = -math.inf
    ) -> dict[str, list[EndedItem]]:
        """See QueueStore."""
        ends: dict[str, list[EndedItem]] = {}
        for start in range(0, len(item_ids), IDS):
            batch = item_ids[start : start + IDS]
            marks = ", ".join("?" * len(batch))
            values: tuple[float | str, ...] = (node, *batch, since)
            sql = (
                f"{_SELECT_ENDED} item_id IN ({marks}) AND ended_at > ? UNION ALL"
                f" {ENDS} AND item.node = ? AND item_id IN ({marks}) AND purged_at > ?"
            )
            records = self._records(ended_from, ENDED, sql, *values, *values)
            for end in records:
                ends.setdefault(end.item_id, []).append(end)
        return ends

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """See QueueStore."""
        ends: dict[str, EndedItem] = {}
        for item_id, token in tokens:
            sql = f"{_SELECT_ENDED} item_id = ? AND token = ?"
            records = self._records(ended_from, ENDED, sql, node, item_id, token)
            ends.update((item_id, end) for end in records)
        return ends

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int = 0,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        """See QueueStore."""
        return self._items(
            "WHERE state = 'archived' AND outcome = ? AND node = ? AND seq > ?"
            f" AND (forget_at IS NULL OR forget_at > ?) AND {SHOWN}"
            " ORDER BY seq LIMIT ?",
            outcome.value,
            node,
            after,
            now,
            limit,
        )

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        """See QueueStore."""
        sql = (
            "SELECT COUNT(*), COALESCE(SUM(forget_at IS NULL OR forget_at > ?), 0)"
            " FROM (SELECT forget_at FROM item WHERE state = 'archived' AND outcome = ?"
            f" AND node = ? AND {SHOWN} LIMIT ?)"
        )
        ((rows, count),) = self._read(sql, now, outcome.value, node, most + 1)
        return None if rows > most else int(count)

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        """See QueueStore."""
        return self._items(
            # Otherwise SQLite may read all items that the node keeps.
            "INDEXED BY item_by_id WHERE node = ? AND item_id = ?"
            f" AND state = 'archived' AND outcome = ? AND {SHOWN} ORDER BY seq",
            node,
            item_id,
            outcome.value,
        )

    def live_rows(self, node: str, item_ids: Collection[str]) -> list[ItemRow]:
        """See QueueStore."""
        ids = list(item_ids)
        rows: list[ItemRow] = []
        for start in range(0, len(ids), IDS):
            batch = ids[start : start + IDS]
            marks = ", ".join("?" * len(batch))
            sql = (
                "SELECT node, item_id, seq FROM item INDEXED BY item_by_id"
                f" WHERE node = ? AND item_id IN ({marks}) AND state <> 'archived'"
            )
            rows += [ItemRow(*row) for row in self._read(sql, node, *batch)]
        return rows

    def next_purged(self, rows: int) -> list[ItemRow]:
        """See QueueStore."""
        return next_purged(self._read, rows)

    def has_purged(self) -> bool:
        """See QueueStore."""
        return bool(self._read(HAS_PURGED)[0][0])

    def has_old(self, now: float) -> bool:
        """See QueueStore."""
        return bool(self._read(HAS_OLD, now, now, now)[0][0])

    def push_subscribers(self) -> list[PushSubscriber]:
        """See QueueStore."""
        sql = (
            f"SELECT {names(PUSH_SUBSCRIBER)} FROM push_subscriber ORDER BY created_at"
        )
        return self._records(push_subscriber_from, PUSH_SUBSCRIBER, sql)

    def push_links(self, subscriber_id: str) -> dict[int, PushLink]:
        """See QueueStore."""
        sql = f"SELECT {names(PUSH_LINK)} FROM push_link WHERE subscriber_id = ?"
        links = self._records(
            lambda plain: PushLink(**plain), PUSH_LINK, sql, subscriber_id
        )
        return {link.seq: link for link in links}

    async def link_key(self) -> str:
        """See QueueStore."""
        if self._thread is None:
            raise StoreError(self.url, "is not open")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._link_key)

    def _link_key(self) -> str:
        """See link_key; in the writer's thread."""
        assert self._writer is not None
        with self._errors():
            # A statement of its own is committed at once.
            self._writer.execute(
                "INSERT OR IGNORE INTO about VALUES ('link_key', ?)",
                (secrets.token_hex(32),),
            )
            sql = "SELECT value FROM about WHERE name = 'link_key'"
            (key,) = self._writer.execute(sql).fetchone()
        return str(key)

    def _items(self, clauses: str, *values: float | str) -> list[Item]:
        sql = f"SELECT {names(ITEM)} FROM item {clauses}"
        return self._records(item_from, ITEM, sql, *values)

    def _termini(self) -> list[Terminus]:
        sql = f"SELECT {names(TERMINUS)} FROM terminus ORDER BY jid"
        return self._records(terminus_from, TERMINUS, sql)

    def _contents(self) -> QueueContents:
        nodes = f"SELECT {names(NODE)} FROM node ORDER BY name"
        subscriptions = (
            f"SELECT {names(SUBSCRIPTION)} FROM subscription ORDER BY node, jid"
        )
        ((last_order,),) = self._read(
            'SELECT COALESCE(MAX("order"), 0) FROM item INDEXED BY item_order'
            ' WHERE "order" > 0'
        )
        noted = self._read(
            "SELECT CAST(value AS REAL) FROM about WHERE name = ?", HEARD_AT
        )
        # A file of an earlier version says only when it was used.
        ((self.heard_at,),) = noted or self._read(self._newest)
        live, plain = f"WHERE state <> 'archived' AND {SHOWN} ORDER BY seq", None
        if self._paged_at is not None:
            plain = self._plain_counts(self._paged_at)
            live = (
                f"INDEXED BY item_in_memory WHERE {IN_MEMORY} AND {SHOWN} ORDER BY seq"
            )
        return QueueContents(
            nodes=self._records(node_from, NODE, nodes),
            subscriptions=self._records(subscription_from, SUBSCRIPTION, subscriptions),
            termini=self._termini(),
            items=self._items(live),
            plain=plain,
            letters=self._letter_counts(),
            dead=self._dead_counts(),
            next_seq=self._next_seq("item"),
            next_order=last_order + 1,
            next_gen=self._read(NEXT_GEN)[0][0],
        )

    def _rows(self, changes: Iterable[Change]) -> Iterator[Row]:
        return rows(changes)


def queue_store_from_url(url: str) -> QueueStore:
    """The store of a queue service with this URL, not open yet.

    Args:
        url: `sqlite:PATH`; the path may begin with `~`.

    Raises:
        InvalidArgument: any other URL. Everything that a queue has confirmed must
            survive its process, so `memory:` is refused.
    """
    if isinstance(url, str):
        scheme, _, path = url.partition(":")
        if scheme == "sqlite" and path and "\0" not in path:
            return SqliteQueueStore(path)
    why = "memory: would not survive, and files: is for messages"
    raise InvalidArgument("store", url, "the URL sqlite:PATH", why=why)


def queue_store_of(store: QueueStore | str) -> QueueStore:
    """The store that a user has made, or named by its URL; not open yet.

    Raises:
        InvalidArgument: it is neither a QueueStore nor such a URL.
    """
    if isinstance(store, QueueStore):
        return store
    if isinstance(store, str):
        return queue_store_from_url(store)
    raise InvalidArgument("store", store, "a URL or a QueueStore")
