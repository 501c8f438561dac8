"""Logging in to the gateway: closed by default, and never a password in the clear."""

import asyncio
import contextlib
import shutil
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from amqp_bench import BOSS, Bench, HeldChecks, gateway
from cheap_passwords import cheap_hash
from qos import password_checks
from qos.amqp import bounds, heartbeats, login
from qos.core.amqp import values
from qos.core.amqp.sasl import AMQP_HEADER, SASL_HEADER, Outcome
from qos.core.connection_shares import ConnectionLimits
from qos.core.login_queue import LoginQueue
from qos.engine import doors
from qos.testing import ManualClock
from turned_time import turned
from waiting import limit, until

AUTH, SYS_PERM, SYS_TEMP = (
    each.value for each in (Outcome.AUTH, Outcome.SYS_PERM, Outcome.SYS_TEMP)
)


def init(mechanism: str, *fields: bytes) -> bytes:
    """The frame by which a peer begins to log in."""
    body = b"\x00\x53\x41" + values.pack_list((values.symbol(mechanism), *fields))
    return struct.pack(">IBBH", 8 + len(body), 2, 1, 0) + body


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Of the time in which a peer has to log in."""
    return turned(monkeypatch, doors)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of a server and of the users cert and nobody."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        command = (shutil.which("openssl") or "openssl", *words)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    openssl(*new, "/CN=authority", "-x509", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("localhost", "cert", "nobody"):
        openssl(*new, f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *(
                "x509",
                "-req",
                "-in",
                f"{name}.csr",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
            ),
            *("-CAcreateserial", "-out", f"{name}.pem", "-extfile", "names"),
        )
    return folder


@pytest.fixture
async def secure(tmp_path: Path, certificates: Path) -> AsyncIterator[Bench]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        certificates / "localhost.pem", certificates / "localhost.key"
    )
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    async with gateway(tmp_path, tls=context) as bench:
        await bench.create("orders")
        yield bench


def tls(certificates: Path, name: str = "") -> dict[str, Any]:
    """The options of rhea; with a name, it has a certificate."""
    found: dict[str, object] = {
        "transport": "tls",
        "ca": (certificates / "ca.pem").read_text(),
    }
    if name:
        found["cert"] = (certificates / f"{name}.pem").read_text()
        found["key"] = (certificates / f"{name}.key").read_text()
        # Of the mechanisms, EXTERNAL.
        found |= {"username": None, "password": None, "enable_sasl_external": True}
    return {"connect": found}


async def test_a_password_goes_through_tls(secure: Bench, certificates: Path) -> None:
    sent = await secure.rhea("send", node="orders", **tls(certificates))
    assert sent == [{"outcome": "accepted"}]


async def test_a_certificate_names_its_user(secure: Bench, certificates: Path) -> None:
    """The user cert may not use the queue, but is known; nobody is not in the file."""
    (found,) = await secure.rhea("send", node="orders", **tls(certificates, "cert"))
    assert found["error"]["condition"] == "amqp:not-found"
    lines = await secure.rhea("send", node="orders", **tls(certificates, "nobody"))
    assert not any("outcome" in each for each in lines)
    assert not await secure.items("orders")


async def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path) as bench:
        for user, password in (("alice", "wrong"), ("mallory", "secret"), ("cert", "")):
            with pytest.raises(Exception, match=r"amqp:unauthorized-access|Auth"):
                await bench.proton(_nothing, user=user, password=password)


def _nothing(_client: BlockingConnection) -> None:
    """To log in is enough."""


async def test_anonymous_is_offered_only_where_it_is_asked_for(tmp_path: Path) -> None:
    async with gateway(tmp_path) as bench:
        assert await mechanisms(bench) == ["PLAIN"]
    async with gateway(tmp_path, anonymous="guest@example.org") as bench:
        assert await mechanisms(bench) == ["PLAIN", "ANONYMOUS"]
        await bench.proton(_nothing, allowed_mechs="ANONYMOUS")


async def test_no_password_is_taken_from_another_machine_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login.Login, "_is_local", lambda _: False)
    async with gateway(tmp_path) as bench:
        assert await mechanisms(bench) == []


@contextlib.asynccontextmanager
async def raw(
    bench: Bench,
    own: str = "127.0.0.1",
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", bench.port, local_addr=(own, 0)
    )
    try:
        yield reader, writer
    finally:
        writer.close()


async def mechanisms(bench: Bench) -> list[str]:
    """Those that the gateway offers."""
    async with raw(bench) as (reader, writer):
        writer.write(SASL_HEADER)
        assert await reader.readexactly(8) == SASL_HEADER
        (size,) = struct.unpack(">I", await reader.readexactly(4))
        frame = await reader.readexactly(size - 4)
    known = ("EXTERNAL", "PLAIN", "ANONYMOUS", "SCRAM")
    return [each for each in known if each.encode() in frame]


@pytest.mark.parametrize("first", [AMQP_HEADER, b"GET / HTTP/1.1\r\n\r\n"])
async def test_whoever_does_not_log_in_is_told_what_is_spoken_here(
    tmp_path: Path, first: bytes
) -> None:
    """AMQP transport §2.2: the other header, and the end."""
    async with gateway(tmp_path) as bench, raw(bench) as (reader, writer):
        writer.write(first)
        async with limit():
            assert await reader.read() == SASL_HEADER


async def outcome(reader: asyncio.StreamReader) -> int:
    """The code of the outcome, which comes before the end of the connection."""
    async with limit():
        data = await reader.read()
    _, found, code = data.rpartition(b"\x00\x53\x44\xc0\x03\x01\x50")
    assert found, data
    return int.from_bytes(code, "big")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (init("SCRAM-SHA-256"), AUTH),
        (init("PLAIN", values.binary(b"\0alice\0wrong")), AUTH),
        (init("PLAIN", values.binary(b"\0alice")), SYS_PERM),
        (struct.pack(">IBBH", 9, 3, 1, 0) + b"x", SYS_PERM),
        (struct.pack(">IBBH", 600, 2, 1, 0) + b"x" * 2000, SYS_PERM),
    ],
)
async def test_a_refusal_is_an_outcome_that_can_be_read(
    tmp_path: Path, sent: bytes, code: int
) -> None:
    """Whatever comes behind it: unread bytes would reset the connection (security §5.3.3.6)."""
    async with gateway(tmp_path) as bench, raw(bench) as (reader, writer):
        writer.write(SASL_HEADER + sent + AMQP_HEADER + b"x" * 200_000)
        # Nothing is read before it is refused.
        await until(lambda: bench.gateway._connections)
        (connection,) = bench.gateway._connections
        await until(lambda: connection._closing)
        assert await outcome(reader) == code


async def test_an_account_with_too_many_connections_may_come_again(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as bench:
        bench.engine.doors.shares.limits = ConnectionLimits(account=1)
        right = init("PLAIN", values.binary(b"\0alice\0secret"))
        async with raw(bench) as (first, writer), raw(bench) as (reader, other):
            writer.write(SASL_HEADER + right)
            await first.readuntil(b"\x00\x53\x44\xc0\x03\x01\x50\x00")
            other.write(SASL_HEADER + right)
            assert await outcome(reader) == SYS_TEMP


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldChecks]:
    checks = HeldChecks()
    monkeypatch.setattr(password_checks, "is_right", checks)
    yield checks
    checks.may_end.set()


async def test_all_with_right_passwords_get_in_beside_a_flood_of_wrong_ones(
    tmp_path: Path, clock: ManualClock, checks: HeldChecks
) -> None:
    """After a restart all clients come at once: 146 of 300 were cut off after 10 s.

    The flood is there before them, and the first wait is longer than a login may last.
    """
    names = [f"client{number}" for number in range(20)]
    secret = cheap_hash("secret")
    users = tmp_path / "users"
    users.write_text("".join(f"{each}:{secret}\n" for each in ("alice", *names)))
    users.chmod(0o600)

    async def client(name: str, password: str, address: str) -> bytes:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", bench.port, local_addr=(address, 0)
        )
        plain = values.binary(f"\0{name}\0{password}".encode())
        writer.write(SASL_HEADER + init("PLAIN", plain))
        try:
            head = b"\x00\x53\x44\xc0\x03\x01\x50"
            await reader.readuntil(head)
            return await reader.readexactly(1)
        finally:
            writer.close()

    async with gateway(tmp_path) as bench:

        async def all_wait(count: int) -> None:
            """Wait until so many connections wait for the check of a password."""
            shares = bench.engine.doors.shares
            await until(lambda: len(shares) == count and clock.deadline() is None)

        flood = [
            asyncio.ensure_future(client("alice", f"wrong {number}", "127.0.0.2"))
            for number in range(100)
        ]
        await all_wait(100)
        flood += [
            asyncio.ensure_future(client(name, f"wrong {number}", "127.0.0.3"))
            for number, name in enumerate(names)
        ]
        right = [
            asyncio.ensure_future(client(name, "secret", "127.0.0.1"))
            for name in names
            for _ in range(5)
        ]
        await all_wait(220)
        clock.advance(2 * doors.LOGIN_S)
        checks.may_end.set()
        async with limit():
            assert await asyncio.gather(*right) == [b"\x00"] * 100
        # Each address had its turns: nobody has waited for the end of the flood.
        last = len(checks.ended) - checks.ended[::-1].index("secret")
        assert checks.ended[:last].count("secret") == len(names)
        assert last <= 3 * len(names) + 5
        for each in flood:
            each.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


async def test_too_many_guesses_of_an_address_may_come_again(
    tmp_path: Path, checks: HeldChecks
) -> None:
    async with gateway(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        assert bench.gateway.users is not None
        bench.gateway.users.checks._queue = LoginQueue(address_max=2)
        found = []
        for number in range(8):
            reader, writer = await stack.enter_async_context(raw(bench))
            guess = values.binary(f"\0alice\0wrong {number}".encode())
            writer.write(SASL_HEADER + init("PLAIN", guess))
            found.append(asyncio.ensure_future(outcome(reader)))
        # Two are checked, and two may wait.
        done: set[asyncio.Future[int]] = set()
        while len(done) < 4:
            more, _ = await asyncio.wait(
                set(found) - done, return_when=asyncio.FIRST_COMPLETED
            )
            done |= more
        assert {each.result() for each in done} == {SYS_TEMP}
        checks.may_end.set()
        assert sorted(await asyncio.gather(*found)) == [AUTH] * 4 + [SYS_TEMP] * 4


async def test_whoever_says_nothing_is_not_waited_for(
    tmp_path: Path, clock: ManualClock
) -> None:
    """It gets an outcome, if it has come so far that it waits for one."""
    async with gateway(tmp_path) as bench:
        async with raw(bench) as (reader, _), limit():
            # Its time begins when it is its turn.
            arrivals = bench.engine.doors._arrivals
            await until(lambda: any(each.transport for each in arrivals.values()))
            clock.advance(doors.LOGIN_S)
            assert await reader.read() == b""
        async with raw(bench) as (reader, writer):
            writer.write(SASL_HEADER)
            assert await reader.readexactly(8) == SASL_HEADER
            clock.advance(doors.LOGIN_S)
            assert await outcome(reader) == SYS_TEMP


async def test_more_connections_than_are_possible_are_ended(tmp_path: Path) -> None:
    """The newer ones of an address that has as many as it may have."""
    async with gateway(tmp_path) as bench, raw(bench) as (first, writer):
        bench.engine.doors.shares.limits = ConnectionLimits(address=1)
        writer.write(SASL_HEADER)
        head = await first.readexactly(8)
        async with raw(bench) as (reader, _), limit():
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
    assert head == SASL_HEADER


@pytest.mark.usefixtures("clock")
async def test_who_makes_room_for_others_is_told_to_come_again(tmp_path: Path) -> None:
    """The oldest of the address with the most; long before its time to log in is up."""
    async with gateway(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        bench.engine.doors.shares.limits = ConnectionLimits(total=6)
        many = [await stack.enter_async_context(raw(bench)) for _ in range(3)]
        for reader, writer in many:
            writer.write(SASL_HEADER)
            await reader.readexactly(8)
        other = await stack.enter_async_context(raw(bench, "127.0.0.2"))
        assert await outcome(many[0][0]) == SYS_TEMP
        assert len(bench.engine.doors.shares) == 3
        other[1].write(SASL_HEADER)
        assert await other[0].readexactly(8) == SASL_HEADER


async def test_a_certificate_is_no_login_where_there_are_no_users(
    tmp_path: Path, certificates: Path
) -> None:
    """`--amqp-client-ca` with `--amqp-anonymous` alone: nothing could be granted."""
    guest = BOSS.partition("/")[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        certificates / "localhost.pem", certificates / "localhost.key"
    )
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    ours = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    ours.load_cert_chain(certificates / "cert.pem", certificates / "cert.key")
    async with gateway(tmp_path, tls=context, users=None, anonymous=guest) as bench:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", bench.port, ssl=ours, server_hostname="localhost"
        )
        writer.write(SASL_HEADER + init("EXTERNAL", values.binary(b"")))
        assert await outcome(reader) == AUTH
        writer.close()


async def test_a_fault_of_ours_is_an_outcome_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("a fault of the gateway")

    monkeypatch.setattr(login.Login, "_grant", fails)
    async with gateway(tmp_path) as bench, raw(bench) as (reader, writer):
        writer.write(SASL_HEADER + init("PLAIN", values.binary(b"\0alice\0secret")))
        assert await outcome(reader) == Outcome.SYS.value
    assert "a fault of the gateway" in caplog.text


async def test_wrong_passwords_are_logged_once_a_minute_for_each_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        found = []
        for number in range(4):
            reader, writer = await stack.enter_async_context(raw(bench))
            guess = f"\0{'m' * 300}{number}\0wrong".encode()
            writer.write(SASL_HEADER + init("PLAIN", values.binary(guess)))
            found.append(outcome(reader))
        assert await asyncio.gather(*found) == [AUTH] * 4
    (said,) = [each for each in caplog.records if "no login as" in each.getMessage()]
    assert len(said.getMessage()) <= doors._LOG_CHARS_MAX


async def test_a_peer_that_is_silent_after_login_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks would be held for a client that is gone."""
    clock = turned(monkeypatch, heartbeats)
    guest = BOSS.partition("/")[0]
    async with (
        gateway(tmp_path, anonymous=guest) as bench,
        raw(bench) as (reader, writer),
        limit(),
    ):
        writer.write(AMQP_HEADER)
        opened = b"\x00\x53\x10" + b"\xc0\x07\x01\xa1\x04peer"
        writer.write(struct.pack(">IBBH", 8 + len(opened), 2, 0, 0) + opened)
        data = await reader.readuntil(b"xmpp-qos")
        # It has to send a frame within this time, and counts as gone after twice of it.
        for _ in range(2):
            assert bench.gateway._connections
            clock.advance(bounds.IDLE_S)
        data += await reader.read()
    assert data.startswith(AMQP_HEADER)
    assert b"amqp:resource-limit-exceeded" in data
