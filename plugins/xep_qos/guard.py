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

#: How long to wait for the roster before asking for it again.
_ROSTER_TIMEOUT_S = 15.0


class Guard:
    """Decides on each request, as soon as the necessary facts are known.

    No request is refused before the roster is known: it waits.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        trust: TrustPolicy | TrustCallback,
        trust_acknowledged: TrustPolicy | TrustCallback,
        decided: Callable[[Request, Trusted], None],
        no_room: Callable[[Request], None],
    ) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            trust: the rule for peers whose messages are held.
            trust_acknowledged: the same for level acknowledged.
            decided: called with each request and the decision.
            no_room: called with a request that cannot wait for its decision.
        """
        self._xmpp = xmpp
        self._trust = trust
        self._trust_acknowledged = trust_acknowledged
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
        self.needs_roster = any(
            isinstance(rule, TrustPolicy) and rule.needs_roster
            for rule in (trust, trust_acknowledged)
        )

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

    def consider(self, request: Request) -> None:
        """Decide on a request, now or later."""
        if request.kind == "deliver":
            self._decided(request, _HELD)
            return
        rule = self._trust
        if request.kind == "acknowledged":
            rule = self._trust_acknowledged
        if not isinstance(rule, TrustPolicy):
            if self._keep(request):
                asking = self._spawn(self._ask_application(rule, request))
                asking.add_done_callback(lambda _: self._let_go(request))
        elif not self.roster_known.is_set() and rule.needs_roster:
            if self._keep(request):
                self._waiting.append(request)
        else:
            self._decide(rule, request)

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

    def _decide(self, rule: TrustPolicy, request: Request) -> None:
        account = bare(request.source)
        subscription = "none"
        if rule.needs_roster:
            subscription = self._subscription(account, request.to)
        trusted = Trusted.decide(
            rule,
            request.source,
            own=request.to or self._xmpp.boundjid.full,
            subscription=subscription,
            occupant=self._is_occupant(account, request.to),
        )
        self._decided(request, trusted)

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

    async def _ask_application(self, rule: TrustCallback, request: Request) -> None:
        if self._is_occupant(bare(request.source), request.to):
            self._decided(request, Trusted(False, "an occupant of a room"))
            return
        try:
            answer = rule(request.source)
            trusted = await answer if inspect.isawaitable(answer) else answer
        except Exception:
            log.exception("the trust function failed on %s", request.source)
            trusted = False
        self._decided(request, Trusted(bool(trusted), "the application's decision"))

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
            self.consider(request)

    def _spawn(self, coroutine: object) -> asyncio.Task[None]:
        assert inspect.iscoroutine(coroutine)
        task = self._xmpp.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
