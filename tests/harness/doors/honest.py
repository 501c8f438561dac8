"""The honest clients of one door, in a process of their own.

`python -m doors.honest` executes commands; see qos.testing.child. Every 50 ms the next
of 20 clients makes its requests, one after the other, whether those of the others are
answered or not: a wait counts from the moment at which the request was due.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import aiohttp
from proton import Message, ProtonException, SSLDomain
from proton.utils import BlockingConnection
from yarl import URL

from doors.amqp_peer import AmqpPeer
from doors.place import FRESH, HONEST, HONEST_QUEUES, SECRET, Place
from qos.core.rest.link_header import read_links
from qos.errors import QosError
from qos.ids import new_id
from qos.stream.login import AccountSession
from qos.testing.child import run_commands
from qos.testing.ports import ADDRESS
from xep_0254.queueing import XEP_0254, NewItem

__all__ = ["Honest"]

#: Seconds between the cycles of a client, and between its logins.
EVERY_S, LOGIN_EVERY_S, FRESH_EVERY_S = 0.05, 0.1, 1.0

#: The clients of a door. Each has a second for its requests, until they are due again.
CLIENTS = 20

#: Seconds for an answer.
_ANSWER_S = 10.0


class _Failed(Exception):
    """A request was refused."""


@dataclass
class _Waits:
    """The waits of the requests of one kind, in seconds."""

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


class _Client(Protocol):
    """A client of one door."""

    async def begin(self) -> None:
        """Connect."""

    def cycle(self, number: int) -> AsyncIterator[None]:
        """Make some requests; yields after each."""

    async def login(self, user: str) -> None:
        """Log in with a new connection, and close it."""

    async def end(self) -> None:
        """Close the connection."""


class Honest:
    """The commands of the process."""

    def __init__(self) -> None:
        self._clients: list[_Client] = []
        self._fresh = iter(FRESH)

    async def begin(self, *, door: str, where: Mapping[str, Any]) -> None:
        """Connect.

        Args:
            door: one of HONEST_QUEUES.
            where: the fields of a Place.
        """
        found = Place(**where)
        if door == "amqp":
            # The collector would free proton's objects of one client in the thread of
            # another, while the first is inside of proton: that ends the process.
            gc.disable()
        clients: dict[str, Callable[[Place], _Client]] = {
            "http": _Http,
            "amqp": _Amqp,
            "xmpp": _Xmpp,
        }
        # Each door has its own part of those who log in for the first time.
        place = list(HONEST_QUEUES).index(door)
        self._fresh = itertools.islice(FRESH, place, None, len(HONEST_QUEUES))
        for _ in range(CLIENTS):
            self._clients.append(clients[door](found))
            await self._clients[-1].begin()

    async def work(self, *, seconds: float, logins: bool) -> dict[str, object]:
        """Work for a while.

        Args:
            seconds: how long.
            logins: also log in again and again.

        Returns:
            By the kind of request, its waits in seconds and its failures.
        """
        gc.collect()  # while no client works
        waits: dict[str, _Waits] = {"requests": _Waits()}
        works = [
            self._requests(client, number, waits["requests"], seconds)
            for number, client in enumerate(self._clients)
        ]
        if logins:
            for name, every_s in (("logins", LOGIN_EVERY_S), ("first", FRESH_EVERY_S)):
                waits[name] = _Waits()
                works.append(self._logins(waits[name], name, seconds, every_s))
        await asyncio.gather(*works)
        return {
            name: {"seconds": each.seconds, "failures": each.failures}
            for name, each in waits.items()
        }

    async def end(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.end()

    async def _requests(
        self, client: _Client, first: int, waits: _Waits, seconds: float
    ) -> None:
        first_s = first * EVERY_S
        async for number, due in _beats(CLIENTS * EVERY_S, seconds, first_s=first_s):
            since = due
            try:
                async with asyncio.timeout(_ANSWER_S):
                    async for _ in client.cycle(number * CLIENTS + first):
                        since = _took(waits, since)
            except _ERRORS as error:
                _took(waits, since)
                waits.failures[f"{type(error).__name__}: {error}"[:120]] += 1
                with contextlib.suppress(*_ERRORS):
                    await client.end()
                with contextlib.suppress(*_ERRORS):
                    async with asyncio.timeout(_ANSWER_S):
                        await client.begin()

    async def _logins(
        self, waits: _Waits, name: str, seconds: float, every_s: float
    ) -> None:
        async with asyncio.TaskGroup() as group:
            async for _, due in _beats(every_s, seconds):
                user = HONEST if name == "logins" else next(self._fresh)
                group.create_task(self._login(waits, user, due))

    async def _login(self, waits: _Waits, user: str, due: float) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._clients[0].login(user)
        except _ERRORS as error:
            waits.failures[f"{type(error).__name__}: {error}"[:120]] += 1
        _took(waits, due)


_ERRORS = (
    OSError,
    EOFError,
    TimeoutError,
    ProtonException,
    aiohttp.ClientError,
    QosError,
    _Failed,
)


def _took(waits: _Waits, since: float) -> float:
    now = time.monotonic()
    waits.seconds.append(now - since)
    return now


async def _beats(
    every_s: float, seconds: float, *, first_s: float = 0.0
) -> AsyncIterator[tuple[int, float]]:
    """Each moment at which a cycle is due, at that moment or as soon as possible."""
    began = time.monotonic()
    for number in itertools.count():
        due = began + first_s + number * every_s
        if due >= began + seconds:
            return
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() > began + seconds + _ANSWER_S:
            return
        yield number, due


# -- the doors -------------------------------------------------------------


class _Http:
    """Asks, posts, takes and acknowledges by one connection."""

    def __init__(self, where: Place) -> None:
        self._tls = where.tls
        self._base = f"https://{ADDRESS}:{where.http}"
        self._session: aiohttp.ClientSession

    async def begin(self) -> None:
        self._session = _web(HONEST)

    async def end(self) -> None:
        await self._session.close()

    async def cycle(self, number: int) -> AsyncIterator[None]:
        queue = f"/queues/{HONEST_QUEUES['http']}"
        await self._ask(self._session, "GET", queue)
        yield
        await self._ask(self._session, "POST", f"{queue}/messages", f"{number}")
        yield
        taken = await self._ask(self._session, "POST", f"{queue}/consumer")
        if taken.status != 200:
            raise _Failed(f"nothing was taken: {taken.status}")
        yield
        links = {each.rel: each.href for each in read_links(taken.headers["Link"])}
        form = {"acknowledge": "true"}
        await self._ask(self._session, "POST", links["acknowledgement"], form)
        yield

    async def login(self, user: str) -> None:
        async with _web(user) as session:
            await self._ask(session, "GET", "/")

    async def _ask(
        self, session: aiohttp.ClientSession, method: str, path: str, data: Any = None
    ) -> aiohttp.ClientResponse:
        async with session.request(
            method,
            URL(self._base + path, encoded=True),
            data=data,
            ssl=self._tls,
            server_hostname="localhost",
        ) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise _Failed(f"{method} {path[:30]}: {answer.status} {text.strip()}")
            return answer


def _web(user: str) -> aiohttp.ClientSession:
    login = aiohttp.encode_basic_auth(user, SECRET, "utf-8")
    return aiohttp.ClientSession(headers={"Authorization": login})


class _Amqp:
    """Publishes and takes with the client of Qpid Proton, in a thread of its own.

    One thread: a call that was given up goes on until its own limit, and the next one, be
    it to close the connection, must not begin beside it. Proton's objects are not made for
    two threads.
    """

    def __init__(self, where: Place) -> None:
        self._where = where
        self._connection: Any = None
        self._thread = ThreadPoolExecutor(1)

    async def begin(self) -> None:
        await self._blocking(self._begin)

    def _begin(self) -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(self._where.ca_file)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        self._connection = BlockingConnection(
            f"amqps://{ADDRESS}:{self._where.amqp}",
            ssl_domain=domain,
            allowed_mechs="PLAIN",
            user=HONEST,
            password=SECRET,
            timeout=_ANSWER_S,
        )
        queue = HONEST_QUEUES["amqp"]
        self._sender = self._connection.create_sender(queue)
        self._receiver = self._connection.create_receiver(queue, credit=0)

    async def end(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(_Failed):
                await self._blocking(self._connection.close)

    async def cycle(self, number: int) -> AsyncIterator[None]:
        await self._blocking(partial(self._sender.send, Message(body=str(number))))
        yield
        await self._blocking(self._take)
        yield

    def _take(self) -> None:
        self._receiver.receive(timeout=_ANSWER_S)
        self._receiver.accept()

    async def login(self, user: str) -> None:
        peer = await AmqpPeer.connect(self._where)
        try:
            if not await peer.log_in(user):
                raise _Failed("the right password was refused")
            await peer.opened()
        finally:
            peer.abort()

    async def _blocking(self, call: Callable[[], object]) -> None:
        """Call proton in the thread.

        Raises:
            _Failed: the connection is broken: proton takes some attributes away.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except AttributeError:
            raise _Failed("the connection is lost") from None


class _Xmpp:
    """Publishes, and asks for the counts of the queue."""

    def __init__(self, where: Place) -> None:
        self._where = where
        self._session: AccountSession
        self._plugin: XEP_0254

    async def begin(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        session = self._where.connect(f"{HONEST}/{new_id()}").as_account()
        self._session = await self._stack.enter_async_context(session)
        session.client.register_plugin("xep_0254", {"timeout_s": _ANSWER_S})
        session.start()
        self._plugin = XEP_0254.of(session.client)
        await session.online.wait()

    async def end(self) -> None:
        await self._stack.aclose()

    async def cycle(self, number: int) -> AsyncIterator[None]:
        service, queue = self._where.service, HONEST_QUEUES["xmpp"]
        # Its queue must not become longer and longer.
        if number % 100 == 99:
            await self._plugin.purge(service, queue)
        item = NewItem(f"<work xmlns='urn:x'>{number}</work>")
        await self._plugin.publish(service, queue, [item], attempts=1)
        yield
        await self._plugin.stats(service, queue)
        yield

    async def login(self, user: str) -> None:
        raise NotImplementedError


async def _live() -> None:
    honest = Honest()
    await run_commands([honest.begin, honest.work, honest.end])


if __name__ == "__main__":
    asyncio.run(_live())
