"""Assured messages that a gateway sends for its users.

A component sends them from the addresses of the users at its own domain. All others can
only be from the service itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from qos.core.message.model import Ended, Level, Outgoing
from qos.core.strings import domain_of
from qos.engine.once import Once
from xep_qos.plugin import XEP_QOS

__all__ = ["RELAYED_MAX", "Relay"]

#: The number of messages, of those accepted last, whose outcomes are kept.
RELAYED_MAX = 1_000_000

#: The resource of a user's address.
_RESOURCE = "http"


class Relay:
    """The outbox of a stream, for the users of a gateway.

    Attributes:
        once: knows the messages that were accepted here.
    """

    def __init__(self, qos: XEP_QOS) -> None:
        self._xmpp = qos.xmpp
        self._endpoint = qos._endpoint
        self.once = Once(self.find)
        self._waiting: set[asyncio.Task[Any]] = set()

    def speaks_as(self, account: str) -> bool:
        """Whether the messages of this account are from its own address."""
        domain = self._xmpp.boundjid.bare or self._xmpp.requested_jid.bare
        return bool(self._xmpp.is_component) and domain_of(account) == domain

    def find(self, msg_id: str) -> Outgoing | Ended | None:
        """A message that was accepted here, or its end, as far as it is remembered."""
        return self._endpoint.outbox.find(msg_id)

    async def accept(
        self,
        to: str,
        payload: str,
        *,
        account: str,
        msg_id: str,
        digest: str,
        ttl_s: float,
    ) -> Outgoing | Ended | None:
        """See Once.accept.

        Raises:
            MessageTooLarge, OutboxFull, StoreError: it was not accepted.
        """
        submit = partial(self._submit, to, payload, account, msg_id, digest, ttl_s)
        return await self.once.accept(msg_id, submit)

    async def _submit(
        self,
        to: str,
        payload: str,
        account: str,
        msg_id: str,
        digest: str,
        ttl_s: float,
    ) -> None:
        await self._endpoint.submit(
            to,
            payload,
            Level.ASSURED,
            ttl_s,
            None,
            sender=f"{account}/{_RESOURCE}" if self.speaks_as(account) else "",
            msg_id=msg_id,
            account=account,
            digest=digest,
        )

    async def wait(self, msg_id: str, seconds: float) -> None:
        """Wait for the end of a message, at most so long, or until `stop`."""
        outcome = self._endpoint.outbox.outcome(msg_id)
        task: asyncio.Task[Any] = asyncio.ensure_future(outcome)
        task.add_done_callback(_seen)
        self._waiting.add(task)
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            task.cancel()
            self._waiting.discard(task)

    def stop(self) -> None:
        """Let nobody wait any more."""
        for task in self._waiting:
            task.cancel()


def _seen(task: asyncio.Task[Any]) -> None:
    """Take the error of a task that perhaps nobody waits for any more."""
    if not task.cancelled():
        task.exception()
