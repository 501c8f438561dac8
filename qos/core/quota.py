"""Quotas: the limits per account, per foreign domain, and in total.

Everything is counted by bare JID. Full JIDs cost an account nothing, so counting by
full JID would give it as many shares as it likes. Accounts cost a foreign domain
nothing either, so each foreign domain has a limit of its own. The accounts of the own
domain are limited one by one and by the total only: a service never locks out the
domain that it serves by a limit for that domain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from qos.core.strings import domain_of

__all__ = [
    "CREDIT_MAX",
    "Ledger",
    "Quotas",
    "Share",
    "Tally",
    "own_domains",
]

#: The most messages that a sender is told that it may send: enough for any link.
CREDIT_MAX = 1_000


def own_domains(jid: str, *, component: bool) -> frozenset[str]:
    """The domains whose accounts are not foreign to the entity with this JID.

    For an account, its own domain. For a component, its domain and the domain above it:
    the users of queue.example.org are the accounts of example.org.
    """
    domain = domain_of(jid)
    above = domain.partition(".")[2]
    return frozenset({domain, above} if component and above else {domain})


@dataclass(frozen=True, slots=True)
class Share:
    """The amounts of one thing that may be used.

    Attributes:
        account: by one account.
        domain: by all accounts of one foreign domain; never less than `account`.
        total: by all accounts.
    """

    account: int
    domain: int
    total: int

    def __post_init__(self) -> None:
        _check(self)


def _check(bounds: Share | Quotas) -> None:
    for field in fields(bounds):
        value = getattr(bounds, field.name)
        if value < 0:
            raise ValueError(f"a bound cannot be negative: {field.name} = {value}")


class Tally:
    """The amounts that accounts, domains and all together use at present.

    An account or domain that uses nothing has no entry.
    """

    def __init__(self, share: Share, own_domains: Collection[str] = ()) -> None:
        self._share = share
        self._domain_max = max(share.domain, share.account)
        self._own_domains = own_domains
        self._accounts: dict[str, int] = {}
        self._domains: dict[str, int] = {}
        self._total = 0

    def room(self, account: str) -> int:
        """How much more all limits together allow.

        Negative where the amounts loaded from a store were too large.
        """
        share, domain = self._share, domain_of(account)
        room = share.account - self._accounts.get(account, 0)
        if domain not in self._own_domains:
            room = min(room, self._domain_max - self._domains.get(domain, 0))
        return min(room, share.total - self._total)

    def refusal(self, account: str, more: int = 1) -> str | None:
        """The first limit that more would exceed, or None.

        One of `account`, `domain` (if foreign) and `total`.
        """
        if more <= self.room(account):
            return None
        if more > self._share.account - self._accounts.get(account, 0):
            return "account"
        domain = domain_of(account)
        foreign = domain not in self._own_domains
        if foreign and more > self._domain_max - self._domains.get(domain, 0):
            return "domain"
        return "total"

    def add(self, account: str, more: int = 1) -> None:
        """Count this many more (or fewer, if negative).

        No limit is checked: amounts loaded from a store count even if they are too
        large.
        """
        _count(self._accounts, account, more)
        domain = domain_of(account)
        if domain not in self._own_domains:
            _count(self._domains, domain, more)
        self._total += more
        assert self._total >= 0

    def used(self, account: str | None = None) -> int:
        """The amount that an account uses, or all accounts together (None)."""
        return self._total if account is None else self._accounts.get(account, 0)

    @property
    def accounts(self) -> int:
        """The number of accounts that use something."""
        return len(self._accounts)


def _count(counts: dict[str, int], name: str, more: int) -> None:
    """Add to a count; at 0 it has no entry."""
    count = counts.get(name, 0) + more
    assert count >= 0
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits on held messages (proto-XEP, Memory attacks).

    Bytes are those of payloads.

    Attributes:
        messages: of one account.
        bytes: of one account.
        total_messages: of all accounts together.
        total_bytes: of all accounts together.
        domain_messages: of all accounts of one foreign domain; never less than
            `messages`.
        domain_bytes: likewise; never less than `bytes`.
    """

    messages: int = 1_000
    bytes: int = 4 * 1024 * 1024
    total_messages: int = 10_000
    total_bytes: int = 64 * 1024 * 1024
    domain_messages: int = 2_500
    domain_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        _check(self)


class Ledger:
    """The messages and bytes that each account has at present.

    An account without messages has no entry.
    """

    def __init__(self, quotas: Quotas, own_domains: Collection[str] = ()) -> None:
        self._messages = Tally(
            Share(quotas.messages, quotas.domain_messages, quotas.total_messages),
            own_domains,
        )
        self._bytes = Tally(
            Share(quotas.bytes, quotas.domain_bytes, quotas.total_bytes), own_domains
        )

    def refusal(self, account: str, size: int) -> str | None:
        """The quota that one more message of this size would exceed, or None."""
        name, bound = "messages", self._messages.refusal(account)
        if bound is None:
            name, bound = "bytes", self._bytes.refusal(account, size)
        if bound is None:
            return None
        return name if bound == "account" else f"{bound}_{name}"

    def credit(self, account: str, size: int) -> int:
        """Return how many more messages of this size the account may send now.

        At most CREDIT_MAX.
        """
        most = min(CREDIT_MAX, self._messages.room(account))
        if size:
            most = min(most, self._bytes.room(account) // size)
        return max(0, most)

    def reserve(self, account: str, size: int) -> None:
        """Count a message.

        No quota is checked: messages loaded from a store count even if they are too
        many.
        """
        self._messages.add(account)
        self._bytes.add(account, size)

    def refund(self, account: str, size: int) -> None:
        """Stop counting a message that was reserved."""
        self._messages.add(account, -1)
        self._bytes.add(account, -size)

    def used(self, account: str | None = None) -> tuple[int, int]:
        """Messages and bytes of an account, or of all (None)."""
        return self._messages.used(account), self._bytes.used(account)

    @property
    def accounts(self) -> int:
        """The number of accounts with at least one counted message."""
        return self._messages.accounts
