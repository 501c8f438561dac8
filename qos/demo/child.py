"""The life of a process of the demo: it is told, it works, and it ends with its stdin.

So it never outlives who started it. What it is told is one line of JSON on stdin; what
it says are words on stdout, a line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["run", "say"]


def run(work: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Work as told, until stdin ends; then the work is cancelled.

    Args:
        work: gets what it is told; it does not return by itself.
    """
    asyncio.run(_run(work))


def say(word: str) -> None:
    """Tell whoever started this process."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def _run(work: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    line = await reader.readline()
    if not line:
        return
    working = asyncio.ensure_future(work(json.loads(line)))
    stdin = asyncio.ensure_future(reader.read())
    await asyncio.wait((working, stdin), return_when=asyncio.FIRST_COMPLETED)
    stdin.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
