"""A client of the embedded server that stays connected: a door, or the counter."""

from __future__ import annotations

from pathlib import Path

from slixmpp import ClientXMPP

import xep_0337  # noqa: F401 - makes the plugin known
from qos.testing.server import LoopbackServer
from xep_qos import XEP_QOS
from xep_qos.closing import close

__all__ = ["Device", "jid_of"]

#: Small, since the demo is short: they are what a lost stanza costs.
_RETRY_FIRST_S = 0.2
_RETRY_MAX_S = 1.0


def jid_of(name: str) -> str:
    """The full JID of a device, so that plain messages find it too."""
    return f"{name}@{LoopbackServer.domain}/device"


class Device:
    """An account with a store of its own, connected until it is closed.

    Attributes:
        client: the slixmpp client.
        qos: its plugin.
    """

    def __init__(self, name: str, *, password: str, port: int, folder: Path) -> None:
        """Open the store.

        Args:
            name: of the account, and of the store.
            password: of the account.
            port: of the server, on loopback.
            folder: where the store is.
        """
        self._port = port
        self._closing = False
        self.client = ClientXMPP(
            jid_of(name),
            password,
            plugin_config={"feature_mechanisms": {"unencrypted_plain": True}},
        )
        # The roster says whom to trust; nobody gets into it by asking.
        self.client.auto_authorize = None
        self.client.enable_plaintext = True
        self.client.enable_starttls = False
        self.client.enable_direct_tls = False
        self.client.register_plugin("xep_0337")
        self.client.register_plugin(
            "xep_qos",
            {
                "store": f"sqlite:{folder / name}.sqlite",
                "retry_first_s": _RETRY_FIRST_S,
                "retry_max_s": _RETRY_MAX_S,
            },
        )
        self.qos = XEP_QOS.of(self.client)
        self.client.add_event_handler("session_start", self._session_started)
        self.client.add_event_handler("disconnected", self._disconnected)

    def start(self) -> None:
        """Connect, and again whenever the connection is lost."""
        self.client.connect(LoopbackServer.host, self._port)

    async def aclose(self) -> None:
        """Log out and close the store."""
        self._closing = True
        await close(self.client)

    def _session_started(self, _event: object) -> None:
        self.client.send_presence()

    def _disconnected(self, _reason: object) -> None:
        if not self._closing:
            self.start()
