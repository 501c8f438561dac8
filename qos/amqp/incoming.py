"""A link from a publisher: each transfer is published, and settled after the commit.

Messages that are read together are published by one request (`qos.amqp.publishing`).

With rcv-settle-mode second, a delivery is settled when the publisher has settled it;
until then, and while its link is suspended, its outcome is kept (messaging §3.4.6). It is
in force for a publisher that resumes: its target may outlive the link, or its attach has a
map of unsettled deliveries. To any other one we answer first.
"""

from __future__ import annotations

from dataclasses import dataclass

from proton import Condition, Link, Receiver

from qos.amqp import bounds, conditions
from qos.amqp.conditions import condition_of
from qos.amqp.deliveries import Delivery
from qos.amqp.ports import LinkHost
from qos.amqp.publishing import Arrived, Publisher
from qos.amqp.rights import check_publish
from qos.amqp.unsettled import Publication, Publications
from qos.core.amqp.delivery_states import write_unsettled
from qos.core.amqp.frame_parts import Attach, AttachAnswer, Transfer
from qos.core.amqp.messages import (
    MustDetach,
    addressed_to,
    read_message,
)
from qos.core.amqp.positions import cut_at
from qos.core.amqp.resuming import Position
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import Refusal
from qos.errors import RemoteProtocolError
from qos.ids import new_key
from xep_0254.request_items import ITEM_BYTES_MAX

__all__ = ["IncomingLink"]

_STATES = {
    ItemOutcome.ACCEPTED: Delivery.ACCEPTED,
    ItemOutcome.REJECTED: Delivery.REJECTED,
}


@dataclass(slots=True)
class _Coming:
    """The delivery that is arriving on a link, with what proton does not tell of it.

    Attributes:
        tag: its delivery-tag.
        publication: resumed: its outcome, as we have it.
        ignored: resumed, and we know nothing of it.
    """

    tag: bytes
    publication: Publication | None = None
    ignored: bool = False


class IncomingLink:
    """Publishes what comes on one link.

    Attributes:
        tracked: the delivery-tags of its deliveries are known.
    """

    def __init__(
        self,
        connection: LinkHost,
        link: Receiver,
        node: str | None,
        *,
        published: Publications | None = None,
        attach: Attach | None = None,
        keeps: bool = False,
    ) -> None:
        """Begin, and grant credit.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: where its messages go; None: each says so itself (`to`).
            published: the deliveries of an earlier link of this terminus.
            attach: the attach of the peer.
            keeps: the terminus may outlive the link.
        """
        self._connection = connection
        self._link = link
        self._node = node
        self._attach = attach
        self.tracked = keeps or (attach is not None and attach.unsettled is not None)
        if not self.tracked:
            # It asks for second and does not resume, so an outcome that is not settled
            # tells it nothing: Microsoft's clients wait for a settled one, and send again.
            link.rcv_settle_mode = Link.RCV_FIRST
        self._second = link.rcv_settle_mode == Link.RCV_SECOND
        if attach is not None and self.tracked:
            connection.shim.tracked.add(attach.key)
        self._content = bytearray()
        self._publisher = Publisher(connection, self._known)
        self._settled = 0
        self._ended = False
        self._published = published or Publications(node)
        # Deliveries with an outcome that the publisher has not settled yet: their tags.
        self._unsettled_tags: dict[Delivery, bytes] = {}
        self._coming: _Coming | None = None
        # Our map of unsettled deliveries was not complete.
        self._only_resumed = False
        link.max_message_size = bounds.MESSAGE_BYTES_MAX
        self._published.when_known(connection.guarded(self._open))

    def _open(self) -> None:
        """Answer the attach, now that every delivery of the earlier link has its outcome."""
        attach, published = self._attach, self._published
        if self._ended:
            return
        theirs = None if attach is None else attach.unsettled
        if attach is None or theirs is None:
            published.forget(lambda _tag: False)
        else:
            if not attach.incomplete:
                # The publisher has settled the others.
                published.forget(theirs.__contains__)
            unsettled, incomplete = write_unsettled(published.states(), attach.room)
            self._connection.shim.answer(
                attach.key, AttachAnswer(unsettled, incomplete)
            )
            self._only_resumed = incomplete or attach.incomplete
        self._link.open()
        self._link.flow(bounds.CREDIT)
        self._connection.write_soon()

    def transferred(self, transfer: Transfer) -> None:
        """Take the first transfer of the next delivery: its tag, format and state."""
        if self._ended or self._coming is not None:
            return  # a later transfer of a delivery may repeat its tag and flags
        published, tag = self._published, transfer.tag
        self._coming = coming = _Coming(tag)
        part = b""
        if tag == published.part_tag:
            part, published.part = published.part, b""
        if transfer.message_format:
            text = f"the message format {transfer.message_format} is not known here"
            self._detach(Condition(conditions.NOT_IMPLEMENTED, text))
        elif self._only_resumed and not transfer.resume:
            text = "a new delivery, while a map of unsettled deliveries is incomplete"
            self._detach(Condition(conditions.NOT_ALLOWED, text))
        elif transfer.resume:
            publication = published.deliveries.get(tag)
            # One that is being written now is of this link, and cannot be resumed.
            coming.publication = (
                publication if publication is not None and publication.outcome else None
            )
            state = transfer.state
            before = cut_at(part, state if isinstance(state, Position) else None)
            coming.ignored = coming.publication is None and (not part or before is None)
            if before:
                self._goes_on(before)

    def delivery(self, delivery: Delivery) -> None:
        """Take the bytes of a message that have arrived."""
        if self._ended:
            self._connection.late(delivery)
            return
        if delivery.aborted:
            self._clear()
            if self._coming is not None:
                self._published.deliveries.pop(self._coming.tag, None)
            self._coming = None
            self._settle(delivery)
            return
        if not delivery.readable:
            self._settled_by_peer(delivery)
            return
        if delivery.unasked:
            text = f"more messages than the credit of {bounds.CREDIT}"
            self._detach(Condition(conditions.TRANSFER_LIMIT, text))
            return
        content = delivery.read()
        if delivery.partial or self._content:
            if not self._goes_on(content) or delivery.partial:
                return
            content = bytes(self._content)
            self._clear()
        elif len(content) > bounds.MESSAGE_BYTES_MAX:
            self._too_large()
            return
        coming, self._coming = self._coming, None
        delivery.advance()
        if coming is None:
            self._read(delivery, content, b"")
        elif coming.publication is not None:
            self._resumed(delivery, coming.tag, coming.publication)
        elif coming.ignored:
            # Nothing is known of it, so it has to come as a new one.
            delivery.update(Delivery.RELEASED)
            self._settle(delivery)
        else:
            self._read(delivery, content, coming.tag)

    def _goes_on(self, content: bytes) -> bool:
        """Keep a part of a message; False: that is too much, and the link has ended."""
        self._content += content
        within = self._connection.unfinished(len(content))
        if len(self._content) > bounds.MESSAGE_BYTES_MAX:
            self._too_large()
            return False
        if not within:
            text = (
                "the unfinished messages of this connection have more than "
                f"{bounds.UNFINISHED_BYTES_MAX} bytes"
            )
            self._detach(Condition(conditions.RESOURCE_LIMIT, text))
            return False
        return True

    def _too_large(self) -> None:
        text = f"a message has more than {bounds.MESSAGE_BYTES_MAX} bytes"
        self._detach(Condition(conditions.TOO_LARGE, text))

    def _clear(self) -> None:
        """Drop the part of a message that has come."""
        self._connection.unfinished(-len(self._content))
        self._content.clear()

    def _resumed(
        self, delivery: Delivery, tag: bytes, publication: Publication
    ) -> None:
        """Agree with the publisher about a delivery that has its outcome (messaging §3.4.6)."""
        if delivery.settled or delivery.remote_state in _STATES.values():
            # Its state is the definite one: it is echoed.
            if not delivery.settled:
                delivery.update(delivery.remote_state)
            del self._published.deliveries[tag]
            self._settle(delivery)
            return
        self._tell(delivery, tag, publication)

    def _settled_by_peer(self, delivery: Delivery) -> None:
        tag = self._unsettled_tags.get(delivery)
        if tag is not None and delivery.settled:
            del self._unsettled_tags[delivery]
            self._published.deliveries.pop(tag, None)
            self._settle(delivery)

    def flow(self) -> None:
        """Ignore the flow of a publisher: it carries no credit."""

    def end(self, *, released: bool) -> None:
        """End the link; messages that are being published go on."""
        self._publisher.flush()
        self._ended = True
        self._clear()

    def suspend(self) -> Publications:
        """End the link but not its terminus; returns the unsettled deliveries."""
        self._publisher.flush()
        self._ended = True
        if self._content and self._coming is not None:
            self._published.part_tag = self._coming.tag
            self._published.part = bytes(self._content)
        self._clear()
        return self._published

    def _read(self, delivery: Delivery, content: bytes, tag: bytes) -> None:
        """Read a message; it is published with the others that came with it."""
        arrived = Arrived(delivery, tag, Publication(), len(content))
        if tag and not delivery.settled:
            self._published.deliveries[tag] = arrived.publication
        now = self._connection.engine.now()
        try:
            node = self._node or addressed_to(content)
            if not node:
                text = "the message names no node (to), and neither does the link"
                raise Refusal(text, condition="item-not-found", type="modify")
            # Before the message is read: that is work.
            check_publish(self._connection.engine, node, self._connection.jid)
            message = read_message(
                content, new_id=new_key, now=now, bytes_max=ITEM_BYTES_MAX
            )
        except MustDetach as error:
            self._detach(condition_of(error))
            return
        except RemoteProtocolError as error:
            self._known(arrived, error)
            return
        self._publisher.add(node, message, arrived)

    def _known(self, arrived: Arrived, refusal: RemoteProtocolError | None) -> None:
        """Note the outcome of a message; tell the publisher, if the link is still attached."""
        publication = arrived.publication
        publication.outcome = ItemOutcome.ACCEPTED
        if refusal is not None:
            publication.outcome = ItemOutcome.REJECTED
            publication.condition = condition_of(refusal)
        if self._ended:
            self._published.known()
        elif publication.condition is not None and arrived.delivery.settled:
            # The publisher would not learn of it: messaging §3.2.1.
            self._detach(publication.condition)
        else:
            self._tell(arrived.delivery, arrived.tag, publication)

    def _tell(self, delivery: Delivery, tag: bytes, publication: Publication) -> None:
        """Tell the outcome of a delivery; it may have to be settled by its sender."""
        if publication.condition is not None:
            delivery.local.condition = publication.condition
        assert publication.outcome is not None
        delivery.update(_STATES[publication.outcome])
        if self._second and tag and not delivery.settled:
            self._unsettled_tags[delivery] = tag
            self._connection.write_soon()
            return
        self._published.deliveries.pop(tag, None)
        self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        delivery.settle()
        # Not a flow for each message.
        self._settled += 1
        if self._settled >= bounds.CREDIT // 2:
            self._link.flow(self._settled)
            self._settled = 0
        self._connection.write_soon()

    def _detach(self, condition: Condition) -> None:
        self.end(released=True)
        self._published.forget(lambda _tag: False)
        self._connection.detach(self._link, condition)
