"""Termini of consumers that outlive their links (messaging §3.5.6).

A terminus is known by account, container-id and link name. While it is suspended, its
full JID keeps its subscription and its locks, and the next link of this name goes on
with both. It is held in memory, unless it is durable: then the core keeps it too, and
finds it after a restart of the process (`qos.core.queue.terminus`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from proton import Terminus

from qos.core.queue import terminus

__all__ = ["EXPIRIES", "Expiry", "KeptTermini", "KeptTerminus", "expiry_of"]

#: The longest timeout that is in force, in seconds: what is kept counts for its account.
TIMEOUT_S_MAX = 24 * 3600

#: The policies, from the one whose timer starts first.
EXPIRIES = (
    Terminus.EXPIRE_WITH_LINK,
    Terminus.EXPIRE_WITH_SESSION,
    Terminus.EXPIRE_WITH_CONNECTION,
    Terminus.EXPIRE_NEVER,
)


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a terminus ends.

    Attributes:
        policy: one of EXPIRIES: what starts the timer.
        timeout_s: how long the timer runs.
    """

    policy: int
    timeout_s: int

    @property
    def keeps(self) -> bool:
        """Whether the terminus may outlive its link, session and connection."""
        return self.timeout_s > 0 or self.policy == Terminus.EXPIRE_NEVER

    def after(self, scope: int) -> float | None:
        """Seconds for which the terminus is kept after this; None: without a timer.

        Args:
            scope: the policy that names what has ended: link, session or connection.
        """
        if EXPIRIES.index(self.policy) <= EXPIRIES.index(scope):
            return self.timeout_s
        return None

    def core_policy(self) -> terminus.ExpiryPolicy:
        """The policy as the core names it."""
        return _POLICIES[EXPIRIES.index(self.policy)]

    @classmethod
    def of(cls, record: terminus.Terminus) -> Expiry:
        """The expiry of a terminus that the core keeps."""
        return cls(EXPIRIES[_POLICIES.index(record.policy)], record.timeout_s)


_POLICIES = tuple(terminus.ExpiryPolicy)


def expiry_of(wish: Terminus) -> Expiry:
    """The expiry that a peer asks for; its time is at most our limit."""
    return Expiry(int(wish.expiry_policy), min(int(wish.timeout), TIMEOUT_S_MAX))


@dataclass(slots=True)
class KeptTerminus:
    """A suspended terminus.

    Attributes:
        jid: the full JID of its links.
        node: the node of its source.
        until: when it ends; inf: its timer does not run.
    """

    jid: str
    node: str
    until: float = math.inf


class KeptTermini(dict[tuple[str, str, str], KeptTerminus]):
    """The suspended termini by account, container-id and link name."""

    def taken(self, key: tuple[str, str, str], now: float) -> KeptTerminus | None:
        """Take out the terminus of this name; None: there is none.

        Its link goes on with it, or ends it.
        """
        self.clean(now)
        return self.pop(key, None)

    def clean(self, now: float) -> None:
        """Forget those that have ended."""
        for key in [key for key, entry in self.items() if entry.until <= now]:
            del self[key]
