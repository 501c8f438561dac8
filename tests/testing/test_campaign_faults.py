"""The faults of the campaign that delay: each does what it says, and then is over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from campaign.faults import DELAYS, KINDS
from campaign.member import Member
from qos.testing import friends, logged_in
from qos.testing.ejabberd import Ejabberd
from qos.testing.prosody import Prosody
from qos.testing.xmpp_server import XmppServer
from queue_roles import Service
from role import Connect
from role_processes import Processes
from slow.servers import limited
from waiting import limit, until
from watch_role import Watch
from xep_0254 import XEP_0254

QUEUE = "queue.localhost"
NOWHERE = Connect(jid="a@localhost/1", password="", host="", port=0)

YEARS_S = 50 * 365 * 86_400.0

#: Longer than any test takes.
NEVER_S = 3_600.0


async def time_of(log: Path) -> float:
    """The time that a process has written down, into a file that was not there."""
    found = 0.0

    def wrote() -> bool:
        nonlocal found
        with contextlib.suppress(OSError, ValueError):
            found = float(log.read_text())
        return found != 0.0

    await until(wrote)
    return found


async def test_a_process_starts_with_a_wrong_clock_and_the_next_one_with_the_right_one(
    tmp_path: Path,
) -> None:
    """Of this account; all others have the right one."""
    log, other = tmp_path / "log", tmp_path / "other"
    async with Processes(tmp_path) as processes:
        bystander = Connect(jid="b@localhost/1", password="", host="", port=0)
        with processes.machine.wrong_clock(NOWHERE.jid, -YEARS_S):
            first = await processes.start(Watch(connect=NOWHERE, log=str(log)))
            await processes.start(Watch(connect=bystander, log=str(other)))
            assert await time_of(log) < time.time() - YEARS_S / 2
            assert await time_of(other) > time.time() - YEARS_S / 2
        await first.kill()
        later = tmp_path / "later"
        await processes.start(Watch(connect=NOWHERE, log=str(later)))
        assert await time_of(later) > time.time() - YEARS_S / 2


def state(pid: int) -> str:
    """One letter, as `ps` shows it; T: it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_member_is_stopped_for_a_while_and_goes_on(tmp_path: Path) -> None:
    """Each kind of member can be, those of the gateways and the commands too."""
    member = Member(
        "watch",
        "publisher",
        lambda _life: Watch(connect=NOWHERE, log=str(tmp_path / "log")),
    )
    async with Processes(tmp_path) as processes:
        assert not await member.freeze(0.0)
        keeping = asyncio.create_task(member.keep(processes))
        pid = (await member.ready()).pid
        freezing = asyncio.create_task(member.freeze(NEVER_S))
        await until(lambda: state(pid) == "T")
        freezing.cancel()
        await asyncio.wait((freezing,))
        await until(lambda: state(pid) != "T")
        keeping.cancel()
        await asyncio.wait((keeping,))


async def test_a_commit_takes_as_long_as_the_disk(tmp_path: Path) -> None:
    """Of a process that was there before. It ends with the fault, or with its time."""
    async with (
        friends("boss", components={QUEUE: "secret"}) as server,
        Processes(tmp_path) as processes,
        logged_in(server, "boss/1", {"xep_0254": {}}) as boss,
    ):
        connect = Connect(
            jid=QUEUE,
            password="secret",  # noqa: S106 - in a test
            host=server.host,
            port=server.component_port,
        )
        service = await processes.start(
            Service(connect=connect, store=str(tmp_path / "queues"))
        )
        await service.until("ready")
        plugin = XEP_0254.of(boss)
        await plugin.create(QUEUE, "orders")
        with processes.machine.slow_disk(NEVER_S):
            publishing = asyncio.create_task(plugin.publish(QUEUE, "orders", text="x"))
            await asyncio.sleep(0.5)
            assert not publishing.done()
        async with limit():
            await publishing
        with processes.machine.slow_disk(0.2):
            async with limit():
                await plugin.publish(QUEUE, "orders", text="y")


@pytest.mark.xmpp
@pytest.mark.parametrize("kind", [Prosody, Ejabberd])
async def test_a_server_has_limits_for_a_while(
    tmp_path: Path, kind: type[XmppServer]
) -> None:
    """It starts with them, and afterwards is configured as before."""
    server = kind(tmp_path, accounts={"alice": "secret"}, components={QUEUE: "x"})
    await server.start()
    before = server._config_file.read_text()
    await server.kill()
    with limited(server):
        text = server._config_file.read_text()
        await server.start()
        await server.kill()
    assert "limits" in text if kind is Prosody else "c2s_shaper" in text
    assert server._config_file.read_text() == before
    assert "error" not in server.log


def test_a_campaign_has_each_fault_that_only_delays() -> None:
    """And it shows how often there was each."""
    roles = ("sender", "receiver", "service", "worker", "publisher", "server")
    assert DELAYS | {f"SIGSTOP {role}" for role in roles} <= set(KINDS)
    assert len(DELAYS) == 5
