"""Checks the lines of journals in bulk; runs in the Python workers of Spark.

What is an event is what `qos.journal.parse_line` says is one. Nearly every file is
just as our writer writes it, and that is proven of a whole file at once: no line can
be shorter than what our writer makes of its fields, so if all of them together are not
longer, then none has anything in it that our writer does not write. Any other file is
read line by line.

Knows nothing of Spark, and of a journal's file only the name.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from qos.journal.schema import (
    EVENTS,
    FIELDS,
    LINE_BYTES_MAX,
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
    """What may be wrong with a line."""

    #: JSON no more, or not yet.
    TORN_LINE = "torn-line"
    BAD_LINE = "bad-line"
    #: Longer than LINE_BYTES_MAX.
    LONG_LINE = "long-line"
    #: Written by a newer version of this library.
    NEWER_SCHEMA = "newer-schema"


#: It is an int elsewhere; nobody tries so often.
_ATTEMPT_MAX = 2**31 - 1

_EXAMPLE_CHARS = 200

#: A byte each.
_AT_LIKE = "__________T_______________Z"
#: The year 1, in microseconds: Python knows none before.
_AT_LEAST = -62_135_596_800_000_000

#: How much is parsed at once: more than any line, and little enough that what comes
#: of it is still in the cache of a processor when it is looked at next.
_BLOCK_BYTES = 4 * LINE_BYTES_MAX

#: Of small files: each call takes its time, however little it is given.
_TOGETHER_BYTES = 4 * 2**20

_TYPES = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("us", tz="UTC")}

#: A line as pyarrow is to parse it. Times are text still: their shape is checked.
_LINE = pa.schema(
    [
        (field.name, pa.int64() if field.kind == "int" else pa.string())
        for field in FIELDS
    ]
)
_PARSE = pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore")
_READ = pj.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)

#: Of an event; `v` is not, it has been looked at.
_FIELDS = [field for field in FIELDS if field.name != "v"]
_TEXTS = [field.name for field in FIELDS if field.kind == "text"]
_INTS = [field.name for field in FIELDS if field.kind == "int"]

#: See qos.pipeline.schema.CHECKED.
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

_NAMES = {(role.value, event.value) for role in EVENTS for event in EVENTS[role]}


def check_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the lines of files are.

    Args:
        batches: with the columns `file`, a URI, and `content`, all that is in it. A
            file of this machine is read here if that is null.

    Yields:
        Those of CHECKED.
    """
    for batch in batches:
        for table in checked_in(batch):
            yield from table.to_batches()


def checked_in(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """What the lines of the files of a batch are: the columns of CHECKED."""
    some: dict[str, bytes] = {}
    size = 0
    for file, content in zip(batch["file"], batch["content"], strict=True):
        uri = file.as_py()
        found = content.as_py()
        if found is None:
            found = Path(url2pathname(urlsplit(uri).path)).read_bytes()
        some[uri] = found
        size += len(found)
        if size >= _TOGETHER_BYTES:
            yield from _checked_together(some)
            some, size = {}, 0
    yield from _checked_together(some)


def _checked_together(files: Mapping[str, bytes]) -> Iterator[pa.Table]:
    """What lines of files are: with few calls, if all are as our writer writes them."""
    events = None
    if all(content.endswith(b"\n") for content in files.values()):
        events = _all_as_written(b"".join(files.values()))
    if events is not None:
        yield events
    else:
        for file, content in files.items():
            yield checked(file, content)


def check_lines(files: pa.Array, lines: pa.Array) -> pa.Array:
    """What lines are, each by itself.

    Args:
        files: of which each line is; those of a file together take less time.
        lines: the lines.

    Returns:
        The columns of CHECKED, as a struct for each line.
    """
    # What a line has in it may be no UTF-8.
    values = lines.cast(pa.binary()).to_pylist()
    names = files.to_pylist()
    tables = [CHECKED.empty_table()]
    low = 0
    for high in range(1, len(values) + 1):
        if high == len(values) or names[high] != names[low]:
            content = b"\n".join([*values[low:high], b""])
            tables.append(checked(names[low], content))
            low = high
    return pa.concat_tables(tables).to_struct_array().combine_chunks()


def checked(file: str, content: bytes) -> pa.Table:
    """What the lines of a file are: the columns of CHECKED."""
    events = _all_as_written(content)
    return _line_by_line(file, content) if events is None else events


# -- a whole file -----------------------------------------------------------


def _all_as_written(content: bytes) -> pa.Table | None:
    """The events of a file that is just as our writer writes it; None: it is not."""
    lines = _lines_of_objects(content)
    if lines is None:
        return None
    try:
        table = pj.read_json(pa.py_buffer(content), _READ, _PARSE)
        at = table["at"].cast(_TYPES["time"])
    except pa.ArrowInvalid:
        return None
    if table.num_rows != lines or any(
        table[field.name].null_count for field in FIELDS if field.always
    ):
        return None
    if not (
        _bytes_least(table) == len(content)
        and _in_range(table)
        and _are_times(table["at"], at)
        and _are_events(table)
    ):
        return None
    columns = [at if f.kind == "time" else table[f.name] for f in _FIELDS]
    nothing = pa.nulls(lines, pa.string())
    names = CHECKED.names
    return pa.table([*columns, nothing, nothing, nothing], names).cast(CHECKED)


def _lines_of_objects(content: bytes) -> int | None:
    """The number of lines, if each begins and ends as an object does."""
    raw = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(raw < ord(" "))
    if not len(ends) or ends[-1] != len(raw) - 1 or not content.isascii():
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    ours = (
        (raw[ends] == ord("\n")).all()
        and (raw[starts] == ord("{")).all()
        and (raw[ends - 1] == ord("}")).all()
        and (ends - starts).max() <= LINE_BYTES_MAX
    )
    return len(ends) if ours else None


def _bytes_least(table: pa.Table) -> int:
    """What lines of these fields take if there is not a byte too much in them.

    No whitespace, no escape, no null, no field that is not in FIELDS.
    """
    size = 2 * len(table)  # the braces; each field has a comma or the newline behind it
    for name in _LINE.names:
        column = table[name]
        size += (len(column) - column.null_count) * len(f'"{name}":,')
    for name in (*_TEXTS, "at"):
        column = table[name]
        size += (len(column) - column.null_count) * len('""')
        size += sum(_text_bytes(chunk) for chunk in column.chunks)
    for name in _INTS:
        size += _digits(table[name].drop_null().to_numpy())
    return size


def _text_bytes(texts: pa.StringArray) -> int:
    """Of all texts: they lie one behind the other."""
    _, offsets, _ = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)
    return int(ends[texts.offset + len(texts)]) - int(ends[texts.offset])


def _digits(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """How many digits there are; a minus is none, and makes the lines too long."""
    count, power, high = len(numbers), 10, int(numbers.max(initial=0))
    while power <= high:
        count += int(np.count_nonzero(numbers >= power))
        power *= 10
    return count


def _in_range(table: pa.Table) -> bool:
    versions = pc.min_max(table["v"]).as_py()
    attempts = pc.max(table["attempt"]).as_py() or 0
    return bool(
        1 <= versions["min"] <= versions["max"] <= SCHEMA_VERSION
        and attempts <= _ATTEMPT_MAX
    )


def _are_times(texts: pa.ChunkedArray, at: pa.ChunkedArray) -> bool:
    """Whether what pyarrow takes for times are such as ours.

    It knows other forms, but of so many bytes only ours has a T there and a Z there.
    """
    ours = pc.all(pc.match_like(texts, _AT_LIKE)).as_py()
    return bool(ours and pc.min(at.cast(pa.int64())).as_py() >= _AT_LEAST)


def _are_events(table: pa.Table) -> bool:
    pairs = pa.table(
        {name: table[name].dictionary_encode() for name in ("role", "event")}
    )
    found = pairs.group_by(["role", "event"], use_threads=False).aggregate([])
    roles, events = found["role"].to_pylist(), found["event"].to_pylist()
    return _NAMES.issuperset(zip(roles, events, strict=True))


# -- line by line -----------------------------------------------------------


def _line_by_line(file: str, content: bytes) -> pa.Table:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return pa.Table.from_pylist([_row(file, line) for line in lines], CHECKED)


def _row(file: str, line: bytes) -> dict[str, Any]:
    try:
        return _event(line)
    except NewerSchema:
        problem = LineProblem.NEWER_SCHEMA
    except (BadLine, UnicodeDecodeError):
        if len(line) > LINE_BYTES_MAX:
            problem = LineProblem.LONG_LINE
        elif line.startswith(b'{"v":') and not line.rstrip().endswith(b"}"):
            problem = LineProblem.TORN_LINE
        else:
            problem = LineProblem.BAD_LINE
    example = line[: 4 * _EXAMPLE_CHARS].decode(errors="replace")[:_EXAMPLE_CHARS]
    return {"file": file, "problem": problem.value, "example": example}


def _event(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise BadLine(f"longer than {LINE_BYTES_MAX} bytes")
    # Decoded here: `json` would guess in which way it has to be.
    fields: dict[str, Any] = {**parse_line(line.decode())}
    if fields.get("attempt", 0) > _ATTEMPT_MAX:
        raise BadLine("too many attempts")
    fields["at"] = datetime.fromisoformat(fields["at"])
    for name in _TEXTS:
        if name in fields and not fields[name].isascii():
            # JSON may have half a character, and UTF-8 may not.
            fields[name] = fields[name].encode(errors="replace").decode()
    if "from" in fields:
        fields["source"] = fields.pop("from")
    return fields
