"""Queues and their messages: found, made and posted.

docs/rest-checklist.md H2 to H6, H15 and H16.

A post to `create` is sent on to a one-off link, which makes one message however often it
is repeated. A queue that remembers no ids allows duplicates: there the post itself makes
a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.node_options import NODE_TYPE
from qos.core.queue.requests import Create, Publish, PublishedItem, Refusal
from qos.core.rest.hornetq.forms import create_query, node_name
from qos.core.rest.hornetq.names import plain_name, properties_of
from qos.core.rest.link_header import Link
from qos.core.rest.messages import reading_message
from qos.core.rest.statuses import Act, status_of
from qos.engine.queue_state import Rights
from qos.ids import new_id, new_key
from qos.rest.calls import Answer, Call, as_text
from qos.rest.hornetq.links import absolute
from qos.rest.hornetq.paths import url
from qos.xml_text import attribute, text
from xep_0254.request_items import ITEM_BYTES_MAX, ITEM_ID_CHARS_MAX
from xep_0254.requests import NODE_CHARS_MAX

__all__ = [
    "create",
    "create_with_id",
    "queue",
    "queues",
    "rights_at",
    "sent_on",
    "topic",
    "topics",
]

_USE = "hornetq-create"
_XML = "application/xml"
_ATOM = "http://www.w3.org/2005/Atom"


# -- queues ----------------------------------------------------------------


async def queues(call: Call) -> Answer:
    """Make a queue."""
    return await _make(call, "queue", {})


async def topics(call: Call) -> Answer:
    """Make a topic."""
    return await _make(call, "topic", {NODE_TYPE: "topic"})


async def _make(call: Call, kind: str, config: Mapping[str, str]) -> Answer:
    name = node_name(call.body, call.headers.get("content-type", ""), kind)
    name = plain_name(name, kind)
    if len(name) > NODE_CHARS_MAX:
        raise _bad(f"the name of a {kind} has at most {NODE_CHARS_MAX} characters")
    try:
        await call.ask(Create(name, config))
    except Refusal as refusal:
        if refusal.condition != "conflict":
            raise
        return as_text(412, str(refusal))
    return Answer(201, {"Location": url(f"hornetq-{kind}", node=name)})


async def queue(call: Call) -> Answer:
    """A queue: its links by what the user may do."""
    return _description(call, "queue", "pull-consumers", "push-consumers")


async def topic(call: Call) -> Answer:
    """A topic; its messages are posted as those of a queue are."""
    return _description(call, "topic", "pull-subscriptions", "push-subscriptions")


def _description(call: Call, kind: str, *consumers: str) -> Answer:
    rights = rights_at(call, kind)
    links = []
    if rights.publish:
        create_url = url("hornetq-create", node=call.node)
        links += [
            Link(create_url, "create"),
            # A template: the braces are for the client.
            Link(f"{create_url}/{{id}}", "create-with-id"),
        ]
    if rights.subscribe:
        links += [Link(url(f"hornetq-{rel}", node=call.node), rel) for rel in consumers]
    atom_links = "".join(
        f"<atom:link rel={attribute(link.rel)} href={attribute(absolute(call, link.href))}/>"
        for link in links
    )
    name = f"<name>{text(call.node)}</name>"
    body = f"<{kind} xmlns:atom='{_ATOM}'>{name}{atom_links}</{kind}>".encode()
    return Answer(200, {"Content-Type": _XML}, links, body)


def rights_at(call: Call, kind: str) -> Rights:
    """The rights of the user at a node of this kind.

    Raises:
        Refusal: there is no such node, or it is hidden from the user.
    """
    rights = call.rights()
    if call.services.engine.is_topic(call.node) != (kind == "topic"):
        raise Refusal(
            f"there is no {kind} {call.node!r}",
            condition="item-not-found",
            type="cancel",
        )
    return rights


# -- messages --------------------------------------------------------------


async def sent_on(call: Call) -> Answer | None:
    """Send a message on to its one-off link; None: duplicates are allowed."""
    if not call.rights().once_s:
        return None
    answer = as_text(307, "send it again, to the URL in Location")
    answer.headers["Location"] = _one_off(call)
    return answer


async def create(call: Call) -> Answer:
    """Make a message where duplicates are allowed."""
    answer = await sent_on(call)
    if answer is not None:
        return answer
    entry = await _entry(call, new_key())
    await call.ask(Publish(call.node, (entry,), new_ids=True))
    return _created(call)


async def create_with_id(call: Call) -> Answer:
    """Make the message of a one-off link, or of an id that the client has chosen."""
    path_id = call.path["id"]
    link = call.services.one_off.read(path_id, _USE, call.node, call.account)
    if link is None and (len(path_id) > ITEM_ID_CHARS_MAX or not path_id.isprintable()):
        raise _bad(f"an id has at most {ITEM_ID_CHARS_MAX} printable characters")
    entry = await _entry(call, path_id if link is None else link.item_id)
    issued_at = None if link is None else link.issued_at
    try:
        await call.ask(Publish(call.node, (entry,), issued_at=issued_at))
    except Refusal as refusal:
        if refusal.condition != "gone":
            raise
        answer = as_text(status_of(Act.POST, refusal), str(refusal))
        answer.links.append(Link(_one_off(call), "create-next"))
        return answer
    return _created(call)


def _created(call: Call) -> Answer:
    """A message has been made, now or before."""
    rights = call.services.engine.rights(call.node, call.jid)
    href = url("hornetq-create", node=call.node)
    if rights is not None and rights.once_s:
        href = _one_off(call)
    return Answer(201, links=[Link(href, "create-next")])


def _one_off(call: Call) -> str:
    services = call.services
    token = services.one_off.new(
        _USE, call.node, call.account, item_id=new_id(), now=services.engine.now()
    )
    return url("hornetq-create-id", node=call.node, id=token)


async def _entry(call: Call, item_id: str) -> PublishedItem:
    reading = reading_message(
        call.body,
        call.headers,
        create_query(call.query),
        item_id=item_id,
        now=call.services.engine.now(),
        bytes_max=ITEM_BYTES_MAX,
        more=properties_of(call.headers, call.services.property_headers),
    )
    return await call.stepped(reading)


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")
