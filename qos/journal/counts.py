"""Counts of the messages of one node per window of time, for lines of role `journal`.

A reader compares the counts with the lines that it has, and so finds a window of which
lines are missing. The counts are made from the same entries as the lines, in the same
order and by the same times, so the two agree.

This module knows nothing of files and threads: `qos.journal.writer` writes the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from qos.core.strings import bare
from qos.journal.schema import (
    Entry,
    JournalEvent,
    ReceiverEvent,
    SenderEvent,
    time_text,
)

__all__ = ["ROUTES_MAX", "WINDOW_S", "WindowCounts"]

#: The length of a window in seconds. A day has a whole number of windows, so the
#: windows of all nodes are the same. Files are closed after the same five minutes
#: (`qos.journal.writer.ROTATE_S`), so an idle node writes one short line per file.
WINDOW_S: Final = 300.0

#: The number of routes counted separately in a window: a hub of a thousand devices has
#: two for each device. Peers choose their accounts (a JID has up to 3071 bytes), and
#: must not fill the memory: with the longest JIDs this many routes take 12 MB.
ROUTES_MAX: Final = 2000

_SENT: Final = SenderEvent.ACCEPTED
_RECEIVED: Final = ReceiverEvent.HANDED_OVER

#: Level, account of the sender, account of the receiver; None: all routes beyond
#: ROUTES_MAX.
_Route = tuple[str | None, str, str] | None


class WindowCounts:
    """The counts of the current window."""

    def __init__(
        self,
        node: str,
        *,
        at: float,
        window_s: float = WINDOW_S,
        routes_max: int = ROUTES_MAX,
    ) -> None:
        """Begin to count.

        Args:
            node: the node that the journal belongs to.
            at: the time, seconds since the epoch.
            window_s: see WINDOW_S.
            routes_max: see ROUTES_MAX.
        """
        self._node = node
        self._window_s = window_s
        self._routes_max = routes_max
        self._routes: dict[_Route, list[int]] = {}
        self._begin(at)

    def ends_in(self, at: float) -> float:
        """Seconds until the window of this time ends; more than 0."""
        return self._window_s - at % self._window_s

    def with_counts(
        self, noted: Iterable[tuple[float, Entry | None]]
    ) -> Iterator[tuple[float, Entry]]:
        """The entries, with the counts of each window inserted where it ends.

        Args:
            noted: entries with their times. None: nothing happened, but time has
                passed.
        """
        for at, entry in noted:
            # A clock that is set back also ends a window; the same window may then come
            # again.
            if not self._since <= at < self._until:
                for counted in self._counted():
                    yield at, counted
                self._begin(at)
            if entry is None:
                continue
            event = entry.event
            if event is _SENT:
                self._count(entry, 0)
            elif event is _RECEIVED:
                self._count(entry, 1)
            yield at, entry

    def closing(self) -> list[Entry]:
        """The counts of a window that is not over yet, for a node that ends in it.

        A node that starts again in the same window counts on from 0: a reader adds up.
        """
        counted = list(self._counted())
        self._routes.clear()
        return counted

    def _begin(self, at: float) -> None:
        self._since = at - at % self._window_s
        self._until = self._since + self._window_s
        self._routes.clear()

    def _count(self, entry: Entry, column: int) -> None:
        route: _Route = (
            entry.level,
            bare(entry.source or self._node),
            bare(entry.to or self._node),
        )
        counts = self._routes.get(route)
        if counts is None:
            if len(self._routes) >= self._routes_max:
                route = None
            counts = self._routes.setdefault(route, [0, 0])
        counts[column] += 1

    def _counted(self) -> Iterator[Entry]:
        since = time_text(self._since)
        for route, (outgoing, incoming) in (self._routes or {None: [0, 0]}).items():
            level, source, to = route or (None, None, None)
            yield Entry(
                JournalEvent.COUNTED,
                level=level,
                source=source,
                to=to,
                since=since,
                sent=outgoing,
                received=incoming,
            )
