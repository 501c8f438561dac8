"""A summary of what each node recorded of a message: few rows, made of its many lines.

The rows can be made in Spark, or in Arrow while lines are checked. The choice of the
lines, and the columns made of them, are defined here once for both. The code that makes
a message merges rows with the same key. So any lines may be taken together, and a line
may be taken twice: each column is the least, the greatest or a set.
"""

from __future__ import annotations

import hashlib
from functools import reduce
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.journal.schema import Event, ReceiverEvent, Role, SenderEvent

__all__ = [
    "OUTCOMES",
    "ROLES",
    "SETS",
    "all_sets",
    "are_of_messages",
    "count_in",
    "in_arrow",
    "in_spark",
    "is_of_message",
]

_S, _R = SenderEvent, ReceiverEvent
OUTCOMES: Final = (_S.DELIVERED, _S.NOT_DELIVERED, _S.IN_DOUBT, _S.WITHDRAWN)
_HAND_OVERS = (_R.HANDED_OVER, _R.REDELIVERED)

#: The roles that record messages; but a refused request is no message.
ROLES: Final = (Role.SENDER, Role.RECEIVER)
_REFUSED = _R.REFUSED

#: The key: the message, and the node that recorded it.
_TELLER = ("source", "msg_id", "level", "role", "node", "to")

#: Columns from a line with the outcome of a message. If a message has several such
#: lines, the last one counts: Spark gives each of them a row, Arrow keeps the last.
_ENDS = {"end": "event", "condition": "condition", "end_seq": "seq"}

#: The id of a line, made of its boot and its seq. An array of such ids shows how many
#: lines there are, even if some of them come twice.
_LINE_ID = "line_id"

#: The hexadecimal digits of a boot's MD5 that are in the id of a line: 60 bits.
_BOOT_DIGITS = 15


class _Told(NamedTuple):
    """A column: the least, the last or the set of the values of a field.

    Attributes:
        name: the name of the column.
        function: `min`, `max` or `set`.
        field: the field of a line.
        events: only lines with one of these events; empty: all lines.
    """

    name: str
    function: str
    field: str
    events: tuple[Event, ...] = ()


_TOLD = (
    _Told("first_at", "min", "at"),
    _Told("last_at", "max", "at"),
    _Told("attempts", "max", "attempt"),
    _Told("bytes", "max", "bytes"),
    _Told("accepted_at", "min", "at", (_S.ACCEPTED,)),
    _Told("offered_at", "min", "at", (_S.OFFERED,)),
    _Told("received_at", "min", "at", (_S.RECEIVED,)),
    # Of the sender or the receiver.
    _Told("released_at", "min", "at", (_S.RELEASED,)),
    _Told("ended_at", "max", "at", OUTCOMES),
    _Told("held_at", "min", "at", (_R.HELD,)),
    _Told("held_again_at", "max", "at", (_R.HELD,)),
    _Told("handed_over_at", "min", "at", _HAND_OVERS),
    _Told("handed_over_last_at", "max", "at", _HAND_OVERS),
    _Told("done_at", "min", "at", (_R.DONE,)),
    _Told("expired_at", "max", "at", (_R.EXPIRED,)),
    _Told("holds", "set", _LINE_ID, (_R.HELD,)),
    _Told("hand_overs", "set", _LINE_ID, (_R.HANDED_OVER,)),
    _Told("redeliveries", "set", _LINE_ID, (_R.REDELIVERED,)),
)

SETS: Final = tuple(column.name for column in _TOLD if column.function == "set")


# -- in Spark ---------------------------------------------------------------


def is_of_message() -> Column:
    """Whether a line belongs to a message."""
    return (
        _is_one("role", ROLES)
        & ~_is_one("event", (_REFUSED,))
        & F.col("msg_id").isNotNull()
    )


def in_spark(lines: DataFrame) -> DataFrame:
    """The records of each node about a message.

    Args:
        lines: the lines of messages.

    Returns:
        The columns of `_TELLER`, `_ENDS` and `_TOLD`.
    """
    # Only times and numbers are made here. For those, Spark need not sort, and does
    # most of the work before any data moves. So each end is one of the keys.
    is_end = _is_one("event", OUTCOMES)
    ends = {name: F.when(is_end, F.col(field)) for name, field in _ENDS.items()}
    columns = []
    for column in _TOLD:
        value = F.col(column.field)
        if column.events:
            value = F.when(_is_one("event", column.events), value)
        columns.append(_IN_SPARK[column.function](value).alias(column.name))
    lines = lines.withColumns({**ends, _LINE_ID: _line_id()})
    return lines.groupBy(*_TELLER, *_ENDS).agg(*columns)


_IN_SPARK = {"min": F.min, "max": F.max, "set": F.collect_set}


def _line_id() -> Column:
    digits = F.substring(F.md5(F.col("boot").cast("binary")), 1, _BOOT_DIGITS)
    return F.conv(digits, 16, 10).cast("long").bitwiseXOR(F.col("seq"))


def all_sets() -> Column:
    """An aggregate of rows: the sets of each row that has any, for `count_in`."""
    has_any = reduce(Column.__or__, (F.size(name) > 0 for name in SETS))
    return F.collect_list(F.when(has_any, F.struct(*SETS)))


def count_in(sets: str, name: str) -> Column:
    """The number of different values in all sets with a name.

    `sets` is from `all_sets`.
    """
    return F.size(F.array_distinct(F.flatten(F.col(sets)[name]))).cast("long")


def _is_one(field: str, values: tuple[Role | Event, ...]) -> Column:
    return F.col(field).isin(*(value.value for value in values))


# -- in Arrow ---------------------------------------------------------------


def are_of_messages(lines: pa.Table) -> pa.ChunkedArray:
    """The same for a table of qos.audit.lines.CHECKED."""
    of_messages = pc.and_(
        _are_one(lines, "role", ROLES),
        pc.invert(_are_one(lines, "event", (_REFUSED,))),
    )
    # A line with a foreign node belongs to no message.
    of_messages = pc.and_(of_messages, pc.is_null(lines["problem"]))
    return pc.and_(of_messages, pc.is_valid(lines["msg_id"]))


def in_arrow(lines: pa.Table) -> pa.Table:
    """The same for such a table; its rows are merged with those of any other."""
    places, ends = _ends(lines)
    lines = lines.append_column(_LINE_ID, _line_ids(lines))
    columns = {name: lines[name] for name in _TELLER} | {"last": places}
    for column in _TOLD:
        value = lines[column.field]
        if column.events:
            value = _where(_are_one(lines, "event", column.events), value)
        columns[column.name] = value
    groups = pa.table(columns).group_by(list(_TELLER), use_threads=False)
    table = groups.aggregate(
        [
            ("last", "max"),
            *((column.name, *_IN_ARROW[column.function]) for column in _TOLD),
        ]
    )
    names = {
        f"{column.name}_{_IN_ARROW[column.function][0]}": column.name
        for column in _TOLD
    }
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    last = ends.take(table["last_max"])
    for name, field in _ENDS.items():
        table = table.append_column(name, last[field])
    return table.select([*_TELLER, *_ENDS, *names.values()])


def _ends(lines: pa.Table) -> tuple[pa.Array, pa.Table]:
    """The lines with the outcome of a message, the last one last.

    Returns:
        For each line its place in the table of ends, or null; and that table.
    """
    rows = np.flatnonzero(_are_one(lines, "event", OUTCOMES).to_numpy())
    ends = lines.select([*_ENDS.values(), "at"]).take(rows)
    in_time = pc.sort_indices(ends, [("at", "ascending"), ("seq", "ascending")])
    places = np.full(len(lines), -1)
    places[rows[in_time.to_numpy()]] = np.arange(len(rows))
    return pa.array(places, mask=places < 0), ends.take(in_time)


_IN_ARROW = {
    "min": ("min",),
    "max": ("max",),
    "set": ("distinct", pc.CountOptions(mode="only_valid")),
}


def _line_ids(lines: pa.Table) -> pa.ChunkedArray:
    boots = lines["boot"].combine_chunks().dictionary_encode()
    numbers = [_boot_number(boot) for boot in boots.dictionary.to_pylist()]
    number = np.array(numbers, np.int64)[boots.indices.to_numpy()]
    return pa.chunked_array([number ^ lines["seq"].to_numpy()])


def _boot_number(boot: str) -> int:
    digest = hashlib.md5(boot.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:_BOOT_DIGITS], 16)


def _are_one(
    lines: pa.Table, field: str, values: tuple[Role | Event, ...]
) -> pa.ChunkedArray:
    return pc.is_in(lines[field], pa.array([value.value for value in values]))


def _where(condition: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(condition, values, pa.scalar(None, values.type))
