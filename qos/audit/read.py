"""Reads journals: their lines, checked like `qos.journal.parse_line`, and problems.

Every line is either an event or a problem. No content of a journal raises an error.
Hidden files are being written, or their writer has died: they are counted, but not
read.

Lines are checked in the Python workers of Spark, many at once (`qos.audit.lines`). This
takes less time than from_json and the checks that it would need.

Memory is bounded, whatever a folder contains. The workers read files of this machine in
blocks, of any size, compressed or not. Java reads files that are elsewhere. It reads
those up to 32 MB as a whole, and longer ones by lines, without lines that are too long.
It cannot read longer compressed ones (`unread-file`).
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit.foreign_lines import FOREIGN_WORD, NOBODY, Tied
from qos.audit.lines import LineProblem, check_files, check_lines
from qos.audit.locations import local_path, whole_url
from qos.audit.schema import CHECKED, EVENT
from qos.journal.schema import LINE_BYTES_MAX

__all__ = [
    "Problem",
    "checked_files",
    "checked_lines",
    "events_of",
    "file_uri",
    "is_hidden",
    "is_of_journal",
    "is_open",
    "line_problems",
    "literal",
    "read_these",
    "stream_lines",
    "why_unread",
]


class Problem(enum.Enum):
    """The problems that a journal may have; none of them stops an audit."""

    #: A problem of a line; see LineProblem.
    TORN_LINE = LineProblem.TORN_LINE.value
    BAD_LINE = LineProblem.BAD_LINE.value
    LONG_LINE = LineProblem.LONG_LINE.value
    NEWER_SCHEMA = LineProblem.NEWER_SCHEMA.value
    #: See qos.audit.foreign_lines.
    FOREIGN_NODE = LineProblem.FOREIGN_NODE.value
    FOREIGN_WORD = FOREIGN_WORD
    #: In a compressed file: the rest cannot be read.
    BROKEN_FILE = LineProblem.BROKEN_FILE.value
    EMPTY_FILE = "empty-file"
    #: A file that by its name does not belong to a journal. It is not read.
    FOREIGN_FILE = "foreign-file"
    #: A file that is not closed: it is being written, or its writer has died. It is not
    #: read.
    OPEN_FILE = "open-file"
    #: A file of a journal that cannot be read in its place; `example` has the reason.
    UNREAD_FILE = LineProblem.UNREAD_FILE.value
    #: The folder of a journal or of a day that is gone or cannot be listed; `example`
    #: has the reason.
    UNREAD_FOLDER = "unread-folder"
    #: The folder of a journal without the folder of a day: a device that has not begun
    #: its journal, or a place where something should be mounted.
    EMPTY_FOLDER = "empty-folder"
    #: A node without a journal of a day of which an earlier audit had one.
    MISSING_JOURNAL = "missing-journal"
    #: The clock of a node went back.
    CLOCK_BACK = "clock-back"
    #: Lines of a boot that are not in the given files, or that could not be written.
    MISSING_LINES = "missing-lines"
    #: Two lines with the same boot and number count the same window differently.
    CONTRADICTING_COUNTS = "contradicting-counts"


#: The names of `qos.journal.files`: NODE-BOOT-N.jsonl.
_NAME = r"/[^/]*-[^/]*-[0-9][^/]*\.jsonl(\.gz|\.zst)?$"
#: Java reads a stream, and does not always know `.zst`.
_STREAM_GLOB = "*-*-[0-9]*.jsonl{,.gz}"
_COMPRESSED = r"\.(gz|zst)$"
#: The names of files that the writer has not closed.
_OPEN_NAME = r"/\.[^/]*-[^/]*-[0-9][^/]*\.jsonl$"

_UNDERSCORE = "Spark leaves out names that begin with _: begin it with %5F"
_TOO_LARGE = "it is compressed, and too large to be read from where it is: unpack it"

#: Hadoop's option for the length of lines.
_JAVA_LINE_OPTION = "mapreduce.input.linerecordreader.line.maxlength"

#: The bytes of a file that Java has in memory as a whole; the writer begins a new file
#: after half of this.
_WHOLE_BYTES_MAX = 32 * 2**20

#: The bytes in a partition of files that Python reads.
_PART_BYTES = 128 * 2**20

#: When Java reads files by lines, it leaves out or cuts longer lines. This is more than
#: LINE_BYTES_MAX, so that most lines that are too long have an example.
_JAVA_LINE_BYTES_MAX = 8 * LINE_BYTES_MAX


def stream_lines(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    """The lines of whole files, also of files and `date=` folders that come later.

    An empty file makes no batch.

    Args:
        spark: the session.
        folders: see qos.audit.new_files.files_since. For a query that continues, they
            must be the same, in the same order.

    Returns:
        Columns `file` and `value`.
    """
    reader = (
        spark.readStream.option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _STREAM_GLOB)
        # Without this, Spark silently leaves out files a week older than the newest
        # one.
        .option("maxFileAge", "36500d")
    )
    frames = [
        reader.text(glob).select(F.col("_metadata.file_path").alias("file"), "value")
        for glob in _one_glob(folders)
    ]
    return functools.reduce(DataFrame.unionByName, frames)


def read_these(
    spark: SparkSession, sizes: Mapping[str, int], tied: Tied = NOBODY
) -> tuple[DataFrame, DataFrame | None]:
    """Some files, for `checked_files`; and each line of those too large for it.

    The content is null if all files are on this machine: the Python workers read them,
    and Java need not have them in its memory.

    Args:
        spark: the session.
        sizes: the sizes of the files, by path.
        tied: the folders that are tied to nodes.

    Returns:
        Columns `file` and `content`; and see checked_lines, or None if there are no
        large ones.
    """
    local_files = {
        path: size for path, size in sizes.items() if local_path(path) is not None
    }
    if len(local_files) == len(sizes):
        frame = _dealt(spark, local_files)
        return frame.withColumn("content", F.lit(None).cast("binary")), None
    names = [literal(whole_url(path)) for path in sizes]
    files = spark.read.format("binaryFile").load(names)
    files = files.where(F.col("_metadata.file_size") <= _WHOLE_BYTES_MAX)
    whole = files.select(F.col("_metadata.file_path").alias("file"), "content")
    if max(sizes.values()) <= _WHOLE_BYTES_MAX:
        return whole, None
    return whole, _checked_rest(spark, names, tied)


def _dealt(spark: SparkSession, sizes: Mapping[str, int]) -> DataFrame:
    """Files of this machine in partitions that take about the same time."""
    parts = max(
        spark.sparkContext.defaultParallelism, sum(sizes.values()) // _PART_BYTES
    )
    parts = min(parts, len(sizes)) or 1
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))
    hands = [
        (number, [file_uri(path) for path in largest[number::parts]])
        for number in range(parts)
    ]
    # For rows that are made here, Spark itself chooses their number in a partition.
    assignments = spark.createDataFrame(hands, "id long, files array<string>")
    numbers = spark.range(0, parts, 1, parts)
    return numbers.join(F.broadcast(assignments), "id").select(
        F.explode("files").alias("file")
    )


def _checked_rest(spark: SparkSession, names: list[str], tied: Tied) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true")
    reader = reader.option("pathGlobFilter", "*-*-[0-9]*.jsonl")
    files = reader.format("binaryFile").load(names)
    long = F.col("_metadata.file_size") > _WHOLE_BYTES_MAX
    name = F.col("_metadata.file_path").alias("file")
    lines = (
        reader.format("text")
        .option("lineSep", "\n")
        .option(_JAVA_LINE_OPTION, str(_JAVA_LINE_BYTES_MAX))
        .load(names)
        .where(long)
        .select(name, "value")
    )
    # Java does not report the lines that it leaves out; but these bytes are in no line.
    read_sizes = lines.groupBy("file").agg(
        F.sum(F.octet_length("value") + 1).alias("read")
    )
    sizes = files.where(long).select(name, F.col("_metadata.file_size").alias("size"))
    left_out = F.col("size") - F.coalesce("read", F.lit(0))
    too_long = sizes.join(read_sizes, "file", "left").where(left_out > LINE_BYTES_MAX)
    columns = {field.name: F.lit(None).cast(field.dataType) for field in CHECKED}
    example = F.format_string("%d bytes in lines that are too long", left_out)
    columns |= {
        "file": F.col("file"),
        "problem": F.lit(Problem.LONG_LINE.value),
        "example": example,
    }
    problems = too_long.select(
        *(columns[field.name].alias(field.name) for field in CHECKED)
    )
    return checked_lines(lines, tied).unionByName(problems)


def checked_files(files: DataFrame, tied: Tied = NOBODY) -> DataFrame:
    """Each line of whole files as an event or a problem; see checked_lines."""
    check = functools.partial(check_files, tied=tied)
    return files.select("file", "content").mapInArrow(check, CHECKED)


def checked_lines(lines: DataFrame, tied: Tied = NOBODY) -> DataFrame:
    """Each line as an event or a problem.

    Args:
        lines: see stream_lines.
        tied: the folders that are tied to nodes.

    Returns:
        The columns of `EVENT`, `problem` (its name, or null), and for a line that is a
        problem `file` and `example` (its beginning).
    """

    # A declarative pipeline permits no mapInArrow, which asks for the columns of a
    # frame.
    def checked(files: pa.Array, values: pa.Array) -> pa.Array:
        return check_lines(files, values, tied)

    check = F.arrow_udf(checked, CHECKED)  # type: ignore[attr-defined]  # has no types
    return lines.select(check("file", "value").alias("line")).select("line.*")


def events_of(checked: DataFrame) -> DataFrame:
    """The lines that are events: the columns of `EVENT`."""
    return checked.where(F.col("problem").isNull()).select(*EVENT.names)


def line_problems(checked: DataFrame) -> DataFrame:
    """The lines that are no events, by file and kind.

    Returns:
        Columns `kind` (see Problem), `place` (the file), `count` and `example`.
    """
    return (
        checked.where(F.col("problem").isNotNull())
        .groupBy(F.col("problem").alias("kind"), "file")
        .agg(F.count("*").alias("count"), F.min("example").alias("example"))
        .select("kind", _place("file").alias("place"), "count", "example")
    )


def is_of_journal(path: str) -> bool:
    """Whether a file belongs to a journal, by its name."""
    return re.search(_NAME, path) is not None


def is_open(path: str) -> bool:
    """Whether a file belongs to a journal and is not closed, by its name."""
    return re.search(_OPEN_NAME, path) is not None


def is_hidden(path: str) -> bool:
    """Whether a file is hidden and does not belong to a journal, by its name."""
    name = path.rpartition("/")[2]
    if name.startswith("."):
        return not is_open(path)
    return name.startswith("_") and not is_of_journal(path)


def why_unread(path: str, size: int) -> str | None:
    """Why a file of a journal cannot be read in its place; None: it can be read."""
    if local_path(path) is not None or not is_of_journal(path):
        return None
    if path.rpartition("/")[2].startswith("_"):
        return _UNDERSCORE
    too_large = size > _WHOLE_BYTES_MAX and re.search(_COMPRESSED, path)
    return _TOO_LARGE if too_large else None


def file_uri(path: str) -> str:
    """The URI of a file on this machine, as Spark names it."""
    return Path(path).absolute().as_uri()


def literal(path: str) -> str:
    """A path in the form for places where Spark takes patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _place(file: str) -> Column:
    """The name of a file in the form for people: Spark has a quoted URI."""
    path = F.try_url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(F.coalesce(path, file), "^file:/+", "/")


def _one_glob(folders: Sequence[str]) -> list[str]:
    """The same folders in as few patterns as possible: each is a source of its own."""
    globs = [_glob(whole_url(folder)) for folder in folders]
    # Hadoop permits no escapes within braces that contain slashes.
    plain = [glob for glob in globs if re.fullmatch(r"file:///[^\\{},]+", glob)]
    if len(plain) < 2:
        return globs
    names = ",".join(glob.removeprefix("file:///") for glob in plain)
    return [f"file:///{{{names}}}", *(glob for glob in globs if glob not in plain)]


def _glob(folder: str) -> str:
    """The pattern that Spark is to list."""
    folder = folder.rstrip("/")
    name = literal(folder)
    if folder.rpartition("/")[2].startswith("date="):
        return name
    return f"{name}/date=*"
