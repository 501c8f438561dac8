"""Exponential backoff with jitter: the delay before the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backoff"]

#: The number of doublings after which any delay has reached its cap. It keeps the power
#: of two small, even after a year of attempts.
_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter, clamped at both ends.

    There is a lower clamp because the delay is also the time that a peer has for its
    answer: with a jitter near 0 every retry would come too early.

    Attributes:
        first_s: the first delay, and the shortest.
        max_s: the cap.
    """

    first_s: float = 2.0
    max_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.max_s:
            raise ValueError(
                f"retry delays must satisfy 0 < first <= max: {self.first_s} "
                f"and {self.max_s}"
            )

    def delay_s(self, tries: int, jitter: float) -> float:
        """The delay in seconds after this many tries, 1 or more; jitter in [0, 1)."""
        doublings = min(tries - 1, _DOUBLINGS_MAX)
        ceiling = min(self.max_s, self.first_s * 2.0**doublings)
        return max(self.first_s, jitter * ceiling)

    def ceiling_s(self, tries: int) -> float:
        """The longest delay in seconds after this many tries, 1 or more."""
        return self.delay_s(tries, 1.0)
