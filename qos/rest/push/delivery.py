"""One delivery of a push subscriber: the attempts to send one message, under one lock.

The one-off link of the message, and a longer lock, are on disk before the message is
sent. If the outcome is not known, the message is sent to the same link again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from qos.core.contents import OCTETS
from qos.core.queue.item import Item
from qos.core.queue.properties import hops_of, why_stop
from qos.core.queue.push import PushLink, PushSubscriber, SavePushLink
from qos.core.queue.requests import Extend, Refusal
from qos.core.rest.forwarding import Fate, PushRequest, Verdict, forward
from qos.core.rest.link_header import Link, render_links
from qos.core.rest.messages import render_headers, render_message
from qos.core.rest.push_links import AtomLink
from qos.core.rest.push_retries import retry_wait_s, verdict_of
from qos.rest import bounds
from qos.rest.paths import url
from qos.rest.push.ports import Deliverer

__all__ = ["deliver"]

#: Seconds that a lock has to last before a request without the message is made.
_LOCK_S_MIN = 2 * bounds.PUSH_S


async def deliver(
    pusher: Deliverer, item: Item, payload: str, unused: str
) -> Verdict | None:
    """Send a message, and again if that fails and its subscriber wants it.

    Args:
        pusher: the subscriber.
        item: is locked for it.
        payload: of the item.
        unused: a one-off link of the target that no message was posted to, or ''.

    Returns:
        The verdict; None: the message is not the subscriber's any more.
    """
    why = why_stop(item.properties)
    if why:
        return Verdict(Fate.REJECTED, why)
    body, headers = _forwarded(pusher.subscriber, item, payload)
    fates: list[Fate] = []
    while True:
        verdict = await _attempt(pusher, item, body, headers, unused)
        if verdict is None:
            return None
        pusher.pushers.count(item.node, verdict.fate)
        fates.append(verdict.fate)
        wait_s = retry_wait_s(pusher.subscriber, fates)
        if wait_s is None:
            return verdict_of(pusher.subscriber, verdict, fates)
        if not await _keep(pusher, item, wait_s + bounds.PUSH_LOCK_S):
            return None
        await pusher.pause(wait_s)
        if pusher.is_over:
            return Verdict(Fate.RELEASED)
        unused = ""


async def _attempt(
    pusher: Deliverer, item: Item, body: bytes, headers: Mapping[str, str], unused: str
) -> Verdict | None:
    """Send a message once; None: it is not the subscriber's any more."""
    subscriber, known_link = pusher.subscriber, pusher.links.get(item.seq)
    steps = forward(
        AtomLink(subscriber.rel, subscriber.href),
        key=f"{subscriber.subscriber_id}-{item.seq}",
        method=subscriber.method,
        stored_link="" if known_link is None else known_link.url,
        unused_link=unused,
    )
    try:
        request = next(steps)
        while True:
            # Not before each request: it is a commit.
            ends_soon = item.deadline - pusher.pushers.engine.now() < _LOCK_S_MIN
            if request.message or ends_soon:
                link = _link(pusher, item, request)
                if not await _keep(pusher, item, bounds.PUSH_LOCK_S, link):
                    return None
            answer = await pusher.pushers.client.send(
                request, body, headers, subscriber
            )
            request = steps.send(answer)
    except StopIteration as stop:
        verdict: Verdict = stop.value
        return verdict


def _link(pusher: Deliverer, item: Item, request: PushRequest) -> PushLink | None:
    """The link to write down before a request; None: nothing new."""
    if not request.keep:
        return None
    subscriber_id, now = pusher.subscriber.subscriber_id, pusher.pushers.engine.now()
    return PushLink(subscriber_id, item.seq, request.url, now)


async def _keep(
    pusher: Deliverer, item: Item, lock_s: float, link: PushLink | None = None
) -> bool:
    """Write down where a message is posted next; False: it is not ours any more.

    The lock lasts until it has an outcome, so nobody else gets it meanwhile.
    """
    extend = Extend(pusher.subscriber.node, lock_s, ((item.item_id, item.token),))
    steps: list[Coroutine[Any, Any, object]] = [pusher.ask(extend)]
    if link is not None:
        pusher.links[item.seq] = link
        steps.append(pusher.pushers.save(SavePushLink(link)))
    try:
        await asyncio.gather(*steps)
    except Refusal:
        return False
    return True


def _forwarded(
    subscriber: PushSubscriber, item: Item, payload: str
) -> tuple[bytes, Mapping[str, str]]:
    """The body of a message, and its headers (docs/rest-checklist.md U4)."""
    body, content_headers = render_message(item, payload)
    headers = {name.title(): value for name, value in content_headers.items()}
    if subscriber.content_type and headers.get("Content-Type", OCTETS) == OCTETS:
        headers["Content-Type"] = subscriber.content_type
    properties = render_headers(item).get("Msg-Properties")
    if properties:
        headers["Msg-Properties"] = properties
    headers["Msg-Hops"] = str(hops_of(item.properties) + 1)
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
