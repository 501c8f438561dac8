"""Spark jobs in parallel: a small job spends little of its time on its work.

Most of the time is spent on a plan, on code for it, and on starting tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

__all__ = ["in_parallel"]

#: More jobs would wait for each other: a part of Spark makes plans one at a time.
_JOBS: Final = 4


def in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """The results of these functions.

    Raises:
        Exception: the first error of one of them. By then, all others have ended.
    """
    with ThreadPoolExecutor(_JOBS) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]
