"""The start of Java for a session on this machine, from an archive of its classes.

Java spends a third of the time of a small audit on finding classes in Spark's 250
archives. It can write down the loaded classes when it ends (class data sharing), and
the next Java has them at once. That file is made once for each version of Java and of
Spark, in the user's cache, with some 200 MB. It may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["java_options"]

#: Java's messages about that file are of no use to the user, least of all on stdout.
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")

#: A Java that ends within a minute does not need the slow compiler, but does need the
#: size of the code cache that it has with both compilers.
_SHORT: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
)

#: The garbage collectors with the least processor time, for a short and for a long run
#: of Java. They stop all threads while they work, which does not matter in an audit:
#: nobody waits for an answer.
_COLLECTOR: Final = {True: "-XX:+UseSerialGC", False: "-XX:+UseParallelGC"}

#: The environment variables in which a user may give options.
_BY_USER: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

#: Seconds after which an unfinished file never will be finished.
_WRITTEN_IN_S: Final = 600.0
_UNUSED_S: Final = 30 * 86_400.0


def java_options(*of: str, short: bool) -> str:
    """The options for a Java, in the form of `spark.driver.extraJavaOptions`.

    Args:
        of: everything that its classes depend on: its place, its version, and Spark's.
        short: it will run for a minute at most.
    """
    options = [*_SHORT] if short else []
    if not any("GC" in os.environ.get(name, "") for name in _BY_USER):
        # Java does not start with two collectors in its options.
        options.append(_COLLECTOR[short])
    if not any("SharedArchiveFile" in os.environ.get(name, "") for name in _BY_USER):
        options += _archive(hashlib.sha256("\n".join(of).encode()).hexdigest()[:16])
    return " ".join(options)


def _archive(name: str) -> list[str]:
    """The options to read classes from a file, or to write them to it at the end."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = folder / "xmpp-qos" / f"spark-{name}.jsa"
        if any(sign in str(file) for sign in "\"'\\ "):
            return []  # Spark would split its options at such a character
        file.parent.mkdir(parents=True, exist_ok=True)
        if _is_whole(file):
            os.utime(file)
            return [f"-XX:SharedArchiveFile={file}", *_QUIET]
        now = time.time()
        if file.exists() and now - file.stat().st_mtime < _WRITTEN_IN_S:
            return []  # another Java is writing it
        for archive in file.parent.glob("spark-*.jsa"):
            if now - archive.stat().st_mtime > _UNUSED_S:
                archive.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={file}", *_QUIET]
    except (OSError, RuntimeError):
        return []  # no home, or one that cannot be written


def _is_whole(file: Path) -> bool:
    """Whether the file is complete: Java writes the first bytes last."""
    try:
        with file.open("rb") as stream:
            return any(stream.read(4))
    except FileNotFoundError:
        return False
