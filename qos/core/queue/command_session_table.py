"""The table of command sessions (XEP-0050 §3.3): of forms that nobody has filled in yet.

A session is of one account and one command. It ends when its command has ended, after ten
minutes without a request, or when its account begins too many others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from qos.core.queue.command_session import CommandRefusal, Session
from qos.core.queue.requests import Refusal
from qos.core.quota import Share, Tally
from qos.core.strings import domain_of

__all__ = [
    "ENDED_MAX",
    "SESSIONS_MAX",
    "SESSIONS_PER_ACCOUNT_MAX",
    "SESSIONS_PER_DOMAIN_MAX",
    "SESSION_S_MAX",
    "CommandSessions",
]

#: Seconds without a request after which a session ends: time to look something up.
SESSION_S_MAX = 600.0

#: Sessions of an account, of all accounts of a foreign domain, and of all. Nobody fills
#: in more than a few forms at a time.
SESSIONS_PER_ACCOUNT_MAX = 10
SESSIONS_PER_DOMAIN_MAX = 100
SESSIONS_MAX = 1_000

#: The ids of ended sessions that are remembered, to say that they have ended.
ENDED_MAX = 1_000


class CommandSessions:
    """The sessions, the one that ends first at the front."""

    def __init__(self, own_domains: Collection[str] = ()) -> None:
        """Begin without sessions.

        Args:
            own_domains: of the service; all others are foreign.
        """
        share = Share(SESSIONS_PER_ACCOUNT_MAX, SESSIONS_PER_DOMAIN_MAX, SESSIONS_MAX)
        self._counts = Tally(share, own_domains)
        #: By id, with the time when each ends.
        self._sessions: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        #: The ids of those whose request is being worked on.
        self._busy: set[str] = set()
        #: The accounts of ended sessions, by id, the oldest first.
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def take(
        self, session_id: str, account: str, command_node: str, now: float
    ) -> Session:
        """The session that a request goes on with; no other may go on with it meanwhile.

        Args:
            session_id: as the request has it.
            account: the bare JID that asks.
            command_node: the node of the command, as the request has it.
            now: the time.

        Raises:
            Refusal: there is no such session of this account and command, it has ended,
                or another request of it is being worked on (XEP-0050 §4.4).
        """
        self._expire(now)
        session, _ = self._sessions.get(session_id, (None, 0.0))
        if session is None and self._ended.get(session_id) == account:
            raise CommandRefusal(
                "this session has ended: execute the command again",
                condition="not-allowed",
                type="cancel",
                command="session-expired",
            )
        # The answer does not tell whether another account has such a session.
        if (
            session is None
            or session.account != account
            or session.command.node != command_node
        ):
            raise CommandRefusal(
                "there is no such session of this command: execute it without a sessionid",
                condition="bad-request",
                type="modify",
                command="bad-sessionid",
            )
        if session_id in self._busy:
            raise Refusal(
                "the request before is still being worked on: wait for its answer",
                condition="unexpected-request",
                type="wait",
            )
        self._busy.add(session_id)
        return session

    def keep(self, session: Session, now: float) -> None:
        """Keep a session, new or taken, for the next request.

        The account's oldest session makes room for one too many.

        Raises:
            Refusal: a new one has no room.
        """
        self._expire(now)
        session_id, account = session.session_id, session.account
        if session_id not in self._sessions:
            bound = self._counts.refusal(account)
            if bound == "account":
                self.end(self._oldest_of(account))
                bound = self._counts.refusal(account)
            if bound is not None:
                requesters = f" by {domain_of(account)}" if bound == "domain" else ""
                raise Refusal(
                    f"too many commands are executed here{requesters} at this time: try "
                    "again in some minutes",
                    condition="resource-constraint",
                    type="wait",
                )
            self._counts.add(account)
        self._busy.discard(session_id)
        self._sessions[session_id] = session, now + SESSION_S_MAX
        self._sessions.move_to_end(session_id)

    def release(self, session: Session, now: float) -> None:
        """Keep a taken session as it was, unless it has ended meanwhile."""
        if session.session_id in self._sessions:
            self.keep(session, now)

    def end(self, session: Session) -> None:
        """End a session, kept or new."""
        session_id = session.session_id
        if self._sessions.pop(session_id, None) is not None:
            self._counts.add(session.account, -1)
        self._busy.discard(session_id)
        self._ended[session_id] = session.account
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _oldest_of(self, account: str) -> Session:
        sessions = (session for session, _ in self._sessions.values())
        return next(session for session in sessions if session.account == account)

    def _expire(self, now: float) -> None:
        while self._sessions:
            session, ends_at = next(iter(self._sessions.values()))
            if now < ends_at:
                return
            self.end(session)
