"""The requests of XMPP clients, each in a turn of its account.

A request is done at once while nobody waits. Those of an account that sends many wait, in
their order and up to a bound, while others are served. Accounts of a foreign domain have
one turn together, since that domain can make as many of them as it likes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import TypeAlias

from qos.core.strings import bare, domain_of
from qos.engine.payers import STEP_S, Payers
from qos.steps import Steps

__all__ = ["RequestTurns", "stepped"]

log = logging.getLogger(__name__)

#: Requests of one account, or of one foreign domain, that wait for a turn; and of all.
_WAITING_MAX = 500
_ALL_WAITING_MAX = 5_000

_Call: TypeAlias = Callable[[], object]

#: Returned by a call that has more to do. It is called again, before the next of its account.
_MORE = object()


def stepped(steps: Steps[None]) -> _Call:
    """A call for `RequestTurns.do` that does one step each time."""

    def call() -> object:
        try:
            next(steps)
        except StopIteration:
            return None
        return _MORE

    return call


class RequestTurns:
    """The requests that wait."""

    def __init__(self, payers: Payers, own_domains: Collection[str]) -> None:
        """Begin without requests.

        Args:
            payers: of all doors.
            own_domains: of the service; all others are foreign.
        """
        self._payers = payers
        self._own_domains = own_domains
        self._waiting: dict[str, deque[_Call]] = {}
        self._count = 0

    def do(self, requester: str, call: _Call) -> bool:
        """Do this now, or when it is the turn of the account.

        Args:
            requester: a full JID.
            call: a request of it.

        Returns:
            False: it is not done: too many requests wait.
        """
        payer = self.payer(requester)
        waiting = self._waiting.get(payer)
        returned: list[object] = []
        has_begun = waiting is None and self._payers.do_now(
            payer, lambda: returned.append(call())
        )
        if has_begun and returned != [_MORE]:
            return True
        if not has_begun and self._count >= _ALL_WAITING_MAX:
            return False
        if waiting is None:
            waiting = self._waiting[payer] = deque()
            self._payers.do(payer, lambda: self._step(payer))
        if len(waiting) >= _WAITING_MAX:
            return False
        waiting.append(call)
        self._count += 1
        return True

    def after(self, requester: str, call: _Call) -> None:
        """Do this after the requests of the account that wait, if there is room.

        It is news of the account, such as its presence, and is not refused.
        """
        waiting = self._waiting.get(self.payer(requester))
        if waiting is None or len(waiting) >= 2 * _WAITING_MAX:
            call()
        else:
            waiting.append(call)
            self._count += 1

    def payer(self, requester: str) -> str:
        """The payer of a full JID: its account, or its domain if that is foreign."""
        account = bare(requester)
        domain = domain_of(account)
        return account if domain in self._own_domains else domain

    def _step(self, payer: str) -> bool:
        """Do requests of an account for `STEP_S`; returns whether there are more.

        Not one request only: the account may have a job for each of a hundred requests of
        HTTP, and this is one job among them.
        """
        until = self._payers.now() + STEP_S
        while self._one(payer):
            if self._payers.now() >= until:
                return True
        return False

    def _one(self, payer: str) -> bool:
        waiting = self._waiting[payer]
        returned: object = None
        try:
            returned = waiting[0]()
        except Exception:
            log.exception("a stanza of %s could not be looked into", payer)
        if returned is not _MORE:
            waiting.popleft()
            self._count -= 1
        if not waiting:
            del self._waiting[payer]
        return bool(waiting)
