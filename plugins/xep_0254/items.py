"""Items and nodes as applications of XEP-0254 see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.contents import Json, json_payload, text_payload
from qos.core.queue.item import PRIORITIES, Failure
from qos.core.queue.properties import Properties, why_not
from qos.errors import InvalidArgument
from qos.ids import new_key

__all__ = ["BrowsedItem", "NewItem", "NodeInfo", "Page", "Published"]

_TYPES = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node, as its service describes it.

    Attributes:
        node_type: `queue` or `topic`; '': another kind of node.
        stats: see `XEP_0254.stats`.
    """

    node_type: str
    stats: Mapping[str, int | float | None] = field(hash=False)


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be published.

    Attributes:
        payload: one XML element, or '' for none.
        json: a value instead of a payload, which becomes JSON in it (XEP-0335); null
            has to be inside of a value. Afterwards it is None.
        text: likewise, a text.
        item_id: identifies the item; a repeated publish uses it again.
        priority: 0 to 9, larger is earlier; None: the usual one, 4.
        ttl: seconds after which the item expires; None: as configured for the node.
        delay: seconds before the item is delivered; None: at once.
        properties: strings, whole numbers, floats and booleans by name, which selectors
            read: at most 64, and 8 KiB. A part of what a repeat is recognised by.

    Raises:
        InvalidArgument: one of these values is not valid.
    """

    payload: str | ET.Element = field(default="", repr=False)
    item_id: str = field(default_factory=new_key)
    priority: int | None = None
    ttl: float | None = None
    delay: float | None = None
    properties: Mapping[str, str | int | float | bool] = field(
        default_factory=dict, hash=False
    )
    json: Json = field(default=None, kw_only=True)
    text: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._take_content()
        if not isinstance(self.payload, str | ET.Element):
            expected = "a string or an Element"
            raise InvalidArgument("payload", type(self.payload), expected)
        arguments.text("item_id", self.item_id, empty=False)
        if self.priority is not None:
            arguments.whole("priority", self.priority, least=0, most=PRIORITIES[-1])
        if self.ttl is not None:
            arguments.seconds("ttl", self.ttl)
        if self.delay is not None:
            arguments.seconds("delay", self.delay, zero=True)
        properties = arguments.mapping("properties", self.properties)
        for name, value in properties.items():
            if not isinstance(name, str) or type(value) not in _TYPES:
                expected = "strings, whole numbers, floats and booleans by name"
                raise InvalidArgument("properties", {name: value}, expected)
        problem = why_not(self.properties)
        if problem is not None:
            expected = "properties within their limits"
            raise InvalidArgument("properties", dict, expected, why=problem)
        # What the application changes later must not change what was checked.
        self._set("properties", dict(self.properties))

    def _take_content(self) -> None:
        """Make the payload of `json` or `text`, which are None afterwards."""
        json, text = self.json, self.text
        contents = {
            "payload": self.payload if self.payload != "" else None,
            "json": json,
            "text": text,
        }
        names = [name for name, content in contents.items() if content is not None]
        if len(names) > 1:
            raise InvalidArgument(
                names[1], str, f"left out where there is a {names[0]}"
            )
        if json is not None:
            self._set("payload", json_payload(json))
        elif text is not None:
            self._set("payload", text_payload(text))
        self._set("json", None)
        self._set("text", None)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Published:
    """An item that is in the queue, or has been.

    Attributes:
        item_id: its id.
        repeated: the service had it before this request, so nothing was stored again: from
            an earlier publish, or from an attempt whose answer was lost. False if the
            service is not ours.
    """

    item_id: str
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsedItem:
    """An item of a queue, as it was when it was browsed.

    Attributes:
        item_id: its id.
        payload: XML, or ''.
        publisher: the bare JID that published it, or ''.
        state: `available`, `delayed`, `acquired`, `accepted` or `dead`, as given by the
            service; '' if it gives none.
        priority: 0 to 9; None: not given.
        delivery_count: the number of earlier failed deliveries; None: not given.
        published_at: the time of its publication, in seconds since the epoch; None: not
            given.
        holder: the full JID that has locked it, or ''.
        origin: for a dead letter, the node where it died; otherwise ''.
        origin_id: its id in that node.
        reason: why it is dead, or ''.
        history: its failures, the oldest first.
        properties: values of its publisher, by name.
    """

    item_id: str
    payload: str = field(repr=False)
    publisher: str = ""
    state: str = ""
    priority: int | None = None
    delivery_count: int | None = None
    published_at: float | None = None
    holder: str = ""
    origin: str = ""
    origin_id: str = ""
    reason: str = ""
    history: tuple[Failure, ...] = ()
    properties: Properties = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the items of a queue (XEP-0059).

    Attributes:
        items: in the order of the service.
        count: the number of all items; None: the service has not counted them, as a queue
            service of this library beyond a thousand accepted items.
        last: use it to ask for the next page; '' if there is none.
    """

    items: list[BrowsedItem]
    count: int | None
    last: str
