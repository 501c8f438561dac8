"""A link from a publisher: each transfer is published, and settled after the commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from proton import Condition, Delivery, Receiver

from qos.amqp import bounds, conditions
from qos.amqp.conditions import condition_of
from qos.core.amqp.messages import MustDetach, read_message
from qos.core.queue.requests import Publish, Refusal, Result
from qos.errors import RemoteProtocolError
from qos.ids import new_key
from xep_0254.request_items import ITEM_BYTES_MAX

if TYPE_CHECKING:
    from qos.amqp.connection import AmqpConnection

__all__ = ["IncomingLink"]


class IncomingLink:
    """Publishes what comes on one link."""

    def __init__(
        self, connection: AmqpConnection, link: Receiver, node: str | None
    ) -> None:
        """Begin, and grant credit.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: where its messages go; None: each says so itself (`to`).
        """
        self._connection = connection
        self._link = link
        self._node = node
        self._content = bytearray()
        self._settled = 0
        self._ended = False
        link.max_message_size = bounds.MESSAGE_BYTES_MAX
        link.open()
        link.flow(bounds.CREDIT)

    def delivery(self, delivery: Delivery) -> None:
        """Take what has come of a message."""
        if self._ended or (not delivery.readable and not delivery.aborted):
            return
        if delivery.aborted:
            self._content.clear()
            self._settle(delivery)
            return
        while data := self._link.recv(bounds.FRAME_BYTES_MAX):
            self._content += data
            if len(self._content) > bounds.MESSAGE_BYTES_MAX:
                text = f"a message has more than {bounds.MESSAGE_BYTES_MAX} bytes"
                self._detach(Condition(conditions.TOO_LARGE, text))
                return
        if delivery.partial:
            return
        content = bytes(self._content)
        self._content.clear()
        self._link.advance()
        self._publish(delivery, content)

    def flow(self) -> None:
        """The peer tells its state, which does not matter."""

    def end(self, *, released: bool) -> None:
        """The link is gone; what is being published goes on."""
        self._ended = True

    def _publish(self, delivery: Delivery, content: bytes) -> None:
        engine = self._connection.engine
        try:
            message = read_message(
                content, new_id=new_key, now=engine.now(), bytes_max=ITEM_BYTES_MAX
            )
            node = self._node or message.to
            if not node:
                text = "the message names no node (to), and neither does the link"
                raise Refusal(text, condition="item-not-found", type="modify")
        except MustDetach as error:
            self._detach(condition_of(error))
            return
        except RemoteProtocolError as error:
            self._refused(delivery, error)
            return
        answer = partial(self._answer, delivery, len(content))
        self._connection.pending(len(content))
        engine.request(
            Publish(node, (message.entry,)),
            self._connection.jid,
            self._connection.guarded(answer),
        )

    def _answer(
        self,
        delivery: Delivery,
        size: int,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        self._connection.pending(-size)
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._refused(delivery, result)
            return
        delivery.update(Delivery.ACCEPTED)
        self._settle(delivery)

    def _refused(self, delivery: Delivery, error: RemoteProtocolError) -> None:
        condition = condition_of(error)
        if delivery.settled:
            # The publisher would not learn of it: messaging §3.2.1.
            self._detach(condition)
            return
        delivery.local.condition = condition
        delivery.update(Delivery.REJECTED)
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
        self._ended = True
        self._link.condition = condition
        self._link.close()
        self._connection.write_soon()
