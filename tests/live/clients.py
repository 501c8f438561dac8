"""slixmpp clients and components, logged in to a server and closed completely.

    async with connected_client(prosody, "alice/phone", {"xep_qos": {}}) as alice:
        ...

A plugin that is not slixmpp's own must be imported first; it registers itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Literal

from slixmpp import ClientXMPP, ComponentXMPP

from qos.stream.closing import close
from qos.testing.xmpp_server import XmppServer
from waiting import LIMIT_S, limit

Tls = Literal["off", "starttls", "direct"]
Plugins = Mapping[str, dict[str, object]]


class LoginError(ConnectionError):
    """No session came about."""


def make_client(
    server: XmppServer, name: str, plugins: Plugins | None = None, *, tls: Tls = "off"
) -> ClientXMPP:
    """A client that is ready for `log_in`.

    Args:
        server: Where the account is.
        name: A user name of it, with or without a resource: `alice/phone`.
        plugins: The configurations of the plugins to load, by plugin name.
        tls: Anything but `off` checks the server's certificate.
    """
    user, slash, resource = name.partition("/")
    jid = f"{user}@{server.domain}{slash}{resource}"
    client = ClientXMPP(
        jid,
        server.accounts[user],
        plugin_config={"feature_mechanisms": {"unencrypted_plain": tls == "off"}},
    )
    client.enable_plaintext = tls == "off"
    client.enable_starttls = tls == "starttls"
    client.enable_direct_tls = tls == "direct"
    if tls != "off":
        client.ca_certs = server.ca_file
    _register(client, plugins)
    return client


def make_component(
    server: XmppServer, jid: str, plugins: Plugins | None = None
) -> ComponentXMPP:
    """A component that is ready for `log_in`; arguments as for `make_client`."""
    component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        jid, server.components[jid], server.address, server.component_port
    )
    _register(component, plugins)
    return component


async def log_in(xmpp: ClientXMPP | ComponentXMPP, server: XmppServer) -> None:
    """Connect; returns after `session_start`. Sends no presence, fetches no roster.

    Raises:
        LoginError: Refused or not answered in time; the client is then closed.
    """
    done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def finish(problem: str | None) -> None:
        if not done.done():
            done.set_result(problem)

    def started(_: object) -> None:
        finish(None)

    def refused(_: object) -> None:
        finish("the password was refused")

    def failed(reason: object) -> None:
        finish(f"no connection: {reason}")

    if isinstance(xmpp, ComponentXMPP):
        port: int | None = server.component_port
    else:
        port = server.tls_port if xmpp.enable_direct_tls else server.c2s_port
    with (
        xmpp.event_handler("session_start", started),
        xmpp.event_handler("failed_all_auth", refused),
        xmpp.event_handler("connection_failed", failed),
        xmpp.event_handler("disconnected", failed),
    ):
        try:
            xmpp.connect(server.address, port)
            async with limit():
                problem = await done
        except TimeoutError:
            problem = f"no session in {LIMIT_S} s"
        if problem is not None:
            await close(xmpp)
            raise LoginError(f"{xmpp.boundjid}: {problem}")


async def be_available(client: ClientXMPP) -> None:
    """Fetch the roster and send presence, as most clients do at `session_start`."""
    await client.get_roster()
    client.send_presence()


@contextlib.asynccontextmanager
async def connected_client(
    server: XmppServer,
    name: str,
    plugins: Plugins | None = None,
    *,
    tls: Tls = "off",
    available: bool = True,
) -> AsyncIterator[ClientXMPP]:
    """A logged-in client; arguments as for `make_client`.

    With `available` false nobody sees it until it sends presence itself.
    """
    client = make_client(server, name, plugins, tls=tls)
    try:
        await log_in(client, server)
        if available:
            await be_available(client)
        yield client
    finally:
        await close(client)


@contextlib.asynccontextmanager
async def connected_component(
    server: XmppServer, jid: str, plugins: Plugins | None = None
) -> AsyncIterator[ComponentXMPP]:
    """A component that has done its handshake; arguments as for `make_component`."""
    component = make_component(server, jid, plugins)
    try:
        await log_in(component, server)
        yield component
    finally:
        await close(component)


def _register(xmpp: ClientXMPP | ComponentXMPP, plugins: Plugins | None) -> None:
    for name, config in (plugins or {}).items():
        xmpp.register_plugin(name, config)
