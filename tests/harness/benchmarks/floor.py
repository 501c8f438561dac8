"""The floor: the same requests and answers on the same server, and nothing else.

Nothing is stored, repeated, checked or handed over. `IqSender` uses `Iq.send()` as
slixmpp's documentation shows it; `RawSender` leaves out everything that can be left
out. The plugin renders the stanzas, so that the server does the same work.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from benchmarks.pace import Window
from benchmarks.sample import Work
from benchmarks.ways import body
from qos.bench.pace import Times, keep_in_flight
from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Level, Outgoing, Route
from qos.core.message.receiver_table import Request
from qos.core.quota import CREDIT_MAX
from qos.xml_text import CLIENT
from xep_qos.content import message_with_body
from xep_qos.stanza import render_answer, render_request

__all__ = ["IqReceiver", "IqSender", "RawReceiver", "RawSender"]

#: Stands for an id in a text that is rendered only once.
_ID = "THE-ID"

_QOS = NAMESPACES[0]

#: As long as the ids of a store.
_STORE_ID = "0" * 32
_HOLD = f"{_STORE_ID}.{'0' * 32}"

#: An answer that does not come in this time, in seconds, is lost, which must not
#: happen.
_ANSWER_S_MAX = 30.0

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class _Wrong(Exception):
    """Something that is no answer has come."""


# -- the stanzas ----------------------------------------------------------


def requests(*, steps: int, to: str, payload_bytes: int) -> tuple[str, ...]:
    """The iqs for one message, with `THE-ID` for all ids."""
    payload = message_with_body(body(payload_bytes))
    record = Outgoing(
        msg_id=_ID,
        seq=0,
        to=to,
        level=Level.ASSURED if steps == 2 else Level.ACKNOWLEDGED,
        payload=payload,
        size=len(payload),
        created_at=0.0,
        offer_id=_ID,
        deliver_id=_ID,
        hold=_HOLD,
    )
    route = Route(to, _QOS)
    both = (Transmit("offer", record, route), Transmit("deliver", record, route))
    return tuple(render_request(each, store_id=_STORE_ID) for each in both[:steps])


def answers(to: str) -> dict[str, str]:
    """The result to each kind of request, by its tag, with `THE-ID` for all ids."""
    kinds: dict[str, Answer] = {
        "acknowledged": Answer("result"),
        "assured": Answer("received", _HOLD, credit=CREDIT_MAX),
        "deliver": Answer("result", _HOLD),
    }
    return {
        f"{{{_QOS}}}{kind}": render_answer(
            # The kind does not matter for the rendered text.
            Request(
                kind="deliver",
                iq_id=_ID,
                source=to,
                to="",
                namespace=_QOS,
                msg_id=_ID,
            ),
            answer,
        )
        for kind, answer in kinds.items()
    }


def _new_id(number: int) -> str:
    """An id as long as those of the plugin."""
    return f"{number:032x}"


# -- Iq.send() -------------------------------------------------------------


class IqSender:
    """One `Iq.send()` for each step, one after the other."""

    def __init__(self, client: ClientXMPP, peer: str, *, steps: int) -> None:
        """Prepare.

        Args:
            client: the stream.
            peer: the full JID of the receiver.
            steps: the number of requests for a message: 1 or 2.
        """
        _let_marks_pass(client)
        self._client = client
        self._peer = peer
        self._steps = steps
        self._ids = itertools.count()
        self._elements: list[ET.Element] = []

    async def send(self, work: Work, *, pause_s: float) -> Times:
        """See benchmarks.ways.Sender."""
        texts = requests(
            steps=self._steps, to=self._peer, payload_bytes=work.payload_bytes
        )
        self._elements = [each for each in map(_content, texts) if each is not None]
        return await keep_in_flight(
            self._one, window=work.window, seconds=work.seconds, pause_s=pause_s
        )

    def close(self) -> None:
        """See benchmarks.ways.Sender."""

    async def _one(self, _number: int) -> None:
        for element in self._elements:
            an_id = _new_id(next(self._ids))
            own = ET.Element(element.tag, element.attrib)
            if "msgId" in element.attrib:
                own.set("msgId", an_id)
            own.extend(element)
            iq = self._client.make_iq_set(ito=self._peer)
            iq["id"] = an_id
            iq.append(own)
            await iq.send(timeout=_ANSWER_S_MAX)  # type: ignore[no-untyped-call]


class IqReceiver:
    """A handler for each kind of request, which answers by `Iq.reply()`."""

    taken: int | None = None

    def __init__(self, client: ClientXMPP, peer: str) -> None:
        _let_marks_pass(client)
        self._contents = {}
        for tag, text in answers(peer).items():
            self._contents[tag] = _content(text)
            path = MatchXPath(f"{{{CLIENT}}}iq/{tag}")
            client.register_handler(Callback(tag, path, self._answer))

    def _answer(self, iq: StanzaBase) -> None:
        request = iq.xml[0]
        reply: StanzaBase = iq.reply()
        content = self._contents[request.tag]
        if content is not None:
            own = ET.Element(content.tag, content.attrib)
            if "msgId" in content.attrib:
                own.set("msgId", request.get("msgId", ""))
            own.text = content.text
            reply.append(own)
        reply.send()


def _let_marks_pass(client: ClientXMPP) -> None:
    """Keep slixmpp from leaving out attributes of a namespace that it does not know."""
    client.namespace_map[MARKS_NAMESPACE] = "q"


def _content(text: str) -> ET.Element | None:
    """The element in an iq, if there is one."""
    iq = ET.fromstring(f"<iq xmlns='{CLIENT}' {text[3:]}")  # noqa: S314 - our own
    content = next(iter(iq), None)
    if content is not None and content.tag.startswith(f"{{{MARKS_NAMESPACE}}}"):
        # With a prefix for its attributes, slixmpp writes an element as <q:q:hold>.
        # Here only the length matters.
        content.tag = content.tag.replace(MARKS_NAMESPACE, MARKS_NAMESPACE[::-1])
    return content


# -- strings ---------------------------------------------------------------


class RawSender:
    """Writes strings, and matches answers in a filter, with a dict."""

    def __init__(self, client: ClientXMPP, peer: str, *, steps: int) -> None:
        """Prepare; see IqSender."""
        self._client = client
        self._peer = peer
        self._steps = steps
        self._ids = itertools.count()
        self._texts: list[list[str]] = []
        #: By id: the number of a message, and how many of its requests are answered.
        self._waiting: dict[str, tuple[int, int]] = {}
        self._window: Window
        client.add_filter("in", self._filter)

    async def send(self, work: Work, *, pause_s: float) -> Times:
        """See benchmarks.ways.Sender."""
        texts = requests(
            steps=self._steps, to=self._peer, payload_bytes=work.payload_bytes
        )
        self._texts = [text.split(_ID) for text in texts]
        self._window = Window(
            self._give, window=work.window, seconds=work.seconds, pause_s=pause_s
        )
        return await self._window.run()

    def close(self) -> None:
        """See benchmarks.ways.Sender."""
        self._client.del_filter("in", self._filter)

    def _give(self, number: int) -> None:
        an_id = _new_id(next(self._ids))
        self._waiting[an_id] = (number, 1)
        self._client.send_raw(an_id.join(self._texts[0]))

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        _quicken(self._client)
        an_id = stanza.xml.get("id", "")
        waiting = self._waiting.pop(an_id, None)
        if waiting is None:
            return stanza
        number, answered = waiting
        if stanza.xml.get("type") != "result":
            self._window.failed(_Wrong(f"{an_id} was answered by an error"))
        elif answered < self._steps:
            # The previous step has been answered, so its id can be used again.
            self._waiting[an_id] = (number, answered + 1)
            self._client.send_raw(an_id.join(self._texts[answered]))
        else:
            self._window.ended(number)
        return None


class RawReceiver:
    """Answers in a filter, by strings."""

    taken: int | None = None

    def __init__(self, client: ClientXMPP, peer: str) -> None:
        self._client = client
        self._texts: dict[str, Sequence[str]] = {
            tag: text.split(_ID) for tag, text in answers(peer).items()
        }
        client.add_filter("in", self._filter)

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        _quicken(self._client)
        for child in stanza.xml:
            text = self._texts.get(child.tag)
            if text is not None:
                self._client.send_raw(stanza.xml.get("id", "").join(text))
                return None
        return stanza


def _quicken(client: ClientXMPP) -> None:
    """Do as the plugin.

    Otherwise a server with Nagle's algorithm would decide the speed.
    """
    if client.transport is not None and _QUICKACK is not None:
        connection = client.transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
