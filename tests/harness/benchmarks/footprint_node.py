"""An end that measures its own work: `python -m benchmarks.footprint_node`.

It has the commands of any `node`, and those for the stanzas of an application besides
its messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from slixmpp import JID
from slixmpp.stanza import Message

from benchmarks.node import Node, live
from benchmarks.ways import body
from qos.testing.child import Command
from xep_qos import XEP_QOS

__all__: list[str] = []

#: An answer that does not come in this time, in seconds, is lost, which must not
#: happen.
_ANSWER_S_MAX = 30.0


class _FootprintNode(Node):
    """The commands of a node, and those of the footprint."""

    @property
    def commands(self) -> list[Command]:
        """See Node."""
        ours: list[Command] = [self.answer, self.ask, self.fill, self.send_many]
        return [*super().commands, *ours]

    # -- an application without messages of ours ---------------------------

    async def answer(self) -> None:
        """Answer each message by another one, from now on.

        Pings are answered anyway.
        """
        self._client.add_event_handler("message", _reply)

    async def ask(self, *, peer: str, kind: str, messages: int, window: int) -> None:
        """Let the peer answer this number of stanzas.

        Args:
            peer: the full JID of the peer.
            kind: `iq` for pings; or `message`.
            messages: the number of stanzas.
            window: the number of stanzas in flight.
        """
        if kind == "iq":
            await _so_many(lambda: self._ping(peer), messages, window)
            return
        flying: deque[asyncio.Future[None]] = deque()

        def answered(_message: Message) -> None:
            flying.popleft().set_result(None)

        async def one() -> None:
            answer = asyncio.get_running_loop().create_future()
            flying.append(answer)
            _plain_message(self._client, peer)
            async with asyncio.timeout(_ANSWER_S_MAX):
                await answer

        self._client.add_event_handler("message", answered)
        try:
            await _so_many(one, messages, window)
        finally:
            self._client.del_event_handler("message", answered)

    async def _ping(self, peer: str) -> None:
        ping = self._client.plugin["xep_0199"]
        await ping.send_ping(JID(peer), timeout=_ANSWER_S_MAX)

    # -- messages of ours --------------------------------------------------

    async def fill(
        self, *, peer: str, messages: int, payload_bytes: int, window: int
    ) -> dict[str, object]:
        """Submit this number of messages to a peer that is not there.

        Returns:
            The number of outstanding messages after that.
        """
        qos, message = self._prepared(peer, payload_bytes)

        async def one() -> None:
            await qos.submit(message)

        await _so_many(one, messages, window)
        return {"outstanding": len(qos.outstanding())}

    async def send_many(
        self, *, peer: str, messages: int, payload_bytes: int, window: int
    ) -> dict[str, object]:
        """Send this number of messages, each to its end; returns the time."""
        qos, message = self._prepared(peer, payload_bytes)

        async def one() -> None:
            delivery = await qos.submit(message)
            (await delivery.outcome()).raise_for_status()

        began = time.perf_counter()
        await _so_many(one, messages, window)
        return {"seconds": time.perf_counter() - began}

    def _prepared(self, peer: str, payload_bytes: int) -> tuple[XEP_QOS, Message]:
        message = Message()  # type: ignore[no-untyped-call]  # slixmpp's lack
        message["to"] = peer
        message["body"] = body(payload_bytes)
        return XEP_QOS.of(self._client), message


def _reply(message: Message) -> None:
    answer = message.reply(message["body"])  # type: ignore[no-untyped-call]
    answer.send()


def _plain_message(client: Any, peer: str) -> None:
    client.send_message(mto=peer, mbody=body(200), mtype="chat")


async def _so_many(
    one: Callable[[], Awaitable[object]], count: int, window: int
) -> None:
    """Run it this many times, with a window of runs in flight."""
    turns = iter(range(count))

    async def lane() -> None:
        for _ in turns:
            await one()

    async with asyncio.TaskGroup() as lanes:
        for _ in range(window):
            lanes.create_task(lane())


if __name__ == "__main__":
    asyncio.run(live(_FootprintNode))
