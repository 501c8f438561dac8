"""How large a stanza a server takes: what it announces (XEP-0478), or what is learned from ends.

A server that gets a stanza over its limit ends the stream (RFC 6120 §13.12), and with it
everything else that was on its way. It says that a policy was violated, but not by which
stanza. It reads in order and up to its limit. So if a stanza is over the limit, then the
largest that was written on this stream is, and nothing smaller than one that went through.

After one such end the largest is a suspect, and with it all that is larger than what has
gone through. After two in a row with a stanza of this size it is known that the server
takes none. What was learned is forgotten after an hour, since a server can be given
another limit.

This module has no clock, and knows no stream. Stanzas that an application sends by
slixmpp itself are not counted here.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

__all__ = ["LEARNED_S", "LEAST_BYTES", "StanzaSizes", "is_for_size"]

#: RFC 6120 §13.12: a server takes at least so many bytes.
LEAST_BYTES: Final = 10_000

#: What was learned from the ends of streams holds for so many seconds.
LEARNED_S: Final = 3600.0

#: Stanzas on their way, each larger than all that were written before it. Of more, the
#: largest are remembered.
_ON_WAY_MAX: Final = 64

#: A stanza that nobody answers has been read after so many seconds.
_READ_S: Final = 300.0

#: The part of what a server takes that a batch of requests may fill; the rest is for what
#: stands around them.
_BATCH: Final = 3 / 4

#: Texts of `policy-violation` that speak of something else.
_OTHER = re.compile(
    r"\b(rate|login|logins|password|authentication|attempts)\b", re.IGNORECASE
)

#: Texts that speak of the size, whatever the condition is.
_SIZE = re.compile(r"\btoo (big|large|long)\b|\bsize\b", re.IGNORECASE)


def is_for_size(condition: str, text: str) -> bool:
    """Whether a stream error may be about the size of a stanza (RFC 6120 §4.9.3.14)."""
    if _SIZE.search(text):
        return True
    return condition == "policy-violation" and not _OTHER.search(text)


class _Sent(NamedTuple):
    """A stanza on its way: the id of its iq, or ''; its bytes; when it was written."""

    iq_id: str
    size: int
    at: float


class StanzaSizes:
    """The sizes of stanzas that one server takes, as far as known; in bytes of whole stanzas.

    Attributes:
        limit: the most bytes that the server takes, as far as it is known.
        largest: the largest that was written on this stream or went through before. Tell
            of what is written only if it is larger: another one can have ended no stream.
        careful: whether a stream has ended because of a size, and it is not known yet of
            which.
        on_way: the stanzas of which was told and that were not answered, the largest
            last.
        awaited: the ids of those that are answered.
    """

    def __init__(self) -> None:
        self.limit: int | None = None
        self.largest = 0
        self.careful = False
        self.on_way: list[_Sent] = []
        self.awaited: frozenset[str] = frozenset()
        self._announced: int | None = None
        #: The largest that went through.
        self._passed = 0
        #: The smallest size of which it was learned that the server does not take it.
        self._refused: int | None = None
        #: While careful: the smallest size of the largest stanza that was on its way at an
        #: end, so never more than `_refused`; and when the latest end was.
        self._suspected = 0
        self._ended_at = 0.0

    # -- what the server says ----------------------------------------------

    def announced(self, max_bytes: int | None) -> None:
        """Take the limit that the server announces on this stream; None: it says nothing.

        It is right, whatever was learned under another one.
        """
        if max_bytes is not None and max_bytes != self._announced:
            self._forget()
        self._announced = max_bytes
        self._set_limit()

    def ended(self, now: float) -> str | None:
        """Take the end of a stream because of a size.

        Returns:
            The id of the iq that was certainly not taken, '' for another stanza, None if
            nothing is known: then the limit may be lower than before.
        """
        self.refresh(now)
        largest = self.on_way[-1] if self.on_way else None
        if largest is not None and not largest.iq_id and now - largest.at > _READ_S:
            largest = None
        if largest is None:
            self._passed = 0
        self._begin()
        if largest is None:
            return None
        if self.careful and largest.size >= self._suspected:
            self._refused = min(self._refused or largest.size, largest.size)
        else:
            self._suspected = largest.size
        self.careful, self._ended_at = True, now
        self._set_limit()
        return largest.iq_id

    # -- stanzas -----------------------------------------------------------

    def written(self, iq_id: str, size: int, now: float) -> None:
        """Note that a stanza is written; '': it gets no answer."""
        if size > self.largest:
            self.largest = size
            stanza = _Sent(iq_id, size, now)
            self._set_on_way([*self.on_way, stanza][-_ON_WAY_MAX:])

    def answered(self, iq_id: str) -> None:
        """Take the answer to one of `awaited`: it went through."""
        for stanza in self.on_way:
            if stanza.iq_id == iq_id:
                self.went_through(stanza.size)
                break

    def went_through(self, size: int) -> None:
        """Note that the server has read a stanza of this size."""
        self._passed = max(self._passed, size)
        self.largest = max(self.largest, size)
        self._set_on_way([stanza for stanza in self.on_way if stanza.size > size])
        if self.careful and size >= self._suspected:
            self._forget()
            self._set_limit()

    def suspects(self, size: int) -> bool:
        """Whether a stanza of this size may be what has ended a stream."""
        return self.careful and size > self._harmless

    def are_taken(self, size: int) -> bool:
        """Whether the server certainly takes stanzas of this size: it says so, or has."""
        return size <= max(self._passed, self._announced or 0)

    @property
    def batch_max(self) -> int | None:
        """The most bytes of requests that are sent in one stanza; None: as many as usual."""
        most = self.limit
        if self.careful:
            most = self._harmless if most is None else min(most, self._harmless)
        return None if most is None else int(most * _BATCH)

    @property
    def _harmless(self) -> int:
        """The size up to which a stanza has ended no stream."""
        least = LEAST_BYTES if self._suspected > LEAST_BYTES else 0
        return max(self._passed, least)

    # -- streams and processes ---------------------------------------------

    def started(self, now: float) -> None:
        """Take the start of a session: nothing is on its way."""
        self._begin()
        self.refresh(now)

    def refresh(self, now: float) -> None:
        """Forget what was learned too long ago, or by a clock that was wrong."""
        if self.careful and abs(now - self._ended_at) > LEARNED_S:
            self._forget()
            self._set_limit()

    def to_text(self) -> str:
        """The text from which the next process goes on, or ''; see `restore`."""
        if not self.careful:
            return ""
        return json.dumps(
            [self._suspected, self._refused, self._passed, self._ended_at]
        )

    def restore(self, text: str, now: float) -> None:
        """Take what an earlier process knew; a text that is none is ignored."""
        try:
            suspected, refused, passed, ended_at = json.loads(text)
            self._suspected, self._passed = int(suspected), int(passed)
            self._refused = None if refused is None else int(refused)
            self._ended_at = float(ended_at)
        except (TypeError, ValueError):
            self._forget()
            self._passed = 0
        else:
            self.careful = True
            self.refresh(now)
        self._begin()
        self._set_limit()

    def _begin(self) -> None:
        """Begin with another stream: nothing is on its way."""
        self._set_on_way([])
        self.largest = self._passed

    def _set_on_way(self, on_way: list[_Sent]) -> None:
        self.on_way = on_way
        self.awaited = frozenset(stanza.iq_id for stanza in on_way) - {""}

    def _forget(self) -> None:
        self.careful, self._refused, self._suspected = False, None, 0

    def _set_limit(self) -> None:
        learned = None if self._refused is None else self._refused - 1
        limits = [limit for limit in (self._announced, learned) if limit is not None]
        self.limit = min(limits, default=None)
