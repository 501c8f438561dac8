"""The hand-over of messages to the application: to its handlers, or to its consumers.

A message is fed into the stream like a received one, and is then handled like any
other. Consumers come first: the first that matches takes the message. This module knows
slixmpp's handlers, but neither stores nor answers.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos import arguments
from qos.core.backoff import Backoff
from qos.core.message.model import Incoming, Level
from qos.core.strings import bare
from qos.engine import Consumption, Handover
from qos.errors import LocalProtocolError, StoreDamaged
from qos.stream.tap import Tap
from qos.xml_text import CLIENT
from xep_qos.takers import Takers

__all__ = [
    "Consumer",
    "Consumers",
    "Feed",
    "Handler",
    "HandlerT",
    "IncomingInfo",
    "Match",
    "ParsedMessages",
]

log = logging.getLogger(__name__)

#: The most accounts for which it is logged, once, that nobody takes their messages.
_SAID_MAX = 1_000

#: The most characters of the texts whose elements are kept. The smallest elements take
#: some 40 times as much memory as their text.
_CHARS_MAX = 256 * 1024

_MESSAGE = f"{{{CLIENT}}}message"


@dataclass(frozen=True, slots=True)
class IncomingInfo:
    """The way in which a message was delivered.

    Attributes:
        level: acknowledged or assured.
        msg_id: the sender's id for it: msgId, or at level acknowledged the id of the
            iq.
        redelivered: whether it may have been handed over before this process started.
        identity: the same at each hand-over of this message, and different for all
            other messages of any sender. A sender that is not ours may use a msg_id
            again.
    """

    level: Level
    msg_id: str
    redelivered: bool
    identity: str


class Feed:
    """Hands messages over to the application, and learns whether they are taken.

    Attributes:
        consumers: the consumers of the application, which come before its handlers.
        parsed: the elements of messages that have come.
    """

    def __init__(self, xmpp: BaseXMPP, tap: Tap, *, store_url: str) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            tap: its tap.
            store_url: the place of the messages, for the log.
        """
        self.consumers = Consumers(self._stanza_of)
        self.parsed = ParsedMessages()
        self._xmpp = xmpp
        self._tap = tap
        self._takers = Takers(xmpp, tap)
        self._store_url = store_url
        self._delivered: weakref.WeakKeyDictionary[ET.Element, Incoming] = (
            weakref.WeakKeyDictionary()
        )
        # The messages that are being handed over now.
        self._until: dict[ET.Element, asyncio.Future[None] | None] = {}
        self._said: set[str] = set()

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | bool:
        """See qos.engine.inbox_message.InboxPort.

        A message has been taken if `Takers.hand_over` says so, or if a handler has
        called `take_until`.
        """
        try:
            message = self._stanza_of(record)
        except ET.ParseError as error:
            # It could be read when it came.
            text = f"the message {record.msg_id!r} of {record.source} cannot be read"
            log.error("%s", StoreDamaged(self._store_url, f"{text}: {error}"))
            return False
        self._until[message.xml] = None
        result = self._takers.hand_over(message, record.msg_id)
        until = self._until.pop(message.xml)
        if until is not None:
            return until
        if not result:
            self._say_that_nobody_takes(record)
        return result

    def _say_that_nobody_takes(self, record: Incoming) -> None:
        source = bare(record.source)
        if source not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(source)
            log.warning(
                "no handler has taken the message %r of %s; its sender is told to try "
                "again. Register one before the client connects: "
                "client.add_event_handler('message', …) for messages with a body, "
                "client.register_handler(…) or a consumer for others. This is said once "
                "for each sender",
                record.msg_id,
                record.source,
            )

    def consumption(self, record: Incoming) -> Consumption | None:
        """See qos.engine.inbox_message.InboxPort."""
        try:
            return self.consumers.consumption(record)
        except ET.ParseError:
            return None  # hand_over() reports it

    def incoming(self, message: StanzaBase) -> IncomingInfo | None:
        """See XEP_QOS.incoming."""
        record = self._delivered.get(message.xml)
        if record is None:
            return None
        return IncomingInfo(
            level=record.level,
            msg_id=record.msg_id,
            redelivered=record.redelivered,
            identity=record.identity,
        )

    def key_of(self, message: StanzaBase) -> str | None:
        """The key of a message that was handed over; None: it is a plain one."""
        record = self._delivered.get(message.xml)
        return None if record is None else record.key

    def take_until(self, message: StanzaBase, done: asyncio.Future[None]) -> None:
        """See XEP_QOS.take_until."""
        record = self._delivered.get(message.xml)
        if record is None:
            return
        if message.xml not in self._until:
            raise LocalProtocolError(
                f"take_until() for {record.msg_id!r} comes too late: a handler that is no "
                "coroutine has to call it, before it returns"
            )
        self._until[message.xml] = done

    def _stanza_of(self, record: Incoming) -> Message:
        """The message as a stanza, with the information for `incoming`."""
        xml = self.parsed.take(record)
        if xml is None:
            message = self._tap.wire.message(record)
        else:
            message = Message(self._xmpp, xml=xml, recv=True)  # type: ignore[no-untyped-call]
        self._delivered[message.xml] = record
        return message


class ParsedMessages:
    """The elements of received messages, the latest ones, each until it is handed over.

    A message is stored as text, and handed over as an element. The element that was
    read need not be made again from the text, if not too much has come meanwhile.
    """

    def __init__(self) -> None:
        # By the identity of the payload, which is the same object in a record that was
        # not read from a store.
        self._kept: dict[int, tuple[str, ET.Element]] = {}
        self._chars = 0

    def keep(self, payload: str, message: ET.Element) -> None:
        """Keep an element for the hand-over of its payload, and no longer than others.

        An element in another namespace than that of its text is not kept.
        """
        if message.tag != _MESSAGE:
            return
        self._kept[id(payload)] = payload, message
        self._chars += len(payload)
        while self._chars > _CHARS_MAX:
            self._pop(next(iter(self._kept)))

    def take(self, record: Incoming) -> ET.Element | None:
        """The element of a message, with the addresses of its iq, if it is kept."""
        if id(record.payload) not in self._kept:
            return None
        message = self._pop(id(record.payload))
        message.tail = None
        message.attrib.pop("from", None)
        message.set("to", record.to)
        if record.source:
            message.set("from", record.source)
        return message

    def _pop(self, key: int) -> ET.Element:
        payload, message = self._kept.pop(key)
        self._chars -= len(payload)
        return message


# -- consumers -------------------------------------------------------------

#: The condition for a message: a matcher of slixmpp, or a function that returns a bool.
Match: TypeAlias = MatcherBase | Callable[[Message], bool]

#: Takes a message; see XEP_QOS.consumer.
Handler: TypeAlias = Callable[[Message, Handover], Awaitable[object]]
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One consumer; its options are those of XEP_QOS.consumer."""

    handler: Handler
    name: str
    match: Match | None
    ordered: bool
    max_handovers: int
    backoff: Backoff

    def __post_init__(self) -> None:
        arguments.coroutine_function("handler", self.handler)

    def takes(self, message: Message) -> bool:
        """Whether the consumer is meant for this message."""
        if isinstance(self.match, MatcherBase):
            return bool(self.match.match(message))
        return self.match is None or bool(self.match(message))


class Consumers:
    """All consumers, in the order in which they were registered."""

    def __init__(self, stanza_of: Callable[[Incoming], Message]) -> None:
        """Begin with the function that makes a stanza of a message."""
        self._stanza_of = stanza_of
        self._consumers: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        """Add a consumer after the existing ones.

        Raises:
            LocalProtocolError: there is one with its name.
        """
        if any(other.name == consumer.name for other in self._consumers):
            raise LocalProtocolError(
                f"there is a consumer {consumer.name!r}: give one of them another name"
            )
        self._consumers.append(consumer)

    def consumption(self, record: Incoming) -> Consumption | None:
        """How the first matching consumer takes it.

        See qos.engine.inbox_message.InboxPort.
        """
        if not self._consumers:
            return None
        message = self._stanza_of(record)
        for consumer in self._consumers:
            try:
                if consumer.takes(message):
                    handle = partial(consumer.handler, message)
                    return _consumption(consumer, record, handle)
            except Exception as error:  # noqa: BLE001 - the application's
                # Not the next consumer: the message may be meant for this one.
                return _consumption(consumer, record, partial(_fail, error))
        return None


def _consumption(
    consumer: Consumer,
    record: Incoming,
    handle: Callable[[Handover], Awaitable[object]],
) -> Consumption:
    lane = f"{consumer.name} {bare(record.source)}" if consumer.ordered else None
    return Consumption(
        name=consumer.name,
        handle=handle,
        handovers_max=consumer.max_handovers,
        backoff=consumer.backoff,
        lane=lane,
    )


async def _fail(error: Exception, _handover: Handover) -> None:
    raise error
