"""The order in which the addresses of a server are tried (RFC 8305 §4).

What failed lately is tried last: it may work again, but nobody should wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Final, TypeAlias

__all__ = ["ADDRESSES_MAX", "BAD_S", "Address", "AddressBook", "interleaved"]

#: An IP address as text, and a port.
Address: TypeAlias = tuple[str, int]

#: For so many seconds an address that failed is tried after those that did not.
BAD_S: Final = 600.0

#: More addresses of a server are not looked at, and not remembered.
ADDRESSES_MAX: Final = 16


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """IPv6 and IPv4 by turns, IPv6 first, each in the order given and once."""
    distinct = list(dict.fromkeys(addresses))
    six = [address for address in distinct if ":" in address[0]]
    four = [address for address in distinct if ":" not in address[0]]
    pairs = chain.from_iterable(zip_longest(six, four))
    return [address for address in pairs if address is not None]


class AddressBook:
    """Remembers which addresses of one server have failed lately."""

    def __init__(self) -> None:
        self._failed_at: dict[Address, float] = {}

    def order(self, addresses: Iterable[Address], now: float) -> list[Address]:
        """The addresses to try, in the order given; those that failed are the last.

        Of these, the one that failed first comes first.
        """
        candidates = list(dict.fromkeys(addresses))[:ADDRESSES_MAX]
        self._failed_at = {
            address: at for address, at in self._failed_at.items() if now - at < BAD_S
        }
        return sorted(
            candidates, key=lambda address: self._failed_at.get(address, -math.inf)
        )

    def good(self, addresses: Iterable[Address]) -> int:
        """How many of these have not failed lately."""
        return sum(address not in self._failed_at for address in addresses)

    def failed(self, address: Address, now: float) -> None:
        """Note that this one brought no session, or was slower than another."""
        self._failed_at.pop(address, None)
        self._failed_at[address] = now
        if len(self._failed_at) > ADDRESSES_MAX:
            del self._failed_at[next(iter(self._failed_at))]

    def worked(self, address: Address) -> None:
        """Note that this one has brought a session."""
        self._failed_at.pop(address, None)
