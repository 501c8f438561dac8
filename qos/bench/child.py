"""The life of a child process of the benchmark: it is told what to do, and answers.

Each command and each answer is one line of JSON, on its stdin and its stdout. It ends
with its stdin, so that it never outlives who started it, whatever it is doing. How the
parent sees it is in `processes`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

from qos.bench.processes import LINE_BYTES_MAX
from qos.bench.sample import BenchFailed
from qos.errors import CannotConnect, QosError

__all__ = ["Command", "obey"]

#: Takes the options of a command; returns the answer, JSON, or nothing.
Command: TypeAlias = Callable[..., Awaitable[Mapping[str, object] | None]]


async def obey(commands: Collection[Command]) -> None:
    """Do what is asked for, one after the other, until the parent wants no more.

    Args:
        commands: what can be done, called by the names of the functions.
    """
    by_name = {command.__name__: command for command in commands}
    # Nobody but us writes to stdout: what a library prints goes to the log.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def work() -> None:
        while True:
            name, options = json.loads(await asked.get())
            try:
                answer = dict(await by_name[name](**options) or {})
            except Exception as error:  # noqa: BLE001 - the parent raises it
                answer = _described(error)
            _write(answers, json.dumps(answer).encode() + b"\n")

    working = asyncio.create_task(work())
    while line := await reader.readline():
        asked.put_nowait(line)
    working.cancel()
    await asyncio.wait((working,))


def _described(error: BaseException) -> dict[str, object]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BenchFailed):
        return {"error": str(error), "unreachable": error.unreachable}
    if isinstance(error, QosError):
        unreachable = isinstance(error, CannotConnect)
        return {"error": str(error), "unreachable": unreachable}
    # To the log: only somebody who knows the code can tell what that was.
    traceback.print_exception(error)
    return {"error": f"{type(error).__name__}: {error}", "unreachable": False}


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
