"""Checks the lines of journals in bulk; runs in the Python workers of Spark.

A line is an event if `qos.journal.parse_line` accepts it. Nearly every line is exactly
as our writer writes it, and this is proven for many lines at once: see
qos.audit.as_written. Any other line is checked by itself, without those around it.

This module knows nothing of Spark, and of a journal's file only the name.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from qos.audit.as_written import ATTEMPT_MAX, CHECKED, in_bulk, look_like_ours
from qos.audit.blocks import BLOCK_BYTES, EXAMPLE_BYTES, Block, blocks_of
from qos.audit.foreign_lines import FOREIGN_NODE, NOBODY, Tied, marked
from qos.journal.schema import (
    FIELDS,
    INT_MAX,
    LINE_BYTES_MAX,
    YEARS,
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
    #: The file cannot be read, or not to its end; it is no line that was read.
    UNREAD_FILE = "unread-file"
    #: A node other than the one to which the folder is tied.
    FOREIGN_NODE = FOREIGN_NODE


_EXAMPLE_CHARS = 200

_TEXTS = [field.name for field in FIELDS if field.kind == "text"]
_TIMES = [field.name for field in FIELDS if field.kind == "time"]


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
    group: list[tuple[str, bytes]] = []
    size = 0
    for file, content in zip(batch["file"], batch["content"], strict=True):
        for block in blocks_of(file.as_py(), content.as_py()):
            if block.long or block.broken or block.unread:
                yield _checked_together(group, tied)
                group, size = [], 0
                yield _unread(block)
                continue
            group.append((block.file, block.lines))
            size += len(block.lines)
            if size >= BLOCK_BYTES:
                yield _checked_together(group, tied)
                group, size = [], 0
    yield _checked_together(group, tied)


def _unread(block: Block) -> pa.Table:
    problem = LineProblem.LONG_LINE if block.long else LineProblem.BROKEN_FILE
    if block.unread:
        problem = LineProblem.UNREAD_FILE
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
    blocks = [
        (file, line + b"\n")
        for file, line in zip(files.to_pylist(), values, strict=True)
    ]
    return _checked_together(blocks, tied).to_struct_array().combine_chunks()


def checked(file: str, content: bytes, tied: Tied = NOBODY) -> pa.Table:
    """Check the lines of a file; returns the columns of CHECKED."""
    is_whole = not content or content.endswith(b"\n")
    return _checked_together([(file, content if is_whole else content + b"\n")], tied)


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
    good = look_like_ours(content, raw, starts, ends)
    if good.all():
        as_written, tables = in_bulk(content, ends - starts)
    else:
        good_bytes = raw[np.repeat(good, ends - starts)].tobytes()
        as_written, tables = in_bulk(good_bytes, (ends - starts)[good])
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
    table = pa.concat_tables([events, pa.Table.from_pylist(rows, CHECKED)])
    return table.take(pa.array(order))


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
    if type(seq) is not int or not 0 <= seq <= INT_MAX:
        return {}
    try:
        at = datetime.fromisoformat(texts["at"])
    except ValueError:
        return {}
    # A year within, so that the time is in range in any time zone.
    if at.tzinfo is None or not YEARS[0] < at.year < YEARS[1]:
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
    if fields.get("attempt", 0) > ATTEMPT_MAX:
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
