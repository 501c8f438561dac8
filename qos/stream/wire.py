"""The stream below the handlers: writes text, feeds messages, keeps counts.

slixmpp has two ways to send. A stanza object passes the filters, among them the
one by which XEP-0198 counts, but its serialiser leaves out attributes of foreign
namespaces. A text is written as it is, and nobody counts it. Here a text is
written and counted; where the application has a filter of its own that wants to
see what goes out, an object is sent after all, and made a text in a last filter.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Iq, Message

from qos.core.message.model import Incoming
from qos.stream.tap import is_foreign
from qos.xml import CLIENT, render

__all__ = ["Wire"]

log = logging.getLogger(__name__)

#: XEP-0198 §4: counters wrap.
_COUNT_MAX = 2**32

#: Linux only. Acknowledge what was read at once, so that a server that waits
#: for it before it writes more (Nagle's algorithm) does not wait 40 ms.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class Wire:
    """The wire of one slixmpp stream, below the handlers."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        self._xmpp = xmpp
        self._socket: socket.socket | None = None
        # While a message is fed in: what XEP-0198 had counted before.
        self._feeding: tuple[Message, int] | None = None
        # Of this turn of the loop.
        self._in_turn = self._quickened = self._written = False
        self._gathered: list[str] = []
        self._writes = False

    def close(self) -> None:
        """Leave the stream as it was."""
        self._send_gathered()
        if self._writes:
            self._writes = False
            self._xmpp.del_filter("out_sce", self._write)
        self._socket = None

    def session_started(self) -> None:
        """There is a connection, to be kept quick."""
        transport = self._xmpp.transport
        if transport is not None and _QUICKACK is not None:
            self._socket = transport.get_extra_info("socket")

    def session_lost(self) -> None:
        """There is none."""
        self._gathered.clear()
        self._socket = None

    def quicken(self) -> None:
        """Call at each stanza of ours: at each read the kernel forgets the setting.

        Not at those of others: an acknowledgement of its own is a packet more.
        """
        if self._quickened:
            return
        if self._socket is not None and _QUICKACK is not None:
            self._quickened = True
            self._turn()
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:  # not TCP, or just closed
                self._socket = None

    def send(self, text: str) -> bool:
        """Send an iq or a message, given as text in the stream's own namespace.

        At once; but what follows in the same turn of the loop is sent at its end, all
        in one write: many requests are due when many answers have come in one read.

        Returns:
            False: there is no connection any more, and nothing of it was or will be sent.
        """
        if self._written:
            self._gathered.append(text)
            return True
        self._written = True
        self._turn()
        return self._send((text,))

    def _turn(self) -> None:
        if not self._in_turn:
            self._in_turn = True
            self._xmpp.loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._in_turn = self._quickened = self._written = False
        self._send_gathered()

    def _send_gathered(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._send(gathered)

    def _send(self, texts: Sequence[str]) -> bool:
        if self._filtered():
            for text in texts:
                xml = _parsed(text, self._xmpp.default_ns)
                own = _OwnMessage if text.startswith("<message") else _OwnIq
                self._send_object(own(self._xmpp, xml=xml))
            return True
        transport = self._xmpp.transport
        if transport is None or transport.is_closing():
            return False  # not sent, and not answered: it will be repeated
        self._xmpp.send_raw("".join(texts))
        # In the order of writing: nothing comes between.
        management = self._management()
        if management is not None and management.enabled_out:
            for text in texts:
                _count_sent(management, text)
        return True

    def count_received(self) -> None:
        """Count a stanza that was taken out before XEP-0198 could see it."""
        management = self._management()
        if management is not None and management.enabled_in:
            management.handled = (management.handled + 1) % _COUNT_MAX

    def feed(self, message: Message) -> None:
        """Feed a message into normal processing.

        XEP-0198 counts what it sees in its filter, and the server does not know
        of this one: the count is put back before any handler runs.
        """
        management = self._management()
        self._feeding = (message, management.handled) if management else None
        try:
            self._xmpp.recv_stanza(message)
        finally:
            self.fed(message)

    def fed(self, stanza: object) -> None:
        """Call in the last filter: a message that is being fed has passed all."""
        if self._feeding is not None and self._feeding[0] is stanza:
            management = self._management()
            if management is not None:
                management.handled = self._feeding[1]
            self._feeding = None

    def message(self, record: Incoming) -> Message:
        """The message as a stanza of this stream, with the iq's to and from."""
        xml = self._stanza(record.payload, to=record.to, sender=record.source)
        return Message(self._xmpp, xml=xml, recv=True)  # type: ignore[no-untyped-call]

    def send_plain(self, payload: str, *, to: str, sender: str) -> None:
        """Send a message at level unacknowledged; without a session, later."""
        xml = self._stanza(payload, to=to, sender=sender)
        message = _OwnMessage(self._xmpp, xml=xml)  # type: ignore[no-untyped-call]
        if self._xmpp.is_component and not sender:
            message["from"] = self._xmpp.boundjid
        self._send_object(message)

    def _send_object(self, stanza: Iq | Message) -> None:
        """Send what the filters are to see; the last of them is ours.

        Not before it is needed: it would cost each stanza of the application.
        """
        if not self._writes:
            self._writes = True
            self._xmpp.add_filter("out_sce", self._write)
        self._xmpp.send(stanza)

    def _stanza(self, payload: str, *, to: str, sender: str) -> ET.Element:
        xml = ET.fromstring(payload)  # noqa: S314 - written by qos.xml
        if self._xmpp.default_ns != CLIENT:
            for element in xml.iter():
                if element.tag.startswith(f"{{{CLIENT}}}"):
                    name = element.tag.rpartition("}")[2]
                    element.tag = f"{{{self._xmpp.default_ns}}}{name}"
        xml.set("to", to)
        if sender:
            xml.set("from", sender)
        return xml

    def _management(self) -> Any:
        """The XEP-0198 plugin, if it is there and counts."""
        if self._xmpp.is_component or "xep_0198" not in self._xmpp.plugin:
            return None
        return self._xmpp.plugin["xep_0198"]

    def _filtered(self) -> bool:
        """Whether the application wants to see what goes out.

        slixmpp's own filters are for messages and presences, but for that of
        XEP-0198, which we stand in for.
        """
        filters: dict[str, list[Any]] = getattr(self._xmpp, "_XMLStream__filters", {})
        return any(
            is_foreign(filter_)
            for mode in ("out", "out_sync", "out_sce")
            for filter_ in filters.get(mode, ())
        )

    def _write(self, stanza: Any) -> Any:
        """The last filter: write a stanza of ours as text, lossless."""
        if not isinstance(stanza, _OwnIq | _OwnMessage):
            return stanza
        text = render(stanza.xml)
        management = self._management()
        if management is not None and management.unacked_queue:
            seq, sent = management.unacked_queue[-1]
            if sent is stanza:
                management.unacked_queue[-1] = (seq, SentText(text))
        self._xmpp.send_raw(text)
        return None


def _count_sent(management: Any, text: str) -> None:
    """XEP-0198 §4, as slixmpp's filter does it for a stanza object."""
    management.seq = (management.seq + 1) % _COUNT_MAX
    management.unacked_queue.append((management.seq, SentText(text)))
    management.window_counter -= 1
    if management.window_counter == 0:
        management.window_counter = management.window
        management.request_ack()


class _OwnIq(Iq):
    """An iq of ours on its way through the application's filters."""


class _OwnMessage(Message):
    """A plain message of ours, likewise."""


class SentText(str):
    """A sent text in the queue of XEP-0198: to be read as a stanza when it is sent again."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        xml = _parsed(str(self), CLIENT)
        stanza_class = Message if self.startswith("<message") else Iq
        return stanza_class(xml=xml)[key]


def _parsed(text: str, namespace: str) -> ET.Element:
    """A stanza of ours, which names its namespace or is in this one."""
    name = text[1:].partition(" ")[0]
    if not text.startswith(f"<{name} xmlns="):
        text = text.replace(f"<{name}", f"<{name} xmlns='{namespace}'", 1)
    return ET.fromstring(text)  # noqa: S314 - our own text
