"""The links of one connection that are gone, while their termini are kept.

The timer of such a terminus starts when what its expiry policy names has ended: the link,
its session, or the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proton import Session, Terminus

from qos.amqp import bounds
from qos.amqp.ports import LinkHost
from qos.amqp.termini import Expiry, KeptTerminus
from qos.amqp.unsettled import Away
from qos.core.queue.requests import CloseLink, Refusal, Request, Suspend
from qos.core.queue.results import Result
from qos.core.registry import register

__all__ = ["Suspended", "SuspendedLinks"]


@dataclass(frozen=True, slots=True)
class Suspended:
    """A suspended link to a consumer.

    Attributes:
        terminus: its terminus.
        expiry: of its terminus.
        session: that it had.
    """

    terminus: KeptTerminus
    expiry: Expiry
    session: Session | None


class SuspendedLinks:
    """The suspended links of one connection."""

    def __init__(self, connection: LinkHost) -> None:
        self._connection = connection
        # To consumers, by link name, until their timers run.
        self._consumers: dict[str, Suspended] = {}
        self._publishers: list[Away] = []

    def add_consumer(self, name: str, link: Suspended, scope: int) -> None:
        """Keep the terminus of a link to a consumer.

        Args:
            name: of the link.
            link: the link.
            scope: the policy that names what has ended.
        """
        connection = self._connection
        connection.hub.termini[connection.terminus_name(name)] = link.terminus
        register(self._consumers, name, link)
        self._start_timer(name, scope)

    def add_publisher(self, name: str, link: Away, scope: int) -> None:
        """Keep the unsettled deliveries of a link from a publisher, as for a consumer."""
        connection = self._connection
        full_name, published = connection.terminus_name(name), link.published
        connection.hub.unsettled.keep_published(full_name, published)
        link.ended(scope, connection.engine.now())
        if len(self._publishers) >= bounds.LINKS_MAX:
            self._publishers.pop(0).ended(
                Terminus.EXPIRE_WITH_CONNECTION, connection.engine.now()
            )
        self._publishers.append(link)

    def attached(self, name: str) -> None:
        """A link to a consumer is attached again, or another one of its name."""
        self._consumers.pop(name, None)

    def end(self, terminus: KeptTerminus) -> None:
        """End a terminus: a link with its name goes on with another one."""
        self._request(terminus.jid, CloseLink(terminus.node))
        self._connection.hub.unsettled.sent(terminus.jid)
        self._connection.engine.departed(terminus.jid)

    def session_closed(self, session: Session) -> None:
        """A session has ended."""
        for name, link in list(self._consumers.items()):
            if link.session == session:
                self._start_timer(name, Terminus.EXPIRE_WITH_SESSION)
        now = self._connection.engine.now()
        for away in self._publishers:
            if away.session == session:
                away.ended(Terminus.EXPIRE_WITH_SESSION, now)

    def connection_closed(self) -> None:
        """The connection has ended."""
        for name in list(self._consumers):
            self._start_timer(name, Terminus.EXPIRE_WITH_CONNECTION)
        self._consumers.clear()
        now = self._connection.engine.now()
        for away in self._publishers:
            away.ended(Terminus.EXPIRE_WITH_CONNECTION, now)
        self._publishers.clear()

    def _start_timer(self, name: str, scope: int) -> None:
        """Let the terminus of a consumer expire, if this starts its timer."""
        connection, link = self._connection, self._consumers[name]
        terminus, seconds = link.terminus, link.expiry.after(scope)
        if seconds is None:
            return
        del self._consumers[name]
        # Unless another connection has attached it again.
        if connection.hub.termini.get(connection.terminus_name(name)) is terminus:
            terminus.until = connection.engine.now() + seconds
            self._request(terminus.jid, CloseLink(terminus.node))
            # The last request: with any other one, it would count as heard of.
            self._request(terminus.jid, Suspend(terminus.node, seconds))

    def _request(self, jid: str, request: Request) -> None:
        self._connection.engine.request(request, jid, _ignore)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
