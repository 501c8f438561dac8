"""The known peers: which are available, and what they support."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.exceptions import IqTimeout, XMPPError

from qos.core.message.model import Outgoing, Route
from qos.core.message.route import Resource, choose, namespace_for, to_jid
from qos.core.strings import ID_CHARS_MAX, bare

__all__ = ["Discovery"]

log = logging.getLogger(__name__)

_NOTHING: frozenset[str] = frozenset()

#: The most peers of which the presence and the version of their capabilities are
#: remembered; the latest are kept. Anybody may send presence. A peer whose version is
#: not known is asked itself.
_PRESENT_MAX = 10_000

#: Peers that are asked at a time. When the session begins, messages to many may wait.
_ASKED_AT_ONCE = 500

#: The longest time to wait for an answer, in seconds, and the doublings to get there.
_ANSWER_S, _DOUBLINGS = 60.0, 16

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Known:
    """The features of a JID, and their time of expiry (None: while it is present)."""

    features: AbstractSet[str]
    until: float | None = None


class Discovery:
    """Finds a route for each attempt; asks a peer once for its features.

    Source: the proto-XEP, Determining Support: entity capabilities (XEP-0115) if there
    are any, else disco#info (XEP-0030). slixmpp's own cache for disco#info is not used,
    because it keeps an answer for ever.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        namespaces: Sequence[str],
        timeout_s: float,
        now: Callable[[], float],
        found: Callable[[str], None],
        answered: Callable[[str, float], None],
        shows_presence: Callable[[str], bool],
    ) -> None:
        """Prepare to ask.

        Args:
            xmpp: the stream, with xep_0030 and xep_0115.
            namespaces: those of QoS, in the order of preference.
            timeout_s: the time to wait for a peer's disco#info; it doubles with each one
                that does not answer. A failure is remembered for the first time.
            now: the clock.
            found: called with an account when more is known about it.
            answered: called with an account and the seconds until it has answered.
            shows_presence: whether an account is known to show us its presence.
        """
        self._xmpp = xmpp
        self._namespaces = namespaces
        self._timeout_s = timeout_s
        self._now = now
        self._found = found
        self._answered = answered
        self._shows_presence = shows_presence
        self._known: dict[str, _Known] = {}
        # Priorities by full JID: the available resources of an account, for an account
        # of ours. slixmpp's roster forgets them with the connection. When the session
        # is resumed (XEP-0198), they are not sent again.
        self._present: dict[tuple[str, str], dict[str, int]] = {}
        # Whether some available peers had to be forgotten.
        self._crowded = False
        # The version of the capabilities in the latest presence of a JID.
        self._versions: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        # The senders of the messages to those who are still to be asked, by their JID.
        self._to_ask: dict[str, str] = {}
        # How many requests in a row a peer has left without an answer.
        self._unanswered: dict[str, int] = {}

    def route(self, record: Outgoing) -> Route | None:
        """The route of the next attempt; None: no address is known yet."""
        if "/" in record.to:
            features = self._features(record.to, record.sender)
            if features is None:
                return None
            absent = self._is_absent(record.to, record.sender)
            return to_jid(record, features, self._namespaces, absent=absent)
        resources = []
        present = self._available(record.to, record.sender)
        for jid, priority in list(present.items()):
            features = self._features(jid, record.sender)
            if features is not None:
                resources.append(Resource(jid, priority, features))
        route = choose(record, resources, self._namespaces)
        if route is not None or resources:
            return route
        if record.delivers and not self._shows_presence(record.to):
            # The presence of the holder does not come any more, but its address is known.
            return self._to_holder(record)
        # No visible resource: an entity without resources (a component, for instance)
        # answers for itself.
        features = self._features(record.to, record.sender) or _NOTHING
        if namespace_for(features, self._namespaces) is None:
            return None
        return to_jid(record, features, self._namespaces)

    def _to_holder(self, record: Outgoing) -> Route:
        """The route to the full JID that holds a message, which is being released."""
        assert record.peer is not None
        assert record.namespace is not None
        return Route(record.peer, record.namespace, record.hold is not None)

    def arrived(self, jid: str, to: str, priority: int, version: str | None) -> None:
        """Note that a JID is available to an account of ours.

        Args:
            jid: in most cases a full one.
            to: the account.
            priority: the priority in its presence.
            version: the version of its capabilities (XEP-0115), if its presence has
                one.
        """
        self.forget(jid)
        account = (to, bare(jid))
        resources = self._present.get(account, {})
        self._crowded |= _PRESENT_MAX in {len(self._present), len(resources)}
        _put(resources, jid, priority)
        _put(self._present, account, resources)
        if version is not None and len(version) <= ID_CHARS_MAX:
            _put(self._versions, jid, version)

    def departed(self, jid: str, to: str) -> None:
        """Note that a JID is not available any more to an account of ours."""
        self.forget(jid)
        self._versions.pop(jid, None)
        present = self._present.get((to, bare(jid)), {})
        present.pop(jid, None)
        if not present:
            self._present.pop((to, bare(jid)), None)

    def forget(self, jid: str) -> None:
        """Forget the features of this full JID, since they may have changed."""
        self._known.pop(jid, None)

    def session_started(self) -> None:
        """Take the start of a session that was not resumed, or that began before us.

        In the second case, slixmpp knows the available peers.
        """
        self._present.clear()
        self._known.clear()
        self._versions.clear()
        self._crowded = False
        for own in list(self._xmpp.roster):
            roster = self._xmpp.roster[own]
            for account in list(roster):
                for resource, presence in roster[account].resources.items():
                    jid = f"{account}/{resource}" if resource else account
                    self.arrived(jid, own, presence["priority"], None)

    def session_lost(self) -> None:
        """Ask nobody; what is known stays, as the session may be resumed."""
        self._to_ask.clear()
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    def supports(self, jid: str, features: AbstractSet[str]) -> bool:
        """Whether this JID is known to support all of these; does not ask it."""
        known = self._known.get(jid)
        return known is not None and known.features >= features

    def _available(self, account: str, sender: str) -> Mapping[str, int]:
        """The available resources of an account, and their priorities."""
        own = bare(sender) if sender else self._xmpp.boundjid.bare
        return self._present.get((own, account), {})

    def _is_absent(self, jid: str, sender: str) -> bool:
        """Whether presence proves that this full JID has no session.

        Our server probes our contacts before it returns our own presence to us (RFC
        6121 §4.2.2), and stanzas between two JIDs stay in order (RFC 6120 §10.1).
        Consider a session that gets the stanzas we send from now on. If it has sent
        presence, we have got that before its server can return anything.
        """
        account, own = bare(jid), self._xmpp.boundjid
        if jid in self._available(account, sender) or self._crowded:
            return False
        shown = own.full in self._present.get((own.bare, own.bare), {})
        return shown and self._shows_presence(account)

    def _features(self, jid: str, sender: str) -> AbstractSet[str] | None:
        """The features of a JID; None while it is being asked."""
        known = self._known.get(jid)
        if known is not None and (known.until is None or self._now() < known.until):
            return known.features
        if jid not in self._asking:
            self._to_ask.setdefault(jid, sender)
            self._ask_next()
        return None

    def _ask_next(self) -> None:
        """Ask those who wait for that, as many as may be asked at a time."""
        while self._to_ask and len(self._asking) < _ASKED_AT_ONCE:
            jid = next(iter(self._to_ask))
            sender = self._to_ask.pop(jid)
            self._asking[jid] = self._xmpp.loop.create_task(self._ask(jid, sender))

    async def _ask(self, jid: str, sender: str) -> None:
        features: AbstractSet[str] = _NOTHING
        timeout_s = min(
            _ANSWER_S, self._timeout_s * 2.0 ** self._unanswered.get(jid, 0)
        )
        asked_at = self._now()
        try:
            info, was_asked = await self._info(jid, sender, timeout_s)
            features = frozenset(info["features"])
            self._unanswered.pop(jid, None)
            if was_asked:
                self._answered(bare(jid), self._now() - asked_at)
        except IqTimeout:
            # The stanza may be lost, or the link slow: the next one has more time.
            count = min(self._unanswered.get(jid, 0) + 1, _DOUBLINGS)
            _put(self._unanswered, jid, count)
        except XMPPError as error:
            log.debug("%s does not say what it supports: %s", jid, error)
        except Exception:
            # In slixmpp; the peer has a part in what it reads.
            log.exception("%s cannot be asked what it supports", jid)
        finally:
            # After the end of a session it may have been asked anew.
            if self._asking.get(jid) is asyncio.current_task():
                del self._asking[jid]
            self._ask_next()
        speaks = namespace_for(features, self._namespaces) is not None
        until = None if speaks else self._now() + self._timeout_s
        self._known[jid] = _Known(features, until)
        try:
            self._found(bare(jid))
        except Exception:
            # Such as a store that cannot be written: its messages are attempted again.
            log.exception("messages to %s cannot go on for now", jid)

    async def _info(self, jid: str, sender: str, timeout_s: float) -> tuple[Any, bool]:
        """Its disco#info, and whether the peer was asked for it."""
        version = self._versions.get(jid)
        if version is not None:
            caps = self._xmpp.plugin["xep_0115"]
            info = await caps.get_caps(  # type: ignore[no-untyped-call]
                verstring=version
            )
            if info is not None:
                return info, False
        disco = self._xmpp.plugin["xep_0030"]
        answer = await disco.get_info(
            jid=JID(jid),
            ifrom=sender or None,
            local=False,
            cached=False,
            timeout=timeout_s,
        )
        return answer["disco_info"], True


def _put(known: dict[_K, _V], key: _K, value: _V) -> None:
    """Set a value as the newest, and forget the oldest if there are too many."""
    known.pop(key, None)
    known[key] = value
    if len(known) > _PRESENT_MAX:
        del known[next(iter(known))]
