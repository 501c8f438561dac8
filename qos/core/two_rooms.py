"""A bounded table with a room for the known and a room for strangers.

Strangers can fill their own room only: however many they are, no entry of a known key is
forgotten for them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["TwoRooms"]

K = TypeVar("K")
V = TypeVar("V")


class TwoRooms(Generic[K, V]):
    """Values by key; in each room the newest are kept.

    Args:
        contacts_max: the most entries of the known.
        strangers_max: the most entries of strangers.

    Attributes:
        known: the entries of the known, only to be read; and
        strangers: those of strangers: for whoever looks at them for each message, and
            cannot afford a call.
        crowded: whether an entry of the known had to be forgotten.
    """

    def __init__(self, contacts_max: int, strangers_max: int) -> None:
        self.known: dict[K, V] = {}
        self.strangers: dict[K, V] = {}
        self._contacts_max, self._strangers_max = contacts_max, strangers_max
        self.crowded = False

    def put(self, key: K, value: V, *, stranger: bool) -> None:
        """Set a value as the newest of its room."""
        self.pop(key)
        room = self.strangers if stranger else self.known
        room[key] = value
        if len(room) > (self._strangers_max if stranger else self._contacts_max):
            del room[next(iter(room))]
            self.crowded |= not stranger

    def get(self, key: K) -> V | None:
        """The value of a key, from either room, or None."""
        value = self.known.get(key)
        return self.strangers.get(key) if value is None else value

    def pop(self, key: K) -> V | None:
        """Forget a key; return its value, or None."""
        value = self.known.pop(key, None)
        other = self.strangers.pop(key, None)
        return other if value is None else value

    def clear(self) -> None:
        """Forget all."""
        self.known.clear()
        self.strangers.clear()
        self.crowded = False

    def __contains__(self, key: object) -> bool:
        return key in self.known or key in self.strangers

    def __len__(self) -> int:
        return len(self.known) + len(self.strangers)
