"""The share of the gateway that each account, or an address, may use a second."""

from __future__ import annotations

import asyncio
import math

from qos.engine.payers import Payers

__all__ = ["DELAY_S_MAX", "NoRoom", "Shares"]

#: The most seconds for which a request waits for the rate of its payer. The requests of as
#: many connections as a payer may have wait for less.
DELAY_S_MAX = 2.0


class NoRoom(Exception):
    """There is no room for a request at this moment.

    Attributes:
        status: that says so: 429 if the account or address itself has too much.
        retry_after_s: when there is room, in whole seconds; None: it is not known.
    """

    def __init__(self, status: int, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after_s = retry_after_s


class Shares:
    """Counts requests, and the bytes of their bodies."""

    def __init__(self, payers: Payers) -> None:
        """Begin without requests.

        Args:
            payers: have the rates of each account, over all doors.
        """
        self._payers = payers

    async def admit(self, payer: str) -> None:
        """Count a request, which waits for the rate of its payer, and for its turn.

        To refuse one costs as much as to answer one, and often a new connection more.

        Args:
            payer: an account; or an address, for a request that has no right.

        Raises:
            NoRoom: so many requests or bytes came that this one would wait too long.
        """
        over = self._payers.over(payer)
        if over is not None and over.wait_s > DELAY_S_MAX:
            text = f"at most {over.rate} a second are taken of {payer}"
            raise NoRoom(429, text, math.ceil(over.wait_s))
        self._payers.take(payer, requests=1)
        if over is not None:
            await asyncio.sleep(over.wait_s)
        await self._payers.turn(payer)

    def received(self, account: str, size: int) -> None:
        """Count bytes of a body of an account."""
        self._payers.take(account, size=size)
