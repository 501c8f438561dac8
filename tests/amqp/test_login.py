"""Logging in to the gateway: closed by default, and never a password in the clear."""

import asyncio
import contextlib
import shutil
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from amqp_bench import BOSS, Bench, gateway
from qos.amqp import bounds, login
from qos.core.amqp.sasl import AMQP_HEADER, SASL_HEADER


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
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
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
        async with asyncio.timeout(5):
            assert await reader.read() == SASL_HEADER


async def test_whoever_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOGIN_S", 0.2)
    async with gateway(tmp_path) as bench, raw(bench) as (reader, _):
        async with asyncio.timeout(5):
            assert await reader.read() == b""


async def test_more_connections_than_are_possible_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 1)
    async with gateway(tmp_path) as bench, raw(bench) as (first, writer):
        writer.write(SASL_HEADER)
        await first.readexactly(8)
        async with raw(bench) as (reader, _), asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""


async def test_a_peer_that_is_silent_after_login_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks would be held for a client that is gone."""
    monkeypatch.setattr(bounds, "IDLE_S", 1.0)
    guest = BOSS.partition("/")[0]
    async with (
        gateway(tmp_path, anonymous=guest) as bench,
        raw(bench) as (reader, writer),
        asyncio.timeout(10),
    ):
        writer.write(AMQP_HEADER)
        opened = b"\x00\x53\x10" + b"\xc0\x07\x01\xa1\x04peer"
        writer.write(struct.pack(">IBBH", 8 + len(opened), 2, 0, 0) + opened)
        data = await reader.read()
    assert data.startswith(AMQP_HEADER)
    assert b"amqp:resource-limit-exceeded" in data
