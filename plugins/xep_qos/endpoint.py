"""One end: connects the engine to a slixmpp stream, below its handlers.

It sees every stanza in a filter, before any handler. There it answers QoS requests and
matches the results of its own requests; it touches nothing else. A delivered message is
fed back into the stream, and is then handled like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp import JID, ClientXMPP, ComponentXMPP

from qos import arguments
from qos.core.message.effects import Answer, Report, Transmit
from qos.core.message.model import (
    Level,
    LevelOrWord,
    Outgoing,
    Route,
)
from qos.core.message.receiver_table import Request
from qos.core.message.sender_table import Reply
from qos.core.message.trust import Trusted
from qos.core.quota import own_domains
from qos.core.strings import ID_CHARS_MAX, domain_of, own_servers
from qos.engine import Delivery, Inbox, LoopClock, Outbox
from qos.engine.outbox_message import Stanzas
from qos.errors import (
    InvalidArgument,
    MessageTooLarge,
    OutboxFull,
    RemoteProtocolError,
)
from qos.ids import new_id, new_key
from qos.jids import jid_of
from qos.journal import messages as journaled
from qos.journal.recorder import Recorder, recorder_of
from qos.journal.writer import JournalWriter, check_folder
from qos.stores.base import Contents
from qos.stream.closing import close_at_once
from qos.stream.stream_limits import StreamLimits
from qos.stream.tap import Part, Tap
from qos.xml_reading import DEPTH_MAX, is_deeper
from qos.xml_text import render_iq
from xep_qos import stanza
from xep_qos.batch import BatchedRequest, BatchReceiver, BatchSender
from xep_qos.batch_stanza import BATCH, REQUEST_OR_BATCH
from xep_qos.disco_info import QUERY
from xep_qos.discovery import Discovery
from xep_qos.feed import Feed
from xep_qos.guard import Guard
from xep_qos.next_start import NextStart
from xep_qos.plain import PlainMessages
from xep_qos.presence import PeerPresence
from xep_qos.reporting import Reporter
from xep_qos.roster import ROSTER_QUERY, RosterLoader
from xep_qos.settings import Settings, policy_of, store_of

__all__ = ["Endpoint"]

log = logging.getLogger(__name__)

#: RFC 6120 §2.1, RFC 7622 §3: a JID has at most this many bytes.
_JID_BYTES_MAX = 3071

#: Assumed for a resource that is not known yet; servers make them much shorter.
_RESOURCE_BYTES = 256

#: How many messages at level unacknowledged slixmpp keeps while there is no session.
_PLAIN_WAITING_MAX = 1000

#: The most peers of which the order of their last answers is remembered.
_ANSWERS_MAX = 10_000

#: The levels of a message, itself included: an iq, a batch and a request stand around it.
_PAYLOAD_DEPTH_MAX = DEPTH_MAX - 3

#: The answer of an endpoint that does not receive: the sender tries again.
_AWAY = RemoteProtocolError("away", condition="service-unavailable", type="cancel")

_PING = "<ping xmlns='urn:xmpp:ping'/>"


class Endpoint:
    """A sender and a receiver on one stream, with one store."""

    def __init__(self, xmpp: ClientXMPP | ComponentXMPP, settings: Settings) -> None:
        """Open the store and insert the endpoint into the stream.

        Raises:
            StoreError: the store cannot be opened.
            JournalError: the folder of the journal cannot be written.
        """
        self.xmpp = xmpp
        self.settings = settings
        #: Our full JID while there is a session.
        self.own: str | None = None
        #: The messages at level unacknowledged since there was a session.
        self._plain_waiting = 0
        #: Whether there has been a session: messages held then have been handed over.
        self.has_been_online = False
        #: The ids of the iqs that the end of the connection has found unwritten.
        self._unwritten: set[str] = set()
        #: Of the ping that is not answered yet, or ''.
        self._ping_id = ""
        self._clock = LoopClock(self.xmpp.loop)
        self._reporter = Reporter(
            self.xmpp,
            to=settings.event_log_to,
            interval_s=settings.event_interval_s,
            now=self._clock.now,
        )
        # As configured, not as bound: it is the same at each start.
        node = str(xmpp.requested_jid)
        if settings.journal is not None:
            check_folder(settings.journal)
        self._recorder = Recorder()
        self.store = store_of(settings.store)
        contents = self.store.open(self._clock.now())
        with contextlib.ExitStack() as undo:
            undo.callback(lambda: close_at_once(xmpp.loop, self._close_store()))
            journal = self._new_journal(node)
            self._recorder = recorder_of(journal)
            self._step_in(contents, journal, undo)
            undo.pop_all()

    def _step_in(
        self,
        contents: Contents,
        journal: JournalWriter | None,
        undo: contextlib.ExitStack,
    ) -> None:
        """Make the parts of the endpoint, and connect them to the stream.

        `undo` gets the clean-up in case this fails.
        """
        self._tap = Tap.of(self.xmpp)
        self._wire = self._tap.wire
        self._limits = StreamLimits.of(self.xmpp)
        self._next_start = NextStart(
            self.xmpp, self.store, self._limits, contents.remembered
        )
        self._make_engines(contents, journal, undo)
        self._make_parts_for_peers()
        undo.callback(self._stop_asking)
        self._part = Part(
            take_iq=self._take_iq,
            saw_presence=lambda xml: self.presence.saw(xml),
            session_started=self._session_started,
            session_lost=self._session_lost,
        )
        self._limits.watch.append(self._stanza_ended_stream)
        undo.callback(self._step_out)
        self._tap.join(self._part)

    def _make_engines(
        self,
        contents: Contents,
        journal: JournalWriter | None,
        undo: contextlib.ExitStack,
    ) -> None:
        """Make the outbox and the inbox, with the contents of the store."""
        settings = self.settings
        if not settings.receives:
            # Received messages are for a process that receives; they stay in the store
            # for it.
            contents = replace(contents, incoming=[])
        self.outbox = Outbox(
            self.store,
            contents,
            self,
            clock=self._clock,
            backoff=settings.backoff,
            limits=settings.outbox_limits,
            journal=journal,
            stanzas=Stanzas(self._limits.sizes, self._measure),
        )
        undo.callback(self.outbox.stop)
        self._awaited = self.outbox.in_flight.awaited
        self.feed = Feed(self.xmpp, self._tap, store_url=self.store.url)
        self.hand_over = self.feed.hand_over
        self.consumption = self.feed.consumption
        # A component's stanzas are in another namespace than stored messages.
        self._keep = None if self.xmpp.is_component else self.feed.parsed.keep
        self.inbox = Inbox(
            self.store,
            contents,
            self,
            clock=self._clock,
            limits=settings.inbox_limits,
            own_domains=own_domains(
                str(self.xmpp.requested_jid), component=self.xmpp.is_component
            ),
            journal=journal,
        )
        undo.callback(self.inbox.stop)

    def _make_discovery(self) -> None:
        settings = self.settings
        self._discovery: Discovery = Discovery(
            self.xmpp,
            namespaces=settings.namespaces,
            timeout_s=settings.retry_first_s,
            clock=self._clock,
            ask=self._ask,
            capabilities=self._next_start.capabilities,
            on_features=self.outbox.in_flight.route_found,
            answered=self.outbox.in_flight.heard,
            shows_presence=lambda account: self.guard.shows_presence(account),
            none_is_online=lambda *of: self._roster.none_is_online(*of),
        )
        self.route: Callable[[Outgoing], Route | None] = self._discovery.route

    def _make_batches(self) -> None:
        self._render_request = partial(
            stanza.render_request, store_id=self.store.store_id
        )
        self._batches = BatchSender(
            self.settings,
            self._clock,
            supports=self._discovery.supports,
            render=self._render_request,
            store_id=self.store.store_id,
            send=self._wire.send,
            soon=self.xmpp.loop.call_soon,
            new_id=self.new_id,
            batch_max=lambda: self._limits.sizes.batch_max,
        )
        self._batch_receiver = BatchReceiver(
            self._clock,
            decision=lambda *of: self.guard.decision(*of),
            consider=lambda request: self.guard.consider(request),
            decided=self._decided,
            malformed=self._malformed,
            send=self._send_answer,
            sender=self._sender_of_answer,
            keep=self._keep,
        )

    def _make_parts_for_peers(self) -> None:
        """Make the parts that decide about peers: discovery, batches and trust."""
        settings = self.settings
        self._make_discovery()
        self._make_batches()
        self.guard: Guard = Guard(
            self.xmpp,
            trust=policy_of(settings.trust),
            accepts_anyone=settings.accepts == "anyone",
            decided=self._decided,
            no_room=self.inbox.turn_away,
        )
        self.plain = PlainMessages(self.xmpp, self.guard, self.report)
        self._roster: RosterLoader = RosterLoader(
            self.xmpp,
            clock=self._clock,
            # At once: the presence of the contacts comes behind the roster.
            send=partial(self._wire.send, at_once=True),
            loaded=self.guard.roster_loaded,
        )
        self.presence: PeerPresence = PeerPresence(
            self.xmpp,
            self.guard,
            self._discovery,
            sends_to=self.outbox.in_flight.sends_to,
            peer_arrived=self.outbox.in_flight.peer_arrived,
        )
        #: How many answers of peers there were.
        self._replies = 0

    def _step_out(self) -> None:
        self._tap.leave(self._part)
        self._limits.watch.remove(self._stanza_ended_stream)

    def _stop_asking(self) -> None:
        self._discovery.stop()
        self._roster.stop()

    def _new_journal(self, node: str) -> JournalWriter | None:
        if self.settings.journal is None:
            return None
        journal = JournalWriter.of_store(
            self.settings.journal, node, self._clock.now, self.store.store_id
        )
        self.store.journal = journal
        journal.note(*journaled.not_stored(journal.begun, self.store))
        return journal

    def leave(self) -> Coroutine[Any, Any, None]:
        """Leave the stream as it was; the returned coroutine closes the store."""
        # First: the answers of this turn of the loop have still to be sent.
        self.inbox.leave()
        for request in self.guard.undecided():
            self.inbox.turn_away(request)
        self._step_out()
        self._session_lost()
        self._stop_asking()
        self.outbox.stop()
        self._batches.stop()
        return self._close()

    async def _close(self) -> None:
        try:
            await self.inbox.aclose()
        finally:
            await self._close_store()

    async def _close_store(self) -> None:
        try:
            await self.store.close()
        finally:
            await self._recorder.close()

    # -- the application ---------------------------------------------------

    async def submit(
        self,
        to: str | JID,
        payload: str,
        level: LevelOrWord,
        deadline_s: float | None,
        ordered: bool | None,
        sender: str = "",
        msg_id: str | None = None,
        account: str = "",
        digest: str = "",
    ) -> Delivery:
        """See XEP_QOS.submit, and Outgoing for account and digest."""
        to = jid_of("to", to)
        level = arguments.member(Level, "level", level)
        if msg_id is not None:
            stanza.check_msg_id(msg_id)
        if deadline_s is not None:
            arguments.seconds("deadline_s", deadline_s, zero=True)
        if ordered is not None:
            arguments.flag("ordered", ordered)
        self._check_fits(to, payload, level, sender)
        if level is Level.UNACKNOWLEDGED:
            if self.own is None:
                if self._plain_waiting >= _PLAIN_WAITING_MAX:
                    raise OutboxFull(
                        unit="messages", limit=_PLAIN_WAITING_MAX, plain=True
                    )
                self._plain_waiting += 1
            self._wire.send_plain(payload, to=to, sender=sender)
            return Delivery._sent(to)
        settings = self.settings
        return await self.outbox.submit(
            to,
            payload,
            level=level,
            deadline_s=settings.deadline_s if deadline_s is None else deadline_s,
            ordered=settings.ordered if ordered is None else ordered,
            sender=sender,
            msg_id=msg_id,
            account=account,
            digest=digest,
        )

    def _check_fits(self, to: str, payload: str, level: Level, sender: str) -> None:
        """Refuse a message too large for a server, or nested too deeply for a receiver.

        The server would close the stream, at each attempt. The size is that of the stanza at the receiver's
        server, with both JIDs.
        """
        own = self.xmpp.boundjid.full or str(self.xmpp.requested_jid)
        resource = 0 if "/" in to else _RESOURCE_BYTES
        addresses = min(len(to.encode()) + resource, _JID_BYTES_MAX) + len(own.encode())
        size = len(payload.encode()) + addresses + stanza.OVERHEAD_BYTES
        limit = self.settings.stanza_bytes_max
        if size > limit:
            raise MessageTooLarge(to, size=size, limit=limit)
        server_limit = self._limits.sizes.limit
        if server_limit is not None and size > server_limit:
            size = self._size_of(to, payload, level, sender)
            over = self._limits.over(size)
            if over is not None:
                raise MessageTooLarge(to, size=size, limit=over)
        if is_deeper(payload, _PAYLOAD_DEPTH_MAX):
            expected = f"elements nested at most {_PAYLOAD_DEPTH_MAX - 1} deep"
            raise InvalidArgument("payload", str, expected)

    def _size_of(self, to: str, payload: str, level: Level, sender: str) -> int:
        """The bytes of a message as our server will get it."""
        if level is Level.UNACKNOWLEDGED:
            return self._wire.plain_size(payload, to=to, sender=sender)
        msg_id = self.new_msg_id()
        record = Outgoing(
            msg_id=msg_id,
            seq=0,
            to=to,
            level=level,
            payload=payload,
            size=len(payload.encode()),
            created_at=0.0,
            sender=sender,
            offer_id=msg_id if level is Level.ACKNOWLEDGED else self.new_id(),
            deliver_id="",
        )
        route = self.route(record) if self.own is not None else None
        return self._measure(Transmit("offer", record, route or Route(to)))

    async def flush(self) -> None:
        """See XEP_QOS.flush."""
        # First, the callbacks of futures that are done are called.
        await asyncio.sleep(0)
        # A store writes in the order of the calls.
        write = self.store.write((self._next_start.own_jid(),))
        if write is not None:
            await write
        self._wire.flush()

    async def confirmed(self, within_s: float) -> bool:
        """See XEP_QOS.confirmed."""
        await self.flush()
        all_have = await self.inbox.unasked.none(within_s)
        self._wire.flush()
        return all_have

    def stop_receiving(self) -> None:
        """See XEP_QOS.stop_receiving."""
        self.inbox.stop()

    # -- the session -------------------------------------------------------

    def _session_started(self, *, resumed: bool) -> None:
        own = self.own = self.xmpp.boundjid.full
        self._plain_waiting = 0
        self._next_start.session_started()
        if not resumed:
            self._discovery.session_started()
            self._batches.session_started()
            self._next_start.keep_sizes()
        self.guard.session_started(resumed=resumed)
        self._roster.session_started(resumed=resumed)
        if not self.has_been_online:
            self.has_been_online = True
            self._warn_of_automatic_trust()
            self.inbox.restart()
        unwritten, self._unwritten = self._unwritten, set()
        if resumed:
            self.outbox.session_resumed(own, unwritten)
        else:
            self.outbox.session_started(own)

    def _stanza_ended_stream(self, iq_id: str) -> None:
        """Note that the server has ended the stream because of the size of this iq.

        Written at once: a process that is killed before the next end knows of this one.
        """
        self.outbox.in_flight.not_taken(iq_id)
        self._next_start.keep_sizes()

    def _session_lost(self) -> None:
        self.own = None
        self.guard.session_lost()
        self._roster.session_lost()
        self.outbox.session_lost()
        # Called at each lost attempt as well, with the same ids.
        self._unwritten.update(self._batches.session_lost(), self._wire.lost)
        self._discovery.session_lost()

    def _warn_of_automatic_trust(self) -> None:
        """Warn that by slixmpp's default every peer that asks gets into the roster."""
        receives, by_roster = self.settings.receives, self.guard.needs_roster
        if receives and by_roster and self.xmpp.auto_authorize:
            log.warning(
                "trust has 'contacts', and the client accepts every subscription "
                "request: set client.auto_authorize to None or False, or "
                "anybody can make himself trusted"
            )

    # -- the stream --------------------------------------------------------

    def _take_iq(self, xml: ET.Element) -> bool:
        kind = xml.get("type")
        is_taken = False
        if kind == "set":
            for element in xml:
                if element.tag in REQUEST_OR_BATCH:
                    is_taken = self._asked(xml, element)
                    break
                if element.tag == ROSTER_QUERY:
                    self._roster.clean(xml)
        elif self._ping_id and xml.get("id") == self._ping_id:
            is_taken = self._answered_ping(xml)
        elif kind in {"result", "error"}:
            iq_id = xml.get("id", "")
            awaited = iq_id in self._awaited
            is_taken = awaited or self._batches.awaits(iq_id)
            if is_taken:
                self._answered(xml, iq_id, in_batch=not awaited)
            elif iq_id in self._discovery.awaited:
                is_taken = self._discovery.take_answer(xml)
            elif iq_id in self._roster.awaited:
                is_taken = self._roster.take_answer(xml)
            else:
                self._roster.clean(xml)
        if is_taken:
            self._wire.quicken()
        return is_taken

    def _answered_ping(self, xml: ET.Element) -> bool:
        """Take the answer of our server to a ping; a component gets the ping itself."""
        source = xml.get("from", "")
        if source and source != self.own and source not in own_servers(self.own or ""):
            return False
        self._ping_id = ""
        self.outbox.in_flight.answered_ping()
        return True

    def _asked(self, xml: ET.Element, element: ET.Element) -> bool:
        """Take an iq with a request or a batch; False: we accept no batches."""
        in_batch = element.tag == BATCH
        if in_batch and self.settings.receives and self.settings.batch_max == 1:
            return False
        if len(xml.get("id", "")) > ID_CHARS_MAX:
            # The answer would repeat the id, and could be too long for a server, which
            # would then close the stream. So there is none, although RFC 6120 §8.2.3
            # demands one.
            report = Report("", f"iq id longer than {ID_CHARS_MAX} characters")
            self.report(xml.get("from", ""), report)
        elif not self.settings.receives:
            sender = self._sender_of_answer(xml.get("to", ""))
            self._wire.send(stanza.render_error(xml, _AWAY, sender=sender))
        elif in_batch:
            self._batch_receiver.take(xml, element)
        else:
            self._request(xml, element)
        return True

    def _request(self, xml: ET.Element, element: ET.Element) -> None:
        decision = self.guard.decision(
            element.tag, xml.get("from", ""), xml.get("to", "")
        )
        refused = decision is not None and not decision.trusted
        try:
            request = stanza.parse_request(
                xml, element, self._keep, without_message=refused
            )
        except RemoteProtocolError as error:
            self._wire.send(self._malformed(xml, error))
            return
        if decision is None:
            self.guard.consider(request)
        else:
            self.inbox.request(request, trusted=decision.trusted, why=decision.reason)

    def _malformed(self, xml: ET.Element, error: RemoteProtocolError) -> str:
        """Note a malformed iq; returns the answer."""
        source, to = xml.get("from", ""), xml.get("to", "")
        self._recorder.malformed(source, to, error.condition)
        self.report(source, Report(error.condition, f"malformed request: {error}"))
        return stanza.render_error(xml, error, sender=self._sender_of_answer(to))

    def _decided(self, request: Request, decision: Trusted) -> None:
        self.inbox.request(request, trusted=decision.trusted, why=decision.reason)

    def _answered(self, xml: ET.Element, iq_id: str, *, in_batch: bool) -> None:
        if in_batch:
            for reply in self._batches.replies(xml, self.own or ""):
                self._reply(reply)
        else:
            self._batches.answered(iq_id, xml.get("from", ""))
            self._reply(stanza.parse_reply(xml))

    def _reply(self, reply: Reply) -> None:
        discovery, source = self._discovery, reply.source
        if reply.error in {None, "resource-constraint"}:
            # Without a call: this is done for each answer.
            answers, self._replies = discovery.answers, self._replies + 1
            answers.pop(source, None)
            answers[source] = self._replies
            if len(answers) > _ANSWERS_MAX:
                del answers[next(iter(answers))]
            if discovery.silent_since:
                discovery.silent_since.pop(source, None)
        else:
            # It may be away, and come back with other features.
            discovery.forget(source)
        self.outbox.in_flight.reply(reply)

    def _sender_of_answer(self, to: str) -> str:
        """The from of an answer: a component has to give it.

        The server knows a client.
        """
        return to if self.xmpp.is_component else ""

    def _send_answer(self, text: str, *, at_once: bool = False) -> None:
        if self.own is not None:
            self._wire.send(text, at_once=at_once)

    # -- the ports of the engine: also `route`, `hand_over` and `consumption` ----

    def _ask(self, jid: str, sender: str) -> str:
        """Ask a peer what it supports; returns the id of the question, or ''."""
        iq_id = self.new_id()
        text = render_iq("get", iq_id, QUERY, to=jid, sender=sender)
        return iq_id if self.own is not None and self._wire.send(text) else ""

    new_id = staticmethod(new_id)
    new_msg_id = staticmethod(new_key)
    jitter = staticmethod(random.random)

    def transmit(self, transmit: Transmit) -> bool:
        """See qos.engine.outbox.Port."""
        if self.own is None:
            return False
        sender = self._component_of(transmit) if self.xmpp.is_component else ""
        if self._batches.take(transmit, sender):
            return True
        record = transmit.record
        deliver = transmit.step == "deliver"
        iq_id = record.deliver_id if deliver else record.offer_id
        text = self._render_request(transmit, sender)
        return self._wire.send(text, iq_ids=(iq_id,))

    def _component_of(self, transmit: Transmit) -> str:
        return transmit.record.sender or self.xmpp.boundjid.full

    def _measure(self, transmit: Transmit) -> int:
        """See qos.engine.outbox_message.Stanzas."""
        sender = self._component_of(transmit) if self.xmpp.is_component else ""
        return len(self._render_request(transmit, sender).encode())

    def ping(self) -> bool:
        """See qos.engine.outbox.Port (XEP-0199)."""
        own = self.own
        if own is None:
            return False
        # A component pings itself: the server need not know any other address.
        to, sender = domain_of(own), ""
        if self.xmpp.is_component:
            to = sender = own
        self._ping_id = self.new_id()
        return self._wire.send(
            render_iq("get", self._ping_id, _PING, to=to, sender=sender)
        )

    def answer(self, request: Request, answer: Answer) -> None:
        """See qos.engine.inbox_message.InboxPort."""
        if self.own is None:
            return
        if isinstance(request, BatchedRequest):
            self._batch_receiver.answer(request, answer)
        else:
            sender = self._sender_of_answer(request.to)
            self._wire.send(stanza.render_answer(request, answer, sender=sender))

    def report(self, source: str, report: Report) -> None:
        """See qos.engine.inbox_message.InboxPort."""
        self._reporter.report(source, report, online=self.own is not None)
