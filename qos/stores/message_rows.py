"""The rows of an endpoint's messages and changes in its database.

See `message_schema` for the tables.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import Incoming, Outgoing
from qos.stores.base import (
    ENDED_FIELDS,
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    ForgetEnded,
)
from qos.stores.sqlite_changes import Kind, Row, Statement, insert, names

__all__ = ["SELECT_INCOMING", "SELECT_OUTGOING", "rows"]


def _but(*left_out: str, of: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in of if name not in left_out)


#: The values of a saved record, in the order of its row: converted ones first, and the
#: payload last.
_OUTGOING = (
    *("level", "state"),
    *_but("level", "state", "payload", of=OUTGOING_FIELDS),
    *("flow", "payload"),
)
_INCOMING = (
    *("level", "state"),
    *_but("level", "state", "payload", of=INCOMING_FIELDS),
    "payload",
)
_ENDED = ("level", "state", *_but("level", "state", of=ENDED_FIELDS))

_outgoing_values = attrgetter(*_OUTGOING[2:])
_incoming_values = attrgetter(*_INCOMING[2:])
_ended_values = attrgetter(*_ENDED[2:])

SELECT_OUTGOING = (
    f"SELECT {names(OUTGOING_FIELDS)} FROM outgoing JOIN outgoing_payload USING (seq) "
)
SELECT_INCOMING = (
    f"SELECT {names(INCOMING_FIELDS)} FROM incoming JOIN incoming_payload USING (id) "
)


def _save(table: str, values: Sequence[str], *, key: str, steps: Iterable[str]) -> str:
    """Insert rows, or change the columns `steps` of rows that are there."""
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in steps)
    return f"{insert(table, values)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


#: The first group of Outgoing never changes, its payload included.
_STEPS = OUTGOING_FIELDS[OUTGOING_FIELDS.index("state") :]

_SAVE_OUTGOING = Kind(
    "outgoing",
    _OUTGOING,
    Statement(
        _save("outgoing", _OUTGOING[:-1], key="seq", steps=_STEPS), *_OUTGOING[:-1]
    ),
    Statement(
        "INSERT INTO outgoing_payload {rows} ON CONFLICT DO NOTHING", "seq", "payload"
    ),
)
_FORGET_OUTGOING = Kind(
    "outgoing",
    ("seq",),
    Statement("DELETE FROM outgoing WHERE seq IN ({rows})", "seq"),
    Statement("DELETE FROM outgoing_payload WHERE seq IN ({rows})", "seq"),
)
_SAVE_ENDED = Kind(
    "ended",
    _ENDED,
    Statement(insert("ended", _ENDED, verb="INSERT OR REPLACE"), *_ENDED),
)
_FORGET_ENDED = Kind(
    "ended",
    ("before", "below"),
    Statement("DELETE FROM ended WHERE ended_at <= ? OR seq < ?", "before", "below"),
)
_SAVE_INCOMING = Kind(
    "incoming",
    _INCOMING,
    Statement(
        _save(
            "incoming", _INCOMING[:-1], key="key", steps=_but("key", of=_INCOMING[:-1])
        ),
        *_INCOMING[:-1],
    ),
    Statement(
        "INSERT INTO incoming_payload"
        " SELECT id, new.column2 FROM ({rows}) AS new JOIN incoming"
        " ON incoming.key = new.column1"
        " WHERE true ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
        " WHERE payload <> excluded.payload",
        "key",
        "payload",
    ),
)
_FORGET_INCOMING = Kind(
    "incoming",
    ("key",),
    Statement(
        "DELETE FROM incoming_payload"
        " WHERE id IN (SELECT id FROM incoming WHERE key IN ({rows}))",
        "key",
    ),
    Statement("DELETE FROM incoming WHERE key IN ({rows})", "key"),
)
_REMEMBER = Kind(
    "remembered",
    ("name", "value"),
    Statement("INSERT OR REPLACE INTO remembered {rows}", "name", "value"),
)


def rows(changes: Iterable[Change]) -> Iterator[Row]:
    """The rows of changes, in their order; see `sqlite_changes`."""
    for change in changes:
        if isinstance(change, Save):
            yield _saved(change.record)
        elif isinstance(change, End):
            end = change.ended
            level, state = end.level.value, end.state.value
            yield _SAVE_ENDED, end.seq, (level, state, *_ended_values(end))
            yield _FORGET_OUTGOING, end.seq, (end.seq,)
        elif isinstance(change, Forget):
            record = change.record
            if isinstance(record, Outgoing):
                yield _FORGET_OUTGOING, record.seq, (record.seq,)
            else:
                yield _FORGET_INCOMING, record.key, (record.key,)
        elif isinstance(change, ForgetEnded):
            yield _FORGET_ENDED, None, (change.before, change.below)
        else:
            yield _REMEMBER, change.name, (change.name, change.value)


def _saved(record: Outgoing | Incoming) -> Row:
    level, state = record.level.value, record.state.value
    if isinstance(record, Outgoing):
        return _SAVE_OUTGOING, record.seq, (level, state, *_outgoing_values(record))
    return _SAVE_INCOMING, record.key, (level, state, *_incoming_values(record))
