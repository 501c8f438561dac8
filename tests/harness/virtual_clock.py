"""The virtual clock of tests (looptime), repaired where it does not fit our loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest
from looptime import LoopTimeEventLoop

__all__ = ["repair"]

#: What looptime knows of a loop, by the names that Python makes of it: its threads, the
#: select() below it, and how often it has found nothing to do, of how many times at most.
_IN_THREADS: Final = "_LoopTimeEventLoop__sync_futures"
_SELECT: Final = "_LoopTimeEventLoop__original_select"
_IDLE_CYCLE: Final = "_LoopTimeEventLoop__noop_cycle"
_IDLE_CYCLES: Final = "_LoopTimeEventLoop__noop_limit"

#: How long a look at the virtual clock takes, in seconds.
_LOOK_S: Final = 1e-9

#: How long the kernel may run before the clock jumps, in seconds of real time.
_ON_THE_WAY_S: Final = 0.001


def repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repair looptime until the end of a test.

    It must not forget what a fixture has begun in a thread, as the commits of a store:
    it would run ahead of them. And it must not stand still while somebody looks at it: a
    loop that sleeps until a moment, and comes to it a rounding error too early, would
    sleep again for no time at all, for ever. And it must not run ahead of bytes that are
    on their way from one socket of this process to another; see `_wait_for_sockets`.
    """
    set_up, time = LoopTimeEventLoop.setup_looptime, LoopTimeEventLoop.time
    looks = itertools.count()

    def set_up_again(loop: LoopTimeEventLoop, **options: Any) -> None:
        begun = list(getattr(loop, _IN_THREADS, ()))
        is_new = not hasattr(loop, _SELECT)
        set_up(loop, **options)
        getattr(loop, _IN_THREADS).update(begun)
        if is_new:
            setattr(loop, _SELECT, _wait_for_sockets(loop, getattr(loop, _SELECT)))

    def time_goes_on(loop: LoopTimeEventLoop) -> float:
        passed_s = next(looks) * _LOOK_S if loop.looptime_on else 0.0
        return time(loop) + passed_s

    monkeypatch.setattr(LoopTimeEventLoop, "setup_looptime", set_up_again)
    monkeypatch.setattr(LoopTimeEventLoop, "time", time_goes_on)


def _wait_for_sockets(
    loop: LoopTimeEventLoop, select: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    """A select() that waits for a moment before the clock jumps, where there are sockets.

    On a busy machine a thread of the kernel carries bytes from one socket to another. It
    waits for a core, and the seconds of a test may pass before this process gives one up.
    """

    def select_or_wait(timeout: float | None) -> list[Any]:
        cycle, cycles = getattr(loop, _IDLE_CYCLE), getattr(loop, _IDLE_CYCLES)
        is_last = timeout == 0 and cycle is not None and cycle >= cycles
        # One is the loop's own, by which other threads wake it.
        has_sockets = len(loop._selector.get_map()) > 1
        return select(_ON_THE_WAY_S if is_last and has_sockets else timeout)

    return select_or_wait
