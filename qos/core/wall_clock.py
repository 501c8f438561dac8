"""Wrong clocks: how far the times in a store move when a process starts.

A machine may start in 1970, and have the right time an hour later; or its clock may be
five hours ahead until somebody sets it. Times in a store are by the clock of the process
that wrote them, so an age may be wrong by years. A process that starts can only compare
its own time with the newest time in the store. If its own is *plausible*, not earlier
and at most a year later, the time between the two has passed, and counts. If not, nobody
knows how much time has passed, and none of it counts: all times in the store move by one
length, so that the newest one becomes the present.

So wrong clocks keep for too long, and never forget. And no lock or delay lasts longer than
its own length, since its end moves with its beginning.
"""

from __future__ import annotations

__all__ = ["shift_s"]

#: The longest plausible time between the newest time in a store and a start.
_YEAR_S = 365 * 24 * 3600.0


def shift_s(newest: float | None, now: float) -> float:
    """The length by which all times in a store move, in seconds; 0: they stay.

    Args:
        newest: the newest time in the store at which something has happened; None:
            there is none.
        now: the time of the process that starts.
    """
    if newest is None or newest <= now <= newest + _YEAR_S:
        return 0.0
    return now - newest
