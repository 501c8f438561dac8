"""A queue service on a stream: a component's, or that of an ordinary account.

It takes what is for it out in a filter, below all handlers, has it parsed, decided
and written (`qos.engine.queue_engine`), and sends text. It decides nothing itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from xml.etree import ElementTree as ET

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

import xep_qos
from qos import arguments
from qos.core.backoff import Backoff
from qos.core.message.model import NAMESPACES
from qos.core.queue.effects import (
    Notification,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
)
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import (
    GetOptions,
    Publish,
    Refusal,
    Request,
    Result,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Unsubscribe,
)
from qos.core.queue.service import MESSAGE_QUOTAS, QueueBounds
from qos.core.quota import Quotas, domain_of, own_domains
from qos.core.strings import bare
from qos.engine.clock import LoopClock
from qos.engine.queue_engine import Payloads, QueueEngine, Stats, Unwritten
from qos.engine.retry import Retry
from qos.errors import InvalidArgument
from qos.ids import new_id, new_key
from qos.jids import account_or_domain, normal_jid
from qos.journal.writer import JournalWriter, check_folder
from qos.stores.queue_store import QueueStore, queue_store_from_url
from qos.stream.closing import close_at_once
from qos.stream.gate import in_session
from qos.stream.tap import Part, Tap
from qos.xml_text import CLIENT, attribute, render_iq
from xep_0254 import disco, events
from xep_0254.elements import bad_request
from xep_0254.namespaces import DISCO_INFO, DISCO_ITEMS, STANZAS
from xep_0254.requests import is_request, parse_publish_message, parse_request
from xep_0254.service_stanza import render_error, render_refusal, render_result
from xep_qos import XEP_QOS
from xep_qos.batch_stanza import batch_in
from xep_qos.settings import Settings, TrustCallback
from xep_qos.stanza import request_element

__all__ = ["QueueService"]

log = logging.getLogger(__name__)

#: For a stanza's id or a JID: what is longer is not repeated in an answer.
_ID_CHARS_MAX = 1024

#: RFC 6120 §8.3.3: a client that is there answers a ping, or says that it cannot.
#: The others are what a server answers for one that is not.
_IS_THERE = frozenset({"feature-not-implemented", "bad-request", "not-allowed"})

_PING = "urn:xmpp:ping"

#: Before an acknowledged event is sent again.
_REPEAT = Backoff(first_s=2.0, max_s=30.0)

#: Before a message is tried again that could not be written.
_AGAIN_S = 1.0

_INFO = f"{{{DISCO_INFO}}}query"
_ITEMS = f"{{{DISCO_ITEMS}}}query"


class QueueService:
    """Serves XEP-0254 queues at the JID of a stream.

    A component serves at its domain, an account at its full JID. The service follows
    the session; to connect, and again when that is lost, is the application's.
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
    ) -> None:
        """Open the store and step into the stream.

        If xep_qos is not registered yet, it is, with a store beside that of the
        queues: for items that are published by assured messages.

        Args:
            xmpp: the stream.
            store: `sqlite:PATH`, or a store that is not open.
            creators: who may create nodes. `domain`: the accounts of the domain that
                the service is for, which is that of its account, or for a component
                the domain above its own. `all`: everybody who can reach the service.
                Or accounts (`a@b,c@d` or a collection), among them `@DOMAIN` for all
                accounts of a domain.
            trust: whose assured messages are held: `publishers`: of accounts that may
                publish to a node here; else as for xep_qos. Not used, like `quotas`, if
                xep_qos is registered already.
            quotas: how many messages are held.
            bounds: how many nodes and subscriptions an account, a foreign domain and all
                may have; None: as by default. Our own domains are always added.
            journal: a folder for the journal (`qos.journal`); None: there is none.

        Raises:
            StoreError: the store cannot be opened.
            JournalError: the folder of the journal cannot be written.
            InvalidArgument: an argument has a wrong value.
        """
        arguments.instance(BaseXMPP, "xmpp", xmpp, "a client or component of slixmpp")
        may_create = _creators(creators, xmpp)
        if journal is not None:
            arguments.path("journal", journal)
        if not isinstance(store, QueueStore):
            store = queue_store_from_url(store)
        arguments.instance(Quotas, "quotas", quotas, "Quotas")
        if bounds is not None:
            arguments.instance(QueueBounds, "bounds", bounds, "QueueBounds or None")
        options = {
            "store": f"{store.url}-messages",
            "trust": self._publishes if trust == "publishers" else trust,
            "journal": journal,
            **{f"quota_{name}": each for name, each in asdict(quotas).items()},
        }
        # What it refuses is refused before anything is opened.
        Settings.from_config(options)
        self._xmpp = xmpp
        own = own_domains(str(xmpp.requested_jid), component=xmpp.is_component)
        bounds = bounds or QueueBounds()
        clock = LoopClock(xmpp.loop)
        new_journal: Callable[[str], JournalWriter] | None = None
        if journal is not None:
            check_folder(journal)
            new_journal = partial(
                JournalWriter.of_store, journal, str(xmpp.requested_jid), clock.now
            )
        self._engine = QueueEngine(
            store,
            self,
            clock=clock,
            creators=may_create,
            bounds=replace(bounds, own_domains=bounds.own_domains | own),
            journal=new_journal,
        )
        self._own: str | None = None
        self._closed = False
        self._probes: dict[str, str] = {}
        # Events that were sent acknowledged: to whom, by their ids.
        self._unanswered: dict[str, str] = {}
        self._registers_qos = "xep_qos" not in xmpp.plugin
        if self._registers_qos:
            try:
                xmpp.register_plugin(xep_qos.XEP_QOS.name, options)
            except Exception:
                close_at_once(xmpp.loop, self._engine.aclose())
                raise
        xmpp.register_plugin("xep_0030")
        self._tap = Tap.of(xmpp)
        self._wire = self._tap.wire
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
        """Finish what is being written and close the store.

        Until the stream is disconnected, requests are swallowed: slixmpp would say
        that they are not implemented, and who asks would believe it.
        """
        self._closed = True
        self._session_lost()
        await self._engine.aclose()
        qos = self._qos()
        if self._registers_qos and qos is not None:
            await qos.aclose()
        if not self._xmpp.is_connected():
            self._step_out()

    def _step_out(self) -> None:
        self._tap.leave(self._part)
        self._xmpp.del_event_handler("session_bind", self._session_bind)

    def open_nodes(self) -> tuple[list[str], list[str]]:
        """The nodes that everybody may subscribe to, and those to publish to; sorted."""
        return self._engine.open_nodes()

    def _publishes(self, sender: str) -> bool:
        """Whether it is any use to hold a message of this full JID."""
        return self._engine.publishes(bare(_from(sender)))

    # -- the session -------------------------------------------------------

    def _session_bind(self, jid: JID) -> None:
        """XEP-0254 §3: say what we are.

        And know who we are before session_start, when xep_qos hands over again what
        a crash has interrupted.
        """
        self._own = jid.full
        plugin = self._xmpp.plugin["xep_0030"]
        plugin.add_identity("pubsub", "service", "Queues", jid=jid)
        for feature in disco.SERVICE_FEATURES:
            plugin.add_feature(feature, jid=jid)

    def _session_started(self, *, resumed: bool) -> None:
        self._own = self._xmpp.boundjid.full
        self._engine.online()

    def _session_lost(self) -> None:
        if self._closed and not self._xmpp.is_connected():
            self._step_out()
        self._own = None
        self._engine.offline()
        self._probes.clear()
        self._unanswered.clear()

    # -- what comes in -----------------------------------------------------

    def _take_iq(self, xml: ET.Element) -> bool:
        if self._closed:
            return is_request(xml) or (self._registers_qos and _is_of_qos(xml))
        self._wire.quicken()
        requester = _from(xml.get("from", ""))
        is_ours = self._own is not None and xml.get("to", "") == self._own
        return is_ours and bool(requester) and self._iq(xml, requester)

    def _take_message(self, message: StanzaBase) -> bool:
        if self._closed:
            return False
        self._wire.quicken()
        requester = _from(message.xml.get("from", ""))
        if self._own is None or not requester:
            return False
        # One that was held for long may be for a resource that we had then.
        to = bare(message.xml.get("to", ""))
        return to == bare(self._own) and self._message(message, requester)

    def _saw_presence(self, xml: ET.Element) -> None:
        if self._closed:
            return
        self._wire.quicken()
        sender = _from(xml.get("from", ""))
        if sender and self._own is not None and xml.get("to", "") == self._own:
            self._presence(xml, sender)

    def _iq(self, xml: ET.Element, requester: str) -> bool:
        kind, iq_id = xml.get("type"), xml.get("id", "")
        if kind in {"result", "error"}:
            return self._event_answered(xml, requester) or self._probe_answered(
                xml, requester
            )
        if len(iq_id) > _ID_CHARS_MAX:
            # An answer would have to repeat it, and could break our own stream.
            return is_request(xml)
        if is_request(xml):
            self._request(xml, requester)
            return True
        self._engine.heard(requester)
        if kind == "get" and len(xml):
            if xml[0].tag == _INFO:
                return self._node_info(xml, requester, xml[0].get("node", ""))
            if xml[0].tag == _ITEMS and not xml[0].get("node"):
                self._nodes(xml, requester)
                return True
        return False

    def _request(self, xml: ET.Element, requester: str) -> None:
        try:
            request = _normal(parse_request(xml, new_id=new_key))
        except Refusal as refusal:
            self._engine.heard(requester)
            self._send(self._refusal(xml, refusal))
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
        if isinstance(result, Refusal):
            text = self._refusal(xml, result)
        else:
            text = render_result(xml, result, sender=self._sender, payloads=payloads)
        self._send(text)

    def _node_info(self, xml: ET.Element, requester: str, node: str) -> bool:
        if not node:
            return False

        def tell(stats: Stats | Refusal) -> None:
            sender = self._sender
            if isinstance(stats, Refusal):
                text = render_refusal(xml, stats, sender=sender)
            else:
                text = disco.render_node_info(xml, node, stats=stats, sender=sender)
            self._send(text)

        return self._engine.stats(node, requester, tell)

    def _nodes(self, xml: ET.Element, requester: str) -> None:
        def tell(nodes: list[str] | Refusal) -> None:
            service, sender = str(self._own), self._sender
            if isinstance(nodes, Refusal):
                text = render_refusal(xml, nodes, sender=sender)
            else:
                text = disco.render_items(xml, nodes, service=service, sender=sender)
            self._send(text)

        self._engine.nodes(requester, tell)

    def _presence(self, xml: ET.Element, sender: str) -> None:
        kind = xml.get("type")
        if kind is None:
            self._engine.heard(sender, available=True)
        elif kind == "unavailable":
            self._engine.went(sender)

    def _message(self, message: StanzaBase, sender: str) -> bool:
        xml = message.xml
        qos = self._qos()
        info = None if qos is None else qos.incoming(message)
        # An account may have handlers of the application for it; a component has not.
        is_ours = info is not None and self._xmpp.is_component
        if xml.get("type") == "error":
            self._engine.bounced(sender, xml.get("id", ""))
            return is_ours
        self._engine.heard(sender)
        if qos is None or info is None:
            return False
        # What is published without an id gets one that it has again when the message is
        # handed over again, and that no other message has: not even one with the same
        # msgId, if its sender counts from 1 (see qos.core.message.model.Incoming.identity).
        name = hashlib.sha256(info.identity.encode()).hexdigest()
        ids = (f"{name[:32]}{place or ''}" for place in itertools.count())
        done: asyncio.Future[None] = self._xmpp.loop.create_future()
        try:
            publish = parse_publish_message(xml, new_id=ids.__next__)
            if publish is None and not is_ours:
                return False
            if publish is None:
                text = "the message has no items to publish (XEP-0060 §7.1) in it"
                raise Refusal(text, condition="bad-request", type="modify")
            qos.take_until(message, done)
            self._publish(xml, sender, publish, done)
        except Refusal as refusal:
            qos.take_until(message, done)
            self._refused(xml, sender, refusal, done)
        return True

    def _qos(self) -> XEP_QOS | None:
        """The plugin of the stream; None: the application has closed it."""
        try:
            return XEP_QOS.of(self._xmpp)
        except LookupError:
            return None

    def _publish(
        self,
        xml: ET.Element,
        sender: str,
        publish: Publish,
        done: asyncio.Future[None],
    ) -> None:
        """Publish what came in a message, which has no other answer than its end."""

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            if isinstance(result, Unwritten):
                again = (xml, sender, publish, done)
                self._xmpp.loop.call_later(_AGAIN_S, self._publish, *again)
                return
            if isinstance(result, Refusal):
                self._refused(xml, sender, result, done)
            elif not done.done():
                done.set_result(None)

        self._engine.request(publish, sender, answer)

    def _refused(
        self, xml: ET.Element, sender: str, refusal: Refusal, done: asyncio.Future[None]
    ) -> None:
        """Reject the message: that is its outcome for a publisher of ours.

        For any other it is taken, and the error message is all that its publisher gets.
        """
        self._send_refusal(xml, sender, refusal)
        if not done.done():
            done.set_exception(refusal)

    def _send_refusal(self, xml: ET.Element, to: str, refusal: Refusal) -> None:
        """RFC 6120 §8.3: a message is answered by a message of type error."""
        head = (
            f"<message type='error' id={attribute(xml.get('id', '')[:_ID_CHARS_MAX])}"
        )
        sender = f" from={attribute(self._sender)}" if self._sender else ""
        error = render_error(refusal, by=str(self._own or ""))
        self._send(f"{head} to={attribute(to)}{sender}>{error}</message>")

    def _probe_answered(self, xml: ET.Element, sender: str) -> bool:
        iq_id = xml.get("id", "")
        if self._probes.get(iq_id) != sender:
            return False
        del self._probes[iq_id]
        conditions = {
            child.tag.rpartition("}")[2]
            for error in xml
            for child in error
            if child.tag.startswith(f"{{{STANZAS}}}")
        }
        if xml.get("type") == "result" or conditions & _IS_THERE:
            self._engine.heard(sender)
        else:
            self._engine.absent(sender)
        return True

    # -- what goes out (see qos.engine.queue_engine.QueuePort) --------------------

    @property
    def _sender(self) -> str:
        """A component has to say who it is, for a client it is known."""
        return str(self._own or "") if self._xmpp.is_component else ""

    def _refusal(self, xml: ET.Element, refusal: Refusal) -> str:
        return render_refusal(
            xml, refusal, sender=self._sender, by=str(self._own or "")
        )

    def _send(self, text: str) -> None:
        if self._own is not None:
            self._wire.send(text)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        sent = []
        for some in events.split_items(items):
            event_id = self.new_id()
            now = self._engine.now()
            text = events.render_items(
                to, some, event_id=event_id, now=now, sender=self._sender
            )
            if acknowledged:
                self._send_acknowledged(text, to, event_id)
            else:
                self._send(text)
            sent.append((event_id, some))
        return sent

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        to, sender, event_id = notification.to, self._sender, self.new_id()
        match notification:
            case NotifyRetract() | NotifyUnlock():
                render = (
                    events.render_retract
                    if isinstance(notification, NotifyRetract)
                    else events.render_unlock
                )
                node = notification.node
                for some in events.split_ids(notification.item_ids):
                    text = render(to, node, some, event_id=event_id, sender=sender)
                    self._send(text)
            case NotifyNode(node=node, what=what):
                self._send(
                    events.render_node(to, node, what, event_id=event_id, sender=sender)
                )
            case NotifySubscription(node=node, jid=jid, subid=subid):
                self._send(
                    events.render_subscription(
                        to, node, jid, subid, event_id=event_id, sender=sender
                    )
                )

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        iq_id = self.new_id()
        self._probes[iq_id] = jid
        ping = f"<ping xmlns='{_PING}'/>"
        self._send(render_iq("get", iq_id, ping, to=jid, sender=self._sender))

    def new_id(self) -> str:
        """See QueuePort."""
        return new_id()

    # -- acknowledged events -----------------------------------------------

    def _send_acknowledged(self, text: str, to: str, event_id: str) -> None:
        """Send an event at level acknowledged, and again until there is an answer.

        Not by the outbox of xep_qos: that would repeat it when its locks have ended,
        and after a restart, when the engine sends what is still locked by itself.
        """
        content = text.partition(">")[2]
        acknowledged = (
            f"<acknowledged xmlns='{NAMESPACES[0]}'>"
            f"<message xmlns='{CLIENT}' id={attribute(event_id)}>{content}"
            "</acknowledged>"
        )
        iq = render_iq("set", event_id, acknowledged, to=to, sender=self._sender)
        self._unanswered[event_id] = to
        self._send(iq)
        # No jitter: the delay is the time that the subscriber has for the answer.
        retry = Retry(_REPEAT, jitter=lambda: 1.0)
        self._repeat_later(iq, event_id, retry)

    def _repeat_later(self, iq: str, event_id: str, retry: Retry) -> None:
        self._xmpp.loop.call_later(retry.failed(), self._repeat, iq, event_id, retry)

    def _repeat(self, iq: str, event_id: str, retry: Retry) -> None:
        if event_id not in self._unanswered:
            return
        if not self._engine.is_live(event_id):
            del self._unanswered[event_id]
            return
        self._send(iq)
        self._repeat_later(iq, event_id, retry)

    def _event_answered(self, xml: ET.Element, sender: str) -> bool:
        event_id = xml.get("id", "")
        if self._unanswered.get(event_id) != sender:
            return False
        del self._unanswered[event_id]
        if xml.get("type") == "error":
            self._engine.bounced(sender, event_id)
        else:
            self._engine.heard(sender)
        return True


#: Not a union: to make one takes longer than to look.
_OF_A_JID = (Subscribe, Unsubscribe, GetOptions, SetOptions)


def _normal(request: Request) -> Request:
    """The request with its JIDs as a server writes them: they are compared.

    Raises:
        Refusal: one of them is none, or two of them are the same account.
    """
    if isinstance(request, SetAffiliations):
        affiliations: dict[str, Affiliation] = {}
        for jid, what in request.affiliations.items():
            account = bare(_normal_jid(jid))
            if account in affiliations:
                raise bad_request(f"two affiliations for {account}")
            affiliations[account] = what
        return replace(request, affiliations=affiliations)
    if isinstance(request, _OF_A_JID):
        return replace(request, jid=_normal_jid(request.jid))
    return request


def _normal_jid(jid: str) -> str:
    try:
        return normal_jid(jid)
    except ValueError as error:
        raise Refusal(str(error), condition="jid-malformed", type="modify") from error


def _is_of_qos(xml: ET.Element) -> bool:
    """Whether an iq is for xep_qos: one request, or several in a batch."""
    return request_element(xml) is not None or batch_in(xml) is not None


def _from(jid: str) -> str:
    """The JID that a stanza is from, without a dot at the end of its domain.

    The rest a server has in its normal form; RFC 7622 §3.2 has us strip the dot.
    """
    account, slash, resource = jid.partition("/")
    return f"{account[:-1]}{slash}{resource}" if account.endswith(".") else jid


def _creators(
    creators: str | Collection[str], xmpp: ClientXMPP | ComponentXMPP
) -> frozenset[str] | None:
    """Who may create nodes, as the core has it (`qos.core.queue.service.may_create`).

    Raises:
        InvalidArgument: that is neither a rule nor a list of accounts.
    """
    named: Collection[object]
    if creators == "all":
        return None
    if creators == "domain":
        domain = domain_of(str(xmpp.requested_jid))
        if xmpp.is_component:
            domain = domain.partition(".")[2]
        # A component without a domain above its own is for nobody.
        named = [f"@{domain}"] if domain else []
    elif isinstance(creators, str):
        named = creators.split(",")
    else:
        named = arguments.collection("creators", creators, "accounts or @domains")
    try:
        return frozenset(
            account_or_domain(arguments.text("creators", each)) for each in named
        )
    except ValueError as error:
        wanted = "'domain', 'all', or accounts and @domains"
        raise InvalidArgument("creators", creators, wanted, why=str(error)) from error
