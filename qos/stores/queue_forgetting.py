"""The removal of old rows from the database of a queue service, some in each commit.

Old rows are found by the indices of the moments at which they become old, so that nothing
is read where nothing is old.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from qos.core.queue.push import LINK_S
from qos.stores.sqlite_changes import Kind, Value

__all__ = ["FORGET_OLD", "HAS_OLD"]


class _Old:
    """The old rows of a table, by an index of the moments.

    Attributes:
        any: the query whether there are any; its parameter is the time.
        oldest: the query for the keys of the oldest; its parameters are the time, and the
            number at most.
    """

    def __init__(self, source: str, moment: str, key: str, *, age_s: float = 0) -> None:
        old = f"FROM {source} WHERE {moment} <= ? - {age_s}"
        self.any = f"EXISTS (SELECT 1 {old})"
        self.oldest = f"SELECT {key} {old} ORDER BY {moment}, {key} LIMIT ?"


_ITEMS: Final = _Old("item INDEXED BY item_forgotten", "forget_at", "seq")
_ENDS: Final = _Old(
    "ended INDEXED BY ended_forgotten", "forget_at", "node, item_id, token, seq"
)
_LINKS: Final = _Old(
    *("push_link INDEXED BY push_link_by_age", "kept_at", "subscriber_id, seq"),
    age_s=LINK_S,
)

#: Whether ForgetOld would remove anything; its parameters are three times the time.
HAS_OLD: Final = f"SELECT {_ITEMS.any} OR {_ENDS.any} OR {_LINKS.any}"

_REMOVE_PAYLOADS: Final = f"DELETE FROM item_payload WHERE seq IN ({_ITEMS.oldest})"

#: In the order of ForgetOld, after the payloads, which are found by their items.
_REMOVALS: Final = (
    f"DELETE FROM item WHERE seq IN ({_ITEMS.oldest})",
    f"DELETE FROM ended WHERE (node, item_id, token, seq) IN ({_ENDS.oldest})",
    f"DELETE FROM push_link WHERE (subscriber_id, seq) IN ({_LINKS.oldest})",
)


class _ForgetOld(Kind):
    """See ForgetOld."""

    def __init__(self) -> None:
        super().__init__("ended", ("now", "rows"))

    def make(self, db: sqlite3.Connection, rows: Sequence[tuple[Value, ...]]) -> None:
        """See Kind."""
        for now, limit in rows:
            assert isinstance(limit, int)
            db.execute(_REMOVE_PAYLOADS, (now, limit))
            for removal in _REMOVALS:
                limit -= db.execute(removal, (now, limit)).rowcount
                if not limit:
                    break


FORGET_OLD = _ForgetOld()
