"""The processor time and memory of a process or a machine, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Usage", "Watch", "machine_s", "usage_of"]

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


def machine_s() -> float | None:
    """The processor time that this machine was not idle, in seconds, since its start.

    With what other guests of its host have taken (steal). None: no /proc.
    """
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return None
    # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, ...
    ticks = [int(each) for each in text.split(maxsplit=9)[1:9]]
    return (sum(ticks) - sum(ticks[3:5])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Notes the resources that processes use while it is entered.

    Attributes:
        cpu_s: processor time in this time, by process; without those that are not
            known.
        rss_bytes: memory at the end, likewise.
        others_share: the part of all processor time that all else on this machine has
            used in this time; None: not known.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        """Prepare.

        Args:
            pids: process ids by role: `sender`, `receiver`, `server`.
        """
        self.cpu_s: dict[str, float] = {}
        self.rss_bytes: dict[str, int] = {}
        self.others_share: float | None = None
        self._pids = pids
        self._before: dict[str, Usage] = {}
        self._machine_s: float | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._before = self._usages()
        self._machine_s, self._began = machine_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        for name, used in self._usages().items():
            if name in self._before:
                self.cpu_s[name] = used.cpu_s - self._before[name].cpu_s
                self.rss_bytes[name] = used.rss_bytes
        now_s = machine_s()
        if now_s is not None and self._machine_s is not None:
            used_s = now_s - self._machine_s - sum(self.cpu_s.values())
            all_s = (time.monotonic() - self._began) * (os.cpu_count() or 1)
            # Of clocks that are read one after the other, the first is in ticks.
            self.others_share = min(max(used_s, 0.0) / all_s, 1.0)

    def _usages(self) -> dict[str, Usage]:
        usages = {name: usage_of(pid) for name, pid in self._pids.items()}
        return {name: used for name, used in usages.items() if used is not None}
