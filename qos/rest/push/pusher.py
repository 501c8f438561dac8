"""One push subscriber: a consumer that posts its messages to a URL, one after the other.

Its full JID stays the same across restarts, and so does the lock of the message that is
on its way. The one-off link of that message, and a longer lock, are on disk before the
message is posted; a message whose outcome is not known is posted to the same link again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

from qos.core.backoff import Backoff
from qos.core.queue.effects import Notification, NotifyNode, NotifySubscription
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS, SELECTOR
from qos.core.queue.push import (
    PushLink,
    PushSubscriber,
    RemovePushLink,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.requests import (
    Credit,
    Extend,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import CreditResult, Result
from qos.core.record import replace
from qos.core.rest.forwarding import Fate, PushRequest, Verdict, forward
from qos.core.rest.link_header import Link, render_links
from qos.core.rest.messages import render_headers, render_message
from qos.core.rest.push_links import AtomLink
from qos.engine.gateway import ask
from qos.engine.queue_outputs import Payloads
from qos.rest import bounds
from qos.rest.routes import url

if TYPE_CHECKING:
    from qos.rest.push.pushers import Pushers

__all__ = ["Pusher"]

log = logging.getLogger(__name__)

P = ParamSpec("P")

#: After an attempt that has failed.
_BACKOFF = Backoff(first_s=0.2, max_s=300.0)

#: Seconds until a target is asked again that is busy and does not say for how long, and
#: until the store is.
_BUSY_S = 5.0

#: Turns of the loop in which the messages come that were locked before a restart.
_TURNS = 3

_OUTCOMES = {
    Fate.ACCEPTED: ItemOutcome.ACCEPTED,
    Fate.REJECTED: ItemOutcome.REJECTED,
    Fate.FAILED: ItemOutcome.MODIFIED,
}

_PASSING = frozenset({"internal-server-error", "resource-constraint"})


class Pusher:
    """See the module.

    Attributes:
        subscriber: as it is on disk.
        failures: attempts in a row that have failed.
    """

    def __init__(self, pushers: Pushers, subscriber: PushSubscriber) -> None:
        """Take what is on disk; `start` lets it push."""
        self.subscriber = subscriber
        self.failures = 0
        self._pushers = pushers
        self._engine = pushers.engine
        self._links: dict[int, PushLink] = {}
        # A one-off link that no message was posted to.
        self._unused = ""
        self._waiting: deque[tuple[Item, str]] = deque()
        self._tokens: set[str] = set()
        self._limit = 0
        self._granted = False
        self._come = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def jid(self) -> str:
        """Its full JID."""
        return self.subscriber.jid

    @property
    def _node(self) -> str:
        return self.subscriber.node

    def attach(self) -> None:
        """Be there for the engine, before its session begins."""
        self._pushers.consumers[self.jid] = self

    def start(self) -> None:
        """Push."""
        self.attach()
        self._waiting.clear()
        self._tokens.clear()
        self._granted = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop; what it holds stays locked for it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def leave(self) -> None:
        """Stop for good, or until it is enabled again: what it holds is given back."""
        self.stop()
        self._engine.request(Unsubscribe(self._node, self.jid), self.jid, _ignore)
        self._engine.departed(self.jid)
        self._pushers.consumers.pop(self.jid, None)

    # -- messages ----------------------------------------------------------

    async def _run(self) -> None:
        while self.subscriber.enabled:
            try:
                await self._begin()
                while self.subscriber.enabled:
                    item, payload = await self._next()
                    pause_s = await self._push(item, payload)
                    if pause_s and self.subscriber.enabled:
                        await asyncio.sleep(pause_s)
            except Refusal as refusal:
                if refusal.condition in _PASSING:
                    await asyncio.sleep(_BUSY_S)
                else:
                    await self.disable(str(refusal))
            except Exception:
                # Without the request: its URL may be a secret.
                log.exception("a push subscriber has failed")
                await asyncio.sleep(_BUSY_S)

    async def _begin(self) -> None:
        """Subscribe; what it holds since before comes again."""
        store = self._engine.store
        self._links = store.push_links(self.subscriber.subscriber_id)
        options = {QUEUE_REQUESTS: "10", SELECTOR: self.subscriber.selector}
        # No link: that would have left at a restart, and what it held would have failed.
        subscribe = Subscribe(self._node, self.jid, options)
        # In the same turn: nothing is given out without credit.
        _, credit = await asyncio.gather(
            self._ask(subscribe), self._ask(Credit(self._node, 0))
        )
        assert isinstance(credit, CreditResult)
        self._limit = credit.served
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _next(self) -> tuple[Item, str]:
        while not self._waiting:
            self._come.clear()
            if not self._granted:
                self._granted = True
                self._limit += 1
                await self._ask(Credit(self._node, self._limit))
            if not self._waiting:
                await self._come.wait()
        return self._waiting.popleft()

    async def _push(self, item: Item, payload: str) -> float:
        """Push a message; returns the seconds until the next one."""
        subscriber, kept = self.subscriber, self._links.get(item.seq)
        body, headers = _forwarded(subscriber, item, payload)
        steps = forward(
            AtomLink(subscriber.rel, subscriber.href),
            key=f"{subscriber.subscriber_id}-{item.seq}",
            kept="" if kept is None else kept.url,
            unused=self._unused,
        )
        self._unused = ""
        try:
            request = next(steps)
            while True:
                if request.message and not await self._keep(item, request):
                    return 0.0
                answer = await self._pushers.client.send(
                    request, body, headers, subscriber
                )
                request = steps.send(answer)
        except StopIteration as stop:
            verdict: Verdict = stop.value
        finally:
            self._tokens.discard(item.token)
        return await self._end(item, verdict)

    async def _keep(self, item: Item, request: PushRequest) -> bool:
        """Write down, before a message is posted, where; False: it is not ours any more.

        The lock lasts until it has an outcome, so nobody else gets it meanwhile.
        """
        extend = Extend(self._node, bounds.PUSH_LOCK_S, ((item.item_id, item.token),))
        steps: list[Coroutine[Any, Any, object]] = [self._ask(extend)]
        if request.keep:
            link = PushLink(
                self.subscriber.subscriber_id,
                item.seq,
                request.url,
                self._engine.now(),
            )
            self._links[item.seq] = link
            steps.append(self._pushers.save(SavePushLink(link)))
        try:
            await asyncio.gather(*steps)
        except Refusal:
            return False
        return True

    async def _end(self, item: Item, verdict: Verdict) -> float:
        fate = verdict.fate
        self._pushers.counts[fate] += 1
        steps: list[Coroutine[Any, Any, object]] = [self._settle(item, verdict)]
        over = fate in (Fate.ACCEPTED, Fate.REJECTED)
        if over and self._links.pop(item.seq, None) is not None:
            forget = RemovePushLink(self.subscriber.subscriber_id, item.seq)
            steps.append(self._pushers.save(forget))
        # Its lock may have ended.
        with contextlib.suppress(Refusal):
            await asyncio.gather(*steps)
        if over:
            self.failures = 0
            self._unused = verdict.unused
            return 0.0
        if fate is Fate.DISABLED:
            await self.disable(verdict.reason)
            return 0.0
        if fate is Fate.RELEASED:
            seconds = verdict.retry_after_s(self._engine.now())
            return _BUSY_S if seconds is None else seconds
        self.failures += 1
        self.subscriber = replace(self.subscriber, reason=verdict.reason)
        if self.failures >= bounds.PUSH_FAILURES_MAX:
            why = f"{self.failures} attempts in a row failed; the last: "
            await self.disable(f"{why}{verdict.reason}")
        elif len(self._links) >= bounds.PUSH_LINKS_MAX:
            await self.disable(f"{len(self._links)} messages have no known outcome")
        return _BACKOFF.delay_s(self.failures, self._pushers.jitter())

    def _settle(self, item: Item, verdict: Verdict) -> Coroutine[Any, Any, object]:
        outcome = _OUTCOMES.get(verdict.fate, ItemOutcome.RELEASED)
        settlement = Settlement(
            item_id=item.item_id,
            token=item.token,
            outcome=outcome,
            delivery_failed=verdict.fate is Fate.FAILED,
            reason=verdict.reason if verdict.fate is Fate.REJECTED else "",
        )
        request: Request = Unlock(self._node, (settlement,))
        if verdict.fate is Fate.ACCEPTED:
            request = Retract(self._node, (settlement,), notify=False)
        return self._ask(request)

    async def _ask(self, request: Request) -> Result:
        result, _ = await ask(self._engine, request, self.jid)
        return result

    # -- being enabled -----------------------------------------------------

    async def disable(self, reason: str) -> None:
        """Push nothing more, until it is enabled again."""
        log.warning("a push subscriber of %r is disabled", self._node)
        self.subscriber = replace(self.subscriber, enabled=False, reason=reason[:500])
        task, self._task = self._task, None
        self.leave()
        await self._pushers.save(SavePushSubscriber(self.subscriber))
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def enable(self) -> None:
        """Push again."""
        if not self.subscriber.enabled:
            self.failures = 0
            self.subscriber = replace(self.subscriber, enabled=True, reason="")
            await self._pushers.save(SavePushSubscriber(self.subscriber))
            self.start()

    # -- see qos.engine.gateway.Consumer -----------------------------------

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """See Consumer."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                call(*args, **kwargs)
            except Exception:
                log.exception("a push subscriber has failed")

        return guarded

    def items(self, items: Payloads) -> None:
        """See Consumer."""
        for item, payload in items:
            if item.token not in self._tokens:
                self._tokens.add(item.token)
                self._waiting.append((item, payload))
        self._granted = False
        self._come.set()

    def dropped(self, item: Item) -> None:
        """See Consumer: another item may come."""
        self._granted = False
        self._come.set()

    def notify(self, notification: Notification) -> None:
        """See Consumer."""
        match notification:
            case NotifyNode(what="delete"):
                self._pushers.forget(self)
            case NotifySubscription():
                why = f"you may not subscribe to {self._node!r} any more"
                self._pushers.later(self.disable(why))

    def fail(self, refusal: Refusal) -> None:
        """The engine has begun again: nothing is subscribed any more."""
        self.stop()
        if self.subscriber.enabled and not self._pushers.closing:
            self.start()


def _forwarded(
    subscriber: PushSubscriber, item: Item, payload: str
) -> tuple[bytes, Mapping[str, str]]:
    """The body of a message, and its headers (row U4)."""
    body, kept = render_message(item, payload)
    headers = {name.title(): value for name, value in kept.items()}
    properties = render_headers(item).get("Msg-Properties")
    if properties:
        headers["Msg-Properties"] = properties
    base, node = subscriber.base, subscriber.node
    links = render_links(
        [
            Link(base + url("message", node=node, item=item.item_id), "self"),
            Link(base + url("queue", node=node), "generator"),
        ]
    )
    own = headers.get("Link")
    headers["Link"] = f"{links}, {own}" if own else links
    return body, headers


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
