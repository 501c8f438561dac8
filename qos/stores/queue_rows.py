"""The rows of a queue service's values and changes in its database.

It has the tables, and the conversions between rows and values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
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
from qos.stores.sqlite_changes import ChangesView, Kind, Value, insert
from qos.stores.sqlite_file import ABOUT, Migrations

__all__ = [
    "APPLICATION_ID",
    "CHANGES",
    "ENDED",
    "ITEM",
    "MIGRATIONS",
    "NODE",
    "SUBSCRIPTION",
    "ended_from",
    "item_from",
    "node_from",
    "rows",
    "subscription_from",
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
)

# -- writing values ---------------------------------------------------------

#: The columns of each table, named like the fields of the values.
ITEM = tuple(field.name for field in fields(Item))
ENDED = tuple(field.name for field in fields(EndedItem))
NODE = tuple(field.name for field in fields(Node))
SUBSCRIPTION = tuple(field.name for field in fields(Subscription))

#: Values that are converted for storing come first in a row.
_ITEM_PACKED = ("state", "outcome", "receivers", "excluded", "history")
_ITEM_ROW = _ITEM_PACKED + tuple(name for name in ITEM if name not in _ITEM_PACKED)
_ENDED_ROW = ("outcome", *(name for name in ENDED if name != "outcome"))

_item_values = attrgetter(*_ITEM_ROW[len(_ITEM_PACKED) :])
_ended_values = attrgetter(*_ENDED_ROW[1:])
_subscription_values = attrgetter(*SUBSCRIPTION)

_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True
).encode


def _set(columns: Iterable[str]) -> str:
    return "SET " + ", ".join(f'"{name}" = NEW.{name}' for name in columns)


_REPLACE = "INSERT OR REPLACE"

_REMOVE_ITEM = (
    "DELETE FROM item WHERE seq = NEW.seq;DELETE FROM item_payload WHERE seq = NEW.seq;"
)
_SAVE_ENDED = f"{insert('ended', ENDED, verb=_REPLACE)};"

#: A step of an item rarely changes these, and they have an index.
_PLACE = ("node", "item_id")
_STEP = tuple(name for name in ITEM if name not in ("seq", *_PLACE))

CHANGES = ChangesView(
    Kind(
        "save item",
        (*_ITEM_ROW, "payload"),
        f"{insert('item', ITEM, verb=_REPLACE)};"
        f"{insert('item_payload', ('seq', 'payload'), verb=_REPLACE)};",
    ),
    Kind(
        "step item",
        _ITEM_ROW,
        f"UPDATE item {_set(_STEP)} WHERE seq = NEW.seq;"
        # Otherwise an item without payload could appear, whose first commit has failed.
        "SELECT RAISE(ABORT, 'there is no such item to change') WHERE changes() = 0;"
        f"UPDATE item {_set(_PLACE)} WHERE seq = NEW.seq"
        " AND (node <> NEW.node OR item_id <> NEW.item_id);",
    ),
    Kind(
        "remove item",
        ("seq",),
        _REMOVE_ITEM,
    ),
    # Usually both come together, and each row of the view costs time.
    Kind(
        "end item",
        _ENDED_ROW,
        _REMOVE_ITEM + _SAVE_ENDED,
    ),
    Kind("save ended", _ENDED_ROW, _SAVE_ENDED),
    Kind(
        "save subscription",
        SUBSCRIPTION,
        f"{insert('subscription', SUBSCRIPTION, verb=_REPLACE)};",
    ),
    Kind(
        "remove subscription",
        ("node", "jid"),
        "DELETE FROM subscription WHERE node = NEW.node AND jid = NEW.jid;",
    ),
    Kind("save node", NODE, f"{insert('node', NODE, verb=_REPLACE)};"),
    Kind(
        "remove node",
        ("node",),
        "DELETE FROM item_payload"
        " WHERE seq IN (SELECT seq FROM item WHERE node = NEW.node);"
        "DELETE FROM item WHERE node = NEW.node;"
        "DELETE FROM ended WHERE node = NEW.node;"
        "DELETE FROM subscription WHERE node = NEW.node;"
        "DELETE FROM node WHERE name = NEW.node;",
    ),
    Kind(
        "forget old",
        ("now",),
        "DELETE FROM item_payload"
        " WHERE seq IN (SELECT seq FROM item WHERE forget_at <= NEW.now);"
        "DELETE FROM item WHERE forget_at <= NEW.now;"
        "DELETE FROM ended WHERE forget_at <= NEW.now;",
    ),
)


def rows(changes: Iterable[Change]) -> list[tuple[Value, ...]]:
    """The changes of a commit as rows of CHANGES, in order, and as few as possible.

    An item that is saved several times is written once, in its last form. An item that
    is removed goes into the row of its remembered end.
    """
    made: list[Change | tuple[RemoveItem, SaveEnded] | None] = []
    saved: dict[int, int] = {}
    before: Change | None = None
    for change in changes:
        now: Change | tuple[RemoveItem, SaveEnded] = change
        match change:
            case SaveItem(item, payload):
                place = saved.get(item.seq)
                if place is not None:
                    earlier = made[place]
                    assert isinstance(earlier, SaveItem)
                    made[place] = None
                    if payload is None:
                        now = SaveItem(item, earlier.payload)
                saved[item.seq] = len(made)
            case RemoveItem(seq):
                saved.pop(seq, None)
            case RemoveNode() | ForgetOld():
                saved.clear()
            case SaveEnded(ended) if before == RemoveItem(ended.seq):
                made.pop()
                now = (RemoveItem(ended.seq), change)
        made.append(now)
        before = change
    return [_row(each) for each in made if each is not None]


def _row(change: Change | tuple[RemoveItem, SaveEnded]) -> tuple[Value, ...]:
    match change:
        case (RemoveItem(), SaveEnded(ended)):
            return ("end item", *_ended_row(ended))
        case SaveItem(item, None):
            return ("step item", *_item_row(item))
        case SaveItem(item, payload):
            return ("save item", *_item_row(item), payload)
        case RemoveItem(seq):
            return ("remove item", seq)
        case SaveEnded(ended):
            return ("save ended", *_ended_row(ended))
        case SaveSubscription(subscription):
            return ("save subscription", *_subscription_values(subscription))
        case RemoveSubscription(node, jid):
            return ("remove subscription", node, jid)
        case SaveNode(node):
            return ("save node", *_node_row(node))
        case RemoveNode(name):
            return ("remove node", name)
        case ForgetOld(now):
            return ("forget old", now)


def _ended_row(ended: EndedItem) -> tuple[Value, ...]:
    return (ended.outcome and ended.outcome.value, *_ended_values(ended))


def _item_row(item: Item) -> tuple[Value, ...]:
    return (
        item.state.value,
        item.outcome and item.outcome.value,
        _jids_text(item.receivers),
        _jids_text(item.excluded),
        _list_text([(each.at, each.by, each.reason) for each in item.history]),
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


def subscription_from(plain: dict[str, Any]) -> Subscription:
    """See item_from."""
    for name in ("durable_locks", "acknowledged"):
        plain[name] = bool(plain[name])
    return Subscription(**plain)
