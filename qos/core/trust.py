"""Who may have messages held: a pure decision on given facts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from qos.core.model import bare

__all__ = ["TrustPolicy", "Trusted"]

#: RFC 6121 §2.1.2.5: any of these was agreed to by the user of one end.
_SUBSCRIBED = frozenset({"both", "from", "to"})


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """`all`, `roster`, or an allow list of JIDs (bare ones match any resource)."""

    rule: Literal["all", "roster"] | frozenset[str] = "roster"

    @classmethod
    def parse(cls, value: str | Collection[str]) -> TrustPolicy:
        """From what users write: `all`, `roster`, `JID,JID…` or JIDs."""
        if isinstance(value, str):
            if value == "all":
                return cls("all")
            if value == "roster":
                return cls("roster")
            value = value.split(",")
        jids = frozenset(_folded(jid.strip()) for jid in value if jid.strip())
        if not jids:
            raise ValueError("trust wants 'roster', 'all' or at least one JID")
        return cls(jids)

    @property
    def needs_roster(self) -> bool:
        """Whether nothing can be decided before the roster is known."""
        return self.rule == "roster"


@dataclass(frozen=True, slots=True)
class Trusted:
    """Whether a sender is trusted, and why.

    Attributes:
        trusted: the decision.
        reason: for the log.
    """

    trusted: bool
    reason: str

    @classmethod
    def decide(
        cls,
        policy: TrustPolicy,
        sender: str,
        *,
        own: str,
        subscription: str,
        occupant: bool,
    ) -> Trusted:
        """Decide on a sender.

        Args:
            policy: the rule.
            sender: the full JID.
            own: the own JID; other resources of it are trusted.
            subscription: the sender's subscription in the roster, or 'none'.
            occupant: the JID is that of an occupant of a room. The text names
                them first among those not to be trusted: anyone can enter.
        """
        account = bare(sender)
        if occupant:
            return cls(False, "an occupant of a room")
        if account == bare(own):
            return cls(True, "our own account")
        if policy.rule == "all":
            return cls(True, "everyone is trusted")
        if policy.rule == "roster":
            known = subscription in _SUBSCRIBED
            return cls(known, f"roster subscription is {subscription!r}")
        listed = not policy.rule.isdisjoint({account.lower(), _folded(sender)})
        return cls(listed, "on the allow list" if listed else "not on the allow list")


def _folded(jid: str) -> str:
    """Accounts compare without regard to case, resources with (RFC 7622 §3)."""
    account, slash, resource = jid.partition("/")
    return account.lower() + slash + resource
