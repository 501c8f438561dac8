"""A gateway on loopback with a real store, and clients of other makers.

    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        await bench.proton(lambda client: client.create_sender("orders").send(...))

The XMPP side is a recorder: what goes there is in `bench.xmpp`.
"""

import asyncio
import contextlib
import hashlib
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from proton import ProtonException
from proton.utils import BlockingConnection

from cheap_passwords import cheap_hash, cheap_users
from qos.amqp.gateway import Gateway
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import Notification
from qos.core.queue.item import Item
from qos.core.queue.requests import (
    Create,
    Items,
    Publish,
    PublishedItem,
    Refusal,
    Request,
)
from qos.core.queue.results import ItemsResult, Result
from qos.core.queue.selector_time import Meter
from qos.engine.clock import Clock, LoopClock
from qos.engine.gateway import QueuePorts
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.ids import new_id
from qos.stores.queue_store import SqliteQueueStore
from waiting import LIMIT_S, limit, until

__all__ = [
    "BOSS",
    "DOMAIN",
    "EAGER",
    "Bench",
    "HeldChecks",
    "gateway",
    "rhea",
    "rhea_folder",
]

DOMAIN = "queue.example.org"
BOSS = f"alice@{DOMAIN}/boss"

#: A node in which what was given back comes again at once.
EAGER = {"queue#backoff": "0"}

T = TypeVar("T")


class Xmpp(QueuePort):
    """The port of the XMPP subscribers: it records."""

    def __init__(self) -> None:
        self.items: list[tuple[str, Item, str]] = []
        self.notified: list[Notification] = []
        self.probed: list[str] = []
        self.came = asyncio.Event()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        self.items += [(to, item, payload) for item, payload in items]
        self.came.set()
        return [(new_id(), items)]

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        self.notified.append(notification)

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        self.probed.append(jid)

    def new_id(self) -> str:
        """See QueuePort."""
        return new_id()


class HeldChecks:
    """Checks of passwords in place of scrypt: none of them ends before it is let go.

    Attributes:
        may_end: they are let go.
        ended: the passwords, in the order in which they were checked.
    """

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.ended: list[str] = []

    def __call__(self, password: str, _stored: str) -> bool:
        self.may_end.wait(LIMIT_S)
        self.ended.append(password)
        return not password.startswith("wrong")


class Bench:
    """An engine, a gateway and its port; users alice and bob, each with "secret"."""

    def __init__(
        self,
        folder: Path,
        *,
        bounds: QueueBounds | None = None,
        creators: Collection[str] | None = None,
        clock: Clock | None = None,
        meter: Meter = time.thread_time,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.users_file = folder / "users"
        if not self.users_file.exists():
            secret = cheap_hash("secret")
            self.users_file.write_text(f"alice:{secret}\nbob:{secret}\ncert:*\n")
            self.users_file.chmod(0o600)
        self.xmpp = Xmpp()
        self.ports = QueuePorts(self.xmpp)
        self.store = SqliteQueueStore(folder / "queues.sqlite")
        self.engine = QueueEngine(
            self.store,
            self.ports,
            clock=clock or LoopClock(asyncio.get_running_loop()),
            bounds=bounds,
            creators=creators,
            meter=meter,
        )
        users = cheap_users(self.users_file, DOMAIN)
        self.gateway = Gateway(
            self.engine, **{"users": users, "own_domain": DOMAIN, **options}
        )
        self.ports.add(self.gateway)
        self.port = 0

    async def ask(self, request: Request, jid: str = BOSS) -> Result | Refusal:
        """The answer to a request of an XMPP client."""
        done: asyncio.Future[Result | Refusal]
        done = asyncio.get_running_loop().create_future()

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            done.set_result(result)

        self.engine.request(request, jid, answer)
        return await done

    async def create(self, node: str, **config: str) -> None:
        """A node of alice's, without backoff."""
        options = {f"queue#{name}": value for name, value in config.items()}
        result = await self.ask(Create(node, {**EAGER, **options}))
        assert not isinstance(result, Refusal), result

    async def publish(self, node: str, *payloads: str, jid: str = BOSS) -> None:
        """Publish by XMPP; the ids are xmpp-0 and so on."""
        named = {f"xmpp-{number}": each for number, each in enumerate(payloads)}
        await self.publish_named(node, named, jid=jid)

    async def publish_named(
        self, node: str, payloads: Mapping[str, str], *, jid: str = BOSS
    ) -> None:
        """Publish payloads by XMPP, by the ids of their items."""
        entries = tuple(
            PublishedItem(
                item_id=item_id,
                payload=payload,
                digest=hashlib.sha256(payload.encode()).hexdigest(),
                size=len(payload.encode()),
            )
            for item_id, payload in payloads.items()
        )
        result = await self.ask(Publish(node, entries), jid)
        assert not isinstance(result, Refusal), result

    async def items(self, node: str, state: str = "live") -> dict[str, Item]:
        """The items of a node, by id, page by page."""
        found: dict[str, Item] = {}
        after = ""
        while True:
            result = await self.ask(Items(node=node, state=state, after=after))
            assert isinstance(result, ItemsResult), result
            if not result.items:
                return found
            found |= {item.item_id: item for item in result.items}
            after = str(result.items[-1].seq)

    async def until_items(self, node: str, count: int, state: str = "live") -> None:
        """Wait until there are this many."""
        await until(lambda: self._has(node, count, state))

    async def until_locked(self, node: str, count: int = 1) -> None:
        """Wait until this many are locked."""
        await until(lambda: self._has(node, count, "locked"))

    async def _has(self, node: str, count: int, state: str) -> bool:
        found = await self.items(node, "live" if state == "locked" else state)
        return count == sum(
            state != "locked" or bool(each.token) for each in found.values()
        )

    async def proton(
        self,
        work: Callable[[BlockingConnection], T],
        *,
        user: str = "alice",
        password: str = "secret",  # noqa: S107 - of the bench
        **options: Any,
    ) -> T:
        """Let proton's own client work, in a thread."""
        url = f"amqp://{user}:{password}@127.0.0.1:{self.port}"
        options = {"allowed_mechs": "PLAIN", "timeout": LIMIT_S, **options}

        def run() -> T:
            connection = BlockingConnection(url, **options)
            try:
                return work(connection)
            finally:
                with contextlib.suppress(ProtonException):
                    connection.close()

        return await asyncio.to_thread(run)

    async def rhea(self, what: str, **options: Any) -> list[dict[str, Any]]:
        """Let rhea work; the lines that it prints. See `rhea`."""
        return await rhea(self.port, what, **options)


@contextlib.asynccontextmanager
async def gateway(
    folder: Path, *, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[Bench]:
    """A gateway that serves; options are those of Gateway."""
    bench = Bench(folder, **options)
    bench.engine.online()
    bench.port = await bench.gateway.listen(
        "127.0.0.1", 0, tls=None if tls is None else lambda: tls
    )
    try:
        yield bench
    finally:
        await bench.gateway.aclose()
        await bench.engine.aclose()


def rhea_folder() -> Path:
    """Where rhea is; `make .venv/rhea.stamp` puts it there."""
    return Path(__file__).parents[2] / ".venv" / "rhea" / "node_modules"


async def rhea(
    port: int,
    what: str,
    *,
    told: list[dict[str, Any]] | None = None,
    stays: asyncio.Event | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run tests/amqp/rhea_client.js; returns the lines that it prints.

    Args:
        port: of the gateway.
        what: it does.
        told: gets each line as soon as it is printed.
        stays: it does not close its connection before this is set.
        options: see the script.
    """
    node = shutil.which("node")
    assert node is not None, "node is not installed"
    script = Path(__file__).with_name("rhea_client.js")
    given = {"port": port, "what": what, "user": "alice", **options}
    given["stays"] = stays is not None
    lines = [] if told is None else told
    process = await asyncio.create_subprocess_exec(
        node,
        script,
        json.dumps(given),
        env={"NODE_PATH": str(rhea_folder())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None

    async def let_go() -> None:
        if stays is not None:
            await stays.wait()
        stdin.close()

    letting_go = asyncio.create_task(let_go())
    errors = asyncio.create_task(stderr.read())
    try:
        async with limit():
            async for line in stdout:
                lines.append(json.loads(line))
            await process.wait()
    except TimeoutError:
        raise AssertionError(f"rhea hangs: {lines}") from None
    finally:
        letting_go.cancel()
        stdin.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
        err = await errors
    assert process.returncode == 0, (lines, err)
    return lines
