"""Samples a run, so that what grows with time is seen; see `growth`.

Judged are the elders: a process that is killed begins anew, and never shows what it
would come to. They live through all other faults. Stores outlive everybody: the size of
each is judged. Not so what the applications keep themselves, such as the effects of
workers and consumers, and journals and logs: they tell everything, and are the evidence.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from campaign.growth import HANDLES, P99, RSS, STORE, TASKS, Measure, Series
from campaign.supervisor import BATCH, WORKERS, Cast, Files, Traffic
from message_roles import entries_of
from qos.bench.figures import percentile
from qos.bench.usage import usage_of
from qos.core.message.model import OutgoingState
from queue_roles import read_deeds

__all__ = ["MEASURE_S", "PAUSE_S_MAX", "Soak", "elders", "half", "handled", "unlimited"]

#: Rarer than in a campaign: about every second window is without a fault.
PAUSE_S_MAX = 6.0

#: For so long there is as much traffic as can be, to know what half of it is.
MEASURE_S = 10.0

_SAMPLES = 360
_SAMPLE_EVERY_S_MIN = 0.5

#: In which a p99 is that of some hundred messages.
_WINDOWS = 60

#: What is bounded by time must be full in the first quarter; and what has ended be
#: remembered for longer than any fault lasts.
_REMEMBERS_SHARE, _REMEMBERS_S_MAX = 1 / 4, 120.0

_MB = 1e6


def elders(place: int, stores: tuple[str, ...]) -> frozenset[str]:
    """Who is not killed, on the first or the second of the servers.

    Of two servers, those that live on the one are killed on the other.
    """
    store = stores[place % len(stores)]
    single = ("service", "publisher")[place]
    return frozenset((f"sender-{store}", f"receiver-{store}", WORKERS[place], single))


def unlimited(stores: tuple[str, ...], seconds: float) -> Traffic:
    """As much as can be; what is remembered is as for a soak of this length."""
    remembers_s = min(seconds * _REMEMBERS_SHARE, _REMEMBERS_S_MAX)
    return Traffic(dict.fromkeys(stores, 0.0), 0.0, remembers_s)


def handled(files: Files) -> dict[str, int]:
    """How much has been done so far: by store, messages that have ended; and items."""
    done = {
        store: sum(
            entry["event"] == "ended"
            for entry in entries_of(files.log("sender", store))
        )
        for store in files.stores
    }
    accepted = sum(deed.what == "accepted" for deed in read_deeds(files.deeds))
    return {**done, "items": accepted}


def half(traffic: Traffic, done: dict[str, int], seconds: float) -> Traffic:
    """Half of what could be done, at an even pace.

    Args:
        traffic: how it was.
        done: in so many seconds; see `handled`. Of each there is some.
        seconds: likewise.
    """
    pauses = {what: 2 * seconds / count for what, count in done.items()}
    batch_every_s = pauses.pop("items") * BATCH
    return Traffic(pauses, batch_every_s, traffic.remembers_s)


class Soak:
    """What was sampled of a run.

    Args:
        cast: whose members are looked at.
        files: what they keep.
        seconds: how long it takes in all.

    Attributes:
        seconds: likewise.
    """

    def __init__(self, cast: Cast, files: Files, seconds: float) -> None:
        self.seconds = seconds
        self._files = files
        self._every_s = max(seconds / _SAMPLES, _SAMPLE_EVERY_S_MIN)
        self._next_s = 0.0
        self._elders = [
            member for member in cast.members if member.name in files.elders
        ]
        shared = {f"receiver-{each}" for each in files.stores if files.consumes(each)}
        self._with_stores = [
            member
            for member in cast.members
            if member.store and member.name not in shared
        ]
        self._series = {
            (who, measure): Series(who, measure) for who, measure in self._judged()
        }
        self._lives = {member.name: member.lives for member in self._elders}

    def look(self, now_s: float) -> None:
        """Take a sample, if it is time to.

        Args:
            now_s: since the first fault.
        """
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        for member in self._elders:
            process = member.process
            used = None if process is None else usage_of(process.pid)
            if process is None or used is None:
                continue
            self._add(member.name, RSS, now_s, used.rss_bytes / _MB)
            self._add(member.name, HANDLES, now_s, _handles(process.pid))
            if process.tasks is not None:
                self._add(member.name, TASKS, now_s, process.tasks)
        for member in self._with_stores:
            size = _size(Path(member.store.partition(":")[2]))
            self._add(member.name, STORE, now_s, size / _MB)

    def _judged(self) -> Iterator[tuple[str, Measure]]:
        """All that there is to judge, so that what has no points is seen."""
        for member in self._elders:
            for measure in (RSS, HANDLES, TASKS):
                yield member.name, measure
            if member.kind == "sender":
                yield member.name, P99
        for member in self._with_stores:
            yield member.name, STORE

    def _add(self, who: str, measure: Measure, now_s: float, value: float) -> None:
        self._series[who, measure].points.append((now_s, value))

    def finish(self, began: float) -> None:
        """Look at what is there when all has ended.

        Args:
            began: when the first fault was, in seconds since 1970.
        """
        for store in self._files.stores:
            name = f"sender-{store}"
            if name in self._files.elders:
                for at, value in _p99s(
                    self._files.log("sender", store), began, self.seconds
                ):
                    self._add(name, P99, at, value)

    @property
    def series(self) -> list[Series]:
        """All that there is to judge; one that has no points included."""
        return list(self._series.values())

    def problems(self) -> Iterator[str]:
        """What has grown, and which elder has died; a line each."""
        for series in self.series:
            complaint = series.complaint(self.seconds)
            if complaint is not None:
                yield complaint
        for member in self._elders:
            if member.lives != self._lives[member.name]:
                yield f"{member.name}: has died, and was not to be killed"


def _handles(pid: int) -> float:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return math.nan


def _size(store: Path) -> int:
    """All files of a store: those beside that of SQLite, or those in its folder."""
    files = [*store.parent.glob(f"{store.name}*"), *store.glob("**/*")]
    size = 0
    for file in files:
        try:
            size += file.stat().st_size
        except FileNotFoundError:
            continue  # It was compacted meanwhile.
    return size


def _p99s(log: Path, began: float, seconds: float) -> Iterator[tuple[float, float]]:
    """How long delivered messages took, by windows of the time in which they began."""
    begun: dict[str, float] = {}
    windows: dict[int, list[float]] = defaultdict(list)
    for entry in entries_of(log):
        if entry["event"] == "begun":
            begun[entry["id"]] = entry["at"]
        elif entry["event"] == "ended":
            at = begun.pop(entry["id"])
            if entry["status"] == OutgoingState.DELIVERED.value:
                place = int((at - began) * _WINDOWS / seconds)
                windows[place].append(entry["at"] - at)
    for place, times in sorted(windows.items()):
        if 0 <= place < _WINDOWS:
            at = (place + 0.5) * seconds / _WINDOWS
            yield at, percentile(sorted(times), 0.99)
