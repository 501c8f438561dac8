"""HTTP/1.1 by aiohttp: bounded requests in, answers out in a bounded time.

aiohttp's own log is off, since its lines would have URLs: a link or an etag is a secret
of its client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from qos.core.connection_shares import TooMany
from qos.core.rest.origins import base_of, is_cross_site, without_prefix
from qos.core.rest.statuses import Act
from qos.engine.doors import Arrival, Door
from qos.rest import bounds
from qos.rest.admission import (
    BodyError,
    NoRoom,
    Room,
    admit,
    drained,
    is_unread,
    read_body,
)
from qos.rest.calls import Answer, Call, as_text
from qos.rest.handlers import answer_before_body, handled, refused
from qos.rest.hornetq.paths import BASE as HORNETQ
from qos.rest.hornetq.paths import PATHS as HORNETQ_PATHS
from qos.rest.hornetq.paths import in_plain_words
from qos.rest.http_connection import HttpConnection
from qos.rest.login import Login
from qos.rest.paths import PATHS, find
from qos.rest.route import Route
from qos.rest.routes import ROUTES
from qos.tls_files import Tls
from qos.users import Grant, TooBusy

if TYPE_CHECKING:
    from qos.rest.services import Services

__all__ = ["HttpServer"]

log = logging.getLogger(__name__)

_silent = logging.getLogger(f"{__name__}.aiohttp")
_silent.disabled = True

#: Seconds until a wrong password is answered: one guess a second for each connection.
_WRONG_S = 1.0

#: Turns of the loop in which the end of a connection reaches its handler: it is read,
#: the connection is lost, and the handler is cancelled.
_TURNS = 3

#: Of a request: the account of its user.
_ACCOUNT = web.RequestKey("account", str)

_SAFE = frozenset({"GET", "HEAD"})

#: Headers with one value, which decide what becomes of a request.
_SINGLE = ("Authorization", "Content-Type", "Idempotency-Key")

_HALF_CLOSED = "who takes a message has to keep the connection open in both directions"

#: The methods whose body means nothing (RFC 9110 §9.3).
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


class HttpServer:
    """The connections of a gateway."""

    def __init__(self, services: Services, login: Login) -> None:
        self._services = services
        self._login = login
        self._payers = services.engine.payers
        self._room = Room()
        self._arrivals: dict[asyncio.BaseProtocol, Arrival] = {}
        self._web = web.Server(self._handle, handler_cancellation=True)

    async def listen(self, host: str, port: int, *, tls: Tls | None) -> Door:
        """Listen."""
        doors = self._services.engine.doors
        return await doors.listen(host, port, self._connection, tls=tls)

    async def aclose(self, timeout_s: float) -> None:
        """Close the connections, after their answers."""
        self._web.pre_shutdown()
        await self._web.shutdown(timeout_s)

    def _connection(self, arrival: Arrival) -> asyncio.BaseProtocol:
        connection = HttpConnection(
            self._web,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=_silent,
            auto_decompress=False,
            keepalive_timeout=bounds.IDLE_S,
            max_line_size=bounds.LINE_BYTES_MAX,
            max_field_size=bounds.LINE_BYTES_MAX,
            max_headers=bounds.HEADERS_MAX,
            read_bufsize=bounds.READ_BYTES,
            # The rest of a body is thrown away here.
            lingering_time=0,
        )
        self._arrivals[connection] = arrival
        arrival.when_left = lambda: self._arrivals.pop(connection)
        return connection

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        try:
            return await self._handled(request)
        finally:
            connection.answered += 1
            connection.takes = False
            if connection.half_closed:
                connection.close()

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except BodyError as error:
            answer = as_text(error.status, str(error), Connection="close")
        except Exception:
            # Without the request: its URL may be a secret.
            log.exception("a request is answered with 500")
            answer = as_text(500, "an internal error")
        if is_unread(request):
            answer.headers["Connection"] = "close"
        response = await _send(request, answer)
        if not (
            request.content.at_eof() or await drained(request, self._count(request))
        ):
            request.protocol.force_close()
        return response

    def _count(self, request: web.BaseRequest) -> Callable[[int], object]:
        """The counter of the bytes of a body, for its user."""
        account = request.get(_ACCOUNT, "")

        def count(size: int) -> None:
            if account:
                self._payers.take(account, size=size)

        return count

    async def _answer(self, request: web.BaseRequest) -> Answer:
        if self._services.closing:
            return refused(503, "the service stops")
        headers = _headers(request)
        arrival = self._arrivals[request.protocol]
        twice = _twice(request)
        try:
            if twice:
                await admit(self._payers, arrival.payer)
                return as_text(400, f"{twice} is given twice")
            grant = await self._grant(arrival, headers)
            if grant is None:
                await admit(self._payers, arrival.payer)
                return refused(401, "log in")
            request[_ACCOUNT] = grant.account
            await admit(self._payers, grant.account)
            if not self._services.users.stands(grant):
                return refused(401, "log in")
            return await self._routed(request, headers, grant)
        except NoRoom as error:
            # Refusals of requests in one row would take the loop as long as the row is.
            await self._payers.turn(request.get(_ACCOUNT, arrival.payer))
            answer = refused(error.status, str(error))
            if error.retry_after_s is not None:
                answer.headers["Retry-After"] = str(error.retry_after_s)
            answer.headers["Connection"] = "close"
            return answer

    async def _routed(
        self, request: web.BaseRequest, headers: Mapping[str, str], grant: Grant
    ) -> Answer:
        try:
            path, pairs = _parts(request)
        except ValueError:
            return as_text(400, "the query is not UTF-8, with % and hexadecimal digits")
        path = without_prefix(path, self._services.prefix)
        is_hornetq = path.startswith(HORNETQ)
        match = find(path, HORNETQ_PATHS if is_hornetq else PATHS)
        if match is None:
            home = f"{self._services.prefix}/"
            return as_text(404, f"there is nothing at this URL; {home} has the links")
        name, variables = match
        route = ROUTES[name]
        allowed = ", ".join((*route.methods, "OPTIONS"))
        if request.method == "OPTIONS":
            return Answer(204, {"Allow": allowed})
        if request.method not in route.methods:
            return as_text(405, f"only {allowed} are possible here", Allow=allowed)
        base = base_of(request.scheme, headers.get("host", ""))
        if request.method not in _SAFE and is_cross_site(
            headers, base, self._services.base
        ):
            return as_text(403, "a page of another site may not do that")
        why = "" if is_hornetq else _why_not(pairs, route.query)
        if why:
            return as_text(400, why)
        if is_hornetq:
            variables = in_plain_words(name, variables)
        call = Call(
            services=self._services,
            method=request.method,
            base=self._services.base or base,
            account=grant.account,
            grant=grant,
            topic=name.partition("-")[0] == "topic",
            path=variables,
            # In HornetQ's dialect the first of two parameters with one name counts.
            query=dict(reversed(pairs)),
            headers=headers,
        )
        answer = await answer_before_body(route, call)
        if answer is None:
            answer = await self._with_body(request, route, call)
        return answer

    async def _with_body(
        self, request: web.BaseRequest, route: Route, call: Call
    ) -> Answer:
        with self._room.taken(call.account) as body:
            if request.method not in _WITHOUT_BODY:
                count = self._count(request)
                content = await read_body(request, route, body, count)
                call = replace(call, body=content)
            if not _may_take(request, route):
                return as_text(400, _HALF_CLOSED)
            return await handled(route, call)

    async def _grant(
        self, arrival: Arrival, headers: Mapping[str, str]
    ) -> Grant | None:
        credentials = headers.get("authorization")
        if credentials is None:
            return None
        with arrival.checked():
            try:
                grant = await self._login.grant(credentials, address=arrival.payer)
            except TooBusy as error:
                raise NoRoom(503, str(error), 1) from None
            if grant is None:
                arrival.warn("wrong password, token or user")
                await asyncio.sleep(_WRONG_S)
                return None
            try:
                arrival.log_in(grant.account)
            except TooMany as error:
                raise NoRoom(429, str(error)) from None
        return grant


# -- requests --------------------------------------------------------------


def _parts(request: web.BaseRequest) -> tuple[str, list[tuple[str, str]]]:
    """The path as it came, and the parameters of the query.

    Raises:
        ValueError: the query is not UTF-8.
    """
    target = request.raw_path
    if not target.startswith("/"):
        # RFC 9112 §3.2.2: a server has to take an absolute form too.
        split = urlsplit(target)
        target = f"{split.path or '/'}?{split.query}"
    path, _, query = target.partition("?")
    return path, parse_qsl(query, keep_blank_values=True, errors="strict")


def _twice(request: web.BaseRequest) -> str:
    """The header that is given twice and has one value; '': none.

    RFC 9110 §5.3: joined by commas, two values would look like one.
    """
    for name in _SINGLE:
        if len(request.headers.getall(name, ())) > 1:
            return name
    return ""


def _may_take(request: web.BaseRequest, route: Route) -> bool:
    """Whether the client may take a message now, if that is what it asks for."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    connection.takes = route.act is Act.PULL
    return not (connection.takes and connection.half_closed)


def _why_not(pairs: Sequence[tuple[str, str]], parameters: Sequence[str]) -> str:
    """The error in the names of the parameters; '': none."""
    names = [name for name, _ in pairs]
    for name in names:
        if name not in parameters:
            choices = ", ".join(parameters) or "there is none"
            return f"{name[:40]!r} is no parameter here: {choices}"
        if names.count(name) > 1:
            return f"{name!r} is given twice"
    return ""


def _headers(request: web.BaseRequest) -> dict[str, str]:
    """The headers by their names in lower case; RFC 9110 §5.3: joined by commas."""
    joined: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


# -- answers ---------------------------------------------------------------


async def _send(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    headers = {"Server": "xmpp-qos", **answer.all_headers()}
    response = web.Response(status=answer.status, headers=headers, body=answer.body)
    if headers.get("Connection") == "close":
        response.force_close()
    whole = False
    try:
        async with asyncio.timeout(bounds.WRITE_S):
            if answer.sent is not None:
                # A client that has gone by now is noticed: then this task is cancelled.
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            await response.prepare(request)
            await response.write_eof()
        whole = request.transport is not None
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    finally:
        if answer.sent is not None:
            answer.sent(whole)
    return response
