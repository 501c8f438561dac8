"""The plugin: puts the engine below the handlers of a slixmpp stream.

It sees every stanza in a filter, before any handler: requests of ours are
answered there, results of our requests are matched there, and nothing else is
touched. A message that is delivered is fed back in and goes the way of any.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

from slixmpp import JID, InvalidJID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin
from slixmpp.stanza import Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.effects import Answer, Report, Transmit
from qos.core.model import (
    ID_CHARS_MAX,
    MARKS_NAMESPACE,
    NAMESPACES,
    Incoming,
    Level,
    Outgoing,
    Route,
)
from qos.core.model import bare as account_of
from qos.core.rate import RateLimit
from qos.core.receiver import Request
from qos.core.trust import Trusted
from qos.engine import Delivery, Inbox, LoopClock, Outbox, Outcome
from qos.errors import LocalProtocolError, MessageTooLarge, RemoteProtocolError
from qos.stores.base import Remember, Store
from xep_qos import stanza
from xep_qos.discovery import Discovery
from xep_qos.guard import Guard
from xep_qos.settings import Settings, policy_of, store_of
from xep_qos.wire import Wire

__all__ = ["XEP_QOS", "IncomingInfo"]

log = logging.getLogger(__name__)

#: RFC 6120 §2.1, RFC 7622 §3: a JID has at most this many bytes.
_JID_BYTES_MAX = 3071

#: A resource that is not known yet; servers make them much shorter.
_RESOURCE_BYTES = 256

_OWN_JID = "own_jid"

_CAPS = "{http://jabber.org/protocol/caps}c"
_MUC_USER = "{http://jabber.org/protocol/muc#user}x"


@dataclass(frozen=True, slots=True)
class IncomingInfo:
    """How a message was delivered.

    Attributes:
        level: acknowledged or assured.
        msg_id: the sender's id for it: msgId, or at level acknowledged the id of
            the iq.
        redelivered: it may have been handed over before this process started.
    """

    level: Level
    msg_id: str
    redelivered: bool


class XEP_QOS(BasePlugin):
    """Quality of Service (proto-XEP, `urn:xmpp:qos`).

    The options are those of `xep_qos.settings.Settings`. Loading opens the
    store, so it raises StoreError, or ValueError for a bad option.
    """

    name = "xep_qos"
    description = "Quality of Service"
    dependencies: ClassVar[set[str]] = {"xep_0030", "xep_0115"}

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> XEP_QOS:
        """The plugin of a stream.

        Raises:
            LookupError: it was not registered.
        """
        plugin = xmpp.plugin.get(cls.name, None)
        if not isinstance(plugin, cls):
            raise LookupError(
                "xep_qos is not registered: import xep_qos, then "
                "client.register_plugin('xep_qos', {…})"
            )
        return plugin

    # -- the application ---------------------------------------------------

    async def send(
        self,
        to: str | JID,
        body: str = "",
        *,
        payload: str | None = None,
        level: Level = Level.ASSURED,
        deadline_s: float | None = None,
        ordered: bool | None = None,
    ) -> Outcome:
        """Send a message and wait for its end.

        Args:
            to: a full JID, or a bare one: it is followed to whichever of its
                resources supports QoS.
            body: the text.
            payload: XML instead of a body: a message, or what goes into one.
            level: at which to send.
            deadline_s: when to give up, in seconds; None: the option.
            ordered: release it after those sent to this account before it;
                None: the option.

        Returns:
            The outcome, delivered; sent at level unacknowledged.

        Raises:
            NotDelivered: certainly not.
            InDoubt: it may have been.
            MessageTooLarge, OutboxFull, LocalProtocolError, StoreError: it was
                not accepted.
        """
        if payload is None:
            text = stanza.message_with_body(body)
        else:
            text = stanza.payload_from_text(payload)
        delivery = await self._submit(str(to), text, level, deadline_s, ordered)
        outcome = await delivery.outcome()
        outcome.raise_for_status()
        return outcome

    async def submit(
        self,
        message: Message,
        *,
        level: Level = Level.ASSURED,
        deadline_s: float | None = None,
        ordered: bool | None = None,
    ) -> Delivery:
        """Accept a message for sending; it is as safe as the store on return.

        Args:
            message: as for a plain send, with its to; its from only counts for
                a component.
            level: at which to send.
            deadline_s: when to give up, in seconds; None: the option.
            ordered: as for send.

        Raises:
            MessageTooLarge, OutboxFull, LocalProtocolError, StoreError: it was
                not accepted.
        """
        sender = str(message["from"]) if self.xmpp.is_component else ""
        text = stanza.payload_from_element(message.xml)
        to = str(message["to"])
        return await self._submit(to, text, level, deadline_s, ordered, sender)

    def delivery(self, msg_id: str) -> Delivery:
        """The delivery of an outstanding message, after a restart for example.

        Raises:
            UnknownMessage: there is none with this id.
        """
        return self._outbox.delivery(msg_id)

    def incoming(self, message: StanzaBase) -> IncomingInfo | None:
        """In a handler: how this message came; None: as a plain message."""
        return self._delivered.get(message.xml)

    @property
    def outstanding(self) -> int:
        """How many messages of ours have not ended."""
        return self._outbox.outstanding

    @property
    def store(self) -> Store:
        """The store, to look into; it belongs to the plugin."""
        return self._store

    async def roster_known(self) -> None:
        """Wait until it can be decided whom to trust."""
        await self._guard.roster_known.wait()

    def stop_receiving(self) -> None:
        """Hand nothing over any more, and answer no request; for good.

        What others have sent stays in the store, or with them. Called in a
        handler, it lets this one message be the last.
        """
        self._inbox.stop()

    async def aclose(self) -> None:
        """Disable the plugin, and return when the store is closed."""
        if self.name in self.xmpp.plugin:
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
        if self._closing is not None:
            await self._closing

    # -- slixmpp -----------------------------------------------------------

    def __init__(self, xmpp: Any, config: Any = None) -> None:
        super().__init__(xmpp, config)
        # slixmpp may call session_bind before plugin_init.
        self._advertised: set[JID] = set()
        self._announcing: set[asyncio.Task[None]] = set()
        self._started = False
        self._closing: asyncio.Task[None] | None = None

    def plugin_init(self) -> None:
        """Open the store and step into the stream.

        Raises:
            ValueError: an option is bad.
            StoreError: the store cannot be opened.
        """
        try:
            self._start(Settings.from_config(self.config))
        except Exception:
            # slixmpp has put it on its list before; as it is, it is of no use.
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
            raise

    def _start(self, settings: Settings) -> None:
        self._settings = settings
        self._delivered: weakref.WeakKeyDictionary[ET.Element, IncomingInfo] = (
            weakref.WeakKeyDictionary()
        )
        self._reported = RateLimit(settings.event_interval_s)
        self._clock = LoopClock(self.xmpp.loop)
        self._restarted = False
        self._own: str | None = None
        if settings.event_log_to is not None:
            import xep_0337  # noqa: F401 - makes the plugin known

            self.xmpp.register_plugin("xep_0337")
        self._store = store_of(settings.store)
        contents = self._store.open()
        self._ask_for_resource(contents.remembered.get(_OWN_JID, ""))
        self._wire = Wire(self.xmpp)
        self._outbox = Outbox(
            self._store,
            contents,
            self,
            clock=self._clock,
            backoff=settings.backoff,
            limits=settings.outbox_limits,
        )
        self._inbox = Inbox(
            self._store,
            contents,
            self,
            clock=self._clock,
            limits=settings.inbox_limits,
        )
        self._discovery = Discovery(
            self.xmpp,
            namespaces=settings.namespaces,
            timeout_s=settings.retry_first_s,
            now=self._clock.now,
            found=self._outbox.route_found,
        )
        self._guard = Guard(
            self.xmpp,
            trust=policy_of(settings.trust),
            trust_acknowledged=policy_of(settings.trust_acknowledged),
            decided=self._decided,
        )
        self.xmpp.add_filter("in", self._filter)
        for event, handler in self._events():
            self.xmpp.add_event_handler(event, handler)
        self._started = True
        if self.xmpp.session_bind_event.is_set():
            self._session_started(None)

    def plugin_end(self) -> None:
        """Leave the stream as it was, and close the store."""
        if not self._started:
            return
        self._started = False
        self.xmpp.del_filter("in", self._filter)
        for event, handler in self._events():
            self.xmpp.del_event_handler(event, handler)
        disco = self.xmpp.plugin["xep_0030"]
        for jid in self._advertised:
            for feature in (*NAMESPACES, MARKS_NAMESPACE):
                disco.del_feature(jid=jid, feature=feature)
        if self._own is not None:
            self._announce(self.xmpp.boundjid)
        self._session_lost()
        self._outbox.stop()
        self._inbox.stop()
        self._wire.close()
        self._closing = self.xmpp.loop.create_task(self._store.close())

    def session_bind(self, jid: JID) -> None:
        """Announce what we support: slixmpp keeps features per full JID."""
        disco = self.xmpp.plugin["xep_0030"]
        for feature in (*NAMESPACES, MARKS_NAMESPACE):
            disco.add_feature(jid=jid, feature=feature)
        self._advertised.add(jid)
        self._announce(jid)

    def _announce(self, jid: JID) -> None:
        """Let presence carry our capabilities (XEP-0115): slixmpp waits to be asked.

        One that was sent already is sent again; none is sent for the first time.
        """
        seen = self.xmpp.roster[jid].last_status is not None
        update = self.xmpp.plugin["xep_0115"].update_caps(jid, broadcast=seen)
        task = self.xmpp.loop.create_task(update)
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)

    def _events(self) -> list[tuple[str, Any]]:
        return [
            ("connected", self._connected),
            ("session_start", self._session_started),
            ("session_resumed", self._session_resumed),
            ("session_end", self._session_lost),
            ("disconnected", self._session_lost),
            ("presence_available", self._presence_available),
            ("presence_unavailable", self._presence_unavailable),
        ]

    def _warn_of_automatic_trust(self) -> None:
        """With slixmpp's default whoever asks gets into the roster."""
        if self._guard.needs_roster and self.xmpp.auto_authorize:
            log.warning(
                "trust is 'roster', and the client accepts every subscription "
                "request: set client.auto_authorize to None or False, or "
                "anybody can make himself trusted"
            )

    def _ask_for_resource(self, remembered: str) -> None:
        """A peer that is not ours knows what it holds by our full JID."""
        wanted = self.xmpp.requested_jid
        account, _, resource = remembered.partition("/")
        if resource and not wanted.resource and account == wanted.bare:
            wanted.resource = resource

    def _connected(self, _event: object) -> None:
        """Stay the last filter: XEP-0198 must have counted what we take out."""
        self.xmpp.del_filter("in", self._filter)
        self.xmpp.add_filter("in", self._filter)

    def _session_started(self, _event: object) -> None:
        self._online(resumed=False)

    def _session_resumed(self, _event: object) -> None:
        self._online(resumed=True)

    def _online(self, *, resumed: bool) -> None:
        own = self._own = self.xmpp.boundjid.full
        self._store.write((Remember(_OWN_JID, own),))
        self._wire.session_started()
        self._guard.session_started(resumed=resumed)
        if not self._restarted:
            self._restarted = True
            self._warn_of_automatic_trust()
            self._inbox.restart()
        self._outbox.session_started(own)

    def _session_lost(self, _event: object = None) -> None:
        self._own = None
        self._wire.session_lost()
        self._guard.session_lost()
        self._outbox.session_lost()
        self._discovery.reset()

    def _presence_available(self, presence: StanzaBase) -> None:
        jid = str(presence["from"])
        caps = presence.xml.find(_CAPS)
        self._discovery.came(jid, None if caps is None else caps.get("ver"))
        self._outbox.peer_came(account_of(jid))

    def _presence_unavailable(self, presence: StanzaBase) -> None:
        self._discovery.went(str(presence["from"]))

    # -- the stream --------------------------------------------------------

    def _filter(self, received: StanzaBase) -> StanzaBase | None:
        """See every stanza after XEP-0198 has counted it; take out our iqs."""
        self._wire.quicken()
        xml = received.xml
        name = received.name
        if name == "iq":
            kind = xml.get("type")
            if kind == "set":
                element = stanza.request_element(xml)
                if element is not None:
                    self._request(xml, element)
                    return None
            elif kind in {"result", "error"} and self._outbox.awaits(xml.get("id", "")):
                self._reply(xml)
                return None
        elif name == "message":
            self._wire.fed(received)
        elif name == "presence" and xml.find(_MUC_USER) is not None:
            self._guard.saw_occupant(xml.get("from", ""))
        return received

    def _request(self, xml: ET.Element, element: ET.Element) -> None:
        if len(xml.get("id", "")) > ID_CHARS_MAX:
            # An answer would have to repeat it, and could break our own stream.
            too_long = Report("", f"iq id longer than {ID_CHARS_MAX} characters")
            self.report(xml.get("from", ""), too_long)
            return
        try:
            request = stanza.parse_request(xml, element)
        except RemoteProtocolError as error:
            self._wire.send(stanza.render_error(xml, error, sender=self._from(xml)))
            report = Report(error.condition, f"malformed request: {error}")
            self.report(xml.get("from", ""), report)
            return
        self._guard.consider(request)

    def _decided(self, request: Request, decision: Trusted) -> None:
        self._inbox.request(request, trusted=decision.trusted, why=decision.reason)

    def _reply(self, xml: ET.Element) -> None:
        reply = stanza.parse_reply(xml)
        if reply.error is not None:
            self._discovery.forget(reply.source)
        self._outbox.reply(reply)

    def _from(self, xml: ET.Element) -> str:
        """The from of an answer: a component has to say it, for a client it is known."""
        return xml.get("to", "") if self.xmpp.is_component else ""

    async def _submit(
        self,
        to: str,
        payload: str,
        level: Level,
        deadline_s: float | None,
        ordered: bool | None,
        sender: str = "",
    ) -> Delivery:
        to = _normal(to)
        if deadline_s is not None and not 0 <= deadline_s < math.inf:
            raise LocalProtocolError(f"{deadline_s} is no time to wait, in seconds")
        self._check_size(to, payload)
        if level is Level.UNACKNOWLEDGED:
            self._wire.send_plain(payload, to=to, sender=sender)
            return Delivery.sent(to)
        settings = self._settings
        return await self._outbox.submit(
            to,
            payload,
            level=level,
            deadline_s=settings.deadline_s if deadline_s is None else deadline_s,
            ordered=settings.ordered if ordered is None else ordered,
            sender=sender,
        )

    def _check_size(self, to: str, payload: str) -> None:
        """What a server does not take closes the stream, at each attempt anew.

        Counted as the receiving side's server sees it, with both JIDs.
        """
        own = self.xmpp.boundjid.full or str(self.xmpp.requested_jid)
        resource = 0 if "/" in to else _RESOURCE_BYTES
        addresses = min(len(to.encode()) + resource, _JID_BYTES_MAX) + len(own.encode())
        size = len(payload.encode()) + addresses + stanza.OVERHEAD_BYTES
        limit = self._settings.stanza_bytes_max
        if size > limit:
            raise MessageTooLarge(to, size=size, limit=limit)

    # -- what the engine asks for ------------------------------------------

    def route(self, record: Outgoing) -> Route | None:
        """See qos.engine.outbox.Port."""
        return self._discovery.route(record)

    def transmit(self, transmit: Transmit) -> None:
        """See qos.engine.outbox.Port."""
        if self._own is None:
            return
        sender = ""
        if self.xmpp.is_component:
            sender = transmit.record.sender or self.xmpp.boundjid.full
        store_id = self._store.store_id
        self._wire.send(
            stanza.render_request(transmit, store_id=store_id, sender=sender)
        )

    def answer(self, request: Request, answer: Answer) -> None:
        """See qos.engine.inbox.InboxPort."""
        if self._own is not None:
            sender = request.to if self.xmpp.is_component else ""
            self._wire.send(stanza.render_answer(request, answer, sender=sender))

    def hand_over(self, record: Incoming) -> None:
        """See qos.engine.inbox.InboxPort."""
        info = IncomingInfo(record.level, record.msg_id, record.redelivered)
        try:
            message = self._wire.message(record)
            self._delivered[message.xml] = info
            self._wire.feed(message)
        except Exception:
            log.exception("a handler failed on %r", record.msg_id)

    def report(self, source: str, report: Report) -> None:
        """See qos.engine.inbox.InboxPort: an event by XEP-0337, not too often."""
        left_out = self._reported.admit(account_of(source), self._clock.now())
        if left_out is None:
            return
        log.warning("%s: %s (%d more left out)", source, report.text, left_out)
        if self._settings.event_log_to is not None and self._own is not None:
            try:
                self._send_event(self._settings.event_log_to, source, report, left_out)
            except Exception:
                log.exception("the event could not be sent")

    def _send_event(self, to: str, source: str, report: Report, left_out: int) -> None:
        from datetime import UTC, datetime

        from xep_0337 import XEP_0337, EventTag, EventType, LogEvent

        event = LogEvent(
            report.text,
            datetime.fromtimestamp(self._clock.now(), UTC),
            id=report.condition or "unknown-message",
            type=EventType.WARNING,
            subject=source,
            module="xep_qos",
            tags=(EventTag("left_out", str(left_out), "xs:int"),),
        )
        XEP_0337.of(self.xmpp).send_event(JID(to), event)

    def new_id(self) -> str:
        """See qos.engine.outbox.Port."""
        return secrets.token_hex(16)

    def jitter(self) -> float:
        """See qos.engine.outbox.Port."""
        return random.random()  # noqa: S311 - spreads load, guards nothing


def _normal(to: str) -> str:
    """A JID as a server writes it: answers have to come from just this one."""
    try:
        jid = str(JID(to))
    except InvalidJID as error:
        raise LocalProtocolError(f"{to!r} is no JID: {error}") from error
    if not jid:
        raise LocalProtocolError("a message needs a JID to be sent to")
    return jid
