"""A client that stays connected, with the plugin in it.

What slixmpp leaves to the application is here: whether there is TLS at all, where
a redirection may lead, what is worth another attempt, and when to make it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from slixmpp import JID, ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout, XMPPError
from slixmpp.stanza import Iq, StreamError, StreamFeatures
from slixmpp.util.sasl.client import saslprep
from slixmpp.util.stringprep_profiles import StringPrepError
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.cli.options import Account
from qos.cli.output import note
from qos.cli.status import CannotConnect, CommandError, Status, UsageError
from qos.core.backoff import Backoff
from qos.errors import LocalProtocolError, RemoteProtocolError, StoreInUse
from qos.stores import Contents, Store, store_from_url
from xep_qos import XEP_QOS
from xep_qos.stanza import render_error, request_element

__all__ = ["Connection"]

T = TypeVar("T")

#: A connection over which nothing comes back for this long is taken for lost.
_PING_INTERVAL_S = 60.0
_PING_TIMEOUT_S = 30.0

#: For the roster, before going on without one.
_ROSTER_TIMEOUT_S = 30.0

#: RFC 6121 §4.7.2.3: keeps away what is meant for anyone of the account.
_PRIORITY_SENDER = -1

#: Bytes that may wait to be written before more is sent.
_UNWRITTEN_BYTES_MAX = 1024 * 1024

#: RFC 6120 §6.5: how a server says that it cannot tell just now.
_PASSING_AUTH_FAILURE = "temporary-auth-failure"

#: Stream errors (RFC 6120 §4.9.3) at which another attempt ends in the same way.
#: Two clients under one JID are among them: they push each other out for ever.
_LASTING = frozenset({"conflict", "host-unknown", "host-gone"})

#: Until there has been a session, somebody waits for the first one.
_FIRST_BACKOFF = Backoff(first_s=0.5, max_s=5.0)

#: What peers get who send to a command that only sends: they try again.
_AWAY = RemoteProtocolError("away", condition="service-unavailable", type="cancel")

#: To close a socket that is being aborted takes a turn of the event loop.
_HANG_UP_S = 1.0


class Connection:
    """A session with the server that is made again whenever it is lost.

    Entering opens the store: it raises StoreError or UsageError. `start` goes
    online.

    Attributes:
        client: the slixmpp client.
        qos: its plugin.
        online: set while there is a session.
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
        self._account = account
        self._receives = receives
        self._quiet = quiet
        self.online = asyncio.Event()
        self.announced = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._session_tasks: set[asyncio.Task[None]] = set()
        #: There has been a session, at some time.
        self._met = False
        #: Of the attempt at hand: there is a session; it is over; the socket is
        #: closed; why, as far as we were told; another one would end like this;
        #: what the server said to the password.
        self._started = asyncio.Event()
        self._over = asyncio.Event()
        self._closed = asyncio.Event()
        self._problem = ""
        self._lasting = False
        self._refusal = ""
        self.client = self._new_client(account)

    async def __aenter__(self) -> Self:
        """Open the store."""
        self.client.register_plugin("xep_0199")
        options = self._account.plugin
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Log out and close the store."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        try:
            await self.client.disconnect()
            self.client.cancel_connection_attempt()
        finally:
            await self.qos.aclose()
            # slixmpp runs this task for ever: nothing of its own ends it.
            if self.client._run_out_filters is not None:
                self.client._run_out_filters.cancel()

    def start(self) -> None:
        """Begin to connect. What comes of it, `work` says."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def work(self, task: Coroutine[Any, Any, T]) -> T:
        """Do the work; it ends early if there never was a session.

        Raises:
            CannotConnect: there was none, and there is none to be expected.
        """
        assert self._keeper is not None
        doing = asyncio.get_running_loop().create_task(task)
        try:
            await asyncio.wait(
                (doing, self._keeper), return_when=asyncio.FIRST_COMPLETED
            )
            if not doing.done():
                self._keeper.result()
            return await doing
        finally:
            doing.cancel()
            await asyncio.wait((doing,))

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

    # -- one client --------------------------------------------------------

    def _new_client(self, account: Account) -> ClientXMPP:
        try:
            saslprep(account.password)
        except StringPrepError:
            raise UsageError(
                "the password has characters that no password can have (RFC 4013)"
            ) from None
        plain = account.tls == "off"
        client = ClientXMPP(
            account.jid,
            account.password,
            ssl_context=_tls_context(account),
            plugin_config={
                "feature_mechanisms": {
                    "unencrypted_plain": plain,
                    "unencrypted_scram": plain,
                }
            },
        )
        client.enable_plaintext = plain
        client.enable_starttls = account.tls == "starttls"
        client.enable_direct_tls = account.tls == "direct"
        client.default_port = account.port
        # slixmpp accepts every request for a subscription by itself, and whoever
        # is in the roster is trusted. Here nobody gets in without being asked in.
        client.auto_authorize = None
        client.add_filter("in", self._guard)
        for event, handler in (
            ("session_start", self._session_started),
            ("disconnected", self._disconnected),
            ("connection_failed", self._failed),
            ("ssl_invalid_chain", self._failed_tls),
            ("failed_auth", self._refused),
            ("failed_all_auth", self._refused_all),
            ("stream_error", self._stream_error),
        ):
            client.add_event_handler(event, handler)
        return client

    def _guard(self, stanza: StanzaBase) -> StanzaBase | None:
        """Keep slixmpp from going on where it is not safe to.

        It logs in without TLS to a server that offers none (or whose offer
        somebody took away), as far as mechanisms allow; and it follows a
        redirection, which anyone on the way can send before there is TLS, and
        then accepts the certificate of that other host.
        """
        if isinstance(stanza, StreamError):
            if stanza["condition"] == "see-other-host":
                self._give_up(f"{self._name} wants to redirect us: not followed")
                return None
        elif isinstance(stanza, StreamFeatures):
            transport = self.client.transport
            encrypted = transport and transport.get_extra_info("ssl_object")
            features = stanza["features"]
            if self._account.tls != "off":
                if not encrypted and "starttls" not in features:
                    self._give_up(f"{self._name} offers no TLS", lasting=True)
                    return None
            elif "starttls" in features and len(features) == 1:
                self._give_up(f"{self._name} insists on TLS", lasting=True)
                return None
        elif not self._receives and _is_request(stanza):
            self.client.send_raw(render_error(stanza.xml, _AWAY, sender=""))
            return None
        return stanza

    def _give_up(self, problem: str, *, lasting: bool = False) -> None:
        self._problem, self._lasting = problem, lasting
        self.client.abort()
        self._over.set()

    # -- what slixmpp tells ------------------------------------------------

    def _session_started(self, _event: object) -> None:
        bound, wanted = self.client.boundjid, self.client.requested_jid
        if bound.bare != wanted.bare or not bound.resource:
            # An anonymous login, for one, counts as a success.
            problem = f"{self._name} gave us {bound.full!r} instead of {wanted.bare}"
            self._give_up(problem, lasting=bool(bound.full))
            return
        if self._met:
            self._say(f"connected again as {bound.full}")
        self._met = True
        self._started.set()
        self.online.set()
        for task in (self._announce(), self._watch()):
            self._spawn(task)

    def _disconnected(self, reason: object) -> None:
        self.online.clear()
        self.announced.clear()
        for task in self._session_tasks:
            task.cancel()
        if not self._problem and reason:
            self._problem = f"{self._name} closed the connection ({reason})"
        self._over.set()
        self._closed.set()

    def _failed(self, error: object) -> None:
        if isinstance(error, ssl.SSLError):
            self._problem = _tls_problem(self._name, error)
            self._lasting = isinstance(error, ssl.SSLCertVerificationError)
        elif isinstance(error, OSError):
            reason = os.strerror(error.errno) if error.errno else str(error)
            self._problem = f"{self._name}: {reason}"
        else:
            self._problem = f"{self._name}: no address is known for it"

    def _failed_tls(self, error: object) -> None:
        """STARTTLS failed; whoever handles this event has to disconnect."""
        self._failed(error)
        self._over.set()

    def _refused(self, failure: StanzaBase) -> None:
        self._refusal = failure["condition"]

    def _refused_all(self, _event: object) -> None:
        if self._refusal:
            self._problem = f"{self._name} refused the login: {self._refusal}"
        else:
            self._problem = f"{self._name} offers no way to log in that we know"
        self._lasting = self._refusal != _PASSING_AUTH_FAILURE

    def _stream_error(self, error: StanzaBase) -> None:
        condition = error["condition"]
        text = f": {error['text']}" if error["text"] else ""
        self._problem = f"{self._name} ended the stream: {condition}{text}"
        self._lasting = condition in _LASTING

    # -- staying connected -------------------------------------------------

    @property
    def _name(self) -> str:
        host = self._account.host
        if host is None:
            return str(self.client.requested_jid.host)
        return f"{host}:{self._account.port}"

    async def _keep(self) -> None:
        """Connect, and again when it is lost.

        Raises:
            CannotConnect: there was never a session, and the time is over or
                nothing will change.
        """
        loop = asyncio.get_running_loop()
        timeout_s = self._account.connect_timeout_s
        give_up_at = loop.time() + timeout_s
        tries, noted = 0, ""
        while True:
            left_s = timeout_s if self._met else give_up_at - loop.time()
            started = await self._one_session(left_s)
            problem = self._problem or f"{self._name}: the connection is lost"
            if not self._met and self._lasting:
                raise CannotConnect(problem)
            tries = 1 if started and not self._lasting else tries + 1
            backoff = self._account.backoff if self._met else _FIRST_BACKOFF
            delay_s = backoff.delay_s(tries, random.random())  # noqa: S311
            if not self._met and loop.time() + delay_s >= give_up_at:
                await asyncio.sleep(give_up_at - loop.time())
                raise CannotConnect(f"{problem}; gave up after {timeout_s:g} s")
            if problem != noted or started:
                self._say(f"{problem}; trying again")
                noted = problem
            await asyncio.sleep(delay_s)

    async def _one_session(self, timeout_s: float) -> bool:
        """Connect, and return when that has failed or the session is over.

        Args:
            timeout_s: until there is a session.

        Returns:
            Whether there was one.
        """
        client = self.client
        self._problem, self._lasting, self._refusal = "", False, ""
        self._started.clear()
        self._over.clear()
        self._closed.clear()
        client.default_domain = client.requested_jid.host
        try:
            async with asyncio.timeout(timeout_s):
                if await self._connected():
                    await _first_of(self._started, self._over)
        except TimeoutError:
            self._problem = f"{self._name} does not answer"
        started = self._started.is_set()
        if started:
            await self._over.wait()
        elif self._refusal and not self._problem:
            self._refused_all(None)
        await self._hang_up()
        return started

    async def _connected(self) -> bool:
        """Make a TCP connection (and TLS, if direct)."""
        client = self.client
        try:
            again = await client.connect(self._account.host, self._account.port)
        except (OSError, ValueError) as error:
            self._failed(error)
            return False
        return again is None

    def _say(self, text: str) -> None:
        if not self._quiet:
            note(text)

    async def _hang_up(self) -> None:
        """Leave nothing of the attempt behind."""
        # slixmpp would try again by itself, without jitter.
        self.client.cancel_connection_attempt()
        self.client.abort()
        if self.client.is_connected():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), _HANG_UP_S)
        if self.client.is_connected():
            # asyncio does not say so when STARTTLS has failed.
            self.client.connection_lost(None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _announce(self) -> None:
        """RFC 6121 §2.2: first the roster, then the presence."""
        try:
            await self.client.get_roster(timeout=_ROSTER_TIMEOUT_S)
        except XMPPError as error:
            self._say(f"{self._name} gives no roster: {error}")
        priority = 0 if self._receives else _PRIORITY_SENDER
        self.client.send_presence(ppriority=priority)
        self.announced.set()

    async def _watch(self) -> None:
        """A peer that vanishes does not say so: TCP alone may take hours."""
        ping = self.client.plugin["xep_0199"]
        while True:
            await asyncio.sleep(_PING_INTERVAL_S)
            try:
                await ping.ping(JID(self.client.boundjid.host), timeout=_PING_TIMEOUT_S)
            except IqTimeout:
                self._give_up(f"{self._name} does not answer any more")
            except IqError:
                continue  # no such feature, but it is there


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


def _is_request(stanza: StanzaBase) -> bool:
    return (
        isinstance(stanza, Iq)
        and stanza["type"] == "set"
        and request_element(stanza.xml) is not None
    )


def _tls_context(account: Account) -> ssl.SSLContext:
    """Checks the chain and the host name: create_default_context is strict."""
    try:
        return ssl.create_default_context(cafile=account.ca_file)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) else "not PEM"
        raise UsageError(f"--ca-file {account.ca_file}: {reason}") from None


def _tls_problem(name: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{name}: the certificate is refused: {error.verify_message}"
    return f"{name}: TLS failed: {error.reason or error}"


async def _first_of(*events: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
