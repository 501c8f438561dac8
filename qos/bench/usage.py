"""What a process has used so far, as Linux tells everybody."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "usage_of"]

#: proc(5), stat: utime and stime, counted from the name's closing parenthesis.
_USER, _SYSTEM = 11, 12

#: Likewise statm: resident pages.
_RESIDENT = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used.

    Attributes:
        cpu_s: processor time of all its threads, in steps of 10 ms mostly.
        rss_bytes: memory.
    """

    cpu_s: float
    rss_bytes: int


def usage_of(pid: int) -> Usage | None:
    """What this process has used; None: there is no /proc, or no such process."""
    folder = Path("/proc") / str(pid)
    try:
        stat = (folder / "stat").read_text()
        statm = (folder / "statm").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    pages = int(statm.split()[_RESIDENT])
    return Usage(
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
        rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
    )
