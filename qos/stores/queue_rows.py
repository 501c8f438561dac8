"""The rows of a queue service's values and changes in its database.

See `queue_schema` for the tables, and `queue_values` for the way back.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    NoteSeen,
    PurgeNode,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    RemoveSubscription,
    RemoveTerminus,
    SaveEnded,
    SaveItem,
    SaveLock,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import (
    LOCK,
    EndedItem,
    Item,
    Node,
    Subscription,
)
from qos.core.queue.push import (
    PushLink,
    PushSubscriber,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.terminus import Terminus
from qos.stores.queue_forgetting import FORGET_OLD
from qos.stores.queue_purges import (
    HIDE_DELETED,
    PURGE_NODE,
    REMOVE_PURGED,
    purged_row,
)
from qos.stores.sqlite_changes import Kind, Row, Statement, Value, insert, names

__all__ = [
    "ENDED",
    "HEARD_AT",
    "ITEM",
    "NODE",
    "PUSH_LINK",
    "PUSH_SUBSCRIBER",
    "SEEN_AT",
    "SUBSCRIPTION",
    "TERMINUS",
    "rows",
]


# -- writing values ---------------------------------------------------------

#: The columns of each table, named like the fields of the values.
ITEM = tuple(field.name for field in fields(Item))
ENDED = tuple(field.name for field in fields(EndedItem))
NODE = tuple(field.name for field in fields(Node))
SUBSCRIPTION = tuple(field.name for field in fields(Subscription))
TERMINUS = tuple(field.name for field in fields(Terminus))
PUSH_SUBSCRIBER = tuple(field.name for field in fields(PushSubscriber))
PUSH_LINK = tuple(field.name for field in fields(PushLink))

#: The names, in the table `about`, of the times at which a service was there last, and
#: could hear XMPP workers last.
SEEN_AT, HEARD_AT = "seen_at", "heard_at"

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
#: The values of a lock; its columns are in no index but as a condition.
_LOCK_PACKED = ("state", "receivers")
_LOCK_ROW = (*_LOCK_PACKED, *(each for each in LOCK if each not in _LOCK_PACKED), "seq")
_ENDED_ROW = ("outcome", *(name for name in ENDED if name != "outcome"))

_item_values = attrgetter(*_ITEM_ROW[len(_ITEM_PACKED) :])
_lock_values = attrgetter(*_LOCK_ROW[len(_LOCK_PACKED) :])
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


def _update(*values: str, missing: str = "", condition: str = "") -> Statement:
    """Change these columns of items; one of the values is their key."""
    new = {name: f"new.column{at}" for at, name in enumerate(values, start=1)}
    key = new.pop("seq")
    changes = ", ".join(f'"{name}" = {value}' for name, value in new.items())
    sql = (
        f"UPDATE item SET {changes} FROM ({{rows}}) AS new WHERE seq = {key}{condition}"
    )
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
        condition=" AND (node <> new.column1 OR item_id <> new.column2)",
    ),
)
_LOCK_ITEM = Kind(
    "item", _LOCK_ROW, _update(*_LOCK_ROW, missing="no such item to lock")
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
    ("node", "gen"),
    *HIDE_DELETED,
    *(
        Statement(sql, "node")
        for sql in (
            "DELETE FROM subscription WHERE node = ?",
            "DELETE FROM terminus WHERE node = ?",
            "DELETE FROM push_link WHERE subscriber_id IN"
            " (SELECT subscriber_id FROM push_subscriber WHERE node = ?)",
            "DELETE FROM push_subscriber WHERE node = ?",
            "DELETE FROM node WHERE name = ?",
        )
    ),
)
_NOTE_SEEN = Kind(
    "about",
    ("now", "heard_at"),
    Statement(
        f"INSERT OR REPLACE INTO about VALUES ('{SEEN_AT}', ?), ('{HEARD_AT}', ?)",
        "now",
        "heard_at",
    ),
)


def rows(changes: Iterable[Change]) -> Iterator[Row]:
    """The changes of a commit as rows, in order.

    An item that is saved again in the commit that brings it is new both times. A lock
    that follows another step of its item in one commit is part of that step.
    """
    new: dict[int, str] = {}
    stepped: set[int] = set()
    for change in changes:
        match change:
            case SaveLock(item) if item.seq not in new and item.seq not in stepped:
                yield _LOCK_ITEM, item.seq, _lock_row(item)
            case SaveItem(item, payload):
                if payload is None:
                    payload = new.get(item.seq)
                if payload is None:
                    stepped.add(item.seq)
                    yield _STEP_ITEM, item.seq, _item_row(item)
                else:
                    new[item.seq] = payload
                    yield _SAVE_ITEM, item.seq, (*_item_row(item), payload)
            case RemoveItem(seq):
                new.pop(seq, None)
                yield _REMOVE_ITEM, seq, (seq,)
            case _:
                if isinstance(change, (RemoveNode, RemovePurged, ForgetOld)):
                    new.clear()
                yield _row_of(change)


def _row_of(change: Change) -> Row:
    """The row of a change that is none of a live item."""
    match change:
        case SaveEnded(end):
            end_key = (end.node, end.item_id, end.token, end.seq)
            return _SAVE_ENDED, end_key, _ended_row(end)
        case SaveSubscription(subscription):
            pair = (subscription.node, subscription.jid)
            return _SAVE_SUBSCRIPTION, pair, _subscription_values(subscription)
        case RemoveSubscription(node, jid):
            return _REMOVE_SUBSCRIPTION, (node, jid), (node, jid)
        case SaveTerminus(terminus):
            return _SAVE_TERMINUS, terminus.jid, _terminus_row(terminus)
        case RemoveTerminus(jid):
            return _REMOVE_TERMINUS, jid, (jid,)
        case SavePushLink(link):
            link_key = (link.subscriber_id, link.seq)
            return _SAVE_PUSH_LINK, link_key, _push_link_values(link)
        case RemovePushLink(subscriber_id, seq):
            link_key = (subscriber_id, seq)
            return _REMOVE_PUSH_LINK, link_key, link_key
        case SavePushSubscriber(subscriber):
            key = subscriber.subscriber_id
            return _SAVE_PUSH_SUBSCRIBER, key, _push_subscriber_row(subscriber)
        case RemovePushSubscriber(subscriber_id):
            return _REMOVE_PUSH_SUBSCRIBER, None, (subscriber_id,)
        case SaveNode(node):
            return _SAVE_NODE, node.name, _node_row(node)
        case RemoveNode(name, gen):
            return _REMOVE_NODE, None, (name, gen)
        case PurgeNode():
            return PURGE_NODE, None, purged_row(change)
        case RemovePurged(count):
            return REMOVE_PURGED, None, (count,)
        case ForgetOld(now, count):
            return FORGET_OLD, None, (now, count)
        case NoteSeen(now, heard_at):
            return _NOTE_SEEN, SEEN_AT, (now, heard_at)
    raise TypeError(f"a change that no table has: {change!r}")


def _ended_row(end: EndedItem) -> tuple[Value, ...]:
    return (end.outcome and end.outcome.value, *_ended_values(end))


def _item_row(item: Item) -> tuple[Value, ...]:
    return (
        item.state.value,
        item.outcome and item.outcome.value,
        _jids_text(item.receivers),
        _jids_text(item.excluded),
        _list_text([(event.at, event.by, event.reason) for event in item.history]),
        _json(dict(item.properties)) if item.properties else "{}",
        *_item_values(item),
    )


def _lock_row(item: Item) -> tuple[Value, ...]:
    return (item.state.value, _jids_text(item.receivers), *_lock_values(item))


@lru_cache
def _jids_text(jids: frozenset[str]) -> str:
    # Most items share the same few sets.
    return _list_text(sorted(jids))


def _list_text(values: Sequence[object]) -> str:
    # Most lists are empty, and each item has three.
    return _json(values) if values else "[]"


def _node_row(node: Node) -> tuple[Value, ...]:
    affiliations = {
        jid: affiliation.value for jid, affiliation in node.affiliations.items()
    }
    packed = {"config": _json(node.config), "affiliations": _json(affiliations)}
    return tuple(
        packed[name] if name in packed else getattr(node, name) for name in NODE
    )


def _push_subscriber_row(subscriber: PushSubscriber) -> tuple[Value, ...]:
    return tuple(
        _json(dict(subscriber.headers))
        if name == "headers"
        else getattr(subscriber, name)
        for name in PUSH_SUBSCRIBER
    )


def _terminus_row(terminus: Terminus) -> tuple[Value, ...]:
    return tuple(
        terminus.policy.value if name == "policy" else getattr(terminus, name)
        for name in TERMINUS
    )
