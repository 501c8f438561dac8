"""Wrong clocks: how far the times in a store move when a process starts.

A machine may start in 1970, and have the right time an hour later; or its clock may be
five hours ahead until somebody sets it. Times in a store are by the clock of the process
that wrote them, so an age may be wrong by years. A process that starts can only compare
its own time with the newest time in the store. If its own is *plausible*, not earlier
and at most a year later, the time between the two has passed, and counts. If not, nobody
knows how much time has passed, and none of it counts: all times in the store move by one
length, so that the newest one becomes the present.

A clock that was an hour behind comes back some day, and a plausible hour seems to have
passed. So the store remembers by how much its clock is behind what it has shown before,
and the first time by which it comes forward again does not count either.

So a clock that goes back and comes back keeps for too long, and never forgets. Nor does
one that jumps by more than a year. A clock that jumps ahead by less than a year cannot be
told from a process that was not running for so long: that time counts. And no lock or
delay lasts longer than its own length, since its end moves with its beginning.
"""

from __future__ import annotations

from typing import Final

from qos.core.record import record

__all__ = ["ClockHistory", "shift"]

#: The longest plausible time between the newest time in a store and a start.
_YEAR_S: Final = 365 * 24 * 3600.0


@record(frozen=True, slots=True)
class ClockHistory:
    """By how much a store had to correct the clocks of those who opened it.

    Attributes:
        moved_s: by how much all its times have moved since it was created, in seconds.
        behind_s: by how much its clock is behind what it has shown before, in seconds.
            Negative: it is ahead, since it has jumped ahead by more than a year.
    """

    moved_s: float = 0.0
    behind_s: float = 0.0


def shift(
    newest: float | None, now: float, history: ClockHistory
) -> tuple[float, ClockHistory]:
    """By how much all times in a store move at a start, in seconds; 0: they stay.

    Args:
        newest: the newest time in the store at which something has happened; None:
            there is none.
        now: the time of the process that starts.
        history: what the store remembers.

    Returns: the length, and what the store remembers from now on.
    """
    if newest is None:
        return 0.0, history
    passed_s = now - newest
    by_s = _not_counted_s(passed_s, history.behind_s)
    if not by_s:
        return 0.0, history
    behind_s = history.behind_s
    if -_YEAR_S <= by_s < 0.0:
        # So short a jump does not undo one of more than a year.
        behind_s = max(behind_s, 0.0)
    return by_s, ClockHistory(history.moved_s + by_s, behind_s - by_s)


def _not_counted_s(passed_s: float, behind_s: float) -> float:
    """How much of the time that seems to have passed is only of a clock that was set."""
    if not 0.0 <= passed_s <= _YEAR_S:
        return passed_s
    # Further behind than that it would have to come forward by more.
    return min(passed_s, behind_s) if 0.0 < behind_s <= _YEAR_S else 0.0
