"""The words of a ready command to systemd."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from qos.cli.ready import report_ready
from waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told_at_its_socket(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify")
    said = name if kind == "path" else f"@{name}"
    monkeypatch.setenv("NOTIFY_SOCKET", said)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name if kind == "path" else f"\0{name}")
        systemd.settimeout(1)
        report_ready("lamp@home.arpa/1")
        assert systemd.recv(100) == b"READY=1"


def test_a_socket_that_is_gone_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    report_ready("lamp@home.arpa/1")
    assert capsys.readouterr().err == "ready lamp@home.arpa/1\n"


async def test_each_command_that_serves_says_when_it_is_ready(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the command that a worker runs is not told where to."""
    name = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.setblocking(False)
        systemd.bind(name)

        async def told() -> bytes:
            async with limit():
                return await loop.sock_recv(systemd, 100)

        await commands.start("listen", "--quiet", user="bob")
        assert await told() == b"READY=1"
        await commands.serve()
        assert await told() == b"READY=1"
        assert (await commands.queue("create")).status == 0
        item = await commands.queue("publish", "--payload", "<x/>")
        assert item.status == 0
        words = ("queue.localhost", "orders", "--")
        seen = tmp_path / "seen"
        shell = ("sh", "-c", f'echo "<${{NOTIFY_SOCKET-none}}>" > {seen}')
        worker = await commands.start("worker", *words, *shell, user="alice")
        assert await told() == b"READY=1"
        await worker.line()
        worker.process.terminate()
        assert (await worker.end()).status == 0
        assert seen.read_text() == "<none>\n"
