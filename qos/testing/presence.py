"""Presence at the embedded server: accounts, rosters, subscriptions.

RFC 6121 as far as the clients of a test need it. Rosters are in memory, and live as
long as the server object.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from qos.testing.session import ClientSession, Connection
from qos.testing.stream import CLIENT, Stanza

if TYPE_CHECKING:
    from qos.testing.routing import Router

ROSTER = "jabber:iq:roster"

# The limit for each account of its contacts and of pending requests, and for each
# session of directed presences: a client must not be able to make them grow without
# end.
CONTACTS_MAX = 1000

_SUBSCRIPTIONS = {
    "none": (False, False),
    "to": (True, False),
    "from": (False, True),
    "both": (True, True),
}
_REQUESTS = frozenset({"subscribe", "subscribed", "unsubscribe", "unsubscribed"})


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
    sessions: dict[str, ClientSession] = field(default_factory=dict)

    def available(self) -> list[ClientSession]:
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


class PresenceService:
    """Handles presence stanzas and roster iqs, and notifies all that are concerned."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._push_ids = itertools.count(1)

    def accept(self, sender: str, stanza: Stanza) -> None:
        """Take a presence stanza from a client or a component."""
        session = self._router.sessions.get(sender)
        to, kind = stanza.to, stanza.type
        if to is None:
            if session is not None and kind is None:
                self._available(session, stanza)
            elif session is not None and kind == "unavailable":
                self._unavailable(session, stanza)
        elif kind in _REQUESTS:
            self._request(_bare(sender), kind, _bare(to), stanza)
        elif kind == "probe":
            self._probe(sender, _bare(to))
        else:
            if session is not None and kind is None:
                if len(session.directed) >= CONTACTS_MAX:
                    self._router.refuse(sender, stanza, "wait", "resource-constraint")
                    return
                session.directed.add(to)
            elif session is not None and kind == "unavailable":
                session.directed.discard(to)
            self._send(stanza, sender, to)

    def left(self, session: ClientSession) -> None:
        """Announce that a session that is no longer bound is unavailable."""
        self._unavailable(session, _presence("unavailable"))

    def roster(self, session: ClientSession, stanza: Stanza) -> None:
        """Answer a roster iq of the session's own account."""
        account = session.account
        assert account is not None
        if stanza.type == "get":
            session.interested = True
            items = "".join(i.render(jid) for jid, i in account.roster.items())
            self._router.answer(
                session.jid, stanza, f"<query xmlns='{ROSTER}'>{items}</query>"
            )
            return
        items_set = stanza.tree.findall(f"{{{ROSTER}}}query/{{{ROSTER}}}item")
        jid = _bare(items_set[0].get("jid", "")) if items_set else ""
        if len(items_set) != 1 or not jid:
            self._router.refuse(session.jid, stanza, "modify", "bad-request")
        elif items_set[0].get("subscription") == "remove":
            self._remove(session, stanza, account, jid)
        elif jid not in account.roster and len(account.roster) >= CONTACTS_MAX:
            self._router.refuse(session.jid, stanza, "wait", "resource-constraint")
        else:
            item = account.roster.setdefault(jid, RosterItem())
            item.name = items_set[0].get("name", "")
            item.groups = tuple(
                group.text or "" for group in items_set[0].findall(f"{{{ROSTER}}}group")
            )
            self._push(account, item.render(jid))
            self._router.answer(session.jid, stanza, "")

    def _remove(
        self, session: ClientSession, stanza: Stanza, account: Account, jid: str
    ) -> None:
        item = account.roster.get(jid)
        if item is None:
            self._router.refuse(session.jid, stanza, "cancel", "item-not-found")
            return
        if item.to or item.ask:
            self._request(account.jid, "unsubscribe", jid, _presence("unsubscribe"))
        if item.from_:
            self._request(account.jid, "unsubscribed", jid, _presence("unsubscribed"))
        del account.roster[jid]
        self._push(account, f"<item jid={quoteattr(jid)} subscription='remove'/>")
        self._router.answer(session.jid, stanza, "")

    def _push(self, account: Account, item: str) -> None:
        for session in account.sessions.values():
            if session.interested:
                session.send(
                    f"<iq type='set' id='push-{next(self._push_ids)}' "
                    f"to={quoteattr(session.jid)}><query xmlns='{ROSTER}'>{item}</query>"
                    "</iq>".encode()
                )

    def _available(self, session: ClientSession, stanza: Stanza) -> None:
        account = session.account
        assert account is not None
        first = session.presence is None
        others = account.available() if first else []
        session.presence = stanza
        session.priority = _priority(stanza)
        for watcher in self._watchers(account):
            self._send(stanza, session.jid, watcher)
        # RFC 6121 §4.2.2: to all resources of the sender's account, this one included.
        self._send(stanza, session.jid, account.jid)
        for other in others:
            self._show(other, session.jid)
        if first:
            for contact, item in account.roster.items():
                if item.to:
                    self._probe(session.jid, contact)
            for asking in account.requests:
                session.send(
                    _presence("subscribe").render(sender=asking, to=account.jid)
                )

    def _unavailable(self, session: ClientSession, stanza: Stanza) -> None:
        account = session.account
        assert account is not None
        told = dict.fromkeys(self._watchers(account)) if session.presence else {}
        told |= {jid: None for jid in session.directed if _bare(jid) not in told}
        if session.presence is not None:
            told[account.jid] = None
        session.presence = None
        session.directed.clear()
        for jid in told:
            self._send(stanza, session.jid, jid)

    def _probe(self, prober: str, contact: str) -> None:
        """Show the prober the contact's presence, if it may see it."""
        account = self._router.account(contact)
        if account is None:
            self._send(_presence("probe"), prober, contact)
        elif account.shows_to(_bare(prober)):
            for session in account.available():
                self._show(session, prober)

    def _show(self, session: ClientSession, to: str) -> None:
        if session.presence is not None:
            self._send(session.presence, session.jid, to)

    def _watchers(self, account: Account) -> list[str]:
        return [jid for jid, item in account.roster.items() if item.from_]

    def _request(self, sender: str, kind: str, to: str, stanza: Stanza) -> None:
        """Change a subscription, first at the sender's end and then at the other."""
        account = self._router.account(sender)
        if sender == to or (account and not self._outbound(account, kind, to)):
            return
        self._pass_on(sender, kind, to, stanza)
        for session in account.available() if account else ():
            if kind == "subscribed":
                self._show(session, to)
            elif kind == "unsubscribed":
                self._send(_presence("unavailable"), session.jid, to)

    def _pass_on(self, sender: str, kind: str, to: str, stanza: Stanza) -> None:
        other = self._router.account(to)
        if other is None or self._inbound(other, kind, sender):
            self._send(stanza, sender, to)

    def _outbound(self, account: Account, kind: str, contact: str) -> bool:
        """Do the sender's part (RFC 6121 §3); tell whether the request goes on."""
        asked = contact in account.requests
        if kind == "subscribed" and not asked:
            return False
        if kind in ("subscribed", "unsubscribed"):
            account.requests.pop(contact, None)
        item = account.roster.get(contact)
        if item is None:
            full = len(account.roster) >= CONTACTS_MAX
            if full or kind in ("unsubscribe", "unsubscribed"):
                return kind == "unsubscribed" and asked
            item = account.roster[contact] = RosterItem()
        match kind:
            case "subscribe":
                item.ask = not item.to
            case "subscribed":
                item.from_ = True
            case "unsubscribe":
                item.to = item.ask = False
            case "unsubscribed":
                item.from_ = False
        self._push(account, item.render(contact))
        return True

    def _inbound(self, account: Account, kind: str, contact: str) -> bool:
        """Do the receiver's part; tell whether its clients must see the request."""
        item = account.roster.get(contact, RosterItem())
        match kind:
            case "subscribe" if item.from_:
                answer = _presence("subscribed")
                self._pass_on(account.jid, "subscribed", contact, answer)
                return False
            case "subscribe":
                if len(account.requests) < CONTACTS_MAX:
                    account.requests[contact] = None
                return contact in account.requests
            case "subscribed" if item.ask:
                item.to, item.ask = True, False
            case "unsubscribe" if item.from_:
                item.from_ = False
            case "unsubscribed" if item.to or item.ask:
                item.to = item.ask = False
            case _:
                account.requests.pop(contact, None)
                return False
        self._push(account, item.render(contact))
        return True

    def _send(self, stanza: Stanza, sender: str, to: str) -> None:
        for receiver in self._receivers(to):
            self._router.counts["presence"] += 1
            receiver.send(
                stanza.render(sender=sender, to=to, namespace=receiver.namespace)
            )

    def _receivers(self, to: str) -> Iterator[Connection]:
        session = self._router.sessions.get(to)
        account = self._router.account(to)
        component = self._router.components.get(_bare(to).rpartition("@")[2])
        if session is not None:
            yield session
        elif account is not None and "/" not in to:
            yield from account.available()
        elif component is not None:
            yield component


def _presence(kind: str) -> Stanza:
    return Stanza(CLIENT, "presence", {"type": kind})


def _bare(jid: str) -> str:
    return jid.partition("/")[0].lower()


def _priority(stanza: Stanza) -> int:
    try:
        return int(stanza.tree.findtext(f"{{{CLIENT}}}priority") or 0)
    except ValueError:
        return 0
