"""Accepts a message once for each id, however often and however late it is submitted.

Unlike `Outbox.submit`, which knows an id until its message has ended, this knows it as
long as its outcome is kept. It needs messages with a digest (`Outbox.find`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from qos.core.message.model import Ended, Outgoing

__all__ = ["Once"]


class Once:
    """The messages of an outbox that are being accepted, by id."""

    def __init__(self, find: Callable[[str], Outgoing | Ended | None]) -> None:
        """Begin with none.

        Args:
            find: Outbox.find.
        """
        self._find = find
        self._accepting: dict[str, asyncio.Task[object]] = {}

    async def known(self, msg_id: str) -> Outgoing | Ended | None:
        """The message with this id, or its end, when none is just being accepted."""
        while msg_id in self._accepting:
            # Of two at once, the second one may be the first if the first one fails.
            await asyncio.wait([self._accepting[msg_id]])
        return self._find(msg_id)

    async def accept(
        self, msg_id: str, submit: Callable[[], Coroutine[Any, Any, object]]
    ) -> Outgoing | Ended | None:
        """Submit a message, if there was none with this id.

        It is on disk when this returns. Who stops waiting does not undo it.

        Args:
            msg_id: its id.
            submit: submits it, with this id and a digest.

        Returns:
            The message that there was, or its end; None: this one is the first.

        Raises:
            Whatever `submit` raises.
        """
        former = await self.known(msg_id)
        if former is not None:
            return former
        task: asyncio.Task[object] = asyncio.ensure_future(submit())
        self._accepting[msg_id] = task
        task.add_done_callback(lambda _: self._accepting.pop(msg_id))
        task.add_done_callback(_seen)
        await asyncio.shield(task)
        return None

    @property
    def accepting(self) -> int:
        """The number of messages that are being accepted."""
        return len(self._accepting)


def _seen(task: asyncio.Task[object]) -> None:
    """Take the error of a task that perhaps nobody waits for any more."""
    if not task.cancelled():
        task.exception()
