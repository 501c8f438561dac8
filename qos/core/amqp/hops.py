"""The count of hops of a message (`properties.HOPS`), as a message annotation.

So a bridge need not change the bare message. Brokers pass on annotations whose keys begin
with `x-opt-` (messaging §3.2.10).
"""

from __future__ import annotations

from qos.core.amqp import values
from qos.core.amqp.sections import Section, Sections, section
from qos.core.amqp.values import DecodeError, decode, elements
from qos.core.queue.properties import HOPS, Properties, hops_of

__all__ = ["annotation", "counted"]

_KEY = b"x-opt-qos-hops"
_PACKED_KEY = values.symbol(_KEY.decode())


def annotation(count: int) -> bytes:
    """A section of message annotations with this count."""
    pairs = [_PACKED_KEY, values.uint(count)]
    return section(Section.MESSAGE_ANNOTATIONS, values.pack_map(pairs))


def counted(properties: Properties, sections: Sections) -> Properties:
    """The properties of a message, with the count that its annotations have.

    The larger one is right, if the properties have a count already.
    """
    annotations = sections.values.get(Section.MESSAGE_ANNOTATIONS, b"")
    # Nearly no message has it.
    count = _count(annotations) if _KEY in annotations else 0
    if count <= hops_of(properties):
        return properties
    return {**properties, HOPS: count}


def _count(annotations: bytes) -> int:
    """The count in an encoded map; 0: there is none."""
    try:
        pairs = elements(annotations)
        packed = dict(zip(pairs[::2], pairs[1::2], strict=False)).get(_PACKED_KEY)
        kind, count = ("null", None) if packed is None else decode(packed)
    except DecodeError:
        # Brokers change annotations as they like.
        return 0
    return count if kind == "unsigned" and isinstance(count, int) else 0
