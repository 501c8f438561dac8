"""Messages over a slow link: sent once, in time; `make slow` has all cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from qos.testing import LoopbackServer
from qos.testing.xmpp_server import XmppServer
from slow.__main__ import main, shown
from slow.cases import CASES
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
