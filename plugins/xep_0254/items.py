"""Items as an application of XEP-0254 has them: to be published, and as they were browsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.queue.item import PRIORITIES, Failure
from qos.errors import InvalidArgument
from qos.ids import new_id

__all__ = ["BrowsedItem", "NewItem", "Page"]


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be published.

    Attributes:
        payload: one XML element, or '' for none.
        item_id: names it; who repeats a publish repeats this.
        priority: 0 to 9, more is earlier; None: the usual one, 4.
        ttl: seconds it is good for; None: as the node says.
        delay: seconds before it is delivered; None: at once.

    Raises:
        InvalidArgument: one of these is none.
    """

    payload: str | ET.Element = field(default="", repr=False)
    item_id: str = field(default_factory=new_id)
    priority: int | None = None
    ttl: float | None = None
    delay: float | None = None

    def __post_init__(self) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsedItem:
    """An item of a queue, as it was when it was looked at.

    Attributes:
        item_id: its id.
        payload: XML, or ''.
        publisher: the bare JID that published it, or ''.
        state: `available`, `delayed`, `acquired`, `accepted` or `dead`, as the
            service says; '' if it does not.
        priority: 0 to 9; None: not said.
        delivery_count: prior unsuccessful deliveries; None: not said.
        published_at: when, in seconds since the epoch; None: not said.
        holder: the full JID that has it, or ''.
        origin: of a dead letter, the node where it died; else ''.
        origin_id: its id there.
        reason: why it is dead, or ''.
        history: what failed, the oldest first.
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


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the items of a queue (XEP-0059).

    Attributes:
        items: in the order of the service.
        count: how many there are in all.
        last: to ask for what comes after them; '' when there is none.
    """

    items: list[BrowsedItem]
    count: int
    last: str
