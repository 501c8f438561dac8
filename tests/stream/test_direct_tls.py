"""Direct TLS names the protocol that it is for (ALPN), as XEP-0368 demands."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qos.stream.login import AccountSession
from qos.stream.server import Login
from waiting import until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, with its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, path = folder / "key.pem", folder / "localhost.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + key.read_text())
    return path


@contextlib.asynccontextmanager
async def serving(
    certificate: Path, protocols: Sequence[str]
) -> AsyncIterator[tuple[int, list[str | None]]]:
    """A port with TLS that ends each connection; it notes the protocols chosen."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    chosen: list[str | None] = []

    async def end(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        chosen.append(tls.selected_alpn_protocol())
        writer.close()

    server = await asyncio.start_server(end, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], chosen


async def problem_at(
    port: int, certificate: Path, caplog: pytest.LogCaptureFixture
) -> str:
    """The first reason that the log gives for a login that fails there."""
    login = Login.of(
        "lamp@localhost/1",
        "secret",
        host="127.0.0.1",
        port=port,
        tls="direct",
        ca_file=certificate,
    )
    async with AccountSession(login) as session:
        session.start()
        await until(lambda: "trying again" in caplog.text)
    return caplog.text


async def test_a_port_for_several_protocols_learns_that_this_is_xmpp(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy at port 443 chooses by that, and ended connections without it."""
    async with serving(certificate, ["h2", "xmpp-client"]) as (port, chosen):
        problem = await problem_at(port, certificate, caplog)
        assert chosen[0] == "xmpp-client"
        assert "closed after TLS" in problem
        assert "ALPN" not in problem


async def test_a_port_that_knows_no_xmpp_is_told_of(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the connection, and nobody said why."""
    async with serving(certificate, []) as (port, chosen):
        problem = await problem_at(port, certificate, caplog)
        assert "ALPN xmpp-client" in problem
        assert chosen[0] is None


def test_other_tls_offers_no_protocol(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After STARTTLS the protocol is known."""
    offers: list[list[str]] = []
    monkeypatch.setattr(
        ssl.SSLContext, "set_alpn_protocols", lambda _self, names: offers.append(names)
    )
    for tls in ("starttls", "direct"):
        Login.of("a@x", "secret", tls=tls, ca_file=certificate).tls_context()
        assert (["xmpp-client"] in offers) == (tls == "direct")
