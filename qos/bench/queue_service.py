"""A queue service as a component, in a process of its own; for `qos.bench.queue_rows`."""

from __future__ import annotations

import asyncio

from slixmpp import ComponentXMPP

from qos.testing.child import run_commands
from qos.testing.ports import ADDRESS
from xep_0254.service import QueueService

__all__ = ["Serving"]

_LOGIN_S_MAX = 20.0


class Serving:
    """The commands of the process."""

    def __init__(self) -> None:
        self._service: QueueService

    async def serve(self, *, jid: str, secret: str, port: int, store: str) -> None:
        """Serve; returns when the service can be used.

        Args:
            jid: the JID of the component.
            secret: its secret at the server.
            port: the port of the server for components.
            store: the store of the queues.
        """
        component = ComponentXMPP(jid, secret, ADDRESS, port)  # type: ignore[no-untyped-call]  # slixmpp
        self._service = QueueService(component, store)
        component.connect(ADDRESS, port)
        await component.wait_until("session_start", timeout=_LOGIN_S_MAX)


async def _live() -> None:
    await run_commands([Serving().serve])


if __name__ == "__main__":
    asyncio.run(_live())
