"""What a process has used so far, as Linux tells everybody."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "usage_of"]

#: clock_getcpuclockid(3), which Python has for threads only: on Linux the clock of a
#: process is ~pid << 3, and 2 for the time that the scheduler gave it.
_SCHEDULED = 2

#: proc(5), statm: resident pages.
_RESIDENT = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used.

    Attributes:
        cpu_s: processor time of all its threads.
        rss_bytes: memory.
    """

    cpu_s: float
    rss_bytes: int


def usage_of(pid: int) -> Usage | None:
    """What this process has used; None: there is no /proc, or no such process."""
    try:
        statm = (Path("/proc") / str(pid) / "statm").read_text()
        cpu_s = time.clock_gettime(~pid << 3 | _SCHEDULED)
    except OSError:
        return None
    pages = int(statm.split()[_RESIDENT])
    return Usage(cpu_s=cpu_s, rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"))
