"""Trust: a pure decision, from given facts, about whose messages are accepted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qos.core.record import record
from qos.core.strings import bare, domain_of, resource_of, user_of
from qos.errors import InvalidArgument

__all__ = ["TrustPolicy", "Trusted"]

#: RFC 6121 §2.1.2.5: the user at one end has agreed to each of these.
_SUBSCRIBED = frozenset({"both", "from", "to"})

#: RFC 7622 §3.3: characters that the local part of a JID cannot have.
_NOT_IN_LOCAL_PART = frozenset("\"&'/:<>@")

_ALLOWED = (
    "'anyone', 'nobody', or a list of 'contacts' and JIDs: an account such as "
    "lamp@example.org, a full JID, a service's domain with a dot, such as "
    "rooms.example.org, or all accounts of a domain, such as @example.org"
)

#: What these words were called before.
_FORMER = {"all": "anyone", "roster": "contacts"}


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """Whose messages are accepted. Our own account is trusted in any case.

    Attributes:
        anyone: everybody is trusted.
        contacts: those with a subscription in the roster are.
        named: those of these JIDs are. A bare JID stands for all its resources, `@` and
            a domain for all accounts of the domain.
    """

    anyone: bool = False
    contacts: bool = False
    named: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, value: str | Collection[str]) -> TrustPolicy:
        """Read a policy in the form that users write.

        Args:
            value: `anyone`, `nobody`, or a list of `contacts` and JIDs, as `A,B…` or as
                a collection. A JID has an `@`, or is a domain with a dot or
                `localhost`: a misspelt word must not be taken for a domain.

        Raises:
            InvalidArgument: the value is none of these.
        """
        if value == "nobody":
            return cls()
        entries: object = value.split(",") if isinstance(value, str) else value
        if not isinstance(entries, Collection) or isinstance(entries, bytes | Mapping):
            raise InvalidArgument("trust", value, _ALLOWED)
        names = {name for entry in entries if (name := _entry(entry))}
        if names == {"anyone"}:
            return cls(anyone=True)
        if not names or "anyone" in names:
            raise InvalidArgument("trust", value, _ALLOWED)
        return cls(contacts="contacts" in names, named=frozenset(names - {"contacts"}))

    def names(self, sender: str) -> bool:
        """Whether a full JID, its account or its domain is in the list."""
        account = _folded(bare(sender))
        at_domain = f"@{domain_of(account)}"
        return not self.named.isdisjoint({account, _folded(sender), at_domain})


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
        if policy.anyone:
            return cls(True, "everyone is trusted")
        if policy.named and policy.names(sender):
            return cls(True, "on the allow list")
        if policy.contacts:
            is_contact = subscription in _SUBSCRIBED
            return cls(is_contact, f"roster subscription is {subscription!r}")
        return cls(False, "not on the allow list")


def _entry(entry: object) -> str:
    """A word, or a JID of the list, folded; '' for an empty entry."""
    if not isinstance(entry, str):
        raise InvalidArgument("trust", entry, _ALLOWED)
    text = entry.strip()
    if text in {"anyone", "contacts"}:
        return text
    if text in _FORMER:
        why = f"{text!r} is {_FORMER[text]!r} now"
        raise InvalidArgument("trust", text, _ALLOWED, why=why)
    if text and not _is_jid(text):
        raise InvalidArgument("trust", text, _ALLOWED)
    return _folded(text)


def _is_jid(text: str) -> bool:
    """Whether it is a JID or an @domain, no misspelt word; see TrustPolicy.parse."""
    account, domain, local = bare(text), domain_of(text), user_of(text)
    has_resource = account != text
    if any(sign.isspace() for sign in account):
        return False
    if has_resource and not resource_of(text):
        return False
    if "@" in account and not local:
        return bool(domain) and not has_resource
    if local:
        return bool(domain) and _NOT_IN_LOCAL_PART.isdisjoint(local)
    # An IPv6 address has colons, and no dot: RFC 7622 §3.2.
    has_dot = "." in domain.strip(".")
    return has_dot or domain.startswith("[") or domain.lower() == "localhost"


def _folded(jid: str) -> str:
    """A JID in a form in which equal JIDs are equal texts.

    Accounts compare without regard to case, resources with regard to it (RFC 7622 §3).
    A dot at the end of the domain is dropped (RFC 7622 §3.2).
    """
    account = bare(jid)
    return account.lower().removesuffix(".") + jid[len(account) :]
