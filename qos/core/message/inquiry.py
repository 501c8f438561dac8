"""How long a peer has to answer, and when its silence is evidence that it has gone."""

from __future__ import annotations

from typing import Final

from qos.core.message.flow import Pace

__all__ = ["ANSWER_S_MAX", "answer_limit_s", "is_silent"]

#: The longest time to wait for an answer, in seconds, and the doublings to get there.
ANSWER_S_MAX: Final = 60.0
_DOUBLINGS: Final = 16


def answer_limit_s(pace: Pace, least_s: float, unanswered: int) -> float:
    """The seconds that a question to a peer has.

    Args:
        pace: the round trips that were seen.
        least_s: the least time.
        unanswered: the questions in a row that the peer has left without an answer.
    """
    first_s = max(least_s, pace.patience_s(1, 0))
    return min(max(ANSWER_S_MAX, least_s), first_s * 2.0 ** min(unanswered, _DOUBLINGS))


def is_silent(since: float | None, now: float, limit_s: float) -> bool:
    """Whether a resource has not answered the repeat of a message, either.

    Args:
        since: when its first answer was due, and the message repeated; None: it owes none.
        now: the time.
        limit_s: the seconds that an answer may take.
    """
    return since is not None and now - since >= limit_s
