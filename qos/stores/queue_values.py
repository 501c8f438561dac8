"""The values of a queue service as they are read from the rows of its database.

See `queue_rows` for the way back.
"""

from __future__ import annotations

import json
from typing import Any

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
from qos.core.queue.push import PushSubscriber
from qos.core.queue.terminus import ExpiryPolicy, Terminus

__all__ = [
    "ended_from",
    "item_from",
    "node_from",
    "push_subscriber_from",
    "subscription_from",
    "terminus_from",
]


def item_from(plain: dict[str, Any]) -> Item:
    """An item from the columns ITEM; a ValueError or TypeError if they do not fit."""
    plain["state"] = ItemState(plain["state"])
    plain["outcome"] = _outcome_from(plain["outcome"])
    plain["durable"] = bool(plain["durable"])
    plain["resumable"] = bool(plain["resumable"])
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
        jid: Affiliation(word) for jid, word in affiliations.items()
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
    for name in ("durable_locks", "resumable_locks", "acknowledged", "link"):
        plain[name] = bool(plain[name])
    return Subscription(**plain)


def terminus_from(plain: dict[str, Any]) -> Terminus:
    """See item_from."""
    plain["copies"] = bool(plain["copies"])
    plain["policy"] = ExpiryPolicy(plain["policy"])
    return Terminus(**plain)
