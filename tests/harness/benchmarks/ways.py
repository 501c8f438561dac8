"""Our own rows: they send and receive through the plugin, as an application does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Protocol, TypeAlias

from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.stanza import Message

from benchmarks.arrivals import Arrivals
from benchmarks.sample import Work
from qos.bench.pace import Times, keep_in_flight
from qos.core.message.model import Level
from xep_qos import XEP_QOS

__all__ = ["PluginReceiver", "PluginSender", "Receiver", "Route", "Sender", "body"]

#: The from and the to of a message; an account does not give its from.
Route: TypeAlias = tuple[str, str]


class Sender(Protocol):
    """The sending end: gives messages."""

    async def send(self, work: Work, *, pause_s: float) -> Times:
        """Do the work."""

    def close(self) -> None:
        """Leave the event loop as it was."""


class Receiver(Protocol):
    """The receiving end."""

    @property
    def taken(self) -> int | None:
        """Messages handed to the application so far; None: they are not counted."""


def body(size: int) -> str:
    """A text of this number of bytes."""
    return "x" * size


class PluginSender:
    """Submits messages to the plugin.

    At level unacknowledged a message is in flight until the receiver has it, which it
    reports outside XMPP. Without this, a window would mean nothing.
    """

    def __init__(
        self,
        client: ClientXMPP | ComponentXMPP,
        routes: Sequence[Route],
        *,
        level: Level,
        arrivals: Arrivals | None,
    ) -> None:
        """Prepare.

        Args:
            client: with the plugin.
            routes: the messages are sent on them in turn; with full JIDs.
            level: the level of the messages.
            arrivals: at level unacknowledged, reports each message that the receiver
                has got.
        """
        self._qos = XEP_QOS.of(client)
        self._turns = cycle(range(len(routes)))
        self._routes = routes
        # By the size of the payload: to make a thousand would count as a part of sending.
        self._messages: dict[int, list[Message]] = {}
        self._level = level
        self._arrivals = arrivals
        self._flying: deque[asyncio.Future[None]] = deque()
        if arrivals is not None:
            arrivals.listen(self._arrived)

    async def send(self, work: Work, *, pause_s: float) -> Times:
        """See Sender."""
        size = work.payload_bytes
        messages = self._messages.get(size)
        if messages is None:
            messages = [_message(*route, size) for route in self._routes]
            self._messages[size] = messages
        send = self._one if self._arrivals is None else self._one_plain
        return await keep_in_flight(
            lambda _number: send(messages[next(self._turns)]),
            window=work.window,
            seconds=work.seconds,
            pause_s=pause_s,
        )

    def close(self) -> None:
        """See Sender."""
        if self._arrivals is not None:
            self._arrivals.close()

    async def _one(self, message: Message) -> None:
        delivery = await self._qos.submit(message, level=self._level)
        (await delivery.outcome()).raise_for_status()

    async def _one_plain(self, message: Message) -> None:
        arrival = asyncio.get_running_loop().create_future()
        self._flying.append(arrival)
        await self._qos.submit(message, level=self._level)
        await arrival

    def _arrived(self) -> None:
        # A message that comes twice is found later, when the numbers are compared.
        if self._flying:
            self._flying.popleft().set_result(None)


class PluginReceiver:
    """Has the plugin, and a handler for messages."""

    def __init__(
        self, client: ClientXMPP | ComponentXMPP, *, arrivals: Arrivals | None
    ) -> None:
        """Prepare.

        Args:
            client: with the plugin.
            arrivals: see PluginSender.
        """
        self.taken: int | None = 0
        self._arrivals = arrivals
        client.add_event_handler("message", self._take)

    def _take(self, _message: Any) -> None:
        assert self.taken is not None
        self.taken += 1
        if self._arrivals is not None:
            self._arrivals.tell()


def _message(source: str, to: str, size: int) -> Message:
    """A message like that of the floor: without an id, which is not needed here."""
    message = Message()  # type: ignore[no-untyped-call]  # slixmpp's lack
    if source:
        message["from"] = source
    message["to"] = to
    message["body"] = body(size)
    return message
