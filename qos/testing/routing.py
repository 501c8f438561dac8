"""Routing at the embedded server: receivers of stanzas, and the server's own answers.

It follows RFC 6121 §8, with the choices of Prosody 0.12, so that a client behaves here
as it does there. An iq to an absent or unknown entity is answered
``service-unavailable``. A message to a resource that has left is given to another
resource of that user.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from qos.core.strings import bare, domain_of, resource_of, user_of
from qos.testing.accounts import Account, ClientPeer, Peer, prepare_rosters
from qos.testing.link import Link
from qos.testing.presence import ROSTER, PresenceService
from qos.testing.stream import Stanza

STANZA_ERRORS = "urn:ietf:params:xml:ns:xmpp-stanzas"
DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
PING = "urn:xmpp:ping"
SESSION = "urn:ietf:params:xml:ns:xmpp-session"

_ROSTER_QUERY = (ROSTER, "query")

# The most bytes that a slow link may hold back in total; beyond it the sender is shut
# out.
DELAYED_BYTES_MAX = 64 * 1024 * 1024

_INFO = "".join(
    f"<feature var='{feature}'/>" for feature in (DISCO_INFO, DISCO_ITEMS, PING, ROSTER)
)
_SERVER_INFO = f"<identity category='server' type='im' name='loopback'/>{_INFO}"
_ACCOUNT_INFO = f"<identity category='account' type='registered'/>{_INFO}"


class Router:
    """Everything that the server knows: accounts, connections, and the link.

    Attributes:
        accounts: By username.
        passwords: By username.
        secrets: Of the components, by domain.
        sessions: Bound clients by full JID.
        components: Connected components, by domain.
        connections: Every open connection, logged in or not.
        stopped: No new connection is accepted.
        link: What happens to messages and iqs between clients and components.
        counts: Stanzas passed from one of them to another, by kind. Each counts once,
            whatever the link then does to it; presence counts once for each receiver.
            Stanzas that were answered with an error instead count as ``refused``.
    """

    def __init__(
        self,
        domain: str,
        accounts: Mapping[str, str],
        rosters: Mapping[str, Mapping[str, str]],
        components: Mapping[str, str],
        link: Link | None,
    ) -> None:
        self.domain = domain
        self.accounts = {name: Account(f"{name}@{domain}") for name in accounts}
        prepare_rosters(self.accounts, rosters)
        self.passwords = accounts
        self.secrets = components
        self.sessions: dict[str, ClientPeer] = {}
        self.components: dict[str, Peer] = {}
        self.connections: set[Peer] = set()
        self.stopped = False
        self.link = link
        self.counts: Counter[str] = Counter()
        self._presence = PresenceService(self)
        self._delayed: set[asyncio.TimerHandle] = set()
        self._delayed_bytes = 0

    def account(self, jid: str) -> Account | None:
        """Return the account this JID belongs to, if there is one."""
        account = bare(jid).lower()
        ours = domain_of(account) == self.domain
        return self.accounts.get(user_of(account)) if ours else None

    def bind(self, session: ClientPeer) -> None:
        """Make a session addressable; an older session of that JID is closed."""
        older = self.sessions.get(session.jid)
        if older is not None:
            older.end("conflict")
        self.sessions[session.jid] = session
        assert session.account is not None
        session.account.sessions[resource_of(session.jid)] = session

    def client_left(self, session: ClientPeer) -> None:
        """Remove a session that was bound; harmless for any other session."""
        if self.sessions.get(session.jid) is session:
            del self.sessions[session.jid]
            assert session.account is not None
            del session.account.sessions[resource_of(session.jid)]
            self._presence.left(session)

    def accept(self, origin: Peer, sender: str, stanza: Stanza) -> None:
        """Take a stanza that ``sender`` has sent, and route or answer it."""
        if stanza.name == "presence":
            self._presence.accept(sender, stanza)
            return
        receiver = self._receiver(sender, stanza)
        if receiver is None:
            return
        self.counts[stanza.name] += 1
        if self.link is None:
            self._pass_on(sender, stanza, receiver)
            return
        fate = self.link.fate()
        for _ in range(fate.copies):
            if fate.delay_s:
                self._delay(origin, sender, stanza, fate.delay_s)
            else:
                self._pass_on(sender, stanza, receiver)
        if fate.cut:
            receiver.flush()
            receiver.abort()

    def answer(self, to: str, stanza: Stanza, content: str) -> None:
        """Send the result of an iq."""
        self._reply(to, stanza, "result", content)

    def refuse(self, to: str, stanza: Stanza, kind: str, condition: str) -> None:
        """Answer with a stanza error of this type, unless the stanza is an answer."""
        if stanza.type not in ("error", "result"):
            self.counts["refused"] += 1
            error = (
                f"<error type='{kind}'><{condition} xmlns='{STANZA_ERRORS}'/></error>"
            )
            self._reply(to, stanza, "error", error)

    def stop(self) -> None:
        """Accept no new connection, and drop all that the link still holds back."""
        self.stopped = True
        for timer in self._delayed:
            timer.cancel()
        self._delayed.clear()
        self._delayed_bytes = 0

    def _receiver(self, sender: str, stanza: Stanza) -> Peer | None:
        """Find the receiver of a stanza; None if the stanza was answered or dropped."""
        iq = stanza.name == "iq"
        if iq and (
            stanza.type not in ("get", "set", "result", "error")
            or not stanza.attributes.get("id")
        ):
            self.refuse(sender, stanza, "modify", "bad-request")
            return None
        to = stanza.to
        if to is None and sender not in self.sessions:
            # XEP-0114: a component has no account of its own, so `to` must be given.
            self.refuse(sender, stanza, "modify", "bad-request")
            return None
        if to is None:
            to = bare(sender)
        if (session := self.sessions.get(to)) is not None:
            return session

        address, resource = bare(to).lower(), resource_of(to)
        local, domain = user_of(address), domain_of(address)
        no_local = "@" in address and not local
        no_resource = "/" in to and not resource
        receiver: Peer | None = None
        if not domain or no_local or no_resource:
            self.refuse(sender, stanza, "modify", "jid-malformed")
        elif domain in self.secrets:
            receiver = self.components.get(domain)
            if receiver is None:
                self.refuse(sender, stanza, "wait", "service-unavailable")
        elif domain != self.domain:
            self.refuse(sender, stanza, "cancel", "remote-server-not-found")
        elif iq and not resource:
            self._serve(sender, stanza, local)
        else:
            account = self.accounts.get(local)
            if account is not None and resource in account.sessions:
                receiver = account.sessions[resource]
            elif account is not None and not iq:
                receiver = _best(account, stanza)
            if receiver is None:
                self.refuse(sender, stanza, "cancel", "service-unavailable")
        return receiver

    def _serve(self, sender: str, stanza: Stanza, local: str) -> None:
        """Answer an iq to the server, or an iq to an account in its place."""
        if stanza.type in ("result", "error"):
            return
        session = self.sessions.get(sender)
        account = self.accounts.get(local)
        if local and account is None:
            self.refuse(sender, stanza, "cancel", "service-unavailable")
        elif session and session.account is account and stanza.payload == _ROSTER_QUERY:
            self._presence.roster(session, stanza)
        elif (content := self._content(stanza, local)) is None:
            self.refuse(sender, stanza, "cancel", "service-unavailable")
        else:
            self.answer(sender, stanza, content)

    def _content(self, stanza: Stanza, local: str) -> str | None:
        """Return the content of the result; None for an unknown request."""
        request = (stanza.type, stanza.payload)
        if request == ("get", (DISCO_INFO, "query")):
            info = _ACCOUNT_INFO if local else _SERVER_INFO
            return f"<query xmlns='{DISCO_INFO}'>{info}</query>"
        if request == ("get", (DISCO_ITEMS, "query")):
            domains = () if local else self.secrets
            items = "".join(f"<item jid={quoteattr(domain)}/>" for domain in domains)
            return f"<query xmlns='{DISCO_ITEMS}'>{items}</query>"
        if request in (("get", (PING, "ping")), ("set", (SESSION, "session"))):
            return ""
        return None

    def _pass_on(self, sender: str, stanza: Stanza, receiver: Peer) -> None:
        receiver.send(stanza.render(sender=sender, namespace=receiver.namespace))

    def _delay(self, origin: Peer, sender: str, stanza: Stanza, delay_s: float) -> None:
        def arrive() -> None:
            self._delayed.discard(timer)
            self._delayed_bytes -= stanza.size
            receiver = self._receiver(sender, stanza)
            if receiver is not None:
                self._pass_on(sender, stanza, receiver)

        timer = asyncio.get_running_loop().call_later(delay_s, arrive)
        self._delayed.add(timer)
        self._delayed_bytes += stanza.size
        if self._delayed_bytes > DELAYED_BYTES_MAX:
            origin.end("resource-constraint")

    def _reply(self, to: str, stanza: Stanza, kind: str, content: str) -> None:
        domain = domain_of(to).lower()
        receiver = self.sessions.get(to) or self.components.get(domain)
        if receiver is None:
            return
        attributes = {
            "type": kind,
            "id": stanza.attributes.get("id"),
            "from": stanza.to,
            "to": to,
        }
        xml_attributes = "".join(
            f" {name}={quoteattr(text)}"
            for name, text in attributes.items()
            if text is not None
        )
        receiver.send(
            f"<{stanza.name}{xml_attributes}>{content}</{stanza.name}>".encode()
        )


def _best(account: Account, stanza: Stanza) -> ClientPeer | None:
    """Choose the session for a message to the bare JID, or to a departed resource."""
    if stanza.type in ("error", "groupchat"):
        return None
    willing = [session for session in account.available() if session.priority >= 0]
    return max(willing, key=lambda session: session.priority, default=None)
