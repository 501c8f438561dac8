"""The signals that stop workers: all workers of an event loop that have asked for it.

A loop has one handler for a signal. So the workers share it, and the last one removes
it.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

__all__ = ["Stoppable", "forget", "stop_on_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """An object that a signal stops."""

    def stop(self) -> None:
        """Stop in order; when called again, stop at once."""


# Both are weak: a worker is held by its tasks while it works, and by nothing
# afterwards.
_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Stoppable]]
_workers = WeakKeyDictionary()


def stop_on_signals(loop: asyncio.AbstractEventLoop, worker: Stoppable) -> None:
    """Let SIGTERM and SIGINT stop this worker, besides those that they stop already."""
    workers = _workers.setdefault(loop, WeakSet())
    workers.add(worker)
    for number in _SIGNALS:
        loop.add_signal_handler(number, _stop, workers)


def forget(loop: asyncio.AbstractEventLoop, worker: Stoppable) -> None:
    """Remove a worker; harmless if it has never asked."""
    workers = _workers.get(loop)
    if workers is None or worker not in workers:
        return
    workers.discard(worker)
    if not workers:
        del _workers[loop]
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _stop(workers: WeakSet[Stoppable]) -> None:
    for worker in tuple(workers):
        worker.stop()
