"""Several jobs of Spark side by side: most of the time of a small one is not work.

It is spent on a plan, on code for it, and on starting tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

__all__ = ["at_once"]

#: More would wait for each other: Spark makes plans one at a time, in part.
_JOBS: Final = 4


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each of these functions returns.

    Raises:
        Exception: the first that one of them has raised. All others have ended then.
    """
    with ThreadPoolExecutor(_JOBS) as threads:
        return [each.result() for each in [threads.submit(call) for call in calls]]
