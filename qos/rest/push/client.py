"""The client that pushes: it connects only where that is allowed (SSRF).

A URL is checked before each request, and each address again when it is resolved and just
before the connect, so a name whose address has changed since is refused too. No
credentials of the users of this service and no cookies are sent. Redirects are not
followed here.

What the end of a request means, and whether it is made once more, is decided by
`qos.core.rest.push_progress`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
from aiohttp import ClientHandlerType, DigestAuthMiddleware
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.typedefs import LooseHeaders
from yarl import URL

from qos.core.queue.push import PushSubscriber
from qos.core.rest.forwarding import NoReply, PushReply, PushRequest
from qos.core.rest.push_progress import Progress, Step, end_of
from qos.core.rest.push_targets import BadTarget, PushRules, Target
from qos.rest import bounds
from qos.rest.push.answers import Course, Endless, course, parse_in_pieces
from qos.rest.push.lookups import Lookups

__all__ = ["PushClient"]


@dataclass(slots=True)
class _Use:
    """A target that a connection is made to.

    Attributes:
        target: of the request.
        account: whose target it is.
        limit: the time that the request has left.
        forbidden: why one of its addresses is refused; ''.
        headers: of the answer, by their names in lower case; None: they have not come.
    """

    target: Target
    account: str
    limit: asyncio.Timeout
    forbidden: str = ""
    headers: Mapping[str, str] | None = None

    def wait(self) -> None:
        """Stop the time: it waits for us."""
        self.limit.reschedule(None)

    def go_on(self) -> None:
        """Let the time begin."""
        self.last(bounds.PUSH_S)

    def last(self, seconds: float) -> None:
        """Let the time be over after so many seconds."""
        self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


#: That of the request in this task; asyncio copies it into the tasks that it starts.
_use: ContextVar[_Use] = ContextVar("target")


class _Forbidden(OSError):
    """An address that nothing is pushed to."""


class _Cut(aiohttp.ClientError):
    """The connection has ended before the answer.

    aiohttp would make some requests again by itself, on any connection.
    """


class PushClient:
    """Makes the requests of all subscribers."""

    def __init__(self, rules: PushRules) -> None:
        """Begin without a connection."""
        self.rules = rules
        self._names = Lookups()
        self._session: aiohttp.ClientSession | None = None
        #: By subscriber, those that no request uses: each counts its own requests, so
        #: that a target sees them in order.
        self._digests: dict[str, list[DigestAuthMiddleware]] = {}

    async def send(
        self,
        request: PushRequest,
        body: bytes,
        headers: Mapping[str, str],
        subscriber: PushSubscriber,
    ) -> PushReply | NoReply:
        """Make a request; nothing is raised.

        Args:
            request: with `message`, it has this body and these headers.
            body: of the message.
            headers: of the message.
            subscriber: its login and headers go to the host of its own URL, and nowhere
                else.
        """
        try:
            target = self.rules.target(request.url)
            own = self.rules.target(subscriber.href)
        except BadTarget as error:
            return NoReply(str(error), forbidden=True, unsent=True)
        use = _Use(target, subscriber.account, asyncio.timeout(bounds.PUSH_S))
        _use.set(use)
        own_subscriber = subscriber if _origin(target) == _origin(own) else None
        all_headers = _headers(request, headers, own_subscriber)
        exchange = Course()
        course.set(exchange)
        reason = f"{target.host} does not answer"
        try:
            async with use.limit:
                if own_subscriber and own_subscriber.digest:
                    with self._digest(own_subscriber) as digest:
                        await self._make(request, use, body, all_headers, digest)
                else:
                    await self._make(request, use, body, all_headers)
        except aiohttp.ClientConnectorError as error:
            if use.forbidden:
                return NoReply(use.forbidden, forbidden=True, unsent=True)
            reason = f"no connection to {target.host}: {_why(error.os_error)}"
        except TimeoutError:
            pass
        except (Endless, _Cut) as error:
            reason = f"{target.host}: {error}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if type(error) is aiohttp.ClientError:  # a challenge that has no answer
                return NoReply(f"{target.host}: {error}", forbidden=True)
            reason = f"{target.host}: {type(error).__name__}"
        return end_of(exchange.progress, target.url, reason, headers=use.headers)

    async def _make(
        self,
        request: PushRequest,
        use: _Use,
        body: bytes,
        headers: LooseHeaders,
        *middlewares: DigestAuthMiddleware,
    ) -> None:
        async with self._open().request(
            request.method,
            URL(use.target.url, encoded=True),
            data=body if request.message else b"",
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=["Content-Type", "Accept-Encoding"],
            middlewares=(*middlewares, _once_more),
        ) as answer:
            use.headers = {
                name.lower(): ", ".join(answer.headers.getall(name))
                for name in answer.headers
            }
            # Its body does not matter. A short one is read, so that the connection can
            # be used again.
            use.last(bounds.PUSH_BODY_S)
            bytes_left = bounds.PUSH_ANSWER_BYTES_MAX
            while bytes_left > 0 and not answer.content.at_eof():
                bytes_left -= len(await answer.content.readany())
            if not answer.content.at_eof():
                answer.close()

    @contextlib.contextmanager
    def _digest(self, subscriber: PushSubscriber) -> Iterator[DigestAuthMiddleware]:
        """Digest authentication for one request (RFC 7616)."""
        if len(self._digests) > bounds.PUSH_MAX:
            # Of subscribers that are gone, most of them.
            self._digests.clear()
        free = self._digests.setdefault(subscriber.subscriber_id, [])
        user, _, password = b64decode(subscriber.digest).decode().partition(":")
        digest = free.pop() if free else DigestAuthMiddleware(user, password)
        try:
            yield digest
        finally:
            free.append(digest)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_Resolver(self.rules, self._names),
                socket_factory=self._socket,
                use_dns_cache=False,
                limit=bounds.PUSH_CONNECTIONS_MAX,
            )
            parse_in_pieces(connector)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # see _Use.limit
                auto_decompress=False,
                headers={"User-Agent": "xmpp-qos"},
                max_line_size=bounds.LINE_BYTES_MAX,
                max_field_size=bounds.LINE_BYTES_MAX,
            )
        return self._session

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A socket for this address, if it is allowed."""
        family, kind, protocol, _, sockaddr = address
        use = _use.get()
        why = self.rules.why_not(use.target.host, use.target.port, str(sockaddr[0]))
        if why:
            use.forbidden = why
            raise _Forbidden(why)
        return socket.socket(family, kind, protocol)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        self._names.close()


def _headers(
    request: PushRequest,
    of_message: Mapping[str, str],
    subscriber: PushSubscriber | None,
) -> dict[str, str]:
    """The headers of a request; `subscriber`: to whom its own headers may be shown."""
    headers: dict[str, str] = dict(of_message) if request.message else {}
    if subscriber is not None:
        headers |= subscriber.headers
        if subscriber.authorization:
            headers["Authorization"] = subscriber.authorization
    if request.key:
        headers["Idempotency-Key"] = f'"{request.key}"'
    return headers


async def _once_more(
    request: aiohttp.ClientRequest, handler: ClientHandlerType
) -> aiohttp.ClientResponse:
    """Make a request; once more, on a new connection, if a kept one ends before its answer.

    It is a middleware of aiohttp, below the one that logs in by a second request.
    """
    exchange = course.get()
    exchange.progress = Progress()
    while True:
        is_second = exchange.wants_new
        try:
            answer = await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if exchange.wants_new is is_second:
                exchange.then(Step.CUT)
            if exchange.wants_new:
                continue
            if isinstance(error, aiohttp.ClientConnectorError):
                raise
            raise _Cut(type(error).__name__) from error
        except (aiohttp.ClientError, ValueError):
            # Headers that cannot be read, after a status that can.
            if is_second or not exchange.wants_new:
                raise
        else:
            exchange.answered(answer.status)
            if not exchange.wants_new:
                return answer
            answer.close()


def _why(error: OSError) -> str:
    """The reason why there is no connection.

    asyncio's own text names the address, which may be one of our network.
    """
    if isinstance(error, _Forbidden):
        return str(error)
    if isinstance(error, socket.gaierror):
        return error.strerror or "its name is not known"
    return os.strerror(error.errno) if error.errno else "no answer"


def _origin(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.host, target.port


class _Resolver(AbstractResolver):
    """Leaves out the addresses that are not allowed."""

    def __init__(self, rules: PushRules, names: Lookups) -> None:
        self._rules = rules
        self._names = names

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[ResolveResult]:
        """See AbstractResolver."""
        use = _use.get()
        use.wait()
        infos = await self._names.find(
            use.account,
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM),
            use.go_on,
        )
        allowed: list[ResolveResult] = []
        why = ""
        for its_family, _, protocol, _, sockaddr in infos:
            address = str(sockaddr[0])
            refused = self._rules.why_not(host, port, address)
            why = why or refused
            if not refused:
                allowed.append(
                    ResolveResult(
                        hostname=host,
                        host=address,
                        port=port,
                        family=its_family,
                        proto=protocol,
                        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                    )
                )
        if not allowed:
            use.forbidden = why
            raise _Forbidden(why or f"{host} has no address")
        return allowed

    async def close(self) -> None:
        """See AbstractResolver."""
