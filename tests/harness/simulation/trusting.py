"""The trust of a receiver: the real guard, on a stream that has nothing but a roster.

The roster is known some time after a session has begun: a server has to tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP

from qos.core.message.receiver_table import Request
from qos.core.message.trust import Trusted, TrustPolicy
from qos.core.strings import bare
from simulation.plan import MACHINES, Settings, jid_of
from xep_qos.guard import Guard

__all__ = ["Trusting"]


class _Contacts(dict[str, dict[str, str]]):
    """The contacts of an account: the subscription of each."""

    def has_jid(self, account: str) -> bool:
        """See slixmpp's RosterNode."""
        return account in self


class _Stream:
    """The part of a slixmpp stream that a guard looks at."""

    def __init__(self, jid: str) -> None:
        self.boundjid = JID(jid)
        self.plugin: dict[str, object] = {}
        self.contacts = _Contacts()
        self.roster = {bare(jid): self.contacts}


class Trusting:
    """The guard of one process of a receiver.

    Attributes:
        guard: the real one.
    """

    def __init__(
        self,
        jid: str,
        settings: Settings,
        *,
        decided: Callable[[Request, Trusted], None],
        no_room: Callable[[Request], None],
    ) -> None:
        self._stream = _Stream(jid)
        self._settings = settings
        self.guard = Guard(
            cast(BaseXMPP, self._stream),
            trust=_policy(settings),
            accepts_anyone=settings.accepts_anyone,
            decided=decided,
            no_room=no_room,
        )

    def connected(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """A session has begun; `later` calls a function after so many seconds."""
        self.guard.roster_known.clear()
        if self._settings.roster_s:
            later(self._settings.roster_s, self._learn_roster)
        else:
            self._learn_roster()

    def _learn_roster(self) -> None:
        for account in _trusted(self._settings):
            self._stream.contacts[account] = {"subscription": "both"}
        self.guard.roster_loaded()


def _trusted(settings: Settings) -> frozenset[str]:
    """The accounts of all machines that are no strangers."""
    return frozenset(
        bare(jid_of(name, settings))
        for name in MACHINES
        if name not in settings.distrusted
    )


def _policy(settings: Settings) -> TrustPolicy:
    if settings.contacts:
        return TrustPolicy(contacts=True)
    if settings.domain:
        return TrustPolicy(named=frozenset({"@x"}))
    return TrustPolicy(named=_trusted(settings))
