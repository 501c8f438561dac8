"""A client of the embedded server that stays connected: a door, the counter, a bee."""

from __future__ import annotations

from pathlib import Path

import xep_0337  # noqa: F401 - makes the plugin known
from qos.testing.clients import Plugins, close, new_client
from qos.testing.server import LoopbackServer

__all__ = ["Device", "jid_of", "reporting"]

#: Short, since the demo is short: a lost stanza costs this time.
_RETRY_FIRST_S = 0.2
_RETRY_MAX_S = 1.0


def jid_of(name: str) -> str:
    """The full JID of a device, so that plain messages find it too."""
    return f"{name}@{LoopbackServer.domain}/device"


def reporting(folder: Path, name: str, journal: str | None) -> Plugins:
    """The plugins of a device that sends or gets events, with a store of this name.

    Args:
        folder: the folder of the store.
        name: the name of the store.
        journal: the folder of the journal; None: no journal.
    """
    return {
        "xep_0337": {},
        "xep_qos": {
            "store": f"sqlite:{folder / name}.sqlite",
            "journal": journal,
            "retry_first_s": _RETRY_FIRST_S,
            "retry_max_s": _RETRY_MAX_S,
            # The demo counts the stanzas of each message.
            "batch_max": 1,
        },
    }


class Device:
    """An account that is connected until it is closed.

    It is in another process than the server, and its handlers can be in place before it
    is online. Otherwise `qos.testing.logged_in` would do.

    Args:
        name: the name of the account.
        password: the password of the account.
        port: the port of the server, on loopback.
        plugins: the options of plugins to load, by plugin name.

    Attributes:
        client: the slixmpp client.
    """

    def __init__(
        self, name: str, *, password: str, port: int, plugins: Plugins
    ) -> None:
        self._port = port
        self._closing = False
        self.client = new_client(jid_of(name), password, plugins)
        self.client.add_event_handler("session_start", self._session_started)
        self.client.add_event_handler("disconnected", self._disconnected)

    def start(self) -> None:
        """Connect, and connect again whenever the connection is lost."""
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
