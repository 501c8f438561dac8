"""The properties of items as XML: beside `<publish/>`, and beside `<items/>` in events.

::

    <properties xmlns='xmpp-qos:queue:0' for='ITEM ID'>
      <property name='color' type='string'>red</property>
      <property name='n' type='int'>5</property>
    </properties>

The types are string (if there is none), int, float and boolean. A second child inside of
`<item/>` would break XEP-0060.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from qos.core.queue.properties import XML_PREFIX, Properties, Value, why_not
from qos.core.queue.requests import Refusal
from qos.core.queue.selector.values import INTEGERS, Number
from qos.xml_text import attribute, local, text
from xep_0254.elements import BOOLEANS, bad_request, decimal, extended, whole
from xep_0254.namespaces import EXTENSIONS, SHIM

__all__ = [
    "PROPERTIES",
    "found_properties",
    "read_headers",
    "read_properties",
    "render_properties",
]

PROPERTIES = extended("properties")
_PROPERTY = extended("property")

_DIGITS = frozenset("0123456789.")

_TYPES: dict[type, str] = {str: "string", int: "int", float: "float", bool: "boolean"}


# -- writing ---------------------------------------------------------------


def render_properties(
    item_id: str, properties: Properties, *, empty: bool = False
) -> str:
    """The properties of an item; '' if it has none, unless `empty`.

    Names that a service has read from the payload are left out.

    Raises:
        ValueError: XML cannot carry one of the characters.
    """
    content = "".join(
        f"<property name={attribute(name)} type='{_TYPES[type(value)]}'>"
        f"{text(_written(value))}</property>"
        for name, value in properties.items()
        if not name.startswith(XML_PREFIX)
    )
    if not content and not empty:
        return ""
    head = f"<properties xmlns='{EXTENSIONS}' for={attribute(item_id)}"
    return f"{head}>{content}</properties>"


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


# -- reading, as a service -------------------------------------------------


def read_properties(
    elements: Sequence[ET.Element], item_ids: Sequence[str]
) -> dict[str, Properties]:
    """The properties of the items to be published, by id.

    Args:
        elements: those beside `<publish/>`.
        item_ids: the ids of the items. With a single item, `for` may be missing.

    Raises:
        Refusal: malformed, for another item, or over a limit.
    """
    properties: dict[str, Properties] = {}
    for element in elements:
        item_id = element.get("for")
        if item_id is None and len(item_ids) == 1:
            item_id = item_ids[0]
        if item_id is None or item_id not in item_ids:
            raise bad_request("properties for an item that is not published here")
        if item_id in properties:
            raise bad_request("properties for the same item twice")
        properties[item_id] = _checked(_all_of(element))
    return properties


def read_headers(message: ET.Element) -> Properties:
    """The headers of a message (XEP-0131) as strings.

    Raises:
        Refusal: there are too many, or too large ones.
    """
    headers = message.find(f"{{{SHIM}}}headers")
    if headers is None:
        return {}
    return _checked(
        {
            header.get("name", ""): header.text or ""
            for header in headers
            if header.tag == f"{{{SHIM}}}header" and header.get("name")
        }
    )


def _checked(properties: Properties) -> Properties:
    """The properties; a Refusal if they are not within their limits."""
    problem = why_not(properties)
    if problem is not None:
        raise Refusal(problem, condition="not-acceptable", type="modify")
    return properties


def _all_of(element: ET.Element) -> Properties:
    properties: dict[str, Value] = {}
    for child in element:
        name, kind = child.get("name", ""), child.get("type", "string")
        if child.tag != _PROPERTY or len(child):
            raise bad_request(f"{local(child)[:40]} where a property is expected")
        if name in properties:
            raise bad_request(f"the property {name[:40]!r} twice")
        value = _value(kind, child.text or "")
        if value is None:
            raise bad_request(
                f"the property {name[:40]!r} is no {kind[:20]}: {(child.text or '')[:40]!r}"
            )
        properties[name] = value
    return properties


def _value(kind: str, string: str) -> Value | None:
    """The value of this type; None: it has none."""
    if kind == "string":
        return string
    string = string.strip()
    if kind == "boolean":
        return BOOLEANS.get(string)
    negative = string[:1] == "-"
    if negative and string[1:2] not in _DIGITS:
        return None
    number: Number | None = None
    if kind in {"int", "float"}:
        number = (whole if kind == "int" else decimal)(string[negative:])
    if number is None:
        return None
    number = -number if negative else number
    return number if isinstance(number, float) or number in INTEGERS else None


# -- reading, as a worker --------------------------------------------------


def found_properties(elements: Iterable[ET.Element]) -> dict[str, Iterator[Properties]]:
    """The properties in an event or an answer, by the ids of items, whatever was sent.

    An answer can have several items with one id: their properties are in their order.
    What cannot be read is left out.
    """
    by_item: dict[str, list[Properties]] = {}
    for element in elements:
        if element.tag == PROPERTIES:
            properties = {
                child.get("name", ""): value
                for child in element
                if child.tag == _PROPERTY
                and (value := _value(child.get("type", "string"), child.text or ""))
                is not None
            }
            by_item.setdefault(element.get("for", ""), []).append(properties)
    return {item_id: iter(entries) for item_id, entries in by_item.items()}
