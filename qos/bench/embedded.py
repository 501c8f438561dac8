"""The embedded server in a process of its own: `python -m qos.bench.embedded`.

Asked `{"accounts": {name: password}}` it answers `{"port": …}`.
"""

from __future__ import annotations

import asyncio

from qos.bench import child
from qos.testing.server import LoopbackServer


async def _serve(asked: child.Asked) -> None:
    accounts = (await asked())["accounts"]
    async with LoopbackServer(accounts=accounts) as server:
        child.say({"port": server.port})
        await asyncio.Event().wait()


if __name__ == "__main__":
    child.run(_serve)
