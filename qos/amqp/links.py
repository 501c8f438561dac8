"""The links of one connection: attached, refused, and ended.

A link with `dynamic` makes its node first, and is attached when that is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from proton import Condition, Endpoint, Link, Receiver, Sender, Session, Terminus

from qos.amqp import bounds, conditions, terms
from qos.amqp.browsing import BrowsingLink, split_address
from qos.amqp.conditions import condition_of
from qos.amqp.incoming import IncomingLink
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.suspended import Suspended, SuspendedLinks
from qos.amqp.termini import Expiry, KeptTerminus, expiry_of
from qos.amqp.unsettled import Away, Sent
from qos.core.amqp.front import Attach, Transfer
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.requests import (
    CloseLink,
    Create,
    OpenLink,
    Refusal,
    Request,
)
from qos.core.queue.results import Result
from qos.core.queue.terminus import Terminus as Kept
from qos.core.record import replace
from qos.engine.queue_engine import Answer
from qos.ids import new_id

if TYPE_CHECKING:
    from qos.amqp.connection import AmqpConnection

__all__ = ["Links", "OurLink"]

OurLink: TypeAlias = IncomingLink | OutgoingLink | BrowsingLink


@dataclass(slots=True)
class _Attached:
    """A link that is attached, or waits for its node.

    Attributes:
        link: proton's.
        jid: a full JID of its own: of 128 random bits, and nobody else's.
        node: the node that counts it as a link; '': none.
        ours: its end here; None: its node is being made.
        session: its session.
        expiry: of a terminus that may outlive the link.
        asked: the attach of the peer.
    """

    link: Link
    jid: str
    node: str = ""
    ours: OurLink | None = None
    session: Session | None = None
    expiry: Expiry | None = None
    asked: Attach | None = None


class Links:
    """All links of a connection.

    Attributes:
        asked: the attach that proton is about to tell of.
    """

    def __init__(self, connection: AmqpConnection) -> None:
        self.asked: Attach | None = None
        self._connection = connection
        # By name and direction: a name is used once for each.
        self._attached: dict[tuple[str, bool], _Attached] = {}
        self._suspended = SuspendedLinks(connection)

    def of(self, link: Link | None) -> OurLink | None:
        """Our end of this link; None: it is refused, ended, or not attached yet."""
        attached = None if link is None else self._attached.get(_key(link))
        return None if attached is None else attached.ours

    def transferred(self, transfer: Transfer) -> None:
        """Take the parts of a transfer that proton hides, before proton reports it."""
        attached = self._attached.get(transfer.key)
        if attached is not None and isinstance(attached.ours, IncomingLink):
            attached.ours.transferred(transfer)

    # -- attaching ---------------------------------------------------------

    def opened(self, link: Link) -> None:
        """The peer attaches a link."""
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        if len(self._attached) >= bounds.LINKS_MAX:
            text = f"a connection has at most {bounds.LINKS_MAX} links"
            self._connection.close(Condition(conditions.RESOURCE_LIMIT, text))
            return
        terms.copy_terms(link)
        refusal = terms.why_not(link)
        if refusal is not None:
            terms.refuse(link, refusal)
            return
        account = self._connection.jid.partition("/")[0]
        self._steal(link)
        attached = _Attached(
            link, consumer_jid(account, "amqp", new_id()), asked=self.asked
        )
        self._attached[_key(link)] = attached
        asked = terms.asked_by(link)
        if asked.dynamic:
            self._make(link, attached)
        else:
            self._attach(link, attached, asked.address)

    def _steal(self, link: Link) -> None:
        """Take a terminus from its earlier connection, which may be dead unnoticed.

        Transport §2.6.1: a link of the same name is attached once.
        """
        links = self._connection.links
        name = (*self._connection.terminus_name(link.name), bool(link.is_sender))
        other = links.get(name)
        if other is not None and other is not self:
            other._stolen(_key(link))
        links[name] = self

    def _stolen(self, key: tuple[str, bool]) -> None:
        attached = self._attached.get(key)
        if attached is None or attached.expiry is None or not attached.expiry.keeps:
            return  # its terminus is its own: nothing can go on with it
        self._leave(key, Terminus.EXPIRE_WITH_LINK, released=False)
        text = "another connection has attached a link of this name"
        self._connection.detach(attached.link, Condition(conditions.STOLEN, text))

    def _forget(self, key: tuple[str, bool]) -> None:
        name = (*self._connection.terminus_name(key[0]), key[1])
        if self._connection.links.get(name) is self:
            del self._connection.links[name]

    def _make(self, link: Link, attached: _Attached) -> None:
        """Make a node for the link; it may be refused like any other."""
        lifetime = terms.lifetime_of(terms.asked_by(link))
        container = self._connection.container
        node = f"{container[:100]}/{link.name[:100]}/{new_id()}"
        made = self._connection.guarded(partial(self._made, link, attached, node))
        # In the same turn: its lifetime begins with a link.
        self._request(attached, Create(node, {}, lifetime), made)
        self._request(attached, OpenLink(node, made=True))
        attached.node = node

    def _made(
        self,
        link: Link,
        attached: _Attached,
        node: str,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        if self._attached.get(_key(link)) is not attached:
            return  # the peer has detached it, which ended its node
        if isinstance(result, Refusal):
            attached.node = ""
            self._refuse(link, condition_of(result))
        else:
            terms.show_dynamic(link, node)
            self._attach(link, attached, node)
        self._connection.write_soon()

    def _attach(self, link: Link, attached: _Attached, node: str | None) -> None:
        if isinstance(link, Sender):
            refusal = self._consumer(link, attached, node)
        else:
            assert isinstance(link, Receiver)
            refusal = self._publisher(link, attached, node)
        if refusal is not None:
            self._refuse(link, refusal)

    def _publisher(
        self, link: Receiver, attached: _Attached, node: str | None
    ) -> Condition | None:
        connection = self._connection
        if node is not None:
            rights = connection.engine.rights(node, connection.jid)
            if rights is None:
                return terms.no_node(node)
            if not rights.publish:
                text = f"you may not publish to {node!r}"
                return Condition(conditions.UNAUTHORIZED, text)
            self._count(attached, node)
        terms.offer(link)
        attached.session = link.session
        attached.expiry = expiry = expiry_of(link.remote_target)
        name, now = self._connection.terminus_name(link.name), connection.engine.now()
        attached.ours = IncomingLink(
            connection,
            link,
            node,
            published=connection.unsettled.published(name, node, now),
            asked=attached.asked,
            keeps=expiry.keeps,
        )
        return None

    def _consumer(
        self, link: Sender, attached: _Attached, address: str | None
    ) -> Condition | None:
        connection, engine = self._connection, self._connection.engine
        durable = engine.terminus(connection.terminus_name(link.name))
        if address is not None:
            source = terms.source_of(link, address)
        elif durable is not None:
            # The peer asks for its terminus as it was.
            source = terms.source_again(link, durable[0])
        else:
            return Condition(conditions.INVALID_FIELD, "the source names no node")
        node, state = source.address, "live"
        if source.copies:
            node, state = split_address(node, engine, connection.jid)
        if engine.rights(node, connection.jid) is None:
            return terms.no_node(node)
        before, kept = self._resumed(link, attached, source, node, durable)
        self._count(attached, node)
        terms.offer(link)
        attached.session = link.session
        if source.copies:
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
            attached.ours = BrowsingLink(
                connection, link, node, state=state, selector=source.selector, kept=kept
            )
            attached.expiry = None if kept is None else source.expiry
            return None
        link.source.distribution_mode = Terminus.DIST_MODE_MOVE
        attached.expiry = source.expiry
        attached.ours = ours = OutgoingLink(
            connection,
            link,
            node,
            attached.jid,
            selector=source.selector,
            before=before,
            asked=attached.asked,
            kept=kept,
        )
        connection.joined(attached.jid, ours)
        return None

    def _resumed(
        self,
        link: Sender,
        attached: _Attached,
        source: terms.Source,
        node: str,
        durable: tuple[Kept, list[str]] | None,
    ) -> tuple[Sent | None, Kept | None]:
        """The unsettled deliveries that a link to a consumer takes over from an earlier link.

        Its full JID is then that of the earlier one.

        Returns:
            The deliveries that the earlier link has not settled (None: there was no
            such link), and the terminus that the core keeps, if it keeps any.
        """
        connection = self._connection
        now = connection.engine.now()
        name = connection.terminus_name(link.name)
        suspended = connection.termini.taken(name, node, now)
        self._suspended.attached(link.name)
        terminus = Kept(
            jid=attached.jid,
            container=connection.container,
            link=link.name,
            node=node,
            address=source.address,
            selector=source.selector,
            copies=source.copies,
            durability=int(link.source.durability),
            policy=source.expiry.kept(),
            timeout_s=source.expiry.timeout_s,
        )
        before = None
        if durable is not None:
            before, terminus = self._durable(durable, terminus)
            attached.jid = terminus.jid
        elif suspended is not None and not source.copies:
            attached.jid = suspended.jid
            terminus = replace(terminus, jid=suspended.jid)
        if suspended is not None and suspended.jid == attached.jid:
            before = connection.unsettled.sent(suspended.jid) or before or {}
        # A terminus that is durable no more is kept, too, so that the core forgets it.
        return before, terminus if terminus.durability or durable else None

    def _durable(
        self, durable: tuple[Kept, list[str]], asked: Kept
    ) -> tuple[Sent | None, Kept]:
        """The durable terminus that a link takes over by its name.

        Returns:
            The deliveries that it holds (None: it is another terminus), and the terminus
            as it is from now on.
        """
        terminus, tokens = durable
        same = (terminus.node, terminus.copies, terminus.address) == (
            *(asked.node, asked.copies, asked.address),
        )
        if same:
            kept = replace(asked, jid=terminus.jid, cursor=terminus.cursor)
            return dict.fromkeys(tokens), kept
        self._connection.engine.departed(terminus.jid)
        return None, asked

    def _count(self, attached: _Attached, node: str) -> None:
        """Let the node count this link, for a node whose lifetime depends on its links."""
        if not attached.node:
            attached.node = node
            self._request(attached, OpenLink(node))

    def _refuse(self, link: Link, condition: Condition) -> None:
        self._end(_key(link), released=True)
        terms.refuse(link, condition)

    # -- ends --------------------------------------------------------------

    def closed(self, link: Link, *, for_good: bool) -> None:
        """The peer detaches a link, for good or not: its terminus ends."""
        if for_good:
            self._end(_key(link), released=True)
            link.close()
        else:
            self._leave(_key(link), Terminus.EXPIRE_WITH_LINK, released=True)
            link.detach()
        link.free()

    def session_closed(self, session: Session) -> None:
        """The peer ends a session, and with it its links."""
        link = session.connection.link_head(0)
        while link is not None:
            following = link.next(0)
            if link.session == session:
                self._leave(_key(link), Terminus.EXPIRE_WITH_SESSION, released=True)
            link = following
        self._suspended.session_closed(session)

    def end_all(self, *, released: bool) -> None:
        """End all links with the connection; `released`: it was closed in order."""
        for key in list(self._attached):
            self._leave(key, Terminus.EXPIRE_WITH_CONNECTION, released=released)
        self._suspended.connection_closed()

    def _leave(self, key: tuple[str, bool], ended: int, *, released: bool) -> None:
        """End a link; its terminus is kept if its expiry says so.

        Args:
            key: of the link.
            ended: the policy that names what has ended.
            released: in order.
        """
        attached = self._attached.get(key)
        expiry = None if attached is None else attached.expiry
        if attached is None or expiry is None:
            self._end(key, released=released)
            return
        seconds, ours = expiry.after(ended), attached.ours
        if seconds != 0 and isinstance(ours, IncomingLink) and ours.tracked:
            away = Away(ours.suspend(), expiry, attached.session)
            self._suspended.add_publisher(key[0], away, ended)
        if (
            seconds == 0
            or not isinstance(ours, OutgoingLink | BrowsingLink)
            or ours.ended
        ):
            self._end(key, released=released)
            return
        del self._attached[key]
        self._forget(key)
        ours.suspend(seconds)
        kept = KeptTerminus(attached.jid, attached.node)
        suspended = Suspended(kept, expiry, attached.session)
        self._suspended.add_consumer(key[0], suspended, ended)

    def _end(self, key: tuple[str, bool], *, released: bool) -> None:
        attached = self._attached.pop(key, None)
        if attached is None:
            return
        self._forget(key)
        if attached.ours is not None:
            attached.ours.end(released=released)
        if attached.node:
            self._request(attached, CloseLink(attached.node))

    def _request(
        self, attached: _Attached, request: Request, answer: Answer | None = None
    ) -> None:
        engine = self._connection.engine
        engine.request(request, attached.jid, answer or _ignore)


def _key(link: Link) -> tuple[str, bool]:
    return link.name, bool(link.is_sender)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
