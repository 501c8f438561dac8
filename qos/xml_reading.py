"""Reads XML that a stranger has written: a body of HTTP or AMQP, a feed.

The work is in proportion to the bytes, and is done in steps. A long namespace is refused
before anything is parsed: a parser repeats it for each name in it. A DTD, whose entities
could be of any size, is the caller's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, cast
from xml.etree import ElementTree as ET

from qos.steps import Steps, at_once

__all__ = [
    "DEPTH_MAX",
    "NAMESPACE_BYTES_MAX",
    "Document",
    "has_long_namespace",
    "is_deeper",
    "parse",
    "parsing",
]

#: The bytes of the name of a namespace. Those in use have fewer than 100.
NAMESPACE_BYTES_MAX = 512

#: The elements that may be open at once in a stanza. Deeper ones end in a RecursionError
#: somewhere, in this process or in another. Those in use have fewer than 20.
DEPTH_MAX = 64

#: What stands around a content in a stanza at most: iq, batch, assured, message, event,
#: items and item.
_AROUND = 7

#: The bytes that are parsed in one step: less than a millisecond with the smallest
#: elements.
_SLICE_BYTES = 8 * 1024

# Only looks ahead: what is in the value may be another declaration.
_LONG_VALUE = re.compile(
    rb"=\s*(?=(?:'[^'<]{%d}|\"[^\"<]{%d}))"
    % (NAMESPACE_BYTES_MAX + 1, NAMESPACE_BYTES_MAX + 1)
)
_DECLARES = re.compile(rb"xmlns(?::[^\s='\"<>]*)?\s*")


class Document(NamedTuple):
    """A well-formed document.

    Attributes:
        root: its element.
        is_qualified: whether each of its elements is in a namespace.
    """

    root: ET.Element
    is_qualified: bool


def is_deeper(xml: str, levels: int) -> bool:
    """Whether the elements of a well-formed document are nested deeper than this."""
    if xml.count("</") < levels:
        return False  # each level but the last needs an end tag
    parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(events=("start", "end"))
    parser.feed(xml)
    events = cast("Iterator[tuple[str, ET.Element]]", parser.read_events())
    deepest = now = 0
    for kind, _ in events:
        now += 1 if kind == "start" else -1
        deepest = max(deepest, now)
    return deepest > levels


def has_long_namespace(xml: bytes) -> bool:
    """Whether a document declares a namespace that is too long, or seems to in a text."""
    end = 0
    for found in _LONG_VALUE.finditer(xml):
        name = xml.rfind(b"xmlns", end, found.start())
        if name >= 0 and _DECLARES.fullmatch(xml, name, found.start()):
            return True
        end = found.start()
    return False


def parsing(xml: bytes) -> Steps[Document]:
    """Parse a document, in steps.

    Args:
        xml: in UTF-8, or another encoding that has ASCII in it, as it declares.

    Raises:
        ET.ParseError: it is not well-formed.
        ValueError: a namespace is too long, or the elements are nested too deeply.
        LookupError: its encoding is not known.
    """
    if has_long_namespace(xml):
        raise ValueError(
            f"the name of a namespace has more than {NAMESPACE_BYTES_MAX} bytes"
        )
    parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(events=("start", "end"))
    starts: list[ET.Element] = []
    is_qualified, depth = True, 0
    for at in range(0, len(xml) + 1, _SLICE_BYTES):
        yield
        parser.feed(xml[at : at + _SLICE_BYTES])
        if at + _SLICE_BYTES > len(xml):
            parser.close()
        events = cast("Iterator[tuple[str, ET.Element]]", parser.read_events())
        new: list[ET.Element] = []
        for kind, element in events:
            if kind == "start":
                depth += 1
                new.append(element)
            else:
                depth -= 1
            if depth > DEPTH_MAX - _AROUND:
                raise ValueError(
                    f"the elements are nested more than {DEPTH_MAX - _AROUND} deep"
                )
        is_qualified = is_qualified and all(each.tag[:1] == "{" for each in new)
        starts += new[:1]
    return Document(starts[0], is_qualified)


def parse(xml: bytes) -> Document:
    """Parse a short document at once; see `parsing`."""
    return at_once(parsing(xml))
