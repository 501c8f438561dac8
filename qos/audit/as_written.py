"""Many lines at once that are exactly as our writer writes them: they count as events.

Nearly every line is so. No line can be shorter than the shortest ASCII line with the
same meaning. So a line that is no longer than that contains nothing that our writer
does not write. This is proven for thousands of lines by their lengths, and by the
values of their fields. A line without this proof may still be an event: see
qos.audit.lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from qos.journal.schema import (
    EVENTS,
    FIELDS,
    INT_MAX,
    LINE_BYTES_MAX,
    REQUIRED,
    SCHEMA_VERSION,
    YEARS,
)

__all__ = ["ATTEMPT_MAX", "CHECKED", "Array", "in_bulk", "look_like_ours"]

#: Other code has an int for it; no message has that many attempts.
ATTEMPT_MAX = 2**31 - 1

#: One character for each byte.
_AT_LIKE = "__________T_______________Z"
#: The range of times, in microseconds: from the first to before the second.
_AT_RANGE = [
    int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    for year in (YEARS[0], YEARS[1] + 1)
]

#: The bytes parsed at once: more than any line, but few enough that the result is still
#: in the processor's cache at the next step.
_PARSED_BYTES = 4 * LINE_BYTES_MAX

_TYPES = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("us", tz="UTC")}

#: The fields of a line for pyarrow's parser. Times are still text: their form is
#: checked later.
_LINE = pa.schema(
    [
        (field.name, pa.int64() if field.kind == "int" else pa.string())
        for field in FIELDS
    ]
)
_PARSE = pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore")
_READ = pj.ReadOptions(use_threads=False, block_size=_PARSED_BYTES)

#: The fields of an event, without `v`, which has been checked.
_FIELDS = [field for field in FIELDS if field.name != "v"]
_TIMES = [field.name for field in FIELDS if field.kind == "time"]
_INTS = [field.name for field in FIELDS if field.kind == "int"]

#: See qos.audit.schema.CHECKED.
CHECKED = pa.schema(
    [
        *(
            (
                "source" if field.name == "from" else field.name,
                pa.int32() if field.name == "attempt" else _TYPES[field.kind],
            )
            for field in _FIELDS
        ),
        *((name, pa.string()) for name in ("file", "problem", "example")),
        ("journal", pa.int64()),
    ]
)

#: Lines that cannot be parsed together are split into this many parts; fewer lines than
#: these take less time one by one.
_PARTS = 8
_FEW_LINES = 128

#: The least number of bytes by which a byte of a text is longer in a line than in
#: UTF-8, when written as `\n`, `\u00e9` or `\ud83d\ude00`; 0 for every byte that may
#: stand for itself.
_ESCAPED = np.zeros(256, np.int64)
_ESCAPED[:0x20] = 5
_ESCAPED[[*b'\b\t\n\f\r"\\']] = 1
_ESCAPED[0xC0:0xE0] = 4
_ESCAPED[0xE0:0xF0] = 3
_ESCAPED[0xF0:] = 8

#: The fields that some event must have, a bit each. And for each event and role, the
#: bits that it must have. For an unknown event: a bit that no line has.
_BITS = {
    name: 1 << number
    for number, name in enumerate(
        sorted({name for names in REQUIRED.values() for name in names})
    )
}
_NEVER = 1 << len(_BITS)
_NEEDED = {
    (role.value, event.value): sum(_BITS[name] for name in REQUIRED[event])
    for role in EVENTS
    for event in EVENTS[role]
}

#: One element for each byte or line: a mask, or a number.
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def look_like_ours(content: bytes, raw: Array, starts: Array, ends: Array) -> Array:
    """Whether each line begins and ends like an object, and is short and pure ASCII."""
    good: Array = (
        (raw[starts] == ord("{"))
        & (raw[np.maximum(ends - 2, 0)] == ord("}"))
        & (ends - starts <= LINE_BYTES_MAX + 1)
    )
    odd = np.flatnonzero(raw < ord(" "))
    if len(odd) > len(ends):
        odd = odd[raw[odd] != ord("\n")]
        good[np.searchsorted(ends, odd, "right")] = False
    if not content.isascii():
        odd = np.flatnonzero(raw > 0x7F)
        good[np.searchsorted(ends, odd, "right")] = False
    return good


def in_bulk(content: bytes, lengths: Array) -> tuple[Array, list[pa.Table]]:
    """Whether our writer would write each line so; and the events of such lines."""
    if not len(lengths):
        return np.zeros(0, bool), []
    result = _parsed(content, len(lengths))
    if result is not None:
        table, times = result
        good = _as_written(table, times, lengths)
        columns = [times.get(f.name, table[f.name]) for f in _FIELDS]
        more = CHECKED.names[len(columns) :]
        columns += [pa.nulls(len(table), CHECKED.field(name).type) for name in more]
        events = pa.table(columns, CHECKED.names)
        if not good.all():
            events = events.filter(pa.array(good))
        return good, [events.cast(CHECKED)]
    good = _have_one_brace(content, lengths)
    if not good.all():
        subset = np.frombuffer(content, np.uint8)[np.repeat(good, lengths)].tobytes()
        good[good], tables = in_bulk(subset, lengths[good])
        return good, tables
    if len(lengths) <= _FEW_LINES:
        return np.zeros(len(lengths), bool), []
    tables, at = [], 0
    for lines in np.array_split(np.arange(len(lengths)), _PARTS):
        size = int(lengths[lines].sum())
        good[lines], more = in_bulk(content[at : at + size], lengths[lines])
        tables += more
        at += size
    return good, tables


def _have_one_brace(content: bytes, lengths: Array) -> Array:
    """Whether each line has one opening brace.

    A torn line with the next one has two.
    """
    braces = np.frombuffer(content, np.uint8) == ord("{")
    starts = np.cumsum(lengths) - lengths
    mask: Array = np.add.reduceat(braces, starts, dtype=np.int64) == 1
    return mask


def _parsed(
    content: bytes, lines: int
) -> tuple[pa.Table, dict[str, pa.ChunkedArray]] | None:
    """The fields of lines, and the times among them; None: not all can be parsed."""
    try:
        table = pj.read_json(pa.py_buffer(content), _READ, _PARSE)
        # Each line is one object, because no line is less than one.
        if table.num_rows != lines:
            return None
        table = table.combine_chunks()
        return table, {name: table[name].cast(_TYPES["time"]) for name in _TIMES}
    except pa.ArrowInvalid:
        return None


def _as_written(
    table: pa.Table, times: Mapping[str, pa.ChunkedArray], lengths: Array
) -> Array:
    """Whether each line is an event, with nothing that our writer does not write.

    That means: no whitespace, no needless escape, no null, no field that is not in
    FIELDS.
    """
    columns = {
        name: table[name].chunk(0)
        for name in table.column_names
        if table[name].null_count < len(table)
    }
    presence = {name: _presence_of(column) for name, column in columns.items()}
    if not all(field.name in columns for field in FIELDS if field.always):
        return np.zeros(len(table), bool)
    # The braces; each field is followed by a comma or the newline.
    least = np.full(len(table), 2)
    texts = []
    for name, column in columns.items():
        size = len(f'"{name}":,')
        if name in _INTS:
            sizes = _digits(column) + size
        else:
            texts.append(column)
            sizes = np.diff(_offsets(column)) + (size + 2)
        least += sizes * presence[name]
    if (least != lengths).any():
        least += _escaped(texts, len(table))
    good: Array = least == lengths
    for field in FIELDS:
        if field.always:
            good &= presence[field.name]
    version = columns["v"].fill_null(0).to_numpy(zero_copy_only=False)
    good &= (version >= 1) & (version <= SCHEMA_VERSION)
    for name in _INTS:
        if name in columns:
            numbers = columns[name].fill_null(0).to_numpy(zero_copy_only=False)
            good &= numbers <= (ATTEMPT_MAX if name == "attempt" else INT_MAX)
    for name in _TIMES:
        if name in columns:
            good &= _are_times(columns[name], times[name].chunk(0))
    return good & _are_events(columns, presence)


def _presence_of(column: pa.Array) -> Array | np.bool:
    """Whether each line has the field."""
    if not column.null_count:
        return np.True_
    mask: Array = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _offsets(texts: pa.StringArray) -> Array:
    """The start of each text; the texts are stored one after the other."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


def _digits(column: pa.Array) -> Array:
    """The number of digits of each number.

    A minus is not counted, and makes a line too long.
    """
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    digits = np.ones(len(numbers), np.int64)
    power, high = 10, int(numbers.max(initial=0))
    while power <= high:
        digits += numbers >= power
        power *= 10
    return digits


def _escaped(columns: Iterable[pa.StringArray], lines: int) -> Array:
    """The number of bytes that escapes in the texts add to each line.

    For half a character, which is no UTF-8: more than any line has.
    """
    more = np.zeros(lines, np.int64)
    for texts in columns:
        offsets, data = _offsets(texts), texts.buffers()[2]
        if data is None:
            continue
        raw = np.frombuffer(data, np.uint8)[: offsets[-1]]
        sizes = _ESCAPED[raw]
        if sizes.any():
            halves = np.flatnonzero((raw[:-1] == 0xED) & (raw[1:] >= 0xA0))
            sizes[halves] = LINE_BYTES_MAX
            sums = np.concatenate(([0], np.cumsum(sizes)))
            more += np.diff(sums[offsets])
    return more


def _are_times(texts: pa.StringArray, times: pa.Array) -> Array:
    """Whether each time that pyarrow has read has our form; true where there is none.

    pyarrow accepts other forms, but at this length only ours has a T and a Z at these
    places.
    """
    first, until = _AT_RANGE
    micros = times.cast(pa.int64())
    in_range = pc.and_(pc.greater_equal(micros, first), pc.less(micros, until))
    ours = pc.and_(pc.match_like(texts, _AT_LIKE), in_range)
    mask: Array = ours.fill_null(True).to_numpy(zero_copy_only=False)
    return mask


def _are_events(
    columns: Mapping[str, pa.Array], presence: Mapping[str, Array | np.bool]
) -> Array:
    """Whether each event exists, and has its required fields."""
    roles, events = (columns[name].dictionary_encode() for name in ("role", "event"))
    names = events.dictionary.to_pylist()
    required_bits = np.array(
        [
            _NEEDED.get((role, event), _NEVER)
            for role in [*roles.dictionary.to_pylist(), None]
            for event in [*names, None]
        ]
    )
    # A null gets the index after all others.
    role_at, event_at = (
        column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        for column in (roles, events)
    )
    required_bits = required_bits[
        role_at.astype(np.int64) * (len(names) + 1) + event_at
    ]
    has = sum(presence[name] * bit for name, bit in _BITS.items() if name in presence)
    mask: Array = (required_bits & ~np.asarray(has)) == 0
    return mask
