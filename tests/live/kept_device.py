"""A session that looks often whether its link is alive; and a process that has one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from qos.core.backoff import Backoff
from qos.stream.login import AccountSession
from qos.stream.server import Login

#: In seconds; long enough for a machine that is busy, as tests let them pass.
INTERVAL_S, TIMEOUT_S = 6.0, 24.0

#: For an end that is to look at nothing.
NEVER_S = 1e6


@contextlib.asynccontextmanager
async def session(port: int, user: str, **more: Any) -> AsyncIterator[AccountSession]:
    """A session, once it is online."""
    where: dict[str, Any] = {
        "host": "127.0.0.1",
        "tls": "off",
        "ping_interval_s": INTERVAL_S,
        "ping_timeout_s": TIMEOUT_S,
        **more,
    }
    login = Login.of(
        f"{user}@localhost/1",
        "secret",
        port=port,
        backoff=Backoff(first_s=0.05, max_s=0.1),
        **where,
    )
    async with AccountSession(login, quiet=True) as made:
        made.start()
        await made.work(made.online.wait())
        made.client.send_presence()
        yield made


def until_told(port: int) -> int:
    """Be online until there is a line on stdin; prints how often it was lost."""
    return asyncio.run(_online_until_told(port))


async def _online_until_told(port: int) -> int:
    lost: list[object] = []
    looks = {"ping_interval_s": 0.01, "ping_timeout_s": 0.8}
    async with session(port, "lamp", **looks) as made:
        made.client.add_event_handler("disconnected", lost.append)
        print("online", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print(f"lost: {len(lost)}", flush=True)
    return 0
