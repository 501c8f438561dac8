"""The jobs of a worker that wait for a handler, in the order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque

from qos.worker.job import Job

__all__ = ["JobQueue"]


class JobQueue:
    """A queue of jobs, which skips jobs that were lost while they waited.

    Attributes:
        closed: whether there will be no more jobs.
    """

    def __init__(self) -> None:
        self.closed = False
        self._waiting: deque[Job] = deque()
        # The futures of idle takers, in the order in which they came.
        self._idle: dict[asyncio.Future[None], None] = {}

    def put(self, job: Job) -> None:
        """Add a job, and wake one taker."""
        self._waiting.append(job)
        self._wake()

    async def next(self) -> Job | None:
        """Wait for the next job; None: there will be no more."""
        while True:
            while self._waiting:
                job = self._waiting.popleft()
                if job.held:
                    return job
            if self.closed:
                return None
            await self._woken()

    def clear(self) -> list[Job]:
        """Remove all jobs that wait; returns them."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def close(self) -> list[Job]:
        """End the queue; returns the jobs that waited, and are still held."""
        self.closed = True
        while self._idle:
            self._wake()
        return [job for job in self.clear() if job.held]

    async def _woken(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle[woken] = None
        try:
            await woken
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled():
                self._wake()  # another taker must get the job
            raise
        finally:
            self._idle.pop(woken, None)

    def _wake(self) -> None:
        while self._idle:
            woken = next(iter(self._idle))
            del self._idle[woken]
            # A taker that was cancelled just now needs no job.
            if not woken.done():
                woken.set_result(None)
                return
