"""A guard that collects the facts of the stream for `qos.core.message.trust`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP

from qos.core.message.acquaintance import is_stranger
from qos.core.message.receiver_table import Request
from qos.core.message.trust import Trusted, TrustPolicy
from qos.core.strings import bare
from qos.core.two_rooms import TwoRooms
from xep_qos.roster import subscription_of
from xep_qos.settings import TrustCallback

__all__ = ["Guard"]

log = logging.getLogger(__name__)

#: The most requests of strangers that wait until the roster is known, or the application
#: has decided, and as many of those whom the last roster had. Further ones get an error at
#: once, and may be repeated.
_WAITING_MAX = 1_000

#: The most bytes of their payloads: a request may be as large as a server's limit for a
#: stanza.
_WAITING_BYTES_MAX = 4 * 1024 * 1024

#: The most rooms that are remembered by the presence of their occupants: of those that we
#: have entered, and beside them of others.
_ROOMS_MAX = 10_000

#: The decision on a `deliver`: only a sender that was trusted when it sent the message
#: knows the token.
_HELD = Trusted(True, "it is held already")

_OCCUPANT = Trusted(False, "an occupant of a room")
_BY_APPLICATION = "the application's decision"

#: The rule for acknowledged messages, where anyone may send them.
_ANYONE = TrustPolicy(anyone=True)
_ACCEPTED = Trusted(True, "everyone is accepted")


class Guard:
    """Decides on each request, as soon as the necessary facts are known.

    If they are known when it comes, this is before its message is read.

    No request is refused before the roster is known: it waits.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        trust: TrustPolicy | TrustCallback,
        accepts_anyone: bool,
        decided: Callable[[Request, Trusted], None],
        no_room: Callable[[Request], None],
    ) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            trust: the rule.
            accepts_anyone: whether the rule is for assured messages only.
            decided: called with each request and the decision.
            no_room: called with a request that cannot wait for its decision.
        """
        self._xmpp = xmpp
        self._trust = trust
        self._accepts_anyone = accepts_anyone
        #: Whether the rule is a function that does not answer at once.
        self._is_slow = inspect.iscoroutinefunction(trust)
        self._decided = decided
        self._no_room = no_room
        self._waiting: deque[Request] = deque()
        # Requests that wait for the roster or for the application; their number and
        # bytes, of the known and of strangers.
        self._kept: dict[int, tuple[Request, bool]] = {}
        self._kept_count = {True: 0, False: 0}
        self._kept_bytes = {True: 0, False: 0}
        self._rooms: TwoRooms[str, bool] = TwoRooms(_ROOMS_MAX, _ROOMS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self.roster_known = asyncio.Event()
        #: Whether any decision needs the roster.
        self.needs_roster = isinstance(trust, TrustPolicy) and trust.contacts

    def session_started(self, *, resumed: bool) -> None:
        """Decide by the roster only when that of this session is known."""
        if not self.needs_roster:
            self.roster_loaded()
        elif not resumed:
            self.roster_known.clear()

    def session_lost(self) -> None:
        """Stop everything that waits for this session."""
        for task in self._tasks:
            task.cancel()
        self._waiting.clear()
        self._kept.clear()
        self._kept_count = {True: 0, False: 0}
        self._kept_bytes = {True: 0, False: 0}

    def undecided(self) -> list[Request]:
        """The requests that wait for a decision."""
        return [request for request, _ in self._kept.values()]

    def shows_presence(self, account: str) -> bool:
        """Whether the roster of this session shows that we see an account's presence.

        This is known only if the roster is followed anyway, because trust depends on
        it.
        """
        followed = self.needs_roster and self.roster_known.is_set()
        return followed and self._subscription(account, "") in {"to", "both"}

    def saw_occupant(self, jid: str, *, stranger: bool) -> None:
        """Note presence that only an occupant of a room sends (XEP-0045).

        Args:
            jid: that of the occupant.
            stranger: whether we have not entered the room.
        """
        self._rooms.put(bare(jid), True, stranger=stranger)

    def is_stranger(self, jid: str, to: str, *, addressed: bool) -> bool:
        """Whether a JID is that of a stranger; see `qos.core.message.acquaintance`.

        Args:
            jid: the JID.
            to: our own JID to which it has sent something, or ''.
            addressed: whether we have sent something to its account.
        """
        account = bare(jid)
        rule = self._trust
        return is_stranger(
            jid,
            own=to or self._xmpp.boundjid.full,
            policy=rule if isinstance(rule, TrustPolicy) else None,
            listed=self._is_listed(account, to),
            addressed=addressed,
            occupant=self._is_entered(account, to),
        )

    def decision(self, kind: str, source: str, to: str) -> Trusted | None:
        """Decide on a request before it is read; None: this takes some time.

        Args:
            kind: the name of its element, perhaps with its namespace.
            source: the full JID of its sender.
            to: the JID it was addressed to.
        """
        if kind.endswith("deliver"):
            return _HELD
        rule = self._trust
        if self._accepts_anyone and kind.endswith("acknowledged"):
            rule = _ANYONE
        return self._by(rule, source, to)

    def consider(self, request: Request) -> None:
        """Decide on a request for which `decision` was None."""
        if not self._keep(request):
            return
        if isinstance(self._trust, TrustPolicy):
            self._waiting.append(request)
        else:
            asking = self._spawn(self._ask_about(self._trust, request))
            asking.add_done_callback(lambda _: self._let_go(request))

    def plain(self, source: str, to: str) -> Trusted | None:
        """Decide on the sender of a plain message; None: this takes some time."""
        if self._accepts_anyone:
            return _ACCEPTED
        return self._by(self._trust, source, to)

    async def plain_later(self, source: str, to: str) -> Trusted:
        """The same, when the roster is known or the application has decided."""
        if not isinstance(self._trust, TrustPolicy):
            return await self._ask_application(self._trust, source)
        while (decision := self.plain(source, to)) is None:
            await self.roster_known.wait()
        return decision

    def _by(
        self, rule: TrustPolicy | TrustCallback, source: str, to: str
    ) -> Trusted | None:
        account = bare(source)
        if not isinstance(rule, TrustPolicy):
            return self._answer_at_once(rule, source, account, to)
        subscription = "none"
        is_ours = False
        if not self.roster_known.is_set():
            # The own account is served, whether or not there is a roster.
            is_ours = account == (bare(to) or self._xmpp.boundjid.bare)
        if rule.contacts and not is_ours and not (rule.named and rule.names(source)):
            if not self.roster_known.is_set():
                return None
            subscription = self._subscription(account, to)
        return Trusted.decide(
            rule,
            source,
            own=to or self._xmpp.boundjid.full,
            subscription=subscription,
            occupant=self._is_occupant(account, to),
        )

    def _keep(self, request: Request) -> bool:
        """Whether there is room for one more waiting request; if not, it is refused."""
        is_listed = self._is_listed(bare(request.source), request.to)
        size = self._kept_bytes[is_listed] + request.size
        if self._kept_count[is_listed] >= _WAITING_MAX or size > _WAITING_BYTES_MAX:
            self._no_room(request)
            return False
        self._kept[id(request)] = request, is_listed
        self._kept_count[is_listed] += 1
        self._kept_bytes[is_listed] = size
        return True

    def _let_go(self, request: Request) -> None:
        entry = self._kept.pop(id(request), None)
        if entry is not None:
            self._kept_count[entry[1]] -= 1
            self._kept_bytes[entry[1]] -= request.size

    def _is_listed(self, account: str, to: str) -> bool:
        """Whether the roster has a subscription of an account, or one is asked for."""
        if self._subscription(account, to) != "none":
            return True
        rosters = self._xmpp.roster
        own = bare(to) or self._xmpp.boundjid.bare
        if own not in rosters.keys() or not rosters[own].has_jid(account):  # noqa: SIM118
            return False
        return bool(rosters[own][account]["pending_out"])

    def _subscription(self, account: str, to: str) -> str:
        """The subscription of an account."""
        own = bare(to) or self._xmpp.boundjid.bare
        return subscription_of(self._xmpp, account, own)

    def _is_occupant(self, account: str, to: str) -> bool:
        if account in self._rooms.known or account in self._rooms.strangers:
            return True
        if "xep_0045" not in self._xmpp.plugin:
            return False
        return self._is_entered(account, to)

    def _is_entered(self, account: str, to: str) -> bool:
        """Whether an account is a room that the plugin of XEP-0045 has entered."""
        if "xep_0045" not in self._xmpp.plugin:
            return False
        muc = self._xmpp.plugin["xep_0045"]
        # A component may be in rooms under many JIDs; each is known by the JID that
        # joined.
        joined_as = [JID(to), JID(bare(to))] if muc.multi_from else [None]
        rooms = [room for own in joined_as for room in muc.get_joined_rooms(own)]
        return JID(account) in rooms

    def _answer_at_once(
        self, rule: TrustCallback, source: str, account: str, to: str
    ) -> Trusted | None:
        if self._is_occupant(account, to):
            return _OCCUPANT
        if self._is_slow:
            return None
        try:
            answer = rule(source)
        except Exception:
            log.exception("the trust function failed on %s", source)
            return Trusted(False, _BY_APPLICATION)
        if inspect.isawaitable(answer):
            # It is asked again where its answer is awaited.
            self._is_slow = True
            if inspect.iscoroutine(answer):
                answer.close()
            return None
        return Trusted(bool(answer), _BY_APPLICATION)

    async def _ask_about(self, rule: TrustCallback, request: Request) -> None:
        self._decided(request, await self._ask_application(rule, request.source))

    async def _ask_application(self, rule: TrustCallback, source: str) -> Trusted:
        try:
            answer = rule(source)
            trusted = await answer if inspect.isawaitable(answer) else answer
        except Exception:
            log.exception("the trust function failed on %s", source)
            trusted = False
        return Trusted(bool(trusted), _BY_APPLICATION)

    def roster_loaded(self) -> None:
        """Take the news that the roster is known: decide on the requests that wait."""
        self.roster_known.set()
        while self._waiting:
            request = self._waiting.popleft()
            self._let_go(request)
            decision = self.decision(request.kind, request.source, request.to)
            assert decision is not None
            self._decided(request, decision)

    def _spawn(self, coroutine: object) -> asyncio.Task[None]:
        assert inspect.iscoroutine(coroutine)
        task = self._xmpp.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
