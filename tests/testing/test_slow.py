"""Messages over a slow link: sent once, in time; `make slow` has all cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slow.__main__ import main, shown
from slow.cases import CASES

pytestmark = pytest.mark.xmpp

BY_NAME = {each.name: each for each in CASES}


@pytest.mark.parametrize("kind", ["prosody", "ejabberd"])
async def test_large_messages_at_a_hundred_kilobytes_a_second(
    kind: str, tmp_path: Path
) -> None:
    """Six of fifty kB need three seconds, and take hardly more."""
    case = replace(BY_NAME["30 x 50 kB at 100 kB/s"], count=6, limit_s=8.0)
    row = await case.run(kind, tmp_path / "server")
    assert row.kept, row
    assert "(!)" not in shown([row])
    assert "(!)" in shown([replace(row, requests=1.1)])


def test_a_server_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By argparse, with those that there are."""
    with pytest.raises(SystemExit):
        main(["--server", "openfire"])
    assert "prosody" in capsys.readouterr().err
