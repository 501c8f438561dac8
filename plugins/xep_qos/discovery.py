"""The known peers: which are available, what they support, and which of them answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.message.inquiry import is_silent
from qos.core.message.model import Outgoing, Route
from qos.core.message.route import Resource, choose, namespace_for, to_jid
from qos.core.record import replace
from qos.core.strings import ID_CHARS_MAX, bare
from qos.core.two_rooms import TwoRooms
from qos.engine.clock import Clock
from xep_qos.capabilities import StoredCapabilities
from xep_qos.features import Features, Version

__all__ = ["Discovery"]

#: The most known peers of which the presence, the version of their capabilities and their
#: answers are remembered; the latest are kept. A peer whose version is not known is asked
#: itself.
_PRESENT_MAX = 10_000

#: The most strangers of which the presence is remembered, beside the known: we may be
#: about to send to one of them.
_STRANGERS_MAX = 1_000

#: The most resources of an account of a stranger.
_RESOURCES_MAX = 20

_K = TypeVar("_K")
_V = TypeVar("_V")


class Discovery:
    """Finds a route for each attempt; asks a peer once for its features.

    Source: the proto-XEP, Determining Support: entity capabilities (XEP-0115) if there
    are any, else disco#info (XEP-0030). Only a peer to which we are about to send is
    asked.

    Attributes:
        awaited: the ids of the questions that may still be answered.
        supports: whether a JID is known to have features; see `Features.supports`.
        forget: forgets the features of a full JID, since they may have changed.
        answers: the number of the last answer of each peer: the larger, the later.
            Whoever takes an answer writes it here, and drops the peer from silent_since:
            a call for each answer would cost too much.
        silent_since: since when a resource, one of several of its account, has left a
            message without the answer that was due.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        namespaces: Sequence[str],
        timeout_s: float,
        clock: Clock,
        ask: Callable[[str, str], str],
        capabilities: StoredCapabilities,
        on_features: Callable[[str], None],
        answered: Callable[[str, float], None],
        shows_presence: Callable[[str], bool],
        none_is_online: Callable[[str, str], None],
    ) -> None:
        """Prepare to ask.

        Args:
            xmpp: the stream.
            namespaces: those of QoS, in the order of preference.
            timeout_s: see Features, as for clock, ask and capabilities.
            clock: the clock.
            ask: sends a request for disco#info.
            capabilities: the lists that accounts have sent.
            on_features: called with an account when more is known about it.
            answered: called with an account and the seconds until it has answered.
            shows_presence: whether an account is known to show us its presence.
            none_is_online: called when a message waits since no resource of its receiver
                is known to support QoS, with the receiver's account and our JID or ''.
        """
        self._xmpp = xmpp
        self._namespaces = namespaces
        self._clock = clock
        self._shows_presence = shows_presence
        self._none_is_online = none_is_online
        # Priorities by full JID: the available resources of an account, for an account
        # of ours. slixmpp's roster forgets them with the connection. When the session
        # is resumed (XEP-0198), they are not sent again.
        self._present: TwoRooms[tuple[str, str], dict[str, int]] = TwoRooms(
            _PRESENT_MAX, _STRANGERS_MAX
        )
        # The version of the capabilities in the latest presence of a JID.
        self._versions: TwoRooms[str, Version] = TwoRooms(_PRESENT_MAX, _STRANGERS_MAX)
        # Whether some resource of an account had to be forgotten.
        self._crowded = False
        # By account of ours and of a peer: the resource that had answered before it left.
        self._departed: dict[tuple[str, str], str] = {}
        self._features = Features(
            xmpp,
            namespaces=namespaces,
            timeout_s=timeout_s,
            clock=clock,
            ask=ask,
            capabilities=capabilities,
            versions=self._versions,
            on_features=on_features,
            answered=answered,
        )
        self.awaited = self._features.awaited
        self.supports: Callable[[str, AbstractSet[str]], bool] = self._features.supports
        self.forget: Callable[[str], None] = self._features.forget
        self.session_lost: Callable[[], None] = self._features.session_lost
        self.stop: Callable[[], None] = self._features.stop
        self.answers: dict[str, int] = {}
        self.silent_since: dict[str, float] = {}

    # -- routes ------------------------------------------------------------

    def route(self, record: Outgoing) -> Route | None:
        """The route of the next attempt; None: no address is known yet."""
        if "/" in record.to:
            features = self._features.of(record.to, record.sender)
            if features is None:
                return None
            absent = self._is_absent(record.to, record.sender)
            return to_jid(record, features, self._namespaces, absent=absent)
        resources = []
        present = self._available(record.to, record.sender)
        for jid, priority in list(present.items()):
            features = self._features.of(jid, record.sender)
            if features is not None:
                resources.append(Resource(jid, priority, features))
        if len(resources) > 1:
            return self._route_by_evidence(record, resources)
        route = choose(record, resources, self._namespaces)
        if route is not None or resources:
            return route
        if not present and (last := self._left_last(record.to, record.sender)):
            features = self._features.of(last, record.sender)
            if features is None:
                return None
            if namespace_for(features, self._namespaces) is not None:
                former = Resource(last, 0, features)
                return choose(record, (former,), self._namespaces)
        if record.delivers and not self._shows_presence(record.to):
            # The presence of the holder does not come any more, but its address is known.
            return self._to_holder(record)
        # No visible resource: an entity without resources (a component, for instance)
        # answers for itself.
        features = self._features.of(record.to, record.sender)
        if features is None:
            return None
        if namespace_for(features, self._namespaces) is None:
            self._none_is_online(record.to, record.sender)
            return None
        return to_jid(record, features, self._namespaces)

    def _route_by_evidence(
        self, record: Outgoing, resources: Sequence[Resource]
    ) -> Route | None:
        """The route to one of several resources, by what each has done."""
        now = self._clock.now()
        if record.unanswered:
            # It is being repeated: its answer was due.
            for jid in record.addressed:
                if jid not in self.silent_since:
                    _put(self.silent_since, jid, now)
        limit_s = self._features.limit_s
        judged = [
            replace(
                resource,
                silent=is_silent(self.silent_since.get(resource.jid), now, limit_s),
                answered=self.answers.get(resource.jid, 0),
            )
            for resource in resources
        ]
        return choose(record, judged, self._namespaces)

    def _left_last(self, account: str, sender: str) -> str | None:
        """The resource of an account that was there last and had answered.

        It may be there still: a new session under its JID, whose presence came before the
        end of the old one did; or its presence was lost between two servers. It is asked
        at each attempt, until somebody says that it is not there.
        """
        own = bare(sender) if sender else self._xmpp.boundjid.bare
        return self._departed.get((own, account))

    def _to_holder(self, record: Outgoing) -> Route:
        """The route to the full JID that holds a message, which is being released."""
        assert record.peer is not None
        assert record.namespace is not None
        return Route(record.peer, record.namespace, record.hold is not None)

    def take_answer(self, xml: ET.Element) -> bool:
        """Take an answer to one of our questions; see `Features.take_answer`."""
        if not self._features.take_answer(xml):
            return False
        if self._departed and xml.get("type") == "error":
            jid, own = xml.get("from", ""), self._xmpp.boundjid.full
            account = (bare(xml.get("to") or own), bare(jid))
            if self._departed.get(account) == jid:
                del self._departed[account]
        return True

    # -- presence ----------------------------------------------------------

    def arrived(
        self,
        jid: str,
        to: str,
        priority: int,
        version: Version | None,
        *,
        stranger: bool,
    ) -> None:
        """Note that a JID is available to an account of ours.

        Args:
            jid: in most cases a full one.
            to: the account.
            priority: the priority in its presence.
            version: the version of its capabilities (XEP-0115), if its presence has
                one.
            stranger: whether it is one, who changes nothing of the known.
        """
        self._features.arrived(jid, version)
        self.silent_since.pop(jid, None)
        account = (to, bare(jid))
        self._departed.pop(account, None)
        resources = self._present.get(account) or {}
        self._crowded |= not stranger and len(resources) >= _PRESENT_MAX
        _put(resources, jid, priority, _RESOURCES_MAX if stranger else _PRESENT_MAX)
        self._present.put(account, resources, stranger=stranger)
        if version is not None and len(version.text) <= ID_CHARS_MAX:
            self._versions.put(jid, version, stranger=stranger)

    def departed(self, jid: str, to: str) -> None:
        """Note that a JID is not available any more to an account of ours."""
        self.forget(jid)
        self.silent_since.pop(jid, None)
        self._versions.pop(jid)
        account = (to, bare(jid))
        present = self._present.get(account) or {}
        present.pop(jid, None)
        if not present:
            self._present.pop(account)
            self._keep_last(account, (jid,))

    def _keep_last(self, accounts: tuple[str, str], resources: Iterable[str]) -> None:
        """Remember of resources that are there no more the one that has answered last."""
        last = max(resources, key=lambda jid: self.answers.get(jid, 0))
        if last in self.answers:
            _put(self._departed, accounts, last)

    # -- the session -------------------------------------------------------

    def session_started(self) -> None:
        """Take the start of a session that was not resumed, or that began before us.

        In the second case, slixmpp knows the available peers.
        """
        for accounts, resources in self._present.known.items():
            self._keep_last(accounts, resources)
        self._present.clear()
        self._features.session_started()
        self._versions.clear()
        self.silent_since.clear()
        self._crowded = False
        for own in list(self._xmpp.roster):
            roster = self._xmpp.roster[own]
            for account in list(roster):
                for resource, presence in roster[account].resources.items():
                    jid = f"{account}/{resource}" if resource else account
                    self.arrived(jid, own, presence["priority"], None, stranger=False)

    def _available(self, account: str, sender: str) -> Mapping[str, int]:
        """The available resources of an account, and their priorities."""
        own = bare(sender) if sender else self._xmpp.boundjid.bare
        key, present = (own, account), self._present
        return present.known.get(key) or present.strangers.get(key) or {}

    def _is_absent(self, jid: str, sender: str) -> bool:
        """Whether presence proves that this full JID has no session.

        Our server probes our contacts before it returns our own presence to us (RFC
        6121 §4.2.2), and stanzas between two JIDs stay in order (RFC 6120 §10.1).
        Consider a session that gets the stanzas we send from now on. If it has sent
        presence, we have got that before its server can return anything.
        """
        account, own = bare(jid), self._xmpp.boundjid
        if jid in self._available(account, sender):
            return False
        if self._crowded or self._present.crowded:
            return False
        is_shown = own.full in self._available(own.bare, "")
        return is_shown and self._shows_presence(account)


def _put(table: dict[_K, _V], key: _K, value: _V, most: int | None = None) -> None:
    """Set a value as the newest, and forget the oldest if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > (most or _PRESENT_MAX):
        del table[next(iter(table))]
