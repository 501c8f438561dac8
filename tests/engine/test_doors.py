"""Doors: every connection counts from its accept on, and none shuts the others out."""

import asyncio
import contextlib
import errno
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from qos.core.connection_shares import ConnectionLimits, TooMany
from qos.engine import doors
from qos.engine.doors import Arrival, Door, Doors
from qos.engine.payers import TASKS_MAX, Payers
from waiting import limit, until


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"login "):
            self.arrival.log_in(data.decode().split()[1])
        self.transport.write(data)


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder = tmp_path_factory.mktemp("certificate")
    openssl = shutil.which("openssl")
    assert openssl is not None
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    command = (openssl, *new, "-out", "cert.pem", "-keyout", "key.pem")
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@contextlib.asynccontextmanager
async def listening(
    all_doors: Doors, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Door]:
    door = await all_doors.listen(
        "127.0.0.1", 0, Echo, tls=None if tls is None else lambda: tls
    )
    try:
        yield door
    finally:
        door.close()
        await asyncio.sleep(0)


@contextlib.contextmanager
def silent(door: Door, count: int, address: str = "127.0.0.1") -> Iterator[None]:
    """Connections of an address that say nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            made = socket.socket()
            stack.enter_context(made)
            made.bind((address, 0))
            made.connect(("127.0.0.1", door.port))
        yield


async def echo(
    door: Door, *, tls: bool = False, address: str = "127.0.0.1", say: bytes = b"hello"
) -> bytes:
    """The answer to a client; b'': its connection is closed."""
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        async with limit():
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", door.port, ssl=context, local_addr=(address, 0)
            )
            writer.write(say)
            data = await reader.read(100)
            writer.close()
            return data
    except ConnectionError:
        return b""


async def until_count(all_doors: Doors, count: int) -> None:
    await until(lambda: len(all_doors.shares) == count)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_counts_until_it_is_closed(
    tls: bool, server_tls: ssl.SSLContext
) -> None:
    all_doors = Doors()
    async with listening(all_doors, server_tls if tls else None) as door:
        assert await echo(door, tls=tls) == b"hello"
        await until_count(all_doors, 0)


async def test_half_open_tls_counts_and_shuts_no_other_door(
    server_tls: ssl.SSLContext,
) -> None:
    """1,300 of them at each door took all file descriptors of the service."""
    all_doors = Doors(ConnectionLimits(total=40, address=10))
    async with (
        listening(all_doors, server_tls) as secure,
        listening(all_doors) as plain,
    ):
        with silent(secure, 60):
            await until_count(all_doors, 10)
            await asyncio.sleep(0.1)
            assert len(all_doors.shares) == 10
            assert await echo(plain) == b""
            assert await echo(plain, address="127.0.0.2") == b"hello"
            assert await echo(secure, address="127.0.0.2", tls=True) == b"hello"
        await until_count(all_doors, 0)


async def test_of_many_that_come_at_once_several_are_looked_at_in_one_turn() -> None:
    """The kernel drops those that find no room, and their clients wait for seconds."""
    all_doors = Doors(ConnectionLimits(total=40, address=10))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with listening(all_doors) as door:
        with silent(door, 500):
            await asyncio.sleep(0)
            counting = asyncio.create_task(count_turns())
            assert await echo(door, address="127.0.0.2") == b"hello"
            counting.cancel()
    assert turns < 250


async def test_the_address_with_the_most_makes_room_for_another(
    server_tls: ssl.SSLContext,
) -> None:
    """In the handshake, and after it."""
    all_doors = Doors(ConnectionLimits(total=20, address=10))
    async with (
        listening(all_doors, server_tls) as secure,
        listening(all_doors) as plain,
    ):
        with silent(secure, 5), silent(plain, 5):
            await until_count(all_doors, 10)
            for number in range(2, 6):
                address = f"127.0.0.{number}"
                assert await echo(secure, address=address, tls=True) == b"hello"
                assert await echo(plain, address=address) == b"hello"


async def test_a_handshake_has_to_be_complete_in_time(
    server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_S", 0.2)
    all_doors = Doors()
    async with listening(all_doors, server_tls) as door:
        with silent(door, 3):
            await until_count(all_doors, 3)
            await until_count(all_doors, 0)


async def test_a_connection_has_to_be_logged_in_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless it waits for us; and whoever is logged in stays."""
    monkeypatch.setattr(doors, "LOGIN_S", 0.2)
    all_doors = Doors()
    made: list[Arrival] = []

    def factory(arrival: Arrival) -> Echo:
        made.append(arrival)
        return Echo(arrival)

    door = await all_doors.listen("127.0.0.1", 0, factory, tls=None)
    with silent(door, 3):
        await until_count(all_doors, 3)
        await asyncio.sleep(0.05)
        made[0].log_in("a@x.org")
        with made[1].checked():
            await until_count(all_doors, 2)
            await asyncio.sleep(0.3)
            assert len(all_doors.shares) == 2
        await until_count(all_doors, 1)
        await asyncio.sleep(0.3)
        assert len(all_doors.shares) == 1
    door.close()


async def test_an_account_counts_at_all_doors() -> None:
    all_doors = Doors(ConnectionLimits(account=2))
    async with listening(all_doors) as one, listening(all_doors) as other:
        with contextlib.ExitStack() as stack:
            for door in (one, other):
                made = stack.enter_context(socket.socket())
                made.connect(("127.0.0.1", door.port))
                made.send(b"login a@x.org")
            await until_count(all_doors, 2)
            await asyncio.sleep(0.05)
            place, _ = all_doors.shares.arrive("192.0.2.1")
            with pytest.raises(TooMany, match=r"a@x\.org has 2 connections"):
                all_doors.shares.log_in(place, "a@x.org")


async def test_a_refused_connection_is_told_in_the_log_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    all_doors = Doors(ConnectionLimits(address=1))
    async with listening(all_doors) as door:
        with silent(door, 20):
            await asyncio.sleep(0.2)
    lines = [each.getMessage() for each in caplog.records]
    assert lines == [
        "a connection is refused: 127.0.0.1 has 1 connections that are not logged in"
    ]


async def test_without_a_file_descriptor_a_door_waits_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    tried = 0
    accept = doors._accepted

    async def full(listening: socket.socket) -> object:
        nonlocal tried
        tried += 1
        if tried > 3:
            return await accept(listening)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(doors, "_accepted", full)
    monkeypatch.setattr(doors, "_AGAIN_S", 0.1)
    all_doors = Doors()
    begun = loop.time()
    async with listening(all_doors) as door:
        assert await echo(door) == b"hello"
    assert loop.time() - begun > 0.25
    lines = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage() for each in lines] == [
        "no connection can be accepted: Too many open files"
    ]


@pytest.mark.parametrize("where", ["accepting", "counting", "beginning"])
async def test_whatever_goes_wrong_the_next_connection_is_served(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The door was closed for ever, and its service did not notice."""
    loop = asyncio.get_running_loop()
    left = 2

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise MemoryError
            return call(*args, **options)

        return called

    monkeypatch.setattr(doors, "_AGAIN_S", 0.0)
    all_doors = Doors()
    match where:
        case "accepting":
            monkeypatch.setattr(loop, "sock_accept", failing(loop.sock_accept))
        case "counting":
            monkeypatch.setattr(
                all_doors.shares, "arrive", failing(all_doors.shares.arrive)
            )
        case _:
            monkeypatch.setattr(Arrival, "begin", failing(Arrival.begin))
    async with listening(all_doors) as door:

        async def served() -> bool:
            return await echo(door) == b"hello"

        await until(served)
        await until_count(all_doors, 0)
    assert left < 0
    told = "can be accepted" if where == "accepting" else "cannot be served"
    assert told in caplog.text


async def test_whoever_does_not_speak_tls_is_no_error_of_ours(
    server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    all_doors = Doors()
    async with listening(all_doors, server_tls) as door:
        # TLS answers with an alert.
        assert b"hello" not in await echo(door)
        await until_count(all_doors, 0)
    assert not caplog.records


async def test_a_closed_door_ends_what_is_in_its_handshake(
    server_tls: ssl.SSLContext,
) -> None:
    all_doors = Doors()
    async with listening(all_doors, server_tls) as door:
        with silent(door, 3):
            await until_count(all_doors, 3)
            door.close()
            await until_count(all_doors, 0)


async def test_a_crowd_from_one_address_begins_in_turns_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round of the loop with a hundred handshakes would hold everybody up."""
    # All of them are accepted at once.
    monkeypatch.setattr(doors, "_ACCEPT_S", 60.0)
    begun: list[str] = []
    rounds: list[int] = []

    class Noted(Echo):
        def __init__(self, arrival: Arrival) -> None:
            super().__init__(arrival)
            begun.append(arrival.address)

    all_doors = Doors(payers=Payers(lambda: 0.0))
    door = await all_doors.listen("127.0.0.1", 0, Noted, tls=None)
    with silent(door, 100, "127.0.0.2"), silent(door, 1, "127.0.0.1"):
        async with limit():
            while len(begun) < 101:
                before = len(begun)
                await asyncio.sleep(0)
                rounds.append(len(begun) - before)
        door.close()
    assert max(rounds) <= TASKS_MAX
    assert begun.index("127.0.0.1") <= 2 * TASKS_MAX
