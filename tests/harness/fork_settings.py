"""The command in a fork, with what a shell would have set for it before it starts.

commands.function = functools.partial(fork_settings.command, umask=0)
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NoReturn

import turned_clock
from qos.errors import StoreError
from qos.stores import sqlite_file
from qos.stores.queue_store import SqliteQueueStore


def command(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    umask: int | None = None,
    files: tuple[int, int] | None = None,
    stdout: Connection | None = None,
    stderr: Connection | None = None,
) -> int:
    """Run `xmpp-qos` with these words.

    Args:
        words: of the command line.
        environment: all of it.
        umask: for new files.
        files: the soft and the hard limit of open files.
        stdout, stderr: descriptors, which connections carry to another process.
    """
    if umask is not None:
        os.umask(umask)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    for number, stream in ((1, stdout), (2, stderr)):
        if stream is not None:
            os.dup2(stream.fileno(), number)
            stream.close()
    return turned_clock.command(words, environment)


def unreadable(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it on a store of queues that is opened, and then neither written nor read."""

    def fail(*_args: object) -> NoReturn:
        raise StoreError("queues.db", "the disk is gone")

    for name in ("write", "contents"):
        setattr(SqliteQueueStore, name, fail)
    return turned_clock.command(words, environment)


def as_if_large(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it with stores that are checked in the background, as large ones are."""
    vars(sqlite_file)["_CHECKED_BYTES_MAX"] = 0
    return turned_clock.command(words, environment)
