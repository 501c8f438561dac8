"""An MQTT sender and an MQTT receiver, for any library.

These are the programs of the child processes. A module for each library has a
`Library`, and calls `main` with it. This module knows nothing of brokers and of the use
of the figures.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from benchmarks.arrivals import Arrivals
from benchmarks.pace import Window
from benchmarks.times import pack, packed
from qos.testing.child import run_commands

__all__ = ["ANSWER_S_MAX", "Library", "OnMessage", "main"]

#: The time for an answer of a broker on loopback, for instance to a subscription, in
#: seconds.
ANSWER_S_MAX = 20.0

_MESSAGES = "bench/messages"
_REPLIES = "bench/replies"

#: Takes a message, as an object of the library.
OnMessage = Callable[[Any], None]


class Library(Protocol):
    """The methods that both roles need of a library, used as documented."""

    async def connect(self, port: int, *, replies: bool) -> None:
        """Connect to the broker, with TCP_NODELAY, by the library's usual protocol.

        Args:
            port: the port of the broker.
            replies: whether MQTT 5 is needed, which has replies.
        """

    async def subscribe(self, topic: str, qos: int, on_message: OnMessage) -> None:
        """Subscribe; the callback is called with each message, in any thread."""

    def reply_to(self, message: Any) -> tuple[str, bytes]:
        """Return the response topic and the correlation data of an MQTT 5 message."""

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        response_topic: str = "",
        correlation: bytes = b"",
        done: Callable[[], None] | None = None,
    ) -> None:
        """Publish a message.

        Args:
            topic: the topic to publish to.
            payload: the payload of the message.
            qos: 0, 1 or 2.
            response_topic: the topic for a reply.
            correlation: identifies the message, or for a reply the message that it
                answers.
            done: called in any thread when the broker has the message, at QoS 1 or 2.
        """


def main(library: Callable[[], Library]) -> None:
    """Run as a child process that can be a sender or a receiver."""

    async def live() -> None:
        roles = _Roles(library())
        await run_commands([roles.connect, roles.receive, roles.received, roles.send])

    asyncio.run(live())


class _Roles:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._loop = asyncio.get_running_loop()
        self._qos = 0
        self._replies = False
        # For the sender.
        self._payload = b""
        self._window: Window | None = None
        self._arrivals: Arrivals | None = None
        self._arrived_number = 0
        # For the receiver.
        self._ended = array("d")
        self._wanted = 0
        self._complete = asyncio.Event()

    async def connect(
        self, *, port: int, qos: int, replies: bool, arrivals: str | None = None
    ) -> None:
        """Connect.

        Args:
            port: the port of the broker.
            qos: the QoS of the messages and of the replies.
            replies: whether a message ends with its reply.
            arrivals: the path of a pipe by which the receiver reports each message to
                the sender, if nothing else does.
        """
        self._qos, self._replies = qos, replies
        if arrivals is not None:
            self._arrivals = Arrivals(arrivals)
        await self._library.connect(port, replies=replies)

    # -- the receiver ------------------------------------------------------

    async def receive(self) -> None:
        """Subscribe."""
        await self._library.subscribe(_MESSAGES, self._qos, self._received)

    def _received(self, message: Any) -> None:
        if self._replies:
            topic, correlation = self._library.reply_to(message)
            self._library.publish(topic, b"", self._qos, correlation=correlation)
        self._ended.append(time.monotonic())
        if self._arrivals is not None:
            self._arrivals.tell()
        if len(self._ended) == self._wanted:
            self._loop.call_soon_threadsafe(self._complete.set)

    async def received(self, *, messages: int) -> dict[str, object]:
        """Wait for this number of messages.

        Returns when each came, and forgets them.
        """
        self._complete.clear()
        self._wanted = messages
        if len(self._ended) < messages:
            await self._complete.wait()
        times, self._ended, self._wanted = self._ended, array("d"), 0
        return {"ended": pack(times)}

    # -- the sender --------------------------------------------------------

    async def send(
        self, *, window: int, payload_bytes: int, seconds: float
    ) -> dict[str, str]:
        """Send; returns when each message was given, and when it ended."""
        self._payload = b"x" * payload_bytes
        give = self._give_for_reply if self._replies else self._give
        first = self._window is None
        self._window = Window(give, window=window, seconds=seconds)
        if first and self._replies:
            await self._library.subscribe(_REPLIES, self._qos, self._replied)
        if first and self._arrivals is not None:
            self._arrivals.listen(self._arrived)
        self._arrived_number = 0
        times = await self._window.run()
        return packed(times)

    def _give(self, number: int) -> None:
        assert self._window is not None
        done = None if self._qos == 0 else partial(self._window.ended, number)
        self._library.publish(_MESSAGES, self._payload, self._qos, done=done)

    def _give_for_reply(self, number: int) -> None:
        self._library.publish(
            _MESSAGES,
            self._payload,
            self._qos,
            response_topic=_REPLIES,
            correlation=number.to_bytes(8, "big"),
        )

    def _replied(self, reply: Any) -> None:
        assert self._window is not None
        _, correlation = self._library.reply_to(reply)
        self._window.ended(int.from_bytes(correlation, "big"))

    def _arrived(self) -> None:
        assert self._window is not None
        number = self._arrived_number
        self._arrived_number += 1
        self._window.ended(number)
