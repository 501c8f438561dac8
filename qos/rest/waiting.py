"""A request that waits for an item: a subscriber for as long as it waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from typing import ParamSpec, Protocol

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.effects import Notification, NotifyNode, NotifySubscription
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS, SELECTOR
from qos.core.queue.requests import (
    Refusal,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import Result
from qos.core.rest.waits import Wait
from qos.engine.gateway import Consumer, ask
from qos.engine.queue_commit import Unwritten
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads
from qos.ids import new_id
from qos.users import Grant, Users

__all__ = ["ConsumerHost", "HttpConsumer", "WaitingConsumer", "taken_away"]

log = logging.getLogger(__name__)

P = ParamSpec("P")

#: Seconds for which a new selector is evaluated for the items that are there, if the
#: client does not want to wait.
_LOOK_S = 1.0


class HttpConsumer(Consumer, Protocol):
    """A subscriber of the gateway.

    Attributes:
        grant: by which its user is logged in; None: it is never taken away.
    """

    @property
    def grant(self) -> Grant | None:
        """See the class."""

    def fail(self, refusal: Refusal) -> None:
        """End the wait: the service has ended the subscription."""


class ConsumerHost(Protocol):
    """The part of the gateway that consumers use.

    Attributes:
        engine: of the queues.
        users: may send requests; nobody else.
        consumers: by full JID; each enters itself, and leaves.
    """

    engine: QueueEngine
    users: Users

    @property
    def consumers(self) -> MutableMapping[str, HttpConsumer]:
        """See the class."""


def taken_away() -> Refusal:
    """The user was removed or has another password since it has logged in."""
    text = "this user was removed, or has another password or token now"
    return Refusal(text, condition="not-authorized", type="auth")


class WaitingConsumer:
    """A request that waits for an item: a live full JID.

    Attributes:
        resource: 128 random bits.
        jid: the full JID with this resource.
        grant: see the constructor.
        ended: the subscription has ended, on disk too; or that could not be written.
        unwritten: why it could not be written.
    """

    def __init__(
        self,
        host: ConsumerHost,
        node: str,
        account: str,
        resource: str = "",
        *,
        grant: Grant | None,
    ) -> None:
        """Begin without a subscription.

        Args:
            host: has the request.
            node: the name of the node.
            account: the bare JID of the user.
            resource: of a consumer that is known already; no other request of it waits.
                '': a new one.
            grant: by which the user is logged in; None: it is never taken away.
        """
        self.grant = grant
        self.resource = resource or new_id()
        self.jid = consumer_jid(account, "http", self.resource)
        self.ended = asyncio.Event()
        self.unwritten: Unwritten | None = None
        self._host = host
        self._node = node
        self._over = False
        loop = asyncio.get_running_loop()
        self._delivery: asyncio.Future[tuple[Item, str]] = loop.create_future()

    async def take(self, selector: str, wait: Wait) -> tuple[Item, str] | None:
        """Wait for an item and its payload; None: none came.

        Raises:
            Refusal: the subscription is refused, or ended by the service.
        """
        engine = self._host.engine
        options = {QUEUE_REQUESTS: "1"}
        if selector:
            options[SELECTOR] = selector
        self._host.consumers[self.jid] = self
        try:
            # When this is answered, an item that is there has been handed over too.
            subscribe = Subscribe(self._node, self.jid, options, link=True)
            await ask(engine, subscribe, self.jid)
            offered = asyncio.Event()
            loop = asyncio.get_running_loop()
            # A large item may wait for a turn of the account after that.
            when_sent = partial(engine.when_sent, self.jid, offered.set)
            engine.when_offered(
                self._node, self.jid, partial(loop.call_soon, when_sent)
            )
            with contextlib.suppress(TimeoutError):
                # A selector may need longer for the items that are there.
                async with asyncio.timeout(wait.seconds or _LOOK_S):
                    await self._first(offered.wait())
                    if wait.seconds:
                        await asyncio.shield(self._delivery)
            if not self._delivery.done():
                return None
            if self.grant is not None and not self._host.users.stands(self.grant):
                raise taken_away()
            return self._delivery.result()
        except BaseException:
            # The client has gone.
            if self._delivery.done() and not self._delivery.exception():
                self.release(self._delivery.result()[0])
            raise
        finally:
            self._end()

    async def _first(self, coroutine: Coroutine[None, None, object]) -> None:
        """Wait for this, or until there is an item or a refusal."""
        waiting = asyncio.ensure_future(coroutine)
        try:
            await asyncio.wait(
                (waiting, self._delivery), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()

    def release(self, item: Item) -> None:
        """Give back an item that the client has not seen; that does not count."""
        settlement = Settlement(
            item_id=item.item_id, token=item.token, outcome=ItemOutcome.RELEASED
        )
        engine = self._host.engine
        engine.request(Unlock(self._node, (settlement,)), self.jid, _ignore)
        engine.departed(self.jid)

    def fail(self, refusal: Refusal) -> None:
        """Stop waiting."""
        if not self._delivery.done():
            self._delivery.set_exception(refusal)
            # It may have no one who waits for it yet.
            self._delivery.exception()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            request = Unsubscribe(self._node, self.jid)
            self._host.engine.request(request, self.jid, self._ended)

    def _ended(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        """Note the end of the subscription: no more items will be locked for this consumer."""
        if isinstance(result, Unwritten):
            self.unwritten = result
        self._host.consumers.pop(self.jid, None)
        if not self._delivery.done():
            self._host.engine.departed(self.jid)
        self.ended.set()

    # -- see qos.engine.gateway.Consumer -----------------------------------

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """See Consumer."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                call(*args, **kwargs)
            except Exception:
                log.exception("a waiting request is ended")
                self.fail(_broken("an internal error"))

        return guarded

    def items(self, items: Payloads) -> None:
        """See Consumer."""
        for item, payload in items:
            if self._over or self._delivery.done():
                self.release(item)
            else:
                self._delivery.set_result((item, payload))
                self._end()

    def dropped(self, item: Item) -> None:
        """See Consumer: another item may come."""

    def notify(self, notification: Notification) -> None:
        """See Consumer."""
        match notification:
            case NotifyNode(action="delete"):
                text = f"the node {self._node!r} is deleted"
                self.fail(Refusal(text, condition="item-not-found", type="cancel"))
            case NotifySubscription(why=why) if why:
                self.fail(Refusal(why, condition="policy-violation", type="wait"))
            case NotifySubscription():
                text = f"you may not subscribe to {self._node!r} any more"
                self.fail(Refusal(text, condition="forbidden", type="auth"))


def _broken(why: str) -> Refusal:
    return Refusal(why, condition="internal-server-error", type="wait")


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The lock may have timed out by now."""
