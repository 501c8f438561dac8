"""Helpers for tests of lost answers and killed services."""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

from waiting import limit

__all__ = ["AnswersLost", "kill", "start"]


class AnswersLost:
    """A network that cuts a connection now and then, in place of an answer."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._to = port
        self._rng = rng
        self.lost = 0

    async def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one connection."""
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, requests))
                both.create_task(self._carry(answers, writer, lose=0.1))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            requests.transport.abort()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lose: float = 0.0,
    ) -> None:
        while data := await reader.read(65_536):
            if self._rng.random() < lose:
                self.lost += 1
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


async def start(
    folder: Path, port: int, *options: str, program: str = "rest_process.py"
) -> asyncio.subprocess.Process:
    """A service of a program beside this module, once it listens."""
    path = Path(__file__).with_name(program)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(path), str(folder), str(port), *options),
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout is not None
    async with limit():
        assert await process.stdout.readline() == b"listens\n"
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()
