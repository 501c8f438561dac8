"""The files of journals, found by one look at the folders of their days.

Two kinds of files are listed and counted, but not read: those that are not closed, and
those that do not belong to a journal. When journals are followed, the folder of a day
is listed until the day has been closed for as long as a day is open. After that, its
files are forgotten. So the cost of a look does not grow with the age of the journals. A
file that comes there later is never read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from qos.audit import hadoop
from qos.audit.locations import local_path
from qos.audit.read import (
    Problem,
    is_hidden,
    is_of_journal,
    is_open,
    why_unread,
)

__all__ = ["PROBLEM", "NewFile", "each_file", "file_problems", "files_since"]

#: Columns: `kind` (see Problem), `place` (the file, or the node and its boot), `count`
#: and `example`.
PROBLEM: Final = "kind string, place string, count bigint, example string"

_DAY = re.compile("date=([0-9]{4}-[0-9]{2}-[0-9]{2})")


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file.

    Attributes:
        path: a path or a URI.
        day: the day of its folder, as text.
        problem: the reason why it is not read, or None.
        size: in bytes.
    """

    path: str
    day: str
    problem: str | None
    size: int


def files_since(
    spark: SparkSession | None,
    journals: Sequence[str],
    first: date | None,
    known_paths: Collection[str] = (),
    *,
    last: date | None = None,
) -> list[NewFile]:
    """The files in the folders of a day and of later ones.

    Args:
        spark: the session; None: all journals are on this machine.
        journals: folders with `date=YYYY-MM-DD` folders, or such a folder itself. Local
            paths, or URIs that Spark can read.
        first: the first day; None: all.
        known_paths: paths that are left out.
        last: the last day; None: all.
    """
    return [
        file
        for file in each_file(spark, journals, first, last)
        if file.path not in known_paths
    ]


def each_file(
    spark: SparkSession | None,
    journals: Sequence[str],
    first: date | None,
    last: date | None,
) -> Iterator[NewFile]:
    """The files one after the other; see files_since.

    A folder is listed only when needed.
    """
    for folder, day in _days(spark, journals):
        if first is not None and day < first.isoformat():
            continue
        if last is not None and day > last.isoformat():
            continue
        for path, size in _files(spark, folder):
            yield NewFile(path, day, _problem(path, size), size)


def file_problems(spark: SparkSession, files: Iterable[NewFile]) -> DataFrame:
    """The files that are not read: see PROBLEM."""
    rows = [
        (file.problem, _place(file.path), 1, why_unread(file.path, file.size) or "")
        for file in files
        if file.problem is not None
    ]
    return spark.createDataFrame(rows, PROBLEM)


def _place(path: str) -> str:
    """The name of a file in the form for people."""
    local = local_path(path)
    return path if local is None else str(local)


def _problem(path: str, size: int) -> str | None:
    if is_open(path):
        return Problem.OPEN_FILE.value
    if not is_of_journal(path):
        return Problem.FOREIGN_FILE.value
    if not size:
        return Problem.EMPTY_FILE.value
    return Problem.UNREAD_FILE.value if why_unread(path, size) else None


def _days(
    spark: SparkSession | None, journals: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The folders of days, and their days."""
    for journal in journals:
        folder = journal.rstrip("/")
        own = _DAY.fullmatch(folder.rpartition("/")[2])
        if own:
            yield folder, own[1]
            continue
        for name in _names(spark, folder):
            match = _DAY.fullmatch(name)
            if match:
                yield f"{folder}/{name}", match[1]


def _names(spark: SparkSession | None, folder: str) -> list[str]:
    """The names in a folder; none if the folder does not exist."""
    path = local_path(folder)
    if path is None:
        assert spark is not None
        return hadoop.children(spark, folder)
    return os.listdir(path) if path.is_dir() else []


def _files(spark: SparkSession | None, folder: str) -> Iterator[tuple[str, int]]:
    """All files in a folder and its subfolders that are not hidden."""
    path = local_path(folder)
    if path is None:
        assert spark is not None
        yield from hadoop.files(spark, folder)
        return
    for parent, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            full = os.path.join(parent, name)
            if not is_hidden(full):
                # A file that is being written may get its final name just now.
                with contextlib.suppress(FileNotFoundError):
                    yield full, os.stat(full).st_size
