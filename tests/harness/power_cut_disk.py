"""The possible contents of a disk after a power cut, from the record of its use.

This module knows operations on files and folders, when each was requested, and when a
sync that covers it ended. It knows nothing of stores, nor of how operations are
recorded.

A change of a file is safe when a sync of that file has ended that began after it. A
change of a name (made, renamed, removed) is safe when the same is true of its folder.
Each other change may be on the disk or not, whatever came later: no file system is
assumed to keep an order. A rename is there completely or not at all. A write of more
than a sector may be there in part: its first half, its second half, or only its length.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "ROOT",
    "Ack",
    "Cut",
    "Entered",
    "Operation",
    "Removed",
    "Renamed",
    "Resized",
    "Sync",
    "Trace",
    "Tree",
    "Written",
    "cuts",
    "states",
    "write_out",
]

#: The number of the folder that contains everything; it always exists.
ROOT = 0

#: A disk writes this much at once, or nothing of it.
_SECTOR_BYTES = 512


@dataclass(slots=True)
class Tree:
    """Files and folders by number.

    The target of each name, and the content of each file.
    """

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytearray] = field(default_factory=dict)

    def copy(self) -> Tree:
        """A copy, to be changed."""
        return Tree(
            {number: dict(names) for number, names in self.folders.items()},
            {number: bytearray(data) for number, data in self.files.items()},
        )

    def contents(
        self, folder: int = ROOT, above: str = ""
    ) -> Iterator[tuple[str, bytes | None]]:
        """Each path with the content of the file; None: a folder."""
        for name, number in sorted(self.folders[folder].items()):
            path = above + name
            if number in self.folders:
                yield path, None
                yield from self.contents(number, path + "/")
            else:
                yield path, bytes(self.files[number])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of one file or folder.

    Attributes:
        node: the number of the file, or of the folder that has the name.
        started: the time of the request, as a place in the record.
        ended: when the kernel had answered.
    """

    node: int
    started: int
    ended: int

    def apply(self, tree: Tree) -> None:
        """Make it."""
        raise NotImplementedError

    def forms(self) -> Sequence[Callable[[Tree], None]]:
        """The possible forms on the disk, if the change is there at all.

        The first: complete.
        """
        return (self.apply,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Operation):
    """Bytes were written into a file."""

    offset: int
    data: bytes

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        self._put(tree, 0, self.data)

    def forms(self) -> Sequence[Callable[[Tree], None]]:
        """See Operation."""
        if len(self.data) <= _SECTOR_BYTES:
            return (self.apply,)
        sectors = -(-len(self.data) // _SECTOR_BYTES)
        middle = sectors // 2 * _SECTOR_BYTES
        return (
            self.apply,
            lambda tree: self._put(tree, 0, self.data[:middle]),
            lambda tree: self._put(tree, middle, self.data[middle:]),
            self._lengthen,
        )

    def _put(self, tree: Tree, at: int, data: bytes) -> None:
        file, start = tree.files[self.node], self.offset + at
        _lengthen(file, start)
        file[start : start + len(data)] = data

    def _lengthen(self, tree: Tree) -> None:
        _lengthen(tree.files[self.node], self.offset + len(self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized(Operation):
    """A file was truncated, or extended by zeros."""

    size: int

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        file = tree.files[self.node]
        del file[self.size :]
        _lengthen(file, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered(Operation):
    """A new file or folder got a name."""

    name: str
    child: int

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        tree.folders[self.node][self.name] = self.child


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed(Operation):
    """A file got another name in its folder, replacing any file of that name."""

    old: str
    new: str
    child: int

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        names = tree.folders[self.node]
        if names.get(self.old) == self.child:
            del names[self.old]
        names[self.new] = self.child


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(Operation):
    """A name was removed."""

    name: str

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        tree.folders[self.node].pop(self.name, None)


@dataclass(frozen=True, slots=True)
class Sync:
    """The disk confirmed all changes of a file or folder from before the start of the
    sync.
    """

    node: int
    started: int
    ended: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A statement of the program to the world, which must stay true."""

    text: str
    started: int


@dataclass(slots=True)
class Trace:
    """All disk operations of a program in its lives, with its statements to the world.

    Attributes:
        tree: the present state, as seen without a power cut.
        operations: in the order in which they ended.
        syncs: likewise.
        acks: in the order in which they started.
        end: one more than the last place in the record.
    """

    tree: Tree = field(default_factory=Tree)
    operations: list[Operation] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    end: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """A power cut.

    Attributes:
        at: the time, as a place in the record.
        acks: the statements that had been made, perhaps.
        safe: certainly on the disk.
        open: perhaps on the disk.
    """

    at: int
    acks: Sequence[Ack]
    safe: Tree
    open: Sequence[Operation]


def cuts(trace: Trace) -> Iterator[Cut]:
    """Cuts whose states together are those of all possible cuts.

    Between two of them no sync ends and no statement is made. So an earlier cut leaves
    open fewer of the same changes than the next of these: each of its states is one of
    that cut's.
    """
    moments = {sync.ended for sync in trace.syncs} | {ack.started for ack in trace.acks}
    for at in sorted(moments | {trace.end}):
        # For each file and folder: changes that ended up to here are safe.
        synced: dict[int, int] = {}
        for sync in trace.syncs:
            if sync.ended < at:
                started = max(sync.started, synced.get(sync.node, 0))
                synced[sync.node] = started
        safe = Tree(
            {number: {} for number in trace.tree.folders},
            {number: bytearray() for number in trace.tree.files},
        )
        left = []
        for operation in trace.operations:
            if operation.started >= at:
                continue
            if operation.ended < synced.get(operation.node, 0):
                operation.apply(safe)
            else:
                left.append(operation)
        yield Cut(at, [ack for ack in trace.acks if ack.started <= at], safe, left)


def states(cut: Cut, most: int, chance: random.Random) -> Iterator[Tree]:
    """The possible contents of the disk after this cut: all, or this many.

    Some may be equal. If there are more, the first are none, all, and in turn each of:
    all up to one (that one complete or torn), all but one, one alone; then any.
    """
    forms = [(None, *operation.forms()) for operation in cut.open]
    if math.prod(map(len, forms)) <= most:
        choices: Iterator[tuple[int, ...]] = itertools.product(
            *(range(len(each)) for each in forms)
        )
    else:
        choices = itertools.islice(_some([len(each) for each in forms], chance), most)
    for choice in choices:
        tree = cut.safe.copy()
        for number, each in zip(choice, forms, strict=True):
            form = each[number]
            if form is not None:
                form(tree)
        yield tree


def _some(forms: Sequence[int], chance: random.Random) -> Iterator[tuple[int, ...]]:
    """Choices without end: for each operation 0 for not there, or one of its forms."""
    count = len(forms)
    yield (0,) * count
    yield (1,) * count
    special = [
        choice
        for place in range(count)
        for choice in (
            *(
                (1,) * place + (form,) + (0,) * (count - place - 1)
                for form in range(1, forms[place])
            ),
            (1,) * place + (0,) + (1,) * (count - place - 1),
            (0,) * place + (1,) + (0,) * (count - place - 1),
        )
    ]
    chance.shuffle(special)
    yield from special
    while True:
        kept = chance.random()
        yield tuple(
            chance.randrange(1, each) if chance.random() < kept else 0 for each in forms
        )


def write_out(tree: Tree, folder: Path) -> None:
    """Write the files and folders into an empty folder."""
    for path, data in tree.contents():
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)


def _lengthen(file: bytearray, size: int) -> None:
    if len(file) < size:
        file.extend(bytes(size - len(file)))
