"""The clock of the loop, which a test turns: for tests beside a real server.

Retries, deadlines and locks of everything in this process wait by the clock of its loop.
A test gives them minutes, which no busy machine reaches, and lets the minutes pass when it
wants them to end:

    async with device(prosody, "alice/a", retry_first_s=100) as alice:
        ...
        await let_pass(100)  # the retry is sent

The server and other processes notice nothing. Without a real server, the whole test can
be in virtual time: see `_VIRTUAL_TIME` in tests/conftest.py.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["let_pass"]

#: By how much the clock of a loop was turned, in seconds.
_turned: WeakKeyDictionary[asyncio.BaseEventLoop, float] = WeakKeyDictionary()

_usual_time = asyncio.BaseEventLoop.time


def _time(loop: asyncio.BaseEventLoop) -> float:
    return _usual_time(loop) + _turned.get(loop, 0.0)


# From the import on: whoever keeps `loop.time` keeps a clock that can be turned.
asyncio.BaseEventLoop.time = _time  # type: ignore[method-assign,assignment]


async def let_pass(seconds: float) -> None:
    """Turn the clock of this loop, and let begin what has become due.

    A limit that runs already, such as one of `waiting.limit`, becomes shorter.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    _turned[loop] = _turned.get(loop, 0.0) + seconds
    # In the first turn the loop sees which timers are due; it calls them behind us.
    for _ in range(3):
        await asyncio.sleep(0)
