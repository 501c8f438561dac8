"""Certificates that are renewed while a service runs."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from qos.engine.doors import Doors
from qos.tls_files import TlsFiles


def renew(folder: Path, name: str) -> None:
    """Write a new pair for this name, each file at once, as programs do that renew."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    command = (openssl, "req", "-x509", *kind, "-subj", f"/CN={name}")
    made = ("-out", "new.pem", "-keyout", "new.key")
    subprocess.run((*command, *made), cwd=folder, check=True, capture_output=True)
    for kind_ in ("pem", "key"):
        os.replace(folder / f"new.{kind_}", folder / f"cert.{kind_}")


def tls_of(folder: Path) -> TlsFiles:
    certificate, key = folder / "cert.pem", folder / "cert.key"

    def context() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    return TlsFiles(context, certificate, key)


async def seen(port: int) -> bytes:
    """The certificate that a client is shown, in DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()


def in_file(folder: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "cert.pem").read_text())


async def test_a_renewed_certificate_is_shown_to_the_next_client(
    tmp_path: Path,
) -> None:
    """Nobody has to restart a service for it, or to send it a signal."""
    renew(tmp_path, "first")
    door = await Doors().listen(
        "127.0.0.1", 0, lambda _: asyncio.Protocol(), tls=tls_of(tmp_path)
    )
    try:
        assert await seen(door.port) == in_file(tmp_path)
        renew(tmp_path, "second")
        assert await seen(door.port) == in_file(tmp_path)
    finally:
        door.close()


async def test_what_cannot_be_used_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, between the writing of a certificate and of its key."""
    renew(tmp_path, "first")
    tls = tls_of(tmp_path)
    first = tls()
    assert tls() is first
    with caplog.at_level(logging.INFO):
        (tmp_path / "cert.pem").write_text("half of a certif")
        assert tls() is tls() is first
        (tmp_path / "cert.key").unlink()
        assert tls() is first
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert f"{tmp_path}/cert.pem" in caplog.text
    assert "the old ones stay" in caplog.text
    renew(tmp_path, "second")
    second = tls()
    assert second is not first
    assert tls() is second
