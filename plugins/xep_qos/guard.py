"""A guard that collects the facts of the stream for `qos.core.message.trust`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable

from slixmpp import JID, ClientXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.exceptions import XMPPError
from slixmpp.stanza import Iq

from qos.core.message.receiver_table import Request
from qos.core.message.trust import Trusted, TrustPolicy
from qos.core.strings import bare
from xep_qos.settings import TrustCallback

__all__ = ["Guard"]

log = logging.getLogger(__name__)

#: The most requests that wait until the roster is known, or the application has
#: decided. Further ones get an error at once, and may be repeated.
_WAITING_MAX = 1_000

#: The most bytes of their payloads: a request may be as large as a server's limit for a
#: stanza.
_WAITING_BYTES_MAX = 4 * 1024 * 1024

#: The most rooms that are remembered by the presence of their occupants.
_ROOMS_MAX = 10_000

_ROSTER = "jabber:iq:roster"

#: The decision on a `deliver`: only a sender that was trusted when it sent the message
#: knows the token.
_HELD = Trusted(True, "it is held already")

_OCCUPANT = Trusted(False, "an occupant of a room")
_BY_APPLICATION = "the application's decision"

#: The rule for acknowledged messages, where anyone may send them.
_ANYONE = TrustPolicy(anyone=True)
_ACCEPTED = Trusted(True, "everyone is accepted")

#: How long to wait for the roster before asking for it again.
_ROSTER_TIMEOUT_S = 15.0


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
        # Requests that wait for the roster or for the application, and their bytes.
        self._kept: dict[int, Request] = {}
        self._kept_bytes = 0
        self._rooms: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.roster_known = asyncio.Event()
        #: Whether any decision needs the roster.
        self.needs_roster = isinstance(trust, TrustPolicy) and trust.contacts

    def session_started(self, *, resumed: bool) -> None:
        """Learn the roster, if a decision depends on it.

        This is done in each session, except a resumed one. A server reports changes
        only to clients that have asked for the roster (RFC 6121 §2.1.6), and there may
        have been changes meanwhile.
        """
        if self.needs_roster and isinstance(self._xmpp, ClientXMPP):
            if not (resumed and self.roster_known.is_set()):
                self.roster_known.clear()
                self._spawn(self._learn_roster(self._xmpp))
        else:
            self._roster_is_known()

    def session_lost(self) -> None:
        """Stop everything that waits for this session."""
        for task in self._tasks:
            task.cancel()
        self._waiting.clear()
        self._kept.clear()
        self._kept_bytes = 0

    def undecided(self) -> list[Request]:
        """The requests that wait for a decision."""
        return list(self._kept.values())

    def shows_presence(self, account: str) -> bool:
        """Whether the roster of this session shows that we see an account's presence.

        This is known only if the roster is followed anyway, because trust depends on
        it.
        """
        followed = self.needs_roster and self.roster_known.is_set()
        return followed and self._subscription(account, "") in {"to", "both"}

    def saw_occupant(self, jid: str) -> None:
        """Note presence that only an occupant of a room sends (XEP-0045)."""
        if len(self._rooms) < _ROOMS_MAX:
            self._rooms.add(bare(jid))

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
        if rule.contacts and not (rule.named and rule.names(source)):
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
        size = self._kept_bytes + request.size
        if len(self._kept) >= _WAITING_MAX or size > _WAITING_BYTES_MAX:
            self._no_room(request)
            return False
        self._kept[id(request)], self._kept_bytes = request, size
        return True

    def _let_go(self, request: Request) -> None:
        if self._kept.pop(id(request), None) is not None:
            self._kept_bytes -= request.size

    def _subscription(self, account: str, to: str) -> str:
        """The subscription of an account.

        Does not make a roster entry, as slixmpp would.
        """
        rosters = self._xmpp.roster
        own = bare(to) or self._xmpp.boundjid.bare
        if own not in rosters.keys() or not rosters[own].has_jid(account):  # noqa: SIM118
            return "none"
        return str(rosters[own][account]["subscription"])

    def _is_occupant(self, account: str, to: str) -> bool:
        if account in self._rooms:
            return True
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

    async def _learn_roster(self, xmpp: ClientXMPP) -> None:
        while True:
            try:
                query = xmpp.make_iq_get(_ROSTER)
                # Handled in the callback: a push may follow in the same read.
                await query.send(  # type: ignore[no-untyped-call]
                    callback=self._take_roster, timeout=_ROSTER_TIMEOUT_S
                )
            except XMPPError as error:
                log.warning("the roster is not known yet: %s", error)
                await asyncio.sleep(1.0)
            else:
                return

    def _take_roster(self, answer: Iq) -> None:
        """Make slixmpp's roster agree with the server's.

        slixmpp's own get_roster asks only for changes (RFC 6121 §2.6), which does not
        show the removed contacts. From the result on, slixmpp follows the server's
        pushes.
        """
        if answer["type"] != "result":
            return
        subscriptions = {
            item.get("jid", ""): item.get("subscription", "none")
            for item in answer.xml.iterfind(f"{{{_ROSTER}}}query/{{{_ROSTER}}}item")
        }
        roster = self._xmpp.client_roster
        for jid in {*roster.keys(), *subscriptions}:
            subscription = subscriptions.get(jid, "none")
            roster[jid]["to"] = subscription in {"to", "both"}
            roster[jid]["from"] = subscription in {"from", "both"}
        self._roster_is_known()

    def _roster_is_known(self) -> None:
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
