"""The time, and one timer for everything that waits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

__all__ = [
    "GAIN",
    "Clock",
    "Handle",
    "ListeningClock",
    "LoopClock",
    "ServiceClock",
    "Timers",
]

K = TypeVar("K", bound=Hashable)

#: Seconds between two looks of a ListeningClock at itself. The next one may be as late
#: again; from then on nobody has listened.
_TICK_S = 1.0
_GAP_S_MIN = 2 * _TICK_S

#: The part by which a clock that is behind is faster.
GAIN = 0.02

#: The number of outdated heap entries that are kept, in addition to as many as there
#: are valid ones.
_OUTDATED_MAX = 64

#: Seconds that count of a period in which nothing can be answered.
_UNANSWERED_S: Final = 2.0

#: The least seconds until a timer within such a period: its time may not come before the
#: end, and it would fire without end. And those until a timer while the clock gains, when
#: rounding may let it fire too early.
_TIMER_S: Final = 1.0
_ROUNDED_S: Final = 0.001


class Handle(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the call. Harmless after the call."""


class Clock(Protocol):
    """The current time, and timers; `qos.testing.ManualClock` is one."""

    def now(self) -> float:
        """Seconds since the epoch; never goes back."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        """Call the callback once, at this time or soon after."""


class LoopClock:
    """The clock of an event loop, set by the wall clock when this object is made.

    Later changes of the wall clock have no effect: a deadline stays as far away as it
    was, and nothing waits an hour longer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = time.time() - loop.time()

    def now(self) -> float:
        """Seconds since the epoch, by a clock that never goes back."""
        return self._loop.time() + self._offset

    def call_at(
        self, when: float, callback: Callable[[], object]
    ) -> asyncio.TimerHandle:
        """See Clock."""
        return self._loop.call_at(when - self._offset, callback)


class ListeningClock(LoopClock):
    """A clock of an event loop that stands still while the process does not listen.

    A process that is stopped, swapped out or busy with one long step hears nobody. That
    time is not its peers': a lock is a worker's promise to speak within its time-out, and
    a worker that has spoken must not lose it since nobody read that. So the clock goes
    on by a tick at most from one look at it to the next, and looks at itself each tick.
    What it has lost that way it gains again, slowly.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin as a LoopClock, until `start`.

        Args:
            loop: the event loop.
            monotonic: real time. A test may turn the time of its loop: that is no time
                in which nobody listened.
        """
        super().__init__(loop)
        self._monotonic = monotonic
        self._heard_at = self._really_at = math.inf
        self._lost_s = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen from now on."""
        self._tick()

    def now(self) -> float:
        """Seconds since the epoch, by a clock that never goes back."""
        now = self._loop.time()
        if now - self._heard_at > _GAP_S_MIN:
            self._listen()
        return now + self._offset

    def stop(self) -> None:
        """Be a LoopClock again."""
        if self._handle is not None:
            self._handle.cancel()
        self._heard_at = math.inf

    def _listen(self) -> None:
        now, really = self._loop.time(), self._monotonic()
        gap_s = min(now - self._heard_at, really - self._really_at)
        if gap_s > _GAP_S_MIN:
            self._offset -= gap_s - _TICK_S
            self._lost_s += gap_s - _TICK_S
            self._heard_at, self._really_at = now, really

    def _tick(self) -> None:
        self._listen()
        self._heard_at, self._really_at = self._loop.time(), self._monotonic()
        gained_s = min(self._lost_s, _TICK_S * GAIN)
        self._lost_s -= gained_s
        self._offset += gained_s
        self._handle = self._loop.call_later(_TICK_S, self._tick)


class ServiceClock:
    """The time of a queue service: it stands still while nothing can be answered.

    A commit may take long on a slow disk, and until the queues have been read again
    after a failed one, every request is refused. In both cases a worker that extends its
    lock in time gets no answer. That time is not the worker's: of each such period only
    the first seconds count. What the clock has lost it gains again, slowly.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with the time of this clock."""
        self._clock = clock
        self._seen = self._now = clock.now()
        self._lost_s = 0.0
        #: The seconds that still count; infinite while the service answers.
        self._left_s = math.inf

    def now(self) -> float:
        """See Clock."""
        clock_time = self._clock.now()
        if self._lost_s or self._left_s < math.inf:
            self._count(clock_time - self._seen)
        self._seen = clock_time
        # Rounding must not set it back.
        self._now = max(self._now, clock_time - self._lost_s)
        return self._now

    def _count(self, passed_s: float) -> None:
        if self._left_s == math.inf:
            self._lost_s -= min(self._lost_s, passed_s * GAIN)
        else:
            counted_s = min(passed_s, self._left_s)
            self._left_s -= counted_s
            self._lost_s += passed_s - counted_s

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        """See Clock; the call may come too early, if the clock is paused meanwhile."""
        if not self._lost_s and self._left_s == math.inf:
            return self._clock.call_at(when, callback)
        delay_s = when - self.now()
        if self._left_s < math.inf:
            delay_s = max(delay_s, _TIMER_S)
        else:
            delay_s = max(delay_s / (1 + GAIN), _ROUNDED_S)
        return self._clock.call_at(self._seen + delay_s, callback)

    def pause(self) -> None:
        """Note that nothing can be answered from now on; harmless when it is so."""
        if self._left_s == math.inf:
            self.now()
            self._left_s = _UNANSWERED_S

    def go_on(self) -> None:
        """Note that requests are answered again."""
        if self._left_s < math.inf:
            self.now()
            self._left_s = math.inf


class Timers(Generic[K]):
    """A time for each key, and one timer of the clock for all keys."""

    def __init__(self, clock: Clock, fire: Callable[[K], object]) -> None:
        self._clock = clock
        self._fire = fire
        self._moments: dict[K, float] = {}
        # Outdated entries stay here too. They are dropped when they come up, or when
        # there are many: most timers that are set for next week are cleared within a
        # second.
        self._heap: list[tuple[float, int, K]] = []
        self._tie = itertools.count()
        self._handle: Handle | None = None
        self._handle_at = math.inf
        self._stopped = False

    def set(self, key: K, when: float) -> None:
        """Fire for the key at this time, instead of any earlier setting; inf: never."""
        if when == math.inf or self._stopped:
            self._moments.pop(key, None)
            return
        if self._moments.get(key) == when:
            return
        self._moments[key] = when
        if len(self._heap) > 2 * len(self._moments) + _OUTDATED_MAX:
            self._heap = [entry for entry in self._heap if self._is_meant(entry)]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (when, next(self._tie), key))
        if when < self._handle_at:
            self._arm(when)

    def clear(self, key: K) -> None:
        """Do not fire for the key."""
        self._moments.pop(key, None)

    def stop(self) -> None:
        """Never fire again, even for keys that are set later."""
        self._stopped = True
        self._moments.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self._handle_at = None, math.inf

    def _arm(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at = when
        self._handle = self._clock.call_at(when, self._due)

    def _due(self) -> None:
        self._handle, self._handle_at = None, math.inf
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            first = heapq.heappop(self._heap)
            if self._is_meant(first):
                del self._moments[first[2]]
                self._fire(first[2])
        while self._heap and not self._is_meant(self._heap[0]):
            heapq.heappop(self._heap)
        if self._heap and self._heap[0][0] < self._handle_at:
            self._arm(self._heap[0][0])

    def _is_meant(self, entry: tuple[float, int, K]) -> bool:
        when, _, key = entry
        return self._moments.get(key) == when
