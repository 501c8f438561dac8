"""A reader of a pipe that stays while its writers come and go.

As in `while true; do xmpp-qos listen …; done | reader`. It can stop reading for a
while: then the pipe fills up.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PipeReader"]

#: Small, so that a stopped reader is noticed after a few lines; the Linux default is 64
#: kB.
_PIPE_BYTES = 16_384

_READ_BYTES = 65_536


class PipeReader:
    """Reads a FIFO within this context, and appends the data to a file.

    Args:
        fifo: the path of the FIFO to create.
        out: the file.
    """

    def __init__(self, fifo: Path, out: Path) -> None:
        self._fifo = fifo
        self._out_path = out
        self._pipe = self._out = -1

    async def __aenter__(self) -> Self:
        """Create the FIFO, and begin to read."""
        os.mkfifo(self._fifo, 0o600)
        # Linux opens a FIFO for both at once: it is never without a writer, and ends
        # with this context only.
        self._pipe = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._out = os.open(self._out_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.go_on()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Read the rest, and close it."""
        self.stop()
        self._read()
        os.close(self._pipe)
        os.close(self._out)

    @property
    def full(self) -> bool:
        """Whether a writer has to wait."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLOUT)
        return not poll.poll(0)

    def stop(self) -> None:
        """Stop reading until `go_on`."""
        asyncio.get_running_loop().remove_reader(self._pipe)

    def go_on(self) -> None:
        """Read everything that comes, at once."""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def _read(self) -> None:
        try:
            while data := os.read(self._pipe, _READ_BYTES):
                os.write(self._out, data)
        except BlockingIOError:
            return
