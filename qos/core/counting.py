"""Counters that forget what they count none of, so that they take no memory for it."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

__all__ = ["uncount"]

K = TypeVar("K")


def uncount(counter: Counter[K], key: K, count: int = 1) -> None:
    """Count so many less; the last one takes the key with it."""
    counter[key] -= count
    if not counter[key]:
        del counter[key]
