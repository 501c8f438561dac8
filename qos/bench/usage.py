"""The processor time and memory of a process, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Usage", "Watch", "usage_of"]

#: clock_getcpuclockid(3), which Python has only for threads. On Linux the clock of a
#: process is ~pid << 3, and 2 for the time that the scheduler gave it.
_SCHEDULED = 2

#: proc(5), statm: resident pages.
_RESIDENT = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process has used.

    Attributes:
        cpu_s: processor time of all its threads.
        rss_bytes: memory.
    """

    cpu_s: float
    rss_bytes: int


def usage_of(pid: int) -> Usage | None:
    """The resources that this process has used; None: no /proc, or no such process."""
    try:
        statm = (Path("/proc") / str(pid) / "statm").read_text()
        cpu_s = time.clock_gettime(~pid << 3 | _SCHEDULED)
    except OSError:
        return None
    pages = int(statm.split()[_RESIDENT])
    return Usage(cpu_s=cpu_s, rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"))


class Watch:
    """Notes the resources that processes use while it is entered.

    Attributes:
        cpu_s: processor time in this time, by process; without those that are not
            known.
        rss_bytes: memory at the end, likewise.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        """Prepare.

        Args:
            pids: process ids by role: `sender`, `receiver`, `server`.
        """
        self.cpu_s: dict[str, float] = {}
        self.rss_bytes: dict[str, int] = {}
        self._pids = pids
        self._before: dict[str, Usage] = {}

    def __enter__(self) -> Self:
        self._before = self._usages()
        return self

    def __exit__(self, *_: object) -> None:
        for name, used in self._usages().items():
            if name in self._before:
                self.cpu_s[name] = used.cpu_s - self._before[name].cpu_s
                self.rss_bytes[name] = used.rss_bytes

    def _usages(self) -> dict[str, Usage]:
        usages = {name: usage_of(pid) for name, pid in self._pids.items()}
        return {name: used for name, used in usages.items() if used is not None}
