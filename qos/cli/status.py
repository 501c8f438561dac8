"""The exit statuses of the command, and the errors that carry one."""

from __future__ import annotations

import enum

__all__ = ["CommandError", "Status"]


class Status(enum.IntEnum):
    """The exit statuses; scripts rely on them."""

    DONE = 0
    NOT_DELIVERED = 1
    #: Of a request: not done, certainly.
    REFUSED = 1
    USAGE = 2
    IN_DOUBT = 3
    UNREACHABLE = 4
    STORE = 5
    #: A mistake of ours (sysexits.h: EX_SOFTWARE).
    INTERNAL = 70
    #: stdout cannot be written: the disk, say (sysexits.h: EX_IOERR).
    OUTPUT = 74
    #: As a shell reports SIGINT; SIGTERM and SIGHUP end a command alike.
    INTERRUPTED = 130
    #: Nobody reads stdout any more: as a shell reports SIGPIPE.
    PIPE = 141


class CommandError(Exception):
    """Ends the command with one line and this status."""

    def __init__(self, text: str, status: Status) -> None:
        super().__init__(text)
        self.status = status
