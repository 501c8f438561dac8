"""Handlers of a worker that are plain functions: they run in threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from qos.worker.job import Job

__all__ = ["InThreads"]


class InThreads:
    """Calls a plain function for each job in a thread; at its end the job has its result.

    A thread cannot be ended. If its job is given back meanwhile, since the worker has
    stopped and its grace time is over, the function goes on to its end for nothing.
    """

    def __init__(self, function: Callable[[Job], object], threads_max: int) -> None:
        """Begin without threads; one is made when it is needed."""
        self._function = function
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="qos.worker")

    async def __call__(self, job: Job) -> None:
        """Return when the function does, or raise what it raises."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._pool, context.run, self._call, job)
        # Of a lambda around a coroutine function, for example.
        if inspect.isawaitable(result):
            await result

    def close(self) -> None:
        """Begin with no further job. The threads end with their functions."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, job: Job) -> object:
        try:
            return self._function(job)
        except StopIteration as error:
            # A future refuses it, and nobody would ever hear of the end.
            raise RuntimeError("the handler raised StopIteration") from error
