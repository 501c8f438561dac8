"""An event loop in virtual time, with processes that can be killed.

Everything runs in one thread, in the order of times and, for equal times, of
registration. The loop knows nothing of machines, networks, disks or messages.

Each callback, task and timer belongs to the process in whose context it was registered.
A killed process leaves nothing behind: its callbacks never run. A process that is
stopped (SIGSTOP) gets all of them when it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

from qos.testing.clock import ManualClock, ManualTimer

__all__ = ["Killed", "Process", "SimulatedLoop", "current"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Killed(BaseException):
    """Unwinds the stack of a killed process; nobody catches it."""


class Process:
    """A process, which is killed as a whole.

    Attributes:
        name: of the machine that it runs on.
        number: 1 for the first of this machine.
        alive: it has not been killed.
        dies: called when it dies.
    """

    def __init__(
        self, loop: SimulatedLoop, name: str, number: int, dies: Callable[[], None]
    ) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self._dies = dies
        self._loop = loop
        self._context = contextvars.Context()
        self._context.run(_process.set, self)
        #: The callbacks that wait while it is stopped; None: it is not stopped.
        self.waiting: deque[asyncio.Handle] | None = None

    def start(self, callback: Callable[[], object]) -> None:
        """Run this in the process, now or when it is not stopped any more."""
        self._loop.call_soon(callback, context=self._context.copy())

    def task(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run this in the process as a task of its own."""
        task = self._loop.create_task(coroutine, context=self._context.copy())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._loop.call_exception_handler({"exception": error})

    def kill(self) -> None:
        """SIGKILL. Harmless when it is dead."""
        if self.alive:
            self.alive = False
            self.waiting = None
            self._dies()

    def stop(self) -> None:
        """SIGSTOP."""
        if self.waiting is None:
            self.waiting = deque()

    def go_on(self) -> None:
        """SIGCONT."""
        waiting, self.waiting = self.waiting, None
        self._loop.take(waiting or ())


class _Timer(asyncio.TimerHandle):
    """A handle that removes its timer when it is cancelled."""

    __slots__ = ("timer",)

    timer: ManualTimer


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current() -> Process | None:
    """The running process; None: the world outside."""
    return _process.get(None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs asyncio code, with a clock that jumps to the next event.

    Attributes:
        clock: the true time.
        errors: exceptions from callbacks, or from tasks that nobody awaits.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.errors: list[BaseException] = []
        self._waiting: deque[asyncio.Handle] = deque()
        self._tasks: list[Coroutine[Any, Any, object]] = []

    # -- what asyncio asks for ---------------------------------------------

    def time(self) -> float:
        """The true time."""
        return self.clock.now()

    def get_debug(self) -> bool:
        """Never: it would cost more than everything else."""
        return False

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call it at this time, after earlier registrations."""
        handle = asyncio.Handle(callback, args, self, context)
        self._waiting.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it in this many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it at this time."""
        handle = _Timer(when, callback, args, self, context)
        handle.timer = self.clock.call_at(when, partial(self._waiting.append, handle))
        return handle

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        handle.timer.cancel()

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Run it."""
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        # Tasks of a killed process never end.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # A task that only its own awaitable refers to would be collected.
        self._tasks.append(coro)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error; a kill is none."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Killed):
            self.errors.append(error)

    # -- to run it ---------------------------------------------------------

    def outside(self, delay: float, callback: Callable[[], object]) -> None:
        """Call it in this many seconds, whatever happens to the caller's process."""
        self.call_later(delay, callback, context=contextvars.Context())

    def take(self, handles: deque[asyncio.Handle] | tuple[()]) -> None:
        """Call these, which had to wait."""
        self._waiting.extend(handles)

    def settle(self) -> None:
        """Run everything that is due at this time."""
        waiting = self._waiting
        while waiting:
            handle = waiting.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_process)  # type: ignore[attr-defined]
            if process is not None and not process.alive:
                continue
            if process is not None and process.waiting is not None:
                process.waiting.append(handle)
                continue
            handle._run()

    def step(self) -> bool:
        """Go to the next time with an event; False: there is none."""
        when = self.clock.deadline()
        if when is None:
            return False
        self.clock.jump(max(when, self.clock.now()))
        self.settle()
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Be the loop of this thread; at the end, forget everything that waits."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            for coroutine in self._tasks:  # it grows meanwhile
                _unwind(coroutine)
            events._set_running_loop(before)
            self._waiting.clear()
            self.close()


def _unwind(coroutine: Coroutine[Any, Any, object]) -> None:
    """Let it end, even against its will; nobody sees what it does then."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
        return
    with contextlib.suppress(BaseException):
        while True:
            coroutine.throw(Killed())
