"""A stream that stays connected.

slixmpp leaves three decisions to the application: when to connect again, whether
another attempt can succeed, and whether a silent server is still there. This module
makes them; `qos.stream.login` logs in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.stanza import StreamError
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.backoff import Backoff
from qos.core.reconnects import Reconnects
from qos.errors import CannotConnect
from qos.stream.closing import CLOSING_S, close
from qos.stream.dialer import Dialer
from qos.stream.gate import Gate, is_confidential
from qos.stream.keepalive import Keepalive
from qos.stream.per_stream import passes_iqs
from qos.stream.server import Server
from qos.stream.stream_limits import StreamLimits

__all__ = ["Session"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Before the first session, a user is waiting for it.
_FIRST_BACKOFF = Backoff(first_s=0.5, max_s=5.0)

#: The time for one attempt, in seconds, if there is no limit for all attempts.
_ATTEMPT_S_MAX = 60.0

#: OpenSSL's X509_V_ERR_… codes for a certificate that no trusted one has signed.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})

#: OpenSSL's name for the refusal of all protocols that were offered (ALPN).
_NO_PROTOCOL = "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"

#: If a session is replaced by another one twice within so many seconds, both would go on
#: for ever.
_REPLACED_S = 60.0

#: The time to close an aborted socket, in seconds. It takes a turn of the event loop.
_HANG_UP_S = 1.0


class Session:
    """A session with the server that is made again whenever it is lost.

    `start` goes online; leaving it as a context logs out.

    Attributes:
        xmpp: the slixmpp stream.
        online: set while there is a session.
        patient: go on trying without a limit, even before the first session.
        closing_s: how long the end waits for that of the server, in seconds.
    """

    #: Stream errors (RFC 6120 §4.9.3) that would also end another attempt.
    lasting: ClassVar[frozenset[str]] = frozenset({"host-unknown", "host-gone"})

    def __init__(
        self,
        xmpp: ClientXMPP | ComponentXMPP,
        server: Server,
        *,
        name: str,
        quiet: bool = False,
    ) -> None:
        """Prepare.

        Args:
            xmpp: the stream, not connected yet.
            server: the server to connect to.
            name: the name of the server, for people.
            quiet: do not log lost and new connections.
        """
        self.xmpp = xmpp
        self.online = asyncio.Event()
        self.patient = False
        self.closing_s = CLOSING_S
        self._server = server
        self._name = name
        self._quiet = quiet
        self._keeper: asyncio.Task[None] | None = None
        self._session_tasks: set[asyncio.Task[None]] = set()
        #: Whether there has been a session.
        self._met = False
        #: For the present attempt: whether there is a session; whether it is over;
        #: whether the socket is closed; the known reason; and whether another attempt
        #: would end in the same way.
        self._started = asyncio.Event()
        self._started_at = -math.inf
        self._over = asyncio.Event()
        self._closed = asyncio.Event()
        self._problem = ""
        self._lasting = self._refused_login = False
        #: Whether somebody else has taken the JID of the present session; and when the
        #: last session ended so.
        self._replaced = False
        self._replaced_at = -math.inf
        Gate.of(xmpp)
        self._dialer = Dialer(xmpp)
        self._follow(xmpp)

    def _follow(self, xmpp: ClientXMPP | ComponentXMPP) -> None:
        """Learn what becomes of the stream."""
        xmpp.register_plugin("xep_0199")
        xmpp.add_filter("in", self._guard)
        for event, handler in (
            ("session_start", self._session_started),
            ("session_resumed", self._session_resumed),
            ("disconnected", self._disconnected),
            ("stream_error", self._stream_error),
        ):
            xmpp.add_event_handler(event, handler)

    async def __aenter__(self) -> Self:
        """Begin the context; nothing else happens here."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Log out, and close what plugins have open."""
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait((self._keeper,))
        finally:
            await close(self.xmpp, self.closing_s)

    def start(self, ended: Callable[[CannotConnect], None] | None = None) -> None:
        """Begin to connect; `work` reports the result.

        Args:
            ended: called with the reason when no session can be expected any more.
        """

        def done(keeper: asyncio.Task[None]) -> None:
            error = None if keeper.cancelled() else keeper.exception()
            if ended is not None and isinstance(error, CannotConnect):
                ended(error)

        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        self._keeper.add_done_callback(done)

    @property
    def has_been_online(self) -> bool:
        """Whether there has been a session."""
        return self._met

    async def work(self, task: Coroutine[Any, Any, T]) -> T:
        """Do the work, unless there is no session and none can be expected.

        Raises:
            CannotConnect: the work was not done, or was cancelled.
        """
        assert self._keeper is not None
        if self._keeper.done():
            task.close()
            self._check_goes_on()
        doing = asyncio.get_running_loop().create_task(task)
        try:
            await asyncio.wait(
                (doing, self._keeper), return_when=asyncio.FIRST_COMPLETED
            )
            if not doing.done():
                self._check_goes_on()
            return await doing
        finally:
            doing.cancel()
            await asyncio.wait((doing,))

    def _check_goes_on(self) -> None:
        """Raise CannotConnect with the reason if no session can be expected."""
        assert self._keeper is not None
        if self._keeper.cancelled():
            raise CannotConnect(f"{self._name}: the session has been closed")
        if self._keeper.done():
            self._keeper.result()

    # -- slixmpp's events --------------------------------------------------

    @passes_iqs
    def _guard(self, stanza: StanzaBase) -> StanzaBase | None:
        """Keep slixmpp from continuing where it is not safe.

        slixmpp would follow a redirection, which anyone on the network path can send
        before there is TLS, and would then accept the certificate of that other host.
        """
        if isinstance(stanza, StreamError) and stanza["condition"] == "see-other-host":
            self._give_up(f"{self._name} wants to redirect us: not followed")
            return None
        return stanza

    def _set_problem(self, problem: str, *, lasting: bool) -> None:
        """Note why the present attempt fails, and whether another would fail too.

        Before TLS, anybody on the network path may have sent this: then it is no reason
        to end.
        """
        self._problem = problem
        self._lasting = lasting and is_confidential(self.xmpp)

    def _give_up(self, problem: str, *, lasting: bool = False) -> None:
        self._set_problem(problem, lasting=lasting)
        self.xmpp.abort()
        self._over.set()

    def _session_started(self, _event: object) -> None:
        self._go_online()
        for task in self._during_new_session():
            self._spawn(task)

    def _session_resumed(self, _event: object) -> None:
        """Continue a resumed session (XEP-0198 §5).

        The server still knows its state.
        """
        self._go_online(resumed=True)

    def _go_online(self, *, resumed: bool = False) -> None:
        if self._met:
            self._say(logging.INFO, f"connected again as {self.xmpp.boundjid.full}")
        self._met = True
        self._started.set()
        self._started_at = asyncio.get_running_loop().time()
        self.online.set()
        self._spawn(self._watch(resumed=resumed))

    def _during_new_session(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The tasks at the start of a session, cancelled if the session is lost."""
        yield from ()

    def _disconnected(self, reason: object) -> None:
        self.online.clear()
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
        elif isinstance(error, OSError) and not isinstance(error, socket.gaierror):
            reason = os.strerror(error.errno) if error.errno else str(error)
            self._problem = f"{self._name}: {reason}"
        else:
            self._problem = f"{self._name}: no address is known for it"

    def _stream_error(self, error: StanzaBase) -> None:
        condition = error["condition"]
        self._replaced = condition == "conflict" and is_confidential(self.xmpp)
        text = f": {error['text']}" if error["text"] else ""
        self._set_problem(
            f"{self._name} ended the stream: {condition}{text}",
            lasting=condition in self.lasting,
        )

    # -- staying connected -------------------------------------------------

    async def _keep(self) -> None:
        """Connect, and connect again after each loss.

        Raises:
            CannotConnect: the server has refused the login, or somebody else logs in
                under the same JID again and again. Or there was never a session, and
                the time is over or another attempt would not help.
        """
        loop = asyncio.get_running_loop()
        timeout_s = self._server.connect_timeout_s
        give_up_at = loop.time() + timeout_s
        delays = Reconnects(_FIRST_BACKOFF, self._server.backoff, random.random)
        noted = ""
        while True:
            left_s = timeout_s if self._unlimited else give_up_at - loop.time()
            started = await self._one_session(min(left_s, _ATTEMPT_S_MAX))
            problem = self._problem or f"{self._name}: the connection is lost"
            if noted and not self._unlimited and loop.time() >= give_up_at:
                problem = noted  # the last attempt was cut short
            if self._refused_login or (self._lasting and not self._met):
                raise CannotConnect(problem)
            if started and self._replaced:
                self._check_is_alone(loop.time())
            if started:
                lasted_s = loop.time() - self._started_at
                delay_s = delays.lost(0.0 if self._lasting else lasted_s)
            else:
                delay_s = delays.refused()
            if not self._unlimited and loop.time() + delay_s >= give_up_at:
                await asyncio.sleep(give_up_at - loop.time())
                raise CannotConnect(f"{problem}; gave up after {timeout_s:g} s")
            if problem != noted or started:
                self._say(logging.WARNING, f"{problem}; trying again")
                noted = problem
            await asyncio.sleep(delay_s)

    def _check_is_alone(self, now: float) -> None:
        """Raise CannotConnect if another program takes our JID as often as we do."""
        since_s, self._replaced_at = now - self._replaced_at, now
        if since_s < _REPLACED_S:
            raise CannotConnect(
                f"{self._name}: another program logs in as "
                f"{self.xmpp.requested_jid.full} too, and each ends the session of the "
                "other: give each a resource of its own"
            )

    @property
    def _unlimited(self) -> bool:
        return self._met or self.patient

    async def _one_session(self, timeout_s: float) -> bool:
        """Connect, and return when this has failed or the session is over.

        Args:
            timeout_s: the time until there is a session, in seconds.

        Returns:
            Whether there was a session.
        """
        self._problem = ""
        self._lasting = self._refused_login = self._replaced = False
        self._started.clear()
        self._over.clear()
        self._closed.clear()
        self.xmpp.default_domain = self.xmpp.requested_jid.host
        try:
            async with asyncio.timeout(timeout_s) as limit:
                if await self._connected():
                    now, ends = asyncio.get_running_loop().time(), limit.when()
                    assert ends is not None
                    limit.reschedule(now + (ends - now) * self._dialer.share)
                    await _first_of(self._started, self._over)
        except TimeoutError:
            self._problem = f"{self._name} does not answer"
        started = self._started.is_set()
        self._dialer.ended(well=started)
        if started:
            await self._over.wait()
        await self._hang_up()
        return started

    async def _connected(self) -> bool:
        """Connect to an address that answers (over TLS, if direct)."""
        try:
            await self.xmpp.connect(self._server.host, self._server.port)
        except (OSError, ValueError) as error:
            self._failed(error)
            return False
        return True

    def _say(self, level: int, text: str) -> None:
        if not self._quiet:
            log.log(level, text)

    async def _hang_up(self) -> None:
        """Clean up everything of the attempt."""
        # slixmpp would try again by itself, without jitter.
        self.xmpp.cancel_connection_attempt()
        self.xmpp.abort()
        if self.xmpp.is_connected():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), _HANG_UP_S)
        if self.xmpp.is_connected():
            # asyncio does not report that STARTTLS has failed.
            self.xmpp.connection_lost(None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _watch(self, *, resumed: bool) -> None:
        """End the session when its link is dead.

        One that was resumed and brings nothing is not resumed again: Prosody may take
        what comes for the rest of a stanza that was cut.
        """
        server, idle_s = self._server, StreamLimits.of(self.xmpp).idle_s
        keepalive = Keepalive(
            self.xmpp,
            interval_s=min(server.ping_interval_s, (idle_s or math.inf) / 2),
            timeout_s=server.ping_timeout_s,
        )
        await keepalive.until_dead(at_once=resumed)
        if resumed:
            self.xmpp["xep_0198"].sm_id = None
        self._give_up(f"{self._name} does not answer any more")


def _tls_problem(name: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = ""
        if error.verify_code in _UNKNOWN_ISSUER:
            hint = " (ca_file, or --ca-file, names the certificates to trust)"
        return f"{name}: the certificate is refused: {error.verify_message}{hint}"
    hint = ""
    if error.reason == _NO_PROTOCOL:
        hint = " (the port does not serve XMPP for clients by direct TLS)"
    return f"{name}: TLS failed: {error.reason or error}{hint}"


async def _first_of(*events: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
