"""Reads journals: their lines, checked as `qos.journal.parse_line` does, and problems.

A line is an event or a problem, never neither. Nothing that is found in a journal
raises. Hidden files are being written, or their writer has died: they are counted, and
not read.

Lines are checked in the Python workers of Spark, many at once and not one by one
(`qos.audit.lines`): that takes less time than from_json and the checks that it needs.

Memory is bounded, whatever is in a folder. Files of this machine are read by the
workers in blocks, of any size and compressed or not. Of files that are elsewhere, Java
reads those up to 32 MB as a whole; longer ones by lines, of which it leaves out those
that are too long; and no longer ones that are compressed (`unread-file`).
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

from qos.audit.lines import LineProblem, check_files, check_lines
from qos.audit.locations import local_path
from qos.audit.schema import CHECKED, EVENT
from qos.audit.speakers import FOREIGN_WORD, NOBODY, Tied
from qos.journal.schema import LINE_BYTES_MAX

__all__ = [
    "Problem",
    "checked_files",
    "checked_lines",
    "events_of",
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

    #: Of a line; see LineProblem.
    TORN_LINE = LineProblem.TORN_LINE.value
    BAD_LINE = LineProblem.BAD_LINE.value
    LONG_LINE = LineProblem.LONG_LINE.value
    NEWER_SCHEMA = LineProblem.NEWER_SCHEMA.value
    #: See qos.audit.speakers.
    FOREIGN_NODE = LineProblem.FOREIGN_NODE.value
    FOREIGN_WORD = FOREIGN_WORD
    #: Of a compressed file: what follows cannot be read.
    BROKEN_FILE = LineProblem.BROKEN_FILE.value
    EMPTY_FILE = "empty-file"
    #: A file that is none of a journal's, by its name. It is not read.
    FOREIGN_FILE = "foreign-file"
    #: A file that is not closed: it is being written, or its writer has died. It is
    #: not read.
    OPEN_FILE = "open-file"
    #: A file of a journal that cannot be read where it is; `example` says why.
    UNREAD_FILE = "unread-file"
    #: The clock of a node went back.
    CLOCK_BACK = "clock-back"
    #: Lines of a boot that nobody has given us, or that could not be written.
    MISSING_LINES = "missing-lines"


#: As `qos.journal.files` names them: NODE-BOOT-N.jsonl.
_NAME = r"/[^/]*-[^/]*-[0-9][^/]*\.jsonl(\.gz|\.zst)?$"
#: A stream is read by Java, which knows no `.zst` everywhere.
_STREAM_GLOB = "*-*-[0-9]*.jsonl{,.gz}"
_COMPRESSED = r"\.(gz|zst)$"
#: As the writer names them until they are closed.
_OPEN_NAME = r"/\.[^/]*-[^/]*-[0-9][^/]*\.jsonl$"

_UNDERSCORE = "Spark leaves out names that begin with _: begin it with %5F"
_TOO_LARGE = "it is compressed, and too large to be read from where it is: unpack it"

#: Of Hadoop, for lines.
_JAVA_LINE_OPTION = "mapreduce.input.linerecordreader.line.maxlength"

#: Of a file that Java has in memory as a whole; the writer begins a new one after half
#: of it.
_WHOLE_BYTES_MAX = 32 * 2**20

#: Of a partition of files that Python reads.
_PART_BYTES = 128 * 2**20

#: Java leaves out longer lines where files are read by lines, or cuts them. Some more
#: than LINE_BYTES_MAX, so that most lines that are too long have an example.
_JAVA_LINE_BYTES_MAX = 8 * LINE_BYTES_MAX


def stream_lines(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    """The lines of whole files, also of files and `date=` folders that come later.

    An empty file makes no batch.

    Args:
        spark: the session.
        folders: see qos.audit.new_files.files_since. For a query that goes on they
            have to be the same, in the same order.

    Returns:
        Columns `file` and `value`.
    """
    reader = (
        spark.readStream.option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _STREAM_GLOB)
        # Spark leaves out what is a week older than the newest file, and says nothing.
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
    """Some files, for `checked_files`; and each line of those that are too large for it.

    The content is null where all are on this machine: the Python workers read them
    themselves, and Java need not have them in its memory.

    Args:
        spark: the session.
        sizes: of the files, by their paths.
        tied: the folders that are tied to nodes.

    Returns:
        Columns `file` and `content`; and see checked_lines, or None: there are none.
    """
    here = {path: size for path, size in sizes.items() if local_path(path) is not None}
    if len(here) == len(sizes):
        frame = _dealt(spark, here)
        return frame.withColumn("content", F.lit(None).cast("binary")), None
    names = [literal(path) for path in sizes]
    files = spark.read.format("binaryFile").load(names)
    files = files.where(F.col("_metadata.file_size") <= _WHOLE_BYTES_MAX)
    whole = files.select(F.col("_metadata.file_path").alias("file"), "content")
    if max(sizes.values()) <= _WHOLE_BYTES_MAX:
        return whole, None
    return whole, _checked_rest(spark, names, tied)


def _dealt(spark: SparkSession, sizes: Mapping[str, int]) -> DataFrame:
    """Files of this machine in partitions that take about as long as each other."""
    parts = max(
        spark.sparkContext.defaultParallelism, sum(sizes.values()) // _PART_BYTES
    )
    parts = min(parts, len(sizes)) or 1
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))
    hands = [
        (number, [Path(path).absolute().as_uri() for path in largest[number::parts]])
        for number in range(parts)
    ]
    # Of rows that are made here Spark decides itself how many are in a partition.
    whose = spark.createDataFrame(hands, "id long, files array<string>")
    numbers = spark.range(0, parts, 1, parts)
    return numbers.join(F.broadcast(whose), "id").select(
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
    # Java does not say what it leaves out; but so many bytes are in no line.
    read = lines.groupBy("file").agg(F.sum(F.octet_length("value") + 1).alias("read"))
    sizes = files.where(long).select(name, F.col("_metadata.file_size").alias("size"))
    left_out = F.col("size") - F.coalesce("read", F.lit(0))
    too_long = sizes.join(read, "file", "left").where(left_out > LINE_BYTES_MAX)
    columns = {each.name: F.lit(None).cast(each.dataType) for each in CHECKED}
    example = F.format_string("%d bytes in lines that are too long", left_out)
    columns |= {
        "file": F.col("file"),
        "problem": F.lit(Problem.LONG_LINE.value),
        "example": example,
    }
    problems = too_long.select(
        *(columns[each.name].alias(each.name) for each in CHECKED)
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
        The columns of `EVENT`, `problem` (the name of one, or null), and of a line that
        is a problem `file` and `example` (its beginning).
    """

    # A declarative pipeline takes no mapInArrow: that asks for the columns of a frame.
    def checked(files: pa.Array, values: pa.Array) -> pa.Array:
        return check_lines(files, values, tied)

    check = F.arrow_udf(checked, CHECKED)  # type: ignore[attr-defined]  # has no types
    return lines.select(check("file", "value").alias("line")).select("line.*")


def events_of(checked: DataFrame) -> DataFrame:
    """The lines that are events: the columns of `EVENT`."""
    return checked.where(F.col("problem").isNull()).select(*EVENT.names)


def line_problems(checked: DataFrame) -> DataFrame:
    """The lines that are none, by file and kind.

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
    """Whether a file is one of a journal, by its name."""
    return re.search(_NAME, path) is not None


def is_open(path: str) -> bool:
    """Whether a file is one of a journal that is not closed, by its name."""
    return re.search(_OPEN_NAME, path) is not None


def is_hidden(path: str) -> bool:
    """Whether a file is one that nobody sees: none of a journal, by its name."""
    name = path.rpartition("/")[2]
    if name.startswith("."):
        return not is_open(path)
    return name.startswith("_") and not is_of_journal(path)


def why_unread(path: str, size: int) -> str | None:
    """Why a file of a journal cannot be read where it is; None: it can."""
    if local_path(path) is not None or not is_of_journal(path):
        return None
    if path.rpartition("/")[2].startswith("_"):
        return _UNDERSCORE
    too_large = size > _WHOLE_BYTES_MAX and re.search(_COMPRESSED, path)
    return _TOO_LARGE if too_large else None


def literal(path: str) -> str:
    """A path where Spark takes patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _place(file: str) -> Column:
    """A file as people write it: Spark has a URI, and quotes it."""
    path = F.try_url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(F.coalesce(path, file), "^file:/+", "/")


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
