"""The messages that have ended without a request, until their senders ask for them.

After a restart a message is handed over again before its sender asks for it. The sender
asks when it notices that we are back, and does not know before that it has arrived.
"""

from __future__ import annotations

import asyncio

__all__ = ["Unasked"]


class Unasked:
    """These messages.

    Attributes:
        keys: their keys. Look here before a call: mostly there are none.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._none: asyncio.Future[None] | None = None

    def add(self, key: str) -> None:
        """Note that a message has ended for which nobody has asked."""
        self.keys.add(key)

    def discard(self, key: str) -> None:
        """Note that the sender has its answer, or that the end is forgotten."""
        self.keys.discard(key)
        if self._none is not None and not self.keys and not self._none.done():
            self._none.set_result(None)

    async def none(self, within_s: float) -> bool:
        """Wait until there are none; at most so many seconds.

        Returns:
            Whether there are none.
        """
        if self.keys:
            self._none = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._none,), timeout=within_s)
        return not self.keys
