"""The subscription of a worker: made again whenever it may have ended.

The module follows the sessions of the client and keeps none alive: making the stream
again is the application's task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from slixmpp import ClientXMPP, ComponentXMPP

from qos.core.backoff import Backoff
from qos.engine.retry import Retry
from qos.errors import LocalProtocolError, RequestFailed, RequestRefused
from qos.worker.client_workers import ClientWorkers
from qos.worker.job import unrecoverable
from xep_0254.queueing import XEP_0254

__all__ = ["Subscription"]

log = logging.getLogger(__name__)

#: The delay before a subscribe is tried again.
_RETRY = Backoff(first_s=0.5, max_s=30.0)

#: Seconds to wait for the answer to an unsubscribe while the worker takes nothing.
_UNSUBSCRIBED_S = 5.0


class Subscription:
    """The subscription of one worker at a node.

    Args:
        client: the client of the worker.
        service: the queue service.
        node: the queue.
        options: of XEP_0254.subscribe.
        resumes: its locks are resumable; see there.
        again_s: the interval at which a subscribe is repeated, in seconds.
        before: called before each subscribe.

    Attributes:
        made: set when the service has accepted the first subscribe.
    """

    def __init__(
        self,
        client: ClientXMPP | ComponentXMPP,
        service: str,
        node: str,
        *,
        options: Mapping[str, Any],
        resumes: bool,
        again_s: float,
        before: Callable[[], Awaitable[None]],
    ) -> None:
        self.made = asyncio.Event()
        self._client = client
        self._plugin = XEP_0254.of(client)
        self._service = service
        self._node = node
        self._options = {**options, "resumable_locks": resumes}
        # Until the first subscribe. When that is repeated, items may have come.
        self._is_new = resumes
        self._paused = False
        self._asking: list[asyncio.Future[None]] = []
        self._again_s = again_s
        self._before = before
        self._client_workers = ClientWorkers.of(self._plugin, service)
        # As far as is known: the answer may never have come.
        self._may_exist = False
        self._renew = asyncio.Event()

    def join(self) -> None:
        """Be the worker of the node.

        Raises:
            LocalProtocolError: this client has a worker of the queue.
        """
        self._client_workers.join(self._node)

    def renew(self) -> None:
        """Subscribe soon: the subscription may have ended."""
        self._renew.set()

    def take_at_most(self, count: int) -> None:
        """Hold at most so many items at a time from now on; 0: be not subscribed."""
        self._paused = count == 0
        if count:
            self._options["queue_requests"] = count
        self.renew()

    async def ask(self) -> None:
        """Wait until the service has answered a subscribe that is sent from now on."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking.append(answer)
        self.renew()
        await answer

    async def keep(self) -> None:
        """Stay subscribed, whatever happens.

        Raises:
            RequestRefused: the service refuses the first subscribe for good.
            LocalProtocolError, sqlite3.Error: of `before`; see `_is_final`.
        """
        retry = Retry(_RETRY)
        while True:
            await self._plugin.session()
            self._renew.clear()
            if self._paused:
                await self.end(timeout_s=_UNSUBSCRIBED_S)
                await self._renewed(self._again_s)
                continue
            asking, self._asking = self._asking, []
            try:
                await self._subscribe()
            except (
                RequestFailed,
                LocalProtocolError,
                sqlite3.OperationalError,
            ) as error:
                self._asking += asking
                if self._plugin.own is None:
                    continue  # there is nobody to blame
                if self._is_final(error, retry.failures):
                    raise
                delay_s = retry.failed()
                log.warning("not subscribed, again in %.1f s: %s", delay_s, error)
            else:
                retry.succeeded()
                delay_s = self._again_s
                self.made.set()
                for answer in asking:
                    if not answer.done():
                        answer.set_result(None)
            await self._renewed(delay_s)

    async def _renewed(self, within_s: float) -> None:
        """Wait until the subscription is to be made again, or for this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._renew.wait()

    def _is_final(self, error: Exception, failures: int) -> bool:
        """Whether not to subscribe again.

        At the first subscribe: if waiting does not help. Later the queue may come back,
        and the database too: when a handler has ended its transaction, or another
        process its own. A database that is broken or closed raises no OperationalError.
        """
        is_first = not self.made.is_set()
        if isinstance(error, RequestRefused):
            is_final = is_first and not error.is_temporary
            if is_final:
                self._may_exist = False
            return is_final
        if isinstance(error, RequestFailed):
            return False
        return (is_first and failures == 0) or unrecoverable(error)

    async def _subscribe(self) -> None:
        await self._before()
        await self._client_workers.unsubscribe(self._plugin, self._service)
        # First of all, so that the service is told when the connection is lost.
        self._send_presence(None)
        self._may_exist = True
        is_new, self._is_new = self._is_new, False
        await self._plugin.subscribe(
            self._service, self._node, new_worker=is_new, **self._options
        )

    def _send_presence(self, kind: Literal["unavailable"] | None) -> None:
        own = self._plugin.own
        if own is not None:
            sender = own if self._client.is_component else None
            self._client.send_presence(pto=self._service, ptype=kind, pfrom=sender)

    async def end(self, *, timeout_s: float) -> None:
        """Unsubscribe, if the subscription may exist."""
        if not self._may_exist:
            return
        try:
            await self._plugin.unsubscribe(
                self._service, self._node, timeout_s=timeout_s
            )
        except RequestFailed as error:
            self._may_exist = error.is_temporary
            log.warning("not unsubscribed: %s", error)
        else:
            self._may_exist = False

    def leave(self) -> None:
        """Be the worker of the node no more; its locks are released by now."""
        if self._client_workers.leave(self._node, may_be_subscribed=self._may_exist):
            # Unavailable presence would end locks as failed deliveries.
            self._send_presence("unavailable")
