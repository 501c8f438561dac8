"""The cases of devices that connect: past an address that swallows, and all at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import qos
from qos.core.backoff import Backoff
from qos.stream.login import AccountSession
from qos.stream.server import Login
from qos.testing.xmpp_server import XmppServer
from slow.cases import ALICE, Row
from slow.servers import PASSWORD, server

__all__ = ["COMINGS", "Addresses", "Crowd"]

GOOD: Final = "127.0.0.1"

#: Addresses of this machine that swallow: the second one where there is no IPv6.
_SWALLOWS: Final = ("::1", "127.0.0.2")

_NAME: Final = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """A device connects to a server by a name with two addresses, of which one swallows.

    Attributes:
        name: for people.
        only: see `slow.cases.Case`.
        limit_s: the most seconds that it may take.
    """

    name: str
    only: str = ""
    limit_s: float

    async def run(self, kind: str, folder: Path) -> Row:
        """Do it at a new server of this kind."""
        async with server(kind, folder, limits=False, smacks=False) as place:
            return await self.of(kind, place)

    async def of(self, kind: str, place: XmppServer) -> Row:
        """Do it at this server."""
        loop = asyncio.get_running_loop()
        with _swallowing(place.c2s_port) as bad, _named(loop, bad, GOOD):
            begun = loop.time()
            async with qos.connect(
                ALICE,
                PASSWORD,
                host=_NAME,
                port=place.c2s_port,
                tls="off",
                store="memory:",
                connect_timeout_s=10 * self.limit_s,
            ):
                seconds = loop.time() - begun
        return Row(
            case=self.name,
            server=kind,
            seconds=seconds,
            ideal_s=0.0,
            limit_s=self.limit_s,
        )


@contextlib.contextmanager
def _swallowing(port: int) -> Iterator[str]:
    """An address where connections are accepted at this port, and nothing is said."""
    with contextlib.ExitStack() as stack:
        for address in _SWALLOWS:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError):
                listener = socket.socket(family, socket.SOCK_STREAM)
                stack.enter_context(listener)
                listener.bind((address, port))
                listener.listen()
                yield address
                return
        raise OSError("there is no further address of this machine")


@contextlib.contextmanager
def _named(loop: asyncio.AbstractEventLoop, *addresses: str) -> Iterator[None]:
    """The name has these addresses, in this order."""
    look_up = loop.getaddrinfo

    async def getaddrinfo(host: Any, port: Any, **more: Any) -> Any:
        if host != _NAME:
            return await look_up(host, port, **more)
        more |= {"family": 0, "type": socket.SOCK_STREAM}
        found = [await look_up(address, port, **more) for address in addresses]
        return [answer for answers in found for answer in answers]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]
    try:
        yield
    finally:
        loop.getaddrinfo = look_up  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Many devices, whose server starts again.

    Attributes:
        name: for people.
        only: see `slow.cases.Case`.
        devices: how many.
        first_s: the longest first delay of each.
        limit_s: the most seconds until all are back.
    """

    name: str
    only: str = ""
    devices: int
    first_s: float
    limit_s: float

    @property
    def users(self) -> tuple[str, ...]:
        """The accounts of the devices."""
        return tuple(f"device-{number}" for number in range(self.devices))

    async def run(self, kind: str, folder: Path) -> Row:
        """Do it at a new server of this kind."""
        place = server(kind, folder, limits=False, smacks=False, users=self.users)
        async with place:
            return await self.of(kind, place, place.c2s_port)

    async def of(self, kind: str, place: Any, port: int) -> Row:
        """Do it at this server, which can stop and start."""
        loop = asyncio.get_running_loop()
        back: list[float] = []
        async with contextlib.AsyncExitStack() as stack:
            made = [
                await stack.enter_async_context(_session(user, port, self.first_s))
                for user in self.users
            ]
            async with asyncio.timeout(10 * self.limit_s):
                await asyncio.gather(*(each.online.wait() for each in made))
                await place.stop()
                await asyncio.gather(*(_gone(each) for each in made))
                await place.start()
                begun = loop.time()

                async def note(session: AccountSession) -> None:
                    await session.online.wait()
                    back.append(loop.time() - begun)

                await asyncio.gather(*map(note, made))
        seconds = Counter(map(int, back))
        return Row(
            case=self.name,
            server=kind,
            seconds=max(back),
            ideal_s=self.first_s,
            limit_s=self.limit_s,
            crowd=max(seconds.values()) / (self.devices / self.first_s),
        )


@contextlib.asynccontextmanager
async def _session(
    user: str, port: int, first_s: float
) -> AsyncIterator[AccountSession]:
    """A session that is made again whenever it is lost."""
    login = Login.of(
        f"{user}@localhost/1",
        PASSWORD,
        host=GOOD,
        port=port,
        tls="off",
        connect_timeout_s=120.0,
        backoff=Backoff(first_s=first_s, max_s=2 * first_s),
    )
    async with AccountSession(login, quiet=True) as session:
        session.start()
        yield session


async def _gone(session: AccountSession) -> None:
    """Wait until a session has noticed that its server is gone."""
    while session.online.is_set():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


COMINGS: Final = (
    Addresses(name="::1 swallows, 127.0.0.1 works", limit_s=2.0),
    Crowd(
        name="300 devices, their server starts again",
        devices=300,
        first_s=20.0,
        limit_s=60.0,
    ),
)
