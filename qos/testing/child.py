"""The child's side of a child process: it takes commands, and writes its answers.

Each message is one line of JSON, on stdin and stdout. The child ends when its stdin
ends, so that it never outlives its parent process, whatever it is doing. The parent's
side is `qos.testing.processes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias

from qos.errors import CannotConnect, QosError
from qos.testing.processes import LINE_BYTES_MAX, ProcessFailed

__all__ = ["Command", "Parent", "Say", "run_commands", "run_task"]

#: Takes the options of a command; returns the answer, JSON, or nothing.
Command: TypeAlias = Callable[..., Awaitable[Mapping[str, object] | None]]

#: Sends a message, which is JSON, to the parent.
Say: TypeAlias = Callable[[object], None]


class Parent:
    """The process that has started this one.

    While there is a Parent, only `say` writes to stdout: the output of libraries goes
    to the log.
    """

    def __init__(self) -> None:
        self._stdout = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        # A library in C that ends the process by a signal leaves its stack in the log.
        faulthandler.enable()

    def say(self, message: object) -> None:
        """Send a message, which is JSON."""
        view = memoryview(json.dumps(message).encode() + b"\n")
        while view:
            view = view[os.write(self._stdout, view) :]

    async def stdin(self) -> asyncio.StreamReader:
        """The lines that the parent writes, until it closes stdin. Call this once."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        return reader


async def run_commands(
    commands: Collection[Command], *, parent: Parent | None = None
) -> None:
    """Execute the commands of `Child.do`, one after the other, until stdin ends.

    Args:
        commands: the functions that can be called, each by its name.
        parent: made earlier, before anything was printed; None: made now.
    """
    parent = parent or Parent()
    by_name = {command.__name__: command for command in commands}
    stdin = await parent.stdin()
    requests: asyncio.Queue[bytes] = asyncio.Queue()

    async def work() -> None:
        while True:
            name, options = json.loads(await requests.get())
            try:
                reply: dict[str, object] = {
                    "done": dict(await by_name[name](**options) or {})
                }
            except Exception as error:  # noqa: BLE001 - the parent raises it
                reply = _described(error)
            parent.say(reply)

    working = asyncio.create_task(work())
    while line := await stdin.readline():
        requests.put_nowait(line)
    working.cancel()
    await asyncio.wait((working,))


def run_task(task: Callable[[Any, Say], Awaitable[None]]) -> None:
    """Run a task with the parent's first message until stdin ends, then cancel it.

    Args:
        task: gets the first message of the parent; it does not return by itself.
    """
    asyncio.run(_run_task(Parent(), task))


async def _run_task(
    parent: Parent, task: Callable[[Any, Say], Awaitable[None]]
) -> None:
    stdin = await parent.stdin()
    line = await stdin.readline()
    if not line:
        return
    working = asyncio.ensure_future(task(json.loads(line), parent.say))
    ending = asyncio.ensure_future(stdin.read())
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


def _described(error: BaseException) -> dict[str, object]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ProcessFailed):
        return {"failed": str(error), "unreachable": error.unreachable}
    if isinstance(error, QosError):
        unreachable = isinstance(error, CannotConnect)
        return {"failed": str(error), "unreachable": unreachable}
    # To the log: only somebody who knows the code can understand it.
    traceback.print_exception(error)
    return {"failed": f"{type(error).__name__}: {error}", "unreachable": False}
