"""A stop of `xmpp-qos worker` takes no longer than its grace time, whatever its server does."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qos.testing.prosody import Prosody
from test_queue_commands_live import Desk
from waiting import LIMIT_S, limit, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(5 * LIMIT_S)]

#: The grace time, and what the whole command may take beyond it on a busy machine.
GRACE_S = 15.0
BEYOND_S = 10.0

#: Begins, and hears no signal that can be ignored.
COMMAND = "trap '' TERM; touch \"$1\"; while :; do sleep 0.1; done"


@pytest.fixture
async def desk(prosody: Prosody, tmp_path: Path) -> AsyncIterator[Desk]:
    """A queue that is served."""
    desk = Desk(prosody)
    await desk.serve(tmp_path / "queue.sqlite")
    options = ("--set", "access_model=open")
    await desk.run("queue", "create", *options, user="alice")
    yield desk
    await desk.close()


@pytest.mark.long
@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("how", ["frozen", "gone"])
async def test_a_stop_ends_within_its_grace_though_no_server_answers(
    how: str, works: bool, desk: Desk, prosody: Prosody, tmp_path: Path
) -> None:
    """A service manager kills what takes longer; then nothing is given back in order."""
    begun = tmp_path / "begun"
    command = ("--", "sh", "-c", COMMAND, "sh", str(begun))
    grace = ("--grace", f"{GRACE_S:g}")
    worker = await desk.start("worker", *grace, *command, user="bob")
    async with limit():
        assert (await worker.stderr.readline()).startswith(b"ready ")
    if works:
        await desk.run("queue", "publish", "--text", "x", user="alice")
        await until(begun.exists)
    if how == "frozen":
        prosody.send_signal(signal.SIGSTOP)
    else:
        await prosody.kill()
        async with limit():
            while b"trying again" not in await worker.stderr.readline():
                pass
    now = asyncio.get_running_loop().time
    stopped_at = now()
    worker.terminate()
    out, err = await worker.communicate(b"")
    took_s = now() - stopped_at
    assert worker.returncode == 0, err.decode()
    assert [json.loads(line)["outcome"] for line in out.splitlines()] == (
        ["released"] if works else []
    )
    assert took_s <= GRACE_S + BEYOND_S
