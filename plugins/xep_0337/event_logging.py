"""The plugin: it sends and receives events, also from Python's logging.

An event is a plain `<message/>`: it may be lost without notice. Send an event that must
arrive through `xep_qos`, with `make_message` for its content.
"""

import logging
import reprlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Self
from weakref import WeakSet

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin
from slixmpp.stanza import Message
from slixmpp.types import JidStr
from slixmpp.xmlstream import StanzaBase, register_stanza_plugin
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import StanzaPath

from qos import arguments
from qos.core.rate import RateLimit
from qos.core.strings import bare
from qos.jids import jid_of
from qos.stream.per_stream import plugin_of
from xep_0337 import stanza
from xep_0337.stanza import (
    ILLEGAL_CHARACTER,
    NS,
    EventTag,
    EventType,
    Log,
    LogEvent,
    MalformedEvent,
)

log = logging.getLogger(__name__)

# The least Python level of each type. 25 is the usual level for NOTICE, which Python
# lacks; Python has nothing like Alert and Emergency.
EVENT_TYPES: Final = (
    (logging.CRITICAL, EventType.CRITICAL),
    (logging.ERROR, EventType.ERROR),
    (logging.WARNING, EventType.WARNING),
    (25, EventType.NOTICE),
    (logging.INFO, EventType.INFORMATIONAL),
)

# Servers close a stream over a stanza that is too large; 256 KiB is a usual limit. A
# character takes 6 bytes at most ("&quot;"), so these three stay below 252 kB.
MESSAGE_CHARS_MAX: Final = 8_000
STACK_TRACE_CHARS_MAX: Final = 32_000
MODULE_CHARS_MAX: Final = 1_000

# Records that are logged while an event is sent must not become events themselves.
SILENT_LOGGERS: Final = ("slixmpp", "xep_0337")

_HANDLER_NAME = "XEP-0337 event"

# At most one warning per account in this time: others must not be able to flood our
# log.
_WARNING_INTERVAL_S = 60.0

_sending: ContextVar[bool] = ContextVar("xep_0337_sending", default=False)


class XEP_0337(BasePlugin):
    """Event Logging over XMPP, for clients and components.

    A message with at least one well-formed `<log/>` raises the slixmpp event
    `event_log` with the message; `parse` gives its events. A malformed one is logged as
    a warning that names the sender, the message and the place, for each account at most
    once a minute.
    """

    name = "xep_0337"
    description = "XEP-0337: Event Logging over XMPP"
    dependencies: ClassVar[set[str]] = {"xep_0030"}
    stanza = stanza

    #: Whether slixmpp would send a message now.
    online: bool

    # slixmpp registers stanzas for all streams of the process: the last user removes
    # them.
    _users: ClassVar[WeakSet["XEP_0337"]] = WeakSet()

    def __init__(
        self,
        xmpp: ClientXMPP | ComponentXMPP,
        config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(xmpp, config)
        # On a stream in session, slixmpp calls `session_bind` before `plugin_init`.
        self._advertised: set[JID] = set()
        self._warned = RateLimit(_WARNING_INTERVAL_S)

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> Self:
        """The plugin of this stream.

        Raises:
            LookupError: the plugin is not registered on it.
        """
        return plugin_of(xmpp, cls)

    @staticmethod
    def parse(message: Message) -> tuple[LogEvent, ...]:
        """The well-formed events of a message, in their order; usually one.

        XEP-0337 §3.9 allows several events in a message. Malformed ones are left out;
        the plugin has logged them. `LogEvent.from_stanza` tells what is wrong with one.
        """
        arguments.instance(Message, "message", message, "a slixmpp Message")
        return tuple(item for item in _read(message) if isinstance(item, LogEvent))

    def make_message(
        self, to: JidStr, event: LogEvent, *, sender: JidStr | None = None
    ) -> Message:
        """A message of type normal (XEP-0337 §1) that has the event.

        Args:
            to: the receiver.
            event: the event.
            sender: for a component, any address of its domain; None: the component
                itself. A client leaves it to the server.
        """
        to = JID(jid_of("to", to))
        arguments.instance(LogEvent, "event", event, "a LogEvent")
        if sender is not None:
            sender = JID(jid_of("sender", sender))
        elif self.xmpp.is_component:
            sender = self.xmpp.boundjid
        message = self.xmpp.make_message(mto=to, mtype="normal", mfrom=sender)
        message.append(event.to_stanza())
        return message

    def send_event(
        self, to: JidStr, event: LogEvent, *, sender: JidStr | None = None
    ) -> None:
        """Send the event; the arguments are those of `make_message`.

        The message is sent once, and no copy is kept. Call this on the stream's event
        loop. Without a session, slixmpp holds the message until the next session
        starts.
        """
        self.make_message(to, event, sender=sender).send()

    def plugin_init(self) -> None:
        """Start to listen; called by slixmpp."""
        self._users.add(self)
        register_stanza_plugin(Message, Log)
        self.xmpp.register_handler(
            Callback(
                _HANDLER_NAME,
                StanzaPath(f"message/{Log.plugin_attrib}"),
                self._handle_message,
            )
        )
        self.online = self.xmpp.is_connected()
        self.xmpp.add_event_handler("session_start", self._go_online)
        self.xmpp.add_event_handler("session_resumed", self._go_online)
        self.xmpp.add_event_handler("disconnected", self._go_offline)

    def session_bind(self, jid: JidStr) -> None:
        """Advertise the feature (XEP-0337 §4); called by slixmpp."""
        self.xmpp.plugin["xep_0030"].add_feature(NS)
        self._advertised.add(self.xmpp.boundjid)

    def plugin_end(self) -> None:
        """Undo `plugin_init` and `session_bind`; called by slixmpp."""
        self.online = False
        self.xmpp.del_event_handler("session_start", self._go_online)
        self.xmpp.del_event_handler("session_resumed", self._go_online)
        self.xmpp.del_event_handler("disconnected", self._go_offline)
        self.xmpp.remove_handler(_HANDLER_NAME)
        for jid in self._advertised:
            self.xmpp.plugin["xep_0030"].del_feature(jid=jid, feature=NS)
        self._advertised.clear()
        self._users.discard(self)
        if not self._users:
            Message.plugin_attrib_map.pop(Log.plugin_attrib, None)
            Message.plugin_tag_map.pop(Log.tag_name(), None)

    def _go_online(self, _: object) -> None:
        self.online = True

    def _go_offline(self, _: object) -> None:
        self.online = False

    def _handle_message(self, message: StanzaBase) -> None:
        assert isinstance(message, Message)
        # RFC 6120 §8.3.1: an error may contain the stanza that it answers.
        if message["type"] == "error":
            return
        items = list(_read(message))
        for number, item in enumerate(items, start=1):
            if isinstance(item, MalformedEvent):
                self._warn(message, number, item)
        if any(isinstance(item, LogEvent) for item in items):
            self.xmpp.event("event_log", message)

    def _warn(self, message: Message, number: int, error: MalformedEvent) -> None:
        """Warn at most once in a while for each sender.

        One message has room for thousands of malformed events.
        """
        sender = message.xml.get("from", "")
        left_out = self._warned.admit(bare(sender), time.monotonic())
        if left_out is None:
            return
        log.warning(
            "Left out event %d of message %s from %s: %s (%d more left out)",
            number,
            reprlib.repr(message["id"]),
            sender,
            error,
            left_out,
        )


class EventLogHandler(logging.Handler):
    r"""Sends Python's log records as events to an event log.

        logging.getLogger().addHandler(EventLogHandler(client, "log@example.org"))

    `getMessage()` becomes the message, the logger's name the module, exception and
    stack information the stack trace (of a long one, its end), and the level the type
    (see `EVENT_TYPES`); the event's own level stays Minor. A character that XML cannot
    carry becomes U+FFFD. A formatter is not used: the event has a place for each part.

    The handler never blocks, and gives no guarantee: a record that comes too fast, or
    without a session, is dropped. The next event has the number of dropped records in a
    tag `dropped`. Records of slixmpp and of this plugin, and records made while
    sending, are ignored. If an application logs every stanza that it sends in a filter,
    only the rate limits that: keep such records away with `addFilter`.

    May be used from any thread. Never log secrets (XEP-0337 §7.2).

    Args:
        xmpp: the stream, with `xep_0337` registered.
        to: the event log.
        level: records below it are ignored.
        facility: the kind of device or program, for every event.
        events_per_s_max: the rate in the long run.
        burst_max: how many events may be sent at once after a silence; at least 1.
        clock: a time in seconds that never goes back.

    Raises:
        LookupError: `xep_0337` is not registered on the stream.
        InvalidArgument: an argument has a wrong value.
    """

    def __init__(
        self,
        xmpp: ClientXMPP | ComponentXMPP,
        to: JidStr,
        *,
        level: int = logging.NOTSET,
        facility: str | None = None,
        events_per_s_max: float = 10.0,
        burst_max: int = 50,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if facility is not None:
            arguments.text("facility", facility)
        arguments.number("events_per_s_max", events_per_s_max, least=0)
        arguments.whole("burst_max", burst_max, least=1, most=1_000_000)
        arguments.callable_of("clock", clock)
        self._to = JID(jid_of("to", to))
        self._plugin = XEP_0337.of(xmpp)
        # Last, since Python keeps every handler whose `__init__` was called.
        super().__init__(level)
        self._loop = xmpp.loop
        self._facility = facility
        self._events_per_s_max = events_per_s_max
        self._burst_max = burst_max
        self._clock = clock
        self._allowance = float(burst_max)
        self._allowance_at = clock()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record or drop it; called by `logging`, which holds our lock."""
        if _sending.get() or record.name.partition(".")[0] in SILENT_LOGGERS:
            return
        if not (self._plugin.online and self._take_allowance()):
            self._dropped += 1
            return
        try:
            event = _event_from_record(record, self._facility)
            if self._dropped:
                tag = EventTag("dropped", str(self._dropped), "xs:long")
                event = replace(event, tags=(tag,))
            self._loop.call_soon_threadsafe(self._send, record, event)
            self._dropped = 0
        except Exception:  # noqa: BLE001 (logging's own rule for `emit`)
            self.handleError(record)

    def _send(self, record: logging.LogRecord, event: LogEvent) -> None:
        # A callback of the loop has a context of its own: this value ends with it, and
        # tasks that are started by sending inherit it.
        _sending.set(True)
        try:
            self._plugin.send_event(self._to, event)
        except Exception:  # noqa: BLE001 (as in `emit`: it would be logged, and sent)
            self.handleError(record)

    def _take_allowance(self) -> bool:
        now = self._clock()
        earned = (now - self._allowance_at) * self._events_per_s_max
        self._allowance = min(self._burst_max, self._allowance + earned)
        self._allowance_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _read(message: Message) -> Iterator[LogEvent | MalformedEvent]:
    for xml in message.xml.findall(Log.tag_name()):
        try:
            yield LogEvent.from_stanza(Log(xml=xml))
        except MalformedEvent as error:
            yield error


def _event_from_record(record: logging.LogRecord, facility: str | None) -> LogEvent:
    return LogEvent(
        message=_head(_clean(record.getMessage()), MESSAGE_CHARS_MAX),
        timestamp=datetime.fromtimestamp(record.created, UTC),
        type=next(
            (kind for least, kind in EVENT_TYPES if record.levelno >= least),
            EventType.DEBUG,
        ),
        facility=facility,
        module=_head(_clean(record.name), MODULE_CHARS_MAX),
        stack_trace=_stack_trace(record),
    )


def _stack_trace(record: logging.LogRecord) -> str | None:
    parts = []
    if record.stack_info:
        parts.append(record.stack_info)
    if record.exc_info and record.exc_info[1] is not None:
        parts.append(logging.Formatter().formatException(record.exc_info))
    # The end of a trace has the name of the exception.
    return _tail(_clean("\n".join(parts)), STACK_TRACE_CHARS_MAX) or None


def _clean(text: str) -> str:
    return ILLEGAL_CHARACTER.sub("\ufffd", text)


def _head(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _tail(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else "…" + text[1 - chars_max :]
