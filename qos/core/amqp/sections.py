"""The sections of an AMQP 1.0 message (messaging §3.2), found without decoding them.

    [header] [delivery-annotations] [message-annotations]
    [properties] [application-properties] body [footer]

The bare message, which no intermediary may change, is everything from the properties
on. It is cut out of the bytes that came, never written again, so that hashes and
signatures of it stay valid. Sections are accepted in any order, since some clients
write the footer before the body (rhea 3.0.5 before a sequence). They keep their order.
"""

from __future__ import annotations

from enum import IntEnum

from qos.core.amqp.values import (
    DecodeError,
    Value,
    decode_carried,
    descriptor,
    elements,
    end_of,
    pack_map,
)
from qos.core.record import record

__all__ = [
    "Section",
    "Sections",
    "first",
    "merged",
    "must_understand",
    "section",
    "split",
    "without",
]


class Section(IntEnum):
    """The sections, by the codes of their descriptors."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


_MAP = frozenset({0xC1, 0xD1})
_LIST = frozenset({0x45, 0xC0, 0xD0})

#: The constructors that the value of a section may have.
_TYPES = {
    Section.HEADER: _LIST,
    Section.DELIVERY_ANNOTATIONS: _MAP,
    Section.MESSAGE_ANNOTATIONS: _MAP,
    Section.PROPERTIES: _LIST,
    Section.APPLICATION_PROPERTIES: _MAP,
    Section.DATA: frozenset({0xA0, 0xB0}),
    Section.SEQUENCE: _LIST,
    Section.VALUE: frozenset(range(0x100)),
    Section.FOOTER: _MAP,
}

_NAMES = {
    f"amqp:{name}": kind
    for kind, name in {
        Section.HEADER: "header:list",
        Section.DELIVERY_ANNOTATIONS: "delivery-annotations:map",
        Section.MESSAGE_ANNOTATIONS: "message-annotations:map",
        Section.PROPERTIES: "properties:list",
        Section.APPLICATION_PROPERTIES: "application-properties:map",
        Section.DATA: "data:binary",
        Section.SEQUENCE: "amqp-sequence:list",
        Section.VALUE: "amqp-value:*",
        Section.FOOTER: "footer:map",
    }.items()
}

_BODY = frozenset({Section.DATA, Section.SEQUENCE, Section.VALUE})
_SEVERAL = frozenset({Section.DATA, Section.SEQUENCE})
_NOT_BARE = frozenset(
    {Section.HEADER, Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS}
)

#: What the key of an annotation begins with that nobody has to understand.
_OPTIONAL = "x-opt-"


@record(frozen=True, slots=True)
class Sections:
    """A message, cut into its sections.

    Attributes:
        values: by section, its encoded value without its descriptor; of the body, that
            of its first section.
        body: the section of which the body consists; None: there is no body.
        parts: how many sections the body has.
        bare: the bytes of the bare message and the footer, as they came.
    """

    values: dict[Section, bytes]
    body: Section | None
    parts: int
    bare: bytes


def split(message: bytes) -> Sections:
    """Cut a message into its sections.

    Raises:
        DecodeError: it is not a message of format 0; says where.
    """
    values: dict[Section, bytes] = {}
    body: Section | None = None
    parts = at = 0
    bare: list[bytes] = []
    while at < len(message):
        start = at
        kind, value_at = _section_at(message, at)
        at = end_of(message, value_at)
        if message[value_at] not in _TYPES[kind]:
            raise DecodeError(f"a value of a wrong type in {kind.name}", value_at)
        if kind in _BODY:
            if body is not None and kind is not body:
                raise DecodeError(f"{kind.name} in a body of {body.name}", start)
            body, parts = kind, parts + 1
        if kind in values and kind not in _SEVERAL:
            raise DecodeError(f"a second section {kind.name}", start)
        values.setdefault(kind, message[value_at:at])
        if kind not in _NOT_BARE:
            bare.append(message[start:at])
    # A message without a body is let through: it is not ours to repair.
    return Sections(values, body, parts, b"".join(bare))


def first(message: bytes, kind: Section) -> bytes | None:
    """The encoded value of the first section of a kind; None: there is none.

    What is behind it is not looked at.

    Raises:
        DecodeError: it is not a message of format 0.
    """
    at = 0
    while at < len(message):
        current, value_at = _section_at(message, at)
        at = end_of(message, value_at)
        if current is kind:
            return message[value_at:at]
    return None


def without(message: bytes, kind: Section) -> bytes:
    """The message without this section; all others stay byte for byte.

    Raises:
        DecodeError: it is not a message of format 0.
    """
    rest: list[bytes] = []
    at = 0
    while at < len(message):
        start = at
        current, value_at = _section_at(message, at)
        at = end_of(message, value_at)
        if current is not kind:
            rest.append(message[start:at])
    return b"".join(rest)


def section(kind: Section, value: bytes) -> bytes:
    """A section with this encoded value."""
    return bytes((0x00, 0x53, kind)) + value


def must_understand(value: bytes) -> str | None:
    """The first key of annotations that has to be understood (messaging §3.2.10).

    None of them is understood here, except for optional ones: their keys begin with
    `x-opt-`, and they are only passed on. So is a key that is neither symbol nor ulong,
    or not UTF-8: it is no key of an annotation.

    Args:
        value: an encoded map.

    Raises:
        DecodeError: it is no map.
    """
    pairs = elements(value)
    if len(pairs) % 2:
        raise DecodeError("a key without a value in annotations", 0)
    for key in pairs[::2]:
        kind, name = decode_carried(key)
        is_key = kind in ("symbol", "ulong")
        if is_key and not str(name).startswith(_OPTIONAL):
            return str(name)
    return None


def merged(annotations: bytes, changes: bytes) -> bytes:
    """Annotations with those of a modified outcome: the later value wins (messaging §3.4.5).

    Args:
        annotations: an encoded map, or b'' for none.
        changes: likewise.

    Raises:
        DecodeError: one of them is no map.
    """
    entries: dict[Value, tuple[bytes, bytes]] = {}
    for encoded_map in (annotations, changes):
        pairs = elements(encoded_map) if encoded_map else []
        for key, value in zip(pairs[::2], pairs[1::2], strict=False):
            entries[decode_carried(key)] = (key, value)
    return pack_map([part for pair in entries.values() for part in pair])


def _section_at(message: bytes, start: int) -> tuple[Section, int]:
    """The section that begins at `start`, and the position of its value."""
    code, value_at = descriptor(message, start)
    kind = _NAMES.get(code) if isinstance(code, str) else _CODES.get(code)
    if kind is None:
        raise DecodeError(f"{code!r} is no section of a message", start)
    return kind, value_at


_CODES: dict[int, Section] = {kind.value: kind for kind in Section}
