"""Quotas: of one account, of one foreign domain, and of all together.

What is bounded counts by bare JID: a full JID costs its owner nothing, so he could have
as many shares as he likes. A foreign domain has a bound of its own, since its accounts
cost it nothing either. The accounts of the own domain are bounded one by one, and by the
total: the domain that a service is there for is never locked out by its own bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from qos.core.strings import bare

__all__ = ["Ledger", "Quotas", "Share", "Tally", "domain_of", "own_domains"]


def domain_of(jid: str) -> str:
    """The domain of a JID, bare or full."""
    return bare(jid).rpartition("@")[2]


def own_domains(jid: str, *, component: bool) -> frozenset[str]:
    """The domains whose accounts are no strangers to the entity with this JID.

    The domain of an account. For a component also the domain above its own: the accounts
    of queue.example.org's server are those of example.org.
    """
    domain = domain_of(jid)
    above = domain.partition(".")[2]
    return frozenset({domain, above} if component and above else {domain})


@dataclass(frozen=True, slots=True)
class Share:
    """The amount of something that may be taken.

    Attributes:
        account: by one account.
        domain: by all accounts of one foreign domain; never less than by one account.
        total: by all.
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
    """The amounts that each account, each domain and all together have now.

    Whoever has none has no entry.
    """

    def __init__(self, share: Share, own_domains: Collection[str] = ()) -> None:
        self._share = share
        self._own_domains = own_domains
        self._accounts: dict[str, int] = {}
        self._domains: dict[str, int] = {}
        self._total = 0

    def refusal(self, account: str, more: int = 1) -> str | None:
        """Which bound so many more would exceed: `account`, `domain`, `total` or None."""
        share, domain = self._share, domain_of(account)
        if self.used(account) + more > share.account:
            return "account"
        of_domain = self._domains.get(domain, 0) + more
        foreign = domain not in self._own_domains
        if foreign and of_domain > max(share.domain, share.account):
            return "domain"
        return "total" if self._total + more > share.total else None

    def add(self, account: str, more: int = 1) -> None:
        """Count so many more, or fewer; not checked: what was there before counts too."""
        _add(self._accounts, account, more)
        _add(self._domains, domain_of(account), more)
        self._total += more
        assert self._total >= 0

    def used(self, account: str | None = None) -> int:
        """How much an account has, or all (None)."""
        return self._total if account is None else self._accounts.get(account, 0)

    @property
    def accounts(self) -> int:
        """How many accounts have some."""
        return len(self._accounts)


def _add(counts: dict[str, int], name: str, more: int) -> None:
    count = counts.get(name, 0) + more
    assert count >= 0
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits on held messages (the text, Memory attacks). Bytes are of payloads.

    Attributes:
        messages: of one account.
        bytes: of one account.
        total_messages: of all accounts together.
        total_bytes: of all accounts together.
        domain_messages: of all accounts of one domain that is not our own; never less
            than `messages`.
        domain_bytes: likewise, never less than `bytes`.
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
    """The amounts that each holder has at the moment. An account without messages has none."""

    def __init__(self, quotas: Quotas, own_domains: Collection[str] = ()) -> None:
        self._messages = Tally(
            Share(quotas.messages, quotas.domain_messages, quotas.total_messages),
            own_domains,
        )
        self._bytes = Tally(
            Share(quotas.bytes, quotas.domain_bytes, quotas.total_bytes), own_domains
        )

    def refusal(self, account: str, size: int) -> str | None:
        """Which quota one more message of this size would exceed, or None."""
        for name, tally, more in (
            ("messages", self._messages, 1),
            ("bytes", self._bytes, size),
        ):
            bound = tally.refusal(account, more)
            if bound is not None:
                return name if bound == "account" else f"{bound}_{name}"
        return None

    def reserve(self, account: str, size: int) -> None:
        """Count a message. Does not check: what was stored before counts as well."""
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
        """How many accounts have a message counted."""
        return self._messages.accounts
