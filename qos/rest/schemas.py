"""Pieces of the OpenAPI document that the descriptions of the URLs have in common.

The form of each piece is that of OpenAPI 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qos.core.rest.forwarding import Fate
from qos.core.rest.waits import WAIT_S_MAX
from qos.rest import bounds

__all__ = [
    "ANY",
    "ATOM",
    "BINARY",
    "BOOLEAN",
    "HEADERS",
    "IN_PART",
    "MESSAGE",
    "MESSAGE_HEADERS",
    "SCHEMAS",
    "STRING",
    "TEXT",
    "WAITS",
    "XML",
    "Answers",
    "Body",
    "Content",
    "Parameters",
    "Shown",
    "form",
    "header",
    "integer",
    "json_of",
    "query",
    "refused",
]

Schema = dict[str, Any]
Content = Mapping[str, Mapping[str, Any]]
Parameters = list[dict[str, Any]]

ANY = "application/octet-stream"
ATOM = "application/atom+xml"
_FORM = "application/x-www-form-urlencoded"

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "string", "enum": ["true", "false"]}
_BYTES: Schema = {"type": "string", "format": "binary"}

#: A body of any media type.
BINARY: Content = {ANY: {"schema": _BYTES}}

TEXT: Content = {"text/plain": {"schema": STRING}}
XML: Content = {"application/xml": {"schema": STRING}}

#: A message: it has the media type that it was posted with.
MESSAGE: Content = {**BINARY, "*/*": {"schema": _BYTES}}

#: The other form of a message.
IN_PART = (
    "With Accept: multipart/mixed it is the one part of the body, with its own headers."
)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request.

    Attributes:
        content: by media type.
        required: a request without a body is no such request.
        about: for people.
        bytes_max: the most bytes that are read.
    """

    content: Content
    required: bool = True
    about: str = ""
    bytes_max: int = bounds.BODY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer.

    Attributes:
        meaning: for people.
        content: by media type; nothing: the body is empty.
        headers: that each such answer has, out of HEADERS.
        optional: headers that it may have.
    """

    meaning: str
    content: Content = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


#: The answers of a method by status; None: as it is everywhere.
Answers = Mapping[int, Shown | None]


def refused(*statuses: int) -> dict[int, None]:
    """Refusals that are the same everywhere."""
    return dict.fromkeys(statuses)


def integer(least: int, most: int) -> Schema:
    """Integers in these bounds."""
    return {"type": "integer", "minimum": least, "maximum": most}


def query(name: str, schema: Schema, text: str) -> dict[str, Any]:
    """A parameter in the query."""
    return {"name": name, "in": "query", "schema": schema, "description": text}


def header(name: str, schema: Schema, text: str) -> dict[str, Any]:
    """A header of a request."""
    return {"name": name, "in": "header", "schema": schema, "description": text}


def form(*required: str, **fields: Schema) -> Content:
    """A form with these fields, and no others."""
    schema: Schema = {
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    return {_FORM: {"schema": schema}}


def json_of(name: str) -> Content:
    """JSON of this schema of SCHEMAS."""
    return {"application/json": {"schema": _ref(name)}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Mapping[str, Schema], *optional: str, more: bool) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": more,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_COUNT: Schema = {"type": "integer", "minimum": 0}

_COUNTS = (
    *("available", "acquired", "delayed", "dead", "accepted", "subscribers", "bytes"),
    *("unmatched", "oversized", "releases_most", "missed", "repeated"),
    *("push_enabled", "push_disabled"),
    *(f"push_attempts_{each.value}" for each in Fate),
)

SCHEMAS: Mapping[str, Schema] = {
    "Service": _object(
        {"queues": _array(_ref("Named")), "topics": _array(_ref("Named"))}, more=False
    ),
    "Named": _object({"name": STRING, "href": STRING}, more=False),
    "Node": _object(
        {"name": STRING, "links": _array(_ref("Link")), "counts": _ref("Counts")},
        more=False,
    ),
    "Link": _object({"rel": STRING, "href": STRING}, more=False),
    "Counts": _object(
        {
            **dict.fromkeys(_COUNTS, _COUNT),
            "excluded": {
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "the messages that no present subscriber may get again; "
                "null: not counted, since too many sets of subscribers are excluded",
            },
            "oldest_seconds": {
                "type": ["number", "null"],
                "description": "the age of the oldest message; null: there is none",
            },
        },
        more=True,
    ),
    "PushSubscriber": _object(
        {
            "location": STRING,
            "rel": STRING,
            "href": STRING,
            "enabled": {"type": "boolean"},
            "failures": _COUNT,
            "reason": STRING,
        },
        more=False,
    ),
    "PushSubscribers": _array(_ref("PushSubscriber")),
    "Outcome": _object(
        {
            "to": STRING,
            "outcome": STRING,
            "attempts": _COUNT,
            "seconds": {"type": "number"},
            "reason": STRING,
            "condition": STRING,
        },
        *("seconds", "reason", "condition"),
        more=False,
    ),
}


_HORNETQ_RELS = (
    *("create", "create-with-id", "create-next", "consumer"),
    *("pull-consumers", "push-consumers", "pull-subscriptions", "push-subscriptions"),
    *("consume-next", "acknowledge-next", "acknowledgement"),
)


def _headers(schema: Schema, **texts: str) -> dict[str, dict[str, Any]]:
    return {
        name.replace("_", "-"): {"schema": schema, "description": text}
        for name, text in texts.items()
    }


#: The headers of answers.
HEADERS: Mapping[str, Mapping[str, Any]] = {
    **_headers(
        STRING,
        Allow="methods",
        WWW_Authenticate="how to log in",
        Link="where to go on, by relation (RFC 8288); URLs are relative to this one",
        Location="the URL of what was made, or where to ask again",
        Content_Location="the URL of the message",
        Preference_Applied="the wait that was applied (RFC 7240)",
        Cache_Control="no-store",
        Vary="Accept",
        Last_Modified="when the message was published",
        Expires="when the message expires",
        Content_Encoding="as the message was posted with",
        Content_Language="as the message was posted with",
        Msg_Properties="a dictionary of RFC 9651",
        Msg_Lock_Expires="until when the message is yours",
    ),
    **_headers(
        BOOLEAN,
        Msg_First_Acquirer="nobody has had the message before",
        Msg_Missed="messages between the last one and this one are not kept any more",
    ),
    **_headers(
        _COUNT,
        Retry_After="seconds",
        Msg_Delivery_Count="deliveries that have failed",
        Msg_Priority="larger is earlier",
        Msg_Hops="how often services have forwarded the message",
    ),
    **{
        f"msg-{rel}": {
            "schema": STRING,
            "description": "a link; with --http-link-headers it is in Link",
        }
        for rel in _HORNETQ_RELS
    },
}

#: The headers that each answer with a message has; and those that it may have. `Link` is
#: left out if the message is in a part, and the shortest link is too long for a header.
MESSAGE_HEADERS = (
    (
        *("Cache-Control", "Last-Modified"),
        *("Msg-Delivery-Count", "Msg-First-Acquirer", "Msg-Priority"),
    ),
    (
        *("Link", "Expires", "Content-Encoding", "Content-Language"),
        *("Msg-Properties", "Msg-Hops"),
    ),
)

#: The headers of the parameters by which a client waits.
WAITS: Parameters = [
    header("Prefer", STRING, f"wait=SECONDS, at most {WAIT_S_MAX}"),
    header("X-RS-Wait", integer(0, 10**9 - 1), "seconds"),
]
