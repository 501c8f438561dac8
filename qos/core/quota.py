"""How much may be held for others, of each account and in total.

Quotas count by bare JID: a full JID costs its owner nothing, so he could have
as many quotas as he likes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Ledger", "Quotas"]


@dataclass(frozen=True, slots=True)
class Quotas:
    """The four limits (the text, Memory attacks). Bytes are those of payloads.

    Attributes:
        messages: of one account.
        bytes: of one account.
        total_messages: of all accounts together.
        total_bytes: of all accounts together.
    """

    messages: int = 1_000
    bytes: int = 4 * 1024 * 1024
    total_messages: int = 10_000
    total_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(
                    f"a quota cannot be negative: {field.name} = "
                    f"{getattr(self, field.name)}"
                )


@dataclass(slots=True)
class _Account:
    messages: int = 0
    bytes: int = 0


class Ledger:
    """Who holds how much at the moment. An account without messages has no entry."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._accounts: dict[str, _Account] = {}
        self._total = _Account()

    def refusal(self, account: str, size: int) -> str | None:
        """Which quota one more message of this size would exceed, or None."""
        quotas, total = self.quotas, self._total
        used = self._accounts.get(account) or _Account()
        checks = (
            ("messages", used.messages + 1, quotas.messages),
            ("bytes", used.bytes + size, quotas.bytes),
            ("total_messages", total.messages + 1, quotas.total_messages),
            ("total_bytes", total.bytes + size, quotas.total_bytes),
        )
        for name, value, limit in checks:
            if value > limit:
                return name
        return None

    def reserve(self, account: str, size: int) -> None:
        """Count a message. Does not check: what was stored before counts as well."""
        used = self._accounts.setdefault(account, _Account())
        for entry in (used, self._total):
            entry.messages += 1
            entry.bytes += size

    def refund(self, account: str, size: int) -> None:
        """Stop counting a message that was reserved."""
        used = self._accounts[account]
        for entry in (used, self._total):
            entry.messages -= 1
            entry.bytes -= size
            assert entry.messages >= 0
            assert entry.bytes >= 0
        if not used.messages:
            del self._accounts[account]

    def used(self, account: str | None = None) -> tuple[int, int]:
        """Messages and bytes of an account, or of all (None)."""
        if account is None:
            entry: _Account | None = self._total
        else:
            entry = self._accounts.get(account)
        return (entry.messages, entry.bytes) if entry else (0, 0)

    @property
    def accounts(self) -> int:
        """How many accounts have a message counted."""
        return len(self._accounts)
