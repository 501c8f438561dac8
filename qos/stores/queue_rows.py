"""The rows of a queue service's values and changes in its database.

It has the tables, and the conversions between rows and values.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    RemoveItem,
    RemoveNode,
    RemoveSubscription,
    RemoveTerminus,
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import (
    Affiliation,
    EndedItem,
    Failure,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.push import (
    LINK_S,
    PushLink,
    PushSubscriber,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.terminus import ExpiryPolicy, Terminus
from qos.stores.sqlite_changes import Kind, Row, Statement, Value, insert, names
from qos.stores.sqlite_file import ABOUT, Migrations

__all__ = [
    "APPLICATION_ID",
    "ENDED",
    "ITEM",
    "MIGRATIONS",
    "NODE",
    "PUSH_LINK",
    "PUSH_SUBSCRIBER",
    "SUBSCRIPTION",
    "TERMINUS",
    "ended_from",
    "item_from",
    "node_from",
    "push_subscriber_from",
    "rows",
    "subscription_from",
    "terminus_from",
]

#: "QoSq", by which `file` and we recognize our files.
APPLICATION_ID = 0x516F5371

MIGRATIONS: Migrations = (
    (
        ABOUT,
        """CREATE TABLE node (
            name TEXT PRIMARY KEY,
            created_at REAL NOT NULL,
            config TEXT NOT NULL,
            affiliations TEXT NOT NULL,
            accepted INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE subscription (
            node TEXT NOT NULL,
            jid TEXT NOT NULL,
            subid TEXT NOT NULL,
            via TEXT NOT NULL,
            queue_requests INTEGER NOT NULL,
            batch INTEGER NOT NULL,
            durable_locks INTEGER NOT NULL,
            acknowledged INTEGER NOT NULL,
            PRIMARY KEY (node, jid)
        ) WITHOUT ROWID""",
        # AUTOINCREMENT keeps the largest seq ever, for QueueContents.next_seq.
        """CREATE TABLE item (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            origin TEXT NOT NULL,
            origin_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            size INTEGER NOT NULL,
            priority INTEGER NOT NULL,
            published_at REAL NOT NULL,
            available_at REAL NOT NULL,
            expires_at REAL,
            state TEXT NOT NULL,
            delivery_count INTEGER NOT NULL,
            releases INTEGER NOT NULL,
            "order" INTEGER NOT NULL,
            receivers TEXT NOT NULL,
            excluded TEXT NOT NULL,
            last_holder TEXT NOT NULL,
            token TEXT NOT NULL,
            holder TEXT NOT NULL,
            durable INTEGER NOT NULL,
            locked_at REAL NOT NULL,
            deadline REAL NOT NULL,
            outcome TEXT,
            ended_at REAL,
            forget_at REAL,
            history TEXT NOT NULL
        )""",
        """CREATE INDEX item_by_id ON item (node, item_id)""",
        # The lock of a live item does not touch these two.
        """CREATE INDEX item_archived ON item (outcome, node, seq)
            WHERE state = 'archived'""",
        """CREATE INDEX item_forgotten ON item (forget_at)
            WHERE forget_at IS NOT NULL""",
        """CREATE TABLE item_payload (
            seq INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
        """CREATE TABLE ended (
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            ended_at REAL NOT NULL,
            forget_at REAL NOT NULL,
            token TEXT NOT NULL,
            account TEXT NOT NULL,
            outcome TEXT,
            PRIMARY KEY (node, item_id)
        ) WITHOUT ROWID""",
        """CREATE INDEX ended_forgotten ON ended (forget_at)""",
    ),
    # Several ends are kept for an id that is used again, and for an item that is
    # requeued.
    (
        "ALTER TABLE ended RENAME TO ended_by_id",
        """CREATE TABLE ended (
            seq INTEGER NOT NULL,
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            ended_at REAL NOT NULL,
            forget_at REAL NOT NULL,
            token TEXT NOT NULL,
            account TEXT NOT NULL,
            outcome TEXT,
            PRIMARY KEY (node, item_id, token, seq)
        ) WITHOUT ROWID""",
        """INSERT INTO ended
            SELECT 0, node, item_id, publisher, digest, ended_at, forget_at, token,
                account, outcome
            FROM ended_by_id""",
        "DROP TABLE ended_by_id",
        """CREATE INDEX ended_forgotten ON ended (forget_at)""",
    ),
    # Identities of nodes, and the accounts they count for; dormant subscriptions.
    (
        "ALTER TABLE node ADD COLUMN identity TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN creator TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN dead_letter TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN dead_letter_by TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE subscription ADD COLUMN dormant_since REAL",
        "UPDATE node SET identity = lower(hex(randomblob(16)))",
        # The account that set a dead-letter node is not known. The setting stays if
        # every owner of the one node is an owner or a publisher of the other, so that
        # the unknown account may certainly publish there. Any other setting is dropped,
        # and dead items then stay in their node.
        """UPDATE node SET dead_letter = COALESCE((
                SELECT target.identity FROM node AS target
                WHERE target.name = json_extract(
                        node.config, '$."queue#dead_letter_node"'
                    )
                    AND NOT EXISTS (
                        SELECT 1 FROM json_each(node.affiliations) AS owner
                        WHERE owner.value = 'owner' AND NOT EXISTS (
                            SELECT 1 FROM json_each(target.affiliations) AS other
                            WHERE other.key = owner.key
                                AND other.value IN ('owner', 'publisher')
                        )
                    )
            ), '')""",
        """UPDATE node SET dead_letter_by = (
                SELECT MIN(key) FROM json_each(node.affiliations) WHERE value = 'owner'
            )
            WHERE dead_letter <> ''""",
        """UPDATE node SET config = json_remove(config, '$."queue#dead_letter_node"')
            WHERE dead_letter = ''""",
        # Nodes that were open by default stay open.
        """UPDATE node SET config = json_insert(
                config, '$."pubsub#access_model"', 'open'
            )""",
    ),
    # Properties of items, and selectors of subscriptions.
    (
        "ALTER TABLE item ADD COLUMN properties TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE subscription ADD COLUMN selector TEXT NOT NULL DEFAULT ''",
    ),
    # What AMQP 1.0 clients add: annotations of items, lifetimes of nodes.
    (
        "ALTER TABLE item ADD COLUMN annotations TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN lifetime TEXT NOT NULL DEFAULT ''",
    ),
    # Links of AMQP 1.0 clients, and their durable termini.
    (
        "ALTER TABLE subscription ADD COLUMN link INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE terminus (
            jid TEXT PRIMARY KEY,
            container TEXT NOT NULL,
            link TEXT NOT NULL,
            node TEXT NOT NULL,
            address TEXT NOT NULL,
            selector TEXT NOT NULL,
            copies INTEGER NOT NULL,
            durability INTEGER NOT NULL,
            policy TEXT NOT NULL,
            timeout_s INTEGER NOT NULL,
            cursor INTEGER NOT NULL,
            until REAL
        ) WITHOUT ROWID""",
    ),
    # What topics have dropped, and what the queues that copy from them have missed.
    (
        "ALTER TABLE node ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE node ADD COLUMN missed INTEGER NOT NULL DEFAULT 0",
    ),
    # Consumers to which the service pushes by HTTP.
    (
        """CREATE TABLE push_subscriber (
            subscriber_id TEXT PRIMARY KEY,
            node TEXT NOT NULL,
            account TEXT NOT NULL,
            rel TEXT NOT NULL,
            href TEXT NOT NULL,
            base TEXT NOT NULL,
            authorization TEXT NOT NULL,
            digest TEXT NOT NULL,
            selector TEXT NOT NULL,
            headers TEXT NOT NULL,
            method TEXT NOT NULL,
            content_type TEXT NOT NULL,
            sessions INTEGER NOT NULL,
            max_retries INTEGER NOT NULL,
            retry_wait_s REAL NOT NULL,
            disable_on_failure INTEGER,
            durable INTEGER NOT NULL,
            created_at REAL NOT NULL,
            enabled INTEGER NOT NULL,
            reason TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE push_link (
            subscriber_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            url TEXT NOT NULL,
            kept_at REAL NOT NULL,
            PRIMARY KEY (subscriber_id, seq)
        ) WITHOUT ROWID""",
    ),
)

# -- writing values ---------------------------------------------------------

#: The columns of each table, named like the fields of the values.
ITEM = tuple(field.name for field in fields(Item))
ENDED = tuple(field.name for field in fields(EndedItem))
NODE = tuple(field.name for field in fields(Node))
SUBSCRIPTION = tuple(field.name for field in fields(Subscription))
TERMINUS = tuple(field.name for field in fields(Terminus))
PUSH_SUBSCRIBER = tuple(field.name for field in fields(PushSubscriber))
PUSH_LINK = tuple(field.name for field in fields(PushLink))

#: A step of an item rarely changes these, and they have an index.
_PLACE = ("node", "item_id")

#: The values of an item, in the order of its row: converted ones first.
_ITEM_PACKED = (
    "state",
    "outcome",
    "receivers",
    "excluded",
    "history",
    "properties",
)
_ITEM_STEP = (
    *_ITEM_PACKED,
    *(name for name in ITEM if name not in (*_ITEM_PACKED, *_PLACE, "seq")),
)
_ITEM_ROW = (*_ITEM_STEP, *_PLACE, "seq")
_ENDED_ROW = ("outcome", *(name for name in ENDED if name != "outcome"))

_item_values = attrgetter(*_ITEM_ROW[len(_ITEM_PACKED) :])
_ended_values = attrgetter(*_ENDED_ROW[1:])
_subscription_values = attrgetter(*SUBSCRIPTION)
_push_link_values = attrgetter(*PUSH_LINK)

_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True
).encode


def _replace(table: str, columns: Sequence[str]) -> Statement:
    return Statement(insert(table, columns, verb="INSERT OR REPLACE"), *columns)


def _delete(table: str, columns: Sequence[str]) -> Statement:
    sql = f"DELETE FROM {table} WHERE ({names(columns)}) IN ({{rows}})"
    return Statement(sql, *columns)


def _update(*values: str, missing: str = "", where: str = "") -> Statement:
    """Change these columns of items; one of the values is their key."""
    new = {name: f"new.column{at}" for at, name in enumerate(values, start=1)}
    key = new.pop("seq")
    changes = ", ".join(f'"{name}" = {value}' for name, value in new.items())
    sql = f"UPDATE item SET {changes} FROM ({{rows}}) AS new WHERE seq = {key}{where}"
    return Statement(sql, *values, missing=missing)


_SAVE_ITEM = Kind(
    "item",
    (*_ITEM_ROW, "payload"),
    _replace("item", _ITEM_ROW),
    _replace("item_payload", ("seq", "payload")),
)
_STEP_ITEM = Kind(
    "item",
    _ITEM_ROW,
    # Otherwise an item without payload could appear, whose first commit has failed.
    _update(*_ITEM_STEP, "seq", missing="there is no such item to change"),
    _update(
        *(*_PLACE, "seq"),
        where=" AND (node <> new.column1 OR item_id <> new.column2)",
    ),
)
_REMOVE_ITEM = Kind(
    "item", ("seq",), _delete("item", ["seq"]), _delete("item_payload", ["seq"])
)
_SAVE_ENDED = Kind("ended", _ENDED_ROW, _replace("ended", _ENDED_ROW))
_SAVE_SUBSCRIPTION = Kind(
    "subscription", SUBSCRIPTION, _replace("subscription", SUBSCRIPTION)
)
_REMOVE_SUBSCRIPTION = Kind(
    "subscription", ("node", "jid"), _delete("subscription", ["node", "jid"])
)
_SAVE_TERMINUS = Kind("terminus", TERMINUS, _replace("terminus", TERMINUS))
_REMOVE_TERMINUS = Kind("terminus", ("jid",), _delete("terminus", ["jid"]))
_SAVE_PUSH_SUBSCRIBER = Kind(
    "push_subscriber", PUSH_SUBSCRIBER, _replace("push_subscriber", PUSH_SUBSCRIBER)
)
_REMOVE_PUSH_SUBSCRIBER = Kind(
    "push_subscriber",
    ("subscriber_id",),
    *(
        Statement(f"DELETE FROM {table} WHERE subscriber_id = ?", "subscriber_id")
        for table in ("push_subscriber", "push_link")
    ),
)
_SAVE_PUSH_LINK = Kind("push_link", PUSH_LINK, _replace("push_link", PUSH_LINK))
_REMOVE_PUSH_LINK = Kind(
    "push_link",
    ("subscriber_id", "seq"),
    _delete("push_link", ["subscriber_id", "seq"]),
)
_SAVE_NODE = Kind("node", NODE, _replace("node", NODE))
_REMOVE_NODE = Kind(
    "node",
    ("node",),
    *(
        Statement(sql, "node")
        for sql in (
            "DELETE FROM item_payload WHERE seq IN (SELECT seq FROM item WHERE node = ?)",
            "DELETE FROM item WHERE node = ?",
            "DELETE FROM ended WHERE node = ?",
            "DELETE FROM subscription WHERE node = ?",
            "DELETE FROM terminus WHERE node = ?",
            "DELETE FROM push_link WHERE subscriber_id IN"
            " (SELECT subscriber_id FROM push_subscriber WHERE node = ?)",
            "DELETE FROM push_subscriber WHERE node = ?",
            "DELETE FROM node WHERE name = ?",
        )
    ),
)
_FORGET_OLD = Kind(
    "ended",
    ("now",),
    *(
        Statement(sql, "now")
        for sql in (
            "DELETE FROM item_payload"
            " WHERE seq IN (SELECT seq FROM item WHERE forget_at <= ?)",
            "DELETE FROM item WHERE forget_at <= ?",
            "DELETE FROM ended WHERE forget_at <= ?",
            f"DELETE FROM push_link WHERE kept_at <= ? - {LINK_S}",
        )
    ),
)


def rows(changes: Iterable[Change]) -> Iterator[Row]:
    """The changes of a commit as rows, in order.

    An item that is saved again in the commit that brings it is new both times.
    """
    new: dict[int, str] = {}
    for change in changes:
        match change:
            case SaveItem(item, payload):
                if payload is None:
                    payload = new.get(item.seq)
                if payload is None:
                    yield _STEP_ITEM, item.seq, _item_row(item)
                else:
                    new[item.seq] = payload
                    yield _SAVE_ITEM, item.seq, (*_item_row(item), payload)
            case RemoveItem(seq):
                new.pop(seq, None)
                yield _REMOVE_ITEM, seq, (seq,)
            case SaveEnded(ended):
                which = (ended.node, ended.item_id, ended.token, ended.seq)
                yield _SAVE_ENDED, which, _ended_row(ended)
            case SaveSubscription(each):
                pair = (each.node, each.jid)
                yield _SAVE_SUBSCRIPTION, pair, _subscription_values(each)
            case RemoveSubscription(node, jid):
                yield _REMOVE_SUBSCRIPTION, (node, jid), (node, jid)
            case SaveTerminus(terminus):
                yield _SAVE_TERMINUS, terminus.jid, _terminus_row(terminus)
            case RemoveTerminus(jid):
                yield _REMOVE_TERMINUS, jid, (jid,)
            case SavePushLink(link):
                its_key = (link.subscriber_id, link.seq)
                yield _SAVE_PUSH_LINK, its_key, _push_link_values(link)
            case RemovePushLink(subscriber_id, seq):
                its_key = (subscriber_id, seq)
                yield _REMOVE_PUSH_LINK, its_key, its_key
            case SavePushSubscriber(subscriber):
                key = subscriber.subscriber_id
                yield _SAVE_PUSH_SUBSCRIBER, key, _push_subscriber_row(subscriber)
            case RemovePushSubscriber(subscriber_id):
                yield _REMOVE_PUSH_SUBSCRIBER, None, (subscriber_id,)
            case SaveNode(node):
                yield _SAVE_NODE, node.name, _node_row(node)
            case RemoveNode(name):
                new.clear()
                yield _REMOVE_NODE, None, (name,)
            case ForgetOld(now):
                new.clear()
                yield _FORGET_OLD, None, (now,)


def _ended_row(ended: EndedItem) -> tuple[Value, ...]:
    return (ended.outcome and ended.outcome.value, *_ended_values(ended))


def _item_row(item: Item) -> tuple[Value, ...]:
    return (
        item.state.value,
        item.outcome and item.outcome.value,
        _jids_text(item.receivers),
        _jids_text(item.excluded),
        _list_text([(each.at, each.by, each.reason) for each in item.history]),
        _json(dict(item.properties)) if item.properties else "{}",
        *_item_values(item),
    )


@lru_cache
def _jids_text(jids: frozenset[str]) -> str:
    # Most items share the same few sets.
    return _list_text(sorted(jids))


def _list_text(values: Sequence[object]) -> str:
    # Most lists are empty, and each item has three.
    return _json(values) if values else "[]"


def _node_row(node: Node) -> tuple[Value, ...]:
    affiliations = {jid: each.value for jid, each in node.affiliations.items()}
    packed = {"config": _json(node.config), "affiliations": _json(affiliations)}
    return tuple(
        packed[name] if name in packed else getattr(node, name) for name in NODE
    )


def _push_subscriber_row(its: PushSubscriber) -> tuple[Value, ...]:
    return tuple(
        _json(dict(its.headers)) if name == "headers" else getattr(its, name)
        for name in PUSH_SUBSCRIBER
    )


def _terminus_row(terminus: Terminus) -> tuple[Value, ...]:
    return tuple(
        terminus.policy.value if name == "policy" else getattr(terminus, name)
        for name in TERMINUS
    )


# -- reading values ---------------------------------------------------------


def item_from(plain: dict[str, Any]) -> Item:
    """An item from the columns ITEM; a ValueError or TypeError if they do not fit."""
    plain["state"] = ItemState(plain["state"])
    plain["outcome"] = _outcome_from(plain["outcome"])
    plain["durable"] = bool(plain["durable"])
    for name in ("receivers", "excluded"):
        plain[name] = frozenset(_list_from(plain[name]))
    history = _list_from(plain["history"])
    plain["history"] = tuple(Failure(*failure) for failure in history)
    properties = plain["properties"]
    plain["properties"] = {} if properties == "{}" else dict(json.loads(properties))
    return Item(**plain)


def _list_from(text: str) -> list[Any]:
    return [] if text == "[]" else list(json.loads(text))


def ended_from(plain: dict[str, Any]) -> EndedItem:
    """See item_from."""
    plain["outcome"] = _outcome_from(plain["outcome"])
    return EndedItem(**plain)


def _outcome_from(plain: str | None) -> ItemOutcome | None:
    return None if plain is None else ItemOutcome(plain)


def node_from(plain: dict[str, Any]) -> Node:
    """See item_from."""
    plain["config"] = dict(json.loads(plain["config"]))
    affiliations = dict(json.loads(plain["affiliations"]))
    plain["affiliations"] = {
        jid: Affiliation(each) for jid, each in affiliations.items()
    }
    return Node(**plain)


def push_subscriber_from(plain: dict[str, Any]) -> PushSubscriber:
    """See item_from."""
    for name in ("enabled", "durable"):
        plain[name] = bool(plain[name])
    if plain["disable_on_failure"] is not None:
        plain["disable_on_failure"] = bool(plain["disable_on_failure"])
    plain["headers"] = dict(json.loads(plain["headers"]))
    return PushSubscriber(**plain)


def subscription_from(plain: dict[str, Any]) -> Subscription:
    """See item_from."""
    for name in ("durable_locks", "acknowledged", "link"):
        plain[name] = bool(plain[name])
    return Subscription(**plain)


def terminus_from(plain: dict[str, Any]) -> Terminus:
    """See item_from."""
    plain["copies"] = bool(plain["copies"])
    plain["policy"] = ExpiryPolicy(plain["policy"])
    return Terminus(**plain)
