"""The content of a payload: a value as JSON (XEP-0335), a text, or a body of any type.

    <json xmlns='urn:xmpp:json:0'>{"n":1}</json>
    <text xmlns='xmpp-qos:text:0'>two words</text>
    <body xmlns='xmpp-qos:http:0' content-type='text/plain'>BASE64</body>

The last is for ways in to the queues that are not XML. A child of it says the same as XML,
to be read by XMPP workers, where that is possible. For what AMQP has brought see
`qos.core.amqp.bodies`.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.content_headers import is_media_type
from qos.errors import InvalidArgument
from qos.xml_text import attribute
from qos.xml_text import text as escaped

__all__ = [
    "BODY",
    "BODY_NAMESPACE",
    "JSON_TYPE",
    "NAMESPACES",
    "OCTETS",
    "TEXT_TYPE",
    "Json",
    "content_of",
    "is_json",
    "json_payload",
    "json_payload_of",
    "read_json",
    "text_payload",
    "unwrap",
    "wrap",
]

#: A value that JSON has: an object, an array, a string, a number, a boolean or null.
Json: TypeAlias = (
    "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
)

#: The media types of the elements with JSON and with a text.
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain; charset=utf-8"

_JSON, _TEXT = "urn:xmpp:json:0", "xmpp-qos:text:0"

#: The namespaces of these two.
NAMESPACES = (_JSON, _TEXT)

_MEDIA_TYPES = {f"{{{_JSON}}}json": JSON_TYPE, f"{{{_TEXT}}}text": TEXT_TYPE}

#: Such an element begins with its namespace.
_HEAD_CHARS = 64

#: The namespace of the element of a body, and its name in ElementTree's form.
BODY_NAMESPACE = "xmpp-qos:http:0"
BODY = f"{{{BODY_NAMESPACE}}}body"

#: The media type of a body without one (RFC 9110 §8.3).
OCTETS = "application/octet-stream"

#: The element of a body begins with its namespace and its media type.
_BODY_HEAD_CHARS = 4096


# -- writing ---------------------------------------------------------------


def json_payload(value: Json) -> str:
    """The payload for a value.

    Raises:
        InvalidArgument: JSON cannot carry it.
    """
    try:
        json_text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError) as error:
        expected = "a value that JSON can carry"
        raise InvalidArgument("json", type(value), expected, why=str(error)) from error
    try:
        return json_payload_of(json_text)
    except ValueError:
        # XML cannot carry some characters, JSON can: escaped.
        return json_payload_of(json.dumps(value, separators=(",", ":")))


def json_payload_of(json_text: str) -> str:
    """The payload for a JSON text.

    Raises:
        ValueError: XML cannot carry it.
    """
    return f"<json xmlns='{_JSON}'>{escaped(json_text)}</json>"


def text_payload(value: object) -> str:
    """The payload for a text.

    Raises:
        InvalidArgument: it is none, or XML cannot carry it.
    """
    content = arguments.text("text", value, private=True)
    try:
        return f"<text xmlns='{_TEXT}'>{escaped(content)}</text>"
    except ValueError as error:
        expected = "a string that XML can carry"
        raise InvalidArgument("text", str, expected, why=str(error)) from error


def wrap(body: bytes, media_type: str, readable: str = "") -> str:
    """The payload for a body of any type.

    Args:
        body: any bytes.
        media_type: its type, or ''.
        readable: a child, or ''.
    """
    type_attribute = f" content-type={attribute(media_type)}" if media_type else ""
    coded = b64encode(body).decode()
    return f"<body xmlns='{BODY_NAMESPACE}'{type_attribute}>{coded}{readable}</body>"


# -- reading ---------------------------------------------------------------


def content_of(payload: str) -> tuple[bytes, str] | None:
    """The content of a payload and its media type; None: it is another element."""
    return _element(payload) or unwrap(payload)


def unwrap(payload: str) -> tuple[bytes, str] | None:
    """The body and its media type; None: the payload is no such element.

    An XMPP client may have made up an element that is none: it is XML like any other.
    """
    if BODY_NAMESPACE not in payload[:_BODY_HEAD_CHARS]:
        return None
    element = ET.fromstring(payload)  # noqa: S314 - it came by our own parsers
    if element.tag != BODY:
        return None
    try:
        content = b64decode(element.text or "", validate=True)
    except (binascii.Error, ValueError):
        return None
    media_type = element.get("content-type", "")
    return content, media_type if is_media_type(media_type) else OCTETS


def is_json(media_type: str) -> bool:
    """Whether content of this type is JSON (RFC 8259, RFC 6839 §3.1)."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind == JSON_TYPE or kind.endswith("+json")


def read_json(json_text: str | bytes) -> Json:
    """The value of a JSON text in UTF-8.

    Raises:
        ValueError: it is none.
    """
    if isinstance(json_text, bytes):
        json_text = json_text.decode()
    try:
        value: Json = json.loads(json_text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _element(payload: str) -> tuple[bytes, str] | None:
    head = payload[:_HEAD_CHARS]
    if not any(namespace in head for namespace in NAMESPACES):
        return None
    element = ET.fromstring(payload)  # noqa: S314 - it came by our own parsers
    media_type = _MEDIA_TYPES.get(element.tag)
    if media_type is None or len(element):
        return None
    return (element.text or "").encode(), media_type


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
