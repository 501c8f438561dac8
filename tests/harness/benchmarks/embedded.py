"""The embedded server in a process of its own: `python -m benchmarks.embedded`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from qos.testing.child import run_commands
from qos.testing.server import LoopbackServer


async def _live() -> None:
    async with AsyncExitStack() as stack:

        async def serve(
            *, accounts: dict[str, str], components: dict[str, str]
        ) -> dict[str, object]:
            server = LoopbackServer(accounts=accounts, components=components)
            await stack.enter_async_context(server)
            return {"port": server.port, "component_port": server.component_port}

        await run_commands([serve])


if __name__ == "__main__":
    asyncio.run(_live())
