"""A clock that moves only when a test moves it, with timers.

It knows nothing of asyncio, threads or the machine's clock. Code that gets its time
from ``now()`` and its wake-ups from ``call_at(when, callback)`` can be driven by it,
without waiting.
"""

import heapq
import itertools
from collections.abc import Callable

from qos import arguments


class ManualTimer:
    """A callback that waits for its time."""

    __slots__ = ("_callback", "when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self._callback: Callable[[], object] | None = callback

    @property
    def pending(self) -> bool:
        """False once it has run or been cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Never run the callback; harmless if it has already run."""
        self._callback = None

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """Time in seconds, from ``now`` on, moved by the test.

    An exception from a callback leaves ``advance`` or ``jump`` at once. The clock is
    then at the time of that callback; later timers stay.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = arguments.number("now", now)
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return the present time."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> ManualTimer:
        """Run ``callback`` when the clock reaches ``when``.

        Nothing runs inside this call: a callback for a past time runs at the next
        ``advance`` or ``jump``, even ``advance(0)``.
        """
        arguments.callable_of("callback", callback)
        timer = ManualTimer(arguments.number("when", when), callback)
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def deadline(self) -> float | None:
        """Return the time of the earliest pending timer; None without one."""
        while self._timers and not self._timers[0][2].pending:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, seconds: float) -> None:
        """Let time pass: each due callback runs at its own time.

        Callbacks run in order of time, and of registration for equal times. Callbacks
        that they register run too, if they fall due on the way.
        """
        if arguments.number("seconds", seconds) < 0:
            raise ValueError(f"seconds must not be negative, got {seconds!r}")
        end = self._now + seconds
        while (when := self.deadline()) is not None and when <= end:
            self._now = max(self._now, when)
            heapq.heappop(self._timers)[2]._run()
        self._now = end

    def jump(self, to: float) -> None:
        """Set the time to ``to`` at once, as if the machine slept or its clock was set.

        Unlike with ``advance``, all due callbacks see ``to``. Going back is allowed,
        and makes no further timer due.
        """
        self._now = arguments.number("to", to)
        self.advance(0)
