"""A scene of the doors: a loop in virtual time, whose work takes time, and what it finds."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from qos.core.queue.effects import Notification
from qos.core.queue.selector_time import Meter
from qos.engine.gateway import QueuePorts
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.testing.clock import ManualClock
from simulation import door_invariants as invariants
from simulation.invariants import Violation
from simulation.loop import SimulatedLoop
from simulation.queue_store import QueueServiceDisk, SimulatedQueueStore

__all__ = ["Scene", "SceneLoop", "SilentPort"]

#: The time at which a scene begins; any would do.
_BEGIN_S = 1_000_000.0

#: Seconds between the looks whether a timer is late.
_TICK_S = 0.01


class SceneLoop(SimulatedLoop):
    """A loop whose threads are timers.

    Attributes:
        hash_s: seconds of a check of a password, in a thread.
    """

    hash_s = 0.0

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[bool]:
        """Check a password: it is right if it is the stored one."""
        del executor, func
        password, stored = args
        done: asyncio.Future[bool] = self.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(password == stored)

        self.call_later(self.hash_s, end)
        return done


class Scene:
    """The events at the doors.

    Attributes:
        clock: the time.
        loop: the event loop.
        random: of the seed.
        found: the first violation.
        disk: of the engine.
        ports: of the engine.
    """

    disk: QueueServiceDisk
    ports: QueuePorts

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(_BEGIN_S)
        self.loop = SceneLoop(self.clock)
        self.random = random.Random(f"doors {seed}")
        self.found: list[Violation] = []
        # The honest requests that wait: what they are, since when, and their bound.
        self._open: dict[int, tuple[str, float, float]] = {}
        self._numbers = itertools.count()

    def asks(
        self, what: str, bound_s: float = invariants.HONEST_S_MAX
    ) -> Callable[[], None]:
        """An honest request begins; returns what is to be called by its answer."""
        number = next(self._numbers)
        self._open[number] = (what, self.clock.now(), bound_s)
        return partial(self._answered, number)

    def _answered(self, number: int) -> None:
        what, since, bound_s = self._open.pop(number)
        waited_s = self.clock.now() - since
        self.check(invariants.honest_are_answered, what, waited_s, bound_s)

    def finish(self) -> None:
        """Check what has no answer."""
        for number in list(self._open):
            self._answered(number)

    def works(self, seconds: float) -> None:
        """Take processor time: nothing else happens meanwhile."""
        self.clock.jump(self.clock.now() + seconds)

    def check(self, invariant: Callable[..., str | None], *args: object) -> None:
        """Note what breaks an invariant; the first one counts."""
        problem = invariant(*args)
        if problem is not None and not self.found:
            self.found.append(Violation.of(invariant, problem))

    def task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run this."""
        self.loop.create_task(coroutine)

    def engine(self, *, meter: Meter | None = None) -> QueueEngine:
        """An engine on a disk of its own; see `disk` and `ports`."""
        self.disk = QueueServiceDisk("doors", lambda _change: None, lambda: None)
        self.ports = QueuePorts(SilentPort())
        engine = QueueEngine(
            SimulatedQueueStore(self.disk, self.clock, lambda: None),
            self.ports,
            clock=self.clock,
            meter=meter or self.clock.now,
        )
        engine.online()
        return engine

    def watch_turns(self, until: float, step_s: float) -> None:
        """Check that timers are not late until then, but for a step of work."""
        due = self.clock.now() + _TICK_S

        def tick() -> None:
            self.check(invariants.a_turn_ends, self.clock.now() - due, step_s)
            if self.clock.now() < until:
                self.watch_turns(until, step_s)

        self.loop.call_at(due, tick)

    def run(self, until: float) -> None:
        """Run until then, to the end of everything, or to the first violation."""
        self.loop.settle()
        while not self.found and (self.clock.deadline() or until) < until:
            self.loop.step()
        for error in self.loop.errors:
            self.check(invariants.nothing_fails, error)


class SilentPort(QueuePort):
    """The XMPP side, where nobody is."""

    def __init__(self) -> None:
        self._ids = itertools.count()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        return []

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""

    def probe(self, jid: str) -> None:
        """See QueuePort."""

    def new_id(self) -> str:
        """See QueuePort."""
        return f"id-{next(self._ids)}"
