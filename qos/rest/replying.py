"""The queue for replies: a publisher names it in a message, and a worker gets links to it.

A worker gets the links only if it may publish to that queue, and if the publisher of the
message may do so too (`qos.core.queue.replies`).
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.item import Item
from qos.core.queue.properties import Properties
from qos.core.queue.replies import REPLY_TO
from qos.core.queue.requests import Refusal
from qos.core.rest.link_header import Link
from qos.core.rest.replying import correlation_of, split_reply_to, with_correlation
from qos.rest.calls import Call
from qos.rest.paths import find, url

__all__ = ["read_reply_to", "reply_links"]

#: The relation, and the route of the queue that it leads to.
_RELS = (("reply-to", "messages"), ("reply-to-batch", "batches"))
_ONCE_RELS = (("reply-to-once", "once"), ("reply-to-batch-once", "batchonce"))


def read_reply_to(
    call: Call, headers: Mapping[str, str]
) -> tuple[Mapping[str, str], Properties]:
    """The queue for replies that a message names.

    Returns:
        The other headers, and the properties with the name of the queue.

    Raises:
        Refusal: the URL is of this service, and of no queue that the user may publish
            to.
    """
    header = headers.get("link", "")
    if "reply-to" not in header.lower():
        return headers, {}
    rest, path = split_reply_to(header, call.base, call.url("messages"))
    if path is None:
        return headers, {}
    match = None if {"?", "#"} & set(path) else find(path)
    if match is None or match[0] not in {"queue", "topic"}:
        raise _bad(f"{path!r} is no queue; /queues/NAME is expected")
    name = match[1]["node"]
    rights = call.services.engine.rights(name, call.jid)
    if rights is None or not rights.publish:
        raise _bad(f"there is no queue {name!r} that {call.account} may publish to")
    return {**headers, "link": rest}, {REPLY_TO: name}


def _bad(why: str) -> Refusal:
    text = f"Link: rel reply-to: {why}"
    return Refusal(text, condition="bad-request", type="modify")


def reply_links(call: Call, item: Item, payload: str) -> list[Link]:
    """The links for replies to a message, for the user who reads it.

    Args:
        call: of the reader.
        item: the message.
        payload: of the item.
    """
    engine, name = call.services.engine, item.properties.get(REPLY_TO)
    if not isinstance(name, str):
        return []
    kind, rights = engine.node_type(name), engine.rights(name, call.jid)
    if kind is None or rights is None or not rights.publish:
        return []
    prefix = "topic-" if kind == "topic" else ""
    text = correlation_of(item, payload)
    return [
        Link(with_correlation(url(f"{prefix}{route}", node=name), text), rel)
        for rel, route in (*_RELS, *(_ONCE_RELS if rights.once_s else ()))
    ]
