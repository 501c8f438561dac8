"""A network that loses answers."""

import asyncio
import random

__all__ = ["AnswersLost"]


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
