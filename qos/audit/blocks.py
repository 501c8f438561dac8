"""Reads the files of journals in blocks of whole lines, in bounded memory.

A file may have any size, and so may a line: of a line that is longer than
LINE_BYTES_MAX only the beginning is kept. `.gz` and `.zst` files are decompressed on
the way, so that one that unpacks to terabytes takes time, and no more memory.

Knows nothing of Spark, and nothing of what a line says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from qos.journal.schema import LINE_BYTES_MAX

__all__ = ["BLOCK_BYTES", "EXAMPLE_BYTES", "Block", "blocks_of"]

#: Of a file, read at once. The writer begins a new file after 16 MB.
BLOCK_BYTES: Final = 4 * 2**20

#: What is kept of a line that is too long: enough for 200 characters.
EXAMPLE_BYTES: Final = 800

#: How a file is compressed, by the end of its name; as pyarrow calls it.
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file.

    Attributes:
        file: its URI.
        lines: whole lines, each with its newline; or, if it is `long` or `broken`, the
            beginning of what cannot be read.
        long: it is the beginning of one line that is too long.
        broken: the file cannot be decompressed from here on.
    """

    file: str
    lines: bytes
    long: bool = False
    broken: bool = False


class _Stream(Protocol):
    """The methods that are asked of an open file."""

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""


def blocks_of(file: str, content: bytes | None) -> Iterator[Block]:
    """The blocks of a file.

    Args:
        file: its URI.
        content: all that is in it; None: it is on this machine, and read here.

    Raises:
        OSError: it cannot be read.
    """
    source: Any
    if content is None:
        source = pa.OSFile(url2pathname(urlsplit(file).path))
    else:
        source = pa.BufferReader(content)
    with source:
        ends = [end for end in _COMPRESSIONS if file.endswith(end)]
        if not ends:
            yield from _blocks(file, source)
            return
        stream = pa.CompressedInputStream(source, _COMPRESSIONS[ends[0]])
        try:
            yield from _blocks(file, stream)
        except OSError as error:
            # Cut short, or not what its name says.
            yield Block(file, str(error).encode(), broken=True)


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
