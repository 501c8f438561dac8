"""The environment in which the processes of Spark are started.

It does not depend on the user's language, nor on the folder in which a command is
started: neither changes what an audit finds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["EXECUTOR_ENVIRONMENT", "SAFE_PATH", "java_environment", "without_connect"]

log = logging.getLogger(__name__)

#: English digits in the names of files, and UTF-8 in those of folders.
_LOCALE: Final = "C.UTF-8"

#: Spark starts Python with `-m`, which looks for each module in the current folder
#: first, unless this is set: a `json.py` there would run.
SAFE_PATH: Final[Mapping[str, str]] = {"PYTHONSAFEPATH": "1"}

#: For the processes that are started on behalf of a session, on any machine.
EXECUTOR_ENVIRONMENT: Final[Mapping[str, str]] = {
    f"spark.executorEnv.{name}": value
    for name, value in {**SAFE_PATH, "LC_ALL": _LOCALE}.items()
}

#: They choose Spark Connect, whose sessions have no Java on this machine.
_CONNECT: Final = (
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
)

#: The values with which they do not.
_NO_CONNECT: Final = ("", "0", "classic")


@contextlib.contextmanager
def java_environment() -> Iterator[None]:
    """While this is open, Java is started with the same environment for every user."""
    ours = {
        **SAFE_PATH,
        "LC_ALL": _LOCALE,
        # Spark's scripts run it: that of a user may be `jupyter`.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with _changed(ours):
        yield


@contextlib.contextmanager
def without_connect() -> Iterator[None]:
    """While this is open, nothing in the environment asks for Spark Connect."""
    values = {name: os.environ.get(name) for name in _CONNECT}
    asking = [
        name
        for name, value in values.items()
        if value is not None and value.lower() not in _NO_CONNECT
    ]
    if asking:
        log.warning(
            "%s: set aside, because this needs a Spark of its own, and not Spark "
            "Connect",
            ", ".join(asking),
        )
    with _changed(dict.fromkeys(_CONNECT)):
        yield


@contextlib.contextmanager
def _changed(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change variables of the environment for a while; None removes one."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
