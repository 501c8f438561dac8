"""The links of one connection: attached, refused, and ended.

A link with `dynamic` makes its node first, and is attached when that is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from proton import Condition, Endpoint, Link, Receiver, Sender, Session, Terminus

from qos.amqp import bounds, conditions, terms
from qos.amqp.attached import Attached, AttachedLinks, OurLink
from qos.amqp.browsing import BrowsingLink, split_address
from qos.amqp.conditions import condition_of
from qos.amqp.deliveries import address_of
from qos.amqp.incoming import IncomingLink
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.ports import LinkHost
from qos.amqp.rights import check_publish
from qos.amqp.suspended import Suspended, SuspendedLinks
from qos.amqp.termini import KeptTerminus, expiry_of
from qos.amqp.unsettled import Away, Sent
from qos.core.amqp.frame_parts import Attach, Transfer
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.requests import (
    CloseLink,
    Create,
    OpenLink,
    Refusal,
    Request,
)
from qos.core.queue.results import Result
from qos.core.queue.terminus import Terminus as DurableTerminus
from qos.core.record import replace
from qos.engine.queue_engine import Answer
from qos.ids import new_id

__all__ = ["Links"]


class Links:
    """All links of a connection.

    Attributes:
        attach: the attach that proton is about to tell of.
    """

    def __init__(self, connection: LinkHost) -> None:
        self.attach: Attach | None = None
        self._connection = connection
        self._attached = AttachedLinks()
        self._suspended = SuspendedLinks(connection)

    def of(self, link: Link | None) -> OurLink | None:
        """Our end of this link; None: it is refused, ended, or not attached yet."""
        return None if link is None else self.at(address_of(link))

    def at(self, address: int) -> OurLink | None:
        """Our end of the link of this address of proton, likewise."""
        attached = self._attached.at(address)
        return None if attached is None else attached.ours

    def transferred(self, transfer: Transfer) -> None:
        """Take the parts of a transfer that proton hides, before proton reports it."""
        attached = self._attached.of_key(transfer.key)
        if attached is not None and isinstance(attached.ours, IncomingLink):
            attached.ours.transferred(transfer)

    # -- attaching ---------------------------------------------------------

    def opened(self, link: Link) -> None:
        """The peer attaches a link."""
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        self._connection.requested()
        attach, self.attach = self.attach, None
        assert attach is not None  # the shim tells of each attach before proton does
        if len(self._attached) >= bounds.LINKS_MAX:
            text = f"a connection has at most {bounds.LINKS_MAX} links"
            self._connection.close(Condition(conditions.RESOURCE_LIMIT, text))
            return
        terms.copy_terms(link)
        refusal = terms.why_not(link)
        if refusal is not None:
            terms.refuse(link, refusal)
            return
        connection, terminus = self._connection, terms.asked_by(link)
        attached = Attached(
            owner=self,
            link=link,
            full_name=(*connection.terminus_name(link.name), bool(link.is_sender)),
            attach=attach,
            jid=consumer_jid(connection.account, "amqp", new_id()),
            session=link.session,
            expiry=expiry_of(terminus),
        )
        self._attached.add(attached)
        connection.hub.links.add(attached)
        if terminus.dynamic:
            self._make(link, attached)
        else:
            self._attach(link, attached, terminus.address)

    def _steal(self, attached: Attached) -> None:
        """End the earlier links of this name (transport §2.6.1): it is attached once.

        Such a link may be of a connection that is dead unnoticed. A link of another
        connection is left if nothing can go on with its terminus: programs that share a
        container-id by mistake do not end each other's links.
        """
        for earlier in self._connection.hub.links.of(attached.full_name):
            if earlier is not attached and (earlier.owner is self or earlier.keeps):
                earlier.owner.stolen(earlier, released=earlier.owner is self)

    def stolen(self, attached: Attached, *, released: bool) -> None:
        """End a link whose name is attached elsewhere; `released`: by the same peer."""
        self._leave(attached, Terminus.EXPIRE_WITH_LINK, released=released)
        text = "a link of this name is attached elsewhere"
        if attached.link.state & Endpoint.LOCAL_UNINIT:
            terms.no_terminus(attached.link)
        self._connection.detach(attached.link, Condition(conditions.STOLEN, text))

    def _make(self, link: Link, attached: Attached) -> None:
        """Make a node for the link; it may be refused like any other."""
        self._steal(attached)
        lifetime = terms.lifetime_of(terms.asked_by(link))
        container = self._connection.container
        node = f"{container[:100]}/{link.name[:100]}/{new_id()}"
        answer = self._connection.guarded(partial(self._made, link, attached, node))
        # In the same turn: its lifetime begins with a link.
        self._request(attached, Create(node, {}, lifetime), answer)
        self._request(attached, OpenLink(node, made=True))
        attached.node = node

    def _made(
        self,
        link: Link,
        attached: Attached,
        node: str,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        if attached not in self._attached:
            return  # the peer has detached it, which ended its node
        if isinstance(result, Refusal):
            attached.node = ""
            self._refuse(attached, condition_of(result))
        else:
            terms.show_dynamic(link, node)
            self._attach(link, attached, node)
        self._connection.write_soon()

    def _attach(self, link: Link, attached: Attached, node: str | None) -> None:
        if isinstance(link, Sender):
            refusal = self._consumer(link, attached, node)
        else:
            assert isinstance(link, Receiver)
            refusal = self._publisher(link, attached, node)
        if refusal is not None:
            self._refuse(attached, refusal)

    def _publisher(
        self, link: Receiver, attached: Attached, node: str | None
    ) -> Condition | None:
        connection = self._connection
        if node is not None:
            try:
                check_publish(connection.engine, node, connection.jid)
            except Refusal as refusal:
                return condition_of(refusal)
            no_topic = terms.no_topic(link, node, connection.engine)
            if no_topic is not None:
                return no_topic
        # Not before: an attach that is refused ends nothing.
        self._steal(attached)
        if node is not None:
            self._count(attached, node)
        terms.offer(link)
        name, now = self._connection.terminus_name(link.name), connection.engine.now()
        attached.ours = IncomingLink(
            connection,
            link,
            node,
            published=connection.hub.unsettled.published(name, node, now),
            attach=attached.attach,
            keeps=attached.keeps,
        )
        return None

    def _consumer(
        self, link: Sender, attached: Attached, address: str | None
    ) -> Condition | None:
        connection, engine = self._connection, self._connection.engine
        name = connection.terminus_name(link.name)
        durable = engine.terminus(name)
        source = terms.source_of(link, address, durable[0] if durable else None)
        if source is None:
            return Condition(conditions.INVALID_FIELD, "the source names no node")
        node, state = source.address, "live"
        if source.copies:
            node, state = split_address(node, engine, connection.jid)
        if engine.rights(node, connection.jid) is None:
            return terms.no_node(node)
        no_topic = terms.no_topic(link, node, engine)
        if no_topic is not None:
            return no_topic
        self._steal(attached)
        durable = engine.terminus(name)
        before, terminus = self._resumed(link, attached, source, node, durable)
        self._count(attached, node)
        terms.offer(link)
        if source.copies:
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
            attached.ours = BrowsingLink(
                connection,
                link,
                node,
                state=state,
                selector=source.selector,
                terminus=terminus,
            )
            attached.expiry = None if terminus is None else source.expiry
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
            attach=attached.attach,
            terminus=terminus,
        )
        connection.hub.joined(attached.jid, ours)
        return None

    def _resumed(
        self,
        link: Sender,
        attached: Attached,
        source: terms.Source,
        node: str,
        durable: tuple[DurableTerminus, list[str]] | None,
    ) -> tuple[Sent | None, DurableTerminus | None]:
        """The unsettled deliveries that a link to a consumer takes over from an earlier link.

        Its full JID is then that of the earlier one.

        Returns:
            The deliveries that the earlier link has not settled (None: there was no
            such link), and the terminus that the core keeps, if it keeps any.
        """
        connection = self._connection
        now = connection.engine.now()
        name = connection.terminus_name(link.name)
        suspended = connection.hub.termini.taken(name, now)
        self._suspended.attached(link.name)
        terminus = DurableTerminus(
            jid=attached.jid,
            container=connection.container,
            link=link.name,
            node=node,
            address=source.address,
            selector=source.selector,
            copies=source.copies,
            durability=int(link.source.durability),
            policy=source.expiry.core_policy(),
            timeout_s=source.expiry.timeout_s,
        )
        before = None
        if durable is not None:
            before, terminus = self._durable(durable, terminus)
            attached.jid = terminus.jid
        elif suspended is not None and suspended.node == node and not source.copies:
            attached.jid = suspended.jid
            terminus = replace(terminus, jid=suspended.jid)
        if suspended is not None and suspended.jid == attached.jid:
            before = connection.hub.unsettled.sent(suspended.jid) or before or {}
        elif suspended is not None:
            self._suspended.end(suspended)
        # A terminus that is durable no more is kept, too, so that the core forgets it.
        return before, terminus if terminus.durability or durable else None

    def _durable(
        self, durable: tuple[DurableTerminus, list[str]], new_terminus: DurableTerminus
    ) -> tuple[Sent | None, DurableTerminus]:
        """The durable terminus that a link takes over by its name.

        Returns:
            The deliveries that it holds (None: it is another terminus), and the terminus
            as it is from now on.
        """
        terminus, tokens = durable
        same = (terminus.node, terminus.copies, terminus.address) == (
            *(new_terminus.node, new_terminus.copies, new_terminus.address),
        )
        if same:
            resumed = replace(new_terminus, jid=terminus.jid, cursor=terminus.cursor)
            return dict.fromkeys(tokens), resumed
        self._connection.engine.departed(terminus.jid)
        return None, new_terminus

    def _count(self, attached: Attached, node: str) -> None:
        """Let the node count this link, for a node whose lifetime depends on its links."""
        if not attached.node:
            attached.node = node
            self._request(attached, OpenLink(node))

    def _refuse(self, attached: Attached, condition: Condition) -> None:
        self._end(attached, released=True)
        terms.refuse(attached.link, condition)

    # -- ends --------------------------------------------------------------

    def closed(self, link: Link, *, for_good: bool) -> None:
        """The peer detaches a link, for good or not: its terminus ends."""
        attached = self._attached.at(address_of(link))
        if attached is not None and for_good:
            self._end(attached, released=True)
        elif attached is not None:
            self._leave(attached, Terminus.EXPIRE_WITH_LINK, released=True)
        if for_good:
            link.close()
        else:
            link.detach()
        link.free()

    def session_closed(self, session: Session) -> None:
        """The peer ends a session, and with it its links."""
        for attached in self._attached:
            if attached.session == session:
                self._leave(attached, Terminus.EXPIRE_WITH_SESSION, released=True)
        self._suspended.session_closed(session)

    def end_all(self, *, released: bool) -> None:
        """End all links with the connection; `released`: it was closed in order."""
        for attached in self._attached:
            self._leave(attached, Terminus.EXPIRE_WITH_CONNECTION, released=released)
        self._suspended.connection_closed()

    def _leave(self, attached: Attached, scope: int, *, released: bool) -> None:
        """End a link; its terminus is kept if its expiry says so.

        Args:
            attached: the link.
            scope: the policy that names what has ended.
            released: in order.
        """
        expiry = attached.expiry
        if expiry is None:
            self._end(attached, released=released)
            return
        name = attached.link.name
        seconds, ours = expiry.after(scope), attached.ours
        if seconds != 0 and isinstance(ours, IncomingLink) and ours.tracked:
            away = Away(ours.suspend(), expiry, attached.session)
            self._suspended.add_publisher(name, away, scope)
        if (
            seconds == 0
            or not isinstance(ours, OutgoingLink | BrowsingLink)
            or ours.ended
        ):
            self._end(attached, released=released)
            return
        self._forget(attached)
        ours.suspend(seconds)
        terminus = KeptTerminus(attached.jid, attached.node)
        suspended = Suspended(terminus, expiry, attached.session)
        self._suspended.add_consumer(name, suspended, scope)

    def _forget(self, attached: Attached) -> None:
        self._attached.remove(attached)
        self._connection.hub.links.remove(attached)

    def _end(self, attached: Attached, *, released: bool) -> None:
        self._forget(attached)
        if attached.ours is not None:
            attached.ours.end(released=released)
        if attached.node:
            self._request(attached, CloseLink(attached.node))

    def _request(
        self, attached: Attached, request: Request, answer: Answer | None = None
    ) -> None:
        engine = self._connection.engine
        engine.request(request, attached.jid, answer or _ignore)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
