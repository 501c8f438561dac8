"""A link from a publisher: each transfer is published, and settled after the commit.

Messages that are read together are published by one request. If that is refused, each is
published by itself, and gets its own outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from proton import Condition, Delivery, Receiver

from qos.amqp import bounds, conditions
from qos.amqp.conditions import condition_of
from qos.core.amqp.messages import MustDetach, read_message
from qos.core.queue.requests import Publish, PublishedItem, Refusal, Result
from qos.errors import RemoteProtocolError
from qos.ids import new_key
from xep_0254.request_items import ITEM_BYTES_MAX

if TYPE_CHECKING:
    from qos.amqp.connection import AmqpConnection

__all__ = ["IncomingLink"]


#: A delivery, and the bytes of its message.
_Source: TypeAlias = tuple[Delivery, int]


@dataclass(slots=True)
class _Batch:
    """Messages that came together, for one request.

    Attributes:
        node: where all of them go.
        entries: their items, by id.
        sources: their deliveries, in the same order.
    """

    node: str
    entries: dict[str, PublishedItem] = field(default_factory=dict)
    sources: list[_Source] = field(default_factory=list)

    def takes(self, node: str, entry: PublishedItem) -> bool:
        """Whether a message may join; the ids of a request are different."""
        return node == self.node and entry.item_id not in self.entries


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
        self._new: _Batch | None = None
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
        if size := delivery.pending:
            # Not more than there is: proton makes a buffer of the size that is asked for.
            self._content += self._link.recv(size) or b""
        if len(self._content) > bounds.MESSAGE_BYTES_MAX:
            text = f"a message has more than {bounds.MESSAGE_BYTES_MAX} bytes"
            self._detach(Condition(conditions.TOO_LARGE, text))
            return
        if delivery.partial:
            return
        content = bytes(self._content)
        self._content.clear()
        self._link.advance()
        self._read(delivery, content)

    def flow(self) -> None:
        """The peer tells its state, which does not matter."""

    def end(self, *, released: bool) -> None:
        """The link is gone; what is being published goes on."""
        self.flush()
        self._ended = True

    def _read(self, delivery: Delivery, content: bytes) -> None:
        """Read a message; it is published with the others that came with it."""
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
        self._connection.pending(len(content))
        if self._new is not None and not self._new.takes(node, message.entry):
            self.flush()
        if self._new is None:
            self._new = _Batch(node)
            self._connection.flush_after_read(self)
        self._new.entries[message.entry.item_id] = message.entry
        self._new.sources.append((delivery, len(content)))

    def flush(self) -> None:
        """Publish the messages that have come, in their order."""
        batch, self._new = self._new, None
        if batch is None:
            return
        entries, sources = list(batch.entries.values()), batch.sources
        guarded = self._connection.guarded
        parts = [
            (
                Publish(batch.node, (entry,)),
                guarded(partial(self._answer, (source,))),
            )
            for entry, source in zip(entries, sources, strict=True)
            if len(entries) > 1
        ]
        self._connection.engine.request(
            Publish(batch.node, tuple(entries)),
            self._connection.jid,
            guarded(partial(self._answer, sources)),
            parts=parts,
        )

    def _answer(
        self,
        sources: Sequence[_Source],
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        for delivery, size in sources:
            self._connection.pending(-size)
            if self._ended:
                continue
            if isinstance(result, Refusal):
                self._refused(delivery, result)
            else:
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
        self.flush()
        self._ended = True
        self._link.condition = condition
        self._link.close()
        self._connection.write_soon()
