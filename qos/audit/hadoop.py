"""Access to folders through Spark, on any file system that Spark has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from qos.audit.read import is_hidden

__all__ = [
    "children",
    "exists",
    "files",
    "folders",
    "io_errors",
    "remove",
    "why_unreadable",
    "write",
]


def children(spark: SparkSession, folder: str) -> list[str]:
    """The names in a folder; none if there is no such folder."""
    system, root = _hadoop(spark, folder), _path(spark, folder)
    if not system.exists(root):
        return []
    return [str(status.getPath().getName()) for status in system.listStatus(root)]


def exists(spark: SparkSession, folder: str) -> bool:
    """Whether there is such a folder."""
    return bool(_hadoop(spark, folder).exists(_path(spark, folder)))


def folders(spark: SparkSession, folder: str) -> list[str]:
    """The names of the folders in a folder."""
    system, root = _hadoop(spark, folder), _path(spark, folder)
    if not system.exists(root):
        return []
    statuses = system.listStatus(root)
    return [
        str(status.getPath().getName()) for status in statuses if status.isDirectory()
    ]


def files(spark: SparkSession, folder: str) -> Iterator[tuple[str, int, int]]:
    """The files in a folder and in its subfolders, their sizes, and when they changed.

    The time is in milliseconds since the epoch.

    Hidden ones are left out, except files of journals that are not closed.
    """
    root = _path(spark, folder)
    listing = _hadoop(spark, folder).listFiles(root, True)
    above = str(root.toUri()).rstrip("/")
    while listing.hasNext():
        status = listing.next()
        path = str(status.getPath().toString())
        folders = path.removeprefix(above).split("/")[:-1]
        is_seen = not any(name.startswith((".", "_")) for name in folders)
        if is_seen and not is_hidden(path):
            yield path, int(status.getLen()), int(status.getModificationTime())


@contextmanager
def io_errors() -> Iterator[None]:
    """Raise an IOException of Java in this block as the OSError that it would be here.

    Not that of a file system that Spark does not have: that is a lack of the machine.
    """
    try:
        yield
    except Py4JJavaError as error:
        kind, names = error.java_exception.getClass(), set()
        while kind is not None:
            names.add(str(kind.getName()))
            kind = kind.getSuperclass()
        if "java.io.IOException" not in names or any(map(_is_lack, names)):
            raise
        raise OSError(_reason(error)) from None


def _is_lack(name: str) -> bool:
    return name.endswith(".UnsupportedFileSystemException")


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Java says, without the kind of error."""
    first = str(error.java_exception.toString()).splitlines()[0]
    return first.rpartition("Exception: ")[2]


def why_unreadable(spark: SparkSession, file: str) -> str:
    """Why a file cannot be read to its end; '': it can. Its bytes stay in Java."""
    java = cast(Any, spark.sparkContext)._jvm
    nowhere = java.org.apache.hadoop.io.IOUtils.NullOutputStream()
    try:
        stream = _hadoop(spark, file).open(_path(spark, file))
        java.org.apache.hadoop.io.IOUtils.copyBytes(stream, nowhere, 64 * 1024, True)
    except Py4JJavaError as error:
        return _reason(error)
    return ""


def remove(spark: SparkSession, folder: str) -> None:
    """Remove a folder with its content, if it exists."""
    _hadoop(spark, folder).delete(_path(spark, folder), True)


def write(spark: SparkSession, file: str, content: bytes) -> None:
    """Write a file, replacing an existing one.

    An object store shows either the old content or the new one; HDFS may show a part of
    it.
    """
    stream = _hadoop(spark, file).create(_path(spark, file), True)
    try:
        stream.write(content)
    finally:
        stream.close()


def _hadoop(spark: SparkSession, path: str) -> Any:
    """The file system of a path: Spark has no Python call for it."""
    context = cast(Any, spark.sparkContext)
    return _path(spark, path).getFileSystem(context._jsc.hadoopConfiguration())


def _path(spark: SparkSession, path: str) -> Any:
    # By the whole name at once: each part by itself would be looked for in every jar.
    java = cast(Any, spark.sparkContext)._jvm
    return getattr(java, "org.apache.hadoop.fs.Path")(path)
