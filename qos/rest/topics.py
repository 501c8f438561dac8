"""Topics: their messages read one by one, without a session, and subscriptions to them.

A reader follows links: each message has a link to the next one, with its own seq. The
service stores nothing for a reader. A subscription is a queue, and is consumed like one.
"""

from __future__ import annotations

import asyncio
import contextlib

from qos.core.queue.node_options import SELECTOR, TOPIC
from qos.core.queue.requests import (
    Create,
    Delete,
    GetConfigure,
    Items,
    Refusal,
)
from qos.core.queue.results import ConfigureResult, ItemsResult
from qos.core.rest.forms import (
    SubscriptionForm,
    read_cursor,
    read_subscription,
)
from qos.core.rest.link_header import Link
from qos.core.rest.waits import wait_of
from qos.rest.calls import Answer, Call, may_not_subscribe
from qos.rest.consuming import form_of, none_yet, shown
from qos.rest.paths import next_url, url
from xep_0254.requests import NODE_CHARS_MAX

__all__ = [
    "first",
    "following",
    "last",
    "latest_seq",
    "subscribe",
    "subscription",
]


# -- readers ---------------------------------------------------------------


async def first(call: Call) -> Answer:
    """The oldest message that the topic keeps."""
    return await _read(call, "first", 0, last=False)


async def last(call: Call) -> Answer:
    """The newest message."""
    return await _read(call, "last", 0, last=True)


async def following(call: Call) -> Answer:
    """The next message after a seq; without one, the next that is published."""
    after = call.query.get("after")
    seq = await latest_seq(call) if after is None else read_cursor(after)
    return await _read(call, "next", seq, last=False)


async def latest_seq(call: Call) -> int:
    """The seq of the latest message, also of one that is not kept any more."""
    result, _ = await call.ask(Items(node=call.node, max_items=1, last=True))
    assert isinstance(result, ItemsResult)
    return max([result.dropped, *(item.seq for item in result.items)])


async def _read(call: Call, rel: str, after: int, *, last: bool) -> Answer:
    """Show a message; wait for one, if there is none and the client asks for that."""
    wait = wait_of(call.headers)
    applied = {"Preference-Applied": wait.applied} if wait.applied else {}
    request = Items(node=call.node, max_items=1, after=str(after), last=last)
    gateway, answer = call.services, None
    with gateway.engine.watching(call.node) as changed:
        answer = await _page(call, request)
        gateway.readers.add(changed)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait.seconds):
                    while answer is None and wait.seconds:
                        await changed.wait()
                        changed.clear()
                        if gateway.closing:
                            raise _stops()
                        call.check_grant()
                        answer = await _page(call, request)
        finally:
            gateway.readers.discard(changed)
    if answer is None:
        again = url(f"topic-{rel}", node=call.node)
        if rel == "next":
            again = next_url(call.node, after)
        answer = none_yet(again, rel)
    answer.headers |= applied
    return answer


async def _page(call: Call, request: Items) -> Answer | None:
    result, payloads = await call.ask(request)
    assert isinstance(result, ItemsResult)
    for item in result.items:
        # An item without a payload was dropped at this moment: look for a later one.
        if item.seq in payloads:
            answer = shown(call, item, payloads[item.seq])
            after = int(request.after)
            if after and result.dropped > after:
                answer.headers["Msg-Missed"] = "true"
            return answer
        return await _page(call, request)
    return None


def _stops() -> Refusal:
    return Refusal("the service stops", condition="internal-server-error", type="wait")


# -- subscriptions ---------------------------------------------------------


async def subscribe(call: Call) -> Answer:
    """Create a queue that copies from the topic; the same again is no error."""
    rights = call.services.engine.rights(call.node, call.jid)
    if rights is None:
        raise _none(call.node)
    if not rights.subscribe:
        raise may_not_subscribe(call.node, call.account)
    form = read_subscription(form_of(call), name_chars_max=NODE_CHARS_MAX)
    config = {TOPIC: call.node}
    if form.selector:
        config[SELECTOR] = form.selector
    try:
        await call.ask(Create(form.name, config))
    except Refusal as refusal:
        if refusal.condition != "conflict":
            raise
        if not await _is_there(call, form):
            text = (
                f"{form.name!r} is in use, or has another selector: choose another name"
            )
            raise Refusal(text, condition="conflict", type="cancel") from refusal
        return _subscription(call, form.name, Answer(200))
    location = url("topic-subscription", node=call.node, queue=form.name)
    return _subscription(call, form.name, Answer(201, {"Location": location}))


async def subscription(call: Call) -> Answer:
    """Show the links of a subscription, or delete it with its queue."""
    name = call.path["queue"]
    if await _config(call, name) is None:
        raise _none(name)
    if call.method == "DELETE":
        await call.ask(Delete(name))
        return Answer(204)
    return _subscription(call, name, Answer(200))


async def _is_there(call: Call, form: SubscriptionForm) -> bool:
    """Whether this very subscription is the user's already."""
    config = await _config(call, form.name)
    return config is not None and config.get(SELECTOR, "") == form.selector


async def _config(call: Call, name: str) -> dict[str, str] | None:
    """The configuration of a queue that the user has made to copy from this topic.

    None: there is none. A queue of somebody else is none of the user's subscriptions,
    even if its creator has made the user an owner too: nobody asks for that right.
    """
    try:
        result, _ = await call.ask(GetConfigure(name))
    except Refusal as refusal:
        if refusal.condition in {"forbidden", "item-not-found"}:
            return None
        raise
    assert isinstance(result, ConfigureResult)
    assert result.node is not None
    node = result.node
    is_own = node.creator == call.account and node.config.get(TOPIC) == call.node
    return node.config if is_own else None


def _subscription(call: Call, name: str, answer: Answer) -> Answer:
    consumer = url("consumer", node=name)
    answer.links += [
        Link(consumer, "consumer"),
        Link(consumer, "poller"),
        Link(url("queue", node=name), "queue"),
        Link(url("topic", node=call.node), "generator"),
    ]
    return answer


def _none(name: str) -> Refusal:
    text = f"there is no topic or subscription {name!r}"
    return Refusal(text, condition="item-not-found", type="cancel")
