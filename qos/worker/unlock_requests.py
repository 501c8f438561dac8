"""The requests to unlock one item: an answer to any of them ends its delivery.

A service of ours knows a repeated retract by its token. It does not know a repeated unlock:
the item is available again, and may be with another worker. So it refuses the repeat,
although it has done the first request. Therefore a request that is repeated goes on
waiting for its own answer, which comes before the refusal of the repeat. If it does not
come, it was lost, and the refusal does not say whether the item was unlocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qos.errors import NoAnswer, RequestFailed
from xep_0254.queueing import XEP_0254

__all__ = ["UnlockRequests"]


class UnlockRequests:
    """The requests to unlock one item, one after the other.

    Args:
        plugin: of the client.
        service: the JID of the service.
        send: sends a request, and returns at its answer; raises RequestFailed, or
            LocalProtocolError if it was not sent.

    Attributes:
        may_be_done: whether a request has had no answer, so that the item may have been
            unlocked although a later request was refused.
    """

    def __init__(
        self, plugin: XEP_0254, service: str, send: Callable[[], Awaitable[None]]
    ) -> None:
        self.may_be_done = False
        self._plugin = plugin
        self._service = service
        self._send = send
        self._sent = False
        #: In the order in which they were sent, which is that of the answers.
        self._waiting: list[asyncio.Future[None]] = []

    async def ask(self, answer_s: float) -> None:
        """Send a request, and return when this one, or one before, has been done.

        Args:
            answer_s: how long to wait for an answer, in seconds.

        Raises:
            RequestFailed: no answer came in this time, or it was a refusal.
            LocalProtocolError: the request was not sent.
        """
        if not any(request.done() for request in self._waiting):
            # Without a session it fails at once.
            self._sent |= self._plugin.own is not None
            self._waiting.append(asyncio.ensure_future(self._send()))
        answered, _ = await asyncio.wait(
            self._waiting, timeout=answer_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not answered:
            reason = f"nothing came in {answer_s:g} s"
            raise NoAnswer(reason, to=self._service, what="unlock")
        first = next(request for request in self._waiting if request in answered)
        before = self._waiting[: self._waiting.index(first)]
        self._waiting.remove(first)
        try:
            first.result()
        except NoAnswer:
            self.may_be_done |= self._sent
            raise
        except RequestFailed:
            self.may_be_done |= bool(before)
            raise

    async def end(self) -> None:
        """Wait for no more answers."""
        for request in self._waiting:
            request.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
