"""Batches at one end: sends requests together, and answers batches that came.

This module only chooses how requests and answers travel: each one is treated as if it
were alone. The rules are in BATCH.md, and as code in `qos.core.message.batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import field
from functools import partial
from operator import attrgetter
from typing import Protocol
from xml.etree import ElementTree as ET

from qos.core.message.batch import (
    ANSWER_WITHIN_S,
    BATCH_NAMESPACE,
    BYTES_MAX,
    PATIENCE_S,
    Answers,
    BatchQueue,
    Element,
    for_each,
)
from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import MARKS_NAMESPACE
from qos.core.message.receiver_table import Request
from qos.core.message.sender_table import Reply
from qos.core.message.trust import Trusted
from qos.core.record import record
from qos.core.stanza_sizes import LEAST_BYTES
from qos.core.strings import own_servers
from qos.engine import LoopClock
from qos.engine.clock import Handle, Timers
from qos.errors import RemoteProtocolError
from xep_qos import batch_stanza, stanza
from xep_qos.settings import Settings

__all__ = ["BatchReceiver", "BatchSender", "BatchedRequest", "features"]

_Peer = tuple[str, str]

_iq_id = attrgetter("iq_id")

#: The features of a peer that accepts our batches.
_BATCHES = frozenset({BATCH_NAMESPACE, MARKS_NAMESPACE})


def features(batch_max: object) -> tuple[str, ...]:
    """The features that this option makes us advertise."""
    return () if batch_max == 1 else (BATCH_NAMESPACE,)


class Sends(Protocol):
    """Writes a stanza; see qos.stream.wire.Wire.send."""

    def __call__(
        self, text: str, *, at_once: bool = False, iq_ids: Iterable[str] = ()
    ) -> object:
        """Write it, if there is a session."""


class BatchSender:
    """Gathers the requests to each peer that accepts batches, and sends them."""

    def __init__(
        self,
        settings: Settings,
        clock: LoopClock,
        *,
        supports: Callable[[str, Set[str]], bool],
        render: Callable[[Transmit, str], str],
        store_id: str,
        send: Sends,
        soon: Callable[[Callable[[], None]], object],
        new_id: Callable[[], str],
        batch_max: Callable[[], int | None],
    ) -> None:
        """Begin without batches in flight.

        Args:
            settings: the options.
            clock: the time.
            supports: whether a JID is known to have these features.
            render: gives the iq of a request, with this from where it needs one.
            store_id: the mark of our store.
            send: writes a stanza.
            soon: calls a function when all results of one read or one commit have been
                handled.
            new_id: makes an id that was never used.
            batch_max: the most bytes that the server is known to take together; None:
                it is not known.
        """
        self._count_max = settings.batch_max
        self._most = min(BYTES_MAX, settings.stanza_bytes_max)
        self._bytes_max = self._most
        self._batch_max = batch_max
        self._patience_s = min(PATIENCE_S, settings.retry_first_s)
        self._clock = clock
        self._supports = supports
        self._render = render
        self._store_id = store_id
        self._send = send
        self._soon = soon
        self._new_id = new_id
        self._queues: dict[_Peer, BatchQueue] = {}
        # The stanzas in flight, by their ids.
        self._peers: dict[str, _Peer] = {}
        # The peers to which something has to be sent in this turn of the loop.
        self._ready: dict[_Peer, None] = {}
        self._timers: Timers[_Peer] = Timers(clock, self._flush_one)

    def take(self, transmit: Transmit, sender: str) -> bool:
        """Whether this request is sent from here, now or together with others.

        A repeated request is not: a problem that keeps a batch from arriving then does
        not keep a message from its peer for long.

        Args:
            transmit: the request.
            sender: the from of its iq, if it needs one.
        """
        record, route = transmit.record, transmit.route
        deliver = transmit.step == "deliver"
        if (record.delivers if deliver else record.attempts) > 1:
            return False
        if self._count_max == 1 or not self._supports(route.jid, _BATCHES):
            return False
        if record.size > LEAST_BYTES and not deliver:
            return False  # it may be too large for the server, and the others are not
        iq_id = record.deliver_id if deliver else record.offer_id
        peer = (route.jid, sender)
        element = Element(iq_id, transmit, batch_stanza.render_element)
        self._queue_of(peer).add(element)
        self._flush_soon(peer)
        return True

    def _queue_of(self, peer: _Peer) -> BatchQueue:
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = BatchQueue(
                count_max=self._count_max,
                bytes_max=self._bytes_max,
                patience_s=self._patience_s,
            )
        return queue

    def answered(self, iq_id: str, source: str) -> None:
        """Note the answer to a request that may have been sent alone from here."""
        peer = self._peers.get(iq_id)
        if peer is not None and peer[0] == source:
            self._end(iq_id, peer)

    def awaits(self, iq_id: str) -> bool:
        """Whether this is the id of a batch in flight, or of a request sent here."""
        return iq_id in self._peers

    def replies(self, xml: ET.Element, own: str) -> list[Reply]:
        """The answers in the answer to a batch in flight.

        Only the peer may send it; our own server may send an error.
        """
        reply = stanza.parse_reply(xml)
        peer = self._peers[reply.iq_id]
        if reply.source != peer[0] and (
            reply.error is None or reply.source not in own_servers(own)
        ):
            return []
        ids = self._end(reply.iq_id, peer)
        if reply.error is not None:
            return list(for_each(reply, ids))
        awaited_ids = set(ids)
        answers = batch_stanza.parse_answers(xml)
        return [answer for answer in answers if answer.iq_id in awaited_ids]

    def _end(self, iq_id: str, peer: _Peer) -> tuple[str, ...]:
        del self._peers[iq_id]
        queue = self._queues[peer]
        ids = queue.answered(iq_id)
        if queue.idle:
            del self._queues[peer]
        else:
            self._flush_soon(peer)
        return ids

    def session_lost(self) -> list[str]:
        """Drop what waits; returns the ids of these requests.

        The answers to what was sent still come if the session is resumed.
        """
        lost = [iq_id for queue in self._queues.values() for iq_id in queue.drop()]
        for peer in self._queues:
            self._timers.clear(peer)
        self._ready.clear()
        return lost

    def session_started(self) -> None:
        """Forget everything: all outstanding requests are sent again."""
        self.session_lost()
        self._queues.clear()
        self._peers.clear()
        most = self._batch_max()
        self._bytes_max = self._most if most is None else min(self._most, most)

    def stop(self) -> None:
        """Send nothing more, for good."""
        self.session_started()
        self._timers.stop()

    def _flush_soon(self, peer: _Peer) -> None:
        if not self._ready:
            self._soon(self._flush)
        self._ready[peer] = None

    def _flush(self) -> None:
        ready, self._ready = self._ready, {}
        for peer in ready:
            self._flush_one(peer)

    def _flush_one(self, peer: _Peer) -> None:
        queue = self._queues.get(peer)
        if queue is None:
            return
        now = self._clock.now()
        while load := queue.take(now):
            self._send_load(peer, queue, load, now)
        self._timers.set(peer, queue.next_at())

    def _send_load(
        self, peer: _Peer, queue: BatchQueue, load: tuple[Element, ...], now: float
    ) -> None:
        if len(load) == 1:
            iq_id = load[0].iq_id
            text = self._render(load[0].transmit, peer[1])
        else:
            iq_id = self._new_id()
            text = batch_stanza.render_batch(
                iq_id,
                *peer,
                [element.text for element in load],
                store_id=self._store_id,
            )
        forgotten = queue.sent(iq_id, load, now)
        if forgotten is not None:
            self._peers.pop(forgotten, None)
        self._peers[iq_id] = peer
        self._send(text, at_once=len(load) > 1, iq_ids=map(_iq_id, load))


class _ReceivedBatch:
    """A received batch, until its answers have been sent."""

    __slots__ = ("answers", "iq_id", "own", "source", "timer")

    def __init__(self, xml: ET.Element, count: int) -> None:
        self.iq_id = xml.get("id", "")
        self.source = xml.get("from", "")
        self.own = xml.get("to", "")
        self.answers = Answers(count)
        self.timer: Handle | None = None


@record(frozen=True, slots=True, kw_only=True)
class BatchedRequest(Request):
    """A request that came in a batch."""

    asked: _ReceivedBatch = field(compare=False, repr=False)


class BatchReceiver:
    """Takes batches apart, and puts the answers together."""

    def __init__(
        self,
        clock: LoopClock,
        *,
        decision: Callable[[str, str, str], Trusted | None],
        consider: Callable[[Request], None],
        decided: Callable[[Request, Trusted], None],
        malformed: Callable[[ET.Element, RemoteProtocolError], str],
        send: Callable[..., object],
        sender: Callable[[str], str],
        keep: stanza.Keep | None,
    ) -> None:
        """Prepare.

        Args:
            clock: the time.
            decision: see Guard.decision.
            consider: takes each request that is not decided yet.
            decided: takes each of the others, and its decision.
            malformed: notes an iq that cannot be read, and returns the answer to it.
            send: writes a stanza, if there is a session.
            sender: the from of an answer to a stanza that was sent to this JID.
            keep: as for stanza.parse_request.
        """
        self._clock = clock
        self._decision = decision
        self._consider = consider
        self._decided = decided
        self._keep = keep
        self._malformed = malformed
        self._send = send
        self._sender = sender

    def take(self, xml: ET.Element, batch: ET.Element) -> None:
        """Take the requests in an iq of type set."""
        try:
            elements = batch_stanza.parse_batch(xml, batch)
        except RemoteProtocolError as error:
            self._send(self._malformed(xml, error))
            return
        origin = _ReceivedBatch(xml, len(elements))
        make = partial(BatchedRequest, asked=origin)
        requests: list[tuple[BatchedRequest, Trusted | None]] = []
        # All requests are read before the first is answered.
        for iq_id, element in elements:
            decision = self._decision(element.tag, origin.source, origin.own)
            refused = decision is not None and not decision.trusted
            try:
                request = batch_stanza.parse_request(
                    iq_id,
                    element,
                    xml,
                    batch,
                    make,
                    self._keep,
                    without_message=refused,
                )
            except RemoteProtocolError as error:
                self._refuse(origin, iq_id, error)
            else:
                requests.append((request, decision))
        for request, decision in requests:
            if decision is None:
                self._consider(request)
            else:
                self._decided(request, decision)
        self._answer(origin)
        if origin.answers.missing:
            within = self._clock.now() + ANSWER_WITHIN_S
            origin.timer = self._clock.call_at(within, partial(self._waited, origin))

    def _refuse(
        self, origin: _ReceivedBatch, iq_id: str, error: RemoteProtocolError
    ) -> None:
        """Answer a malformed request as the iq that it would be alone."""
        attributes = {"from": origin.source, "to": origin.own, "id": iq_id}
        text = self._malformed(ET.Element("iq", attributes), error)
        refusal = Answer("error", "", error.condition, error.type)
        if not origin.answers.add(batch_stanza.render_answer(iq_id, "", refusal)):
            self._send(text)

    def answer(self, request: BatchedRequest, answer: Answer) -> None:
        """Answer a request, with the others of its batch if they go out together."""
        origin = request.asked
        text = batch_stanza.render_answer(request.iq_id, request.msg_id, answer)
        if not origin.answers.add(text):
            sender = self._sender(request.to)
            self._send(stanza.render_answer(request, answer, sender=sender))
        self._answer(origin)

    def _waited(self, origin: _ReceivedBatch) -> None:
        origin.answers.waited()
        self._answer(origin)

    def _answer(self, origin: _ReceivedBatch) -> None:
        answers = origin.answers.take()
        if not answers:
            return
        if origin.timer is not None:
            origin.timer.cancel()
        sender = self._sender(origin.own)
        iq_id, source = origin.iq_id, origin.source
        text = batch_stanza.render_answers(iq_id, source, sender, answers)
        self._send(text, at_once=len(answers) > 1)
