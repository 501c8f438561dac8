"""A higher priority for all that is measured, so that other programs do not disturb it.

It is set before the processes are started, and they inherit it.
"""

from __future__ import annotations

import os

__all__ = ["raise_priority"]

#: Of real-time processes, the least: above every ordinary one.
_REAL_TIME = 1

_NICE = -10


def raise_priority() -> str | None:
    """Raise the priority of this process and of those that it will start.

    With SCHED_RR (sched(7)) a process runs until it waits, so that the three processes
    of a row do not interrupt each other either. If that is not allowed, a lower nice
    value has to do.

    Returns:
        What was set, for a report; None: neither is allowed.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REAL_TIME))
    except (OSError, AttributeError):  # not Linux, or no CAP_SYS_NICE
        try:
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        except OSError:
            return None
        return f"nice {_NICE}"
    return f"SCHED_RR, priority {_REAL_TIME}"
