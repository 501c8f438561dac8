"""What a disk may hold after a power cut: from what was asked of it, and what it confirmed.

Knows operations on files and folders, when each was asked for and when a sync ended that
covers it. Knows nothing of stores, nor of how operations are recorded.

A change of a file is safe when a sync of that file has ended that began after it; a
change of a name (made, renamed, removed) when the same is true of its folder. Of all
others each may be on the disk or not, whatever came later: no file system is taken for
one that keeps an order. A rename is there whole or not at all. A write of more than a
sector may be there in part: the first half of it, the second, or its length alone.
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

#: The number of the folder that everything is in; it is there and stays.
ROOT = 0

#: A disk writes so much at once, or nothing of it.
_SECTOR_BYTES = 512


@dataclass(slots=True)
class Tree:
    """Files and folders by number: what a name leads to, and what is in a file."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytearray] = field(default_factory=dict)

    def copy(self) -> Tree:
        """Another one, to be changed."""
        return Tree(
            {number: dict(names) for number, names in self.folders.items()},
            {number: bytearray(data) for number, data in self.files.items()},
        )

    def contents(
        self, folder: int = ROOT, above: str = ""
    ) -> Iterator[tuple[str, bytes | None]]:
        """Each path with what is in the file; None: it is a folder."""
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
        started: when it was asked for, as a place in the record.
        ended: when the kernel had answered.
    """

    node: int
    started: int
    ended: int

    def apply(self, tree: Tree) -> None:
        """Make it."""
        raise NotImplementedError

    def forms(self) -> Sequence[Callable[[Tree], None]]:
        """How it may be on the disk, if it is there at all; the first: whole."""
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
    """A file was cut, or made longer by zeros."""

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
    """A file got another name in its folder, which no other has then."""

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
    """A name is gone."""

    name: str

    def apply(self, tree: Tree) -> None:
        """See Operation."""
        tree.folders[self.node].pop(self.name, None)


@dataclass(frozen=True, slots=True)
class Sync:
    """The disk confirmed all that was changed in a file or folder before it started."""

    node: int
    started: int
    ended: int


@dataclass(frozen=True, slots=True)
class Ack:
    """The program said something to the world: what it says must stay true."""

    text: str
    started: int


@dataclass(slots=True)
class Trace:
    """All that a program, in its lives, asked of the disk and told the world.

    Attributes:
        tree: as it is now, for who sees it without a power cut.
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
    """The power goes.

    Attributes:
        at: when, as a place in the record.
        acks: what had been told, perhaps.
        safe: what is on the disk in any case.
        open: what else may be there.
    """

    at: int
    acks: Sequence[Ack]
    safe: Tree
    open: Sequence[Operation]


def cuts(trace: Trace) -> Iterator[Cut]:
    """Cuts whose states are those of all cuts there can be.

    Between two of them no sync ends and nothing is told. So an earlier cut leaves open
    less than the next one of these, of the same: each of its states is one of those.
    """
    moments = {sync.ended for sync in trace.syncs} | {ack.started for ack in trace.acks}
    for at in sorted(moments | {trace.end}):
        # What has ended by then is safe up to here, of each file and folder.
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
    """What the disk may hold after this cut: all of it, or so many, some of them alike.

    Where there are more, the first are none, all, and in turn each of: all up to one (that
    one whole or torn), all but one, one alone; then any.
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
    """Choices, without end: of each operation 0 for not there, or one of its forms."""
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
    """Make the files and folders in an empty folder."""
    for path, data in tree.contents():
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)


def _lengthen(file: bytearray, size: int) -> None:
    if len(file) < size:
        file.extend(bytes(size - len(file)))
