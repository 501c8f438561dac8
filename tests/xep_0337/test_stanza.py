"""XEP-0337 events as values and as XML."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import permutations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slixmpp.stanza import Message

from xep_0337 import (
    EventLevel,
    EventTag,
    EventType,
    Log,
    LogEvent,
    MalformedEvent,
    Tag,
)

WHEN = datetime(2013, 11, 10, 16, 12, 25, tzinfo=UTC)

FULL_EVENT = LogEvent(
    "Door 2 is stuck.\nSecond line & <last>.",
    WHEN,
    id="DoorStuck",
    type=EventType.WARNING,
    level=EventLevel.MAJOR,
    object="door2",
    subject="controller",
    facility="building",
    module="doors.motor",
    tags=(EventTag("current", "2.75", "xs:double"), EventTag("side", "north")),
    stack_trace="motor.py, line 12\nmain.py, line 3",
)

FULL_XML = """\
<log xmlns="urn:xmpp:eventlog" timestamp="2013-11-10T16:12:25Z" id="DoorStuck"
     type="Warning" level="Major" object="door2" subject="controller"
     facility="building" module="doors.motor"
><message>Door 2 is stuck.
Second line &amp; &lt;last&gt;.</message
><tag name="current" value="2.75" type="xs:double"/><tag name="side" value="north"
/><stackTrace>motor.py, line 12
main.py, line 3</stackTrace></log>"""

LEAST_XML = """\
<log xmlns="urn:xmpp:eventlog" timestamp="2013-11-10T16:12:25Z"
><message>Something happened.</message></log>"""


def parse(xml: str) -> LogEvent:
    return LogEvent.from_stanza(Log(xml=ET.fromstring(xml)))  # noqa: S314


def log_with(attributes: str, children: str = "<message>Hi</message>") -> str:
    return f'<log xmlns="urn:xmpp:eventlog" {attributes}>{children}</log>'


def make_message(xml: ET.Element | None = None) -> Message:
    return Message(xml=xml)  # type: ignore[no-untyped-call]  # slixmpp's signature


def children(log: Log) -> list[str]:
    return [child.tag.partition("}")[2] for child in log.xml]


def test_every_part_is_written() -> None:
    written = str(FULL_EVENT.to_stanza())
    assert ET.canonicalize(written) == ET.canonicalize(FULL_XML)


def test_every_part_is_read() -> None:
    assert parse(FULL_XML) == FULL_EVENT


def test_what_the_schema_supplies_is_not_written() -> None:
    written = str(LogEvent("Something happened.", WHEN).to_stanza())
    assert ET.canonicalize(written) == ET.canonicalize(LEAST_XML)


def test_what_is_absent_has_the_default_of_the_schema() -> None:
    event = parse(LEAST_XML)
    assert event == LogEvent("Something happened.", WHEN)
    assert (event.type, event.level) == (EventType.INFORMATIONAL, EventLevel.MINOR)
    log = Log(xml=ET.fromstring(LEAST_XML))  # noqa: S314
    assert (log["type"], log["level"], log["id"]) == ("Informational", "Minor", "")
    assert EventTag("a", "b").type == Tag()["type"] == "xs:string"


@pytest.mark.parametrize("order", list(permutations(["message", "tag", "stackTrace"])))
def test_children_keep_the_order_of_the_schema(order: tuple[str, ...]) -> None:
    """XEP-0337 §3.6 and §3.8: message first, stackTrace last."""
    log = Log()
    for child in order * 2:
        if child == "tag":
            log.add_tag(EventTag("n", "v"))
        else:
            log[child] = "text"
        ranks = [("message", "tag", "stackTrace").index(name) for name in children(log)]
        assert ranks == sorted(ranks)
    assert children(log) == ["message", "tag", "tag", "stackTrace"]


def test_tags_keep_their_own_order_however_they_are_added() -> None:
    """slixmpp has many ways to add a child, and each must end in its place."""
    log = Log()
    log["message"] = "text"
    log["stackTrace"] = "trace"
    log.append(ET.Element("{urn:example}unknown"))

    def add_by_interface() -> None:
        log["tag"]["name"] = "a"

    def add_by_value() -> None:
        log.add_tag(EventTag("b", "1"))

    def add_by_parent() -> None:
        Tag(parent=log)["name"] = "c"

    def add_by_append() -> None:
        tag = Tag()
        tag["name"] = "d"
        log.append(tag)

    adders = (add_by_interface, add_by_value, add_by_parent, add_by_append)
    for count, add in enumerate(adders, start=1):
        add()
        tags = ["tag"] * count
        assert children(log) == ["message", *tags, "stackTrace", "unknown"]
    assert [xml.get("name") for xml in log.xml.iter(Tag.tag_name())] == list("abcd")


def test_tags_are_readable_and_replaceable_together() -> None:
    log = FULL_EVENT.to_stanza()
    assert [tag["name"] for tag in log["tags"]] == ["current", "side"]
    tag = Tag()
    tag["name"] = "only"
    log["tags"] = [tag]
    assert [tag["name"] for tag in log["tags"]] == ["only"]
    assert children(log) == ["message", "tag", "stackTrace"]


def test_an_empty_text_is_not_an_absent_one() -> None:
    """The schema's type is xs:string, which may be empty."""
    event = LogEvent("", WHEN, id="", tags=(EventTag("", ""),), stack_trace="")
    assert LogEvent.from_stanza(event.to_stanza()) == event


def test_a_child_of_a_message_in_another_language_is_read() -> None:
    message = make_message()
    message["lang"] = "sv"
    message.append(FULL_EVENT.to_stanza())
    log = Log(xml=message.xml[0], parent=message)
    log["message"] = "Dörren"
    assert log["message"] == "Dörren"
    assert LogEvent.from_stanza(log).message == "Dörren"


@pytest.mark.parametrize(
    ("xml", "where", "problem"),
    [
        (
            log_with("timestamp='2013-11-10T16:12:25Z'", ""),
            "log/message",
            "found 0, expected 1",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z'", "<message/><message/>"),
            "log/message",
            "found 2, expected 1",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z'", "<message xmlns='jabber:x'/>"),
            "log/message",
            "found 0, expected 1",
        ),
        (
            log_with(
                "timestamp='2013-11-10T16:12:25Z'",
                "<message/><stackTrace/><stackTrace/>",
            ),
            "log/stackTrace",
            "found 2, expected at most 1",
        ),
        (log_with(""), "log/@timestamp", "missing"),
        (
            log_with("timestamp='yesterday'"),
            "log/@timestamp",
            "'yesterday': not an xs:dateTime",
        ),
        (
            log_with("timestamp='2013-11-10'"),
            "log/@timestamp",
            "'2013-11-10': not an xs:dateTime",
        ),
        (
            log_with("timestamp='2013-11-31T16:12:25Z'"),
            "log/@timestamp",
            "'2013-11-31T16:12:25Z': day is out of range for month",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z' type='Fatal'"),
            "log/@type",
            "'Fatal' is not one of Debug, Informational, Notice, Warning, Error, "
            "Critical, Alert, Emergency",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z' type=''"),
            "log/@type",
            "'' is not one of Debug, Informational, Notice, Warning, Error, "
            "Critical, Alert, Emergency",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z' level='minor'"),
            "log/@level",
            "'minor' is not one of Minor, Medium, Major",
        ),
        (
            log_with(
                "timestamp='2013-11-10T16:12:25Z'",
                "<message/><tag name='a' value='1'/><tag value='2'/>",
            ),
            "log/tag[2]/@name",
            "missing",
        ),
        (
            log_with("timestamp='2013-11-10T16:12:25Z'", "<message/><tag name='a'/>"),
            "log/tag[1]/@value",
            "missing",
        ),
    ],
)
def test_a_malformed_event_says_what_is_wrong_and_where(
    xml: str, where: str, problem: str
) -> None:
    with pytest.raises(MalformedEvent) as caught:
        parse(xml)
    assert (caught.value.where, caught.value.problem) == (where, problem)
    assert str(caught.value) == f"{where}: {problem}"
    assert isinstance(caught.value, ValueError)


def test_an_error_quotes_little_of_a_hostile_value() -> None:
    with pytest.raises(MalformedEvent) as caught:
        parse(log_with(f"timestamp='{'9' * 100_000}'"))
    assert len(str(caught.value)) < 100


def test_reading_a_malformed_stanza_never_raises() -> None:
    """slixmpp reads every interface even for an `in` test on the message around it."""
    log = Log(xml=ET.fromstring(log_with("timestamp='?' type='?'", "<tag/>")))  # noqa: S314
    assert log.values["timestamp"] == "?"
    assert "nothing" not in log


def test_unknown_parts_and_another_order_are_let_pass() -> None:
    """XEP-0337 §3.8 itself shows an attribute `stackTrace` that is not in the schema."""
    event = parse(
        log_with(
            "timestamp='2013-11-10T16:12:25Z' stackTrace='file1, line 1'",
            "<stackTrace>T</stackTrace><x xmlns='urn:x'/><tag name='a' value='1'/>"
            "<message>M</message>",
        )
    )
    assert event == LogEvent("M", WHEN, tags=(EventTag("a", "1"),), stack_trace="T")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-11-10T16:12:25Z", WHEN),
        (" 2013-11-10T16:12:25Z\n", WHEN),
        ("2013-11-10T17:12:25+01:00", WHEN),
        ("2013-11-10T16:12:25.5Z", WHEN + timedelta(seconds=0.5)),
        ("2013-11-10T16:12:25.123456789Z", WHEN + timedelta(microseconds=123456)),
        # XEP-0337 §6.1: without a time zone, it is the receiver's: Newfoundland's here.
        ("2013-11-10T12:42:25", WHEN),
    ],
)
def test_a_timestamp_may_take_each_form_of_xs_date_time(
    text: str, expected: datetime
) -> None:
    timestamp = parse(log_with(f"timestamp='{text}'")).timestamp
    assert timestamp == expected
    assert timestamp.utcoffset() is not None


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (timedelta(0), "2013-11-10T16:12:25Z"),
        (timedelta(hours=-3, minutes=-30), "2013-11-10T16:12:25-03:30"),
        # Neither can be written as xs:dateTime, so they become UTC.
        (timedelta(minutes=19, seconds=32), "2013-11-10T15:52:53Z"),
        (timedelta(hours=15), "2013-11-10T01:12:25Z"),
    ],
)
def test_a_timestamp_keeps_its_time_zone(offset: timedelta, expected: str) -> None:
    """XEP-0337 §6.1: a time zone is to be propagated."""
    event = LogEvent("Hi", WHEN.replace(tzinfo=timezone(offset)))
    assert event.to_stanza()["timestamp"] == expected


def test_an_event_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timestamp: 2013-.* has no time zone"):
        LogEvent("Hi", WHEN.replace(tzinfo=None))


def test_an_event_of_unknown_type_or_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"type must be .*EventType\): 'Fatal'"):
        LogEvent("Hi", WHEN, type="Fatal")  # type: ignore[arg-type]  # the point
    with pytest.raises(ValueError, match=r"level must be .*EventLevel\): 'Huge'"):
        LogEvent("Hi", WHEN, level="Huge")  # type: ignore[arg-type]  # the point


def test_a_tag_has_a_type() -> None:
    """An empty type is no qualified name; from a peer it means the default."""
    with pytest.raises(ValueError, match="tag type: must not be empty"):
        EventTag("a", "1", "")
    tag = "<message/><tag name='a' value='1' type=''/>"
    event = parse(log_with("timestamp='2013-11-10T16:12:25Z'", tag))
    assert event.tags == (EventTag("a", "1"),)


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\ud800", "\uffff"])
def test_what_xml_cannot_carry_is_refused(character: str) -> None:
    """slixmpp would send it, and the server would close the stream."""
    with pytest.raises(ValueError, match="message: XML cannot carry the character"):
        LogEvent(character, WHEN)
    with pytest.raises(ValueError, match="subject: XML cannot carry the character"):
        LogEvent("Hi", WHEN, subject=character)
    with pytest.raises(ValueError, match="tag value: XML cannot carry the character"):
        EventTag("name", f"some {character}")


def texts(also: str) -> st.SearchStrategy[str]:
    return st.text(
        st.characters(
            exclude_categories=["Cc", "Cs"],
            include_characters=also,
            exclude_characters="\ufffe\uffff",
        )
    )


LINES = texts("\t\n")
# In an attribute XML 1.0 §3.3.3 makes a space of a tab and a line break.
ATTRIBUTES = texts("")

EVENTS = st.builds(
    LogEvent,
    LINES,
    st.datetimes(
        min_value=datetime(2, 1, 1),  # noqa: DTZ001 (the next argument is the zone)
        timezones=st.timedeltas(
            min_value=timedelta(hours=-23), max_value=timedelta(hours=23)
        ).map(timezone),
        max_value=datetime(9999, 12, 1),  # noqa: DTZ001
    ),
    id=st.none() | ATTRIBUTES,
    type=st.sampled_from(EventType),
    level=st.sampled_from(EventLevel),
    object=st.none() | ATTRIBUTES,
    subject=st.none() | ATTRIBUTES,
    facility=st.none() | ATTRIBUTES,
    module=st.none() | ATTRIBUTES,
    tags=st.lists(
        st.builds(EventTag, ATTRIBUTES, ATTRIBUTES, ATTRIBUTES.filter(bool))
    ).map(tuple),
    stack_trace=st.none() | LINES,
)


@given(EVENTS)
@example(FULL_EVENT)
@example(LogEvent("", WHEN, tags=(EventTag("", ""),), stack_trace=""))
def test_an_event_survives_the_wire(event: LogEvent) -> None:
    message = make_message()
    message.append(event.to_stanza())
    arrived = make_message(ET.fromstring(str(message)))  # noqa: S314
    assert LogEvent.from_stanza(Log(xml=arrived.xml[0])) == event
