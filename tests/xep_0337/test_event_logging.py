"""The plugin on real, unconnected streams, and the logging handler."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.stanza import Message

from xep_0337 import (
    NS,
    XEP_0337,
    EventLogHandler,
    EventTag,
    EventType,
    Log,
    LogEvent,
)
from xep_0337.event_logging import (
    MESSAGE_CHARS_MAX,
    MODULE_CHARS_MAX,
    STACK_TRACE_CHARS_MAX,
)

Stream = ClientXMPP | ComponentXMPP

WHEN = datetime(2013, 11, 10, 15, 52, 23, tzinfo=UTC)

GOOD = f"<log xmlns='{NS}' timestamp='2013-11-10T15:52:23Z'><message>A</message></log>"
BAD = f"<log xmlns='{NS}' timestamp='soon'><message>B</message></log>"


class Wire(asyncio.Transport):
    """A connection that keeps the written data."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        pass


def new_client() -> ClientXMPP:
    return ClientXMPP("device@example.org/1", "secret")


def new_component() -> ComponentXMPP:
    return ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's signature
        "log.example.org", "secret", "localhost", 5347
    )


def disable(xmpp: Stream) -> None:
    xmpp.plugin.disable("xep_0337")  # type: ignore[attr-defined]  # slixmpp's lie


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    for plugin in list(XEP_0337._users):
        disable(plugin.xmpp)
    assert "event_log" not in Message.plugin_attrib_map
    assert Log.tag_name() not in Message.plugin_tag_map


@pytest.fixture(params=[new_client, new_component], ids=["client", "component"])
async def xmpp(request: pytest.FixtureRequest) -> Stream:
    new_stream: Callable[[], Stream] = request.param
    stream = new_stream()
    stream.register_plugin("xep_0337")
    return stream


def connect(xmpp: Stream) -> Wire:
    wire = Wire()
    xmpp.connection_made(wire)
    xmpp.data_received(
        f"<stream:stream xmlns='{xmpp.default_ns}' version='1.0' id='s1' "
        "xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    return wire


def start_session(xmpp: Stream) -> Wire:
    wire = connect(xmpp)
    xmpp.session_bind_event.set()
    xmpp.event("session_bind", xmpp.boundjid)
    xmpp.event("session_start")
    return wire


async def sent(xmpp: Stream, wire: Wire) -> list[ET.Element]:
    """The elements sent since the last call, in any namespace of a stream."""
    await asyncio.sleep(0)  # Let the handler's callbacks run.
    sender = asyncio.create_task(xmpp.run_filters())
    await xmpp.waiting_queue.join()
    sender.cancel()
    with suppress(asyncio.CancelledError):
        await sender
    written, wire.written = wire.written.decode(), b""
    stanzas = written.partition("<message")
    return list(ET.fromstring(f"<all>{''.join(stanzas[1:])}</all>"))  # noqa: S314


def events_in(stanzas: list[ET.Element]) -> list[LogEvent]:
    logs = [xml.find(Log.tag_name()) for xml in stanzas]
    return [LogEvent.from_stanza(Log(xml=xml)) for xml in logs if xml is not None]


def receive(xmpp: Stream, content: str, kind: str = "normal") -> list[Message]:
    """Feed a message to the stream's parser; the messages of `event_log`."""
    messages: list[Message] = []
    if not xmpp.is_connected():
        connect(xmpp)
    with xmpp.event_handler("event_log", messages.append):
        xmpp.data_received(
            f"<message from='dev@example.org/1' to='{xmpp.boundjid}' id='m1' "
            f"type='{kind}' xml:lang='en'>{content}</message>"
        )
    return messages


async def features(xmpp: Stream) -> set[str]:
    info = await xmpp.plugin["xep_0030"].get_info(jid=xmpp.boundjid, local=True)
    found: set[str] = info["features"]
    return found


async def test_an_incoming_event_is_raised_and_parsed(xmpp: Stream) -> None:
    [message] = receive(xmpp, GOOD)
    assert XEP_0337.parse(message) == (LogEvent("A", WHEN),)
    assert message["event_log"]["message"] == "A"


async def test_a_message_may_have_several_events(xmpp: Stream) -> None:
    """XEP-0337 §3.9: they mean the same as separate ones."""
    [message] = receive(xmpp, GOOD + "<body>Hi</body>" + GOOD.replace("A", "C"))
    assert [event.message for event in XEP_0337.parse(message)] == ["A", "C"]


async def test_a_message_without_an_event_is_left_alone(xmpp: Stream) -> None:
    assert receive(xmpp, "<body>Hi</body><log xmlns='urn:other'/>") == []


async def test_an_event_that_comes_back_as_an_error_is_not_a_new_one(
    xmpp: Stream,
) -> None:
    """RFC 6120 §8.3.1.

    An error may repeat the content of the stanza that it answers.
    """
    assert receive(xmpp, GOOD + "<error type='cancel'/>", "error") == []


async def test_a_malformed_event_is_logged_by_name_and_place(
    xmpp: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    assert receive(xmpp, BAD) == []
    assert caplog.record_tuples == [
        (
            "xep_0337.event_logging",
            logging.WARNING,
            "Left out event 1 of message 'm1' from dev@example.org/1: "
            "log/@timestamp: 'soon': not an xs:dateTime (0 more left out)",
        )
    ]


async def test_a_flood_of_malformed_events_is_one_line_of_each_account(
    xmpp: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """A message has room for thousands.

    They must not become as many lines on our disk.
    """
    for _ in range(3):
        assert receive(xmpp, BAD * 100) == []
    assert len(caplog.records) == 1


async def test_a_malformed_event_does_not_cost_its_neighbour(
    xmpp: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    [message] = receive(xmpp, BAD + GOOD)
    assert XEP_0337.parse(message) == (LogEvent("A", WHEN),)
    assert "Left out event 1 of" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        f"<log xmlns='{NS}'/>",
        f"<log xmlns='{NS}'><message><x/></message></log>",
        f"<log xmlns='{NS}' timestamp=''><message/><tag/><tag><tag/></tag></log>",
        f"<log xmlns='{NS}' timestamp='0001-01-01T00:00:00' type='' level=''>"
        "<message/></log>",
        f"<log xmlns='{NS}' timestamp='0001-01-01T00:00:00'>"
        "<stanza xmlns='jabber:client'/><message/><log><message/></log></log>",
    ],
)
async def test_no_content_of_a_peer_raises(
    xmpp: Stream, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    receive(xmpp, content)
    assert {record.levelname for record in caplog.records} <= {"WARNING"}


async def test_an_event_is_sent_in_a_normal_message() -> None:
    client = new_client()
    client.register_plugin("xep_0337")
    wire = start_session(client)
    XEP_0337.of(client).send_event("log@example.org", LogEvent("Hi", WHEN))
    [message] = await sent(client, wire)
    assert message.get("to") == "log@example.org"
    assert message.get("type") == "normal"
    assert message.get("from") is None
    assert [child.tag for child in message] == [Log.tag_name()]
    assert events_in([message]) == [LogEvent("Hi", WHEN)]


async def test_a_component_says_who_sends() -> None:
    """XEP-0114 §3: a server refuses a component's stanza without a `from`."""
    component = new_component()
    component.register_plugin("xep_0337")
    plugin = XEP_0337.of(component)
    event = LogEvent("Hi", WHEN)
    assert plugin.make_message("log@example.org", event)["from"] == "log.example.org"
    message = plugin.make_message("log@example.org", event, sender="a@log.example.org")
    assert message["from"] == "a@log.example.org"
    assert XEP_0337.parse(message) == (event,)


async def test_what_is_sent_can_be_received(xmpp: Stream) -> None:
    event = LogEvent("<&>\n", WHEN, tags=(EventTag("a", "1", "xs:int"),))
    log = str(XEP_0337.of(xmpp).make_message("x@example.org", event)["event_log"])
    [message] = receive(xmpp, log)
    assert XEP_0337.parse(message) == (event,)


async def test_the_feature_is_advertised(xmpp: Stream) -> None:
    start_session(xmpp)
    assert NS in await features(xmpp)


async def test_the_accessor_says_what_to_do_when_there_is_no_plugin() -> None:
    with pytest.raises(LookupError, match=r"xep_0337 is not registered on device@.*"):
        XEP_0337.of(new_client())


async def test_the_end_of_the_plugin_leaves_nothing_behind(xmpp: Stream) -> None:
    disable(xmpp)
    before = state(xmpp)
    assert "event_log" not in Message.plugin_attrib_map

    xmpp.register_plugin("xep_0337")
    plugin = XEP_0337.of(xmpp)
    start_session(xmpp)
    first = xmpp.boundjid
    if isinstance(xmpp, ClientXMPP):
        xmpp.set_jid("device@example.org/2")  # the next session's resource
        xmpp.event("session_bind", xmpp.boundjid)
    assert state(xmpp) != before
    assert plugin.online

    disable(xmpp)
    assert state(xmpp) == before
    assert not plugin.online
    assert NS not in await features(xmpp)
    xmpp.set_jid(first)
    assert NS not in await features(xmpp)
    assert receive(xmpp, GOOD) == []
    with pytest.raises(LookupError):
        XEP_0337.of(xmpp)
    xmpp.register_plugin("xep_0337")
    assert NS in await features(xmpp)
    assert len(receive(xmpp, GOOD)) == 1


def state(xmpp: Stream) -> list[object]:
    """Everything in slixmpp that a plugin can have added to."""
    events = vars(xmpp)["_XMLStream__event_handlers"]
    return [
        [handler.name for handler in vars(xmpp)["_XMLStream__handlers"]],
        {name: list(handlers) for name, handlers in events.items() if handlers},
        {
            mode: list(found)
            for mode, found in vars(xmpp)["_XMLStream__filters"].items()
        },
        dict(Message.plugin_attrib_map),
        dict(Message.plugin_tag_map),
    ]


async def test_the_end_of_one_plugin_does_not_touch_another_stream(
    xmpp: Stream,
) -> None:
    """slixmpp registers stanzas for the whole process."""
    other = new_client()
    other.register_plugin("xep_0337")
    disable(other)
    assert len(receive(xmpp, GOOD)) == 1


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A logger whose records go to an event log."""

    def __init__(self, xmpp: Stream, **options: int | float | str) -> None:
        self.clock = ManualClock()
        self.xmpp = xmpp
        self.handler = EventLogHandler(
            xmpp,
            "log@example.org",
            clock=self.clock,
            **options,  # type: ignore[arg-type]  # each test knows its own
        )
        logging.getLogger().addHandler(self.handler)
        self.logger = logging.getLogger("doors.motor")
        self.wire = start_session(xmpp)

    async def events(self) -> list[LogEvent]:
        return events_in(await sent(self.xmpp, self.wire))

    def close(self) -> None:
        logging.getLogger().removeHandler(self.handler)
        self.handler.close()


@pytest.fixture
def new_rig(xmpp: Stream) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(**options: int | float | str) -> Rig:
        rigs.append(Rig(xmpp, **options))
        return rigs[-1]

    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    yield make
    logging.getLogger().setLevel(level)
    for rig in rigs:
        rig.close()


async def test_a_record_becomes_an_event(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(facility="building")
    before = datetime.now(UTC)
    rig.logger.warning("Door %d is stuck", 2)
    [event] = await rig.events()
    assert before <= event.timestamp <= datetime.now(UTC)
    assert event == LogEvent(
        "Door 2 is stuck",
        event.timestamp,
        type=EventType.WARNING,
        facility="building",
        module="doors.motor",
    )


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (1, EventType.DEBUG),
        (logging.DEBUG, EventType.DEBUG),
        (logging.INFO, EventType.INFORMATIONAL),
        (24, EventType.INFORMATIONAL),
        (25, EventType.NOTICE),
        (logging.WARNING, EventType.WARNING),
        (logging.ERROR, EventType.ERROR),
        (logging.CRITICAL, EventType.CRITICAL),
        (60, EventType.CRITICAL),
    ],
)
async def test_a_level_becomes_a_type(
    level: int, expected: EventType, new_rig: Callable[..., Rig]
) -> None:
    rig = new_rig()
    logging.getLogger().setLevel(1)
    rig.logger.log(level, "Hi")
    assert [event.type for event in await rig.events()] == [expected]


async def test_an_exception_becomes_the_stack_trace(
    new_rig: Callable[..., Rig],
) -> None:
    rig = new_rig()
    try:
        raise RuntimeError("jammed \x1b[31m")
    except RuntimeError:
        rig.logger.exception("Failed")
    rig.logger.info("Here", stack_info=True)
    rig.logger.error("No exception", exc_info=(None, None, None))
    failed, here, without = await rig.events()
    assert failed.message == "Failed"
    assert failed.stack_trace is not None
    assert failed.stack_trace.startswith("Traceback (most recent call last):\n")
    assert failed.stack_trace.endswith("RuntimeError: jammed \ufffd[31m")
    assert here.stack_trace is not None
    assert here.stack_trace.startswith("Stack (most recent call last):\n")
    assert without.stack_trace is None


async def test_no_record_makes_a_stanza_that_closes_the_stream(
    new_rig: Callable[..., Rig],
) -> None:
    """Neither by characters that XML cannot carry nor by its size (256 KiB in Prosody)."""
    rig = new_rig()
    logger = logging.getLogger('"' * 10_000)
    # Not through pytest's capture, which may have to encode the output.
    logger.addHandler(rig.handler)
    logger.propagate = False
    try:
        raise RuntimeError('"' * 1_000_000 + "the end")
    except RuntimeError:
        logger.exception("\x00\ud800\uffff%s", '"' * 1_000_000)
    logger.removeHandler(rig.handler)
    logger.propagate = True
    await asyncio.sleep(0)
    [event] = events_in(await sent(rig.xmpp, rig.wire))
    assert event.message.startswith('\ufffd\ufffd\ufffd"')
    assert len(event.message) == MESSAGE_CHARS_MAX
    assert event.message.endswith("…")
    assert len(event.module or "") == MODULE_CHARS_MAX
    assert len(event.stack_trace or "") == STACK_TRACE_CHARS_MAX
    assert (event.stack_trace or "").startswith("…")
    assert (event.stack_trace or "").endswith("the end")
    message = XEP_0337.of(rig.xmpp).make_message("log@example.org", event)
    assert len(str(message).encode()) < 256 * 1024


async def test_the_handler_never_sends_what_slixmpp_logs(
    new_rig: Callable[..., Rig],
) -> None:
    """Otherwise each event would make records, each record an event, and so on."""
    rig = new_rig()
    for name in ("slixmpp", "slixmpp.xmlstream.xmlstream", "xep_0337.event_logging"):
        logging.getLogger(name).error("Hi")
    assert await rig.events() == []
    rig.logger.info("One")  # slixmpp logs a line or more at debug for sending this.
    assert [event.message for event in await rig.events()] == ["One"]
    assert await rig.events() == []
    logging.getLogger("slixmpp_app").error("Not slixmpp's")
    assert [event.message for event in await rig.events()] == ["Not slixmpp's"]


async def test_a_record_made_by_sending_is_ignored(
    new_rig: Callable[..., Rig],
) -> None:
    """Even from a task: the application may log each stanza that was not sent."""
    rig = new_rig()

    async def complain_later(_: object) -> None:
        rig.logger.error("not sent (task)")

    rig.xmpp.add_event_handler(
        "stanza_not_sent", lambda _: rig.logger.error("not sent")
    )
    rig.xmpp.add_event_handler("stanza_not_sent", complain_later)
    rig.logger.info("One")
    rig.xmpp.event("disconnected", "before the callback runs")
    for _ in range(5):
        await asyncio.sleep(0)
    rig.xmpp.event("session_start")
    assert [event.message for event in await rig.events()] == ["One"]
    rig.logger.info("Two")
    assert [(event.message, event.tags) for event in await rig.events()] == [
        ("Two", ())
    ]


async def test_the_rate_is_bounded_and_the_loss_is_told(
    new_rig: Callable[..., Rig],
) -> None:
    rig = new_rig(events_per_s_max=2.0, burst_max=3)
    for number in range(10):
        rig.logger.info("%d", number)
    assert [event.message for event in await rig.events()] == ["0", "1", "2"]
    rig.clock.now += 0.5
    rig.logger.info("next")
    rig.logger.info("too soon")
    [event] = await rig.events()
    assert event.message == "next"
    assert event.tags == (EventTag("dropped", "7", "xs:long"),)
    rig.clock.now += 3600
    for number in range(10):
        rig.logger.info("%d", number)
    events = await rig.events()
    assert [event.message for event in events] == ["0", "1", "2"]
    assert [event.tags for event in events] == [
        (EventTag("dropped", "1", "xs:long"),),
        (),
        (),
    ]


async def test_nothing_is_held_while_there_is_no_session(
    new_rig: Callable[..., Rig],
) -> None:
    """slixmpp would queue without a limit, and send everything at the next session."""
    rig = new_rig()
    rig.xmpp.event("disconnected", "cut")
    rig.logger.info("lost")
    await asyncio.sleep(0)
    rig.xmpp.event("session_resumed", "")
    rig.logger.info("back")
    assert [(event.message, event.tags) for event in await rig.events()] == [
        ("back", (EventTag("dropped", "1", "xs:long"),))
    ]


async def test_records_may_come_from_any_thread(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(burst_max=100)
    rig.xmpp.loop.set_debug(True)  # It refuses what is not thread-safe.
    rig.xmpp.loop.slow_callback_duration = 60
    threads = [
        threading.Thread(target=rig.logger.info, args=("%d", number))
        for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    found = sorted(int(event.message) for event in await rig.events())
    assert found == list(range(20))


async def test_a_record_that_cannot_be_formatted_does_not_raise(
    new_rig: Callable[..., Rig], capsys: pytest.CaptureFixture[str]
) -> None:
    """`logging` promises this to those who log, and prints the mistake instead."""
    rig = new_rig()
    rig.handler.handle(rig.logger.makeRecord("a", 20, "f", 1, "%d", ("x",), None))
    assert await rig.events() == []
    assert "--- Logging error ---" in capsys.readouterr().err


async def test_a_failure_to_send_does_not_raise(
    new_rig: Callable[..., Rig],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = new_rig()

    def fail(*_: object) -> None:
        raise OSError("no wire")

    monkeypatch.setattr(rig.xmpp, "send", fail)
    rig.logger.info("Hi")
    assert await rig.events() == []
    assert "OSError: no wire" in capsys.readouterr().err


async def test_the_handler_needs_the_plugin() -> None:
    with pytest.raises(LookupError, match="xep_0337 is not registered"):
        EventLogHandler(new_client(), "log@example.org")
