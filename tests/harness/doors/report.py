"""The table of a flood of the doors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import aligned
from doors.attacks import BY_XMPP, EVERYTHING, LOGINS
from qos.bench.pace import percentile

__all__ = ["BOUND_S", "ENDED", "Row", "shown"]

#: The most that p99 of an honest client may be, in seconds.
BOUND_S = 0.25

#: Times as much: the login of a user who was not there before, which has a hash to compute;
#: each login at a door where strangers log in as well; and everything beside all attacks at
#: once, which share the processors of this machine with the service and its honest clients.
FIRST_TIMES = LOGINS_TIMES = EVERYTHING_TIMES = 4

#: What an attack that has ended by itself tells: it proves nothing.
ENDED = "ended by itself"

#: The columns: a door, and the kind of request.
_COLUMNS = {
    "HTTP": ("http", "requests"),
    "AMQP": ("amqp", "requests"),
    "XMPP": ("xmpp", "requests"),
    "login HTTP": ("http", "logins"),
    "login AMQP": ("amqp", "logins"),
    "first HTTP": ("http", "first"),
    "first AMQP": ("amqp", "first"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One attack.

    Attributes:
        attack: its name.
        waits: of the honest clients, by door and kind of request: `seconds` and
            `failures`.
        done: by the attacker, by kind.
        rss_mb: the memory of the service afterwards; 0: it has ended.
        load: of its processor time to the time of the attack.
    """

    attack: str
    waits: Mapping[str, Mapping[str, Any]]
    done: Mapping[str, int]
    rss_mb: float
    load: float

    def kept(self, bound_s: float) -> bool:
        """Whether each honest client was answered in time, during the attack.

        Of those by XMPP, only where the attack does not come by the same stream.
        """
        if any(name.startswith(ENDED) for name in self.done):
            return False
        return self.rss_mb > 0 and all(
            not waits["failures"]
            and percentile(sorted(waits["seconds"]), 0.99)
            <= bound_s * self._times(kind)
            for door, kinds in self.waits.items()
            if not (door == "xmpp" and self.attack in BY_XMPP)
            for kind, waits in kinds.items()
        )

    def _times(self, kind: str) -> int:
        """By how much the bound is larger for requests of this kind."""
        times = EVERYTHING_TIMES if self.attack == EVERYTHING else 1
        if kind == "logins" and self.attack in LOGINS:
            times *= LOGINS_TIMES
        return times * FIRST_TIMES if kind == "first" else times


def shown(rows: Sequence[Row]) -> str:
    """The table: p50 / p99 / max in ms, and what has failed."""
    lines: list[Sequence[str] | str] = [
        ("p50/p99/max ms", *_COLUMNS, "MB", "CPU"),
        *(
            (
                row.attack,
                *(_cell(row, *column) for column in _COLUMNS.values()),
                f"{row.rss_mb:.0f}",
                f"{row.load:.0%}",
            )
            for row in rows
        ),
        *_notes(rows),
    ]
    return "\n".join(aligned(lines))


def _cell(row: Row, door: str, kind: str) -> str:
    waits = row.waits[door].get(kind)
    if waits is None:
        return "-"
    times = sorted(waits["seconds"])
    text = "/".join(
        f"{percentile(times, share) * 1000:.0f}" for share in (0.5, 0.99, 1.0)
    )
    failed = sum(waits["failures"].values())
    return f"{text} !{failed}" if failed else text


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        did = ", ".join(f"{count:,} {name}" for name, count in row.done.items())
        yield f"{row.attack}: {did or 'nothing'}"
        for door, kinds in row.waits.items():
            for kind, waits in kinds.items():
                for why, count in waits["failures"].items():
                    yield f"  {door} {kind}: {count} times {why}"
