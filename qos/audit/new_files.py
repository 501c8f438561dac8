"""The files of journals, found by one look at the folders of their days.

Some files are listed and counted, but not read: those that are not closed, those that do
not belong to a journal, and those that cannot be read. A folder that is gone or cannot be
listed is counted, too. When journals are followed, the folder of a day
is listed until the day has been closed for as long as a day is open. After that, its
files are forgotten. So the cost of a look does not grow with the age of the journals. A
file that comes there later is never read. But the days of nodes that have no time yet are
always listed: what comes there is told, and is never late.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from qos.audit import hadoop
from qos.audit.local_folders import Entry, files_below, names_in, printable, reason
from qos.audit.locations import local_path
from qos.audit.read import (
    Problem,
    is_hidden,
    is_of_journal,
    is_open,
    why_unread,
)
from qos.journal.schema import YEARS

__all__ = [
    "PROBLEM",
    "NewFile",
    "each_file",
    "file_problems",
    "files_since",
    "is_to_come",
    "is_without_time",
    "place_of",
]

#: Columns: `kind` (see Problem), `place` (the file, or the node and its boot), `count`
#: and `example`.
PROBLEM: Final = "kind string, place string, count bigint, example string"

_DAY = re.compile("date=([0-9]{4}-[0-9]{2}-[0-9]{2})")

#: No line of an earlier day counts: its node has no time yet.
_FIRST_DAY: Final = f"{YEARS[0]:04}-01-01"

_NO_DAY = "there is no date=… folder in it"

#: The problems of files and folders that may be read at a later look.
_TO_COME: Final = frozenset(
    {
        Problem.OPEN_FILE.value,
        Problem.UNREAD_FILE.value,
        Problem.UNREAD_FOLDER.value,
        Problem.EMPTY_FOLDER.value,
    }
)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file, or a folder that cannot be listed.

    Attributes:
        path: a path or a URI.
        day: the day of its folder, as text; "": it is the folder of a journal.
        problem: the kind of problem for which it is not read, or None.
        size: in bytes.
        reason: why it cannot be read, for people; "" if `problem` says all.
        changed_ms: when it was changed, in milliseconds since the epoch; None: unknown.
    """

    path: str
    day: str
    problem: str | None
    size: int
    reason: str = ""
    changed_ms: int | None = None

    def is_same(self, other: NewFile | None) -> bool:
        """Whether another look at this path has found the same content."""
        if other is None or self.size != other.size:
            return False
        # Former versions have stored no times.
        return None in {self.changed_ms, other.changed_ms} or (
            self.changed_ms == other.changed_ms
        )


def files_since(
    spark: SparkSession | None,
    journals: Sequence[str],
    first: date | None,
    complete: Mapping[str, NewFile] = MappingProxyType({}),
    *,
    last: date | None = None,
    without_time: bool = False,
) -> list[NewFile]:
    """The files in the folders of a day and of later ones.

    Args:
        spark: the session; None: all journals are on this machine.
        journals: folders with `date=YYYY-MM-DD` folders, or such a folder itself. Local
            paths, or URIs that Spark can read.
        first: the first day; None: all.
        complete: files that are left out unless they have changed, by their paths. A
            file that was found while it was copied grows.
        last: the last day; None: all.
        without_time: also earlier days for which is_without_time is true.
    """
    return [
        file
        for file in each_file(spark, journals, first, last, without_time=without_time)
        if not file.is_same(complete.get(file.path))
    ]


def each_file(
    spark: SparkSession | None,
    journals: Sequence[str],
    first: date | None,
    last: date | None,
    *,
    without_time: bool = False,
) -> Iterator[NewFile]:
    """The files one after the other; see files_since.

    A folder is listed only when needed.
    """
    for journal in journals:
        folder = journal.rstrip("/")
        try:
            days = _days(spark, folder)
        except OSError as error:
            yield _unread_folder(folder, "", reason(error))
            continue
        if not days:
            yield NewFile(folder, "", Problem.EMPTY_FOLDER.value, 0, _NO_DAY)
        for day_folder, day in days:
            is_early = first is not None and day < first.isoformat()
            if is_early and not (without_time and is_without_time(day)):
                continue
            if last is not None and day > last.isoformat():
                continue
            for entry in _entries(spark, day_folder):
                if entry.is_folder:
                    yield _unread_folder(entry.path, day, entry.reason)
                else:
                    yield _file(entry, day)


def is_without_time(day: str) -> bool:
    """Whether the day of a folder is before any that counts, such as those of 1970.

    Nodes write there that have no time yet.
    """
    return "" < day < _FIRST_DAY


def is_to_come(file: NewFile) -> bool:
    """Whether a file that is not read now may be read at a later look.

    It is being written, or somebody may repair what keeps it from being read.
    """
    return file.problem in _TO_COME


def file_problems(spark: SparkSession, files: Iterable[NewFile]) -> DataFrame:
    """The files that are not read: see PROBLEM."""
    rows = [
        (file.problem, place_of(file.path), 1, file.reason)
        for file in files
        if file.problem is not None
    ]
    return spark.createDataFrame(rows, PROBLEM)


def place_of(path: str) -> str:
    """The name of a file in the form for people."""
    local = local_path(path)
    return path if local is None else str(local)


def _unread_folder(folder: str, day: str, why: str) -> NewFile:
    return NewFile(printable(folder), day, Problem.UNREAD_FOLDER.value, 0, why)


def _file(entry: Entry, day: str) -> NewFile:
    path, size = entry.path, entry.size
    why = entry.reason or why_unread(path, size) or ""
    if is_open(path):
        problem, why = Problem.OPEN_FILE, ""
    elif not is_of_journal(path):
        problem = Problem.FOREIGN_FILE
    elif entry.reason:
        problem = Problem.UNREAD_FILE
    elif not size:
        problem = Problem.EMPTY_FILE
    elif why:
        problem = Problem.UNREAD_FILE
    else:
        return NewFile(path, day, None, size, changed_ms=entry.changed_ms)
    return NewFile(path, day, problem.value, size, why, entry.changed_ms)


def _days(spark: SparkSession | None, folder: str) -> list[tuple[str, str]]:
    """The folders of days in the folder of a journal, and their days.

    Raises:
        OSError: it cannot be listed, or is not there.
    """
    own = _DAY.fullmatch(folder.rpartition("/")[2])
    if own:
        return [(folder, own[1])]
    matches = map(_DAY.fullmatch, _names(spark, folder))
    return [(f"{folder}/{match[0]}", match[1]) for match in matches if match]


def _names(spark: SparkSession | None, folder: str) -> list[str]:
    path = local_path(folder)
    if path is not None:
        return names_in(path)
    assert spark is not None
    with hadoop.io_errors():
        if hadoop.exists(spark, folder):
            return hadoop.children(spark, folder)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _entries(spark: SparkSession | None, folder: str) -> Iterator[Entry]:
    """The files of a day that are not hidden, and folders that cannot be listed."""
    path = local_path(folder)
    if path is not None:
        yield from files_below(path, lambda file: not is_hidden(file))
        return
    assert spark is not None
    try:
        with hadoop.io_errors():
            for file, size, changed_ms in hadoop.files(spark, folder):
                yield Entry(file, size, changed_ms=changed_ms)
    except OSError as error:
        yield Entry(folder, 0, reason(error), is_folder=True)
