"""Reads the files of journals in blocks of whole lines, in bounded memory.

A file may have any size, and so may a line: of a line longer than LINE_BYTES_MAX, only
the beginning is kept. `.gz` and `.zst` files are decompressed while reading, so that a
file that unpacks to terabytes takes time, but no more memory.

This module knows nothing of Spark, and nothing of the meaning of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from qos.audit.local_folders import reason
from qos.journal.schema import LINE_BYTES_MAX

__all__ = ["BLOCK_BYTES", "EXAMPLE_BYTES", "Block", "blocks_of"]

#: The bytes of a file that are read at once. The writer begins a new file after 16 MB.
BLOCK_BYTES: Final = 4 * 2**20

#: The bytes that are kept of a line that is too long: enough for 200 characters.
EXAMPLE_BYTES: Final = 800

#: The compression of a file by the end of its name, with pyarrow's word for it.
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file.

    Attributes:
        file: its URI.
        lines: whole lines, each with its newline; if it is `long`, the beginning of the
            line; if it is `broken` or `unread`, the reason.
        long: whether it is the beginning of one line that is too long.
        broken: whether the file cannot be decompressed from here on.
        unread: whether the file cannot be read from here on.
    """

    file: str
    lines: bytes
    long: bool = False
    broken: bool = False
    unread: bool = False


class _Stream(Protocol):
    """The methods that are needed of an open file."""

    def read(self, size: int, /) -> bytes:
        """Return up to this number of bytes; none at the end."""


def blocks_of(file: str, content: bytes | None) -> Iterator[Block]:
    """The blocks of a file.

    Args:
        file: its URI.
        content: its whole content; None: it is on this machine, and is read here.
    """
    source: Any
    try:
        if content is None:
            source = pa.OSFile(url2pathname(urlsplit(file).path))
        else:
            source = pa.BufferReader(content)
    except OSError as error:
        # It was removed since it was listed, or its disk fails.
        yield Block(file, reason(error).encode(), unread=True)
        return
    with source:
        ends = [end for end in _COMPRESSIONS if file.endswith(end)]
        stream = source
        if ends:
            stream = pa.CompressedInputStream(source, _COMPRESSIONS[ends[0]])
        try:
            yield from _blocks(file, stream)
        except OSError as error:
            if ends:
                # Cut short, or not of the type of its name.
                yield Block(file, str(error).encode(), broken=True)
            else:
                yield Block(file, reason(error).encode(), unread=True)


def _blocks(file: str, stream: _Stream) -> Iterator[Block]:
    rest, too_long = b"", False
    while more := stream.read(BLOCK_BYTES):
        if too_long:
            _, newline, more = more.partition(b"\n")
            too_long = not newline
        end = more.rfind(b"\n") + 1
        if end:
            yield Block(file, rest + more[:end])
            rest = b""
        rest += more[end:]
        if len(rest) > LINE_BYTES_MAX:
            yield Block(file, rest[:EXAMPLE_BYTES], long=True)
            rest, too_long = b"", True
    if rest:
        yield Block(file, rest + b"\n")
