"""A registry: a dict in which no living entry is ever written over."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeVar

__all__ = ["register"]

K = TypeVar("K")
V = TypeVar("V")


def register(entries: MutableMapping[K, V], key: K, entry: V) -> None:
    """Add an entry under a key that is free.

    An entry that is written over is found by nobody any more, and so never ended. The
    caller ends it first, or refuses the new one.

    Raises:
        AssertionError: the key has a living entry, which is a mistake of ours.
    """
    if key in entries:
        raise AssertionError(f"{key!r} has a living entry")
    entries[key] = entry
