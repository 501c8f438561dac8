"""The client's side of a stream: requests to queue services, answers, events.

This module knows slixmpp, but not the meaning of requests and events. It writes text
below slixmpp's serialiser, which would leave out our attributes. It matches answers in
a filter, with one dictionary for all. slixmpp has one handler object for each request,
and tries every stanza on all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos import arguments
from qos.core.strings import bare
from qos.errors import MessageTooLarge, NoAnswer
from qos.ids import new_id
from qos.jids import jid_of
from qos.stream.presences import Presences
from qos.stream.stream_limits import StreamLimits
from qos.stream.tap import Part, Tap
from qos.xml_text import render_iq
from xep_0254 import client_answers
from xep_0254.events import Event, parse_event
from xep_0254.namespaces import EVENT

__all__ = ["Channel", "Listener"]

log = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[Event], object]

_EVENT = f"{{{EVENT}}}event"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request that waits for its answer, from this JID; None: no answer will come."""

    to: str
    answer: asyncio.Future[ET.Element | None]


class Channel:
    """Sends requests, and takes answers and events.

    Attributes:
        own: our full JID while there is a session.
        in_session: set while there is a session.
    """

    def __init__(self, xmpp: BaseXMPP, *, stanza_bytes_max: int) -> None:
        """Insert the channel into the stream.

        Args:
            xmpp: the stream.
            stanza_bytes_max: a larger request is not sent.
        """
        self.own: str | None = None
        self.in_session = asyncio.Event()
        self._xmpp = xmpp
        self._stanza_bytes_max = stanza_bytes_max
        self._limits = StreamLimits.of(xmpp)
        self._pending: dict[str, _Pending] = {}
        self._listeners: dict[tuple[str, str], list[Listener]] = {}
        self._presences = Presences(xmpp)
        self._tap = Tap.of(xmpp)
        self._wire = self._tap.wire
        self._part = self._tap.join(
            Part(
                take_iq=self._take_answer,
                take_message=self._take_event,
                saw_presence=self._saw_presence,
                session_started=self._session_started,
                session_lost=self._session_lost,
            )
        )

    def close(self) -> None:
        """Leave the stream as it was; waiting requests get no answer."""
        self._tap.leave(self._part)
        self._session_lost()
        self._listeners.clear()

    def _saw_presence(self, presence: ET.Element) -> bool:
        """Whether slixmpp does not see a presence: it would keep an entry for ever.

        Where xep_qos is, it decides: it knows the roster, and whom we have written to.
        """
        if self._xmpp.is_component or "xep_qos" in self._xmpp.plugin:
            return False
        account, own = bare(presence.get("from", "")), self._xmpp.boundjid.bare
        if account in {"", own}:
            return False
        roster = self._xmpp.roster[own]
        if roster.has_jid(account) and roster[account]["subscription"] != "none":
            return False
        return self._presences.ends_here(presence)

    # -- requests ----------------------------------------------------------

    async def ask(
        self,
        kind: Literal["get", "set"],
        service: str | JID,
        content: str,
        action: str,
        timeout_s: float,
    ) -> ET.Element:
        """Send an iq with this content; returns the answer of type result.

        Raises:
            RequestRefused: the answer is an error.
            NoAnswer: no answer came in time, or the session was lost.
            MessageTooLarge, LocalProtocolError: it was not sent.
        """
        to = jid_of("service", service)
        arguments.seconds("timeout_s", timeout_s)
        if self.own is None:
            raise NoAnswer("there is no session", to=to, what=action)
        iq_id = new_id()
        # A component has to give its address; the server knows that of a client.
        sender = self.own if self._xmpp.is_component else ""
        text = render_iq(kind, iq_id, content, to=to, sender=sender)
        size = len(text.encode())
        if size > self._stanza_bytes_max:
            raise MessageTooLarge(to, size=size, limit=self._stanza_bytes_max)
        if self._limits.sizes.limit is not None:
            limit = self._limits.over(size)
            if limit is not None:
                raise MessageTooLarge(to, size=size, limit=limit)
        answer: asyncio.Future[ET.Element | None] = self._xmpp.loop.create_future()
        self._pending[iq_id] = _Pending(to, answer)
        try:
            self._wire.send(text)
            async with asyncio.timeout(timeout_s):
                received = await answer
        except TimeoutError:
            reason = f"nothing came in {timeout_s:g} s"
            raise NoAnswer(reason, to=to, what=action) from None
        finally:
            self._pending.pop(iq_id, None)
        if received is None:
            raise NoAnswer("the session was lost", to=to, what=action)
        if received.get("type") == "error":
            raise client_answers.refusal(received, to=to, action=action)
        return received

    async def pause(self, delay_s: float) -> None:
        """Wait before an attempt; without a session, wait only until there is one."""
        arguments.seconds("delay_s", delay_s, zero=True)
        if self.own is not None:
            await asyncio.sleep(delay_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.in_session.wait()

    # -- events ------------------------------------------------------------

    def add_listener(self, service: str | JID, node: str, callback: Listener) -> None:
        """See XEP_0254.add_listener."""
        key = _key(service, node)
        arguments.callable_of("callback", callback)
        self._listeners.setdefault(key, []).append(callback)

    def remove_listener(
        self, service: str | JID, node: str, callback: Listener
    ) -> None:
        """See XEP_0254.remove_listener."""
        key = _key(service, node)
        arguments.callable_of("callback", callback)
        callbacks = self._listeners.get(key, [])
        with contextlib.suppress(ValueError):
            callbacks.remove(callback)
        if not callbacks:
            self._listeners.pop(key, None)

    # -- the stream --------------------------------------------------------

    def _take_answer(self, xml: ET.Element) -> bool:
        pending = self._pending.get(xml.get("id", ""))
        if pending is None or xml.get("type") not in {"result", "error"}:
            return False
        self._wire.quicken()
        # Only the service itself may answer.
        if xml.get("from") != pending.to:
            return False
        if not pending.answer.done():
            pending.answer.set_result(xml)
        return True

    def _take_event(self, message: StanzaBase) -> bool:
        xml = message.xml
        # Servers re-route a message whose resource has gone, and a stranger can send
        # anything (docs/design/queue.md §1.6).
        if not self._listeners or xml.find(_EVENT) is None:
            return False
        self._wire.quicken()
        event = parse_event(xml) if xml.get("to") == self.own else None
        if event is None:
            return False
        callbacks = self._listeners.get((xml.get("from", ""), event.node), ())
        for callback in tuple(callbacks):
            try:
                callback(event)
            except Exception:
                log.exception("a listener of %r failed", event.node)
        return bool(callbacks)

    # -- the session -------------------------------------------------------

    def _session_started(self, *, resumed: bool) -> None:
        self.own = self._xmpp.boundjid.full
        self.in_session.set()

    def _session_lost(self) -> None:
        self.own = None
        self.in_session.clear()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if not request.answer.done():
                request.answer.set_result(None)


def _key(service: str | JID, node: str) -> tuple[str, str]:
    return jid_of("service", service), arguments.text("node", node, empty=False)
