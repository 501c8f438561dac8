"""Trust: a pure decision, from given facts, about whose messages are held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from qos.core.record import record
from qos.core.strings import bare
from qos.errors import InvalidArgument

__all__ = ["TrustPolicy", "Trusted"]

#: RFC 6121 §2.1.2.5: the user at one end has agreed to each of these.
_SUBSCRIBED = frozenset({"both", "from", "to"})


#: RFC 7622 §3.3: characters that the local part of a JID cannot have.
_NOT_IN_LOCAL_PART = frozenset("\"&'/:<>@")

_ALLOWED = (
    "'roster', 'all', 'nobody', or JIDs: an account such as lamp@example.org, a full "
    "JID, or a domain with a dot, such as rooms.example.org"
)


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """All accounts, the contacts of the roster, or an allow list of JIDs.

    A bare JID in the list stands for all its resources. With an empty list only our own
    account is trusted.
    """

    rule: Literal["all", "roster"] | frozenset[str] = "roster"

    @classmethod
    def parse(cls, value: str | Collection[str]) -> TrustPolicy:
        """Read a policy in the form that users write.

        Args:
            value: `roster`, `all` or `nobody`; or JIDs, as `JID,JID…` or as a
                collection. A JID has an `@`, or is a domain with a dot or `localhost`:
                a misspelt word must not be taken for a domain.

        Raises:
            InvalidArgument: the value is none of these.
        """
        if value == "all":
            return cls("all")
        if value == "roster":
            return cls("roster")
        if value == "nobody":
            return cls(frozenset())
        entries: object = value.split(",") if isinstance(value, str) else value
        if not isinstance(entries, Collection) or isinstance(entries, bytes | Mapping):
            raise InvalidArgument("trust", value, _ALLOWED)
        jids = frozenset(jid for entry in entries if (jid := _entry(entry)))
        if not jids:
            raise InvalidArgument("trust", value, _ALLOWED)
        return cls(jids)

    @property
    def needs_roster(self) -> bool:
        """Whether a decision needs the roster."""
        return self.rule == "roster"


@record(frozen=True, slots=True)
class Trusted:
    """The decision on a sender, and its reason.

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
            own: our own JID; its other resources are trusted.
            subscription: the sender's subscription in the roster, or 'none'.
            occupant: the JID is that of an occupant of a room. The proto-XEP names
                these first among those not to be trusted: anybody can enter a room.
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
        listed = not policy.rule.isdisjoint({_folded(account), _folded(sender)})
        return cls(listed, "on the allow list" if listed else "not on the allow list")


def _entry(entry: object) -> str:
    """A JID of an allow list, folded; '' for an empty entry."""
    if not isinstance(entry, str):
        raise InvalidArgument("trust", entry, _ALLOWED)
    jid = entry.strip()
    if jid and not _is_jid(jid):
        raise InvalidArgument("trust", jid, _ALLOWED)
    return _folded(jid)


def _is_jid(text: str) -> bool:
    """Whether the text is a JID and not a misspelt word; see TrustPolicy.parse."""
    account, slash, resource = text.partition("/")
    local, at, domain = account.rpartition("@")
    if any(sign.isspace() for sign in account) or bool(slash) != bool(resource):
        return False
    if at:
        return bool(local and domain) and _NOT_IN_LOCAL_PART.isdisjoint(local)
    # An IPv6 address has colons, and no dot: RFC 7622 §3.2.
    has_dot = "." in domain.strip(".")
    return has_dot or domain.startswith("[") or domain.lower() == "localhost"


def _folded(jid: str) -> str:
    """A JID in a form in which equal JIDs are equal texts.

    Accounts compare without regard to case, resources with regard to it (RFC 7622 §3).
    A dot at the end of the domain is dropped (§3.2).
    """
    account, slash, resource = jid.partition("/")
    return account.lower().removesuffix(".") + slash + resource
