"""The least that an HTTP server does with a post; a process for `benchmarks.gateway_rows`."""

from __future__ import annotations

import asyncio

from aiohttp import web

from qos.testing.child import run_commands
from qos.testing.ports import ADDRESS


class _Floor:
    """The commands of the process."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None

    async def serve(self, *, port: int) -> None:
        """Answer posts to one URL, which is found as that of a queue."""
        application = web.Application()
        application.router.add_get("/queues/bench", _links)
        application.router.add_post("/messages", _answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, port).start()


async def _links(_request: web.Request) -> web.Response:
    return web.Response(headers={"Link": '</messages>; rel="post-message"'})


async def _answer(request: web.Request) -> web.Response:
    await request.read()
    return web.Response()


async def _live() -> None:
    await run_commands([_Floor().serve])


if __name__ == "__main__":
    asyncio.run(_live())
