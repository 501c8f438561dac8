"""The messages of a device, for `async for`.

A message is taken when its loop body is done; its sender is told so then, and not
before. The plugin's quotas limit the messages that are handed over and not taken; plain
messages have a limit of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Self, TypeAlias
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.stanza import Message

from qos.client.arrivals import Arrivals
from qos.errors import QosError
from xep_qos import XEP_QOS, IncomingInfo

__all__ = ["PLAIN_BYTES_MAX", "PLAIN_MAX", "Messages", "Reception"]

log = logging.getLogger(__name__)

#: The most plain messages that wait for a loop, and their bytes. No sender is told that
#: they are dropped.
PLAIN_MAX = 1_000
PLAIN_BYTES_MAX = 4 * 1024 * 1024

#: Seconds after which a message that waits for a loop is logged.
_FORGOTTEN_S = 10.0

#: A message; a future that resolves when it is taken, or None for a plain one; its
#: bytes, for a plain one.
_Entry: TypeAlias = tuple[Message, asyncio.Future[None] | None, int]


class Reception:
    """Keeps the messages of a client for its loops, which share them."""

    def __init__(self, client: ClientXMPP, qos: XEP_QOS) -> None:
        """Register for all messages, before the client connects: none may be missed.

        Args:
            client: the slixmpp client.
            qos: its plugin.
        """
        self._client = client
        self._qos = qos
        self._waiting: deque[_Entry] = deque()
        self._plain = self._plain_bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: QosError | None = None
        self._loops: list[Messages] = []
        self._dropping = False
        Arrivals(client, qos, "qos.connect", self._came)

    def new_loop(self, max_redeliveries: int) -> Messages:
        """See Device.messages."""
        self._loops.append(Messages(self, max_redeliveries))
        return self._loops[-1]

    def take(self) -> bool:
        """Take the messages that the loops have in hand.

        Returns whether there were any.
        """
        results = [loop.take() for loop in self._loops]
        return any(results)

    def end(self, failure: QosError | None = None) -> None:
        """End the loops; the first failure counts."""
        self._ended = True
        self._failure = self._failure or failure
        self._changed.set()

    async def next(self) -> _Entry | None:
        """The next message; None: there is none to come.

        Raises:
            CannotConnect: the device was refused, and all earlier messages are taken.
        """
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        entry = self._waiting.popleft()
        if entry[1] is None:
            self._plain -= 1
            self._plain_bytes -= entry[2]
            self._dropping = False
        return entry

    async def begins(self, entry: _Entry, max_redeliveries: int) -> bool:
        """Whether a loop may work on a message that it has got; False: it is parked."""
        message, acceptance, _ = entry
        info = None if acceptance is None else self._qos.incoming(message)
        if info is None or not info.redelivered:
            return True
        try:
            if await self._qos.begin(message, max_redeliveries=max_redeliveries):
                return True
        except asyncio.CancelledError:
            self._waiting.appendleft(entry)
            self._changed.set()
            raise
        log.error(
            "the message %r of %s has come again %d times and was not taken: it is "
            "parked; see `xmpp-qos inbox`",
            *(info.msg_id, message["from"], max_redeliveries),
        )
        return False

    def forget(self, loop: Messages) -> None:
        """Forget a loop, which is closed."""
        if loop in self._loops:
            self._loops.remove(loop)

    def _came(self, message: Message, info: IncomingInfo | None) -> None:
        acceptance: asyncio.Future[None] | None = None
        size = 0
        if info is not None:
            acceptance = self._client.loop.create_future()
            self._qos.take_until(message, acceptance)
        else:
            size = len(ET.tostring(message.xml))
            if self._plain >= PLAIN_MAX or self._plain_bytes + size > PLAIN_BYTES_MAX:
                if not self._dropping:
                    self._dropping = True
                    log.warning("%d plain messages wait: more are dropped", self._plain)
                return
            self._plain += 1
            self._plain_bytes += size
        if not self._loops and not self._waiting:
            self._client.loop.call_later(_FORGOTTEN_S, self._remind)
        self._waiting.append((message, acceptance, size))
        self._changed.set()

    def _remind(self) -> None:
        if self._waiting and not self._loops and not self._ended:
            log.warning(
                "messages wait for `async for message in device.messages()`, and their "
                "senders for an answer; handlers of slixmpp are registered by `setup`"
            )


class Messages:
    """A loop over the messages of a device; made by `Device.messages`.

    The message in hand is taken when the next one is asked for, by `aclose`, and when
    the block of the device is left without an exception. If an exception leaves the
    block, or the process dies, the message is not taken: it comes again after the next
    start, marked as redelivered. So `break` takes the message, if nothing fails until
    the block is left. If one bad message must not end the program, catch its exception
    in the body of the loop: the message then counts as taken. A message that has come
    again `max_redeliveries` times, and was never taken, is parked: the loop goes on with
    the next one.
    """

    def __init__(self, reception: Reception, max_redeliveries: int) -> None:
        """Begin; `Device.messages` does so."""
        self._reception = reception
        self._max_redeliveries = max_redeliveries
        self._in_hand: asyncio.Future[None] | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Take the message in hand, and wait for the next.

        Raises:
            StopAsyncIteration: the device, or this loop, is closed.
            CannotConnect: there is no session, and none is to be expected.
        """
        self.take()
        while not self._closed:
            entry = await self._reception.next()
            if entry is None:
                break
            if await self._reception.begins(entry, self._max_redeliveries):
                message, self._in_hand, _ = entry
                return message
        raise StopAsyncIteration

    def take(self) -> bool:
        """Take the message in hand; returns whether there was one."""
        acceptance, self._in_hand = self._in_hand, None
        if acceptance is None or acceptance.done():
            return False
        acceptance.set_result(None)
        return True

    async def aclose(self) -> None:
        """Take the message in hand, and end this loop.

        The others get further messages.
        """
        self.take()
        self._closed = True
        self._reception.forget(self)
