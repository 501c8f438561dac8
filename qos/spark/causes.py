"""The causes for which Spark fails: what the machine lacks, and what to do about it.

Java wraps an error into others. The innermost one says what has happened, and a table
here says what helps. This module takes texts apart, and starts nothing.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Cause", "Lack", "cause_of", "error_texts"]


class Lack(enum.Enum):
    """What is missing, if it is known."""

    #: Room on a disk.
    ROOM = "room"
    #: Something of the machine, of Spark, or in its settings.
    SETUP = "setup"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a failure.

    Attributes:
        text: one line; with what to do, if the cause is known.
        lack: what is missing.
    """

    text: str
    lack: Lack = Lack.UNKNOWN


#: Lines with places in code.
_NO_REASON: Final = re.compile(r"at |\.\.\. |Driver stacktrace")

#: Colours of a terminal, the signs before an inner error, and its number: of deltalake.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_INNER: Final = "↳"
_INNER_IN_LINE: Final = ": "
_NUMBER: Final = re.compile(r" \(os error [0-9]+\)$")

#: Patterns and what they mean; the first that fits is the cause. The groups of a pattern are named in its text; `python`
#: and `user` are known as well.
_KNOWN: Final[Sequence[tuple[str, Lack, str]]] = (
    (
        r"No space left on device|Disk quota exceeded",
        Lack.ROOM,
        "a disk is full: make room in the folder of the results and in Spark's folder "
        "of temporary files (SPARK_LOCAL_DIRS, otherwise /tmp)",
    ),
    (
        r"UnsatisfiedLinkError: (?P<folder>/\S+)/[^/\s]+: .*failed to map segment",
        Lack.SETUP,
        "nothing may be executed in {folder} (noexec), where Java unpacks libraries: "
        "set JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=DIR, with another folder",
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<module>[^']+)'",
        Lack.SETUP,
        "the Python that Spark starts, {python}, has no module {module}: unset "
        "PYSPARK_PYTHON, or let it name a Python with xmpp-qos on each machine",
    ),
    (
        r'Cannot run program "(?P<program>[^"]+)"[^\n]*error=(?P<error>[^\n]+)',
        Lack.SETUP,
        "Spark cannot start {program} ({error}): unset PYSPARK_PYTHON, or let it name "
        "a Python with xmpp-qos on each machine",
    ),
    (
        r"PYTHON_VERSION_MISMATCH",
        Lack.SETUP,
        "the Python that Spark starts, {python}, has another version: unset "
        "PYSPARK_PYTHON, or let it name the same version on each machine",
    ),
    (
        r"PLUGIN_CLASS_NOT_FOUND\] Cannot load catalog '(?P<name>\w+)' with the plugin "
        r"class '(?P<word>[\w.$]+)'",
        Lack.SETUP,
        "Spark has no jar with {word}, which spark.sql.catalog.{name} needs: name the "
        "jar in spark.jars.packages, or take that line out of spark-defaults.conf",
    ),
    (
        r'No FileSystem for scheme "?(?P<word>[\w-]+)"?',
        Lack.SETUP,
        "Spark has no jar for folders of {word}: name it in spark.jars.packages of "
        "spark-defaults.conf",
    ),
    (
        r"(?:ClassNotFoundException: (?:Class )?)(?P<word>[\w.$]+)",
        Lack.SETUP,
        "Spark has no jar with {word}: name the jar in spark.jars.packages, or take "
        "the line that needs it out of spark-defaults.conf",
    ),
    (
        r"invalid null input: name|basedir must be absolute: \?",
        Lack.SETUP,
        "the user {user} has no line in /etc/passwd, and Java needs its name: add a "
        "line, or start this as another user",
    ),
    (
        r"OutOfMemoryError",
        Lack.SETUP,
        "Java has too little memory: give it more by spark.driver.memory (and "
        "spark.executor.memory on a cluster) in spark-defaults.conf",
    ),
    (
        r"ExecutorLostFailure|MetadataFetchFailed|FetchFailed\(",
        Lack.SETUP,
        "an executor was lost, and with it what it had computed: start this again; if "
        "that comes again, give it more memory by spark.executor.memory, and look at "
        "its log",
    ),
    (
        r"Too many open files",
        Lack.SETUP,
        "too many files are open: raise the limit (ulimit -n)",
    ),
    (
        r"All masters are unresponsive|Failed to connect to master (?P<master>\S+)",
        Lack.SETUP,
        "the Spark master does not answer: look at --master",
    ),
    (
        r"'JavaPackage' object is not callable|InvalidClassException",
        Lack.SETUP,
        "another version of Spark answers than the installed pyspark: unset "
        "SPARK_HOME, or install the pyspark of the cluster",
    ),
)


def cause_of(texts: Iterable[str]) -> Cause:
    """The cause of a failure.

    Args:
        texts: what is known of it, the innermost error last; each may have many lines.
    """
    ordered = [text for text in texts if text.strip()]
    for pattern, lack, words in _KNOWN:
        for text in reversed(ordered):
            if (match := re.search(pattern, text)) is not None:
                return Cause(words.format(**_names(), **match.groupdict()), lack)
    return Cause(_innermost(ordered[-1]) if ordered else "no reason given")


def error_texts(error: BaseException) -> list[str]:
    """An error of Spark and its causes in Java, the innermost last."""
    texts = [str(error) or type(error).__name__]
    # Py4J and PySpark each have a name of their own for it.
    java: Any = getattr(error, "java_exception", None) or getattr(
        error, "_origin", None
    )
    try:
        while java is not None:
            texts.append(str(java.toString()))
            java = java.getCause()
    except Exception:  # noqa: BLE001 - Java may have ended meanwhile
        return texts
    return texts


def _names() -> dict[str, str]:
    """The names that a text about a known cause may use."""
    return {
        "python": os.environ.get("PYSPARK_PYTHON") or "python3",
        "user": str(os.getuid()),
    }


def _innermost(text: str) -> str:
    """The line of a text that tells the most."""
    lines = [line.strip() for line in _COLOUR.sub("", text).splitlines()]
    lines = [line for line in lines if line and not _NO_REASON.match(line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    inner = [line for line in lines if line.startswith(_INNER)]
    if inner:
        return _NUMBER.sub("", inner[-1].removeprefix(_INNER).strip())
    if lines and _NUMBER.search(lines[-1]):
        return _NUMBER.sub("", lines[-1].rpartition(_INNER_IN_LINE)[2])
    if "Traceback (most recent call last)" in text:
        return lines[-1]
    errors = [
        line for line in lines if re.search("error|exception", line, re.IGNORECASE)
    ]
    return (errors or lines or ["no reason given"])[0]
