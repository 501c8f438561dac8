"""Many senders that ignore their quota, in one process of their own.

They are of one domain, and share the stream of its component. For the receiver, their
cost is the same. `python -m benchmarks.flooder` executes commands; see
qos.testing.child.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp import ComponentXMPP

from benchmarks.ways import body
from qos.core.message.model import NAMESPACES
from qos.stream.closing import close
from qos.testing.child import run_commands

__all__ = ["Flooder"]

#: The time between two batches of due requests, in seconds.
_BEAT_S = 0.01

#: How long to wait for the last answer after the last request, in seconds.
_ANSWERS_S_MAX = 30.0

_LOGIN_S_MAX = 20.0


class Flooder:
    """The commands of a flooder: `connect`, then `flood`, once."""

    def __init__(self) -> None:
        self._answers: Counter[str] = Counter()
        self._xmpp: Any = None

    async def connect(self, *, domain: str, secret: str, port: int) -> None:
        """Log in as a component."""
        self._xmpp = xmpp = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            domain, secret, "127.0.0.1", port
        )
        xmpp.enable_direct_tls = False
        xmpp.connect("127.0.0.1", port)
        await xmpp.wait_until("session_start", timeout=_LOGIN_S_MAX)
        # It need not be quick, but must not slow everything else down.
        self._xmpp._spawn_event = self._count

    async def flood(
        self,
        *,
        to: str,
        senders: int,
        messages: int,
        payload_bytes: int,
        seconds: float,
    ) -> dict[str, object]:
        """Offer messages at a steady rate, and release none of them.

        Args:
            to: a full JID.
            senders: the number of senders.
            messages: the number of messages of each.
            payload_bytes: the payload size of each message.
            seconds: the duration.

        Returns:
            The number of requests sent, and the number of answers of each kind:
            `received`, or the condition of an error.
        """
        total, sent = senders * messages, 0
        text = body(payload_bytes)
        began = time.monotonic()
        while sent < total:
            share = min(1.0, (time.monotonic() - began) / seconds)
            due = round(total * share)
            batch = [
                self._offer(number, senders, to, text) for number in range(sent, due)
            ]
            if batch:
                self._xmpp.send_raw("".join(batch))
            sent = due
            await asyncio.sleep(_BEAT_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWERS_S_MAX):
                while self._answers.total() < sent:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_BEAT_S)
        return {"sent": sent, "answers": dict(self._answers)}

    async def close(self) -> None:
        """Log out."""
        if self._xmpp is not None:
            await close(self._xmpp)

    def _offer(self, number: int, senders: int, to: str, text: str) -> str:
        source = f"flooder{number % senders}@{self._xmpp.boundjid.bare}/1"
        return (
            f"<iq type='set' id='f{number}' from='{source}' to='{to}'>"
            f"<assured xmlns='{NAMESPACES[0]}' msgId='m{number}'>"
            f"<message xmlns='jabber:client'><body>{text}</body></message></assured></iq>"
        )

    def _count(self, xml: ET.Element) -> None:
        if xml.get("type") == "result":
            self._answers["received"] += 1
        elif xml.get("type") == "error":
            self._answers[xml[-1][0].tag.rpartition("}")[2]] += 1


async def _live() -> None:
    flooder = Flooder()
    try:
        await run_commands([flooder.connect, flooder.flood])
    finally:
        await flooder.close()


if __name__ == "__main__":
    asyncio.run(_live())
