"""One push subscriber: a consumer that sends its messages to a URL, in one or more sessions.

Each session makes one delivery after the other. Its full JID stays the same across
restarts, and so do the locks of the messages that are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec

from qos.core.backoff import Backoff
from qos.core.queue.effects import Notification, NotifySubscription
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS, SELECTOR
from qos.core.queue.push import (
    PushLink,
    PushSubscriber,
    RemovePushLink,
    SavePushSubscriber,
)
from qos.core.queue.requests import (
    Credit,
    Refusal,
    Request,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import CreditResult, Result
from qos.core.record import replace
from qos.core.rest.forwarding import Fate, Verdict
from qos.core.rest.push_retries import disables, settlement_of
from qos.engine.gateway import ask
from qos.engine.queue_outputs import Payloads
from qos.rest import bounds
from qos.rest.push.delivery import deliver
from qos.rest.push.ports import PusherHost

__all__ = ["Pusher"]

log = logging.getLogger(__name__)

P = ParamSpec("P")

#: After an attempt that has failed.
_BACKOFF = Backoff(first_s=0.2, max_s=300.0)

#: Seconds until a target is asked again that is busy and does not say for how long, and
#: until the store is.
_BUSY_S = 5.0

#: The messages that it can hold, if its sessions are not more.
_REQUESTS = 10

#: Turns of the loop in which the messages come that were locked before a restart.
_TURNS = 3

_PASSING = frozenset({"internal-server-error", "resource-constraint"})


class Pusher:
    """See the module.

    Attributes:
        subscriber: as it is on disk, unless that could not be written.
        pushers: all subscribers.
        links: the one-off links of messages whose outcome is not known, by seq.
        failures: deliveries in a row that have failed.
        is_written: whether its last change is on disk.
        grant: it is never taken away: `Pushers.revoke` sees to it.
    """

    grant = None

    def __init__(self, pushers: PusherHost, subscriber: PushSubscriber) -> None:
        """Take what is on disk; `start` lets it push."""
        self.subscriber = subscriber
        self.pushers = pushers
        self.links: dict[int, PushLink] = {}
        self.failures = 0
        self.is_written = True
        self._engine = pushers.engine
        #: Messages that are locked for it, by token, and those that no session has begun.
        self._held: dict[str, Item] = {}
        self._waiting: deque[tuple[Item, str]] = deque()
        #: Deliveries that it has asked for so far, and that have not come yet; how many
        #: sessions wait for one.
        self._limit = 0
        self._granted = 0
        self._idle = 0
        self._come = asyncio.Event()
        #: No session begins a delivery any more.
        self._over = asyncio.Event()
        #: Until when the target wants no message, by the clock of the loop.
        self._resume_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def jid(self) -> str:
        """Its full JID."""
        return self.subscriber.jid

    @property
    def is_over(self) -> bool:
        """Whether what has begun has to come to its end."""
        return self._over.is_set()

    @property
    def is_running(self) -> bool:
        """Whether it pushes."""
        return self._task is not None

    @property
    def is_of_user(self) -> bool:
        """Whether its account has a user."""
        return self.pushers.is_user(self.subscriber.account)

    @property
    def _node(self) -> str:
        return self.subscriber.node

    def attach(self) -> None:
        """Be there for the engine, before its session begins."""
        self.pushers.consumers[self.jid] = self

    def start(self) -> None:
        """Push, if its account has a user; else give back what it holds."""
        if not self.is_of_user:
            self.leave()
            return
        self.attach()
        self.stop()
        self._waiting.clear()
        self._held.clear()
        self._resume_at = 0.0
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
        if self._held:
            back = tuple(
                Settlement(
                    item_id=item.item_id, token=token, outcome=ItemOutcome.RELEASED
                )
                for token, item in self._held.items()
            )
            self._engine.request(Unlock(self._node, back), self.jid, _ignore)
            self._held.clear()
        self._engine.departed(self.jid)
        self.pushers.consumers.pop(self.jid, None)

    # -- messages ----------------------------------------------------------

    async def _run(self) -> None:
        while self.subscriber.enabled:
            try:
                await self._begin()
                await self._sessions()
            except Refusal as refusal:
                if refusal.condition not in _PASSING:
                    with contextlib.suppress(Refusal):  # else off until a restart
                        await self._end(str(refusal))
            except Exception:
                # Without the request: its URL may be a secret.
                log.exception("a push subscriber has failed")
            if self.subscriber.enabled:
                await asyncio.sleep(_BUSY_S)
        self._task = None
        self.leave()

    async def _begin(self) -> None:
        """Subscribe; what it holds since before comes again."""
        store = self._engine.store
        self.links = store.push_links(self.subscriber.subscriber_id)
        requests = max(_REQUESTS, self.subscriber.sessions)
        options = {QUEUE_REQUESTS: str(requests), SELECTOR: self.subscriber.selector}
        # No link: that would have left at a restart, and what it held would have failed.
        subscribe = Subscribe(self._node, self.jid, options)
        # In the same turn: nothing is given out without credit.
        _, credit = await asyncio.gather(
            self.ask(subscribe), self.ask(Credit(self._node, 0))
        )
        assert isinstance(credit, CreditResult)
        self._limit, self._granted = credit.served, 0
        self._over.clear()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _sessions(self) -> None:
        """Let all sessions push until it is disabled, or one of them fails.

        The others come to the end of their deliveries, so that no message is left.
        """
        sessions = [self._session() for _ in range(self.subscriber.sessions)]
        for result in await asyncio.gather(*sessions, return_exceptions=True):
            if result is not None:
                raise result

    async def _session(self) -> None:
        try:
            await self._deliver_all()
        except Exception:
            self._over.set()
            self._come.set()
            raise

    async def _deliver_all(self) -> None:
        """Make one delivery after the other."""
        # A one-off link of the target that no message was posted to.
        unused = ""
        while await self._resumed() and (delivery := await self._next()) is not None:
            item, payload = delivery
            try:
                verdict = await deliver(self, item, payload, unused)
                unused = "" if verdict is None else verdict.unused
                if verdict is not None:
                    await self._settled(item, verdict)
            finally:
                self._held.pop(item.token, None)

    async def _resumed(self) -> bool:
        """Wait until the target wants messages; False: nothing more is pushed."""
        now = asyncio.get_running_loop().time
        while not self.is_over and (left_s := self._resume_at - now()) > 0:
            await self.pause(left_s)
        return not self.is_over

    async def _next(self) -> tuple[Item, str] | None:
        """The next message; None: nothing more is pushed."""
        self._idle += 1
        try:
            while not self._waiting and not self.is_over:
                self._come.clear()
                if self._granted < self._idle:
                    self._granted += 1
                    self._limit += 1
                    await self.ask(Credit(self._node, self._limit))
                if not self._waiting and not self.is_over:
                    await self._come.wait()
        finally:
            self._idle -= 1
        return None if self.is_over else self._waiting.popleft()

    async def _settled(self, item: Item, verdict: Verdict) -> None:
        """Settle a message whose delivery is over."""
        fate = verdict.fate
        request = settlement_of(self._node, item, verdict)
        steps: list[Coroutine[Any, Any, object]] = [self.ask(request)]
        over = fate in (Fate.ACCEPTED, Fate.REJECTED)
        if over and self.links.pop(item.seq, None) is not None:
            forget = RemovePushLink(self.subscriber.subscriber_id, item.seq)
            steps.append(self.pushers.save(forget))
        # Its lock may have ended.
        with contextlib.suppress(Refusal):
            await asyncio.gather(*steps)
        if over:
            self.failures = 0
        elif fate is Fate.DISABLED:
            await self._end(verdict.reason)
        elif fate is Fate.RELEASED:
            seconds = verdict.retry_after_s(self._engine.now())
            self._hold(_BUSY_S if seconds is None else seconds)
        else:
            await self._failed(verdict.reason)

    async def _failed(self, reason: str) -> None:
        """Count a delivery that has failed."""
        self.failures += 1
        subscriber = self.subscriber = replace(self.subscriber, reason=reason)
        if disables(subscriber, self.failures, bounds.PUSH_FAILURES_MAX):
            why = f"{self.failures} deliveries in a row failed; the last: "
            await self._end(f"{why}{reason}")
        elif len(self.links) >= bounds.PUSH_LINKS_MAX:
            await self._end(f"{len(self.links)} messages have no known outcome")
        rounds = -(-self.failures // subscriber.sessions)
        self._hold(_BACKOFF.delay_s(rounds, self.pushers.jitter()))

    def _hold(self, seconds: float) -> None:
        """Send nothing new to the target for so long."""
        until = asyncio.get_running_loop().time() + seconds
        self._resume_at = max(self._resume_at, until)

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than deliveries are begun."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def ask(self, request: Request) -> Result:
        """The answer to a request of this subscriber.

        Raises:
            Refusal: it is refused.
        """
        result, _ = await ask(self._engine, request, self.jid)
        return result

    # -- being enabled -----------------------------------------------------

    async def _end(self, reason: str) -> None:
        """Begin no delivery any more; those that have begun come to their end."""
        log.warning("a push subscriber of %r is disabled", self._node)
        self.subscriber = replace(self.subscriber, enabled=False, reason=reason[:500])
        self._over.set()
        self._come.set()
        self.is_written = False
        await self.pushers.save(SavePushSubscriber(self.subscriber))
        self.is_written = True

    async def disable(self, reason: str) -> None:
        """Push nothing more, until it is enabled again."""
        self.leave()
        await self._end(reason)

    async def enable(self) -> None:
        """Push again; if that cannot be written, nothing is pushed."""
        if not self.subscriber.enabled:
            enabled = replace(self.subscriber, enabled=True, reason="")
            await self.pushers.save(SavePushSubscriber(enabled))
            self.failures, self.is_written = 0, True
            self.subscriber = enabled
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
            if item.token not in self._held:
                self._held[item.token] = item
                self._waiting.append((item, payload))
        self._granted = max(0, self._granted - len(items))
        self._come.set()

    def dropped(self, item: Item) -> None:
        """See Consumer: another item may come."""
        self._granted = max(0, self._granted - 1)
        self._come.set()

    def notify(self, notification: Notification) -> None:
        """See Consumer."""
        if isinstance(notification, NotifySubscription):
            lost = f"you may not subscribe to {self._node!r} any more"
            why = notification.why or lost
            self.pushers.later(self.disable(why))

    def fail(self, refusal: Refusal) -> None:
        """The engine has begun again: nothing is subscribed any more."""
        self.stop()
        if self.pushers.closing:
            return
        if self.subscriber.enabled:
            self.start()
        else:
            self.leave()


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
