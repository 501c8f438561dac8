"""Checks the lines of journals in bulk; runs in the Python workers of Spark.

What is an event is what `qos.journal.parse_line` says is one. Nearly every line is
just as our writer writes it, and that is proven of many lines at once: no line can be
shorter than the shortest one that says the same in ASCII, so one that is not longer has
nothing in it that our writer does not write. Any other line is checked by itself, and
those around it are not.

Knows nothing of Spark, and of a journal's file only the name.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from qos.audit.blocks import BLOCK_BYTES, EXAMPLE_BYTES, Block, blocks_of
from qos.audit.speakers import FOREIGN_NODE, NOBODY, Tied, marked
from qos.journal.schema import (
    EVENTS,
    FIELDS,
    LINE_BYTES_MAX,
    REQUIRED,
    SCHEMA_VERSION,
    BadLine,
    NewerSchema,
    parse_line,
)

__all__ = [
    "CHECKED",
    "LineProblem",
    "check_files",
    "check_lines",
    "checked",
    "checked_in",
]


class LineProblem(enum.Enum):
    """The problems that a line may have."""

    #: Not complete JSON.
    TORN_LINE = "torn-line"
    BAD_LINE = "bad-line"
    #: Longer than LINE_BYTES_MAX.
    LONG_LINE = "long-line"
    #: Written by a newer version of this library.
    NEWER_SCHEMA = "newer-schema"
    #: In a compressed file: the rest cannot be read.
    BROKEN_FILE = "broken-file"
    #: A node other than the one to which the folder is tied.
    FOREIGN_NODE = FOREIGN_NODE


#: It is an int elsewhere; nobody tries so often.
_ATTEMPT_MAX = 2**31 - 1

_EXAMPLE_CHARS = 200

#: A byte each.
_AT_LIKE = "__________T_______________Z"
#: The year 1, in microseconds: Python knows none before.
_AT_LEAST = -62_135_596_800_000_000

#: How much is parsed at once: more than any line, and little enough that what comes
#: of it is still in the cache of a processor when it is looked at next.
_PARSED_BYTES = 4 * LINE_BYTES_MAX

_TYPES = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("us", tz="UTC")}

#: A line as pyarrow is to parse it. Times are text still: their shape is checked.
_LINE = pa.schema(
    [
        (field.name, pa.int64() if field.kind == "int" else pa.string())
        for field in FIELDS
    ]
)
_PARSE = pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore")
_READ = pj.ReadOptions(use_threads=False, block_size=_PARSED_BYTES)

#: Of an event; `v` is not, it has been looked at.
_FIELDS = [field for field in FIELDS if field.name != "v"]
_TEXTS = [field.name for field in FIELDS if field.kind == "text"]
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
    ]
)

#: Lines that cannot be parsed together are taken apart into so many parts; fewer lines
#: than these take less time one by one.
_PARTS = 8
_FEW_LINES = 128

#: How much longer than in UTF-8 a byte of a text is in a line, at least: as
#: `\n`, `\u00e9` or `\ud83d\ude00`, and 0 for all that may stand for itself.
_ESCAPED = np.zeros(256, np.int64)
_ESCAPED[:0x20] = 5
_ESCAPED[[*b'\b\t\n\f\r"\\']] = 1
_ESCAPED[0xC0:0xE0] = 4
_ESCAPED[0xE0:0xF0] = 3
_ESCAPED[0xF0:] = 8

#: The fields that some event must have, a bit each; and of each event, by the names of
#: it and its role, the bits that it must have. Of one that there is not: a bit that no
#: line has.
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

#: A line for each byte of a mask, or a number.
_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def check_files(
    batches: Iterator[pa.RecordBatch], tied: Tied = NOBODY
) -> Iterator[pa.RecordBatch]:
    """Check the lines of files.

    Args:
        batches: with the columns `file`, a URI, and `content`, the whole content. If it
            is null, the file is on this machine, and is read here.
        tied: the folders that are tied to nodes.

    Yields:
        The columns of CHECKED.
    """
    for batch in batches:
        for table in checked_in(batch, tied):
            yield from table.to_batches()


def checked_in(batch: pa.RecordBatch, tied: Tied = NOBODY) -> Iterator[pa.Table]:
    """Check the lines of the files of a batch; returns the columns of CHECKED."""
    some: list[tuple[str, bytes]] = []
    size = 0
    for file, content in zip(batch["file"], batch["content"], strict=True):
        for block in blocks_of(file.as_py(), content.as_py()):
            if block.long or block.broken:
                yield _checked_together(some, tied)
                some, size = [], 0
                yield _unread(block)
                continue
            some.append((block.file, block.lines))
            size += len(block.lines)
            if size >= BLOCK_BYTES:
                yield _checked_together(some, tied)
                some, size = [], 0
    yield _checked_together(some, tied)


def _unread(block: Block) -> pa.Table:
    problem = LineProblem.LONG_LINE if block.long else LineProblem.BROKEN_FILE
    row = _problem(block.file, problem, block.lines)
    return pa.Table.from_pylist([row], CHECKED)


def check_lines(files: pa.Array, lines: pa.Array, tied: Tied = NOBODY) -> pa.Array:
    """Check lines, each by itself.

    Args:
        files: the file of each line.
        lines: the lines.
        tied: the folders that are tied to nodes.

    Returns:
        The columns of CHECKED, as a struct for each line.
    """
    # A line may contain bytes that are no UTF-8.
    values = lines.cast(pa.binary()).to_pylist()
    each = [
        (file, line + b"\n")
        for file, line in zip(files.to_pylist(), values, strict=True)
    ]
    return _checked_together(each, tied).to_struct_array().combine_chunks()


def checked(file: str, content: bytes, tied: Tied = NOBODY) -> pa.Table:
    """Check the lines of a file; returns the columns of CHECKED."""
    ended = not content or content.endswith(b"\n")
    return _checked_together([(file, content if ended else content + b"\n")], tied)


def _checked_together(blocks: Sequence[tuple[str, bytes]], tied: Tied) -> pa.Table:
    """Check the lines of blocks, and whether their nodes may have written them."""
    return marked(_events_or_problems(blocks), blocks, tied)


def _events_or_problems(blocks: Sequence[tuple[str, bytes]]) -> pa.Table:
    """The events or problems of blocks; each block is whole lines of a file.

    Small files are checked with few calls: each call takes some time, even for little
    data.
    """
    content = b"".join(lines for _, lines in blocks)
    if not content:
        return CHECKED.empty_table()
    raw = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(raw == ord("\n")) + 1
    starts = np.concatenate(([0], ends[:-1]))
    good = _look_like_ours(content, raw, starts, ends)
    if good.all():
        as_written, tables = _in_bulk(content, ends - starts)
    else:
        some = raw[np.repeat(good, ends - starts)].tobytes()
        as_written, tables = _in_bulk(some, (ends - starts)[good])
    good[good] = as_written
    events = pa.concat_tables([CHECKED.empty_table(), *tables])
    if good.all():
        return events
    odd = np.flatnonzero(~good)
    file_ends = np.cumsum([len(lines) for _, lines in blocks])
    of_block = np.searchsorted(file_ends, starts[odd], "right")
    rows = [
        _row(blocks[block][0], content[starts[at] : ends[at] - 1])
        for at, block in zip(odd, of_block, strict=True)
    ]
    # In the order of the files: this is needed to find runs of lines.
    order = np.empty(len(ends), np.int64)
    order[good] = np.arange(len(events))
    order[odd] = len(events) + np.arange(len(odd))
    both = pa.concat_tables([events, pa.Table.from_pylist(rows, CHECKED)])
    return both.take(pa.array(order))


# -- many lines -------------------------------------------------------------


def _look_like_ours(
    content: bytes, raw: _Array, starts: _Array, ends: _Array
) -> _Array:
    """Which lines begin and end as an object does, and are short and all ASCII."""
    good: _Array = (
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


def _in_bulk(content: bytes, lengths: _Array) -> tuple[_Array, list[pa.Table]]:
    """Which of these lines are as our writer writes them, and their events."""
    if not len(lengths):
        return np.zeros(0, bool), []
    found = _parsed(content, len(lengths))
    if found is not None:
        table, times = found
        good = _as_written(table, times, lengths)
        columns = [times.get(f.name, table[f.name]) for f in _FIELDS]
        nothing = pa.nulls(len(table), pa.string())
        names = CHECKED.names
        events = pa.table([*columns, nothing, nothing, nothing], names)
        if not good.all():
            events = events.filter(pa.array(good))
        return good, [events.cast(CHECKED)]
    good = _have_one_brace(content, lengths)
    if not good.all():
        some = np.frombuffer(content, np.uint8)[np.repeat(good, lengths)].tobytes()
        good[good], tables = _in_bulk(some, lengths[good])
        return good, tables
    if len(lengths) <= _FEW_LINES:
        return np.zeros(len(lengths), bool), []
    tables, at = [], 0
    for lines in np.array_split(np.arange(len(lengths)), _PARTS):
        size = int(lengths[lines].sum())
        good[lines], more = _in_bulk(content[at : at + size], lengths[lines])
        tables += more
        at += size
    return good, tables


def _have_one_brace(content: bytes, lengths: _Array) -> _Array:
    """Which lines have one opening brace: a torn line and the next one have two."""
    braces = np.frombuffer(content, np.uint8) == ord("{")
    starts = np.cumsum(lengths) - lengths
    found: _Array = np.add.reduceat(braces, starts, dtype=np.int64) == 1
    return found


def _parsed(
    content: bytes, lines: int
) -> tuple[pa.Table, dict[str, pa.ChunkedArray]] | None:
    """The fields of lines, and those that are times; None: not all can be parsed."""
    try:
        table = pj.read_json(pa.py_buffer(content), _READ, _PARSE)
        # Each line is one object, for none is less than one.
        if table.num_rows != lines:
            return None
        table = table.combine_chunks()
        return table, {name: table[name].cast(_TYPES["time"]) for name in _TIMES}
    except pa.ArrowInvalid:
        return None


def _as_written(
    table: pa.Table, times: Mapping[str, pa.ChunkedArray], lengths: _Array
) -> _Array:
    """Which lines are events, and have nothing in them that our writer does not write.

    No whitespace, no escape without need, no null, no field that is not in FIELDS.
    """
    columns = {
        name: table[name].chunk(0)
        for name in table.column_names
        if table[name].null_count < len(table)
    }
    there = {name: _there(column) for name, column in columns.items()}
    if not all(field.name in columns for field in FIELDS if field.always):
        return np.zeros(len(table), bool)
    # The braces; each field has a comma or the newline behind it.
    least = np.full(len(table), 2)
    texts = []
    for name, column in columns.items():
        size = len(f'"{name}":,')
        if name in _INTS:
            sizes = _digits(column) + size
        else:
            texts.append(column)
            sizes = np.diff(_offsets(column)) + (size + 2)
        least += sizes * there[name]
    if (least != lengths).any():
        least += _escaped(texts, len(table))
    good: _Array = least == lengths
    for field in FIELDS:
        if field.always:
            good &= there[field.name]
    version = columns["v"].fill_null(0).to_numpy(zero_copy_only=False)
    good &= (version >= 1) & (version <= SCHEMA_VERSION)
    if "attempt" in columns:
        attempt = columns["attempt"].fill_null(0).to_numpy(zero_copy_only=False)
        good &= attempt <= _ATTEMPT_MAX
    for name in _TIMES:
        if name in columns:
            good &= _are_times(columns[name], times[name].chunk(0))
    return good & _are_events(columns, there)


def _there(column: pa.Array) -> _Array | np.bool:
    """Whether a line has the field."""
    if not column.null_count:
        return np.True_
    found: _Array = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _offsets(texts: pa.StringArray) -> _Array:
    """Where each text begins: they lie one behind the other."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


def _digits(column: pa.Array) -> _Array:
    """How many digits numbers have; a minus is none, and makes a line too long."""
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    digits = np.ones(len(numbers), np.int64)
    power, high = 10, int(numbers.max(initial=0))
    while power <= high:
        digits += numbers >= power
        power *= 10
    return digits


def _escaped(columns: Iterable[pa.StringArray], lines: int) -> _Array:
    """How much longer lines are for what has to be escaped in their texts.

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


def _are_times(texts: pa.StringArray, times: pa.Array) -> _Array:
    """Whether what pyarrow takes for times are such as ours; also where there is none.

    It knows other forms, but of so many bytes only ours has a T there and a Z there.
    """
    ours = pc.and_(
        pc.match_like(texts, _AT_LIKE),
        pc.greater_equal(times.cast(pa.int64()), _AT_LEAST),
    )
    found: _Array = ours.fill_null(True).to_numpy(zero_copy_only=False)
    return found


def _are_events(
    columns: Mapping[str, pa.Array], there: Mapping[str, _Array | np.bool]
) -> _Array:
    """Whether there is each event, and has the fields that it must have."""
    roles, events = (columns[name].dictionary_encode() for name in ("role", "event"))
    names = events.dictionary.to_pylist()
    needed = np.array(
        [
            _NEEDED.get((role, event), _NEVER)
            for role in [*roles.dictionary.to_pylist(), None]
            for event in [*names, None]
        ]
    )
    # A null is behind all others.
    role_at, event_at = (
        each.indices.fill_null(len(each.dictionary)).to_numpy(zero_copy_only=False)
        for each in (roles, events)
    )
    needed = needed[role_at.astype(np.int64) * (len(names) + 1) + event_at]
    has = sum(there[name] * bit for name, bit in _BITS.items() if name in there)
    found: _Array = (needed & ~np.asarray(has)) == 0
    return found


# -- one line ---------------------------------------------------------------


def _row(file: str, line: bytes) -> dict[str, Any]:
    place: dict[str, Any] = {}
    try:
        return _event(line)
    except NewerSchema:
        problem = LineProblem.NEWER_SCHEMA
        place = _place(line)
    except (BadLine, UnicodeDecodeError):
        if len(line) > LINE_BYTES_MAX:
            problem = LineProblem.LONG_LINE
        elif line.startswith(b'{"v":') and not line.rstrip().endswith(b"}"):
            problem = LineProblem.TORN_LINE
        else:
            problem = LineProblem.BAD_LINE
    return {**place, **_problem(file, problem, line)}


def _place(line: bytes) -> dict[str, Any]:
    """The seq and boot of an unreadable line, if it has them in our form."""
    fields = json.loads(line)
    texts = {name: fields.get(name) for name in ("at", "node", "boot")}
    seq = fields.get("seq")
    if not all(isinstance(text, str) for text in texts.values()):
        return {}
    if type(seq) is not int or not 0 <= seq < 2**63:
        return {}
    try:
        at = datetime.fromisoformat(texts["at"])
    except ValueError:
        return {}
    if at.tzinfo is None:
        return {}
    names = {name: _in_utf8(texts[name]) for name in ("node", "boot")}
    return {**names, "seq": seq, "at": at}


def _problem(file: str, problem: LineProblem, line: bytes) -> dict[str, Any]:
    example = line[:EXAMPLE_BYTES].decode(errors="replace")[:_EXAMPLE_CHARS]
    return {"file": file, "problem": problem.value, "example": example}


def _event(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise BadLine(f"longer than {LINE_BYTES_MAX} bytes")
    # Decoded here, because `json` would guess the encoding.
    fields: dict[str, Any] = {**parse_line(line.decode())}
    if fields.get("attempt", 0) > _ATTEMPT_MAX:
        raise BadLine("too many attempts")
    for name in _TIMES:
        if name in fields:
            fields[name] = datetime.fromisoformat(fields[name])
    for name in _TEXTS:
        if name in fields:
            fields[name] = _in_utf8(fields[name])
    if "from" in fields:
        fields["source"] = fields.pop("from")
    return fields


def _in_utf8(text: str) -> str:
    """The text without half characters, which JSON permits, but not UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
