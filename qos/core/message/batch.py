"""Batches: which requests share an iq, when it is sent, and how it is answered.

This is about the transport only. The meaning of requests and answers does not matter
here, nor is any XML known: an element and an answer are texts, ready to be sent. The
rules for the peer are in `plugins/xep_qos/BATCH.md`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import attrgetter

from qos.core.message.effects import Transmit
from qos.core.message.sender_table import Reply
from qos.core.record import record
from qos.core.strings import utf8_size

__all__ = [
    "ANSWER_WITHIN_S",
    "BATCH_NAMESPACE",
    "BYTES_MAX",
    "ELEMENTS_MAX",
    "PATIENCE_S",
    "Answers",
    "BatchQueue",
    "Element",
    "for_each",
]

#: The feature, and the namespace of its elements.
BATCH_NAMESPACE = "xmpp-qos:batch:0"

#: The most requests in one batch; a larger batch is refused. At this size the fixed
#: cost of a stanza is well shared, and a longer one would only block the stream.
ELEMENTS_MAX = 256

#: The most bytes of a batch, and of the answer to one: a quarter of what the strictest
#: common server accepts (256 KiB).
BYTES_MAX = 64 * 1024

#: The number of unanswered stanzas to one peer while more requests gather: the next
#: stanza is in flight while the peer works on one.
_UNDER_WAY_MAX = 2

#: Seconds for which an unanswered stanza keeps others waiting. A peer that needs longer
#: is not limited by the number of stanzas, so waiting would gain nothing.
PATIENCE_S = 0.25

#: Seconds for which an answer waits for the others of its batch. The slowest common
#: disk has written by then. A slow application has not answered by then, and must not
#: delay the others.
ANSWER_WITHIN_S = 0.1

#: The number of stanzas to one peer whose answer is still recognised. Nothing is lost
#: with older ones: unanswered requests are repeated.
_UNANSWERED_MAX = 64


class Element:
    """A request to be sent, in a batch or alone.

    Its text is made when it is first needed: a request that is sent alone needs none.

    Attributes:
        iq_id: the id of the iq that it would be alone; also its id in a batch.
        transmit: its source.
    """

    __slots__ = ("_render", "_size", "_text", "iq_id", "transmit")

    def __init__(
        self, iq_id: str, transmit: Transmit, render: Callable[[Transmit], str]
    ) -> None:
        """Begin without a rendered text."""
        self.iq_id = iq_id
        self.transmit = transmit
        self._render = render
        self._text = ""
        self._size = 0

    @property
    def text(self) -> str:
        """The request as it is written in a batch."""
        if not self._text:
            self._text = self._render(self.transmit)
        return self._text

    @property
    def size(self) -> int:
        """The bytes of its text in UTF-8."""
        if not self._size:
            text = self.text
            self._size = utf8_size(text)
        return self._size


_iq_id = attrgetter("iq_id")


@record(frozen=True, slots=True)
class _Sent:
    """A stanza in flight: the ids of its requests, and the time it was sent."""

    ids: tuple[str, ...]
    at: float


class BatchQueue:
    """The requests to one peer, divided into loads: each load is one stanza.

    Gathered requests are sent when the peer has less than two of our stanzas to answer,
    or when they fill a stanza. So nothing waits on an idle link, and on a busy link the
    answers set the pace.
    """

    def __init__(
        self, *, count_max: int, bytes_max: int = BYTES_MAX, patience_s: float
    ) -> None:
        """Begin empty.

        Args:
            count_max: the most requests in a load.
            bytes_max: the most bytes in a load of more than one request.
            patience_s: how long an unanswered stanza keeps others waiting.
        """
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._patience_s = patience_s
        self._waiting: deque[Element] = deque()
        # The number of waiting requests that have been measured, and their bytes.
        self._measured = self._bytes = 0
        # By the id of the iq, the oldest first.
        self._sent: dict[str, _Sent] = {}

    @property
    def idle(self) -> bool:
        """Whether no request waits to be sent or to be answered."""
        return not self._waiting and not self._sent

    def drop(self) -> list[str]:
        """Drop the requests that wait to be sent; returns their ids."""
        dropped = [element.iq_id for element in self._waiting]
        self._waiting.clear()
        self._measured = self._bytes = 0
        return dropped

    def add(self, element: Element) -> None:
        """Add a request, to be sent after the earlier ones."""
        self._waiting.append(element)

    def take(self, now: float) -> tuple[Element, ...]:
        """The next load, if one may be sent now; otherwise nothing."""
        if not self._waiting or (now < self._held_until() and not self._full()):
            return ()
        load = [self._pop()]
        # A request that is sent alone is not measured.
        size = load[0].size if self._waiting else 0
        while self._waiting and len(load) < self._count_max:
            size += self._waiting[0].size
            if size > self._bytes_max:
                break
            load.append(self._pop())
        return tuple(load)

    def _full(self) -> bool:
        """Whether the gathered requests fill a stanza."""
        for element in islice(self._waiting, self._measured, None):
            self._bytes += element.size
        self._measured = len(self._waiting)
        return self._measured >= self._count_max or self._bytes > self._bytes_max

    def _pop(self) -> Element:
        element = self._waiting.popleft()
        if self._measured:
            self._measured -= 1
            self._bytes -= element.size
        return element

    def _held_until(self) -> float:
        latest = reversed(self._sent.values())
        last = next(islice(latest, _UNDER_WAY_MAX - 1, None), None)
        return -math.inf if last is None else last.at + self._patience_s

    def sent(self, iq_id: str, load: Iterable[Element], now: float) -> str | None:
        """Note that a load was sent in the iq with this id.

        Returns:
            The id of an older iq whose answer is not recognised any more, if there is
            one.
        """
        ids = tuple(map(_iq_id, load))
        self._sent[iq_id] = _Sent(ids, now)
        if len(self._sent) <= _UNANSWERED_MAX:
            return None
        forgotten = next(iter(self._sent))
        del self._sent[forgotten]
        return forgotten

    def answered(self, iq_id: str) -> tuple[str, ...]:
        """The ids of the requests in an iq that was answered.

        It is no longer in flight.
        """
        batch = self._sent.pop(iq_id, None)
        return () if batch is None else batch.ids

    def next_at(self) -> float:
        """When waiting requests may be sent without an answer; inf: none wait."""
        return self._held_until() if self._waiting else math.inf


def for_each(reply: Reply, ids: Iterable[str]) -> Iterator[Reply]:
    """The meaning of an error for a whole batch, for each request in it.

    No request ends by it. If the peer is absent or has no room, that is true for each.
    Any other error may concern the batch, so each request is repeated alone, in time.
    """
    error = reply.error
    if error == "bad-request":
        error = "undefined-condition"
    for iq_id in ids:
        yield replace(reply, iq_id=iq_id, error=error, error_type="wait")


class Answers:
    """The answers to one batch, until they are sent together.

    An answer that comes too late for that, or would make the stanza too long, is sent
    alone.
    """

    def __init__(self, count: int, *, bytes_max: int = BYTES_MAX) -> None:
        """Begin without answers; this many are expected."""
        #: The number of answers that have not come yet.
        self.missing = count
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: list[str] = []
        self._waited = False
        self._gone = False

    def add(self, answer: str) -> bool:
        """Add an answer; False: it must be sent alone."""
        self.missing -= 1
        size = utf8_size(answer)
        if self._gone or self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        self._answers.append(answer)
        return True

    def waited(self) -> None:
        """Send the present answers now, or else the first that comes."""
        self._waited = True

    def take(self) -> tuple[str, ...]:
        """The answers, once, if they are to be sent now; otherwise none."""
        ready = self._waited or not self.missing
        if self._gone or not ready or not self._answers:
            return ()
        self._gone = True
        return tuple(self._answers)
