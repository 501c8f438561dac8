"""A queue service on a stream, of a component or of an ordinary account.

It takes its stanzas out of the stream in a filter, below all handlers, and has them
parsed, decided and written (`qos.engine.queue_engine`). It sends text, and decides
nothing itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from xml.etree import ElementTree as ET

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

import xep_qos
from qos import arguments
from qos.core.queue.bounds import MESSAGE_QUOTAS, QueueBounds
from qos.core.queue.requests import Refusal
from qos.core.queue.results import Result
from qos.core.quota import Quotas, own_domains
from qos.core.strings import bare
from qos.engine.clock import ListeningClock
from qos.engine.gateway import GatewayPort, QueuePorts
from qos.engine.queue_commit import unwritten
from qos.engine.queue_engine import QueueEngine
from qos.ids import new_key
from qos.journal.writer import JournalWriter, check_folder
from qos.steps import Steps
from qos.stores.queue_base import QueueStore
from qos.stores.queue_store import MESSAGES, queue_store_of
from qos.stream.closing import close_at_once
from qos.stream.gate import in_session
from qos.stream.internals import is_wanted
from qos.stream.stream_limits import StreamLimits
from qos.stream.tap import Part, Tap
from xep_0254 import disco
from xep_0254.command_stanza import is_command
from xep_0254.commands import Commands
from xep_0254.discovery import Discovery
from xep_0254.event_sender import EventSender
from xep_0254.published_messages import ID_CHARS_MAX, PublishedMessages
from xep_0254.request_turns import RequestTurns, stepped
from xep_0254.requests import is_request, reading_request
from xep_0254.rights import (
    check_rights,
    creators_of,
    normal_request,
    sender_jid,
)
from xep_0254.service_stanza import render_refusal, render_result
from xep_qos import XEP_QOS
from xep_qos.batch_stanza import REQUEST_OR_BATCH
from xep_qos.relay import RELAYED_MAX, Relay
from xep_qos.settings import Settings, TrustCallback

__all__ = ["QueueService"]

log = logging.getLogger(__name__)

#: RFC 6120 §8.2.3.
_NOT_ONE_CHILD = Refusal(
    "an iq of type get or set has exactly one child",
    condition="bad-request",
    type="modify",
)

#: RFC 6120 §8.4.
_UNKNOWN = Refusal(
    "this service does not know such a request",
    condition="service-unavailable",
    type="cancel",
)


class QueueService:
    """Serves XEP-0254 queues at the JID of a stream.

    A component serves at its domain, an account at its full JID. The service follows
    the session. The application has to connect, and to connect again when the session
    is lost.
    """

    def __init__(
        self,
        xmpp: ClientXMPP | ComponentXMPP,
        store: QueueStore | str,
        *,
        creators: str | Collection[str] = "domain",
        trust: str | Collection[str] | TrustCallback = "publishers",
        quotas: Quotas = MESSAGE_QUOTAS,
        bounds: QueueBounds | None = None,
        journal: str | os.PathLike[str] | None = None,
        relays: bool = False,
    ) -> None:
        """Open the store and insert the service into the stream.

        If xep_qos is not registered yet, this registers it, with a store beside that of
        the queues. It receives items that are published by assured messages.

        Args:
            xmpp: the stream.
            store: `sqlite:PATH`, or a QueueStore that is not open. If its URL is not
                `sqlite:PATH`, xep_qos must be registered before.
            creators: the accounts that may create nodes. `domain`: the accounts of the
                service's domain, which is that of its account, or for a component the
                domain above its own. `anyone`: all who can reach the service. Or
                accounts (`a@b,c@d` or a collection); among them `@DOMAIN` stands for
                all accounts of a domain.
            trust: the accounts whose messages are accepted. `publishers`: accounts
                that may publish to a node here; otherwise as for xep_qos. Not used,
                like `quotas`, if xep_qos is registered already.
            quotas: the limits for held messages.
            bounds: how many nodes and subscriptions an account, a foreign domain and
                all together may have; None: the defaults. Our own domains are always
                added.
            journal: a folder for the journal (`qos.journal`); None: no journal.
            relays: whether a gateway sends messages for its users: then outcomes are
                kept of many more messages.

        Raises:
            StoreError: the store cannot be opened.
            JournalError: the folder of the journal cannot be written.
            InvalidArgument: an argument has a wrong value.
        """
        arguments.instance(BaseXMPP, "xmpp", xmpp, "a client or component of slixmpp")
        may_create = creators_of(creators, xmpp)
        if journal is not None:
            arguments.path("journal", journal)
        store = queue_store_of(store)
        arguments.instance(Quotas, "quotas", quotas, "Quotas")
        arguments.flag("relays", relays)
        if bounds is not None:
            arguments.instance(QueueBounds, "bounds", bounds, "QueueBounds or None")
        self._registers_qos = "xep_qos" not in xmpp.plugin
        options = self._qos_options(store.url, trust, journal, quotas, relays=relays)
        self._xmpp = xmpp
        own = own_domains(str(xmpp.requested_jid), component=xmpp.is_component)
        bounds = bounds or QueueBounds()
        self._clock = clock = ListeningClock(xmpp.loop)
        new_journal = _item_journal(journal, xmpp, clock)
        self._limits = StreamLimits.of(xmpp)
        self._tap = Tap.of(xmpp)
        self._events = EventSender(xmpp, self._tap.wire)
        self._ports = QueuePorts(self._events)
        self._engine = QueueEngine(
            store,
            self._ports,
            clock=clock,
            creators=may_create,
            bounds=replace(bounds, own_domains=bounds.own_domains | own),
            journal=new_journal,
        )
        self._turns = RequestTurns(self._engine.payers, bounds.own_domains | own)
        self._events.engine = self._engine
        self._commands = Commands(
            self._engine,
            self._events,
            own_domains=bounds.own_domains | own,
            payer=self._turns.payer,
            send=self._send,
        )
        self._discovery = Discovery(self._engine, self._events, self._commands)
        self._messages = PublishedMessages(xmpp, self._engine, self._events)
        self._closed = False
        if self._registers_qos:
            self._register_qos(options)
        self._step_in()
        clock.start()

    def _qos_options(
        self,
        queues_url: str,
        trust: str | Collection[str] | TrustCallback,
        journal: str | os.PathLike[str] | None,
        quotas: Quotas,
        *,
        relays: bool,
    ) -> dict[str, object]:
        """The options of xep_qos; they are not used if it is registered already.

        Wrong ones are refused here, before anything is opened.
        """
        options: dict[str, object] = {
            "store": f"{queues_url}{MESSAGES}" if self._registers_qos else "memory:",
            "trust": self._publishes if trust == "publishers" else trust,
            "journal": journal,
            **{f"quota_{name}": value for name, value in asdict(quotas).items()},
            **({"outcomes_max": RELAYED_MAX} if relays else {}),
        }
        Settings.from_config(options)
        return options

    def _register_qos(self, options: dict[str, object]) -> None:
        """Register xep_qos with these options; if that fails, close the queue store."""
        try:
            self._xmpp.register_plugin(xep_qos.XEP_QOS.name, options)
        except Exception:
            close_at_once(self._xmpp.loop, self._engine.aclose())
            raise

    def _step_in(self) -> None:
        """Insert the service into the stream."""
        xmpp = self._xmpp
        xmpp.register_plugin("xep_0030")
        xmpp.add_event_handler("session_bind", self._session_bind)
        if in_session(xmpp):
            self._session_bind(xmpp.boundjid)
        self._part = self._tap.join(
            Part(
                take_iq=self._take_iq,
                take_message=self._take_message,
                saw_presence=self._saw_presence,
                session_started=self._session_started,
                session_lost=self._session_lost,
            )
        )

    async def aclose(self) -> None:
        """Finish the running writes and close the store.

        Until the stream is disconnected, requests are swallowed: slixmpp would answer
        that they are not implemented, and the clients would believe it.
        """
        self._closed = True
        self._session_lost()
        await self._engine.aclose()
        self._clock.stop()
        qos = self._qos()
        if self._registers_qos and qos is not None:
            await qos.aclose()
        if not self._xmpp.is_connected():
            self._step_out()

    def _step_out(self) -> None:
        self._tap.leave(self._part)
        self._xmpp.del_event_handler("session_bind", self._session_bind)

    def open_nodes(self) -> tuple[list[str], list[str]]:
        """The nodes that everybody may subscribe to, and those to publish to.

        Sorted.
        """
        return self._engine.open_nodes()

    @property
    def engine(self) -> QueueEngine:
        """The engine, for a gateway: another way in to the same queues."""
        return self._engine

    def relay(self) -> Relay:
        """The outbox of the service, for the users of a gateway: see `relays`."""
        return Relay(XEP_QOS.of(self._xmpp))

    def add_gateway(self, gateway: GatewayPort) -> None:
        """Let a gateway serve the subscribers that it claims."""
        self._ports.add(gateway)

    def _publishes(self, sender: str) -> bool:
        """Whether it is of any use to hold a message of this full JID."""
        return self._engine.publishes(bare(sender_jid(sender)))

    # -- the session -------------------------------------------------------

    def _session_bind(self, jid: JID) -> None:
        """Announce our features (XEP-0254 §3).

        And know our own JID before session_start, when xep_qos hands over again the
        messages that a crash has interrupted.
        """
        self._events.own = jid.full
        plugin = self._xmpp.plugin["xep_0030"]
        plugin.add_identity("pubsub", "service", "Queues", jid=jid)
        for feature in disco.SERVICE_FEATURES:
            plugin.add_feature(feature, jid=jid)

    def _session_started(self, *, resumed: bool) -> None:
        self._events.own = self._xmpp.boundjid.full
        self._events.session_started()
        self._engine.online()

    def _session_lost(self) -> None:
        if self._closed and not self._xmpp.is_connected():
            self._step_out()
        silent_s = self._events.silent_s()
        self._events.session_lost()
        self._engine.offline(silent_s)

    # -- incoming stanzas --------------------------------------------------

    def _take_iq(self, xml: ET.Element) -> bool:
        if self._closed:
            is_ours = is_request(xml) or is_command(xml)
            return is_ours or (self._registers_qos and _is_of_qos(xml))
        self._tap.wire.quicken()
        requester = sender_jid(xml.get("from", ""))
        is_ours = self._events.own is not None and xml.get("to", "") == self._events.own
        return is_ours and bool(requester) and self._iq(xml, requester)

    def _take_message(self, message: StanzaBase) -> bool:
        if self._closed:
            return False
        self._tap.wire.quicken()
        requester = sender_jid(message.xml.get("from", ""))
        if self._events.own is None or not requester:
            return False
        # A message that was held for long may be for a resource that we had then.
        to = bare(message.xml.get("to", ""))
        return to == bare(self._events.own) and self._message(message, requester)

    def _saw_presence(self, xml: ET.Element) -> None:
        if self._closed:
            return
        self._tap.wire.quicken()
        sender = sender_jid(xml.get("from", ""))
        if (
            sender
            and self._events.own is not None
            and xml.get("to", "") == self._events.own
        ):
            self._presence(xml, sender)

    def _iq(self, xml: ET.Element, requester: str) -> bool:
        kind, iq_id = xml.get("type"), xml.get("id", "")
        if kind in {"result", "error"}:
            return self._events.takes_answer(xml, requester)
        if len(iq_id) > ID_CHARS_MAX:
            # An answer would have to repeat the id, and could break our own stream.
            return is_request(xml) or is_command(xml)
        is_pubsub = is_request(xml)
        if is_pubsub or self._is_command(xml):
            if not self._turns.do(
                requester,
                stepped(self._request(xml, requester))
                if is_pubsub
                else partial(self._commands.execute, xml, requester),
            ):
                text = "too many requests wait already"
                busy = Refusal(text, condition="resource-constraint", type="wait")
                self._events.send(self._refusal(xml, busy))
            return True
        self._engine.heard(requester)
        if len(xml) == 1 and self._discovery.take(xml, requester):
            return True
        if kind not in {"get", "set"} or _is_of_qos(xml):
            return False
        if len(xml) == 1 and is_wanted(self._xmpp, xml):
            return False
        why = _UNKNOWN if len(xml) == 1 else _NOT_ONE_CHILD
        self._events.send(self._refusal(xml, why))
        return True

    def _is_command(self, xml: ET.Element) -> bool:
        """Whether it executes a command of ours, or one that nobody has."""
        return is_command(xml) and (
            self._commands.has(xml) or not is_wanted(self._xmpp, xml)
        )

    def _request(self, xml: ET.Element, requester: str) -> Steps[None]:
        try:
            for child in xml:
                check_rights(child, self._engine.rights, requester)
            request = yield from reading_request(xml, new_id=new_key)
            request = normal_request(request)
        except Exception as error:
            refusal = error if isinstance(error, Refusal) else unwritten(error)
            if refusal is not error:
                log.exception("a request of %s could not be read", requester)
            self._engine.heard(requester)
            self._events.send(self._refusal(xml, refusal))
            return

        def answer(result: Result | Refusal, payloads: Mapping[int, str]) -> None:
            self._answer(xml, result, payloads)

        self._engine.request(request, requester, answer)

    def _answer(
        self,
        xml: ET.Element,
        result: Result | Refusal,
        payloads: Mapping[int, str],
    ) -> None:
        sender = self._events.sender
        try:
            if isinstance(result, Refusal):
                text = self._refusal(xml, result)
            else:
                text = render_result(xml, result, sender=sender, payloads=payloads)
        except Exception as error:
            log.exception("an answer to %s could not be written", xml.get("from"))
            text = self._refusal(xml, unwritten(error))
        self._send(xml, text)

    def _send(self, xml: ET.Element, text: str) -> None:
        """Send the answer to an iq, or a refusal if the answer is too large."""
        if self._limits.sizes.limit is not None:
            text = self._within_limit(xml, text)
        self._events.send(text)

    def _within_limit(self, xml: ET.Element, text: str) -> str:
        """The answer; or a refusal, if our server would end the stream at this answer."""
        size = len(text.encode())
        limit = self._limits.over(size)
        if limit is None:
            return text
        why = (
            f"the answer has {size} bytes, and the server of this service takes {limit}"
        )
        too_large = Refusal(why, condition="policy-violation", type="modify")
        return self._refusal(xml, too_large)

    def _presence(self, xml: ET.Element, sender: str) -> None:
        kind = xml.get("type")
        if kind is None:
            call = partial(self._engine.heard, sender, available=True)
            self._turns.after(sender, call)
        elif kind == "unavailable":
            self._turns.after(sender, partial(self._engine.departed, sender))

    def _message(self, message: StanzaBase, sender: str) -> bool:
        xml = message.xml
        qos = self._qos()
        info = None if qos is None else qos.incoming(message)
        # An account may have handlers of the application for it; a component has none.
        is_ours = info is not None and self._xmpp.is_component
        if xml.get("type") == "error":
            self._engine.bounced(sender, xml.get("id", ""))
            return is_ours
        self._engine.heard(sender)
        if qos is None or info is None:
            return False
        return self._messages.take(message, sender, qos, info)

    def _qos(self) -> XEP_QOS | None:
        """The plugin of the stream; None: the application has closed it."""
        try:
            return XEP_QOS.of(self._xmpp)
        except LookupError:
            return None

    # -- outgoing stanzas -------------------------------------------------

    def _refusal(self, xml: ET.Element, refusal: Refusal) -> str:
        return render_refusal(
            xml, refusal, sender=self._events.sender, by=str(self._events.own or "")
        )


def _is_of_qos(xml: ET.Element) -> bool:
    """Whether an iq is for xep_qos: one request, or several in a batch."""
    return any(child.tag in REQUEST_OR_BATCH for child in xml)


def _item_journal(
    folder: str | os.PathLike[str] | None,
    xmpp: ClientXMPP | ComponentXMPP,
    clock: ListeningClock,
) -> Callable[[str], JournalWriter] | None:
    """Makes the journal of the items in a store with this id; None: there is none."""
    if folder is None:
        return None
    check_folder(folder)
    node = str(xmpp.requested_jid)
    return partial(JournalWriter.of_store, folder, node, clock.now, of_items=True)
