"""A session for blocking code: Spark calls a data source from a plain thread.

The event loop runs in a thread of its own. So the session lives on between two calls:
it answers pings, extends locks, and reconnects when the connection is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from qos.stream.login import AccountSession

__all__ = ["Background"]

S = TypeVar("S", bound=AccountSession)
T = TypeVar("T")

#: Seconds to log out, and to close what plugins have open.
_END_S_MAX = 30.0


class Background(Generic[S]):
    """An account's session in the background.

    Attributes:
        session: the session; use it only on its loop, by `run`.
    """

    session: S

    def __init__(
        self,
        new_session: Callable[[], S],
        *,
        ready: Callable[[S], Awaitable[object]] | None = None,
    ) -> None:
        """Log in; returns when there is a session.

        Args:
            new_session: makes the session, on its loop; it is entered before it is
                started.
            ready: called in the first session, before that is used.

        Raises:
            CannotConnect: no session is possible; the text says why, in one line.
            Exception: of `ready`.
        """
        self._ended = threading.Event()
        self._stop = asyncio.Event()
        self._online: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(new_session, ready), daemon=True, name="xmpp"
        )
        self._thread.start()
        try:
            self._online.result()
        except BaseException:
            self.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop, and wait for it here.

        Raises:
            CannotConnect: the session has ended for good.
        """
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run work on the loop; the future is for this thread."""
        return asyncio.run_coroutine_threadsafe(self.session.work(work), self._loop)

    def close(self) -> None:
        """Log out; running work is cancelled. May be repeated."""
        if self._thread.is_alive():
            # The loop may end by itself at any moment: closed, it takes no calls.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_END_S_MAX)

    def _run(
        self,
        new_session: Callable[[], S],
        ready: Callable[[S], Awaitable[object]] | None,
    ) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._live(new_session, ready))
            except BaseException as error:  # noqa: BLE001 - for whoever waits for it
                if not self._online.done():
                    self._online.set_exception(error)

    async def _live(
        self,
        new_session: Callable[[], S],
        ready: Callable[[S], Awaitable[object]] | None,
    ) -> None:
        async with new_session() as session:
            self.session = session

            async def begin() -> None:
                await session.online.wait()
                if ready is not None:
                    await ready(session)

            session.start()
            await session.work(begin())
            self._online.set_result(None)
            await self._stop.wait()
