"""The exit statuses of the command, and the errors that carry one."""

from __future__ import annotations

import enum

__all__ = ["CommandError", "Status"]


class Status(enum.IntEnum):
    """The exit statuses; scripts rely on them."""

    DONE = 0
    NOT_DELIVERED = 1
    #: A request was certainly not done.
    REFUSED = 1
    USAGE = 2
    IN_DOUBT = 3
    UNREACHABLE = 4
    STORE = 5
    #: A bug of ours (sysexits.h: EX_SOFTWARE).
    INTERNAL = 70
    #: stdout cannot be written, perhaps because the disk is full (sysexits.h:
    #: EX_IOERR).
    OUTPUT = 74
    #: As a shell reports SIGINT; SIGTERM and SIGHUP end a command in the same way. But
    #: one that runs until it is stopped has done its work when SIGTERM comes.
    INTERRUPTED = 130
    #: The reader of stdout has gone: as a shell reports SIGPIPE.
    PIPE = 141


class CommandError(Exception):
    """Ends the command with one line and this status."""

    def __init__(self, text: str, status: Status) -> None:
        super().__init__(text)
        self.status = status
