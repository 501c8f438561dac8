"""A queue of logins that wait to be checked: a turn for each address, then for each name.

    192.0.2.1 ──▶ shop: guess, guess, guess      first turn: shop's first guess
    192.0.2.2 ──▶ till: password                 second turn: till's password
                  lamp: password                 third: shop's; fourth: lamp's …

So whoever tries many passwords waits for its own tries, and others do not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ADDRESS_MAX", "Full", "LoginQueue"]

#: The most entries of one address.
ADDRESS_MAX = 500

_T = TypeVar("_T", bound=Hashable)


class Full(Exception):
    """An address has as many entries as it may have."""


class LoginQueue(Generic[_T]):
    """The entries that wait. An entry is at most once in the lane of an address and name."""

    def __init__(self, address_max: int = ADDRESS_MAX) -> None:
        self._address_max = address_max
        # By address and name, each in the order of its next turn. The innermost dict
        # serves as an ordered set.
        self._lanes: OrderedDict[str, OrderedDict[str, dict[_T, None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, address: str, name: str, entry: _T) -> _T | None:
        """Let an entry wait.

        Returns:
            Another entry of this address, that waits there no more: if the address has
            too many, the newest one of the name with the most.

        Raises:
            Full: the address has too many, and each name as few as this one would have.
        """
        lanes = self._lanes.get(address, OrderedDict())
        evicted = None
        if sum(map(len, lanes.values())) >= self._address_max:
            most = max(lanes, key=lambda login: len(lanes[login]))
            if len(lanes[most]) <= len(lanes.get(name, ())) + 1:
                raise Full
            evicted = next(reversed(lanes[most]))
            self.remove(address, most, evicted)
        lane = self._lanes.setdefault(address, OrderedDict()).setdefault(name, {})
        lane[entry] = None
        return evicted

    def take(self) -> tuple[str, _T]:
        """Take out the entry whose turn it is; returns its address too."""
        address, lanes = next(iter(self._lanes.items()))
        name, lane = next(iter(lanes.items()))
        entry = next(iter(lane))
        lanes.move_to_end(name)
        self._lanes.move_to_end(address)
        self.remove(address, name, entry)
        return address, entry

    def remove(self, address: str, name: str, entry: _T) -> None:
        """Take out this entry."""
        lanes = self._lanes[address]
        del lanes[name][entry]
        if not lanes[name]:
            del lanes[name]
        if not lanes:
            del self._lanes[address]
