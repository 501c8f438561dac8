"""Messages that have come together on a link, published by one request.

If that is refused, each of them is published by itself, and has its own outcome. The bytes
of a message are pending at the connection until its outcome is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from qos.amqp.deliveries import Delivery
from qos.amqp.ports import LinkHost
from qos.amqp.unsettled import Publication
from qos.core.amqp.messages import ReceivedMessage
from qos.core.queue.requests import (
    Publish,
    PublishedItem,
    Refusal,
    Request,
)
from qos.core.queue.results import Result
from qos.engine.queue_engine import Answer
from qos.errors import RemoteProtocolError

__all__ = ["Arrived", "Publisher"]


@dataclass(slots=True)
class Arrived:
    """A delivery whose message has come.

    Attributes:
        delivery: proton's.
        tag: its delivery-tag; b'': not known.
        publication: what is kept of it.
        size: the bytes of its message.
    """

    delivery: Delivery
    tag: bytes
    publication: Publication
    size: int


#: Called with a message that is on disk (None), or that is refused.
Known: TypeAlias = Callable[[Arrived, RemoteProtocolError | None], None]


@dataclass(slots=True)
class _Batch:
    """Messages that came together, for one request.

    Attributes:
        node: where all of them go.
        new_ids: none of them has a message-id; or each of them has one.
        entries: their items, by id.
        sources: their deliveries, in the same order.
    """

    node: str
    new_ids: bool
    entries: dict[str, PublishedItem] = field(default_factory=dict)
    sources: list[Arrived] = field(default_factory=list)

    def takes(self, node: str, message: ReceivedMessage) -> bool:
        """Whether a message may join; the ids of a request are different."""
        alike = (node, message.new_id) == (self.node, self.new_ids)
        return alike and message.entry.item_id not in self.entries


class Publisher:
    """Publishes the messages of one link."""

    def __init__(self, connection: LinkHost, known: Known) -> None:
        """Begin without messages.

        Args:
            connection: the connection.
            known: called for each message, after the commit, while the connection lives.
        """
        self._connection = connection
        self._known = known
        self._batch: _Batch | None = None

    def add(self, node: str, message: ReceivedMessage, arrived: Arrived) -> None:
        """Publish a message, together with the others of this read for its node."""
        self._connection.pending(arrived.size)
        if self._batch is not None and not self._batch.takes(node, message):
            self.flush()
        if self._batch is None:
            self._batch = _Batch(node, message.new_id)
            self._connection.flush_after_read(self.flush)
        self._batch.entries[message.entry.item_id] = message.entry
        self._batch.sources.append(arrived)

    def flush(self) -> None:
        """Publish the messages that have come, in their order."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        entries, sources = tuple(batch.entries.values()), batch.sources

        def publish(entries: tuple[PublishedItem, ...]) -> Publish:
            return Publish(batch.node, entries, new_ids=batch.new_ids)

        def parts() -> list[tuple[Request, Answer]]:
            return [
                (publish((entry,)), self._answer_to((source,)))
                for entry, source in zip(entries, sources, strict=True)
            ]

        engine = self._connection.engine
        engine.payers.writing(self._connection.account, len(sources))
        engine.request(
            publish(entries),
            self._connection.jid,
            self._answer_to(sources),
            parts=parts if len(entries) > 1 else None,
        )

    def _answer_to(self, sources: Sequence[Arrived]) -> Answer:
        engine, account = self._connection.engine, self._connection.account
        tell = self._connection.guarded(partial(self._written, sources))

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            # Also if the connection is gone.
            engine.payers.written(account, len(sources))
            tell(result)

        return answer

    def _written(self, sources: Sequence[Arrived], result: Result | Refusal) -> None:
        refusal = result if isinstance(result, Refusal) else None
        for arrived in sources:
            self._connection.pending(-arrived.size)
            self._known(arrived, refusal)
