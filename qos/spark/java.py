"""The start of Java for a session on this machine, from an archive of its classes.

A third of what a small audit takes, Java spends on finding classes in Spark's 250
archives. It can write down what it has loaded when it ends (class data sharing), and the
next one has it at once. That file is made once for each version of Java and of Spark, in
the cache of the user, some 200 MB large: to remove it does no harm.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["java_options"]

#: What Java says of that file is of no use to who runs an audit, least of all on stdout.
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")

#: A Java that is gone in a minute has no use for the compiler that takes its time, but
#: needs the room for code that it has with both.
_SHORT: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
)

#: By these environment variables a user gives options of his own.
_BY_USER: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

#: A file that was not finished in this time never will be.
_WRITTEN_IN_S: Final = 600.0
_UNUSED_S: Final = 30 * 86_400.0


def java_options(*of: str, short: bool) -> str:
    """The options for a Java, as `spark.driver.extraJavaOptions` has them.

    Args:
        of: all that its classes depend on: where it is, its version, and Spark's.
        short: it is to run for a minute at most.
    """
    options = [*_SHORT] if short else []
    if not any("SharedArchiveFile" in os.environ.get(name, "") for name in _BY_USER):
        options += _archive(hashlib.sha256("\n".join(of).encode()).hexdigest()[:16])
    return " ".join(options)


def _archive(name: str) -> list[str]:
    """The options that have classes read from a file, or written to it at the end."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = folder / "xmpp-qos" / f"spark-{name}.jsa"
        if any(sign in str(file) for sign in "\"'\\ "):
            return []  # Spark takes its options apart at such a sign
        file.parent.mkdir(parents=True, exist_ok=True)
        if _is_whole(file):
            os.utime(file)
            return [f"-XX:SharedArchiveFile={file}", *_QUIET]
        now = time.time()
        if file.exists() and now - file.stat().st_mtime < _WRITTEN_IN_S:
            return []  # another one is writing it
        for other in file.parent.glob("spark-*.jsa"):
            if now - other.stat().st_mtime > _UNUSED_S:
                other.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={file}", *_QUIET]
    except (OSError, RuntimeError):
        return []  # no home, or one that may not be written


def _is_whole(file: Path) -> bool:
    """Java writes the first bytes last."""
    try:
        with file.open("rb") as stream:
            return any(stream.read(4))
    except FileNotFoundError:
        return False
