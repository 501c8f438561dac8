"""Asks about the queue `orders`, and asks again while its service is killed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, TypeVar

from slixmpp import ClientXMPP

import xep_0254  # noqa: F401 - makes the plugin known
from clients import connected_client
from qos.errors import RequestFailed, RequestRefused
from qos.testing.xmpp_server import XmppServer
from role_processes import RoleProcess
from xep_0254.items import BrowsedItem
from xep_0254.queueing import XEP_0254

QUEUE = "comp.localhost"
NODE = "orders"

#: For an answer of a service that may be killed before it gives one: then it is asked
#: again.
ANSWER_S = 5.0

T = TypeVar("T")


class Asker:
    """A client that asks about queues, and asks again while the service is away."""

    def __init__(self, client: ClientXMPP) -> None:
        self.plugin = XEP_0254.of(client)

    async def create(self, node: str, **options: str) -> None:
        config = {f"queue#{name}": value for name, value in options.items()}
        config["pubsub#access_model"] = "open"
        try:
            await insist(lambda: self.plugin.create(QUEUE, node, config))
        except RequestRefused as error:
            # It was created, and the answer came too late.
            if error.condition != "conflict":
                raise

    async def configure(self, node: str, config: dict[str, str]) -> None:
        await insist(lambda: self.plugin.configure(QUEUE, node, config))

    async def stats(self, node: str) -> dict[str, int | float | None]:
        return await insist(lambda: self.plugin.stats(QUEUE, node))

    async def live(self, node: str) -> list[BrowsedItem]:
        return await insist(lambda: self._browse(node, "live"))

    async def accepted(self, node: str) -> list[BrowsedItem]:
        return await insist(lambda: self._browse(node, "accepted"))

    async def dead(self, node: str) -> list[BrowsedItem]:
        return await insist(lambda: self._browse(node, "dead"))

    async def _browse(
        self, node: str, state: Literal["live", "accepted", "dead"]
    ) -> list[BrowsedItem]:
        browsing = self.plugin.browse(QUEUE, node, state=state)
        return [item async for item in browsing]


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer."""
    while True:
        try:
            return await ask()
        except RequestFailed as error:
            if not error.unreachable:
                raise
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def asker(server: XmppServer, name: str = "carol/asker") -> AsyncIterator[Asker]:
    async with connected_client(
        server, name, {"xep_0254": {"timeout_s": ANSWER_S}}, available=False
    ) as client:
        yield Asker(client)


async def until_empty(ask: Asker, publisher: RoleProcess) -> None:
    """Wait until no item is left to do."""
    assert await asyncio.shield(publisher.ended) == 0
    while True:
        stats = await ask.stats(NODE)
        if not (stats["available"] or stats["acquired"] or stats["delayed"]):
            return
        await asyncio.sleep(0.1)
