"""Consuming: a request is a subscriber for as long as it waits, and gets one item.

It subscribes, gets its item, and unsubscribes: a lock outlives its subscription. The URL
for the acknowledgement has the full JID that holds the lock and the token of the delivery,
so that nothing is kept here for a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.item import Item
from qos.core.queue.requests import (
    Extend,
    Items,
    Refusal,
)
from qos.core.queue.results import ItemsResult, Ok
from qos.core.rest.forms import read_acknowledgement
from qos.core.rest.link_header import Link
from qos.core.rest.messages import render_headers, render_message
from qos.core.rest.waits import wait_of
from qos.rest.calls import Answer, Call, as_text
from qos.rest.paths import next_url, url
from qos.rest.replying import reply_links
from qos.rest.waiting import WaitingConsumer

__all__ = [
    "acknowledge",
    "form_of",
    "message_answer",
    "none_yet",
    "read",
    "shown",
    "take",
]


_FORM = "application/x-www-form-urlencoded"

#: A message may be of any type, and browsers must not take it for a page of ours.
_GUARDED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
}


# -- handlers --------------------------------------------------------------


async def take(call: Call) -> Answer:
    """Take an item; wait for one, if the client asks for that."""
    wait = wait_of(call.headers)
    consumer = WaitingConsumer(call.services, call.node, call.account, grant=call.grant)
    delivery = await consumer.take(call.query.get("selector", ""), wait)
    applied = {"Preference-Applied": wait.applied} if wait.applied else {}
    if delivery is None:
        again = url("consumer", node=call.node)
        if "selector" in call.query:
            again += f"?{urlencode({'selector': call.query['selector']})}"
        answer = none_yet(again, "poller")
        answer.headers |= applied
        return answer
    item, payload = delivery
    answer = shown(call, item, payload)
    answer.headers |= applied
    etag = f"{consumer.resource}.{item.token}"
    href = url("acknowledgement", node=call.node, item=item.item_id, etag=etag)
    answer.links.insert(0, Link(href, "acknowledgement"))
    answer.needs = (answer.needs or 0) + 1

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
    call.services.engine.departed(jid)
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
    first_links = [*following, *reply_links(call, item, payload)]
    answer.links = [*first_links, Link(url(kind, node=call.node), "generator"), itself]
    answer.needs = len(first_links)
    return answer


def message_answer(item: Item, payload: str, headers: Mapping[str, str]) -> Answer:
    """An answer with a message, without links; see `qos.rest.handlers`.

    Args:
        item: the message.
        payload: of the item.
        headers: that tell about it, beside those that came with it.
    """
    body, content_headers = render_message(item, payload)
    content_headers = {name.title(): value for name, value in content_headers.items()}
    return Answer(200, {**headers, **content_headers, **_GUARDED}, body=body, needs=0)
