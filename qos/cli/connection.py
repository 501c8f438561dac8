"""An account's session with QoS in it: what the commands for messages need."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import chain
from typing import Any, Self

from slixmpp.exceptions import XMPPError
from slixmpp.stanza import Iq
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.cli.account import Account
from qos.cli.logins import AccountSession
from qos.cli.status import CommandError, Status, UsageError
from qos.errors import LocalProtocolError, RemoteProtocolError, StoreInUse
from qos.stores import Contents, Store, store_from_url
from qos.stores.base import Journal
from xep_qos import XEP_QOS
from xep_qos.stanza import render_error, request_element

__all__ = ["Connection"]

#: For the roster, before going on without one.
_ROSTER_TIMEOUT_S = 30.0

#: RFC 6121 §4.7.2.3: keeps away what is meant for anyone of the account.
_PRIORITY_SENDER = -1

#: Bytes that may wait to be written before more is sent.
_UNWRITTEN_BYTES_MAX = 1024 * 1024

#: What peers get who send to a command that only sends: they try again.
_AWAY = RemoteProtocolError("away", condition="service-unavailable", type="cancel")


class Connection(AccountSession):
    """A session with the plugin in it.

    Entering opens the store: it raises StoreError or UsageError. `start` goes
    online.

    Attributes:
        qos: the plugin.
        announced: set once the peers know that we are available.
    """

    def __init__(
        self, account: Account, *, receives: bool, quiet: bool = False
    ) -> None:
        """Prepare.

        Args:
            account: who to be.
            receives: there is somebody to hand messages to. If not, peers are told
                to come again, and what the store holds for others stays there.
            quiet: do not say when the connection is lost and found.
        """
        self._options = account.plugin
        self._receives = receives
        self.announced = asyncio.Event()
        super().__init__(account, quiet=quiet)

    async def __aenter__(self) -> Self:
        """Open the store."""
        options = self._options
        try:
            if not self._receives:
                store = _OutboxOnly(store_from_url(options["store"]))
                options = {**options, "store": store}
            self.client.register_plugin("xep_qos", options)
        except (LocalProtocolError, ValueError) as error:
            raise UsageError(str(error)) from None
        except StoreInUse as error:
            hint = "each needs its own (--store, or --jid with another resource)"
            raise CommandError(f"{error}; {hint}", Status.STORE) from None
        self.qos = XEP_QOS.of(self.client)
        return self

    async def drained(self, *, left: int = _UNWRITTEN_BYTES_MAX) -> None:
        """Wait until no more than this many bytes wait to be written."""
        await self.client.waiting_queue.join()
        while (transport := self.client.transport) is not None:
            if transport.get_write_buffer_size() <= left:
                return
            await asyncio.sleep(0.01)

    @property
    def what_stays(self) -> str:
        """What becomes of the messages that have not ended."""
        count = self.qos.outstanding
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

    def _guard(self, stanza: StanzaBase) -> StanzaBase | None:
        if not self._receives and _is_request(stanza):
            self.client.send_raw(render_error(stanza.xml, _AWAY, sender=""))
            return None
        return super()._guard(stanza)

    def _during_session(self) -> Iterator[Coroutine[Any, Any, None]]:
        return chain((self._announce(),), super()._during_session())

    def _disconnected(self, reason: object) -> None:
        self.announced.clear()
        super()._disconnected(reason)

    async def _announce(self) -> None:
        """RFC 6121 §2.2: first the roster, then the presence."""
        try:
            await self.client.get_roster(timeout=_ROSTER_TIMEOUT_S)
        except XMPPError as error:
            self._say(f"{self._name} gives no roster: {error}")
        priority = 0 if self._receives else _PRIORITY_SENDER
        self.client.send_presence(ppriority=priority)
        self.announced.set()


class _OutboxOnly:
    """A store of which the plugin does not see what it holds for others.

    It would hand over what an earlier process may not have handed over, to nobody.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self) -> Contents:
        """See Store."""
        contents = self._store.open()
        contents.incoming.clear()
        return contents

    @property
    def journal(self) -> Journal | None:
        """See Store."""
        return self._store.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._store.journal = journal


def _is_request(stanza: StanzaBase) -> bool:
    return (
        isinstance(stanza, Iq)
        and stanza["type"] == "set"
        and request_element(stanza.xml) is not None
    )
