"""An HTTP message as an assured message to a device, and its outcome as JSON.

A text becomes the `<body/>` of the message. An XML element is a child of the message, as
it is. Any other body is in the element that `qos.core.contents` has for it.

The service sends for its users. If it is a component, a message is from the address of
the user, at the domain of the component. Otherwise it can only be from the service
itself, and names the user as its *original from* (XEP-0033 §4.1, `ofrom`). Then a user
cannot send elements of XMPP's own protocols: devices would take them for the service's,
such as the events that bring the items of its queues.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from qos.core.content_headers import KEPT, why_no_header
from qos.core.message.model import Ended, Outgoing
from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.core.rest.messages import is_utf8, reading_payload, ttl_of
from qos.errors import why_not_delivered
from qos.steps import Steps
from qos.xml_reading import first_tag
from qos.xml_text import CLIENT, attribute, text

__all__ = ["TTL_S", "Sending", "reading_sending", "render_outcome"]

#: Seconds until a message that its device has not got ends, if its user says nothing.
TTL_S = 7 * 24 * 3600.0

#: What a message to a device does not carry.
_HEADERS = ("content-encoding", "content-language", "link", "msg-properties")
_PARAMETERS = ("delay", "priority")

#: The namespaces of XMPP, and of this package.
_PROTOCOL = re.compile(
    r"jabber:|urn:xmpp:|urn:ieee:iot:|urn:nf:iot:|urn:ietf:params:xml:ns:xmpp-|storage:"
    r"|vcard-temp|xmpp-qos:|https?://(?:jabber\.org|etherx\.jabber\.org)/"
)

_ADDRESSES = "http://jabber.org/protocol/address"


@record(frozen=True, slots=True)
class Sending:
    """A message to be sent.

    Attributes:
        payload: a message without addresses.
        digest: of what the user has posted.
        ttl_s: seconds until it ends as not delivered.
    """

    payload: str
    digest: str
    ttl_s: float


def reading_sending(
    body: bytes,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    now: float,
    original_from: str = "",
) -> Steps[Sending]:
    """Read a post as a message to a device, in steps.

    Args:
        body: as it came.
        headers: by their names in lower case.
        query: `ttl` (ms) and `expiration` (ms since 1970, which wins).
        now: the time.
        original_from: the account of the user, if the message is from the service.

    Raises:
        Refusal: it cannot be sent.
    """
    for name in _HEADERS:
        if headers.get(name):
            raise _bad(f"{name}: a message to a device does not carry it")
    for name in _PARAMETERS:
        if name in query:
            raise _bad(f"{name}: a message to a device has none")
    content_type = headers.get("content-type", "").strip()
    if content_type and (why := why_no_header(KEPT["content-type"], content_type)):
        raise _bad(why)
    content = yield from _content(body, content_type)
    if original_from:
        _check_foreign(content)
    inner = f"{content}{_addresses(original_from)}" if original_from else content
    ttl_s = ttl_of(query, now)
    return Sending(
        payload=f"<message xmlns='{CLIENT}'>{inner}</message>",
        digest=hashlib.sha256(content.encode()).hexdigest()[:32],
        ttl_s=TTL_S if ttl_s is None else ttl_s,
    )


def _content(body: bytes, content_type: str) -> Steps[str]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/plain" and is_utf8(content_type):
        try:
            return f"<body>{text(body.decode())}</body>"
        except ValueError:
            pass  # XML cannot carry it
    return (yield from reading_payload(body, content_type, plain=True))


def _check_foreign(content: str) -> None:
    """Refuse an element of XMPP's own protocols.

    Raises:
        Refusal: it is one.
    """
    if content.startswith(("<body>", "<body xmlns='xmpp-qos:http:0'")):
        return  # made here
    namespace = first_tag(content)[1:].partition("}")[0]
    if _PROTOCOL.match(namespace):
        raise Refusal(
            f"elements of {namespace} are not sent: the message would be from the "
            "service itself, which is not a component",
            condition="not-allowed",
            type="cancel",
        )


def _addresses(account: str) -> str:
    address = f"<address type='ofrom' jid={attribute(account)}/>"
    return f"<addresses xmlns='{_ADDRESSES}'>{address}</addresses>"


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")


def render_outcome(message: Outgoing | Ended) -> bytes:
    """The outcome of a message, or that it is pending, as JSON.

    One whose end is being written is pending still.
    """
    outcome: dict[str, Any] = {"to": message.to, "outcome": "pending"}
    if isinstance(message, Ended):
        outcome["outcome"] = message.state.value.replace(" ", "-")
        # A clock may have been set back.
        outcome["seconds"] = round(max(0.0, message.ended_at - message.created_at), 3)
    outcome["attempts"] = message.attempts
    if outcome["outcome"] not in {"pending", "delivered"}:
        outcome["reason"] = why_not_delivered(
            to=message.to,
            attempts=message.attempts,
            condition=message.condition,
            by=message.condition_by,
            text=message.condition_text,
        )
    if outcome["outcome"] != "delivered" and message.condition is not None:
        outcome["condition"] = message.condition
    return json.dumps(outcome, ensure_ascii=False).encode()
