"""Several requests in one iq: which go together, and when; and their answers.

Only the carriage. What is asked, what it is answered, and what either means for a
message does not matter here; nor is XML known: an element and an answer are texts, ready
to be sent. The rules for the peer are in `plugins/xep_qos/BATCH.md`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from qos.core.message.effects import Transmit
from qos.core.message.sender import Reply

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

#: Requests in one batch, at most; a batch of more is refused. What a stanza costs
#: beside its content is shared by then, and a longer one only holds up the stream.
ELEMENTS_MAX = 256

#: Bytes of a batch and of an answer to one, likewise: a quarter of what the
#: strictest common server takes (256 KiB).
BYTES_MAX = 64 * 1024

#: Stanzas to one peer that may be unanswered while more gathers: while the peer
#: works on one, the next is on its way.
_UNDER_WAY_MAX = 2

#: How long an unanswered stanza keeps others waiting. A peer that needs longer is
#: not limited by the number of stanzas, so there is nothing to be gained.
PATIENCE_S = 0.25

#: How long an answer waits for the others of its batch. The slowest common disk
#: has written by then; an application that takes its time has not, and must not
#: hold up the others.
ANSWER_WITHIN_S = 0.1

#: Stanzas to one peer whose answer is still recognised. Nothing is lost with the
#: rest: what is not answered is asked again.
_UNANSWERED_MAX = 64


@dataclass(frozen=True, slots=True)
class Element:
    """A request to be sent, with others or alone.

    Attributes:
        iq_id: of the iq that it would be alone; its id in a batch.
        text: as it stands in a batch.
        transmit: what it was made of.
    """

    iq_id: str
    text: str
    transmit: Transmit

    @property
    def size(self) -> int:
        """Bytes of UTF-8 in a batch."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())


@dataclass(frozen=True, slots=True)
class _Sent:
    """A stanza under way: the ids of the requests in it, and since when."""

    ids: tuple[str, ...]
    at: float


class BatchQueue:
    """The requests to one peer, cut into loads: each load is one stanza.

    What has gathered goes when the peer has less than two of our stanzas to answer,
    or when it is as much as a stanza takes. So on an idle link nothing waits, and on a
    busy one the answers are the clock.
    """

    def __init__(
        self, *, count_max: int, bytes_max: int = BYTES_MAX, patience_s: float
    ) -> None:
        """Nothing has gathered.

        Args:
            count_max: requests in a load.
            bytes_max: bytes in a load of more than one.
            patience_s: how long an unanswered stanza keeps others waiting.
        """
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._patience_s = patience_s
        self._waiting: deque[tuple[Element, int]] = deque()
        self._bytes = 0
        # By the id of the iq, the oldest first.
        self._sent: dict[str, _Sent] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing waits, to be sent or to be answered."""
        return not self._waiting and not self._sent

    def add(self, element: Element) -> None:
        """A request is to be sent, after those before it."""
        size = element.size
        self._waiting.append((element, size))
        self._bytes += size

    def take(self, now: float) -> tuple[Element, ...]:
        """The next load, if one may be sent now; else nothing."""
        full = len(self._waiting) >= self._count_max or self._bytes > self._bytes_max
        if not self._waiting or (not full and now < self._held_until()):
            return ()
        load = [self._pop()]
        size = load[0].size
        while self._waiting and len(load) < self._count_max:
            size += self._waiting[0][1]
            if size > self._bytes_max:
                break
            load.append(self._pop())
        return tuple(load)

    def _pop(self) -> Element:
        element, size = self._waiting.popleft()
        self._bytes -= size
        return element

    def _held_until(self) -> float:
        latest = reversed(self._sent.values())
        last = next(islice(latest, _UNDER_WAY_MAX - 1, None), None)
        return -math.inf if last is None else last.at + self._patience_s

    def sent(self, iq_id: str, load: Iterable[Element], now: float) -> str | None:
        """A load has been sent in the iq of this id.

        Returns:
            The id of one whose answer is not recognised any more, if there is one.
        """
        ids = tuple(element.iq_id for element in load)
        self._sent[iq_id] = _Sent(ids, now)
        if len(self._sent) <= _UNANSWERED_MAX:
            return None
        forgotten = next(iter(self._sent))
        del self._sent[forgotten]
        return forgotten

    def answered(self, iq_id: str) -> tuple[str, ...]:
        """The ids of the requests in an iq, which is under way no more."""
        sent = self._sent.pop(iq_id, None)
        return () if sent is None else sent.ids

    def next_at(self) -> float:
        """When what waits may go although nothing was answered; inf: nothing waits."""
        return self._held_until() if self._waiting else math.inf


def for_each(reply: Reply, ids: Iterable[str]) -> Iterator[Reply]:
    """An error for a whole batch, as what it means for each request in it.

    None of them ends by it. That the peer is away, or has no room, holds for each;
    anything else may be about the batch, and each is asked again alone, in time.
    """
    error = reply.error
    if error == "bad-request":
        error = "undefined-condition"
    for iq_id in ids:
        yield replace(reply, iq_id=iq_id, error=error, error_type="wait")


class Answers:
    """The answers to one batch, until they go out together.

    An answer that comes too late for that, or would make the stanza too long, goes out
    alone.
    """

    def __init__(self, count: int, *, bytes_max: int = BYTES_MAX) -> None:
        """None yet, of so many."""
        #: How many have not come yet.
        self.missing = count
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: list[str] = []
        self._waited = False
        self._gone = False

    def add(self, answer: str) -> bool:
        """Whether this one goes with the others; if not, it is to be sent alone."""
        self.missing -= 1
        size = len(answer) if answer.isascii() else len(answer.encode())
        if self._gone or self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        self._answers.append(answer)
        return True

    def waited(self) -> None:
        """What there is goes out now, or else the first that comes."""
        self._waited = True

    def take(self) -> tuple[str, ...]:
        """The answers, once, if they are to go out now; else nothing."""
        ready = self._waited or not self.missing
        if self._gone or not ready or not self._answers:
            return ()
        self._gone = True
        return tuple(self._answers)
