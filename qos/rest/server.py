"""HTTP/1.1 by aiohttp: bounded requests in, answers out in a bounded time.

aiohttp's own log is off, since its lines would have URLs: a link or an etag is a secret
of its client.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from qos.core.queue.requests import Refusal
from qos.core.rest.statuses import RETRY_AFTER_S, Act, status_of
from qos.rest import bounds, consuming, discovery, openapi, posting, sending, topics
from qos.rest.calls import Answer, Call, as_text, no_node
from qos.rest.hornetq.handlers import HANDLERS as HORNETQ_HANDLERS
from qos.rest.hornetq.routes import BASE as HORNETQ
from qos.rest.hornetq.routes import ROUTES as HORNETQ_ROUTES
from qos.rest.login import CHALLENGES, Login
from qos.rest.push import handlers as push
from qos.rest.routes import ROUTES, SHARED, find, url
from qos.rest.shares import NoRoom, Rates, Shares

if TYPE_CHECKING:
    from qos.rest.gateway import Gateway

__all__ = ["HttpServer", "handled"]

log = logging.getLogger(__name__)

_silent = logging.getLogger(f"{__name__}.aiohttp")
_silent.disabled = True

#: Seconds until a wrong password is answered: one guess a second for each connection.
_WRONG_S = 1.0

#: Turns of the loop in which the end of a connection reaches its handler: it is read,
#: the connection is lost, and the handler is cancelled.
_TURNS = 3

#: The authorities that a link can have, as in the header Host of a request.
_AUTHORITY = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

_Handler = Callable[[Call], Awaitable[Answer]]

#: The handler of each route, and the kind of its requests, by which refusals get a status.
HANDLERS: dict[str, tuple[_Handler, Act]] = {
    "service": (discovery.service, Act.READ),
    "openapi": (openapi.openapi, Act.READ),
    "queue": (discovery.queue, Act.READ),
    "messages": (posting.message, Act.POST),
    "batches": (posting.batch, Act.POST),
    "once": (posting.factory, Act.POST),
    "post": (posting.post, Act.POST),
    "batchonce": (posting.batch_factory, Act.POST),
    "postbatch": (posting.post_batch, Act.POST),
    "consumer": (consuming.take, Act.PULL),
    "message": (consuming.read, Act.READ),
    "subscribers": (push.subscribers, Act.READ),
    "subscriber": (push.subscriber, Act.READ),
    "acknowledgement": (consuming.acknowledge, Act.SETTLE),
    "topic": (discovery.queue, Act.READ),
    "topic-first": (topics.first, Act.READ),
    "topic-last": (topics.last, Act.READ),
    "topic-next": (topics.following, Act.READ),
    "topic-subscriptions": (topics.subscribe, Act.READ),
    "topic-subscription": (topics.subscription, Act.READ),
    **HORNETQ_HANDLERS,
    "device": (sending.device, Act.POST),
    "send": (sending.send, Act.POST),
    "sent": (sending.sent, Act.READ),
}

for _name in SHARED:
    HANDLERS[f"topic-{_name}"] = HANDLERS[_name]

_SAFE = frozenset({"GET", "HEAD"})

_BATCHES = frozenset({"batches", "postbatch", "topic-batches", "topic-postbatch"})


class _Refused(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        log.warning("too many HTTP connections")
        transport.abort()


class HttpServer:
    """The connections of a gateway."""

    def __init__(self, gateway: Gateway, login: Login, rates: Rates) -> None:
        self._gateway = gateway
        self._login = login
        self._shares = Shares(rates)
        self._web = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=_silent,
            auto_decompress=False,
            keepalive_timeout=bounds.IDLE_S,
            max_line_size=bounds.LINE_BYTES_MAX,
            max_field_size=bounds.LINE_BYTES_MAX,
            max_headers=bounds.HEADERS_MAX,
        )

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        """Listen."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            self._connection, host, port, ssl=tls, backlog=100
        )

    async def aclose(self, timeout_s: float) -> None:
        """Close the connections, after their answers."""
        self._web.pre_shutdown()
        await self._web.shutdown(timeout_s)

    def _connection(self) -> asyncio.BaseProtocol:
        if len(self._web.connections) >= bounds.CONNECTIONS_MAX:
            return _Refused()
        return self._web()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except _BodyError as error:
            answer = as_text(error.status, str(error), Connection="close")
        except Exception:
            # Without the request: its URL may be a secret.
            log.exception("a request is answered with 500")
            answer = as_text(500, "an internal error")
        return await _send(request, answer)

    async def _answer(self, request: web.BaseRequest) -> Answer:
        if self._gateway.closing:
            return _refused(503, "the service stops")
        headers = _headers(request)
        account = await self._account(request, headers)
        if account is None:
            return as_text(401, "log in", WWW_Authenticate=", ".join(CHALLENGES))
        try:
            self._shares.admit(account, monotonic())
            return await self._routed(request, headers, account)
        except NoRoom as error:
            answer = _refused(error.status, str(error))
            if error.retry_after_s is not None:
                answer.headers["Retry-After"] = str(error.retry_after_s)
            answer.headers["Connection"] = "close"
            return answer

    async def _routed(
        self, request: web.BaseRequest, headers: Mapping[str, str], account: str
    ) -> Answer:
        try:
            path, pairs = _parts(request)
        except ValueError:
            return as_text(400, "the query is not UTF-8, with % and hexadecimal digits")
        is_hornetq = path.startswith(HORNETQ)
        found = find(path, HORNETQ_ROUTES if is_hornetq else ROUTES)
        if found is None:
            return as_text(404, "there is nothing at this URL; / has the links")
        route, variables = found
        allowed = ", ".join((*route.methods, "OPTIONS"))
        if request.method == "OPTIONS":
            return Answer(204, {"Allow": allowed})
        if request.method not in route.methods:
            return as_text(405, f"only {allowed} are possible here", Allow=allowed)
        if request.method not in _SAFE and _is_cross_site(headers):
            return as_text(403, "a page of another site may not do that")
        why = "" if is_hornetq else _why_not(pairs, route.query)
        if why:
            return as_text(400, why)
        is_batch = route.name in _BATCHES
        limit = bounds.BATCH_BYTES_MAX if is_batch else bounds.BODY_BYTES_MAX
        size = _size(request, limit)
        with self._shares.taken(account, size):
            self._shares.received(account, size, monotonic())
            body = await _body(request, limit)
            self._shares.received(account, len(body) - size, monotonic())
            call = Call(
                gateway=self._gateway,
                method=request.method,
                base=_base(request, headers),
                account=account,
                topic=route.name.partition("-")[0] == "topic",
                path=variables,
                # In HornetQ's dialect the first of two parameters with one name counts.
                query=dict(reversed(pairs)),
                headers=headers,
                body=body,
            )
            return await handled(route.name, call)

    async def _account(
        self, request: web.BaseRequest, headers: Mapping[str, str]
    ) -> str | None:
        given = headers.get("authorization")
        if given is None:
            return None
        account = await self._login.account(given)
        if account is None:
            log.warning("%s: wrong password, token or user", request.remote)
            await asyncio.sleep(_WRONG_S)
        return account


async def handled(name: str, call: Call) -> Answer:
    """The answer to a request; a refusal is an answer as well.

    Args:
        name: of the route.
        call: the request.
    """
    handler, act = HANDLERS[name]
    if not name.startswith("hornetq-"):
        why = _why_not_here(call)
        if why:
            return as_text(404, why)
    try:
        return await handler(call)
    except Refusal as refusal:
        return _refused(status_of(act, refusal), str(refusal))


def _why_not_here(call: Call) -> str:
    """The error if the URL is one of a queue, but the node a topic, or vice versa; '': none."""
    node = call.path.get("node", "")
    node_type = call.gateway.engine.node_type(node)
    if node_type in {None, "topic" if call.topic else "queue"}:
        return ""
    if call.gateway.engine.rights(node, call.jid) is None:
        # Who may not use it is not told that it is there.
        return str(no_node(node))
    return f"{node!r} is a {node_type}: its URL is {url(str(node_type), node=node)}"


def _refused(status: int, why: str) -> Answer:
    answer = as_text(status, why)
    if status in RETRY_AFTER_S:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S[status])
    return answer


# -- requests --------------------------------------------------------------


class _BodyError(Exception):
    """The body of a request cannot be read.

    Attributes:
        status: that says so.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


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


def _why_not(pairs: Sequence[tuple[str, str]], known: Sequence[str]) -> str:
    """The error in the names of the parameters; '': none."""
    names = [name for name, _ in pairs]
    for name in names:
        if name not in known:
            there = ", ".join(known) or "there is none"
            return f"{name[:40]!r} is no parameter here: {there}"
        if names.count(name) > 1:
            return f"{name!r} is given twice"
    return ""


def _headers(request: web.BaseRequest) -> dict[str, str]:
    """The headers by their names in lower case; RFC 9110 §5.3: joined by commas."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _base(request: web.BaseRequest, headers: Mapping[str, str]) -> str:
    """The scheme and authority of the request; '': none that can stand in a link."""
    host = headers.get("host", "")
    return f"{request.scheme}://{host}" if _AUTHORITY.fullmatch(host) else ""


def _is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this for a page of another site, with a password it has stored."""
    return headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}


def _size(request: web.BaseRequest, limit: int) -> int:
    """The bytes that a body may have.

    Raises:
        _BodyError: it says that it is too large.
    """
    if not request.body_exists:
        return 0
    size = request.content_length
    if size is None:
        return limit
    if size > limit:
        raise _too_large(limit)
    return size


def _too_large(limit: int) -> _BodyError:
    return _BodyError(413, f"at most {limit} bytes are taken")


async def _body(request: web.BaseRequest, limit: int) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp takes it for a part of the answer.
        request.writer.output_size = 0
    body = bytearray()
    try:
        if request.content.is_eof():
            # All of it has come already, as it mostly does.
            body += request.content.read_nowait()
        else:
            async with asyncio.timeout(bounds.BODY_S):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > limit:
                        break
    except TimeoutError:
        raise _BodyError(408, "the body is not complete in time") from None
    except web.RequestPayloadError:
        raise _BodyError(400, "the body is broken") from None
    if len(body) > limit:
        raise _too_large(limit)
    return bytes(body)


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
