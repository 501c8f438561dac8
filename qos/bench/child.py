"""The life of a process of the benchmark: asked in JSON lines, and it answers in them.

It ends with its stdin, so that it never outlives who started it, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from qos.cli.status import CommandError, Status
from qos.errors import QosError

__all__ = ["Asked", "run", "say"]

#: Gives what is asked next.
Asked: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]


def run(work: Callable[[Asked], Awaitable[None]]) -> None:
    """Work until stdin ends.

    Args:
        work: gets what is asked; it does not return by itself. What it raises is said,
            in one line.
    """
    asyncio.run(_run(work))


def say(answer: Mapping[str, object]) -> None:
    """Answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _run(work: Callable[[Asked], Awaitable[None]]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    questions: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def read() -> None:
        while line := await reader.readline():
            questions.put_nowait(json.loads(line))

    working = asyncio.ensure_future(work(questions.get))
    reading = asyncio.ensure_future(read())
    await asyncio.wait((working, reading), return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await working
        except Exception as error:  # noqa: BLE001 - whoever has asked is told
            say(_described(error))


def _described(error: BaseException) -> dict[str, object]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CommandError):
        return {"error": str(error), "status": error.status}
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, QosError):
        text = str(error)
    return {"error": text, "status": Status.INTERNAL}
