"""All push subscribers of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

from qos.core.queue.effects import Change
from qos.core.queue.push import (
    PushSubscriber,
    RemovePushSubscriber,
    SavePushSubscriber,
)
from qos.core.queue.requests import Refusal
from qos.core.rest.forwarding import Fate
from qos.core.rest.push_targets import BadTarget
from qos.engine.gateway import save
from qos.engine.queue_engine import QueueEngine
from qos.rest import bounds
from qos.rest.push.ports import Client
from qos.rest.push.pusher import Pusher

__all__ = ["Pushers"]

log = logging.getLogger(__name__)


class Pushers:
    """The subscribers, and what they share.

    Attributes:
        engine: of the queues.
        consumers: of the gateway, by full JID.
        client: makes their requests.
        is_user: whether an account has a user; nothing is pushed for any other.
        jitter: a random number from 0 to 1; it spreads the attempts.
        closing: nothing is started any more.
    """

    def __init__(
        self,
        engine: QueueEngine,
        consumers: MutableMapping[str, Any],
        client: Client,
        *,
        is_user: Callable[[str], bool],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Take the subscribers that are on disk.

        They count as present from now on, and push from `start` on.
        """
        self.engine = engine
        self.consumers = consumers
        self.client = client
        self.is_user = is_user
        self.jitter = jitter
        # The attempts at each node since the start, by what came of them.
        self._attempts: dict[str, Counter[Fate]] = {}
        self.closing = False
        self._pushers = {
            subscriber.subscriber_id: Pusher(self, subscriber)
            for subscriber in engine.store.push_subscribers()
        }
        self._tasks: set[asyncio.Task[None]] = set()
        for pusher in self._pushers.values():
            if pusher.subscriber.enabled and pusher.is_of_user:
                pusher.attach()

    def start(self) -> None:
        """Push; subscribers that are not durable are removed."""
        for pusher in self._pushers.values():
            if not pusher.subscriber.durable:
                self.later(self._remove_volatile(pusher))
            elif pusher.subscriber.enabled:
                pusher.start()

    def revoke(self) -> None:
        """Push nothing more for accounts that have no user any more.

        Their subscribers stay, and go on when there is a user again.
        """
        for pusher in self._pushers.values():
            if pusher.is_running and not pusher.is_of_user:
                pusher.leave()
            elif pusher.subscriber.enabled and not pusher.is_running:
                pusher.start()

    async def _remove_volatile(self, pusher: Pusher) -> None:
        # If it cannot be written, it is removed at the next start.
        with contextlib.suppress(Refusal):
            await self.remove(pusher)

    async def add(self, subscriber: PushSubscriber) -> None:
        """Write down a new subscriber, and let it push.

        Raises:
            Refusal: there are too many, or it could not be written.
        """
        self._check_room(subscriber)
        pusher = self._pushers[subscriber.subscriber_id] = Pusher(self, subscriber)
        try:
            await self.save(SavePushSubscriber(subscriber))
        except Refusal:
            del self._pushers[subscriber.subscriber_id]
            raise
        if subscriber.enabled:
            pusher.start()

    def _check_room(self, new: PushSubscriber) -> None:
        """Raises Refusal: there are too many; each counts as its sessions."""
        own = total = new.sessions
        for pusher in self._pushers.values():
            total += pusher.subscriber.sessions
            if pusher.subscriber.account == new.account:
                own += pusher.subscriber.sessions
        if own > bounds.PUSH_PER_ACCOUNT_MAX or total > bounds.PUSH_MAX:
            of_one = own > bounds.PUSH_PER_ACCOUNT_MAX
            subject = f"{new.account} has" if of_one else "all have"
            text = f"{subject} as many push subscribers and sessions as there may be"
            raise Refusal(text, condition="resource-constraint", type="wait")

    def of(self, node: str, account: str) -> list[Pusher]:
        """The subscribers of an account at a node, the oldest first."""
        return [
            pusher
            for pusher in self._pushers.values()
            if (pusher.subscriber.node, pusher.subscriber.account) == (node, account)
        ]

    def count(self, node: str, fate: Fate) -> None:
        """Count an attempt."""
        self._attempts.setdefault(node, Counter())[fate] += 1

    def counts(self, node: str) -> dict[str, int]:
        """The subscribers of a node, and the attempts since the start by their fates."""
        enabled = [
            pusher.subscriber.enabled
            for pusher in self._pushers.values()
            if pusher.subscriber.node == node
        ]
        attempts = self._attempts.get(node) or Counter()
        return {
            "push_enabled": sum(enabled),
            "push_disabled": len(enabled) - sum(enabled),
            **{f"push_attempts_{fate.value}": attempts[fate] for fate in Fate},
        }

    def find(self, node: str, account: str, subscriber_id: str) -> Pusher | None:
        """A subscriber of an account at a node; None: it has no such one."""
        for pusher in self.of(node, account):
            if pusher.subscriber.subscriber_id == subscriber_id:
                return pusher
        return None

    def target(self, href: str) -> str:
        """A URL in normal form.

        Raises:
            Refusal: nothing is pushed there.
        """
        try:
            return self.client.rules.target(href).url
        except BadTarget as error:
            text = f"nothing is pushed to this href: {error}"
            raise Refusal(text, condition="bad-request", type="modify") from None

    async def remove(self, pusher: Pusher) -> None:
        """End a subscriber.

        Raises:
            Refusal: it could not be written, and goes on.
        """
        # In one commit: nobody would end a subscription that is left behind.
        pusher.leave()
        try:
            await self.save(RemovePushSubscriber(pusher.subscriber.subscriber_id))
        except Refusal:
            if pusher.subscriber.enabled:
                pusher.start()
            raise
        self._pushers.pop(pusher.subscriber.subscriber_id, None)

    def deleted(self, node: str) -> None:
        """A node is gone, and its subscribers are gone from the disk with it."""
        self._attempts.pop(node, None)
        for subscriber_id, pusher in list(self._pushers.items()):
            if pusher.subscriber.node == node:
                del self._pushers[subscriber_id]
                pusher.leave()

    async def save(self, change: Change) -> None:
        """Write a change; what is asked of the engine in the same turn goes with it.

        Raises:
            Refusal: it could not be written.
        """
        await save(self.engine, change)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Let this be done; the log says what has failed, since nobody waits for it."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop; each goes on where it was when it is started again."""
        self.closing = True
        for pusher in self._pushers.values():
            pusher.stop()
        await self.client.aclose()


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Refusal as refusal:
        # It is done in this process, and the next one finds what was there before.
        log.warning(
            "a change of a push subscriber holds only until a restart: %s", refusal
        )
    except Exception:
        log.exception("a change of a push subscriber has failed")
