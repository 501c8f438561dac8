"""The real HTTP gateway of the simulated service; only its push client is replaced.

What its push subscribers ask of the engine, and are given, goes into the ledger as it
does for the workers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from qos.core.queue.effects import Notification, NotifyRetract
from qos.core.queue.item import Item, ItemState
from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Refusal, Request, Retract, Unlock
from qos.core.queue.results import Result
from qos.core.rest.forwarding import NoReply, PushReply, PushRequest
from qos.core.rest.one_off import OneOffLinks
from qos.core.rest.push_targets import PushRules
from qos.core.strings import bare
from qos.engine.queue_engine import Answer, Parts, QueueEngine
from qos.engine.queue_outputs import Payloads
from qos.rest import bounds
from qos.rest.gateway import Gateway
from qos.users import Users
from simulation import invariants
from simulation.items import ItemLedger
from simulation.plan import Settings
from simulation.pulling import PULLER
from simulation.target import Exchange, PushTarget, href_of

if TYPE_CHECKING:
    from simulation.queue_machine import QueueMachine

__all__ = ["PUSHED", "PushEngine", "PushGateway", "subscribers"]

#: The account of the push subscribers.
PUSHED = "tom@x"

#: More than any node of a simulation has.
_ALL = 10_000

_SELF = re.compile(r'<[^>]*/([^/>]+)>; rel="?self')


def subscribers(settings: Settings, node: str, now: float) -> list[PushSubscriber]:
    """The push subscribers of a plan."""
    return [
        PushSubscriber(
            subscriber_id=f"push-{number}",
            node=node,
            account=PUSHED,
            rel=settings.push_rel,
            href=href_of(settings.push_rel, f"push-{number}"),
            base="https://queue.example",
            selector=selector,
            sessions=settings.push_sessions,
            max_retries=settings.push_retries,
            retry_wait_s=settings.push_retry_wait_s,
            created_at=now,
        )
        for number, selector in enumerate(settings.push)
    ]


class PushEngine(QueueEngine):
    """Tells the ledger what push subscribers ask for, and what they are answered."""

    def __init__(
        self, *args: Any, ledger: ItemLedger, machine: QueueMachine, **options: Any
    ) -> None:
        self._ledger = ledger
        self._machine = machine
        super().__init__(*args, **options)

    def request(
        self,
        request: Request,
        requester: str,
        answer: Answer,
        *,
        parts: Parts | None = None,
    ) -> None:
        """See QueueEngine."""
        if is_of_gateway(requester):
            if isinstance(request, Retract | Unlock):
                self._ledger.settles(requester, request.settlements)
            answer = partial(self._answered, requester, request, answer, self.now())
        super().request(request, requester, answer, parts=parts)

    def _answered(
        self,
        to: str,
        request: Request,
        answer: Answer,
        asked_at: float,
        result: Result | Refusal,
        payloads: Mapping[int, str],
    ) -> None:
        kept = self._machine.disk.kept
        self._ledger.answered(to, request, result, kept, asked_at)
        answer(result, payloads)

    def available(self, node: str) -> list[Item]:
        """The items that anybody can have, as decided by now."""
        queue = None if self._core is None else self._core.nodes.get(node)
        items = () if queue is None else queue.live.page(0, _ALL)
        return [
            each
            for each in items
            if each.state is ItemState.AVAILABLE and not each.is_held_back(self.now())
        ]

    def departed(self, jid: str) -> None:
        """See QueueEngine."""
        if is_of_gateway(jid):
            self._ledger.departed(jid, self.now())
        super().departed(jid)


def is_of_gateway(jid: str) -> bool:
    """Whether this full JID is that of a consumer by HTTP."""
    return bare(jid) in {PUSHED, PULLER}


class _Everybody:
    """The users of a service where nobody logs in, and nobody is removed."""

    def has_account(self, _account: str) -> bool:
        """See Users."""
        return True


class PushGateway(Gateway):
    """Tells the ledger what push subscribers are given."""

    def __init__(
        self,
        engine: QueueEngine,
        machine: QueueMachine,
        target: PushTarget | None,
        ledger: ItemLedger,
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        client = None if target is None else _Client(machine, target, ledger)
        users = cast(Users, _Everybody())
        super().__init__(engine, users=users, push=client)
        self._one_off = OneOffLinks("key", 0.0)
        self.pushers.start()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        found = [item for item, _ in items]
        kept, now = self._machine.disk.kept, self.engine.now()
        its = [each for each in kept.push_subscribers.values() if each.jid == to]
        wanted = its[0].sessions if its else 1
        self._ledger.gave(to, found, kept, now, wanted=wanted)
        for item in found:
            facts, count = self._ledger.items[item.item_id], item.delivery_count
            selector = its[0].selector if its else ""
            self._ledger.took(facts, selector, item.properties, count)
        return super().notify_items(to, items, acknowledged=acknowledged)

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        if isinstance(notification, NotifyRetract):
            self._ledger.told_of_end(notification.to, notification.item_ids)
        super().notify(notification)


class _Client:
    """See `qos.rest.push.pushers.Client`; it knows one target."""

    rules = PushRules()

    def __init__(
        self, machine: QueueMachine, target: PushTarget, ledger: ItemLedger
    ) -> None:
        self._machine = machine
        self._target = target
        self._ledger = ledger

    async def send(
        self,
        request: PushRequest,
        body: bytes,
        headers: Mapping[str, str],
        subscriber: PushSubscriber,
    ) -> PushReply | NoReply:
        """See PushClient."""
        machine = self._machine
        machine.effect()
        found = _SELF.search(headers["Link"])
        assert found is not None, headers
        item_id = found[1] if request.message else ""
        if item_id:
            self._leaves(request, item_id, subscriber)
        answered: asyncio.Future[PushReply | NoReply]
        answered = asyncio.get_running_loop().create_future()

        def answer(reply: PushReply | NoReply) -> None:
            if not answered.done():
                answered.set_result(reply)

        exchange = Exchange(request.method, request.url, item_id, request.key, answer)
        self._target.request(exchange, machine)
        reply: PushReply | NoReply
        try:
            async with asyncio.timeout(bounds.PUSH_S):
                reply = await answered
        except TimeoutError:
            reply = NoReply("the target does not answer")
        if item_id:
            self._ledger.replied(item_id, subscriber.jid, reply)
        return reply

    def _leaves(
        self, request: PushRequest, item_id: str, subscriber: PushSubscriber
    ) -> None:
        if "/once/" in request.url:
            links = self._machine.disk.kept.push_links.values()
            own = subscriber.subscriber_id
            kept = {each.url for each in links if each.subscriber_id == own}
            facts = self._ledger.items[item_id]
            check = invariants.a_link_is_kept_before_it_is_used
            self._ledger.check(check, facts, request.url, kept)
        until = self._machine.loop.time() + bounds.PUSH_S
        self._ledger.posts(item_id, subscriber.jid, until)

    async def aclose(self) -> None:
        """See PushClient."""
