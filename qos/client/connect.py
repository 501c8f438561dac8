"""`qos.connect`: an endpoint of assured messaging that stays connected.

A program has a device as long as it sends or receives. The device logs in, keeps the
connection alive, reconnects when it is lost, and closes its store at the end.
Outstanding messages continue with each session and after each restart.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import os
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from slixmpp import JID, ClientXMPP
from slixmpp.stanza import Message

from qos import arguments
from qos.client.connection import Connection
from qos.client.messages import Messages, Reception
from qos.core.backoff import Backoff
from qos.engine import Delivery, Outcome
from qos.errors import CannotConnect, InvalidArgument, LocalProtocolError
from qos.jids import jid_of
from qos.stream.server import PING_INTERVAL_S, Login
from xep_qos import XEP_QOS, Options, SendOptions, Settings

__all__ = ["Device", "connect"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: No default: it would lose messages, or keep them where nobody expects them.
_A_STORE = (
    "given: 'sqlite:PATH' or 'files:DIR', which keep messages over a crash, or 'memory:', "
    "which loses them with the process"
)

#: Our own plugins, which slixmpp knows once they have been imported.
_OURS = frozenset({"xep_0254", "xep_0337"})


def connect(
    jid: str | JID,
    password: str,
    *,
    host: str | None = None,
    port: int | None = None,
    tls: Literal["starttls", "direct", "off"] = "starttls",
    ca_file: str | os.PathLike[str] | None = None,
    connect_timeout_s: float = 30.0,
    ping_interval_s: float = PING_INTERVAL_S,
    ping_timeout_s: float = 30.0,
    stream_management: bool = True,
    receives: bool = True,
    plugins: Mapping[str, Mapping[str, Any]] | None = None,
    setup: Callable[[Device], object] | None = None,
    **options: Unpack[Options],
) -> Device:
    """A device, to be used as `async with`.

    ::

        async with qos.connect(
            "lamp@example.org/1", password, store="sqlite:lamp.db"
        ) as device:
            async for message in device.messages():
                switch(message["body"])

    Only messages of those whom `trust` names reach the program, at every level: by
    default those of contacts. With `accepts="anyone"` it gets plain and acknowledged
    messages of everybody, and has to look whose they are.

    Entering opens the store and waits for the first session. A lost connection is made
    again after a delay that doubles, with jitter. A refused login is not tried again:
    the device ends, and all its methods raise CannotConnect.

    Args:
        jid: the account. With a resource: peers, and the store, know the device by it.
        password: of the account.
        host: the server; None: found by DNS from the domain of the JID.
        port: its port; None: found by DNS, or 5222; 5223 with direct TLS.
        tls: starttls (RFC 6120 §5) or direct (XEP-0368), both with the certificate
            checked;
            off: for a server on this machine only.
        ca_file: the only certificates to trust, as PEM; None: those of the system.
        connect_timeout_s: how long entering waits for the first session; math.inf:
            until there is one.
        ping_interval_s: when nothing has come, or nothing was written, for this time, a
            ping (XEP-0199) asks the server for an answer. The usual time is below that
            after which proxies end a connection.
        ping_timeout_s: the connection is lost when nothing has moved for this time after
            the ping, in either direction.
        stream_management: XEP-0198, if the server has it: a session is resumed after a
            connection is lost, and nothing in flight is sent twice.
        receives: False for a program that only sends: its peers are told to try again
            later, and messages that the store holds for it stay there.
        plugins: further plugins of slixmpp to register, with the options of each.
        setup: called with the device when its store is open, before it connects, to
            register handlers of slixmpp, or consumers (`device.qos.consumer`). Messages
            then go to these, and not to `device.messages`; `trust` counts for them too.
        options: those of the plugin: store, trust, deadline_s … See
            `xep_qos.Settings`. `retry_first_s` and `retry_max_s` are also the
            delays between two connections.

    Raises:
        ValueError: an argument has a value that it cannot have; the text names it.
            Nothing was opened.
    """
    jid_of("jid", jid)
    arguments.text("password", password, empty=False, private=True)
    if host is not None:
        arguments.text("host", host, empty=False)
    if port is not None:
        arguments.whole("port", port, least=1, most=65535)
    if ca_file is not None:
        arguments.path("ca_file", ca_file)
    if connect_timeout_s != math.inf:
        arguments.seconds("connect_timeout_s", connect_timeout_s)
    arguments.seconds("ping_interval_s", ping_interval_s)
    arguments.seconds("ping_timeout_s", ping_timeout_s)
    arguments.flag("stream_management", stream_management)
    arguments.flag("receives", receives)
    if setup is not None:
        arguments.callable_of("setup", setup)
    more = _plugins(plugins)
    if "store" not in options:
        raise InvalidArgument("store", None, _A_STORE)
    settings = Settings.from_config(options)
    login = Login.of(
        str(jid),
        password,
        host=host,
        port=port,
        tls=tls,
        ca_file=ca_file,
        connect_timeout_s=connect_timeout_s,
        backoff=Backoff(first_s=settings.retry_first_s, max_s=settings.retry_max_s),
        ping_interval_s=ping_interval_s,
        ping_timeout_s=ping_timeout_s,
    )
    if stream_management:
        more.setdefault("xep_0198", {})
    return Device(login, options, more, receives=receives, setup=setup)


def _plugins(plugins: object) -> dict[str, Mapping[str, Any]]:
    """Further plugins of slixmpp by name, checked and copied."""
    expected = "a mapping of names of slixmpp's plugins to mappings of their options"
    if plugins is None:
        return {}
    if not isinstance(plugins, Mapping) or not all(
        isinstance(name, str) and isinstance(options, Mapping)
        for name, options in plugins.items()
    ):
        raise InvalidArgument("plugins", plugins, expected)
    return dict(plugins)


class Device:
    """An endpoint that stays connected; made by `connect`.

    Attributes:
        client: the slixmpp client.
        qos: the plugin, for everything beyond the methods here.
    """

    client: ClientXMPP
    qos: XEP_QOS

    def __init__(
        self,
        login: Login,
        options: Mapping[str, Any],
        plugins: Mapping[str, Mapping[str, Any]],
        *,
        receives: bool,
        setup: Callable[[Device], object] | None,
    ) -> None:
        """See `connect`."""
        self._receives = receives
        self._login = login
        self._options = options
        self._plugins = plugins
        self._setup = setup
        self._connection: Connection | None = None
        self._reception: Reception | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the store, connect, and return when there is a session.

        Raises:
            CannotConnect: there was none within `connect_timeout_s`, or none is to be
                expected: for example, the login or the certificate was refused.
            StoreError: the store cannot be opened.
            LocalProtocolError: it has been entered before.
        """
        if self._connection is not None:
            raise LocalProtocolError("a device is entered once: call connect() again")
        connection = self._connection = Connection(
            self._login, self._options, receives=self._receives
        )
        self.client = connection.client
        try:
            await connection.__aenter__()
            self.qos = connection.qos
            for name, options in self._plugins.items():
                if name in _OURS:
                    importlib.import_module(name)
                self.client.register_plugin(name, dict(options))
            if self._setup is not None:
                self._setup(self)
            elif self._receives:
                self._reception = Reception(self.client, self.qos)
            connection.start(self._ended)
            await connection.work(connection.announced.wait())
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close. Without an exception, the messages in hand are taken first."""
        try:
            if error is None and self._reception is not None and self._reception.take():
                await self.qos.flush()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Log out and close the store; leaving the block does the same.

        Outstanding messages stay in the store. Closing goes on if its caller is
        cancelled, and may be repeated.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._reception is not None:
            self._reception.end()
        if self._connection is not None:
            await self._connection.__aexit__(None, None, None)

    def _ended(self, failure: CannotConnect) -> None:
        """End the device: the login was refused, or there was no first session."""
        if self._reception is not None:
            self._reception.end(failure)
        if self._connection is not None and self._connection.has_been_online:
            log.error("%s; the device has ended", failure)

    # -- the application ---------------------------------------------------

    @property
    def is_online(self) -> bool:
        """Whether there is a session now. Without one, messages wait in the store."""
        return self._connection is not None and self._connection.online.is_set()

    async def send(
        self,
        to: str | JID | Message,
        body: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Outcome:
        """Send a message and wait for its end, across lost connections too.

        Args, Returns and Raises are those of `XEP_QOS.send`. Also:

        Raises:
            CannotConnect: there is no session, and none is to be expected. A message
                that was accepted before continues when the store is opened again.
        """
        return await self._started.work(self.qos.send(to, body, **options))

    async def submit(
        self,
        to: str | JID | Message,
        body: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Accept a message for sending; on return it is as safe as the store.

        See `XEP_QOS.submit`.
        """
        return await self.qos.submit(to, body, **options)

    async def outcome(self, msg_id: str) -> Outcome:
        """The outcome of a message, even from before a restart; waits for it if needed.

        Args and Raises are those of `XEP_QOS.outcome`, and CannotConnect as for `send`.
        """
        return await self._started.work(self.qos.outcome(msg_id))

    def messages(self, *, max_redeliveries: int = 10) -> Messages:
        """The incoming messages, for `async for`: plain ones, and those with QoS.

        `device.qos.incoming(message)` tells how a message was delivered; None: as a
        plain one. A message counts as taken when its loop body is done: see `Messages`.
        Messages that come before the first loop, or while its body works, wait. With
        QoS, as many wait as the quotas of the plugin allow, and their senders get no
        answer. Of plain messages the first 1,000, or 4 MiB, wait; more are dropped.
        Each call makes a loop. Several loops share the messages, so that several
        messages are worked on at once.

        Args:
            max_redeliveries: how often a message comes again that is never taken, since
                an exception or a kill ends the work on it. Then it is parked, and an
                operator decides (`xmpp-qos inbox`).

        Raises:
            LocalProtocolError: messages go to handlers registered by `setup`,
                `receives` is False, or the device is not entered.
        """
        if self._reception is None:
            raise LocalProtocolError(
                "there are no messages to loop over: the device is not entered, or has "
                "receives=False, or its messages go to what setup has registered"
            )
        arguments.whole("max_redeliveries", max_redeliveries, least=1)
        return self._reception.new_loop(max_redeliveries)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run other work with the client, for example a `qos.worker.Worker`.

        Raises:
            CannotConnect: there is no session, and none is to be expected: the work is
                cancelled.
        """
        return await self._started.work(work)

    async def serve_forever(self) -> None:
        """Wait until cancelled or closed, while handlers and consumers work.

        Raises:
            CannotConnect: there is no session, and none is to be expected.
        """
        await self._started.work(asyncio.Event().wait())

    @property
    def _started(self) -> Connection:
        if self._connection is None:
            raise LocalProtocolError(
                "the device is not entered: use it as `async with`"
            )
        return self._connection
