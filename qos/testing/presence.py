"""Presence at the embedded server: rosters and subscriptions.

RFC 6121 as far as the clients of a test need it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Protocol
from xml.sax.saxutils import quoteattr

from qos.core.strings import bare, domain_of
from qos.testing.accounts import Account, ClientPeer, Peer, RosterItem
from qos.testing.stream import CLIENT, Stanza

ROSTER = "jabber:iq:roster"

# The limit for each account of its contacts and of pending requests, and for each
# session of directed presences: a client must not be able to make them grow without
# end.
CONTACTS_MAX = 1000

_REQUESTS = frozenset({"subscribe", "subscribed", "unsubscribe", "unsubscribed"})


class Directory(Protocol):
    """The router, as its presence service knows it; see Router."""

    sessions: dict[str, ClientPeer]
    components: dict[str, Peer]
    counts: Counter[str]

    def account(self, jid: str) -> Account | None:
        """Return the account this JID belongs to, if there is one."""

    def answer(self, to: str, stanza: Stanza, content: str) -> None:
        """Send the result of an iq."""

    def refuse(self, to: str, stanza: Stanza, kind: str, condition: str) -> None:
        """Answer with a stanza error of this type, unless the stanza is an answer."""


class PresenceService:
    """Handles presence stanzas and roster iqs, and notifies all that are concerned."""

    def __init__(self, router: Directory) -> None:
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

    def left(self, session: ClientPeer) -> None:
        """Announce that a session that is no longer bound is unavailable."""
        self._unavailable(session, _presence("unavailable"))

    def roster(self, session: ClientPeer, stanza: Stanza) -> None:
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
        self, session: ClientPeer, stanza: Stanza, account: Account, jid: str
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

    def _available(self, session: ClientPeer, stanza: Stanza) -> None:
        account = session.account
        assert account is not None
        first = session.presence is None
        peers = account.available() if first else []
        session.presence = stanza
        session.priority = _priority(stanza)
        for watcher in self._watchers(account):
            self._send(stanza, session.jid, watcher)
        # RFC 6121 §4.2.2: to all resources of the sender's account, this one included.
        self._send(stanza, session.jid, account.jid)
        for peer in peers:
            self._show(peer, session.jid)
        if first:
            for contact, item in account.roster.items():
                if item.to:
                    self._probe(session.jid, contact)
            for asking in account.requests:
                session.send(
                    _presence("subscribe").render(sender=asking, to=account.jid)
                )

    def _unavailable(self, session: ClientPeer, stanza: Stanza) -> None:
        account = session.account
        assert account is not None
        receivers = dict.fromkeys(self._watchers(account)) if session.presence else {}
        receivers |= {
            jid: None for jid in session.directed if _bare(jid) not in receivers
        }
        if session.presence is not None:
            receivers[account.jid] = None
        session.presence = None
        session.directed.clear()
        for jid in receivers:
            self._send(stanza, session.jid, jid)

    def _probe(self, prober: str, contact: str) -> None:
        """Show the prober the contact's presence, if it may see it."""
        account = self._router.account(contact)
        if account is None:
            self._send(_presence("probe"), prober, contact)
        elif account.shows_to(_bare(prober)):
            for session in account.available():
                self._show(session, prober)

    def _show(self, session: ClientPeer, to: str) -> None:
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
        account = self._router.account(to)
        if account is None or self._inbound(account, kind, sender):
            self._send(stanza, sender, to)

    def _outbound(self, account: Account, kind: str, contact: str) -> bool:
        """Do the sender's part (RFC 6121 §3); tell whether the request goes on."""
        has_asked = contact in account.requests
        if kind == "subscribed" and not has_asked:
            return False
        if kind in ("subscribed", "unsubscribed"):
            account.requests.pop(contact, None)
        item = account.roster.get(contact)
        if item is None:
            full = len(account.roster) >= CONTACTS_MAX
            if full or kind in ("unsubscribe", "unsubscribed"):
                return kind == "unsubscribed" and has_asked
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

    def _receivers(self, to: str) -> Iterator[Peer]:
        session = self._router.sessions.get(to)
        account = self._router.account(to)
        component = self._router.components.get(domain_of(_bare(to)))
        if session is not None:
            yield session
        elif account is not None and "/" not in to:
            yield from account.available()
        elif component is not None:
            yield component


def _presence(kind: str) -> Stanza:
    return Stanza(CLIENT, "presence", {"type": kind})


def _bare(jid: str) -> str:
    return bare(jid).lower()


def _priority(stanza: Stanza) -> int:
    try:
        return int(stanza.tree.findtext(f"{{{CLIENT}}}priority") or 0)
    except ValueError:
        return 0
