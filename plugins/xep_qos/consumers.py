"""The consumers of an application: which one takes a message, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from slixmpp.stanza import Message
from slixmpp.xmlstream.matcher.base import MatcherBase

from qos import arguments
from qos.core.backoff import Backoff
from qos.core.message.model import Incoming
from qos.core.strings import bare
from qos.engine import Consumption, Handover
from qos.errors import LocalProtocolError

__all__ = ["Consumer", "Consumers", "Handler", "HandlerT", "Match"]

#: The condition for a message: a matcher of slixmpp, or a function that returns a bool.
Match: TypeAlias = MatcherBase | Callable[[Message], bool]

#: Takes a message; see XEP_QOS.consumer.
Handler: TypeAlias = Callable[[Message, Handover], Awaitable[object]]
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One consumer; its options are those of XEP_QOS.consumer."""

    handler: Handler
    name: str
    match: Match | None
    ordered: bool
    max_handovers: int
    backoff: Backoff

    def __post_init__(self) -> None:
        arguments.coroutine_function("handler", self.handler)

    def takes(self, message: Message) -> bool:
        """Whether the consumer is meant for this message."""
        if isinstance(self.match, MatcherBase):
            return bool(self.match.match(message))
        return self.match is None or bool(self.match(message))


class Consumers:
    """All consumers, in the order in which they were registered."""

    def __init__(self, stanza_of: Callable[[Incoming], Message]) -> None:
        """Begin with the function that makes a stanza of a message."""
        self._stanza_of = stanza_of
        self._consumers: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        """Add a consumer after the existing ones.

        Raises:
            LocalProtocolError: there is one with its name.
        """
        if any(other.name == consumer.name for other in self._consumers):
            raise LocalProtocolError(
                f"there is a consumer {consumer.name!r}: give one of them another name"
            )
        self._consumers.append(consumer)

    def consumption(self, record: Incoming) -> Consumption | None:
        """How the first matching consumer takes it.

        See qos.engine.inbox_message.InboxPort.
        """
        if not self._consumers:
            return None
        message = self._stanza_of(record)
        for consumer in self._consumers:
            try:
                if consumer.takes(message):
                    handle = partial(consumer.handler, message)
                    return _consumption(consumer, record, handle)
            except Exception as error:  # noqa: BLE001 - the application's
                # Not the next consumer: the message may be meant for this one.
                return _consumption(consumer, record, partial(_fail, error))
        return None


def _consumption(
    consumer: Consumer,
    record: Incoming,
    handle: Callable[[Handover], Awaitable[object]],
) -> Consumption:
    lane = f"{consumer.name} {bare(record.source)}" if consumer.ordered else None
    return Consumption(
        name=consumer.name,
        handle=handle,
        handovers_max=consumer.max_handovers,
        backoff=consumer.backoff,
        lane=lane,
    )


async def _fail(error: Exception, _handover: Handover) -> None:
    raise error
