"""The time in which a server answers for the service that the service is away.

The service has lost its connection then, and moves the locks of XMPP workers by that time
when it is back (`qos.core.queue.link_time`). So the worker's deadline moves by the time
between the first such answer and the last one. No answer at all, or trouble between two
servers, says nothing about the service's own connection, and moves no deadline.
"""

from __future__ import annotations

from typing import Final

from qos.core.strings import bare, domain_of
from qos.errors import RequestFailed, RequestRefused
from qos.worker.job import Job

__all__ = ["AwayTime"]

#: What the server of a service answers while the service has no session there.
_AWAY: Final = frozenset({"recipient-unavailable", "service-unavailable"})

#: What Prosody answers in the name of a component that is away. Our services never say so.
_AWAY_BY_NAME: Final = "remote-server-timeout"

#: What a server answers when it cannot reach another one. If ours is that of the service,
#: it has looked for the service elsewhere in vain, as ejabberd does for a component.
_ELSEWHERE: Final = frozenset({"remote-server-not-found", "remote-server-timeout"})


class AwayTime:
    """What one request for a job has learned so far.

    Attributes:
        is_away: the last answer said so.
        lost_s: how long the service has certainly been away, of all until now, in seconds.
    """

    def __init__(self, service: str, job: Job, *, own: str) -> None:
        """Begin with a service that is there.

        Args:
            service: its JID.
            job: a service of ours has given it a token. Any other service is told to
                have no extensions by the same answer, and its locks run on.
            own: our account; the service may be on its server.
        """
        self.is_away = False
        self.lost_s = 0.0
        self._service = service
        self._is_ours = bool(job.token)
        own_domain, domain = _domain(own), _domain(service)
        self._is_here = domain == own_domain or domain.endswith(f".{own_domain}")
        self._since = 0.0

    def note(self, error: RequestFailed, now: float) -> float:
        """Note a request that has failed.

        Args:
            error: of it.
            now: the time, by any clock that goes on evenly.

        Returns:
            How much longer the service has been away than was known, in seconds.
        """
        was_away, self.is_away = self.is_away, self._says_away(error)
        if not self.is_away:
            return 0.0
        more_s = now - self._since if was_away else 0.0
        self._since = now
        self.lost_s += more_s
        return more_s

    def _says_away(self, error: RequestFailed) -> bool:
        if not self._is_ours or not isinstance(error, RequestRefused):
            return False
        if error.by == self._service:
            # Else it has named itself, and is there.
            return error.condition == _AWAY_BY_NAME
        return error.condition in _AWAY or (
            self._is_here and error.condition in _ELSEWHERE
        )


def _domain(jid: str) -> str:
    return domain_of(bare(jid))
