"""Messages from one session to another, at one level after the other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from slixmpp import ClientXMPP
from slixmpp.stanza import Message

from qos.bench.figures import Figures, figures_of
from qos.bench.pace import keep_in_flight
from qos.core.message.model import Level, OutgoingState
from xep_qos import XEP_QOS

__all__ = ["NO_LIMITS", "WAIT_S", "Traffic", "options"]

#: Nobody says that a message of level unacknowledged is lost; so a row waits this long, in
#: seconds. Likewise for a delivered message that the other session has not handed over yet.
WAIT_S = 10.0

#: A message that has not ended by then is missing.
_DEADLINE_S = 60.0

#: A quota would be measured, and not the server.
NO_LIMITS: Final[Mapping[str, int]] = {
    "quota_messages": 10**9,
    "quota_total_messages": 10**9,
    "quota_bytes": 10**15,
    "quota_total_bytes": 10**15,
}


def options(store: str, sender: str, window: int) -> dict[str, Any]:
    """The options of the plugin at both ends.

    Args:
        store: its URI.
        sender: the account that the receiver trusts.
        window: the largest one.
    """
    return {
        "store": store,
        "trust": [sender],
        "deadline_s": _DEADLINE_S,
        "window_max": window,
        **NO_LIMITS,
    }


class Traffic:
    """Messages from one session to another.

    Args:
        sender: it has a session, and the plugin with `options`.
        receiver: likewise.

    Attributes:
        problems: how often messages have not ended well, by reason.
    """

    def __init__(self, sender: ClientXMPP, receiver: ClientXMPP) -> None:
        self.problems: Counter[str] = Counter()
        self._qos = XEP_QOS.of(sender)
        self._to = receiver.boundjid.full
        #: The present row: what comes late is not counted for the next one.
        self._row = 0
        #: How often each message of the row was handed over, by number.
        self._taken: Counter[int] = Counter()
        self._arrivals: dict[int, asyncio.Future[None]] = {}
        self._expected = 0
        self._complete = asyncio.Event()
        receiver.add_event_handler("message", self._take)

    async def measure(
        self, level: Level, *, window: int, payload_bytes: int, seconds: float
    ) -> Figures:
        """Send as much as there is time for.

        Args:
            level: of the messages.
            window: the messages in flight.
            payload_bytes: of each body; a shorter one is made longer, since each has its
                number in it.
            seconds: after which nothing more is sent. The row ends when all messages
                have, at most a minute later.

        Raises:
            LocalProtocolError: a message is not accepted, such as one that is too large.
        """
        # At first the two ask each other for their features.
        self._next_row()
        await self._send(0, payload_bytes, level)
        self._next_row()
        results: dict[int, bool] = {}

        async def send(number: int) -> None:
            results[number] = await self._send(number, payload_bytes, level)

        began_s = time.process_time()
        times = await keep_in_flight(send, window=window, seconds=seconds)
        await self._until_taken(sum(results.values()))
        return figures_of(
            level.value,
            window=window,
            payload_bytes=payload_bytes,
            messages=len(results),
            latencies_s=[
                times.ended[number] - times.given[number]
                for number, well in results.items()
                if well and self._taken[number]
            ],
            seconds=max(times.ended) - min(times.given),
            cpu_s=time.process_time() - began_s,
            twice=sum(count > 1 for count in self._taken.values()),
        )

    def _next_row(self) -> None:
        self._row += 1
        self._taken.clear()

    async def _send(self, number: int, payload_bytes: int, level: Level) -> bool:
        """Send a message; returns whether it has ended well."""
        message = Message()  # type: ignore[no-untyped-call]  # slixmpp's lack
        message["to"] = self._to
        message["body"] = f"{self._row}:{number}:".ljust(payload_bytes, "x")
        if level is Level.UNACKNOWLEDGED:
            return await self._send_plain(number, message)
        outcome = await (await self._qos.submit(message, level=level)).outcome()
        if outcome.status is OutgoingState.DELIVERED:
            return True
        self.problems[f"{outcome.status.value}: {outcome.reason}"] += 1
        return False

    async def _send_plain(self, number: int, message: Message) -> bool:
        """Send a message that ends when it arrives."""
        arrival = asyncio.get_running_loop().create_future()
        self._arrivals[number] = arrival
        try:
            await self._qos.submit(message, level=Level.UNACKNOWLEDGED)
            async with asyncio.timeout(WAIT_S):
                await arrival
        except TimeoutError:
            self.problems[f"did not arrive within {WAIT_S:g} s"] += 1
            return False
        finally:
            del self._arrivals[number]
        return True

    async def _until_taken(self, count: int) -> None:
        """Wait until so many different messages have been handed over."""
        self._expected = count
        self._complete.clear()
        if len(self._taken) < count:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._complete.wait()

    def _take(self, message: Any) -> None:
        row, _, rest = message["body"].partition(":")
        number = rest.partition(":")[0]
        if row != str(self._row) or not number.isdecimal():
            return
        self._taken[int(number)] += 1
        arrival = self._arrivals.get(int(number))
        if arrival is not None and not arrival.done():
            arrival.set_result(None)
        if len(self._taken) >= self._expected:
            self._complete.set()
