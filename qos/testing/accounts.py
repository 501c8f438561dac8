"""The accounts of the embedded server, with their rosters and connections.

Rosters are in memory, and live as long as the server object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol
from xml.sax.saxutils import escape, quoteattr

from qos.testing.stream import Stanza

_SUBSCRIPTIONS = {
    "none": (False, False),
    "to": (True, False),
    "from": (False, True),
    "both": (True, True),
}


class Peer(Protocol):
    """A connection of a client or a component, as the router knows it.

    Attributes:
        namespace: Of its stanzas.
        gone: Done when its socket is closed.
    """

    namespace: ClassVar[str]
    gone: asyncio.Future[None]

    def send(self, data: bytes) -> None:
        """Write soon; without effect after the stream has ended."""

    def flush(self) -> None:
        """Write all waiting data now."""

    def end(self, condition: str | None = None, *, linger: bool = True) -> None:
        """Close the stream, with a stream error if there is a ``condition``."""

    def abort(self) -> None:
        """Drop the TCP connection without closing the stream."""


class ClientPeer(Peer, Protocol):
    """The session of a client.

    Attributes:
        jid: Full JID; empty before it is bound.
        account: Of the user, once logged in.
        presence: The last broadcast presence; None while it is not available.
        priority: Of that presence.
        directed: Other entities that know that it is available.
        interested: It has asked for the roster, and so gets pushes.
    """

    jid: str
    account: Account | None
    presence: Stanza | None
    priority: int
    directed: set[str]
    interested: bool


@dataclass(slots=True)
class RosterItem:
    """A contact. ``to``: the user sees its presence; ``from_``: it sees the user's."""

    to: bool = False
    from_: bool = False
    ask: bool = False
    name: str = ""
    groups: tuple[str, ...] = ()

    @property
    def subscription(self) -> str:
        """The subscription, as the roster spells it."""
        return {pair: word for word, pair in _SUBSCRIPTIONS.items()}[
            self.to, self.from_
        ]

    def render(self, jid: str) -> str:
        """Write the item for a result or a push."""
        return (
            f"<item jid={quoteattr(jid)} subscription='{self.subscription}'"
            + (" ask='subscribe'" if self.ask else "")
            + (f" name={quoteattr(self.name)}" if self.name else "")
            + ">"
            + "".join(f"<group>{escape(group)}</group>" for group in self.groups)
            + "</item>"
        )


@dataclass(slots=True)
class Account:
    """A user of the server.

    Attributes:
        jid: Bare JID.
        roster: Contacts by bare JID.
        requests: Bare JIDs that asked to subscribe and have no answer yet.
        sessions: By resource, in the order of binding.
    """

    jid: str
    roster: dict[str, RosterItem] = field(default_factory=dict)
    requests: dict[str, None] = field(default_factory=dict)
    sessions: dict[str, ClientPeer] = field(default_factory=dict)

    def available(self) -> list[ClientPeer]:
        """Return the sessions that have sent presence, the latest bound first."""
        return [s for s in reversed(self.sessions.values()) if s.presence is not None]

    def shows_to(self, jid: str) -> bool:
        """Tell whether this contact may see the user."""
        item = self.roster.get(jid)
        return item is not None and item.from_


def prepare_rosters(
    accounts: Mapping[str, Account], rosters: Mapping[str, Mapping[str, str]]
) -> None:
    """Fill the rosters; for a contact at this server, on both sides.

    Raises:
        ValueError: No such account, or no such subscription.
    """
    by_jid = {account.jid: account for account in accounts.values()}
    mirrored = {"none": "none", "to": "from", "from": "to", "both": "both"}
    for username, contacts in rosters.items():
        if username not in accounts:
            raise ValueError(f"rosters: there is no account {username!r}")
        for contact, word in contacts.items():
            if word not in _SUBSCRIPTIONS:
                raise ValueError(
                    f"rosters: subscription of {contact!r} must be one of "
                    f"{', '.join(_SUBSCRIPTIONS)}, got {word!r}"
                )
            to, from_ = _SUBSCRIPTIONS[word]
            jid = contact.lower()
            accounts[username].roster[jid] = RosterItem(to=to, from_=from_)
            if jid in by_jid:
                to, from_ = _SUBSCRIPTIONS[mirrored[word]]
                by_jid[jid].roster.setdefault(
                    accounts[username].jid, RosterItem(to=to, from_=from_)
                )
