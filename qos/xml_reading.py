"""Reads XML that a stranger has written: a body of HTTP or AMQP, a feed.

The work is in proportion to the bytes, and is done in steps. A long namespace is refused
before anything is parsed: a parser repeats it for each name in it. A DTD, whose entities
could be of any size, is the caller's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import NamedTuple, cast
from xml.etree import ElementTree as ET

from qos.steps import Steps, at_once

__all__ = [
    "DEPTH_MAX",
    "NAMESPACE_BYTES_MAX",
    "Document",
    "children",
    "first_tag",
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

#: The bytes that are parsed in one step: about a millisecond with the smallest elements.
_SLICE_BYTES = 2 * 1024

#: The bytes that are looked through for long namespaces in one step.
_LOOKED_BYTES = 16 * 1024

#: The white space after a `=` from which on a value counts as long.
_SPACES = 1024

#: The depth of a child of the root.
_CHILD = 2

# Only looks ahead: what is in the value may be another declaration.
_LONG_VALUE = re.compile(
    rb"=\s*(?=(?:'[^'<]{%d}|\"[^\"<]{%d}))|=\s{%d}"
    % (NAMESPACE_BYTES_MAX + 1, NAMESPACE_BYTES_MAX + 1, _SPACES)
)

#: The longest match, with what it looks ahead at.
_LONG_VALUE_BYTES = _SPACES + NAMESPACE_BYTES_MAX + 3
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


def first_tag(xml: str) -> str:
    """The tag of the root of a well-formed document, without reading the rest."""
    slices = _slices(xml.encode())
    return next(element.tag for events in slices for _, _, element in events)


def has_long_namespace(xml: bytes) -> bool:
    """Whether a document declares a namespace that is too long, or seems to in a text."""
    return at_once(_looking_for_long_namespaces(xml))


def _looking_for_long_namespaces(xml: bytes) -> Steps[bool]:
    end = 0
    for at in range(0, len(xml), _LOOKED_BYTES):
        if at:
            yield
        until = at + _LOOKED_BYTES
        for match in _LONG_VALUE.finditer(xml, at, until + _LONG_VALUE_BYTES):
            if match.start() >= until:
                break
            name = xml.rfind(b"xmlns", end, match.start())
            if name >= 0 and _DECLARES.fullmatch(xml, name, match.start()):
                return True
            end = match.start()
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
    yield from _checking_namespaces(xml)
    roots: list[ET.Element] = []
    is_qualified = True
    for events in _slices(xml):
        yield
        for depth, kind, element in events:
            if kind == "start":
                is_qualified = is_qualified and element.tag[:1] == "{"
                if depth == 1:
                    roots.append(element)
    return Document(roots[0], is_qualified)


def children(
    xml: bytes, *, root: str, elements_max: int
) -> Generator[ET.Element | None, None, None]:
    """Parse the children of the root of a document, in steps, and keep none of them.

    Args:
        xml: see `parsing`.
        root: the tag of the root that is expected.
        elements_max: the most elements in a child, itself included.

    Yields:
        Each child, whole, until the next step; and None, where a step ends.

    Raises:
        ValueError: another root, or too many elements in a child; and see `parsing`.
    """
    yield from _checking_namespaces(xml)
    top: ET.Element | None = None
    count = 0
    for events in _slices(xml):
        yield None
        for depth, kind, element in events:
            if top is None:
                top = element
                if element.tag != root:
                    raise ValueError(f"{root} is expected")
            elif kind == "start":
                count += 1
                if count > elements_max:
                    raise ValueError(f"an element has more than {elements_max} inside")
            elif depth == _CHILD:
                yield element
                count = 0
                del top[:]


def _checking_namespaces(xml: bytes) -> Steps[None]:
    if (yield from _looking_for_long_namespaces(xml)):
        raise ValueError(
            f"the name of a namespace has more than {NAMESPACE_BYTES_MAX} bytes"
        )


def _slices(xml: bytes) -> Iterator[Iterator[tuple[int, str, ET.Element]]]:
    """The events of each part of a document: how deep, `start` or `end`, the element."""
    parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(events=("start", "end"))
    depth = 0

    def events() -> Iterator[tuple[int, str, ET.Element]]:
        nonlocal depth
        parsed_events = cast("Iterator[tuple[str, ET.Element]]", parser.read_events())
        for kind, element in parsed_events:
            depth += kind == "start"
            if depth > DEPTH_MAX - _AROUND:
                raise ValueError(
                    f"the elements are nested more than {DEPTH_MAX - _AROUND} deep"
                )
            yield depth, kind, element
            depth -= kind == "end"

    for at in range(0, len(xml) + 1, _SLICE_BYTES):
        parser.feed(xml[at : at + _SLICE_BYTES])
        if at + _SLICE_BYTES > len(xml):
            parser.close()
        yield events()


def parse(xml: bytes) -> Document:
    """Parse a short document at once; see `parsing`."""
    return at_once(parsing(xml))
