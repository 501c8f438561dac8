"""Posting: messages, batches, and both once by one-off links."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qos.core.queue.requests import (
    Publish,
    PublishedItem,
    Refusal,
    may_not_publish,
)
from qos.core.queue.results import PublishResult
from qos.core.rest.batches import Part, reading_batch
from qos.core.rest.link_header import Link
from qos.core.rest.messages import reading_message
from qos.core.rest.one_off import OneOff
from qos.core.rest.replying import QUERY, read_correlation, with_correlation
from qos.core.rest.statuses import Act, status_of
from qos.ids import new_id, new_key
from qos.rest.calls import Answer, Call, as_text
from qos.rest.replying import read_reply_to
from qos.steps import Steps
from xep_0254.request_items import ITEM_BYTES_MAX, ITEM_ID_CHARS_MAX

__all__ = [
    "USED",
    "batch",
    "batch_factory",
    "check_batch_link",
    "check_link",
    "factory",
    "idempotency_key",
    "link_of",
    "message",
    "post",
    "post_batch",
]

#: The methods that a link has after it was used.
USED = {"Allow": "OPTIONS"}

#: The route of the links that a factory makes.
_LINKS = {"once": "post", "batchonce": "postbatch"}

_QUOTED_KEY = re.compile(r'"((?:[^"\\]|\\.)*)"')


# -- with the ids of the client, or without --------------------------------


async def message(call: Call) -> Answer:
    """Post a message; an `Idempotency-Key` is the id of its item."""
    key = idempotency_key(call.headers)
    reading = _reading(call, call.body, call.headers, key or new_key())
    entry = await call.stepped(reading)
    await call.ask(Publish(call.node, (entry,), new_ids=not key))
    return Answer(200, {"Content-Location": _location(call, entry.item_id)})


async def batch(call: Call) -> Answer:
    """Post several messages, all or none; each may have an `Idempotency-Key`."""
    parts = await _parts(call)
    keys = [idempotency_key(part.headers) for part in parts]
    ids = [key or new_key() for key in keys]
    if len(set(ids)) < len(ids):
        raise _bad("two messages of the batch have the same Idempotency-Key")
    entries = await _entries(call, parts, ids)
    await call.ask(Publish(call.node, entries, new_ids=not any(keys)))
    return _listed(call, entries)


# -- once ------------------------------------------------------------------


async def factory(call: Call) -> Answer:
    """Give a one-off link for a message."""
    return _made(call, "once")


async def batch_factory(call: Call) -> Answer:
    """Give a one-off link for a batch."""
    return _made(call, "batchonce")


async def check_link(call: Call) -> None:
    """Check that the one-off link of a message is the user's."""
    link_of(call, "once", call.node)


async def check_batch_link(call: Call) -> None:
    """Check that the one-off link of a batch is the user's."""
    link_of(call, "batchonce", call.node)


async def post(call: Call) -> Answer:
    """Post a message to its one-off link."""
    link = link_of(call, "once", call.node)
    reading = _reading(call, call.body, call.headers, link.item_id)
    entry = await call.stepped(reading)
    answer = Answer(200, {"Content-Location": _location(call, entry.item_id)})
    return await _once(call, "once", (entry,), link, answer)


async def post_batch(call: Call) -> Answer:
    """Post a batch to its one-off link."""
    link = link_of(call, "batchonce", call.node)
    parts = await _parts(call)
    # Each batch has an item with the first id, so this id tells whether the link was used.
    ids = [f"{link.item_id}-{number}" for number in range(len(parts))]
    entries = await _entries(call, parts, ids)
    return await _once(call, "batchonce", entries, link, _listed(call, entries))


async def _once(
    call: Call,
    use: str,
    entries: tuple[PublishedItem, ...],
    link: OneOff,
    answer: Answer,
) -> Answer:
    try:
        result, _ = await call.ask(
            Publish(call.node, entries, issued_at=link.issued_at)
        )
    except Refusal as refusal:
        if refusal.condition != "gone":
            raise
        answer = as_text(status_of(Act.POST, refusal), str(refusal))
    else:
        assert isinstance(result, PublishResult)
        if result.repeated:
            answer = as_text(405, "it was posted before", **USED)
    answer.links.append(_next(call, use))
    return answer


def _made(call: Call, use: str) -> Answer:
    rights = call.rights()
    if not rights.publish:
        raise may_not_publish(call.node, call.account)
    if not rights.once_s:
        text = (
            f"{call.node!r} remembers no ids (dedupe_window), so nothing is posted once"
        )
        return as_text(409, text)
    if QUERY in call.query:
        read_correlation(call.query[QUERY])
    return Answer(200, links=[_next(call, use)])


def _next(call: Call, use: str) -> Link:
    services = call.services
    token = services.one_off.new(
        use, call.node, call.account, item_id=new_id(), now=services.engine.now()
    )
    href = call.url(_LINKS[use], link=token)
    text = call.query.get(QUERY, "")
    return Link(with_correlation(href, text), "create-next")


def link_of(call: Call, use: str, to: str) -> OneOff:
    """The one-off link of the URL.

    Args:
        call: of the user.
        use: of the link.
        to: the node or the device that it leads to.

    Raises:
        Refusal: it was not made here, or not for this user.
    """
    link = call.services.one_off.read(call.path["link"], use, to, call.account)
    if link is None:
        text = "this link was not made here, or not for you"
        raise Refusal(text, condition="item-not-found", type="cancel")
    return link


# -- items -----------------------------------------------------------------


async def _parts(call: Call) -> list[Part]:
    """The messages of a batch."""
    reading = reading_batch(call.body, call.headers.get("content-type", ""))
    return await call.stepped(reading)


async def _entries(
    call: Call, parts: Sequence[Part], ids: Sequence[str]
) -> tuple[PublishedItem, ...]:
    """The items of a batch."""

    def reading() -> Steps[tuple[PublishedItem, ...]]:
        entries: list[PublishedItem] = []
        for part, item_id in zip(parts, ids, strict=True):
            yield
            entry = yield from _reading(call, part.body, part.headers, item_id)
            entries.append(entry)
        return tuple(entries)

    return await call.stepped(reading())


def _reading(
    call: Call, body: bytes, headers: Mapping[str, str], item_id: str
) -> Steps[PublishedItem]:
    """The item of a message, in steps."""
    headers, reply_to = read_reply_to(call, headers)
    return reading_message(
        body,
        headers,
        call.query,
        item_id=item_id,
        now=call.services.engine.now(),
        bytes_max=ITEM_BYTES_MAX,
        more=reply_to,
    )


def idempotency_key(headers: Mapping[str, str]) -> str:
    """The Idempotency-Key, with or without quotes; '': there is none."""
    key = headers.get("idempotency-key")
    if key is None:
        return ""
    key = key.strip()
    quoted = _QUOTED_KEY.fullmatch(key)
    if quoted is not None:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    # An empty one is a variable that a script forgot to set: a repeat would be another post.
    is_key = 0 < len(key) <= ITEM_ID_CHARS_MAX and key.isascii() and key.isprintable()
    if not is_key:
        raise _bad(f"Idempotency-Key: 1 to {ITEM_ID_CHARS_MAX} characters of ASCII")
    return key


def _location(call: Call, item_id: str) -> str:
    return call.url("message", item=item_id)


def _listed(call: Call, entries: Sequence[PublishedItem]) -> Answer:
    """The URLs of the messages of a batch (RFC 2483 §5)."""
    urls = (call.below(_location(call, entry.item_id)) for entry in entries)
    lines = "".join(f"{location}\r\n" for location in urls)
    return Answer(200, {"Content-Type": "text/uri-list"}, body=lines.encode())


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")
