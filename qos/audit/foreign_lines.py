"""The nodes of lines: finds lines of foreign nodes, and lines about messages of others.

A folder of journals may be tied to a node (`NODE=DIR`). Then a line of any other node
in it is a `foreign-node`: it changes nothing. In a folder that is not tied, everybody
who can write there can write lines for any node.

In any folder, a line of role sender counts only for messages from addresses that its
node may speak for, and one of role receiver only for messages to those: the addresses
of its account, or, if the node is a component (a domain), of its domain. Any other is a
`foreign-word`: it counts as a line of its node, but changes no message.

The journal of a line is the folder with the `date=` folder of its file. Two journals may
be of nodes of the same name.

This module runs in the Python workers of Spark, and knows nothing of Spark.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qos.journal.schema import Role

__all__ = [
    "FOREIGN_NODE",
    "FOREIGN_WORD",
    "NOBODY",
    "Tied",
    "journal_of",
    "marked",
]

FOREIGN_NODE: Final = "foreign-node"
FOREIGN_WORD: Final = "foreign-word"

_EXAMPLE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Tied:
    """Folders that are tied to nodes.

    Attributes:
        folders: each with a node: a full JID, or an account for all its devices.
    """

    folders: Sequence[tuple[str, str]] = ()

    def node_of(self, file: str) -> str | None:
        """The node to which a file (a URI) is tied.

        The innermost of several folders decides.
        """
        if not self.folders:
            return None
        path = _path(unquote(file))
        matches = [
            (len(prefix), node)
            for folder, node in self.folders
            if path.startswith(prefix := f"{_path(folder).rstrip('/')}/")
        ]
        return max(matches)[1] if matches else None


NOBODY: Final = Tied()


def journal_of(path: str) -> int:
    """A number for the journal that a file belongs to.

    Args:
        path: of the file, or its URI without percent signs.
    """
    match = _IN_JOURNAL.fullmatch(path)
    folder = match["folder"] if match else path.rpartition("/")[0]
    return _number(re.sub("^file:(//[^/]*)?", "", folder))


_IN_JOURNAL = re.compile(r"(?P<folder>.*)/date=[0-9-]+/.*", re.DOTALL)


@lru_cache
def _number(folder: str) -> int:
    digest = hashlib.blake2b(folder.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def marked(
    lines: pa.Table, blocks: Sequence[tuple[str, bytes]], tied: Tied
) -> pa.Table:
    """The lines with their journals; foreign nodes and words are marked as problems.

    Args:
        lines: see qos.audit.lines.CHECKED; in the order of the blocks.
        blocks: a file (a URI) and whole lines of it.
        tied: the folders that are tied to nodes.
    """
    lines = _with_journal(lines, blocks)
    foreign = _foreign_nodes(lines, blocks, tied)
    if foreign is not None:
        lines = _with_problem(lines, foreign, FOREIGN_NODE, blocks)
        for name in {*lines.column_names} - {"file", "problem", "example"}:
            nothing = pa.scalar(None, lines[name].type)
            values = pc.if_else(foreign, nothing, lines[name])
            lines = lines.set_column(lines.column_names.index(name), name, values)
    foreign = _foreign_words(lines)
    if foreign is not None:
        lines = _with_problem(lines, foreign, FOREIGN_WORD, blocks)
    return lines


def _foreign_nodes(
    lines: pa.Table, blocks: Sequence[tuple[str, bytes]], tied: Tied
) -> pa.ChunkedArray | None:
    """Whether each line is of another node than its file; None: no line is."""
    if not tied.folders:
        return None
    tied_nodes = [tied.node_of(file) for file, _ in blocks]
    nodes = lines["node"]
    node = tied_nodes[0] if len({*tied_nodes}) == 1 else _of_lines(tied_nodes, blocks)
    node = pa.scalar(node, pa.string()) if not isinstance(node, pa.Array) else node
    own = pc.or_(pc.equal(nodes, node), pc.equal(_bare(nodes), node))
    # Null where a file is not tied to a node, or a line has no node.
    return _unless_empty(pc.invert(own))


def _with_journal(lines: pa.Table, blocks: Sequence[tuple[str, bytes]]) -> pa.Table:
    numbers = [journal_of(unquote(file)) for file, _ in blocks]
    journals = (
        pa.repeat(pa.scalar(numbers[0], pa.int64()), len(lines))
        if len({*numbers}) == 1
        else _of_lines(numbers, blocks, pa.int64())
    )
    place = lines.column_names.index("journal")
    return lines.set_column(place, "journal", journals)


def _of_lines(
    values: Sequence[str | None] | Sequence[int],
    blocks: Sequence[tuple[str, bytes]],
    kind: pa.DataType | None = None,
) -> pa.Array:
    """The value of each line's block: a text, or of this type."""
    counts = [lines.count(b"\n") for _, lines in blocks]
    numbers = np.repeat(np.arange(len(blocks)), counts)
    return pa.array(values, kind or pa.string()).take(pa.array(numbers))


def _foreign_words(lines: pa.Table) -> pa.Array | None:
    """Whether each line is about messages of others; None: no line is."""
    sends = pc.equal(lines["role"], Role.SENDER.value)
    receives = pc.equal(lines["role"], Role.RECEIVER.value)
    nothing = pa.scalar(None, pa.string())
    to = pc.if_else(receives, lines["to"], nothing)
    owner = pc.if_else(sends, lines["source"], to)
    # Nearly always the two texts are equal.
    mask = _unless_empty(pc.not_equal(lines["node"], owner))
    if mask is None:
        return None
    candidates = lines.filter(mask)
    node, account = candidates["node"], _bare(owner.filter(mask))
    of_component = pc.equal(node, _domain(account))
    own = pc.or_(pc.equal(_bare(node), account), of_component)
    foreign = pc.and_(pc.invert(own), pc.is_null(candidates["problem"]))
    if not pc.any(foreign).as_py():
        return None
    # The result for the few lines, put into the mask of all lines.
    return pc.replace_with_mask(
        mask.combine_chunks(), mask.combine_chunks(), foreign.combine_chunks()
    )


def _unless_empty(mask: pa.ChunkedArray) -> pa.ChunkedArray | None:
    mask = pc.fill_null(mask, False)
    return mask if pc.any(mask).as_py() else None


def _bare(jids: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(jids, "(?s)/.*", "")


def _domain(accounts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(accounts, "(?s)^[^@]*@", "")


def _with_problem(
    lines: pa.Table,
    mask: pa.Array | pa.ChunkedArray,
    problem: str,
    blocks: Sequence[tuple[str, bytes]],
) -> pa.Table:
    summary = pc.binary_join_element_wise(
        *(lines[name] for name in ("node", "role", "event", "source", "to")),
        " ",
        null_handling="replace",
        null_replacement="-",
    )
    example = pc.utf8_slice_codeunits(summary, 0, _EXAMPLE_CHARS)
    file = _of_lines([file for file, _ in blocks], blocks)
    for name, value in (("file", file), ("problem", problem), ("example", example)):
        values = pc.if_else(mask, value, lines[name])
        lines = lines.set_column(lines.column_names.index(name), name, values)
    return lines


def _path(place: str) -> str:
    """The path of a URI, or of a folder in the form for people."""
    return re.sub("^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?", "", place)
