"""The content of a payload: a value as JSON (XEP-0335), a text, or a body of any type.

    <json xmlns='urn:xmpp:json:0'>{"n":1}</json>
    <text xmlns='xmpp-qos:text:0'>two words</text>

The same content may have come by another protocol: see `qos.core.opaque_body`, and for what
AMQP has brought `qos.core.amqp.bodies`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.opaque_body import unwrap
from qos.errors import InvalidArgument
from qos.xml_text import text as escaped

__all__ = [
    "JSON_TYPE",
    "NAMESPACES",
    "TEXT_TYPE",
    "Json",
    "content_of",
    "is_json",
    "json_payload",
    "json_payload_of",
    "read_json",
    "text_payload",
]

#: A value that JSON has: an object, an array, a string, a number, a boolean or null.
Json: TypeAlias = (
    "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
)

#: The media types of the two elements.
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain; charset=utf-8"

_JSON, _TEXT = "urn:xmpp:json:0", "xmpp-qos:text:0"

#: The namespaces of the two elements.
NAMESPACES = (_JSON, _TEXT)

_MEDIA_TYPES = {f"{{{_JSON}}}json": JSON_TYPE, f"{{{_TEXT}}}text": TEXT_TYPE}

#: Such an element begins with its namespace.
_HEAD_CHARS = 64


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


# -- reading ---------------------------------------------------------------


def content_of(payload: str) -> tuple[bytes, str] | None:
    """The content of a payload and its media type; None: it is another element."""
    return _element(payload) or unwrap(payload)


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
