"""The header `Msg-Properties`: the properties of an item, with their types.

It is a dictionary of structured fields (RFC 9651, before that RFC 8941):

    Msg-Properties: colour="red", weight=4.5, count=3, urgent, name=%"J%c3%bcrgen"

Names may have upper-case letters and `$` too, since selectors tell them apart. A number
that structured fields cannot carry is a string with its type: `ratio="1e-09";type=double`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from qos.core.queue.properties import Properties, Value, why_not
from qos.core.queue.requests import Refusal

__all__ = ["read_properties", "render_properties"]

_NAME = r"[A-Za-z_$*][A-Za-z0-9_$.*-]*"
_IS_NAME = re.compile(_NAME)
_MEMBER = re.compile(
    rf"[ \t]*({_NAME})(?:=(?:"
    r"(?P<decimal>-?[0-9]{1,12}\.[0-9]{1,3})"
    r"|(?P<integer>-?[0-9]{1,15})"
    r"|(?P<boolean>\?[01])"
    r"|(?P<token>[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)"
    r"|\"(?P<string>(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\"\\])*)\"(?:;type=(?P<type>double|long))?"
    r"|%\"(?P<display>(?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*)\""
    r"))?[ \t]*(?:,|$)"
)

_STRING = re.compile(r"[\x20-\x7e]*")
_INTEGERS = range(-(10**15) + 1, 10**15)

#: The characters of a wrong member that an error shows.
_SHOWN_CHARS = 20

#: The largest whole part of a decimal.
_WHOLE_MAX = 10**12


def read_properties(header: str) -> Properties:
    """The properties in a header.

    Raises:
        Refusal: it is no such dictionary, or an item cannot have these properties.
    """
    properties: dict[str, Value] = {}
    at, header = 0, header.strip(" \t")
    while at < len(header):
        member = _MEMBER.match(header, at)
        if member is None:
            raise _bad(
                f"NAME=VALUE is expected at character {at + 1}, such as colour=red "
                f"or n=5, not {header[at:].lstrip()[:_SHOWN_CHARS]!r}"
            )
        if member.end() == len(header) and header[-1] == ",":
            raise _bad(f"nothing follows the comma at character {len(header)}")
        value = _value({k: v for k, v in member.groupdict().items() if v is not None})
        if value is None:
            raise _bad(f"{member[1]!r} has a value that is not of its type")
        properties[member[1]] = value
        at = member.end()
    why = why_not(properties)
    if why is not None:
        raise _bad(why)
    return properties


def _bad(why: str) -> Refusal:
    return Refusal(f"Msg-Properties: {why}", condition="bad-request", type="modify")


def _value(groups: Mapping[str, str]) -> Value | None:
    match groups:
        case {"decimal": text}:
            return float(text)
        case {"integer": text}:
            return int(text)
        case {"boolean": text}:
            return text == "?1"
        case {"token": text}:
            return text
        case {"string": text, "type": kind}:
            return _number(text, kind)
        case {"string": text}:
            return re.sub(r"\\(.)", r"\1", text)
        case {"display": text}:
            try:
                return unquote(text, errors="strict")
            except UnicodeDecodeError:
                return None
    return True  # RFC 9651 §3.2: a name alone


def _number(text: str, kind: str) -> Value | None:
    try:
        return float(text) if kind == "double" else int(text)
    except ValueError:
        return None


def render_properties(properties: Properties) -> str:
    """The header; '': there are none.

    A property whose name cannot stand here is left out.
    """
    return ", ".join(
        _rendered(name, value)
        for name, value in sorted(properties.items())
        if _IS_NAME.fullmatch(name)
    )


def _rendered(name: str, value: Value) -> str:
    if value is True:
        return name
    if value is False:
        return f"{name}=?0"
    if isinstance(value, str):
        if _STRING.fullmatch(value):
            escaped = re.sub(r'(["\\])', r"\\\1", value)
            return f'{name}="{escaped}"'
        safe = "".join(map(chr, range(0x20, 0x7F))).translate({0x22: None, 0x25: None})
        encoded = re.sub(
            "%[0-9A-F]{2}",
            lambda each: each[0].lower(),
            quote(value, safe, errors="replace"),
        )
        return f'{name}=%"{encoded}"'
    if isinstance(value, int):
        small = value in _INTEGERS
        return f"{name}={value}" if small else f'{name}="{value}";type=long'
    exact = math.fabs(value) < _WHOLE_MAX and float(f"{value:.3f}") == value
    if not exact:
        return f'{name}="{value!r}";type=double'
    return f"{name}={value:.3f}".rstrip("0") + ("0" if value == int(value) else "")
