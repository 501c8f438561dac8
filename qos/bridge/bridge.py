"""A bridge in either direction: a link to the broker, made again when it is lost."""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import xep_0254  # noqa: F401 - makes the plugin known
from qos.amqp.broker import CLOSE_S, Broker, BrokerLink, BrokerLost, BrokerRefused
from qos.core.backoff import Backoff
from qos.engine.retry import Retry
from qos.errors import CannotConnect, RequestFailed
from qos.journal.writer import JournalWriter
from qos.stream.login import AccountSession
from xep_0254.queueing import XEP_0254

__all__ = ["Bridge"]

log = logging.getLogger(__name__)

L = TypeVar("L", bound=BrokerLink)

#: Seconds at the end of the grace time: for the link to the broker and the session to
#: close, and for the session alone; at most, and as a part of the grace time.
_CLOSING_S, _CLOSING_PART = 5.0, 1 / 3
_LOGOUT_S, _LOGOUT_PART = 2.0, 2 / 15


class Bridge(ABC, Generic[L]):
    """Carries messages in one direction until it is stopped.

    Attributes:
        done: how many messages are at the other side for certain.
        refused: how many the other side has refused for good.
    """

    def __init__(
        self,
        session: AccountSession,
        broker: Broker,
        service: str,
        node: str,
        *,
        backoff: Backoff | None = None,
        connect_timeout_s: float = 30.0,
        drain_s: float | None = None,
        grace_s: float = 15.0,
        journal: JournalWriter | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            session: of the account that publishes to the queue, or works on it.
            broker: the node of the broker.
            service: the JID of the queue service.
            node: the name of the queue.
            backoff: the delays before another attempt.
            connect_timeout_s: the time for the first link to the broker.
            drain_s: stop after this many seconds without a message; None: never.
            grace_s: all that a stop may take, in seconds.
            journal: of the account, for a bridge to a broker: records what becomes of
                each item, as for a worker; the caller closes it.
            ready: is called when both sides are there for the first time.
        """
        self.done = 0
        self.refused = 0
        self._session = session
        self._broker = broker
        self._service = service
        self._node = node
        self._backoff = backoff or Backoff()
        self._connect_timeout_s = connect_timeout_s
        self._drain_s = drain_s
        self._work_s = grace_s - min(_CLOSING_S, grace_s * _CLOSING_PART)
        self._run_s = grace_s - min(_LOGOUT_S, grace_s * _LOGOUT_PART)
        self._grace_s = grace_s
        self._stopped_at = math.inf
        self._journal = journal
        self._tell_ready: Callable[[], None] | None = ready
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def _queueing(self) -> XEP_0254:
        return XEP_0254.of(self._session.client)

    @abstractmethod
    def _link(self) -> L:
        """A new link, not opened yet."""

    @abstractmethod
    async def _carry(self, link: L) -> None:
        """Carry messages until the link is lost, or the bridge is stopped.

        Raises:
            RequestRefused: the queue does not accept what we want of it.
        """

    def stop(self) -> None:
        """Take no more messages and finish those that have begun; then `run` returns."""
        if not self._stopping.is_set():
            self._stopped_at = self._loop.time()
            self._stopping.set()

    @property
    def run_left_s(self) -> float:
        """How long `run` still has, in seconds; infinite before a stop."""
        return max(0.0, self._stopped_at + self._run_s - self._loop.time())

    @property
    def left_s(self) -> float:
        """The rest of the grace time, in seconds; infinite before a stop."""
        return max(0.0, self._stopped_at + self._grace_s - self._loop.time())

    async def run(self) -> None:
        """Carry messages until `stop`.

        Raises:
            CannotConnect: the broker cannot be reached at first, or refuses.
            RequestRefused: the service refuses.
        """
        if "xep_0254" not in self._session.client.plugin:
            self._session.client.register_plugin("xep_0254")
        if not await self._unless_stopped(self._find_queue()):
            return
        retry = Retry(self._backoff)
        give_up_at = self._loop.time() + self._connect_timeout_s
        was_linked = False
        while not self._stopping.is_set():
            link = self._link()
            done_before = self.done
            try:
                if not await self._unless_stopped(link.open()):
                    return
                if was_linked:
                    log.warning("%s: attached again", self._broker)
                else:
                    was_linked = True
                await self._carry(link)
                if self._stopping.is_set():
                    return
                problem = link.lost.result()
            except BrokerLost as error:
                problem = error
            finally:
                await link.close(min(CLOSE_S, self.run_left_s))
            if self.done > done_before:
                retry.succeeded()
            delay_s = retry.failed()
            is_late = self._loop.time() + delay_s >= give_up_at
            if not was_linked and (is_late or isinstance(problem, BrokerRefused)):
                raise CannotConnect(str(problem))
            log.warning("%s; again in %.1f s", problem, delay_s)
            await self._unless_stopped(asyncio.sleep(delay_s))

    async def _find_queue(self) -> None:
        """Ask for the queue, until the service answers."""

        async def pause(delay_s: float) -> None:
            log.warning("%s does not answer; again in %.1f s", self._service, delay_s)
            await asyncio.sleep(delay_s)
            await self._session.online.wait()

        async def ask() -> object:
            await self._session.online.wait()
            return await self._queueing.stats(self._service, self._node)

        await Retry(self._backoff).repeat(ask, is_temporary=_is_temporary, pause=pause)

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> bool:
        """Wait for this; False: the bridge is stopped meanwhile, and it is cancelled."""
        task = self._loop.create_task(work)
        stopping = self._loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return not self._stopping.is_set()
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.wait((task, stopping))

    def _ready(self) -> None:
        """Both sides are there; reported once."""
        tell, self._tell_ready = self._tell_ready, None
        if tell is not None:
            tell()


def _is_temporary(error: RequestFailed) -> bool:
    return error.is_temporary
