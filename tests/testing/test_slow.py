"""Messages over a slow link: sent once, in time; `make slow` has all cases."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from qos.testing import LoopbackServer
from qos.testing.xmpp_server import XmppServer
from slow.__main__ import main, shown
from slow.cases import CASES
from slow.comings import COMINGS, Addresses, Crowd
from slow.servers import PASSWORD

BY_NAME = {each.name: each for each in CASES}


#: Six of fifty kB need three seconds, and take hardly more.
CASE = replace(BY_NAME["30 x 50 kB at 100 kB/s"], count=6, limit_s=8.0)


@pytest.mark.looptime
async def test_large_messages_at_a_hundred_kilobytes_a_second() -> None:
    """On a clock of which only the link takes time; the server is in this process."""
    async with LoopbackServer(
        accounts={"alice": PASSWORD, "bob": PASSWORD},
        rosters={
            "alice": {"bob@localhost": "both"},
            "bob": {"alice@localhost": "both"},
        },
    ) as server:
        place = cast(XmppServer, SimpleNamespace(c2s_port=server.port))
        row = await CASE._run("embedded", place)
    assert row.kept, row
    assert "(!)" not in shown([row])
    assert "(!)" in shown([replace(row, requests=1.1)])


@contextlib.asynccontextmanager
async def embedded(*users: str) -> AsyncIterator[LoopbackServer]:
    async with LoopbackServer(accounts=dict.fromkeys(users, PASSWORD)) as server:
        yield server


@pytest.mark.looptime
async def test_a_device_gets_past_an_address_that_swallows() -> None:
    """In the time that the first address has, and a login."""
    (case,) = (each for each in COMINGS if isinstance(each, Addresses))
    async with embedded("alice", "bob") as server:
        place = cast(XmppServer, SimpleNamespace(c2s_port=server.port))
        row = await case.of("embedded", place)
    assert row.kept, row
    assert "(!)" in shown([replace(row, seconds=2.1)])


@pytest.mark.looptime
async def test_devices_come_back_spread_when_their_server_starts_again() -> None:
    """Twenty here, over a longer delay; a crowd in one second is seen."""
    (usual,) = (each for each in COMINGS if isinstance(each, Crowd))
    case = replace(usual, devices=20, first_s=100.0, limit_s=300.0)
    async with embedded(*case.users) as server:
        row = await case.of("embedded", server, server.port)
    assert row.seconds <= case.limit_s
    assert row.crowd is not None
    # A second has a fifth of a device on average.
    assert row.crowd * 20 / 100 <= 6
    assert "(!)" in shown([replace(row, crowd=2.1)])


@pytest.mark.long
@pytest.mark.xmpp
@pytest.mark.parametrize("kind", ["prosody", "ejabberd"])
async def test_large_messages_at_a_hundred_kilobytes_a_second_to_a_real_server(
    kind: str, tmp_path: Path
) -> None:
    """In real time, with a server that has buffers of its own."""
    row = await CASE.run(kind, tmp_path / "server")
    assert row.kept, row


def test_a_server_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By argparse, with those that there are."""
    with pytest.raises(SystemExit):
        main(["--server", "openfire"])
    assert "prosody" in capsys.readouterr().err
