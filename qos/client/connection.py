"""A session with the plugin xep_qos, which sends presence to its contacts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Self

from qos.client.trust_gate import TrustGate
from qos.stream.login import AccountSession
from qos.stream.server import Login
from xep_qos import XEP_QOS

__all__ = ["Connection"]

#: Seconds to wait for the roster; then the session continues without it.
_ROSTER_TIMEOUT_S = 30.0

#: RFC 6121 §4.7.2.3: a negative priority keeps away messages to the bare JID.
_PRIORITY_SENDER = -1


class Connection(AccountSession):
    """An account's session with QoS.

    Entering opens the store; `start` goes online.

    Attributes:
        qos: the plugin.
        gate: keeps plain messages of strangers from all handlers.
        announced: set while the peers have been told that we are available.
    """

    qos: XEP_QOS
    gate: TrustGate

    def __init__(
        self,
        login: Login,
        options: Mapping[str, Any],
        *,
        receives: bool = True,
        quiet: bool = False,
    ) -> None:
        """Prepare.

        Args:
            login: the account.
            options: those of the plugin; see `xep_qos.settings.Settings`.
            receives: messages are handed over to the program: the option of that name.
            quiet: do not log when the connection is lost and made again.

        Raises:
            ValueError: the password or the CA file cannot be used.
        """
        self._options = {**options, "receives": receives}
        self._receives = receives
        self.announced = asyncio.Event()
        #: In this session of the server, which may be resumed.
        self._presence_sent = False
        super().__init__(login, quiet=quiet)

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreError: it cannot be opened.
            ValueError: an option is bad.
        """
        self.client.register_plugin("xep_qos", self._options)
        self.qos = XEP_QOS.of(self.client)
        self.gate = TrustGate(self.client, self.qos)
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Close the store and the session."""
        if hasattr(self, "gate"):
            self.gate.end()
        await super().__aexit__(*error)

    def _during_new_session(self) -> Iterator[Coroutine[Any, Any, None]]:
        self._presence_sent = False
        yield self._announce()

    def _session_resumed(self, event: object) -> None:
        super()._session_resumed(event)
        if self._presence_sent:
            self.announced.set()
        else:
            self._spawn(self._announce())

    def _disconnected(self, reason: object) -> None:
        self.announced.clear()
        super()._disconnected(reason)

    async def _announce(self) -> None:
        """Send presence (RFC 6121 §2.2); the plugin has requested the roster before.

        The order on the wire is what counts: the server sends the presence of the
        contacts behind the roster.
        """
        priority = 0 if self._receives else _PRIORITY_SENDER
        self.client.send_presence(ppriority=priority)
        self._presence_sent = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROSTER_TIMEOUT_S):
                await self.qos.roster_known()
        self.announced.set()
