"""The roster of an account: which items count, and how long to wait for all of them.

Any client of an account can put anything into its roster. A roster may be long and the
link slow: as long as bytes come, it is on its way. A server may have no rosters.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final

from qos.core.backoff import Backoff

__all__ = ["LOOK_S", "Next", "RosterWait", "odd_items"]

#: The seconds from one look at the link to the next.
LOOK_S: Final = 15.0

#: A server that stays silent is asked so many times.
_QUESTIONS_MAX: Final = 3

#: So many looks see bytes come, but no roster: the server has none. (Ten minutes.)
_LOOKS_MAX: Final = 40

_BACKOFF: Final = Backoff(first_s=1.0, max_s=60.0)

#: RFC 6120 §8.3.2: the type of an error after which the request may be repeated.
_PASSING: Final = "wait"


class Next(enum.Enum):
    """The next step of somebody who waits for the roster."""

    WAIT = "wait"
    ASK = "ask"
    #: There is none: the roster counts as empty.
    EMPTY = "empty"


class RosterWait:
    """One wait for the roster of a session; it begins when it has been asked for.

    Args:
        came_at: when bytes have come last, on any clock.
    """

    def __init__(self, came_at: float) -> None:
        self._came_at = came_at
        self._questions, self._looks, self._refusals = 1, 0, 0

    def looked(self, came_at: float, *, is_held: bool) -> Next:
        """Decide after LOOK_S without an answer.

        Args:
            came_at: when bytes have come last.
            is_held: whether we do not read at present: then nobody knows.
        """
        moves, self._came_at = is_held or came_at > self._came_at, came_at
        self._looks += not is_held
        if self._looks >= _LOOKS_MAX:
            return Next.EMPTY
        if moves:
            return Next.WAIT
        if self._questions == _QUESTIONS_MAX:
            return Next.EMPTY
        self._questions += 1
        return Next.ASK

    def refused(self, kind: str) -> float | None:
        """The seconds until it may be asked for again; None: it counts as empty.

        Args:
            kind: the type of the error.
        """
        if kind != _PASSING:
            return None
        self._refusals += 1
        return _BACKOFF.ceiling_s(self._refusals)


def odd_items(jids: Iterable[str], is_readable: Callable[[str], bool]) -> list[int]:
    """The places of the items that are left out: without a JID, or with one nobody can read.

    Args:
        jids: those of the items, in order.
        is_readable: whether a text is a JID.
    """
    return [place for place, jid in enumerate(jids) if not jid or not is_readable(jid)]
