"""An account's session with the QoS plugin, for the commands for messages."""

from __future__ import annotations

import asyncio
from typing import Self

from qos.cli.account import Account
from qos.cli.status import CommandError, Status
from qos.client import connection
from qos.errors import LocalProtocolError, StoreInUse, UsageError

__all__ = ["Connection"]

#: The number of unwritten bytes above which sending pauses.
_UNWRITTEN_BYTES_MAX = 1024 * 1024


class Connection(connection.Connection):
    """A session with the plugin in it.

    Entering it opens the store, which may raise StoreError or UsageError. `start` goes
    online.
    """

    def __init__(
        self, account: Account, *, receives: bool, quiet: bool = False
    ) -> None:
        """Prepare the session.

        Args:
            account: the account to log in to.
            receives: messages are handed over to this command; see the base class.
            quiet: do not report that the connection was lost and made again.
        """
        super().__init__(account, account.plugin, receives=receives, quiet=quiet)

    async def __aenter__(self) -> Self:
        """Open the store."""
        try:
            return await super().__aenter__()
        except (LocalProtocolError, ValueError) as error:
            raise UsageError(str(error)) from None
        except StoreInUse as error:
            hint = "each needs its own (--store, or --jid with another resource)"
            raise CommandError(f"{error}; {hint}", Status.STORE) from None

    async def drained(self, *, unwritten: int = _UNWRITTEN_BYTES_MAX) -> None:
        """Wait until no more than this many bytes wait to be written."""
        await self.client.waiting_queue.join()
        while (transport := self.client.transport) is not None:
            if transport.get_write_buffer_size() <= unwritten:
                return
            await asyncio.sleep(0.01)

    @property
    def what_stays(self) -> str:
        """A phrase that says what becomes of the messages that have not ended."""
        count = len(self.qos.outstanding())
        if not count:
            return "nothing is left in the outbox"
        messages = "1 message" if count == 1 else f"{count} messages"
        if not self.qos.store.durable:
            return f"{messages} not delivered, and lost with the store {self._url}"
        stay = "stays" if count == 1 else "stay"
        return (
            f"{messages} {stay} in the outbox ({self._url}); "
            "`xmpp-qos outbox resend` goes on"
        )

    @property
    def _url(self) -> str:
        return self.qos.store.url
