"""The features of peers: asked once, and remembered while a peer is present."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.capabilities import verification
from qos.core.message.flow import Pace
from qos.core.message.inquiry import ANSWER_S_MAX, answer_limit_s
from qos.core.message.route import namespace_for
from qos.core.strings import bare, own_servers
from qos.core.two_rooms import TwoRooms
from qos.engine.clock import Clock, Timers
from xep_qos.capabilities import StoredCapabilities
from xep_qos.disco_info import read_info

__all__ = ["Features", "Version"]

log = logging.getLogger(__name__)

_NOTHING: frozenset[str] = frozenset()

#: The most peers whose features are remembered; the latest are kept.
_PEERS_MAX = 10_000

_K = TypeVar("_K")
_V = TypeVar("_V")

#: Peers that are asked at a time. When the session begins, messages to many may wait.
_ASKED_AT_ONCE = 500

#: The most questions to which a late answer is still taken.
_QUESTIONS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Version:
    """The version of the capabilities in a presence (XEP-0115): a hash of a list.

    Attributes:
        algorithm: the name of the hash.
        text: the verification string.
    """

    algorithm: str
    text: str


@dataclass(frozen=True, slots=True)
class _Known:
    """The features of a JID, and their time of expiry (None: while it is present)."""

    features: AbstractSet[str]
    until: float | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    """A request for disco#info that may still be answered.

    Attributes:
        jid: the JID that was asked.
        asked_at: the time.
        first: none before it is without an answer: its answer is a round trip (Karn).
    """

    jid: str
    asked_at: float
    first: bool


class Features:
    """The features of the peers to which we are about to send.

    slixmpp's own request for disco#info would put a handler into the stream for each
    question, and would drop a late answer.

    Attributes:
        awaited: the ids of the iqs that may still be answered.
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
        versions: TwoRooms[str, Version],
        on_features: Callable[[str], None],
        answered: Callable[[str, float], None],
    ) -> None:
        """Prepare to ask.

        Args:
            xmpp: the stream.
            namespaces: those of QoS, in the order of preference.
            timeout_s: the least time to wait for an answer, which follows the round
                trips; it doubles with each question without an answer. A failure is
                remembered for this time.
            clock: the clock.
            ask: sends a request for disco#info to a JID, from another one or '', and
                returns its id; '': it cannot be sent.
            capabilities: the lists that accounts have sent, by their versions.
            versions: the version in the latest presence of a JID.
            on_features: called with an account when more is known about it.
            answered: called with an account and the seconds until it has answered.
        """
        self._xmpp = xmpp
        self._namespaces = namespaces
        self._timeout_s = timeout_s
        self._clock = clock
        self._ask = ask
        self._capabilities = capabilities
        self._versions = versions
        self._found = on_features
        self._answered = answered
        self._known: dict[str, _Known] = {}
        # The id of the question to a JID, in the time that it has for its answer.
        self._asking: dict[str, str] = {}
        self._questions: dict[str, _Question] = {}
        self.awaited = self._questions.keys()
        # The senders of the messages to those who are still to be asked, by their JID.
        self._to_ask: dict[str, str] = {}
        # How many requests in a row a peer has left without an answer.
        self._unanswered: dict[str, int] = {}
        # The round trips over our link, to all peers together.
        self._pace = Pace(timeout_s, ANSWER_S_MAX)
        self._timers: Timers[str] = Timers(clock, self._overdue)

    def of(self, jid: str, sender: str) -> AbstractSet[str] | None:
        """The features of a JID; None while it is being asked.

        Args:
            jid: the JID.
            sender: the JID of ours that asks, or ''.
        """
        entry = self._known.get(jid)
        if entry is not None and (
            entry.until is None or self._clock.now() < entry.until
        ):
            return entry.features
        version = self._versions.get(jid)
        features = version and self._capabilities.features(
            bare(jid), version.algorithm, version.text
        )
        if features:
            _put(self._known, jid, _Known(features))
            return features
        if jid not in self._asking:
            self._to_ask.setdefault(jid, sender)
            self._ask_next()
        return None

    def supports(self, jid: str, features: AbstractSet[str]) -> bool:
        """Whether this JID is known to support all of these; does not ask it."""
        entry = self._known.get(jid)
        return entry is not None and entry.features >= features

    def arrived(self, jid: str, version: Version | None) -> None:
        """Take the version in a new presence, which may be another one."""
        entry = self._known.get(jid)
        is_same = version is not None and version == self._versions.get(jid)
        if not is_same or (entry is not None and entry.until is not None):
            self.forget(jid)

    def forget(self, jid: str) -> None:
        """Forget the features of this full JID, since they may have changed."""
        self._known.pop(jid, None)

    @property
    def limit_s(self) -> float:
        """The seconds that an answer may take, by the round trips seen."""
        return answer_limit_s(self._pace, self._timeout_s, 0)

    def session_started(self) -> None:
        """Take the start of a session that was not resumed."""
        self._known.clear()

    def session_lost(self) -> None:
        """Ask nobody; what is known stays, as the session may be resumed."""
        self._to_ask.clear()
        for iq_id in self._questions:
            self._timers.clear(iq_id)
        self._questions.clear()
        self._asking.clear()

    def stop(self) -> None:
        """Ask nobody, for good."""
        self.session_lost()
        self._timers.stop()

    def _ask_next(self) -> None:
        """Ask those who wait for that, as many as may be asked at a time."""
        while self._to_ask and len(self._asking) < _ASKED_AT_ONCE:
            jid = next(iter(self._to_ask))
            iq_id = self._ask(jid, self._to_ask.pop(jid))
            if not iq_id:
                return  # there is no connection: the next session begins anew
            now, unanswered = self._clock.now(), self._unanswered.get(jid, 0)
            self._asking[jid] = iq_id
            self._questions[iq_id] = _Question(jid, now, unanswered == 0)
            limit_s = answer_limit_s(self._pace, self._timeout_s, unanswered)
            self._timers.set(iq_id, now + limit_s)
            if len(self._questions) > _QUESTIONS_MAX:
                del self._questions[next(iter(self._questions))]

    def _overdue(self, iq_id: str) -> None:
        """Go on without an answer; one that comes late is still taken."""
        question = self._questions.get(iq_id)
        if question is None or self._asking.get(question.jid) != iq_id:
            return
        jid = question.jid
        _put(self._unanswered, jid, self._unanswered.get(jid, 0) + 1)
        self._learned(jid, _NOTHING)

    def take_answer(self, xml: ET.Element) -> bool:
        """Take the answer to a question of ours, unless it is from somebody else."""
        iq_id = xml.get("id", "")
        question = self._questions[iq_id]
        jid, source = question.jid, xml.get("from", "")
        own = self._xmpp.boundjid.full
        # Our server answers for our account, and for a peer that cannot be reached.
        for_another = xml.get("type") == "error" or jid == bare(own)
        if source != jid and not (for_another and source in own_servers(own)):
            return False
        del self._questions[iq_id]
        self._timers.clear(iq_id)
        features: AbstractSet[str] = _NOTHING
        if xml.get("type") == "result":
            features = self._read(xml, jid)
        if question.first:
            took_s = self._clock.now() - question.asked_at
            self._pace.answered(took_s, 0)
            self._answered(bare(jid), took_s)
        self._unanswered.pop(jid, None)
        self._learned(jid, features)
        return True

    def _read(self, xml: ET.Element, jid: str) -> AbstractSet[str]:
        """The features in an answer, which are kept if they are those of its version."""
        info = read_info(xml)
        features = frozenset(info.features)
        version = self._versions.get(jid)
        if version and verification(info, version.algorithm) == version.text:
            self._capabilities.learn(
                bare(jid), version.algorithm, version.text, features
            )
        return features

    def _learned(self, jid: str, features: AbstractSet[str]) -> None:
        speaks = namespace_for(features, self._namespaces) is not None
        until = None if speaks else self._clock.now() + self._timeout_s
        self._asking.pop(jid, None)
        _put(self._known, jid, _Known(features, until))
        self._ask_next()
        try:
            self._found(bare(jid))
        except Exception:
            # Such as a store that cannot be written: its messages are attempted again.
            log.exception("messages to %s cannot go on for now", jid)


def _put(table: dict[_K, _V], key: _K, value: _V) -> None:
    """Set a value as the newest, and forget the oldest if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _PEERS_MAX:
        del table[next(iter(table))]
