"""The virtual clock of tests (looptime), repaired where it does not fit our loops."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest
from looptime import LoopTimeEventLoop

__all__ = ["repair"]

#: What looptime knows of the threads of a loop, by the name that Python makes of it.
_IN_THREADS: Final = "_LoopTimeEventLoop__sync_futures"

#: How long a look at the virtual clock takes, in seconds.
_LOOK_S: Final = 1e-9


def repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repair looptime until the end of a test.

    It must not forget what a fixture has begun in a thread, as the commits of a store:
    it would run ahead of them. And it must not stand still while somebody looks at it: a
    loop that sleeps until a moment, and comes to it a rounding error too early, would
    sleep again for no time at all, for ever.
    """
    set_up, time = LoopTimeEventLoop.setup_looptime, LoopTimeEventLoop.time
    looks = itertools.count()

    def set_up_again(loop: LoopTimeEventLoop, **options: Any) -> None:
        begun = list(getattr(loop, _IN_THREADS, ()))
        set_up(loop, **options)
        getattr(loop, _IN_THREADS).update(begun)

    def time_goes_on(loop: LoopTimeEventLoop) -> float:
        passed_s = next(looks) * _LOOK_S if loop.looptime_on else 0.0
        return time(loop) + passed_s

    monkeypatch.setattr(LoopTimeEventLoop, "setup_looptime", set_up_again)
    monkeypatch.setattr(LoopTimeEventLoop, "time", time_goes_on)
