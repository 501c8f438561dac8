"""The number of our own calls, and of our modules, that a message and an item take.

Everything is in this process: the clients, the service, and the embedded server, whose
calls are not counted, as little as those in the threads of a store. One message, or item,
is sent after another, and the cheapest is shown.

- message: assured, from `send()` to its outcome; the store is in memory.
- xmpp: an item, from `publish()` by its event to the answer to `retract()`.
- http: an item, from its post by a take to the answer to its acknowledgement. The client is
  aiohttp's.

    python tests/bench/calls.py [message | xmpp | http]...
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

from qos.testing import friends, logged_in, queue_service
from qos.users import Users, hashed_token
from xep_0254 import XEP_0254
from xep_0254.events import Event
from xep_0254.service import QueueService
from xep_qos import XEP_QOS

#: Our modules, and those among them that only tests and benchmarks use.
OURS: Final = ("qos.", "xep_qos", "xep_0254", "xep_0337")
NOT_COUNTED: Final = ("qos.testing", "benchmarks", "qos.cli")

#: The first messages look up the peer's features, and fill caches.
WARM_UP: Final = 20

COUNTED: Final = 25

#: Calls by timers do not belong to a message.
PAUSE_S: Final = 0.01

_SERVICE: Final = "queue.localhost"
_NODE: Final = "orders"

#: Calls by module and function.
Calls: TypeAlias = Counter[tuple[str, str]]


class Profile:
    """Counts calls by module and function while it is on."""

    def __init__(self) -> None:
        self.calls: Calls = Counter()

    def __enter__(self) -> Profile:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        # The methods of a dataclass have no file, but the names of their module.
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(OURS) and not module.startswith(NOT_COUNTED):
                self.calls[module, frame.f_code.co_qualname] += 1


async def _cheapest(send: Callable[[], Awaitable[object]]) -> Calls:
    counts: list[Calls] = []
    for _ in range(WARM_UP + COUNTED):
        with Profile() as profile:
            await send()
        counts.append(profile.calls)
        await asyncio.sleep(PAUSE_S)
    return min(counts[WARM_UP:], key=Counter.total)


async def count() -> Calls:
    """The calls for an assured message."""
    async with (
        friends("alice", "bob") as server,
        logged_in(server, "alice/a") as alice,
        logged_in(server, "bob/b") as bob,
    ):
        bob.add_event_handler("message", lambda _: None)
        return await _cheapest(lambda: XEP_QOS.of(alice).send("bob@localhost/b", "on"))


@asynccontextmanager
async def _queue() -> AsyncIterator[tuple[XEP_0254, QueueService]]:
    """A queue, a client of its owner, and the service."""
    async with (
        friends("alice", components={_SERVICE: "secret"}) as server,
        queue_service(server, _SERVICE, creators="anyone") as service,
        logged_in(server, "alice/a") as alice,
    ):
        alice.register_plugin("xep_0254")
        queueing = XEP_0254.of(alice)
        await queueing.create(_SERVICE, _NODE)
        yield queueing, service


async def count_xmpp_item() -> Calls:
    """The calls for an item that comes and goes by XMPP."""
    async with _queue() as (queueing, _):
        events: asyncio.Queue[Event] = asyncio.Queue()
        queueing.add_listener(_SERVICE, _NODE, events.put_nowait)
        await queueing.subscribe(_SERVICE, _NODE, queue_requests=1)

        async def publish_and_retract() -> None:
            await queueing.publish(_SERVICE, _NODE, text="on")
            item = (await events.get()).items[0]
            await queueing.retract(_SERVICE, _NODE, item.item_id, item.token)

        return await _cheapest(publish_and_retract)


def _users(folder: str) -> Users:
    """The users of the service: alice, by a token."""
    file = Path(folder, "users")
    file.touch(mode=0o600)
    file.write_text(f"alice:{hashed_token('token')}\n", "utf-8")
    return Users(file, "localhost")


async def count_http_item() -> Calls:
    """The calls for an item that comes and goes by HTTP."""
    # These need the extra `rest`.
    import aiohttp

    from qos.rest.gateway import Gateway

    with tempfile.TemporaryDirectory() as folder:
        users = _users(folder)
        async with _queue() as (_, service):
            gateway = Gateway(service.engine, users=users)
            service.add_gateway(gateway)
            try:
                port = await gateway.listen("127.0.0.1", 0)
                base = f"http://127.0.0.1:{port}"
                async with aiohttp.ClientSession(
                    headers={"Authorization": "Bearer token"}
                ) as client:

                    async def post(
                        url: str, data: bytes | dict[str, str] = b""
                    ) -> aiohttp.ClientResponse:
                        async with client.post(url, data=data) as response:
                            assert response.ok, response
                            await response.read()
                            return response

                    async def post_and_take() -> None:
                        queue = f"{base}/queues/{_NODE}"
                        await post(f"{queue}/messages", b"on")
                        message = await post(f"{queue}/consumer")
                        link = message.links["acknowledgement"]["url"]
                        await post(str(link), {"acknowledge": "true"})

                    return await _cheapest(post_and_take)
            finally:
                await gateway.aclose()


#: What is counted, by its name.
COUNTS: Final[dict[str, Callable[[], Awaitable[Calls]]]] = {
    "message": count,
    "xmpp": count_xmpp_item,
    "http": count_http_item,
}


async def _count(name: str) -> Calls:
    return await COUNTS[name]()


def main() -> None:
    """Print the counts, and the functions and modules that are called most."""
    for name in sys.argv[1:] or COUNTS:
        calls = asyncio.run(_count(name))
        modules: Counter[str] = Counter()
        for (module, _), number in calls.items():
            modules[module] += number
        print(f"{name}: {calls.total()} calls of our own in {len(modules)} modules")
        for module, number in sorted(modules.items()):
            print(f"{number:6} {module}")
        print(f"{name}, by function:")
        for (module, function), number in sorted(
            calls.items(), key=lambda pair: (-pair[1], pair[0])
        ):
            print(f"{number:6} {module}.{function}")


if __name__ == "__main__":
    main()
