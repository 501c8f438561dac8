"""The times in stores, and how all of them move by one length.

They move when a store is opened at a time that does not fit to them: see
`qos.core.wall_clock`.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from qos.core.message.model import Ended, Incoming, Outgoing
from qos.core.queue.item import (
    EndedItem,
    Item,
    ItemState,
    Node,
    PurgedItems,
    Subscription,
)
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from qos.core.wall_clock import ClockHistory

__all__ = [
    "MESSAGE_TABLES",
    "QUEUE_TABLES",
    "clock_from",
    "clock_text",
    "happened",
    "happened_at",
    "moved",
    "moves",
    "newest",
]

_Record = TypeVar("_Record")

#: The times of each record. One of them may be None.
_TIMES: Final[dict[type, tuple[str, ...]]] = {
    Outgoing: ("created_at", "expires_at"),
    Ended: ("created_at", "ended_at"),
    Incoming: ("received_at", "changed_at"),
    Node: ("created_at",),
    Subscription: ("dormant_since",),
    Terminus: ("until",),
    Item: ("published_at", "available_at", "expires_at", "ended_at", "forget_at"),
    EndedItem: ("ended_at", "forget_at"),
    PurgedItems: ("purged_at", "forget_at"),
    PushSubscriber: ("created_at",),
    PushLink: ("kept_at",),
}

#: The times of an item that is locked. Of any other they are 0.
_LOCKED: Final = ("locked_at", "deadline")

#: The times of a message at which something has happened to it.
_HAPPENED: Final[dict[type, tuple[str, ...]]] = {
    Outgoing: ("created_at",),
    Ended: ("ended_at",),
    Incoming: ("received_at", "changed_at"),
}

#: The records of each table of an SQLite file.
MESSAGE_TABLES: Final[dict[str, type]] = {
    "outgoing": Outgoing,
    "ended": Ended,
    "incoming": Incoming,
}
QUEUE_TABLES: Final[dict[str, type]] = {
    "node": Node,
    "subscription": Subscription,
    "terminus": Terminus,
    "item": Item,
    "ended": EndedItem,
    "purged": PurgedItems,
    "push_subscriber": PushSubscriber,
    "push_link": PushLink,
}


def clock_text(clock: ClockHistory) -> str:
    """The text that a store has on disk; `clock_from` reads it."""
    return json.dumps([clock.moved_s, clock.behind_s])


def clock_from(text: str | None) -> ClockHistory:
    """Read the text that `clock_text` has made.

    Args:
        text: None: the store was written by an earlier version, or no time has moved.

    Raises:
        ValueError: it is no such text.
    """
    if text is None:
        return ClockHistory()
    moved_s, behind_s = json.loads(text)
    if not (math.isfinite(moved_s) and math.isfinite(behind_s)):
        raise ValueError(f"not two lengths of time: {text!r}")
    return ClockHistory(float(moved_s), float(behind_s))


def moved(record: _Record, by_s: float) -> _Record:
    """The record with its times moved by this length, in seconds."""
    names = _TIMES[type(record)]
    if isinstance(record, Item) and record.state is ItemState.ACQUIRED:
        names = (*names, *_LOCKED)
    values: dict[str, Any] = {name: getattr(record, name) for name in names}
    return replace(  # type: ignore[type-var]  # each record is a dataclass
        record,
        **{name: value + by_s for name, value in values.items() if value is not None},
    )


def happened_at(record: Outgoing | Ended | Incoming) -> Iterator[float]:
    """The times at which something has happened to a message."""
    return (getattr(record, name) for name in _HAPPENED[type(record)])


def newest(*times: tuple[str, str]) -> str:
    """The query for the newest of several times, or NULL.

    Args:
        times: each an expression, and its table, perhaps with a condition.
    """
    queries = (f"SELECT MAX({value}) AS at FROM {rows}" for value, rows in times)
    return f"SELECT MAX(at) FROM ({' UNION ALL '.join(queries)})"


def happened(tables: dict[str, type]) -> list[tuple[str, str]]:
    """For `newest`: the times at which something has happened to messages."""
    return [(name, table) for table, kind in tables.items() for name in _HAPPENED[kind]]


def moves(tables: dict[str, type]) -> Iterator[str]:
    """The statements that move the times of these tables by `:by_s` seconds."""
    for table, kind in tables.items():
        yield _update(table, _TIMES[kind])
        if kind is Item:
            condition = f" WHERE state = '{ItemState.ACQUIRED.value}'"
            yield _update(table, _LOCKED) + condition


def _update(table: str, names: Iterable[str]) -> str:
    changes = ", ".join(f"{name} = {name} + :by_s" for name in names)
    return f"UPDATE {table} SET {changes}"
