"""A queue service at an embedded XMPP server, its HTTP gateway, and a device.

async with sending(tmp_path) as bench:
    answer = await bench.post(bench.device_url, Idempotency_Key="k")
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from slixmpp import ClientXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import StanzaPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from cheap_passwords import cheap_hash, cheap_users
from qos.rest.gateway import Gateway
from qos.rest.targets import Targets
from qos.testing.clients import logged_in
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from rest_bench import Response, Web, client
from waiting import limit
from xep_0254.service import QueueService
from xep_qos import XEP_QOS

__all__ = ["DEVICE", "DOMAIN", "SECRET", "SendBench", "sending", "write_files", "xmpp"]

DOMAIN = "queue.localhost"
SECRET = "secret"  # noqa: S105 - of the bench
DEVICE = "lamp@localhost/1"

#: Users of the gateway: accounts of its own, and one of the XMPP server.
ALICE, EVE = f"alice@{DOMAIN}", "eve@localhost"


def xmpp() -> LoopbackServer:
    """An XMPP server with a device, and the component."""
    return LoopbackServer(accounts={"lamp": SECRET}, components={DOMAIN: SECRET})


def write_files(folder: Path) -> tuple[Path, Path]:
    """The files of users and targets."""
    users, targets = folder / "users", folder / "targets"
    if not users.exists():
        secret = cheap_hash("secret")
        users.write_text(f"alice:{secret}\nbob:{secret}\n{EVE}:{secret}\n")
        users.chmod(0o600)
        targets.write_text(
            f"alice: lamp@localhost\n{EVE}: {DEVICE}\n"
            f"* : nobody@localhost/1 @devices.localhost\n"
        )
    return users, targets


class SendBench(Web):
    """The gateway, and what the device has got."""

    def __init__(self, folder: Path, server: LoopbackServer) -> None:
        self.folder = folder
        self.server = server
        self.users, self.targets = write_files(folder)
        self.service: QueueService
        self.rest: Gateway
        self.url = f"/send/{DEVICE.replace('/', '%2F')}"
        self.got: asyncio.Queue[Message] = asyncio.Queue()

    async def once(self, url: str = "", user: str = "alice") -> str:
        """A new one-off link."""
        answer = await self.post(url or self.url, user=user)
        assert (answer.status, answer.body) == (200, b""), answer
        return answer.link("create-next")

    async def outcome(self, sent: Response, **options: str) -> dict[str, Any]:
        """The outcome of a message that was posted; waits for it."""
        assert sent.status == 202, sent
        answer = await self.get(
            sent.headers["Content-Location"], Prefer="wait=30", **options
        )
        assert answer.status == 200, answer
        return dict(json.loads(answer.body))

    async def message(self) -> Message:
        """The next message that the device gets."""
        async with limit():
            return await self.got.get()

    @contextlib.asynccontextmanager
    async def device(self, **options: Any) -> AsyncIterator[ClientXMPP]:
        """The device; its messages come in `got`."""

        def prepare(lamp: ClientXMPP) -> None:
            every = Callback("all", StanzaPath("message"), self._take)
            lamp.register_handler(every)

        trust = f"{ALICE},{EVE}"
        plugins = {XEP_QOS.name: {"trust": trust, **options}}
        async with logged_in(self.server, "lamp/1", plugins, prepare=prepare) as lamp:
            yield lamp

    def _take(self, message: StanzaBase) -> None:
        assert isinstance(message, Message)
        self.got.put_nowait(message)

    @contextlib.asynccontextmanager
    async def serving(self, **options: Any) -> AsyncIterator[None]:
        """Serve, with the same stores each time."""
        store = f"sqlite:{self.folder / 'queues.sqlite'}"
        async with queue_service(
            self.server, DOMAIN, SECRET, store=store, relays=True
        ) as service:
            self.service = service
            self.rest = Gateway(
                service.engine,
                users=cheap_users(self.users, DOMAIN),
                own_domain=DOMAIN,
                relay=service.relay(),
                targets=Targets(self.targets, DOMAIN),
                **options,
            )
            service.add_gateway(self.rest)
            self.web = await self.rest.listen("127.0.0.1", 0)
            try:
                async with client() as self.session:
                    yield
            finally:
                await self.rest.aclose()


@contextlib.asynccontextmanager
async def sending(folder: Path) -> AsyncIterator[SendBench]:
    """A service that serves, without the device."""
    async with xmpp() as server:
        bench = SendBench(folder, server)
        async with bench.serving():
            yield bench
