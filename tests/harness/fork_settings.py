"""The command in a fork, with what a shell would have set for it before it starts.

commands.function = functools.partial(fork_settings.command, umask=0)
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import turned_clock


def command(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    umask: int | None = None,
    files: tuple[int, int] | None = None,
    stdout: Connection | None = None,
) -> int:
    """Run `xmpp-qos` with these words.

    Args:
        words: of the command line.
        environment: all of it.
        umask: for new files.
        files: the soft and the hard limit of open files.
        stdout: a descriptor, which a connection carries to another process.
    """
    if umask is not None:
        os.umask(umask)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    if stdout is not None:
        os.dup2(stdout.fileno(), 1)
        stdout.close()
    return turned_clock.command(words, environment)
