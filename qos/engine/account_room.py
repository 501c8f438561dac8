"""Shares of the outbox for the users of gateways: no user can fill it alone."""

from __future__ import annotations

from qos.core.message.model import Outgoing
from qos.core.quota import Share, Tally
from qos.errors import OutboxFull
from qos.stores.base import Contents

__all__ = ["PART", "AccountRoom"]

#: An account may have this part of the outbox.
PART = 8


class AccountRoom:
    """Counts the messages of each account. Our own, of no account, do not count."""

    def __init__(self, contents: Contents, *, messages: int, size: int) -> None:
        """Begin with what the store holds.

        Args:
            contents: of the store.
            messages: the most in the outbox.
            size: the most bytes in the outbox.
        """
        # The limits for all are those of the outbox.
        self._messages_share, self._bytes_share = _share(messages), _share(size)
        self._messages = Tally(self._messages_share)
        self._bytes = Tally(self._bytes_share)
        for account, (count, bytes_) in contents.accounts.items():
            self._messages.add(account, count)
            self._bytes.add(account, bytes_)

    def check(self, account: str, size: int) -> None:
        """Check that there is room for one more message of this size.

        Raises:
            OutboxFull: there is none for this account.
        """
        if self._messages.refusal(account):
            most = self._messages_share.account
            raise OutboxFull(unit="messages", limit=most, account=account)
        if self._bytes.refusal(account, size):
            most = self._bytes_share.account
            raise OutboxFull(unit="bytes", limit=most, account=account)

    def add(self, record: Outgoing, sign: int = 1) -> None:
        """Count a message of an account; sign -1: do not count it any more."""
        self._messages.add(record.account, sign)
        self._bytes.add(record.account, sign * record.size)


def _share(limit: int) -> Share:
    return Share(account=max(1, limit // PART), domain=limit, total=limit)
