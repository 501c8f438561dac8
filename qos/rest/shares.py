"""The share of the gateway that each account may use a second."""

from __future__ import annotations

import math

from qos.engine.payers import Payers

__all__ = ["NoRoom", "Shares"]


class NoRoom(Exception):
    """There is no room for a request at this moment.

    Attributes:
        status: that says so: 429 if the account itself has too much.
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

    def admit(self, account: str) -> None:
        """Count a request of an account.

        Raises:
            NoRoom: it sends too many requests or bytes a second.
        """
        over = self._payers.over(account)
        if over is None:
            self._payers.take(account, requests=1)
            return
        raise NoRoom(
            429,
            f"at most {over.rate} a second are taken of a user",
            math.ceil(over.wait_s),
        )

    def received(self, account: str, size: int) -> None:
        """Count bytes of a body of an account."""
        self._payers.take(account, size=size)
