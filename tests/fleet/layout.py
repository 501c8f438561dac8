"""Journals of a made-up fleet as files on a disk, in the worst permitted order.

Some files are missing, late, given twice, torn or not closed yet. Lines are shuffled
over files and days. Some lines are of an unknown version, and some are no lines.

Written only from the documented schema of the journal: it imports nothing of the
product.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, unquote

from generator import HIDDEN, Fleet
from nodes import SECOND, Line, day_of

__all__ = ["File", "Layout", "lay_out"]

#: Far beyond any existing version.
NEWER = 99


@dataclass(slots=True)
class File:
    """A file: its path within the folder, its text, and whether it comes late."""

    path: str
    text: str
    late: bool = False


@dataclass(slots=True)
class Layout:
    """The files, and all that can be known of them.

    Attributes:
        given: the lines that an audit can read, once each.
        newer: lines marked as of a newer version, which cannot be read.
        missing: the number of lines that were written, but are not given.
        named: the nodes in the names of files, also of open ones, and their folders.
    """

    files: list[File] = field(default_factory=list)
    given: list[Line] = field(default_factory=list)
    newer: list[Line] = field(default_factory=list)
    missing: int = 0
    named: set[tuple[str, str]] = field(default_factory=set)

    def write(self, folder: Path, *, late: bool | None = None) -> None:
        """Put the files into a folder: all, or only those that (do not) come late."""
        for file in self.files:
            if late is None or file.late is late:
                path = folder / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                hidden = path.with_name(f".{path.name}.part")
                hidden.write_text(file.text)
                hidden.rename(path)


def lay_out(
    fleet: Fleet, seed: int, *, hostile: bool = True, name: str = "fleet"
) -> Layout:
    """The files of a fleet.

    Args:
        fleet: the fleet.
        seed: the seed of the layout.
        hostile: if False, all closed files are there.
        name: part of the names of files that no node has named.
    """
    made = Layout()
    chance = random.Random(f"layout {seed}")
    last = {boot[-1].node: boot[-1] for boot in fleet.boots if boot}
    last = {node: line for node, line in last.items() if node in fleet.patient}
    for boot in fleet.boots:
        for number, lines in enumerate(_rotated(boot, chance), start=1):
            open_ = lines[-1] is boot[-1] and lines[0].boot in fleet.running
            kept = lines[-1] is last.get(lines[0].node) or _follows_jump(boot, lines)
            fate = chance if hostile and not kept else None
            if boot[0].folder == HIDDEN and not open_:
                made.missing += len(lines)
                continue
            made.files += _files(made, lines, number, open_, fate)
    if hostile:
        for folder in sorted({_folder(file) for file in made.files}):
            _shuffle(made, chance, folder, name)
    made.named = {
        (unquote(match[1]), _folder(file))
        for file in made.files
        if (match := re.fullmatch(r"\.?(.*)-[^-]*-[^-]*", file.path.rpartition("/")[2]))
    }
    if hostile:
        _add_foreign(made, chance, name)
        for file in made.files:
            file.late = chance.random() < 0.3
    return made


def _follows_jump(boot: list[Line], lines: list[Line]) -> bool:
    """Whether the clock was set back in these lines.

    Otherwise it could not be noticed.
    """
    before = boot[max(0, lines[0].seq - 2)]
    times = [before.at, *(line.at for line in lines)]
    return any(b < a - 3600 * SECOND for a, b in pairwise(times))


def _rotated(boot: list[Line], chance: random.Random) -> Iterator[list[Line]]:
    """The lines of a boot, divided into files as its writer does."""
    first = 0
    while first < len(boot):
        size = chance.randint(10, 60)
        yield boot[first : first + size]
        first += size


def _files(
    made: Layout,
    lines: list[Line],
    number: int,
    open_: bool,
    chance: random.Random | None,
) -> Iterator[File]:
    """A file of a writer, as the audit gets it, if it does."""
    name = f"{quote(lines[0].node, safe='@')}-{lines[0].boot}-{number}.jsonl"
    folder = f"{lines[0].folder}/date={day_of(lines[0].at)}".removeprefix("/")
    text = "".join(f"{line.text()}\n" for line in lines)
    draw = 1.0 if chance is None else chance.random()
    if open_:
        made.missing += len(lines)
        yield File(f"{folder}/.{name}", text)
    elif draw < 0.06:
        made.missing += len(lines)
    elif draw < 0.09 and chance is not None:
        made.given += lines[:-1]
        made.missing += 1
        torn = lines[-1].text()
        whole = text[: -len(torn) - 1]
        yield File(f"{folder}/{name}", whole + torn[: chance.randint(6, len(torn) - 1)])
    elif draw < 0.11 and chance is not None:
        newer = set(chance.sample(range(len(lines)), min(3, len(lines))))
        made.given += [line for n, line in enumerate(lines) if n not in newer]
        made.missing += len(newer)
        made.newer += [line for n, line in enumerate(lines) if n in newer]
        texts = (
            line.text(NEWER if n in newer else None) for n, line in enumerate(lines)
        )
        yield File(f"{folder}/{name}", "".join(f"{text}\n" for text in texts))
    else:
        made.given += lines
        yield File(f"{folder}/{name}", text)
        if draw < 0.2:
            yield File(f"{folder}/copy-{name}", text)


def _folder(file: File) -> str:
    """The folder of the journal that a file belongs to."""
    return file.path.partition("date=")[0].rstrip("/")


def _shuffle(made: Layout, chance: random.Random, folder: str, name: str) -> None:
    """Put the lines of some files of a folder together, and distribute them over other
    files there.
    """
    files = [file for file in made.files if _folder(file) == folder]
    days = sorted({file.path.rpartition("/")[0] for file in files})
    whole = [file for file in files if file.text.endswith("\n")]
    chosen = [f for f in whole if "/." not in f.path and chance.random() < 0.3]
    lines = [line for file in chosen for line in file.text.splitlines()]
    made.files = [file for file in made.files if file not in chosen]
    chance.shuffle(lines)
    number = 0
    while lines:
        number += 1
        some, lines = lines[:40], lines[40:]
        path = f"{chance.choice(days)}/{name}-b-{number}.jsonl"
        made.files.append(File(path, "".join(f"{line}\n" for line in some)))


def _add_foreign(made: Layout, chance: random.Random, name: str) -> None:
    """Add files and lines that do not belong to a journal."""
    day = next(f.path for f in made.files if not _folder(f)).partition("/")[0]
    made.files += [
        File(f"{day}/{name}.txt", "not a journal"),
        File(f"{day}/{name}-empty-1.jsonl", ""),
    ]
    some = [file for file in made.files if file.text.endswith("\n")]
    for file in chance.sample(some, 3):
        file.text += chance.choice(("nonsense\n", "{}\n", "[1]\n", '{"v":0}\n'))
