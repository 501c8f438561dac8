"""Long work in short steps: between them, the event loop can serve others."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Steps", "at_once"]

T = TypeVar("T")

#: Each step lasts about a millisecond at the most, and the last one has the result.
Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """Do all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
