"""The command with a clock that a test can turn: an hour passes in a moment.

    running = await Forked.start(turned_clock.command, words, environment)
    …  # until it waits for time to pass
    os.kill(running.pid, turned_clock.TURNS)

Thus a time-out or a deadline can be long enough for any machine, and still costs no time.
"""

from __future__ import annotations

import asyncio
import signal
import time as machine
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Final

import forked

__all__ = ["HOUR_S", "TURNS", "command", "patient", "wrong"]

#: The signal that turns the clock.
TURNS: Final = signal.SIGUSR2

#: By how much, in seconds.
HOUR_S: Final = 3600.0


def command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `xmpp-qos` with these words."""
    runs = asyncio.BaseEventLoop.time
    turned_s = 0.0

    def time(loop: asyncio.BaseEventLoop) -> float:
        return runs(loop) + turned_s

    def turn(_number: int, _frame: FrameType | None) -> None:
        nonlocal turned_s
        turned_s += HOUR_S
        loop = asyncio._get_running_loop()
        if loop is not None:
            # It may wait, for as long as it knew.
            loop.call_soon_threadsafe(lambda: None)

    asyncio.BaseEventLoop.time = time  # type: ignore[method-assign,assignment]
    signal.signal(TURNS, turn)
    return forked.command(words, environment)


def wrong(words: Sequence[str], environment: Mapping[str, str], ahead_s: float) -> int:
    """The same, at a machine whose clock is ahead by this; negative: it is behind."""
    runs = machine.time
    machine.time = lambda: runs() + ahead_s
    return command(words, environment)


def patient(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """The same; at its end `listen` waits for its senders until the clock is turned."""
    from qos.cli import listen

    listen._CONFIRMED_S = HOUR_S
    return command(words, environment)
