"""Waiting in tests: for an event, with one limit for all of them.

A limit here only ends a test that would wait for ever: it says nothing about how fast
something is, and no test may depend on it. A machine that is slower still sets
`PATIENCE=3`, which multiplies this limit and that of each test (see tests/conftest.py).
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Final

#: By how much the limits are longer than usual.
PATIENCE: Final = float(os.environ.get("PATIENCE", "1"))

#: Real seconds that anything in a test may take.
LIMIT_S: Final = 40.0 * PATIENCE

#: Seconds between two looks at something that has no event.
_LOOK_S: Final = 0.01


def limit() -> asyncio.Timeout:
    """Bound a block of code: `async with limit(): await device.closed()`."""
    return asyncio.timeout(LIMIT_S)


async def until(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
) -> None:
    """Wait until this function, or coroutine function, returns something true."""
    async with limit():
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return
            await asyncio.sleep(_LOOK_S)
