"""A process that runs one attack after the other; see `attacks`.

It gives way to the processes that it attacks: the processor of an attacker is elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Mapping
from typing import Any

from doors import attacks
from doors.hostile import Counts
from doors.place import Place
from doors.report import ENDED
from qos.testing.child import run_commands

_NICE = 10


async def attack(
    *, name: str, where: Mapping[str, Any], seconds: float
) -> dict[str, object]:
    """Attack for some seconds; returns what was done, by kind."""
    counts = Counts()
    task = asyncio.ensure_future(attacks.ATTACKS[name](Place(**where), counts))
    done, _ = await asyncio.wait((task,), timeout=seconds)
    task.cancel()
    await asyncio.wait((task,))
    if done:
        counts[f"{ENDED}: {task.exception()!r}"] = 1
    return dict(counts)


async def prepare(*, where: Mapping[str, Any]) -> None:
    """Fill the queues of the hostile account."""
    await attacks.prepare(Place(**where))


if __name__ == "__main__":
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run_commands([attack, prepare]))
