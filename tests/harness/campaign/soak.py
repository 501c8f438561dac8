"""Samples a run, so that growth over time is seen; see `growth`.

Only elders are judged: a process that is killed starts again, and never shows its
growth. Elders live through all other faults. Stores outlive all processes: the size of
each is judged. Records of the applications themselves, such as the effects of workers
and consumers, journals and logs, are not judged: they are complete on purpose, as
evidence.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.usage import usage_of
from campaign.files import Files
from campaign.growth import HANDLES, P99, RSS, STORE, TASKS, Measure, Series
from campaign.supervisor import BATCH, WORKERS, Supervisor, Traffic
from message_roles import entries_of
from qos.bench.pace import percentile
from qos.core.message.model import OutgoingState
from queue_roles import read_work_records

__all__ = ["MEASURE_S", "PAUSE_S_MAX", "Soak", "elders", "half", "handled", "unlimited"]

#: Less frequent than in a campaign: about every second window is without a fault.
PAUSE_S_MAX = 6.0

#: Seconds with as much traffic as possible, to find out the half of it.
MEASURE_S = 10.0

_SAMPLES = 360
_SAMPLE_EVERY_S_MIN = 0.5

#: Long enough for a p99 of some hundred messages.
_WINDOWS = 60

#: Records with a limit in time must be complete in the first quarter; and ended
#: messages must be remembered for longer than any fault lasts.
_REMEMBERS_SHARE, _REMEMBERS_S_MAX = 1 / 4, 120.0

_MB = 1e6


def elders(place: int, stores: tuple[str, ...]) -> frozenset[str]:
    """The members that are not killed, on the first or the second server.

    With two servers, each member lives on one and is killed on the other.
    """
    store = stores[place % len(stores)]
    single = ("service", "publisher")[place]
    return frozenset((f"sender-{store}", f"receiver-{store}", WORKERS[place], single))


def unlimited(stores: tuple[str, ...], seconds: float) -> Traffic:
    """As much traffic as possible.

    Records are remembered as in a soak of this length.
    """
    remembers_s = min(seconds * _REMEMBERS_SHARE, _REMEMBERS_S_MAX)
    return Traffic(dict.fromkeys(stores, 0.0), 0.0, remembers_s)


def handled(files: Files) -> dict[str, int]:
    """The number of ended messages, by store, and of items so far."""
    done = {
        store: sum(
            entry["event"] == "ended"
            for entry in entries_of(files.log("sender", store))
        )
        for store in files.stores
    }
    accepted = sum(
        record.what == "accepted" for record in read_work_records(files.work_records)
    )
    return {**done, "items": accepted}


def half(traffic: Traffic, done: dict[str, int], seconds: float) -> Traffic:
    """Half of the possible traffic, at an even pace.

    Args:
        traffic: as it was.
        done: the number done in these seconds; see `handled`. None of them is 0.
        seconds: likewise.
    """
    pauses = {what: 2 * seconds / count for what, count in done.items()}
    batch_every_s = pauses.pop("items") * BATCH
    return Traffic(pauses, batch_every_s, traffic.remembers_s)


class Soak:
    """The samples of a run.

    Args:
        supervisor: the members to be sampled.
        files: their files.
        seconds: the total length.

    Attributes:
        seconds: likewise.
    """

    def __init__(self, supervisor: Supervisor, files: Files, seconds: float) -> None:
        self.seconds = seconds
        self._files = files
        self._every_s = max(seconds / _SAMPLES, _SAMPLE_EVERY_S_MIN)
        self._next_s = 0.0
        self._elders = [
            member for member in supervisor.members if member.name in files.elders
        ]
        shared = {f"receiver-{each}" for each in files.stores if files.consumes(each)}
        self._with_stores = [
            member
            for member in supervisor.members
            if member.store and member.name not in shared
        ]
        self._series = {
            (who, measure): Series(who, measure) for who, measure in self._judged()
        }
        self._lives = {member.name: member.lives for member in self._elders}

    def look(self, now_s: float) -> None:
        """Take a sample, if it is time for one.

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
        """All values to be judged, so that a value without samples is noticed."""
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
        """Sample the state after the end.

        Args:
            began: the time of the first fault, in seconds since 1970.
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
        """All values to be judged, including those without samples."""
        return list(self._series.values())

    def problems(self) -> Iterator[str]:
        """Values that have grown, and elders that have died; a line each."""
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
    """The size of all files of a store.

    SQLite's additional files, or those in its folder.
    """
    files = [*store.parent.glob(f"{store.name}*"), *store.glob("**/*")]
    size = 0
    for file in files:
        try:
            size += file.stat().st_size
        except FileNotFoundError:
            continue  # The store was compacted meanwhile.
    return size


def _p99s(log: Path, began: float, seconds: float) -> Iterator[tuple[float, float]]:
    """The times of delivered messages, by windows of the time in which they began."""
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
