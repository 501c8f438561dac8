"""Push subscribers as resources: made, shown, switched, and ended."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from qos.core.content_headers import is_header_value
from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Refusal
from qos.core.rest.link_header import Link
from qos.core.rest.push_links import read_atom_link
from qos.ids import new_id
from qos.rest.calls import Answer, Call
from qos.rest.paths import url
from qos.rest.push.pusher import Pusher

__all__ = ["check_own", "subscriber", "subscribers", "switch"]

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-store"}

#: The most characters of a header Authorization for a target.
_AUTHORIZATION_CHARS_MAX = 4096

_ENABLED = {"true": True, "false": False}


async def subscribers(call: Call) -> Answer:
    """Make a push subscriber, or list those of the user (docs/rest-checklist.md U1, R4)."""
    _check_right(call, call.node)
    if call.method != "POST":
        pushers = call.services.pushers.of(call.node, call.account)
        return Answer(
            200,
            dict(_JSON),
            body=_as_json([_description(call, pusher) for pusher in pushers]),
        )
    link = read_atom_link(call.body, call.headers.get("content-type", ""))
    href = call.services.pushers.target(link.href)
    subscriber = PushSubscriber(
        subscriber_id=new_id(),
        node=call.node,
        account=call.account,
        rel=link.rel,
        href=href,
        base=call.base,
        authorization=_authorization(call),
        created_at=call.services.engine.now(),
    )
    await call.services.pushers.add(subscriber)
    return Answer(201, {"Location": _url(subscriber)})


async def check_own(call: Call) -> None:
    """Check that the push subscriber of the path is the user's."""
    _own(call)


def _own(call: Call) -> Pusher:
    """Raises Refusal: the user has no such push subscriber."""
    pushers, its_id = call.services.pushers, call.path["subscriber"]
    pusher = pushers.find(call.node, call.account, its_id)
    if pusher is None:
        text = f"you have no such push subscriber of {call.node!r}"
        raise Refusal(text, condition="item-not-found", type="cancel")
    return pusher


async def subscriber(call: Call) -> Answer:
    """Show a push subscriber, switch it on or off, or end it.

    docs/rest-checklist.md U8.
    """
    pusher = _own(call)
    if call.method == "DELETE":
        await call.services.pushers.remove(pusher)
        return Answer(204)
    if call.method == "POST":
        return await switch(call, pusher)
    self_link = Link(_url(pusher.subscriber), "self")
    queue = Link(url("queue", node=call.node), "generator")
    return Answer(
        200, dict(_JSON), [self_link, queue], _as_json(_description(call, pusher))
    )


async def switch(call: Call, pusher: Pusher) -> Answer:
    """Enable or disable a push subscriber of the user, by a form."""
    form = parse_qs(call.body.decode(errors="replace"), keep_blank_values=True)
    enabled = _ENABLED.get(form.get("enabled", [""])[0])
    if enabled is None or len(form) != 1:
        raise _bad("the form is enabled=true or enabled=false")
    if enabled:
        _check_right(call, pusher.subscriber.node)
        await pusher.enable()
    elif pusher.subscriber.enabled or not pusher.is_written:
        await pusher.disable("it was disabled on request")
    return Answer(204)


def _description(call: Call, pusher: Pusher) -> dict[str, Any]:
    subscriber = pusher.subscriber
    return {
        "location": call.below(_url(subscriber)),
        "rel": subscriber.rel,
        "href": subscriber.href,
        "enabled": subscriber.enabled,
        "failures": pusher.failures,
        "reason": subscriber.reason,
    }


def _authorization(call: Call) -> str:
    """Raises Refusal: it is no value of a header."""
    header = call.headers.get("push-authorization", "")
    if header and (
        len(header) > _AUTHORIZATION_CHARS_MAX or not is_header_value(header)
    ):
        raise _bad("Push-Authorization is not the value of a header Authorization")
    return header


def _check_right(call: Call, node: str) -> None:
    """Raises Refusal: the user may not consume."""
    if not call.rights(node).subscribe:
        text = f"you may not subscribe to {node!r}"
        raise Refusal(text, condition="forbidden", type="auth")


def _url(subscriber: PushSubscriber) -> str:
    return url("subscriber", node=subscriber.node, subscriber=subscriber.subscriber_id)


def _as_json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")
