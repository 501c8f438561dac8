"""Reads journals: their lines, checked as `qos.journal.parse_line` does, and problems.

A line is an event or a problem, never neither. Nothing that is found in a journal
raises. Hidden files are those that are being written, and are not looked at.

Lines are checked in the Python workers of Spark, a whole file at once and not one by one
(`qos.pipeline.lines`): that takes less time than from_json and the checks that it needs.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline.lines import LineProblem, check_files, check_lines
from qos.pipeline.schema import CHECKED, EVENT

__all__ = [
    "Problem",
    "checked_files",
    "checked_lines",
    "events_of",
    "file_problems",
    "line_problems",
    "literal",
    "read_files",
    "read_lines",
    "read_rest",
    "read_whole",
    "stream_lines",
]


class Problem(enum.Enum):
    """What may be wrong with a journal; none of it stops an audit."""

    #: Of a line; see LineProblem.
    TORN_LINE = LineProblem.TORN_LINE.value
    BAD_LINE = LineProblem.BAD_LINE.value
    LONG_LINE = LineProblem.LONG_LINE.value
    NEWER_SCHEMA = LineProblem.NEWER_SCHEMA.value
    EMPTY_FILE = "empty-file"
    #: A file that is none of a journal's, by its name. It is not read.
    FOREIGN_FILE = "foreign-file"
    #: The clock of a node went back.
    CLOCK_BACK = "clock-back"
    #: Lines of a boot that nobody has given us, or that could not be written.
    MISSING_LINES = "missing-lines"


#: As `qos.journal.files` names them: NODE-BOOT-N.jsonl. Both say the same.
_NAME = r"/[^/]*-[^/]*-[0-9][^/]*\.jsonl$"
_NAME_GLOB = "*-*-[0-9]*.jsonl"

#: The writer begins a new file after half of it. One that is longer is not ours, and
#: may be longer than memory: it is read by lines.
_WHOLE_BYTES_MAX = 32 * 2**20


def read_lines(
    spark: SparkSession,
    folders: Sequence[str],
    *,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """The lines of all whole files: columns `file` and `value`.

    Args:
        spark: the session.
        folders: of journals, those that have `date=YYYY-MM-DD` folders; or such a
            folder itself. Local paths, or URIs that Spark can read.
        first: only folders of this date and later ones.
        last: likewise.
    """
    frame = (
        spark.read.option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _NAME_GLOB)
        .text([_glob(folder) for folder in folders])
        .select(F.col("_metadata.file_path").alias("file"), "value")
    )
    return _between(frame, first, last)


def stream_lines(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    """The same as a stream, also of files and `date=` folders that come later.

    An empty file makes no batch: see read_files.

    Args:
        spark: the session.
        folders: see read_lines. For a query that goes on they have to be the same, in
            the same order.
    """
    reader = (
        spark.readStream.option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _NAME_GLOB)
        # Spark leaves out what is a week older than the newest file, and says nothing.
        .option("maxFileAge", "36500d")
    )
    frames = [
        reader.text(glob).select(F.col("_metadata.file_path").alias("file"), "value")
        for glob in _one_glob(folders)
    ]
    return functools.reduce(DataFrame.unionByName, frames)


def read_files(
    spark: SparkSession,
    folders: Sequence[str],
    *,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """The files of all kinds: columns `file` and `empty`. See read_lines."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    found = reader.load([_glob(folder) for folder in folders])
    # A scan leaves empty files out; the list of files does not. Nothing is opened.
    names = spark.createDataFrame(
        [(name,) for name in found.inputFiles()], "file string"
    )
    # The same file may be file:/x here and file:///x there.
    full = found.select(_place("_metadata.file_path").alias("full"))
    frame = _between(names, first, last)
    frame = frame.join(full, _place("file") == F.col("full"), "left")
    return frame.select("file", F.col("full").isNull().alias("empty"))


def read_whole(
    spark: SparkSession,
    folders: Sequence[str],
    *,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """All whole files: columns `file` and `content`. See read_lines.

    Those that are too long to be in memory are left out; see read_rest. The content is
    null where all are on this machine: the Python workers read them themselves, and
    Java need not have them in its memory.
    """
    here = not any("://" in folder for folder in folders)
    content = F.lit(None).cast("binary").alias("content") if here else F.col("content")
    frame = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _NAME_GLOB)
        .load([_glob(folder) for folder in folders])
        .where(F.col("_metadata.file_size") <= _WHOLE_BYTES_MAX)
        .select(F.col("_metadata.file_path").alias("file"), content)
    )
    return _between(frame, first, last)


def read_rest(
    spark: SparkSession,
    folders: Sequence[str],
    *,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """The lines of the files that read_whole leaves out; see read_lines."""
    lines = read_lines(spark, folders, first=first, last=last)
    return lines.where(F.col("_metadata.file_size") > _WHOLE_BYTES_MAX)


def checked_files(files: DataFrame) -> DataFrame:
    """Each line of whole files as an event or a problem; see checked_lines."""
    return files.select("file", "content").mapInArrow(check_files, CHECKED)


def checked_lines(lines: DataFrame) -> DataFrame:
    """Each line as an event or a problem.

    Returns:
        The columns of `EVENT`, `problem` (the name of one, or null), and of a line that
        is a problem `file` and `example` (its beginning).
    """
    # A declarative pipeline takes no mapInArrow: that asks for the columns of a frame.
    check = F.arrow_udf(check_lines, CHECKED)  # type: ignore[attr-defined]  # has no types
    return lines.select(check("file", "value").alias("line")).select("line.*")


def events_of(checked: DataFrame) -> DataFrame:
    """The lines that are events: the columns of `EVENT`."""
    return checked.where(F.col("problem").isNull()).select(*EVENT.names)


def line_problems(checked: DataFrame) -> DataFrame:
    """The lines that are none, by file and kind; see file_problems."""
    return (
        checked.where(F.col("problem").isNotNull())
        .groupBy(F.col("problem").alias("kind"), "file")
        .agg(F.count("*").alias("count"), F.min("example").alias("example"))
        .select("kind", _place("file").alias("place"), "count", "example")
    )


def file_problems(files: DataFrame) -> DataFrame:
    """The files of which no line is read.

    Returns:
        Columns `kind` (see Problem), `place` (the file, or the node and its boot),
        `count` and `example`.
    """
    return files.select(
        F.when(~F.col("file").rlike(_NAME), Problem.FOREIGN_FILE.value)
        .when(F.col("empty"), Problem.EMPTY_FILE.value)
        .alias("kind"),
        _place("file").alias("place"),
        F.lit(1).cast("long").alias("count"),
        F.lit("").alias("example"),
    ).where(F.col("kind").isNotNull())


def literal(path: str) -> str:
    """A path where Spark takes patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _place(file: str) -> Column:
    """A file as people write it: Spark has a URI, and quotes it."""
    path = F.try_url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(F.coalesce(path, file), "^file:/+", "/")


def _between(frame: DataFrame, first: date | None, last: date | None) -> DataFrame:
    # Of `_metadata.file_path` Spark looks at the names only, and opens no more files.
    day = F.regexp_extract("file", r"/date=([0-9]{4}-[0-9]{2}-[0-9]{2})/", 1)
    if first is not None:
        frame = frame.where(day >= first.isoformat())
    if last is not None:
        frame = frame.where(day <= last.isoformat())
    return frame


def _one_glob(folders: Sequence[str]) -> list[str]:
    """The same folders in as few patterns as can be: each is a source of its own."""
    globs = [_glob(folder) for folder in folders]
    # Hadoop takes no escapes within braces that have slashes in them.
    plain = [glob for glob in globs if re.fullmatch(r"/[^\\{},]+", glob)]
    if len(plain) < 2:
        return globs
    names = ",".join(glob.removeprefix("/") for glob in plain)
    return [f"/{{{names}}}", *(glob for glob in globs if glob not in plain)]


def _glob(folder: str) -> str:
    """What Spark is to list."""
    folder = folder.rstrip("/")
    name = literal(folder)
    if folder.rpartition("/")[2].startswith("date="):
        return name
    return f"{name}/date=*"
