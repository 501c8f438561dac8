"""The sending side of a stream, below the handlers: writes texts in short bursts.

slixmpp has two ways to send. A stanza object passes the filters, among them the
counting filter of XEP-0198, but slixmpp's serialiser leaves out attributes of foreign
namespaces. A text is written as it is, but is not counted. This module writes text and
counts it. If the application has a filter of its own that sees sent stanzas, an object
is sent after all, and the last filter makes a text of it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Iq, Message

from qos.core.message.model import Incoming
from qos.stream.per_stream import ForeignFilters
from qos.stream.stream_limits import StreamLimits
from qos.stream.stream_management import StreamManagement, parsed
from qos.xml_text import CLIENT, render

__all__ = ["Wire"]

log = logging.getLogger(__name__)

#: Linux only. Acknowledge data as soon as it is read: a server that waits for this
#: before it writes more (Nagle's algorithm) then does not wait 40 ms.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)

#: The number of texts in one write. One write for each text costs a system call and a
#: wake-up of the server each; one write for a whole window lets both ends and the server
#: wait for each other by turns.
_BURST = 8


class Wire:
    """The sending side of one stream, shared by all our parts on it."""

    def __init__(self, xmpp: BaseXMPP, management: StreamManagement) -> None:
        """Prepare; the stream is not touched before something is sent."""
        self._xmpp = xmpp
        self._management = management
        # slixmpp's own filters are for messages and presence, except that of XEP-0198,
        # which this module replaces.
        self._foreign = ForeignFilters(xmpp, "out", "out_sync", "out_sce")
        self._socket: socket.socket | None = None
        # Whether a stanza of ours has come in this turn of the loop.
        self._quickened = False
        # The texts of this turn and the next, and whether their write is due.
        self._gathered: list[str] = []
        self._gathered_ids: list[str] = []
        self._is_due = False
        #: The ids of the iqs that the end of the connection has found unwritten.
        self.lost: Sequence[str] = ()
        self._limits = StreamLimits.of(xmpp)
        self._sizes = self._limits.sizes
        #: Runs until everything that slixmpp sends again has been written.
        self._behind: asyncio.Task[None] | None = None
        self._writes = self._closed = False
        # The number of our objects that have not reached the last filter yet.
        self._on_their_way = 0

    def close(self) -> None:
        """Send the gathered texts, and leave the stream as it was.

        The last filter stays until our objects have passed the application's filters;
        then it is removed. The wire may be used again.
        """
        self._forget()
        self.flush()
        self._closed = True
        self._stop_writing()

    def session_started(self, *, resumed: bool) -> None:
        """Note the new connection, which is to be kept quick.

        After a resumption (XEP-0198 §5), slixmpp sends the missing stanzas again,
        through its queue. It has counted them before, so nothing of ours may be written
        ahead of them.
        """
        self.lost = ()
        if not resumed:
            self._sizes.started(time.time())
        transport = self._xmpp.transport
        if transport is not None and _QUICKACK is not None:
            self._socket = transport.get_extra_info("socket")
        if resumed and not self._xmpp.waiting_queue.empty():
            self._behind = self._xmpp.loop.create_task(self._catch_up())

    def session_lost(self) -> None:
        """Note the end of the connection; gathered texts are not sent."""
        if self._gathered:
            self.lost, self._gathered_ids = self._gathered_ids, []
        self._gathered.clear()
        self._forget()

    def _forget(self) -> None:
        """Forget all state of the connection."""
        self._socket = None
        if self._behind is not None:
            self._behind.cancel()
            self._behind = None

    async def _catch_up(self) -> None:
        # `join` would wait for ever: slixmpp drops queued stanzas without marking them
        # as done.
        while not self._xmpp.waiting_queue.empty():  # noqa: ASYNC110
            await asyncio.sleep(0)
        self._behind = None
        self.flush()

    def quicken(self) -> None:
        """Call at each stanza of ours: the kernel forgets the setting at each read.

        Do not call it for stanzas of others: a separate acknowledgement is one more
        packet.
        """
        if self._quickened:
            return
        if self._socket is not None and _QUICKACK is not None:
            self._quickened = True
            self._xmpp.loop.call_soon(self._read_handled)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:  # not TCP, or just closed
                self._socket = None

    def _read_handled(self) -> None:
        self._quickened = False

    def send(
        self, text: str, *, at_once: bool = False, iq_ids: Iterable[str] = ()
    ) -> bool:
        """Send an iq or a message, given as text in the stream's own namespace.

        It is written after the next turn of the loop at the latest, together with what
        is sent until then. When many answers have come in one read, their tasks wake in
        the next turn, and give the next requests.

        Args:
            text: the stanza.
            at_once: write it now, after all that was sent before it. For a batch: the
                peer is to work on it while the next one is read here.
            iq_ids: for `lost`, if the connection ends before it is written.

        Returns:
            False: there is no connection any more, or the server is known not to take a
                stanza of this size. Nothing of it was or will be sent.
        """
        transport = self._xmpp.transport
        if transport is None or transport.is_closing():
            return False  # not sent, and not answered: it will be repeated
        limit = self._sizes.limit
        # A character has up to four bytes.
        if limit is not None and 4 * len(text) > limit and self._is_too_large(text):
            return False
        self._gathered.append(text)
        self._gathered_ids += iq_ids
        if at_once or len(self._gathered) >= _BURST:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            soon = self._xmpp.loop.call_soon
            soon(soon, self._write_due)
        return True

    def _is_too_large(self, text: str) -> bool:
        """Whether the server is known to end the stream at this stanza; then it is logged."""
        limit = self._limits.over(len(text.encode()))
        if limit is not None:
            log.warning(
                "a stanza of %d bytes is not sent: %s takes no more than %d",
                len(text.encode()),
                self._xmpp.boundjid.host,
                limit,
            )
        return limit is not None

    def _write_due(self) -> None:
        self._is_due = False
        self.flush()

    def flush(self) -> None:
        """Write the gathered texts now."""
        if not self._gathered or self._behind is not None:
            return
        texts, self._gathered = self._gathered, []
        self._gathered_ids.clear()
        if self._foreign.any():
            # The application has a filter that sees sent stanzas.
            for text in texts:
                xml = parsed(text, self._xmpp.default_ns)
                own = _OwnMessage if text.startswith("<message") else _OwnIq
                self._send_object(own(self._xmpp, xml=xml))
            return
        transport = self._xmpp.transport
        if transport is not None and not transport.is_closing():
            self._xmpp.send_raw("".join(texts))
            for text in texts:
                if len(text) > self._sizes.largest:
                    self._limits.written(text)
            if self._management.plugin is not None:
                # In the order of writing, without anything in between.
                self._management.sent(texts)

    def message(self, record: Incoming) -> Message:
        """The message as a stanza of this stream, with the iq's to and from."""
        xml = self._stanza(record.payload, to=record.to, sender=record.source)
        return Message(self._xmpp, xml=xml, recv=True)  # type: ignore[no-untyped-call]

    def send_plain(self, payload: str, *, to: str, sender: str) -> None:
        """Send a message at level unacknowledged; without a session, later."""
        self._send_object(self._plain(payload, to, sender))

    def _plain(self, payload: str, to: str, sender: str) -> Message:
        xml = self._stanza(payload, to=to, sender=sender)
        message = _OwnMessage(self._xmpp, xml=xml)  # type: ignore[no-untyped-call]
        if self._xmpp.is_component and not sender:
            message["from"] = self._xmpp.boundjid
        return message

    def plain_size(self, payload: str, *, to: str, sender: str) -> int:
        """The bytes of a message as `send_plain` writes it."""
        return len(render(self._plain(payload, to, sender).xml).encode())

    def _send_object(self, stanza: Iq | Message) -> None:
        """Send a stanza that the filters are to see; the last filter is ours.

        It is added only when it is needed: it would cost time for each stanza of the
        application.
        """
        if not self._writes:
            self._writes = True
            self._xmpp.add_filter("out_sce", self._write)
        self._closed = False
        self._on_their_way += 1
        self._xmpp.send(stanza)

    def _stanza(self, payload: str, *, to: str, sender: str) -> ET.Element:
        xml = ET.fromstring(payload)  # noqa: S314 - written by qos.xml_text
        if self._xmpp.default_ns != CLIENT:
            for element in xml.iter():
                if element.tag.startswith(f"{{{CLIENT}}}"):
                    name = element.tag.rpartition("}")[2]
                    element.tag = f"{{{self._xmpp.default_ns}}}{name}"
        xml.set("to", to)
        if sender:
            xml.set("from", sender)
        return xml

    def _write(self, stanza: Any) -> Any:
        """Write a stanza of ours as text, without loss, in the last filter."""
        if not isinstance(stanza, _OwnIq | _OwnMessage):
            return stanza
        text = render(stanza.xml)
        self._management.keep_as_text(stanza, text)
        self._xmpp.send_raw(text)
        self._on_their_way -= 1
        if len(text) > self._sizes.largest:
            self._limits.written(text)
        self._stop_writing()
        return None

    def _stop_writing(self) -> None:
        if self._closed and self._writes and self._on_their_way <= 0:
            self._writes = False
            self._xmpp.del_filter("out_sce", self._write)


class _OwnIq(Iq):
    """An iq of ours on its way through the application's filters."""


class _OwnMessage(Message):
    """A plain message of ours on its way through the application's filters."""
