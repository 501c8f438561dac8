"""slixmpp clients at the embedded server, logged in and closed completely.

For examples and tests. A client of a real server must make its own connection, with
TLS.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from slixmpp import ClientXMPP
from slixmpp.basexmpp import BaseXMPP

import xep_qos  # noqa: F401 - makes the plugin known
from qos import arguments
from qos.stream.closing import close
from qos.testing.server import LoopbackServer

__all__ = ["Plugins", "close", "connected", "friends", "logged_in", "new_client"]

_PASSWORD = "secret"  # noqa: S105 - of accounts that only exist inside a test

#: A login on loopback takes milliseconds; the rest is for a machine under load.
_LOGIN_S_MAX = 15.0

Plugins = Mapping[str, Mapping[str, Any]]


def friends(*users: str, **options: Any) -> LoopbackServer:
    """An embedded server where these users have each other in their rosters.

    Args:
        users: their names, as in `friends("controller", "lamp")`.
        options: as for LoopbackServer: link, port …
    """
    for user in users:
        arguments.text("users", user, empty=False)
    jids = {user: f"{user}@{LoopbackServer.domain}" for user in users}
    return LoopbackServer(
        accounts=dict.fromkeys(users, _PASSWORD),
        rosters={
            user: {jid: "both" for contact, jid in jids.items() if contact != user}
            for user in users
        },
        **options,
    )


def new_client(jid: str, password: str, plugins: Plugins) -> ClientXMPP:
    """A client without TLS that has not been connected yet.

    Args:
        jid: of an account of the embedded server.
        password: of the account.
        plugins: the options of plugins to load, by plugin name.
    """
    client = ClientXMPP(
        jid,
        password,
        plugin_config={"feature_mechanisms": {"unencrypted_scram": True}},
    )
    # By default slixmpp accepts every subscription request.
    client.auto_authorize = None
    client.enable_plaintext = True
    client.enable_starttls = client.enable_direct_tls = False
    for plugin, options in plugins.items():
        client.register_plugin(plugin, dict(options))
    return client


@contextlib.asynccontextmanager
async def logged_in(
    server: LoopbackServer,
    name: str,
    plugins: Plugins | None = None,
    *,
    prepare: Callable[[ClientXMPP], object] | None = None,
) -> AsyncIterator[ClientXMPP]:
    """A client with xep_qos, online; closed on exit, its store included.

    The client reconnects when its connection is lost, as an application must do:
    slixmpp does not.

    Args:
        server: made by friends.
        name: one of its users, with or without a resource: `lamp/1`.
        plugins: the options of plugins to load, by plugin name; xep_qos is always
            loaded, by default with a store in memory.
        prepare: called before it connects, to register handlers and consumers.

    Raises:
        TimeoutError: no session came about.
    """
    arguments.instance(LoopbackServer, "server", server, "a LoopbackServer")
    arguments.text("name", name, empty=False)
    plugins = _plugins({} if plugins is None else plugins)
    if prepare is not None:
        arguments.callable_of("prepare", prepare)
    user, slash, resource = name.partition("/")
    jid = f"{user}@{server.domain}{slash}{resource}"
    client = new_client(jid, _PASSWORD, plugins)

    def be_available(_event: object = None) -> None:
        client.send_presence()

    client.add_event_handler("session_start", be_available)
    try:
        if prepare is not None:
            prepare(client)
        async with connected(client, server.host, server.port):
            await client.get_roster(timeout=_LOGIN_S_MAX)
            yield client
    finally:
        await close(client)


def _plugins(plugins: Plugins) -> Plugins:
    """The plugins to load, with xep_qos, and a store in memory unless it has one."""
    for options in arguments.mapping("plugins", plugins).values():
        arguments.mapping("plugins", options)
    return {**plugins, "xep_qos": {"store": "memory:", **plugins.get("xep_qos", {})}}


@contextlib.asynccontextmanager
async def connected(xmpp: BaseXMPP, host: str, port: int) -> AsyncIterator[None]:
    """Have a session, and connect again whenever the connection is lost.

    Raises:
        TimeoutError: no session came about.
    """

    def connect(_event: object = None) -> None:
        xmpp.connect(host, port)

    xmpp.add_event_handler("disconnected", connect)
    try:
        connect()
        await xmpp.wait_until("session_start", timeout=_LOGIN_S_MAX)
        yield
    finally:
        xmpp.del_event_handler("disconnected", connect)
