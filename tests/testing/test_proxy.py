"""The bad network of the campaign: it does what it says, and nothing else."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator

import pytest

from proxy import Injection, LinkFault, Proxy
from qos.testing.ports import ADDRESS, free_ports
from waiting import limit, until

#: On the virtual clock only this takes time; what goes over the link takes none.
pytestmark = pytest.mark.looptime
FAULT_S = 10.0

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that echoes everything.

    Attributes:
        heard: the data of each connection, in the order of the connections.
        ends: the numbers of the ended connections, in the order of their ends.
    """

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.heard: list[bytes] = []
        self.ends: list[int] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number = len(self.heard)
        self.heard.append(b"")
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65_536):
                self.heard[number] += data
                writer.write(data)
                await writer.drain()
        self.ends.append(number)
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, ADDRESS, echo.port)
    yield echo
    server.close()
    await asyncio.sleep(0)


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy(echo.port, seed=1) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Ends]:
    """A client that the server has accepted."""
    reader, writer = await asyncio.open_connection(ADDRESS, proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def exchange(ends: Ends, data: bytes) -> float:
    """Let the server echo data; returns the time it took."""
    reader, writer = ends
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with limit():
        writer.write(data)
        await writer.drain()
        assert await reader.readexactly(len(data)) == data
    return loop.time() - began


async def until_ended(reader: asyncio.StreamReader) -> None:
    async with limit():
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                continue


async def test_what_goes_through_is_not_changed(proxy: Proxy) -> None:
    """TLS goes through it, and would notice a change."""
    data = bytes(itertools.islice(itertools.cycle(range(251)), 60_000))
    async with connected(proxy) as one, connected(proxy) as other:
        await exchange(one, data)
        await exchange(other, data[::-1])
        assert proxy.connections == 2


async def test_the_last_words_of_a_client_get_through(proxy: Proxy, echo: Echo) -> None:
    """Otherwise every client that logs out would look like one that was cut."""
    async with connected(proxy) as (reader, writer):
        writer.write(b"x" * 50_000)
        writer.write_eof()
        async with limit():
            assert await reader.read() == b"x" * 50_000
    assert echo.heard == [b"x" * 50_000]


async def test_a_cut_ends_connections_and_new_ones_are_taken(proxy: Proxy) -> None:
    """Clients come back, and nothing of the old connection disturbs them."""
    async with connected(proxy) as ends:
        await exchange(ends, b"a")
        assert await proxy.inflict(LinkFault.CUT, 0) == 1
        await until_ended(ends[0])
    async with connected(proxy) as ends:
        await exchange(ends, b"b")


@pytest.mark.parametrize("fault", [LinkFault.STALL, LinkFault.ONE_WAY])
async def test_what_is_stalled_comes_when_that_is_over(
    proxy: Proxy, fault: LinkFault
) -> None:
    """Nothing is lost: only a time-out can notice the stall."""
    async with connected(proxy) as ends:
        await exchange(ends, b"a")
        stalling = asyncio.create_task(proxy.inflict(fault, FAULT_S))
        await asyncio.sleep(0)
        assert await exchange(ends, b"b") == pytest.approx(FAULT_S)
        assert await stalling == 1
        assert await exchange(ends, b"c") == pytest.approx(0, abs=1e-6)


async def test_what_trickles_comes_in_small_pieces(proxy: Proxy) -> None:
    """A parser gets every stanza in pieces."""
    async with connected(proxy) as (reader, writer):
        await exchange((reader, writer), b"a")
        trickling = asyncio.create_task(proxy.inflict(LinkFault.TRICKLE, FAULT_S))
        await asyncio.sleep(0)
        writer.write(b"x" * 1_000)
        pieces: list[int] = []
        async with limit():
            while sum(pieces) < 1_000:
                pieces.append(len(await reader.read(65_536)))
        assert len(pieces) > 5
        await trickling


async def test_a_slow_link_carries_everything_at_its_rate(proxy: Proxy) -> None:
    """Some kB/s; afterwards it is as fast as before."""
    async with connected(proxy) as ends:
        await exchange(ends, b"a")
        slow = asyncio.create_task(proxy.inflict(LinkFault.SLOW, 10 * FAULT_S))
        await asyncio.sleep(0)
        # Both ways, at 3 to 30 kB/s.
        assert 1.0 < await exchange(ends, b"x" * 30_000) < 21.0
        await slow
        assert await exchange(ends, b"x" * 30_000) < 0.1


async def test_over_a_far_link_everything_comes_late_and_in_order(
    proxy: Proxy, echo: Echo
) -> None:
    """What is sent when it is near again does not overtake what is on its way."""
    async with connected(proxy) as ends:
        await exchange(ends, b"a")
        far = asyncio.create_task(proxy.inflict(LinkFault.FAR, 12.0))
        await asyncio.sleep(0)
        assert 9.9 < await exchange(ends, b"b") < 10.1
        ends[1].write(b"c")
        await far
        ends[1].write(b"d")
        async with limit():
            assert await ends[0].readexactly(2) == b"cd"
    assert echo.heard == [b"abcd"]


async def test_the_end_of_a_far_connection_comes_late_too(
    proxy: Proxy, echo: Echo
) -> None:
    """After its last data."""
    async with connected(proxy) as (reader, writer):
        await exchange((reader, writer), b"a")
        far = asyncio.create_task(proxy.inflict(LinkFault.FAR, FAULT_S))
        await asyncio.sleep(0)
        writer.write(b"b")
        writer.write_eof()
        await asyncio.sleep(1.0)
        assert (echo.heard, echo.ends) == ([b"a"], [])
        await until(lambda: echo.ends)
        assert echo.heard == [b"ab"]
        await far


async def test_reordered_the_server_sees_the_new_session_before_the_end_of_the_old(
    proxy: Proxy, echo: Echo
) -> None:
    """A server may have to handle late stanzas of a session that is gone."""
    async with connected(proxy) as old:
        await exchange(old, b"old")
        reordering = asyncio.create_task(proxy.inflict(LinkFault.REORDER, 2 * FAULT_S))
        await asyncio.sleep(0)
        old[1].write(b" and late")
        await until_ended(old[0])
        assert echo.ends == []
        async with connected(proxy) as first:
            await asyncio.sleep(0)
            async with connected(proxy) as second:
                exchanges = exchange(first, b"first"), exchange(second, b"second")
                await asyncio.gather(*exchanges)
                assert echo.heard == [b"old", b"second", b"first"]
                await reordering
                await until(lambda: echo.ends)
    assert echo.heard[0] == b"old and late"
    assert echo.ends[0] == 0


async def test_without_a_connection_there_is_nothing_to_do(proxy: Proxy) -> None:
    """A fault that did not happen must not be counted."""
    for fault in LinkFault:
        assert await proxy.inflict(fault, FAULT_S) == 0


async def test_a_server_that_is_away_ends_the_connection() -> None:
    """The same as without a proxy."""
    (nobody,) = free_ports(1)
    async with Proxy(nobody, seed=1) as proxy, connected(proxy) as (reader, _):
        await until_ended(reader)


async def test_one_that_is_closed_leaves_nothing(echo: Echo) -> None:
    """Also while a connection is stalled."""
    before = asyncio.all_tasks()
    async with Proxy(echo.port, seed=1) as proxy, connected(proxy) as ends:
        await exchange(ends, b"a")
        fault = asyncio.create_task(proxy.inflict(LinkFault.STALL, 30))
        await asyncio.sleep(0)
    fault.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await fault
    await until(lambda: asyncio.all_tasks() - before == set())


async def test_an_injection_is_written_once_a_connection_at_its_place(
    echo: Echo, proxy: Proxy
) -> None:
    """It is written as by an attacker on the network path.

    The other data is unchanged.
    """
    word = re.compile(b"proceed")
    proxy.injections = (Injection(word, b"<"), Injection(word, b">", behind=True))
    for connections in (1, 2):
        reader, writer = await asyncio.open_connection(ADDRESS, proxy.port)
        writer.write(b"a proceed, ")
        async with limit():
            assert await reader.readexactly(13) == b"a <proceed>, "
            writer.write(b"a proceed")
            assert await reader.readexactly(9) == b"a proceed"
        assert proxy.injected == 2 * connections
        writer.close()
