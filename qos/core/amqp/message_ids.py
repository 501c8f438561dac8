"""Message ids and correlation ids of AMQP as properties of items and as texts.

AMQP tells the id 5 from the id '5' (messaging §3.2.11 to §3.2.14). An id of the type
string is written as it is. The other types have a prefix, as Qpid JMS writes them:

    ID:AMQP_ULONG:5    ID:AMQP_UUID:00000000-…    ID:AMQP_BINARY:01FF

A string that begins like these has the prefix `ID:AMQP_STRING:`. As a property an ulong
is a number, so that selectors can compare it.
"""

from __future__ import annotations

import re
from typing import Final

from qos.core.amqp import values
from qos.core.amqp.values import Value, decode
from qos.core.queue.properties import Value as PropertyValue
from qos.core.queue.selector.values import INTEGERS

__all__ = ["CORRELATION_ID", "id_property", "id_text", "packed_id", "text_property"]

#: The property with the correlation id of an item.
CORRELATION_ID: Final = "JMSCorrelationID"

_PREFIX = "ID:AMQP_"
_ULONG, _UUID, _BINARY, _STRING = (
    f"{_PREFIX}{kind}:" for kind in ("ULONG", "UUID", "BINARY", "STRING")
)
_ULONGS = range(2**64)

#: The text of an uuid (RFC 9562 §4).
_UUID_TEXT = re.compile(
    "([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})"
)
_DIGITS = re.compile("(.{8})(.{4})(.{4})(.{4})(.{12})")


def id_property(value: Value) -> str | int | None:
    """A decoded id as the property of an item; None: it is no id."""
    match value:
        case ("ulong", int(number)):
            return number if number in INTEGERS else f"{_ULONG}{number}"
        case ("uuid", str(digits)):
            return _UUID + _DIGITS.sub(r"\1-\2-\3-\4-\5", digits)
        case ("binary", bytes(content)):
            return f"{_BINARY}{content.hex().upper()}"
        case ("string", str(text)):
            return f"{_STRING}{text}" if text.startswith(_PREFIX) else text
    return None


def id_text(value: PropertyValue | None) -> str:
    """The text of an id that is a property; '': it is none."""
    if type(value) is int and value in _ULONGS:
        return f"{_ULONG}{value}"
    return value if isinstance(value, str) else ""


def text_property(text: str) -> str | int:
    """The property for an id that is written as `id_text` does."""
    value = id_property(decode(packed_id(text)))
    assert value is not None
    return value


def packed_id(text: str) -> bytes:
    """The encoded id of a text; one with a wrong prefix is a string like any other."""
    try:
        if text.startswith(_ULONG):
            return values.ulong(_ULONGS[int(text.removeprefix(_ULONG))])
        if text.startswith(_UUID):
            return values.uuid(_uuid_bytes(text.removeprefix(_UUID)))
        if text.startswith(_BINARY):
            return values.binary(bytes.fromhex(text.removeprefix(_BINARY)))
    except (ValueError, IndexError):
        return values.string(text)
    return values.string(text.removeprefix(_STRING))


def _uuid_bytes(text: str) -> bytes:
    match = _UUID_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return bytes.fromhex("".join(match.groups()))
