"""The first address of a server that answers is taken, whatever the others do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from qos.core.backoff import Backoff
from qos.errors import CannotConnect
from qos.stream.login import AccountSession
from qos.stream.server import Login
from qos.testing import LoopbackServer, friends
from waiting import LIMIT_S, limit

GOOD = "127.0.0.1"
#: More addresses of this machine.
OTHERS = [f"127.0.0.{number}" for number in range(2, 8)]

QUICK = Backoff(first_s=0.05, max_s=0.1)

Names = Callable[..., None]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("lamp") as server:
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Sets the addresses that a name has; the others keep theirs.

    Not in a thread, as asyncio does it: the clock of the loop would run meanwhile.
    """
    known: dict[str, Sequence[str]] = {}
    look_up = socket.getaddrinfo

    async def getaddrinfo(_loop: object, host: Any, port: Any, **more: Any) -> Any:
        if host not in known:
            return look_up(host, port, **more)
        if not known[host]:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            answer
            for address in known[host]
            for answer in look_up(address, port, type=socket.SOCK_STREAM)
        ]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)

    def name(**addresses: Sequence[str]) -> None:
        known.update(addresses)

    return name


def session(port: int, host: str = "localhost", **more: Any) -> AccountSession:
    more = {"connect_timeout_s": LIMIT_S} | more
    login = Login.of(
        "lamp@localhost/1", "secret", host=host, port=port, tls="off", **more
    )
    return AccountSession(login, quiet=True)


async def connected_s(made: AccountSession) -> float:
    """The time until there is a session, by the clock of the loop."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    made.start()
    await made.work(made.online.wait())
    return loop.time() - begun


class Silent:
    """Listens at an address of a port, accepts connections, and says nothing."""

    def __init__(self, address: str, port: int) -> None:
        self._where = (address, port)
        self.heard: list[bytes] = []
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Silent:
        self._server = await asyncio.start_server(self._talk, *self._where)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(10_000):
                self.heard.append(data)
        self.ended.set()
        writer.close()


@contextlib.contextmanager
def swallowing(address: str, port: int) -> Iterator[None]:
    """The system answers nothing at this address: its queue of connections is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            one = sockets.enter_context(socket.socket())
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect((address, port))
        yield


async def test_an_address_that_swallows_everything_hides_no_other(
    server: LoopbackServer, names: Names
) -> None:
    """As a host whose IPv6 is configured and not routed."""
    names(localhost=[OTHERS[0], GOOD])
    async with session(server.port) as made:
        with swallowing(OTHERS[0], server.port):
            assert await connected_s(made) < 2.0


async def test_one_that_accepts_and_says_nothing_hides_no_other(
    server: LoopbackServer, names: Names
) -> None:
    """As a box in between that answers for everybody. Its connection is closed."""
    names(localhost=[OTHERS[0], GOOD])
    async with (
        Silent(OTHERS[0], server.port) as silent,
        session(server.port) as made,
        limit(),
    ):
        assert await connected_s(made) < 2.0
        await silent.ended.wait()
    assert len(silent.heard) == 1, "the header of the stream"


async def test_the_address_that_worked_is_the_first_the_next_time(
    server: LoopbackServer, names: Names
) -> None:
    """One that has failed costs no time again, for ten minutes."""
    names(localhost=[OTHERS[0], GOOD])
    async with (
        Silent(OTHERS[0], server.port) as silent,
        session(server.port, backoff=QUICK) as made,
        limit(),
    ):
        await connected_s(made)
        for _ in range(3):
            made.online.clear()
            made.xmpp.abort()
            await made.online.wait()
    assert len(silent.heard) == 1


async def test_many_bad_addresses_do_not_hide_the_last(
    server: LoopbackServer, names: Names
) -> None:
    """Refused at once, swallowed, and silent; each further wait is twice as long."""
    names(localhost=[*OTHERS, GOOD])
    async with (
        Silent(OTHERS[0], server.port),
        Silent(OTHERS[3], server.port),
        session(server.port) as made,
    ):
        with swallowing(OTHERS[5], server.port):
            assert await connected_s(made) < 4.0


async def test_a_target_of_the_domain_that_does_not_answer_hides_no_other(
    server: LoopbackServer, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SRV (RFC 2782); a target that has no address is left out."""
    names(dead=[OTHERS[0]], unknown=[], good=[GOOD])

    async def targets(*_asked: Any, **_more: Any) -> list[tuple[str, str, int]]:
        return [
            ("xmpp-client", host, server.port) for host in ("dead", "unknown", "good")
        ]

    monkeypatch.setattr("qos.stream.dialer.get_SRV", targets)
    async with session(server.port) as made, Silent(OTHERS[0], server.port):
        made.xmpp.default_domain = "localhost"
        # As for a domain: no host is given.
        object.__setattr__(made._server, "host", None)
        assert await connected_s(made) < 2.0


async def test_where_none_answers_the_reason_is_told(
    server: LoopbackServer, names: Names
) -> None:
    """It gives up in time, though one of them would never end."""
    names(localhost=OTHERS[:2], nowhere=[])
    for host, text in (
        ("localhost", "does not answer; gave up after 1 s"),
        ("nowhere", "no address is known for it; gave up after 1 s"),
    ):
        made = session(server.port, "localhost", connect_timeout_s=1.0)
        object.__setattr__(made._server, "host", host)
        async with made, Silent(OTHERS[1], server.port):
            with pytest.raises(CannotConnect, match=text):
                await connected_s(made)


async def test_an_address_where_nothing_listens_is_told(names: Names) -> None:
    """By the reason of the system."""
    names(localhost=[OTHERS[0], GOOD])
    # It stays bound, so that nobody else listens there meanwhile.
    with socket.socket() as unused:
        unused.bind((GOOD, 0))
        port = unused.getsockname()[1]
        async with session(port, connect_timeout_s=1.0) as made:
            with pytest.raises(CannotConnect, match="Connection refused; gave up"):
                await connected_s(made)


async def test_a_server_that_answers_and_never_logs_in_leaves_time_for_another(
    server: LoopbackServer, names: Names
) -> None:
    """Each address has its share of the time for an attempt; then it is the last."""

    async def stalls(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"<?xml version='1.0'?><stream:stream from='localhost' id='1' ")
        with contextlib.suppress(ConnectionError):
            while await reader.read(10_000):
                pass
        writer.close()

    names(localhost=[OTHERS[0], GOOD])
    stalled = await asyncio.start_server(stalls, OTHERS[0], server.port)
    async with stalled, session(server.port, connect_timeout_s=6.0) as made:
        assert await connected_s(made) < 5.0
