"""The lines of stdin, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

from qos.cli.status import CommandError, Status

__all__ = ["stdin_lines"]

_CHUNK_BYTES = 64 * 1024


async def stdin_lines(bytes_max: int) -> AsyncIterator[bytes | None]:
    """The lines of stdin as they come; None for a line that is too long to be kept.

    Raises:
        CommandError: stdin cannot be read.
    """
    # A thread reads: files, pipes and terminals need different ways, and no event loop
    # can wait for a file. The thread is a daemon and reads without a buffer, so that
    # the command can end while the thread waits for more.
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(2)

    def read() -> None:
        chunk: bytes | OSError = b"..."
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(0, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: no one needs the lines
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    line, too_long = bytearray(), False
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            text = f"cannot read stdin: {chunk.strerror}"
            raise CommandError(text, Status.USAGE)
        for index, part in enumerate(chunk.split(b"\n")):
            if index:
                yield None if too_long else bytes(line)
                line, too_long = bytearray(), False
            too_long = too_long or len(line) + len(part) > bytes_max
            if not too_long:
                line += part
        room.release()
    if line or too_long:
        yield None if too_long else bytes(line)
