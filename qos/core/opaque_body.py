"""A payload for a body of any type, for ways in to the queues that are not XML.

    <body xmlns='xmpp-qos:http:0' content-type='text/plain'>BASE64</body>

A child of it says the same as XML, to be read by XMPP workers, where that is possible.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from xml.etree import ElementTree as ET

from qos.core.content_headers import is_media_type
from qos.xml_text import attribute

__all__ = ["BODY", "NAMESPACE", "OCTETS", "unwrap", "wrap"]

#: The namespace of the element, and its name in ElementTree's form.
NAMESPACE = "xmpp-qos:http:0"
BODY = f"{{{NAMESPACE}}}body"

#: The media type of a body without one (RFC 9110 §8.3).
OCTETS = "application/octet-stream"

#: The element begins with its namespace and its media type.
_HEAD_CHARS = 4096


def wrap(body: bytes, media_type: str, readable: str = "") -> str:
    """The payload.

    Args:
        body: any bytes.
        media_type: its type, or ''.
        readable: a child, or ''.
    """
    type_attribute = f" content-type={attribute(media_type)}" if media_type else ""
    coded = b64encode(body).decode()
    return f"<body xmlns='{NAMESPACE}'{type_attribute}>{coded}{readable}</body>"


def unwrap(payload: str) -> tuple[bytes, str] | None:
    """The body and its media type; None: the payload is no such element.

    An XMPP client may have made up an element that is none: it is XML like any other.
    """
    if NAMESPACE not in payload[:_HEAD_CHARS]:
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
