"""An event and its XML (XEP-0337 §3 and its schema).

`LogEvent` and its parts are plain values; `Log` and `Tag` are slixmpp's view of the
XML. Nothing here sends, receives or knows a stream.
"""

import re
import reprlib
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final, Self, TypeVar
from xml.etree import ElementTree as ET

from slixmpp.xmlstream import ElementBase, register_stanza_plugin

from qos import arguments
from qos.errors import InvalidArgument

NS: Final = "urn:xmpp:eventlog"

TAG_TYPE_DEFAULT: Final = "xs:string"

# Characters that a document cannot contain, even escaped (XML 1.0 §2.2). slixmpp would
# send them as they are, and the server would close the stream.
ILLEGAL_CHARACTER: Final = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)

# XML Schema Part 2 §3.2.7; `datetime.fromisoformat` alone accepts much more.
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_OFFSET_MAX = timedelta(hours=14)  # XML Schema Part 2 §3.2.7.3

_TEXT_ATTRIBUTES = ("id", "object", "subject", "facility", "module")

_RANK = {
    f"{{{NS}}}{child}": rank
    for rank, child in enumerate(("message", "tag", "stackTrace"))
}


class EventType(StrEnum):
    """The kind of an event; the severities of syslog (XEP-0337 §5.1)."""

    DEBUG = "Debug"
    INFORMATIONAL = "Informational"
    NOTICE = "Notice"
    WARNING = "Warning"
    ERROR = "Error"
    CRITICAL = "Critical"
    ALERT = "Alert"
    EMERGENCY = "Emergency"


class EventLevel(StrEnum):
    """The weight of an event, given its type (XEP-0337 §5.2)."""

    MINOR = "Minor"
    MEDIUM = "Medium"
    MAJOR = "Major"


class MalformedEvent(ValueError):
    """A peer's `<log/>` that breaks the schema of XEP-0337.

    Attributes:
        where: the path in the element, such as `log/tag[2]/@name`.
        problem: what is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.where = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclass(frozen=True, slots=True)
class EventTag:
    """A named value attached to an event (XEP-0337 §5.9).

    `type` is a qualified name such as `xs:long`. It says how to read `value`, which
    stays text here.

    Raises:
        ValueError: an empty type, or a character that XML cannot carry.
    """

    name: str
    value: str
    type: str = TAG_TYPE_DEFAULT

    def __post_init__(self) -> None:
        for field in ("name", "value", "type"):
            _check_text(f"tag {field}", getattr(self, field))
        if not self.type:
            raise ValueError("tag type: must not be empty")


@dataclass(frozen=True, slots=True)
class LogEvent:
    r"""One event; its parts are named as in XEP-0337 §2.

    `None` means that the part is absent. As in any XML, `\r\n` arrives as `\n`, and a
    line break or tab in an attribute (all parts except `message` and `stack_trace`) as
    a space.

    Raises:
        ValueError: a timestamp without a time zone, an unknown type or level, or a
            character that XML cannot carry.
    """

    message: str
    timestamp: datetime
    _: KW_ONLY
    id: str | None = None
    type: EventType = EventType.INFORMATIONAL
    level: EventLevel = EventLevel.MINOR
    object: str | None = None
    subject: str | None = None
    facility: str | None = None
    module: str | None = None
    tags: tuple[EventTag, ...] = ()
    stack_trace: str | None = None

    def __post_init__(self) -> None:
        arguments.instance(datetime, "timestamp", self.timestamp, "a datetime")
        if self.timestamp.utcoffset() is None:
            raise ValueError(f"timestamp: {self.timestamp} has no time zone")
        arguments.member(EventType, "type", self.type)
        arguments.member(EventLevel, "level", self.level)
        if not isinstance(self.tags, tuple):
            raise InvalidArgument("tags", type(self.tags), "a tuple of EventTag")
        for tag in self.tags:
            arguments.instance(EventTag, "tags", tag, "a tuple of EventTag")
        _check_text("message", self.message)
        for field in (*_TEXT_ATTRIBUTES, "stack_trace"):
            _check_text(field, getattr(self, field), optional=True)

    @classmethod
    def from_stanza(cls, log: "Log") -> Self:
        """Read `<log/>`.

        A timestamp without a time zone is taken to be in ours (XEP-0337 §6.1). Children
        in another order, and children that the schema does not have, are accepted.

        Raises:
            MalformedEvent: a part is missing, repeated, or not of its type; also hour
                24 or a year above 9999, which `datetime` cannot hold.
        """
        xml = log.xml
        messages = xml.findall(f"{{{NS}}}message")
        if len(messages) != 1:
            raise MalformedEvent("log/message", f"found {len(messages)}, expected 1")
        traces = xml.findall(f"{{{NS}}}stackTrace")
        if len(traces) > 1:
            raise MalformedEvent(
                "log/stackTrace", f"found {len(traces)}, expected at most 1"
            )
        return cls(
            message=messages[0].text or "",
            timestamp=_read_timestamp(_required(xml, "timestamp", "log")),
            type=_read_enum(EventType, log["type"], "log/@type"),
            level=_read_enum(EventLevel, log["level"], "log/@level"),
            tags=tuple(_read_tags(xml.findall(Tag.tag_name()))),
            stack_trace=(traces[0].text or "") if traces else None,
            **{name: xml.get(name) for name in _TEXT_ATTRIBUTES},
        )

    def to_stanza(self) -> "Log":
        """Write `<log/>` without values that equal the schema's defaults."""
        log = Log()
        log.xml.set("timestamp", _format_timestamp(self.timestamp))
        if self.type != EventType.INFORMATIONAL:
            log["type"] = str(self.type)
        if self.level != EventLevel.MINOR:
            log["level"] = str(self.level)
        for name in _TEXT_ATTRIBUTES:
            if (value := getattr(self, name)) is not None:
                log.xml.set(name, value)
        log["message"] = self.message
        for tag in self.tags:
            log.add_tag(tag)
        log["stackTrace"] = self.stack_trace
        return log


class Log(ElementBase):
    """`<log/>`: `message`, then each `tag`, then `stackTrace`, however they were set.

    The interfaces are the raw strings, with the schema's defaults. Reading one never
    raises, since slixmpp reads all of them for a mere `in` test on the message.
    `LogEvent` has the types and the checks.
    """

    name = "log"
    namespace = NS
    plugin_attrib = "event_log"
    interfaces: ClassVar[set[str]] = {
        "timestamp",
        "id",
        "type",
        "level",
        "object",
        "subject",
        "facility",
        "module",
        "message",
        "stackTrace",
    }
    sub_interfaces: ClassVar[set[str]] = {"message", "stackTrace"}

    def get_type(self) -> str:
        """The type as written, or the schema's default."""
        return self._get_attr("type", EventType.INFORMATIONAL.value)

    def get_level(self) -> str:
        """The level as written, or the schema's default."""
        return self._get_attr("level", EventLevel.MINOR.value)

    def add_tag(self, tag: EventTag) -> None:
        """Add a `<tag/>` after the present ones."""
        child = Tag()
        child["name"] = tag.name
        child["value"] = tag.value
        if tag.type != TAG_TYPE_DEFAULT:
            child["type"] = tag.type
        self.append(child)

    def append(self, item: ET.Element | ElementBase) -> ElementBase:
        """Add a child at its place in the schema's order; see `ElementBase.append`."""
        super().append(item)
        self.sort_children()
        return self

    def sort_children(self) -> None:
        """Put the children into the schema's order; unknown ones go last."""
        self.xml[:] = sorted(
            self.xml, key=lambda child: _RANK.get(child.tag, len(_RANK))
        )

    def _set_sub_text(
        self,
        name: str,
        text: str | None = None,
        keep: bool = False,
        lang: str | None = None,
    ) -> ET.Element | None:
        # Both children are xs:string: an empty one is a value, and is not absent.
        element = super()._set_sub_text(name, text, keep=True, lang=lang)
        self.sort_children()
        return element


class Tag(ElementBase):
    """`<tag/>`, a child of `<log/>`; the interfaces are its raw attributes."""

    name = "tag"
    namespace = NS
    plugin_attrib = "tag"
    plugin_multi_attrib = "tags"
    interfaces: ClassVar[set[str]] = {"name", "value", "type"}

    def setup(self, xml: ET.Element | None = None) -> bool:
        """Put the tag at its place in its `<log/>`."""
        is_new = super().setup(xml)
        parent = self.parent() if self.parent is not None else None
        if is_new and isinstance(parent, Log):
            parent.sort_children()
        return is_new

    def set_name(self, name: str) -> None:
        """Set the name; slixmpp's own setter drops an empty one."""
        self.xml.set("name", name)

    def set_value(self, value: str) -> None:
        """Set the value; slixmpp's own setter drops an empty one."""
        self.xml.set("value", value)

    def get_type(self) -> str:
        """The type as written, or the schema's default."""
        return self._get_attr("type", TAG_TYPE_DEFAULT)


register_stanza_plugin(Log, Tag, iterable=True)

_Enum = TypeVar("_Enum", bound=StrEnum)


def _check_text(name: str, text: object, *, optional: bool = False) -> None:
    if text is None and optional:
        return
    text = arguments.text(name, text, private=True)
    if illegal := ILLEGAL_CHARACTER.search(text):
        raise ValueError(f"{name}: XML cannot carry the character {illegal[0]!r}")


def _required(xml: ET.Element, attribute: str, path: str) -> str:
    value = xml.get(attribute)
    if value is None:
        raise MalformedEvent(f"{path}/@{attribute}", "missing")
    return value


def _read_enum(kind: type[_Enum], value: str, path: str) -> _Enum:
    try:
        return kind(value)
    except ValueError:
        problem = f"{reprlib.repr(value)} is not one of {', '.join(kind)}"
        raise MalformedEvent(path, problem) from None


def _read_tags(tags: Iterable[ET.Element]) -> Iterable[EventTag]:
    for number, xml in enumerate(tags, start=1):
        path = f"log/tag[{number}]"
        yield EventTag(
            name=_required(xml, "name", path),
            value=_required(xml, "value", path),
            type=xml.get("type") or TAG_TYPE_DEFAULT,
        )


def _read_timestamp(text: str) -> datetime:
    text = text.strip(" \t\r\n")  # XML Schema Part 2 §3.2.7: white space collapses.
    try:
        if not _DATE_TIME.fullmatch(text):
            raise ValueError("not an xs:dateTime")
        timestamp = datetime.fromisoformat(text)
        return timestamp if timestamp.tzinfo else timestamp.astimezone()
    except (ValueError, OverflowError) as error:
        problem = f"{reprlib.repr(text)}: {error}"
        raise MalformedEvent("log/@timestamp", problem) from None


def _format_timestamp(timestamp: datetime) -> str:
    """Write a timestamp with its time zone (XEP-0337 §6.1), if xs:dateTime can."""
    offset = timestamp.utcoffset() or timedelta()
    if offset % timedelta(minutes=1) or abs(offset) > _OFFSET_MAX:
        timestamp = timestamp.astimezone(UTC)
    return timestamp.isoformat().replace("+00:00", "Z")
