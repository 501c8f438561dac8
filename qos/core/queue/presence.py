"""Presence: which full JIDs are there, of the accounts that work at a queue service.

An account works at a node while it has a subscription or holds an item there. Nothing is
remembered of any other account.
"""

from __future__ import annotations

from collections.abc import Collection

from qos.core.queue.holders import Present
from qos.core.strings import bare

__all__ = ["Presence"]

#: The number of full JIDs of one account that are remembered as present; beyond it, the
#: oldest is forgotten. It is above the number that can subscribe, so a bare
#: subscription may have some more.
_RESOURCES_MAX = 2000


class Presence:
    """The full JIDs that are there, and where their accounts work.

    Attributes:
        present: by account, its full JIDs that were heard of since the start; True: by
            available presence.
        silent: likewise, the full JIDs that failed to answer. They get no items until
            the next stanza from them, of any kind.
    """

    def __init__(self) -> None:
        self.present: dict[str, dict[str, bool]] = {}
        self.silent: dict[str, dict[str, bool]] = {}
        # By account, the nodes where it has a subscription or holds an item.
        self._nodes_of: dict[str, set[str]] = {}

    # -- where an account works --------------------------------------------

    def works_at(self, account: str, node: str) -> None:
        """Note that this account works at a node."""
        self._nodes_of.setdefault(account, set()).add(node)

    def nodes_of(self, account: str) -> Collection[str]:
        """The names of the nodes where this account works."""
        return self._nodes_of.get(account, ())

    def left(self, account: str, node: str) -> None:
        """Note that this account does not work at a node any more.

        Its full JIDs are forgotten, unless it works at other nodes.
        """
        names = self._nodes_of.get(account, set())
        names.discard(node)
        if not names:
            self._nodes_of.pop(account, None)
            self.present.pop(account, None)
            self.silent.pop(account, None)

    def deleted(self, node: str) -> None:
        """Note that nobody works at this node any more: it is deleted."""
        for account in list(self._nodes_of):
            self.left(account, node)

    # -- who is there ------------------------------------------------------

    def is_known(self, jid: str) -> bool:
        """Whether this full JID was heard of since the start, and has not left."""
        account = bare(jid)
        return jid in self.present.get(account, ()) or jid in self.silent.get(
            account, ()
        )

    def of(self, account: str) -> Present:
        """The full JIDs of an account that have not left: silent ones have not."""
        resources = {**self.present.get(account, {}), **self.silent.get(account, {})}
        return {account: resources}

    def heard(self, jid: str, *, available: bool) -> None:
        """Note that this full JID is there.

        Args:
            jid: the full JID.
            available: by available presence.
        """
        resources = self.present.setdefault(bare(jid), {})
        resources[jid] = available
        _limit(resources)

    def speaks(self, jid: str) -> bool:
        """Note that this full JID is not silent.

        Returns:
            Whether it was, and had been heard of by available presence.
        """
        return self.silent.get(bare(jid), {}).pop(jid, False)

    def failed(self, jid: str) -> None:
        """Note that this full JID failed to answer; harmless if it is not there."""
        account = bare(jid)
        present = self.present.get(account, {})
        if jid in present:
            silent = self.silent.setdefault(account, {})
            silent[jid] = present.pop(jid)
            _limit(silent)

    def departed(self, jid: str) -> None:
        """Forget this full JID: it has left, or is away."""
        account = bare(jid)
        self.present.get(account, {}).pop(jid, None)
        self.silent.get(account, {}).pop(jid, None)

    def forget(self, keep: Collection[str]) -> None:
        """Forget who is there, but for these full JIDs."""
        before = dict(self.present)
        self.present.clear()
        for jid in keep:
            account = bare(jid)
            if jid in before.get(account, {}):
                self.present.setdefault(account, {})[jid] = before[account][jid]
        self.silent.clear()


def _limit(resources: dict[str, bool]) -> None:
    if len(resources) > _RESOURCES_MAX:
        del resources[next(iter(resources))]
