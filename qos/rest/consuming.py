"""Consuming: a request is a subscriber for as long as it waits, and gets one item.

It subscribes, gets its item, and unsubscribes: a lock outlives its subscription. The URL
for the acknowledgement has the full JID that holds the lock and the token of the delivery,
so that nothing is kept here for a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, ParamSpec
from urllib.parse import urlencode

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.effects import Notification, NotifyNode, NotifySubscription
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS, SELECTOR
from qos.core.queue.requests import (
    Extend,
    Items,
    Refusal,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import ItemsResult, Ok, Result
from qos.core.rest.acknowledgement import read_acknowledgement
from qos.core.rest.link_header import Link, fitting
from qos.core.rest.messages import render_headers, render_message
from qos.core.rest.waits import Wait, wait_of
from qos.engine.gateway import ask
from qos.engine.queue_commit import Unwritten
from qos.engine.queue_outputs import Payloads
from qos.ids import new_id
from qos.rest.calls import Answer, Call, as_text, taken_away
from qos.rest.paths import next_url, url
from qos.rest.replying import reply_links

if TYPE_CHECKING:
    from qos.rest.gateway import Gateway
    from qos.users import Grant

__all__ = [
    "WaitingConsumer",
    "acknowledge",
    "form_of",
    "message_answer",
    "none_yet",
    "read",
    "shown",
    "take",
]

log = logging.getLogger(__name__)

P = ParamSpec("P")

_FORM = "application/x-www-form-urlencoded"

#: Seconds for which a new selector is evaluated for the items that are there, if the
#: client does not want to wait.
_LOOK_S = 1.0

#: A message may be of any type, and browsers must not take it for a page of ours.
_GUARDED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
}


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
        gateway: Gateway,
        node: str,
        account: str,
        resource: str = "",
        *,
        grant: Grant | None,
    ) -> None:
        """Begin without a subscription.

        Args:
            gateway: that has the request.
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
        self._gateway = gateway
        self._node = node
        self._over = False
        loop = asyncio.get_running_loop()
        self._found: asyncio.Future[tuple[Item, str]] = loop.create_future()

    async def take(self, selector: str, wait: Wait) -> tuple[Item, str] | None:
        """Wait for an item and its payload; None: none came.

        Raises:
            Refusal: the subscription is refused, or ended by the service.
        """
        engine = self._gateway.engine
        options = {QUEUE_REQUESTS: "1"}
        if selector:
            options[SELECTOR] = selector
        self._gateway.consumers[self.jid] = self
        try:
            # When this is answered, an item that is there has been handed over too.
            subscribe = Subscribe(self._node, self.jid, options, link=True)
            await ask(engine, subscribe, self.jid)
            offered = asyncio.Event()
            loop = asyncio.get_running_loop()
            # A large item may wait for a turn of the account after that.
            sent = partial(engine.when_sent, self.jid, offered.set)
            engine.when_offered(self._node, self.jid, partial(loop.call_soon, sent))
            with contextlib.suppress(TimeoutError):
                # A selector may need longer for the items that are there.
                async with asyncio.timeout(wait.seconds or _LOOK_S):
                    await self._first(offered.wait())
                    if wait.seconds:
                        await asyncio.shield(self._found)
            if not self._found.done():
                return None
            if self.grant is not None and not self._gateway.users.stands(self.grant):
                raise taken_away()
            return self._found.result()
        except BaseException:
            # The client has gone.
            if self._found.done() and not self._found.exception():
                self.release(self._found.result()[0])
            raise
        finally:
            self._end()

    async def _first(self, other: Coroutine[None, None, object]) -> None:
        """Wait for this, or until there is an item or a refusal."""
        waiting = asyncio.ensure_future(other)
        try:
            await asyncio.wait(
                (waiting, self._found), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()

    def release(self, item: Item) -> None:
        """Give back an item that the client has not seen; that does not count."""
        settlement = Settlement(
            item_id=item.item_id, token=item.token, outcome=ItemOutcome.RELEASED
        )
        engine = self._gateway.engine
        engine.request(Unlock(self._node, (settlement,)), self.jid, _ignore)
        engine.departed(self.jid)

    def fail(self, refusal: Refusal) -> None:
        """Stop waiting."""
        if not self._found.done():
            self._found.set_exception(refusal)
            # It may have no one who waits for it yet.
            self._found.exception()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            request = Unsubscribe(self._node, self.jid)
            self._gateway.engine.request(request, self.jid, self._ended)

    def _ended(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        """Note the end of the subscription: no more items will be locked for this consumer."""
        if isinstance(result, Unwritten):
            self.unwritten = result
        self._gateway.consumers.pop(self.jid, None)
        if not self._found.done():
            self._gateway.engine.departed(self.jid)
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
            if self._over or self._found.done():
                self.release(item)
            else:
                self._found.set_result((item, payload))
                self._end()

    def dropped(self, item: Item) -> None:
        """See Consumer: another item may come."""

    def notify(self, notification: Notification) -> None:
        """See Consumer."""
        match notification:
            case NotifyNode(what="delete"):
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


# -- handlers --------------------------------------------------------------


async def take(call: Call) -> Answer:
    """Take an item; wait for one, if the client asks for that."""
    wait = wait_of(call.headers)
    consumer = WaitingConsumer(call.gateway, call.node, call.account, grant=call.grant)
    found = await consumer.take(call.query.get("selector", ""), wait)
    applied = {"Preference-Applied": wait.applied} if wait.applied else {}
    if found is None:
        again = url("consumer", node=call.node)
        if "selector" in call.query:
            again += f"?{urlencode({'selector': call.query['selector']})}"
        answer = none_yet(again, "poller")
        answer.headers |= applied
        return answer
    item, payload = found
    answer = shown(call, item, payload)
    answer.headers |= applied
    etag = f"{consumer.resource}.{item.token}"
    href = url("acknowledgement", node=call.node, item=item.item_id, etag=etag)
    answer.links = fitting([Link(href, "acknowledgement"), *answer.links])

    def sent(whole: bool) -> None:
        if not whole:
            consumer.release(item)

    answer.sent = sent
    return answer


def none_yet(again: str, rel: str) -> Answer:
    """The answer that there is no message yet.

    Args:
        again: the URL to ask again, as a path.
        rel: its relation.
    """
    answer = as_text(202, "there is no message yet; ask again")
    answer.headers |= {"Location": again, "Retry-After": "0"}
    answer.links.append(Link(again, rel))
    return answer


async def acknowledge(call: Call) -> Answer:
    """End a delivery, or extend its lock."""
    resource, _, token = call.path["etag"].partition(".")
    request = read_acknowledgement(
        # An empty token would mean any delivery.
        form_of(call),
        node=call.node,
        item_id=call.path["item"],
        token=token or "-",
    )
    jid = consumer_jid(call.account, "http", resource)
    result, _ = await call.ask(request, jid)
    if isinstance(request, Extend):
        return Answer(204)
    # It holds nothing any more, and is not heard of again.
    call.gateway.engine.departed(jid)
    assert isinstance(result, Ok)
    if result.repeated:
        return as_text(405, "it was done before", Allow="OPTIONS")
    return Answer(204)


def form_of(call: Call) -> str:
    """The form in the body; '' (no form) if it is not UTF-8.

    Raises:
        Refusal: the body is of another type.
    """
    kind = call.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
    if kind != _FORM:
        text = f"a form is expected ({_FORM})"
        raise Refusal(text, condition="unsupported-media-type", type="modify")
    try:
        return call.body.decode()
    except UnicodeDecodeError:
        return ""


async def read(call: Call) -> Answer:
    """Show a message, without taking it."""
    request = Items(node=call.node, item_ids=(call.path["item"],))
    result, payloads = await call.ask(request)
    assert isinstance(result, ItemsResult)
    for item in result.items:
        if item.seq in payloads:
            return shown(call, item, payloads[item.seq])
    text = f"there is no message {call.path['item']!r}"
    raise Refusal(text, condition="item-not-found", type="cancel")


def shown(call: Call, item: Item, payload: str) -> Answer:
    """A message, with the links of its own."""
    answer = message_answer(item, payload, render_headers(item))
    itself = Link(call.url("message", item=item.item_id), "self")
    kind = "topic" if call.topic else "queue"
    following = [Link(next_url(call.node, item.seq), "next")] if call.topic else []
    # Those that a client needs most come first.
    answer.links = fitting(
        [
            *following,
            *reply_links(call, item, payload),
            Link(url(kind, node=call.node), "generator"),
            itself,
        ]
    )
    return answer


def message_answer(item: Item, payload: str, headers: Mapping[str, str]) -> Answer:
    """An answer with a message, without links.

    Args:
        item: the message.
        payload: of the item.
        headers: that tell about it, beside those that came with it.
    """
    body, kept = render_message(item, payload)
    kept = {name.title(): value for name, value in kept.items()}
    return Answer(200, {**headers, **kept, **_GUARDED}, body=body)
