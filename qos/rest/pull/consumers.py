"""Pull consumers: each is a full JID that has at most one message at a time.

A consumer is in memory for as long as it is used; its message is locked on disk. The URLs
say whose it is and which delivery comes before. So it is made again after a restart: the
service asks the queue what its JID holds, and the client goes on with the link that it
has. What only memory has is its selector, and which of its links were used before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.requests import (
    CloseLink,
    Delete,
    Extend,
    Refusal,
    Request,
    Retract,
    Settlement,
    Unlock,
)
from qos.core.queue.results import Result
from qos.core.record import record
from qos.core.rest.hornetq.position import Place, Position
from qos.core.rest.statuses import Act, status_of
from qos.core.rest.waits import Wait
from qos.engine.gateway import ask
from qos.engine.queue_engine import QueueEngine
from qos.rest.waiting import ConsumerHost, WaitingConsumer

if TYPE_CHECKING:
    from qos.users import Grant

__all__ = [
    "DURABLE",
    "VOLATILE",
    "Identity",
    "OutOfStep",
    "PullConsumer",
    "acceptance",
    "delivery_of",
    "is_late",
    "settled",
]

#: The kinds of subscriptions to topics: one that stays, and one that ends with its
#: consumer, at the latest when the service ends.
DURABLE, VOLATILE = "durable", "volatile"

#: The longest and the shortest time for which a timer is set; then it looks again.
_TIMER_S, _LEAST_S = 3600.0, 0.05

#: Seconds before the end of a lock at which a message that was sent is acknowledged.
_BEFORE_END_S = 1.0


class OutOfStep(Exception):
    """A link is not due any more, or not yet."""


@record(frozen=True, slots=True)
class Identity:
    """The identity of a consumer, as its URLs carry it.

    Attributes:
        node: the name of the node.
        account: the bare JID of its user.
        resource: 128 random bits.
        auto: a message is acknowledged by the post for the next one.
        selected: it has a selector.
        subscription: DURABLE or VOLATILE: the node is a subscription to a topic, and the
            consumer is its only one; '': the node is any queue.
    """

    node: str
    account: str
    resource: str
    auto: bool
    selected: bool
    subscription: str = ""

    @property
    def jid(self) -> str:
        """Its full JID."""
        return consumer_jid(self.account, "http", self.resource)


def delivery_of(item: Item) -> str:
    """The name of a delivery in URLs."""
    return f"{item.token}.{item.item_id}"


def _settlement(
    delivery: str, outcome: ItemOutcome = ItemOutcome.ACCEPTED
) -> Settlement:
    token, _, item_id = delivery.partition(".")
    # An empty token would mean any delivery.
    return Settlement(item_id=item_id, token=token or "-", outcome=outcome)


async def settled(engine: QueueEngine, identity: Identity, request: Request) -> None:
    """End a delivery, if it has not ended yet."""
    try:
        await ask(engine, request, identity.jid)
    except Refusal as refusal:
        if not is_late(refusal):
            raise


def is_late(refusal: Refusal) -> bool:
    """Whether a refusal means that a delivery has ended otherwise."""
    return status_of(Act.SETTLE, refusal) == 412


def acceptance(identity: Identity, delivery: str) -> Request:
    """The request that acknowledges a delivery."""
    return Retract(identity.node, (_settlement(delivery),), notify=False)


class PullConsumer:
    """A pull consumer.

    Attributes:
        identity: of it.
        position: in its sequence.
        idle_s: seconds after which it has timed out.
        delete_when_idle: of a subscription: it ends when its consumer has timed out.
    """

    def __init__(
        self,
        host: ConsumerHost,
        identity: Identity,
        selector: str,
        on_end: Callable[[PullConsumer], object],
        *,
        idle_s: float,
    ) -> None:
        """Begin with what its JID holds.

        Args:
            host: has it.
            identity: of it.
            selector: which messages it takes; '': all.
            on_end: is called at its end.
            idle_s: see the class.
        """
        self.identity = identity
        self.position = Position(identity.auto)
        for item in host.engine.held(identity.node, identity.jid):
            self.position = Position(identity.auto, Place.GIVEN, delivery_of(item))
        self.idle_s = idle_s
        self.delete_when_idle = identity.subscription == VOLATILE
        self._host = host
        self._selector = selector
        self._on_end = on_end
        self._closed = False
        self._turn = asyncio.Lock()
        self._users = 0
        self._taking = 0
        self._waiting: WaitingConsumer | None = None
        self._done: tuple[str, Request] | None = None
        self._accept_at: float | None = None
        self._idle_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        with self.used():
            pass

    # -- requests ----------------------------------------------------------

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the consumer from timing out while it has a request."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._idle_at = self._now() + self.idle_s
            self._arm()

    def acknowledgement_is_due(self) -> bool:
        """Whether its message has to be acknowledged before it can take the next one."""
        self._refresh()
        return self.position.place is Place.GIVEN and not self.identity.auto

    async def take(
        self, after: str, wait: Wait, grant: Grant | None
    ) -> tuple[Item, str, Callable[[bool], None]] | None:
        """The message after a delivery, its payload, and what to call when it is sent.

        None: none came. The grant is that of the request; see WaitingConsumer.

        Raises:
            OutOfStep: this link is not due.
            Refusal: the subscription is refused, or ended by the service.
        """
        now = asyncio.get_running_loop().time
        started_at = now()
        with self.used():
            async with self._turn:
                # An earlier request may have waited for a message meanwhile.
                wait = wait.after(now() - started_at)
                self._refresh()
                if not self.position.allows(after):
                    raise OutOfStep
                self._taking += 1
                taking = self._taking
                if self.position.acknowledges(after):
                    await settled(
                        self._host.engine,
                        self.identity,
                        acceptance(self.identity, after),
                    )
                    self.position = self.position.settled(after)
                delivery = await self._take(wait, grant)
                if delivery is None:
                    self.position = self.position.nothing(after)
                    return None
        item, payload = delivery
        self.position = self.position.given(delivery_of(item), after)

        def sent(whole: bool) -> None:
            if taking == self._taking and not self._closed:
                self._sent(item, after, whole=whole)

        return item, payload, sent

    async def _take(self, wait: Wait, grant: Grant | None) -> tuple[Item, str] | None:
        if self._waiting is not None:
            await self._waiting.ended.wait()
        identity = self.identity
        if self._closed:
            raise _closed()
        self._waiting = waiting = WaitingConsumer(
            self._host,
            *(identity.node, identity.account, identity.resource),
            grant=grant,
        )
        delivery = await waiting.take(self._selector, wait)
        try:
            # After a crash, a link that is still subscribed counts as gone, and so its
            # message is given to others: a client that has it would see it twice.
            await waiting.ended.wait()
            if waiting.unwritten is not None:
                raise waiting.unwritten
            if self._closed:
                raise _closed()
        except BaseException:
            if delivery is not None:
                self._release(delivery[0])
            raise
        return delivery

    async def acknowledge(self, delivery: str, request: Request) -> None:
        """End a delivery as its client asks for it, or extend its lock.

        The same end again is done already.

        Raises:
            Refusal: it has ended otherwise.
        """
        if self._done == (delivery, request):
            return
        with self.used():
            try:
                await ask(self._host.engine, request, self.identity.jid)
            except Refusal as refusal:
                if is_late(refusal):
                    self.position = self.position.settled(delivery)
                raise
        if not isinstance(request, Extend):
            self._done = (delivery, request)
            self.position = self.position.settled(delivery)

    async def delete(self) -> None:
        """End the consumer: an auto-acknowledged message has arrived, any other is available."""
        request = self._close()
        if request is not None:
            await settled(self._host.engine, self.identity, request)
        self._host.engine.departed(self.identity.jid)
        end = self._end_of_subscription()
        if end is not None:
            await settled(self._host.engine, self.identity, end)

    def stop(self) -> None:
        """Stop its timer: the service stops."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- its message -------------------------------------------------------

    def _refresh(self) -> None:
        """Notice that its lock has timed out."""
        place, last = self.position.place, self.position.last
        identity = self.identity
        if place is Place.GIVEN and not identity.auto:
            items = self._host.engine.held(identity.node, identity.jid)
            if last not in map(delivery_of, items):
                self.position = self.position.settled(last)

    def _sent(self, item: Item, after: str, *, whole: bool) -> None:
        if not whole:
            # The client has not seen it.
            self.position = self.position.nothing(after)
            self._release(item)
        elif self.identity.auto:
            left_s = item.deadline - self._now()
            self._accept_at = self._now() + max(left_s - _BEFORE_END_S, left_s / 2)
            self._arm()

    def _release(self, item: Item) -> None:
        settlement = _settlement(delivery_of(item), ItemOutcome.RELEASED)
        self._request(Unlock(self.identity.node, (settlement,)))

    def _request(self, request: Request) -> None:
        self._host.engine.request(request, self.identity.jid, _ignore)

    def _close(self) -> Request | None:
        """Stop, and return the request for the end of its message."""
        self.stop()
        if self._waiting is not None:
            self._waiting.fail(_closed())
        self._on_end(self)
        if self.position.place is not Place.GIVEN:
            return None
        if self.identity.auto:
            return acceptance(self.identity, self.position.last)
        settlement = _settlement(self.position.last, ItemOutcome.RELEASED)
        return Unlock(self.identity.node, (settlement,))

    # -- time --------------------------------------------------------------

    def _now(self) -> float:
        return self._host.engine.now()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            at = min(self._idle_at, self._accept_at or self._idle_at)
            loop = asyncio.get_running_loop()
            # The clock of the service may stand still just before that time.
            delay_s = min(max(at - self._now(), _LEAST_S), _TIMER_S)
            self._timer = loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        if self._users:
            return
        now = self._now()
        # A subscription that ends with its consumer would be left without an end.
        stays = self.identity.subscription == VOLATILE and not self.delete_when_idle
        if self._idle_at <= now and not stays:
            self.time_out()
            return
        if self._accept_at is not None and self._accept_at <= now:
            self._accept_at = None
            if self.position.place is Place.GIVEN:
                last = self.position.last
                self._request(acceptance(self.identity, last))
                self.position = self.position.settled(last)
        self._arm()

    def time_out(self) -> None:
        """End it: a subscription with a lifetime of its own stays."""
        request = self._close()
        if request is not None:
            self._request(request)
        self._host.engine.departed(self.identity.jid)
        end = self._end_of_subscription()
        if end is not None and self.delete_when_idle:
            self._request(end)

    def _end_of_subscription(self) -> Request | None:
        match self.identity.subscription:
            case "durable":
                return Delete(self.identity.node)
            case "volatile":
                # Its lifetime was that of this link.
                return CloseLink(self.identity.node)
        return None


def _closed() -> Refusal:
    return Refusal(
        "the consumer has been deleted", condition="item-not-found", type="cancel"
    )


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The lock may have timed out by now."""
