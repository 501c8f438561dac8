"""Shares of connections: how many an address may have before login, and an account after it.

A connection counts from its accept to the end of its file descriptor, at whichever door it
comes in. Before login it counts for its address, after it for its account:

    arrive ──▶ counted for the address ── log_in ──▶ counted for the account
                        └──────────── leave ─────────────────┘

If there is no room for a stranger, the oldest connection of the address with the most
strangers makes room. So an address with few connections gets in beside one that has many.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache

from qos.core.counting import uncount
from qos.core.record import record

__all__ = ["ConnectionLimits", "ConnectionShares", "Place", "TooMany", "payer_of"]

#: By default: connections of all doors; those of one address that are not logged in, and
#: those of one account. Each takes a file descriptor.
TOTAL_MAX = 2000
ADDRESS_MAX = 400
ACCOUNT_MAX = 250

#: The addresses whose payers are remembered: to find one takes longer than to refuse one.
_REMEMBERED_MAX = 4096


@record(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections.

    Attributes:
        total: of all doors; half of them may be not logged in.
        address: of one address that are not logged in; for IPv6 of one /64.
        account: of one account that are logged in.
    """

    total: int = TOTAL_MAX
    address: int = ADDRESS_MAX
    account: int = ACCOUNT_MAX

    @property
    def strangers(self) -> int:
        """The most connections that are not logged in."""
        return max(1, self.total // 2)


class TooMany(Exception):
    """There are as many connections as may be; the text says whose."""


class Place:
    """One connection, as it is counted.

    Attributes:
        payer: its address, or '' when it is logged in.
        account: its account, or '' before it is logged in.
    """

    __slots__ = ("account", "payer")

    def __init__(self, payer: str) -> None:
        self.payer = payer
        self.account = ""


class ConnectionShares:
    """Counts connections by address and by account."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # By address, and in each the oldest first. A dict serves as an ordered set.
        self._strangers: dict[str, dict[Place, None]] = {}
        self._strangers_count = 0
        self._accounts: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of all connections."""
        return self._strangers_count + self._accounts.total()

    def arrive(self, address: str) -> tuple[Place, Place | None]:
        """Count a new connection from an IP address.

        Returns:
            Its place; and another connection that has to be ended for it, and is not
            counted any more.

        Raises:
            TooMany: there is no room for it.
        """
        payer = payer_of(address)
        own = len(self._strangers.get(payer, ()))
        if own >= self.limits.address:
            text = f"{payer} has {own} connections that are not logged in"
            raise TooMany(text)
        evicted = None
        is_full = len(self) >= self.limits.total
        if is_full or self._strangers_count >= self.limits.strangers:
            evicted = self._oldest_of_the_most(own + 1)
            if evicted is None:
                raise TooMany(f"all doors together have {len(self)} connections")
            self.leave(evicted)
        place = Place(payer)
        self._strangers.setdefault(payer, {})[place] = None
        self._strangers_count += 1
        return place, evicted

    def log_in(self, place: Place, account: str) -> None:
        """Count a connection for an account; one of another account changes sides.

        Raises:
            TooMany: the account has as many as it may have. Nothing has changed.
        """
        if place.account == account:
            return
        if self._accounts[account] >= self.limits.account:
            text = f"{account} has {self._accounts[account]} connections"
            raise TooMany(text)
        self.leave(place)
        place.payer, place.account = "", account
        self._accounts[account] += 1

    def leave(self, place: Place) -> None:
        """Count a connection no more; again is no error."""
        if place.account:
            uncount(self._accounts, place.account)
        elif place.payer:
            own = self._strangers[place.payer]
            del own[place]
            self._strangers_count -= 1
            if not own:
                del self._strangers[place.payer]
        place.payer = place.account = ""

    def _oldest_of_the_most(self, more_than: int) -> Place | None:
        """The oldest stranger of the address with the most; None: no address has more."""
        most = max(self._strangers.values(), key=len, default={})
        return next(iter(most)) if len(most) > more_than else None


@lru_cache(_REMEMBERED_MAX)
def payer_of(address: str) -> str:
    """Who pays for an IP address: itself, or its /64, since a host has all of a /64."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))
