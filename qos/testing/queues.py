"""A queue service for the embedded server, as a component."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from slixmpp import ComponentXMPP

from qos import arguments
from qos.jids import jid_of
from qos.stream.closing import close
from qos.testing.clients import connected
from qos.testing.server import LoopbackServer
from xep_0254.service import QueueService

__all__ = ["queue_service"]


@contextlib.asynccontextmanager
async def queue_service(
    server: LoopbackServer,
    domain: str,
    secret: str = "secret",  # noqa: S107 - of a component that only exists inside a test
    *,
    store: str | None = None,
    creators: str | Collection[str] = "domain",
    journal: str | os.PathLike[str] | None = None,
    relays: bool = False,
) -> AsyncIterator[QueueService]:
    """Serve queues at a domain; closed on exit, its store included.

    ::

        async with (
            friends("boss", "bee", components={"queue.localhost": "secret"}) as server,
            queue_service(server, "queue.localhost"),
            logged_in(server, "bee/1") as bee,
        ):
            ...

    The service reconnects when its connection is lost.

    Args:
        server: a server with this component.
        domain: of the component.
        secret: of the component.
        store: as for QueueService; None: a store that is removed on exit.
        creators: as for QueueService.
        journal: as for QueueService.
        relays: as for QueueService.

    Raises:
        TimeoutError: no session came about.
        StoreError: the store cannot be opened.
    """
    arguments.instance(LoopbackServer, "server", server, "a LoopbackServer")
    async with contextlib.AsyncExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            store = f"sqlite:{Path(folder, 'queues.sqlite')}"
        component = _component(server, domain, secret)
        stack.push_async_callback(close, component)
        service = QueueService(
            component, store, creators=creators, journal=journal, relays=relays
        )
        stack.push_async_callback(service.aclose)
        async with connected(component, server.host, server.component_port):
            yield service


def _component(server: LoopbackServer, domain: str, secret: str) -> ComponentXMPP:
    """A component of this server, not connected yet."""
    jid_of("domain", domain)
    arguments.text("secret", secret, private=True)
    component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        domain, secret, server.host, server.component_port
    )
    component.enable_direct_tls = False
    return component
