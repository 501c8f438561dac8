"""Nodes of a made-up fleet: their clocks, their boots, and their journals.

Written only from the documented schema of the journal: it imports nothing of the
product. All times are microseconds since the epoch; no node knows the true time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

__all__ = [
    "SECOND",
    "Away",
    "Boot",
    "Fields",
    "Line",
    "Node",
    "account",
    "day_of",
    "time_text",
]

SECOND = 1_000_000

#: Traffic is counted in windows of this length, aligned to UTC.
WINDOW = 300 * SECOND

Fields: TypeAlias = dict[str, str | int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: The order of the fields in a line.
_ORDER = (
    *("v", "at", "boot", "seq", "node", "role", "event", "level", "msg_id", "from"),
    *("to", "queue", "item", "attempt", "bytes", "condition"),
    *("since", "sent", "received"),
)


def time_text(at: int) -> str:
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def day_of(at: int) -> str:
    return time_text(at)[:10]


def account(jid: str) -> str:
    return jid.partition("/")[0]


class Away(Exception):
    """A node that does not run any more."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a journal.

    Attributes:
        at: by the clock of the node.
        fields: the fields that only some lines have; `since` is a time like `at`.
        folder: the folder of its journal.
    """

    version: int
    at: int
    boot: str
    seq: int
    node: str
    role: str
    event: str
    fields: Fields
    folder: str = ""

    def text(self, version: int | None = None) -> str:
        """The JSON of the line, perhaps as that of another version."""
        values: Fields = {
            **self.fields,
            "v": version or self.version,
            "at": time_text(self.at),
            "boot": self.boot,
            "seq": self.seq,
            "node": self.node,
            "role": self.role,
            "event": self.event,
        }
        ordered = {name: values[name] for name in _ORDER if name in values}
        return json.dumps(ordered, separators=(",", ":"))


@dataclass(slots=True)
class Boot:
    """One life of a node.

    Attributes:
        ending: "closed", "killed", or "open" if the node is still running.
        kept: whether a journal is kept.
        lost_tail: how many of its last lines a power cut has taken from the disk.
    """

    name: str
    begin: int
    end: int
    ending: str
    kept: bool = True
    lost_tail: int = 0
    happened: list[tuple[int, str, str, Fields]] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """A device, a component or a service.

    Attributes:
        jid: the JID of the node.
        version: the version of the schema of its journal.
        offset: the difference of its clock from the true time.
        set_back: the true times between which its clock was ahead, and by how much.
        boots: in order; between them the node is not running.
        folder: the folder of its journal; another node of the same JID has another one.
    """

    jid: str
    version: int
    folder: str = ""
    offset: int = 0
    set_back: tuple[int, int, int] | None = None
    boots: list[Boot] = field(default_factory=list)

    def address(self, number: int) -> str:
        """One of its addresses: a component has all of its domain."""
        if "@" in self.jid:
            return self.jid
        names = ("{}", "lamp@{}/1", "door@{}/1", "door@{}")
        return names[number % len(names)].format(self.jid)

    def boot_at(self, time: int) -> Boot | None:
        """The boot that runs at this time."""
        for boot in self.boots:
            if boot.begin <= time < boot.end:
                return boot
        return None

    def running(self, time: int) -> int:
        """The first time, from this one on, at which it runs.

        Raises:
            Away: it never runs again.
        """
        for boot in self.boots:
            if time < boot.end:
                return max(time, boot.begin + SECOND // 10)
        raise Away

    def clock(self, time: int) -> int:
        """The time of its clock at this time."""
        if self.set_back is not None:
            begin, end, ahead = self.set_back
            if begin <= time < end:
                return time + self.offset + ahead
        return time + self.offset

    def note(self, time: int, role: str, event: str, **fields: str | int) -> int:
        """Note an event as soon as the node runs; returns the time.

        Raises:
            Away: it never runs again.
        """
        time = self.running(time)
        boot = self.boot_at(time)
        assert boot is not None
        if "source" in fields:
            fields["from"] = fields.pop("source")
        boot.happened.append((time, role, event, fields))
        return time

    def journal(self) -> Iterator[list[Line]]:
        """The lines of each boot that were kept."""
        for boot in self.boots:
            if boot.kept:
                lines = self._lines(boot)
                yield lines[: len(lines) - boot.lost_tail]

    def _lines(self, boot: Boot) -> list[Line]:
        happened = sorted(boot.happened, key=lambda each: each[0])
        if self.version >= 2:
            happened = self._with_marks(boot, happened)
        return [
            Line(
                self.version,
                self.clock(at),
                boot.name,
                seq,
                self.jid,
                role,
                event,
                more,
                self.folder,
            )
            for seq, (at, role, event, more) in enumerate(happened, start=1)
        ]

    def _with_marks(
        self, boot: Boot, happened: list[tuple[int, str, str, Fields]]
    ) -> list[tuple[int, str, str, Fields]]:
        """Add the lines about the beginning and end of the journal, and the counts."""
        marks = [(boot.begin, "journal", "opened", Fields())]
        counts: Counter[tuple[str, str, str, str]] = Counter()
        waiting = list(happened)
        end = self._window_end(boot.begin)
        while end < boot.end:
            while waiting and waiting[0][0] < end:
                counts.update(_counted(waiting.pop(0)))
            since = self.clock(end) - WINDOW
            marks += [(end, "journal", "counted", m) for m in _counts(since, counts)]
            counts.clear()
            end = self._window_end(end)
        lines = sorted([*marks, *happened], key=lambda each: each[0])
        if boot.ending == "closed":
            lines.append((boot.end, "journal", "closed", Fields()))
        return lines

    def _window_end(self, time: int) -> int:
        """The next end of a window after a moment, by the clock of the node."""
        end = time + WINDOW - self.clock(time) % WINDOW
        if self.set_back is not None and time < self.set_back[1] <= end:
            # The window that begins here again, or continues, ends later.
            end = self._window_end(self.set_back[1])
        return end


def _counted(
    happened: tuple[int, str, str, Fields],
) -> Iterator[tuple[str, str, str, str]]:
    """The count that a line adds to, and its route."""
    _, role, event, fields = happened
    counts = {
        ("sender", "accepted"): "sent",
        ("receiver", "handed-over"): "received",
    }
    name = counts.get((role, event))
    if name is not None:
        ends = (account(str(fields["from"])), account(str(fields["to"])))
        yield (str(fields["level"]), *ends, name)


def _counts(since: int, counts: Counter[tuple[str, str, str, str]]) -> list[Fields]:
    window: Fields = {"since": time_text(since)}
    routes = sorted({key[:3] for key in counts})
    return [
        {
            **window,
            "level": level,
            "from": sender,
            "to": receiver,
            "sent": counts[level, sender, receiver, "sent"],
            "received": counts[level, sender, receiver, "received"],
        }
        for level, sender, receiver in routes
    ] or [{**window, "sent": 0, "received": 0}]
