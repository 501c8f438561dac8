"""A serialiser for the XML that we write: it keeps all namespaces, of attributes too.

slixmpp's own serialiser drops attributes in namespaces that the stream does not know,
and takes 30 times as long to escape a text.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import cache, lru_cache
from itertools import zip_longest
from xml.etree import ElementTree as ET

from qos.steps import Steps, at_once

__all__ = [
    "CLIENT",
    "COMPONENT",
    "attribute",
    "is_legal",
    "local",
    "render",
    "render_iq",
    "rendering",
    "same_message",
    "text",
]

#: The namespace of stanzas, by the kind of stream (RFC 6120 §4.8.2, XEP-0114).
CLIENT = "jabber:client"
COMPONENT = "jabber:component:accept"

#: XEP-0359 §3.2: a second place for the sender's id of a stanza.
_ORIGIN_ID = "{urn:xmpp:sid:0}origin-id"

XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"

#: Characters that may need escaping. All others can stand in a text or an attribute as
#: they are; most texts have no other characters.
_SPECIAL = re.compile("[^ !#$%(-;=?-~]")


@cache
def _special_or_not_ascii() -> re.Pattern[str]:
    # Compiled on first use: such large ranges would take a tenth of our whole import
    # time.
    return re.compile("[^ !#$%(-;=?-~\u00a0-\ud7ff\ue000-\ufffd]")


@cache
def _illegal() -> re.Pattern[str]:
    """The characters that no document can carry, even escaped (XML 1.0 §2.2)."""
    return re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


#: Names of elements, namespaces and JIDs are few and come again and again, so they are
#: remembered, up to this length.
_NAMES_MAX = 4096
_NAME_CHARS_MAX = 256

#: In this order. A parser turns the last ones into spaces or line feeds if they are not
#: escaped.
_IN_TEXT = (("&", "&amp;"), ("<", "&lt;"), ("\r", "&#13;"))
_IN_ATTRIBUTE = (*_IN_TEXT, ("\n", "&#10;"), ("\t", "&#9;"))

#: The characters of declarations that may be written more than once, beside as many as
#: there are of everything else. An element with more is written with prefixes.
_DECLARED_CHARS = 1024

#: The elements that are written in one step.
_STEP_NODES = 512

#: Prefixes. None of them may begin with `xml`.
_LETTERS = "abcdefghijklmnopqrstuvwyz"


def local(element: ET.Element) -> str:
    """The name of an element, without its namespace."""
    return element.tag.rpartition("}")[2]


def text(value: str) -> str:
    """Escape character data.

    Raises:
        ValueError: XML has no way to carry one of the characters.
    """
    if value.isascii() and not _SPECIAL.search(value):
        return value
    return _escaped(value, _IN_TEXT)


def is_legal(value: str) -> bool:
    """Whether XML has a way to carry each of the characters."""
    is_plain = value.isascii() and not _SPECIAL.search(value)
    return is_plain or not _illegal().search(value)


def attribute(value: str) -> str:
    """Escape an attribute's value and put it into quotes: single ones, unless many are in it.

    Raises:
        ValueError: XML has no way to carry one of the characters.
    """
    # Ids are alphanumeric, and this is the fastest test.
    if value.isalnum() or (value.isascii() and not _SPECIAL.search(value)):
        return f"'{value}'"
    escaped = _escaped(value, _IN_ATTRIBUTE)
    quote, quoted = "'", "&apos;"
    many = value.count(quote) > 1 and not _is_rare(value, quote, quoted)
    if many and value.count('"') <= value.count(quote):
        quote, quoted = '"', "&quot;"
    return quote + escaped.replace(quote, quoted) + quote


def _is_rare(value: str, character: str, escaped: str) -> bool:
    """Whether a value is at most twice as long with this character escaped.

    Only a character that could stand as it is needs this. It is escaped if it is rare:
    stored texts are compared, and earlier versions have always escaped it.
    """
    return value.count(character) * (len(escaped) - 1) <= len(value)


def _attribute_of_name(name: str) -> str:
    """As `attribute`, for a name that comes again and again: a namespace, or a JID."""
    return _quoted(name) if len(name) <= _NAME_CHARS_MAX else attribute(name)


def same_message(first: str, second: str) -> bool:
    """Whether two messages are equal except for the ids of their stanzas.

    slixmpp gives each message stanza a random id, so a message that is built again from
    the same content has another id. Different ways to write the same XML count as
    equal.
    """
    if first == second:
        return True
    try:
        first_root, second_root = _without_id(first), _without_id(second)
    except ET.ParseError:
        return False
    return all(
        a is not None and b is not None and _node(a) == _node(b)
        for a, b in zip_longest(first_root.iter(), second_root.iter())
    )


def _without_id(message: str) -> ET.Element:
    root = ET.fromstring(message)  # noqa: S314 - written by this module
    root.attrib.pop("id", None)
    for origin_id in root.findall(_ORIGIN_ID):
        root.remove(origin_id)
    return root


def _node(node: ET.Element) -> tuple[object, ...]:
    """Everything in an element except its children, which are only counted."""
    return node.tag, node.attrib, node.text or "", node.tail or "", len(node)


def _escaped(value: str, escapes: Iterable[tuple[str, str]]) -> str:
    if not _special_or_not_ascii().search(value):
        return value
    illegal = _illegal().search(value)
    if illegal is not None:
        raise ValueError(
            f"character U+{ord(illegal.group()):04X} at position {illegal.start()} "
            "cannot be carried by XML"
        )
    # `xml.sax.saxutils` does the same, but imports an HTTP client.
    greater = "&gt;" if _is_rare(value, ">", "&gt;") else ">"
    for character, escaped in escapes:
        value = value.replace(character, escaped)
    # XML 1.0 §2.4: it may stand as it is, except at the end of `]]>`.
    return value.replace("]]>", "]]&gt;").replace(">", greater)


def render_iq(
    kind: str, iq_id: str, content: str, *, to: str = "", sender: str = ""
) -> str:
    """An iq in the namespace of its stream (RFC 6120 §8.2.3).

    Args:
        kind: its type.
        iq_id: its id.
        content: its contents, as XML.
        to: the receiver; '': the entity at the other end of the stream.
        sender: the sender; '': our own entity.
    """
    head = f"<iq type='{kind}' id={attribute(iq_id)}"
    if to:
        head += f" to={_attribute_of_name(to)}"
    if sender:
        head += f" from={attribute(sender)}"
    return f"{head}>{content}</iq>" if content else f"{head}/>"


def render(
    element: ET.Element, *, namespace: str | None = None, without: Container[str] = ()
) -> str:
    """Render an element without its tail, so that it can be put anywhere.

    Not recursive: a hostile peer chooses how deeply its elements are nested. The text is
    at most twice as long as any other way to write the element, and 1 kB: a tree has
    each namespace once, however often it is used.

    Args:
        element: the element; it is not changed.
        namespace: the namespace to put it into, with all its descendants that share its
            own; None: keep its own.
        without: attributes to leave out of the element itself, not of its descendants.

    Raises:
        ValueError: a character cannot be carried by XML, or a name is not valid.
    """
    if not len(element):
        # Most payloads have no children: no stack is needed.
        own, name = _split(element.tag)
        return _leaf(element, name, own if namespace is None else namespace, without)
    return at_once(rendering(element, namespace=namespace, without=without))


def rendering(
    element: ET.Element, *, namespace: str | None = None, without: Container[str] = ()
) -> Steps[str]:
    """Render an element in steps; see `render`."""
    own, _ = _split(element.tag)
    if namespace is None:
        namespace = own
    output: list[str] = []
    declared, checked_at, counted, chars = 0, _DECLARED_CHARS, 0, _DECLARED_CHARS
    without_here = without
    # The parts still to be written, last first: an element with the namespace that
    # surrounds it, or finished text.
    rest: list[tuple[ET.Element, str | None] | str] = [(element, None)]
    nodes = 0
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            output.append(item)
            continue
        nodes += 1
        if nodes % _STEP_NODES == 0:
            yield
        node, around = item
        node_namespace, name = _split(node.tag)
        if node_namespace == own:
            node_namespace = namespace
        if node_namespace == XML_NAMESPACE:
            # The prefix `xml` is always bound to this namespace, and no other prefix
            # may be.
            node_namespace, name = around or "", f"xml:{name}"
        declared += _start(output, node, name, node_namespace, around, without_here)
        without_here = ()
        if declared > checked_at:
            chars += sum(map(len, output[counted:]))
            if 2 * declared > chars:
                return (yield from _with_prefixes(element, own, namespace, without))
            checked_at, counted = chars - declared, len(output)
        if not len(node) and not node.text:
            output.append("/>")
            continue
        output.append(">" + text(node.text or ""))
        rest.append(f"</{name}>")
        for child in reversed(node):
            if child.tail:
                rest.append(text(child.tail))
            rest.append((child, node_namespace))
    return "".join(output)


def _leaf(node: ET.Element, name: str, namespace: str, without: Container[str]) -> str:
    if namespace == XML_NAMESPACE:
        namespace, name = "", f"xml:{name}"
    output: list[str] = []
    _start(output, node, name, namespace, None, without)
    start = output[0]
    return f"{start}>{text(node.text)}</{name}>" if node.text else f"{start}/>"


def _start(
    output: list[str],
    node: ET.Element,
    name: str,
    namespace: str,
    around: str | None,
    without: Container[str],
) -> int:
    """Add the start of a tag; returns the characters of its declarations."""
    start, declared = f"<{name}", 0
    if namespace != around and (namespace or around):
        start += f" xmlns={_attribute_of_name(namespace)}"
        declared = len(namespace)
    if not node.attrib:
        output.append(start)
        return declared
    parts = [start]
    prefixes: dict[str, str] = {}
    for qualified, value in node.attrib.items():
        if qualified in without:
            continue
        of, local = _split(qualified)
        if of == XML_NAMESPACE:
            local = f"xml:{local}"
        elif of:
            if of not in prefixes:
                prefixes[of] = f"a{len(prefixes)}"
                parts.append(f" xmlns:{prefixes[of]}={attribute(of)}")
                declared += len(of)
            local = f"{prefixes[of]}:{local}"
        parts.append(f" {local}={attribute(value)}")
    output.append("".join(parts))
    return declared


class _Prefixes:
    """The prefixes of one document, and the names of its elements and attributes."""

    def __init__(self, own: str, namespace: str, default: str) -> None:
        """Begin.

        Args:
            own: the namespace of the root in the tree.
            namespace: the namespace to put it into.
            default: the namespace without a prefix.
        """
        self._moved = {own: namespace}
        self._default = default
        self._prefixes: dict[str, str] = {}
        self._names: dict[tuple[str, bool], str] = {}

    def name(self, qualified: str, *, is_attribute: bool = False) -> str:
        """The name as it is written."""
        written_name = self._names.get((qualified, is_attribute))
        if written_name is None:
            written_name = self._new(qualified, is_attribute)
            self._names[qualified, is_attribute] = written_name
        return written_name

    def _new(self, qualified: str, is_attribute: bool) -> str:
        namespace, name = _split(qualified)
        if not is_attribute:
            namespace = self._moved.get(namespace, namespace)
        if namespace == XML_NAMESPACE:
            return f"xml:{name}"
        if namespace == ("" if is_attribute else self._default):
            return name
        if namespace not in self._prefixes:
            self._prefixes[namespace] = _prefix(len(self._prefixes))
        return f"{self._prefixes[namespace]}:{name}"

    def declared(self) -> str:
        """The declarations, as attributes of the root."""
        return f" xmlns={attribute(self._default)}" + "".join(
            f" xmlns:{prefix}={attribute(namespace)}"
            for namespace, prefix in self._prefixes.items()
        )


def _prefix(number: int) -> str:
    """A prefix, as short as possible: a, b, ... z, ba, bb, ..."""
    prefix = ""
    while True:
        number, digit = divmod(number, len(_LETTERS))
        prefix = _LETTERS[digit] + prefix
        if not number:
            return prefix


def _with_prefixes(
    element: ET.Element, own: str, namespace: str, without: Container[str]
) -> Steps[str]:
    """Render an element with all of its namespaces declared at its root, once each.

    If one of the elements has no namespace, all others have a prefix: nothing has to be
    declared where one ends.
    """
    has_bare = any(node.tag[:1] != "{" for node in element.iter()) and own != ""
    default = "" if has_bare or namespace == XML_NAMESPACE else namespace
    prefixes = _Prefixes(own, namespace, default)
    output: list[str] = []
    rest: list[ET.Element | str] = [element]
    nodes = 0
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            output.append(item)
            continue
        nodes += 1
        if nodes % _STEP_NODES == 0:
            yield
        name = prefixes.name(item.tag)
        output.append(f"<{name}")
        output += [
            f" {prefixes.name(key, is_attribute=True)}={attribute(value)}"
            for key, value in item.attrib.items()
            if item is not element or key not in without
        ]
        if not len(item) and not item.text:
            output.append("/>")
            continue
        output.append(">" + text(item.text or ""))
        rest.append(f"</{name}>")
        for child in reversed(item):
            if child.tail:
                rest.append(text(child.tail))
            rest.append(child)
    return output[0] + prefixes.declared() + "".join(output[1:])


def _split(tag: str) -> tuple[str, str]:
    """The namespace and the local name of an ElementTree name."""
    return _known(tag) if len(tag) <= _NAME_CHARS_MAX else _parts(tag)


def _parts(tag: str) -> tuple[str, str]:
    namespace, name = "", tag
    if tag[:1] == "{":
        namespace, _, name = tag[1:].partition("}")
    try:
        is_name = ET.fromstring(f"<{name}/>").tag == name  # noqa: S314 - a few bytes
    except (ET.ParseError, UnicodeEncodeError):
        is_name = False
    if not is_name:
        raise ValueError(f"{name!r} is no name of XML")
    return namespace, name


_known = lru_cache(_NAMES_MAX)(_parts)
_quoted = lru_cache(_NAMES_MAX)(attribute)
