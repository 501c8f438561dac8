"""The crowd of the campaign: its presence draws no question, and a question is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.commands import HomeFiles
from campaign.disk import SmallDisk
from campaign.printed import questions
from hostile_roles import ASKED, CROWDED, Crowd
from qos.testing import friends, logged_in
from role import Connect
from role_processes import Processes
from waiting import until
from xep_qos import XEP_QOS

DOMAIN = "crowd.localhost"
LAMP = "lamp@localhost/1"

#: More than two bursts of the crowd.
MANY = 60


def files_in(folder: Path) -> HomeFiles:
    (folder / "output").mkdir()
    return HomeFiles(folder, SmallDisk(folder / "output", 1))


@pytest.mark.parametrize("asks", [False, True], ids=["ours", "slixmpp alone"])
async def test_presence_of_the_crowd_draws_no_question(
    tmp_path: Path, asks: bool
) -> None:
    """And whoever asks is among the problems of the campaign: slixmpp alone does."""
    files = files_in(tmp_path)
    async with (
        friends("lamp", components={DOMAIN: "secret"}) as server,
        Processes(tmp_path) as processes,
        logged_in(server, "lamp/1") as lamp,
    ):
        if asks:
            await XEP_QOS.of(lamp).aclose()
        connect = Connect(
            jid=DOMAIN,
            password="secret",  # noqa: S106 - in a test
            host=server.host,
            port=server.component_port,
        )
        crowd = await processes.start(
            Crowd(connect=connect, to=(LAMP,), log=str(files.crowd))
        )
        await crowd.until("ready")
        await until(lambda: server.counts["presence"] > MANY)
        if asks:
            await until(lambda: bool(questions(files)))
        await crowd.kill()
    lines = files.crowd.read_text().splitlines()
    assert lines.count(CROWDED) == 1
    assert {line for line in lines if line != CROWDED} == (
        {f"{ASKED} by {LAMP}"} if asks else set()
    )
    assert bool(questions(files)) is asks
