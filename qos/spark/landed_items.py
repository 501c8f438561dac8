"""The files of landed items: an item a line, read in parts by any process.

On a cluster all executors must see the folder under the same path. For how the files are
written, see `qos.spark.queue_landing`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from xep_0254.events import DeliveredItem

__all__ = [
    "LandingError",
    "Slice",
    "file_name",
    "items_in",
    "lines_of",
    "read_slice",
    "slices",
]


class LandingError(Exception):
    """The folder cannot be used; one line that names it."""

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(f"landing {folder}: {text}")


def file_name(number: int) -> str:
    """The name of the file with this number."""
    return f"items-{number:010}.jsonl"


def lines_of(items: Iterable[DeliveredItem]) -> str:
    """The lines of a file with these items."""
    return "".join(f"{json.dumps(asdict(item))}\n" for item in items)


def items_in(path: Path) -> Iterator[DeliveredItem]:
    """The items in a file.

    Raises:
        LandingError: the file is damaged.
    """
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield DeliveredItem(**json.loads(line))
            except (ValueError, TypeError):
                raise LandingError(path.parent, f"{path.name} is damaged") from None


@dataclass(frozen=True, slots=True)
class Slice:
    """Some lines of a file, read by one task.

    Attributes:
        path: of the file.
        start: the byte at which the first line begins.
        lines: how many.
    """

    path: str
    start: int
    lines: int


def slices(folder: Path, start: int, end: int, *, lines: int) -> list[Slice]:
    """The files from number `start` to before `end`, in parts.

    Args:
        folder: of the landing.
        start: the number of the first file.
        end: the number after the last one.
        lines: the most lines of a part.

    Raises:
        LandingError: a file is missing.
    """
    parts = []
    for number in range(start, end):
        path = folder / file_name(number)
        try:
            with path.open("rb") as file:
                at = count = begin = 0
                for line in file:
                    if count == lines:
                        parts.append(Slice(str(path), begin, count))
                        begin, count = at, 0
                    at += len(line)
                    count += 1
                parts.append(Slice(str(path), begin, count))
        except FileNotFoundError:
            raise LandingError(folder, f"{path.name} is missing") from None
    return parts


def read_slice(part: Slice) -> Iterator[DeliveredItem]:
    """The items of a part.

    Raises:
        LandingError: the folder is not visible here, or is damaged.
    """
    path = Path(part.path)
    try:
        with path.open("rb") as file:
            file.seek(part.start)
            for _ in range(part.lines):
                yield DeliveredItem(**json.loads(file.readline()))
    except FileNotFoundError:
        raise LandingError(
            path.parent,
            f"{path.name} is missing: a cluster needs a folder that all of it sees",
        ) from None
    except (ValueError, TypeError):
        raise LandingError(path.parent, f"{path.name} is damaged") from None
