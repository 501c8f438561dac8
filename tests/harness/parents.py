"""Processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let this process be killed when its parent ends, even by SIGKILL; Linux only.

    If multiprocessing has started it, and its parent has ended already, that is now.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)
