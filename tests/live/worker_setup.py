"""A queue service on the embedded server, with other helpers for tests of workers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, ComponentXMPP

from qos.testing import LoopbackServer
from qos.testing.clients import close
from qos.worker import Job, Worker
from raw_client import RawComponent, local, stanza
from waiting import LIMIT_S, until
from xep_0254 import XEP_0254, NewItem, QueueService

QUEUE = "queue.localhost"
BEES = "bees.localhost"
NODE = "orders"
SECRET = "secret"  # noqa: S105 - of components that only exist inside a test


class Queue:
    """The queue service, which can stop and start again, and a node of it.

    Attributes:
        owner: the plugin of a client that created the node.
    """

    def __init__(self, server: LoopbackServer, path: Path, owner: ClientXMPP) -> None:
        self.owner = XEP_0254.of(owner)
        self._server = server
        self._url = f"sqlite:{path}"
        self._running: tuple[ComponentXMPP, QueueService] | None = None

    async def start(self) -> None:
        component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            QUEUE, SECRET, self._server.host, self._server.component_port
        )
        self._running = component, QueueService(component, self._url)
        component.connect()
        await component.wait_until("session_start", timeout=LIMIT_S)

    async def stop(self) -> None:
        if self._running is not None:
            component, service = self._running
            self._running = None
            await service.aclose()
            await close(component)

    async def create(self, **config: object) -> None:
        """Create the node; config by the names of fields, without `queue#`.

        There is no backoff, so that an item given back comes again at once.
        """
        config = {"backoff": 0, **config}
        fields = {f"queue#{name}": str(value) for name, value in config.items()}
        fields["pubsub#access_model"] = "open"
        await self.owner.create(QUEUE, NODE, fields)

    async def publish(self, *item_ids: str) -> None:
        """Publish items whose payload is their name."""
        items = [NewItem(f"<job xmlns='u:job'>{each}</job>", each) for each in item_ids]
        await self.owner.publish(QUEUE, NODE, items)

    async def stats(self) -> dict[str, int | float | None]:
        return await self.owner.stats(QUEUE, NODE)

    async def until(self, **wanted: int) -> None:
        """Wait until the node has these counts."""
        stats: dict[str, int | float | None] = {}

        async def are_so() -> bool:
            nonlocal stats
            stats = await self.stats()
            return wanted.items() <= stats.items()

        try:
            await until(are_so)
        except TimeoutError:
            raise AssertionError(f"wanted {wanted}, there is {stats}") from None

    async def reasons(self) -> list[str]:
        """The reasons of the dead items."""
        found = self.owner.browse(QUEUE, NODE, state="dead")
        return [each.reason async for each in found]


class ScriptedService:
    """A scripted queue service: it does what the test says, and nothing else."""

    def __init__(self, component: RawComponent) -> None:
        self.component = component

    @contextlib.asynccontextmanager
    async def worker(self, client: ClientXMPP, **options: Any) -> AsyncIterator[Worker]:
        """A worker that may end without order: nobody answers it then."""
        async with Worker(client, QUEUE, NODE, grace_s=0, **options) as worker:
            yield worker
            await self.component.close()

    @contextlib.asynccontextmanager
    async def holding(
        self, client: ClientXMPP, *, item: tuple[str, str] = ("i", "t"), **options: Any
    ) -> AsyncIterator[tuple[Worker, Job]]:
        """A worker that holds one item, given by its id and token."""
        async with self.worker(client, **options) as worker:
            await self.subscribe()
            await self.deliver(*item)
            yield worker, await anext(worker)

    async def subscribe(self) -> ET.Element:
        """Accept the subscription of a worker; returns its request."""
        await self.component.expect(stanza("presence"))
        request = await self.asked("subscribe")
        await self.answer(request)
        return request

    async def asked(self, name: str) -> ET.Element:
        """The next request with this element."""

        def matches(element: ET.Element) -> bool:
            names = {local(each) for each in element.iter()}
            return local(element) == "iq" and name in names

        return await self.component.expect(matches)

    async def answer(self, request: ET.Element, content: str = "") -> None:
        head = f"type='result' id='{request.get('id')}' from='{QUEUE}'"
        await self.component.send(
            f"<iq {head} to='{request.get('from')}'>{content}</iq>"
        )

    async def extended(self, request: ET.Element, seconds: float) -> None:
        """Answer a request to extend a lock."""
        await self.answer(
            request,
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'>"
            f"<extend xmlns='xmpp-qos:queue:0' node='{NODE}' seconds='{seconds}'/>"
            "</pubsub>",
        )

    async def refuse(
        self,
        request: ET.Element,
        condition: str,
        type_: str = "cancel",
        *,
        by: str = QUEUE,
    ) -> None:
        """Refuse a request, in the name of the service, of another, or ('') of nobody."""
        namespace = "urn:ietf:params:xml:ns:xmpp-stanzas"
        head = f"type='error' id='{request.get('id')}' from='{QUEUE}'"
        said = f" by='{by}'" if by else ""
        await self.component.send(
            f"<iq {head} to='{request.get('from')}'><error type='{type_}'{said}>"
            f"<{condition} xmlns='{namespace}'/></error></iq>"
        )

    async def event(self, content: str, *, to: str = "bee@localhost/1") -> None:
        """Send an event with these contents of `<event/>`."""
        await self.component.send(
            f"<message from='{QUEUE}' to='{to}'>"
            "<event xmlns='http://jabber.org/protocol/pubsub#event'"
            f" xmlns:q='xmpp-qos:queue:0'>{content}</event></message>"
        )

    async def deliver(
        self, item_id: str, token: str, *, to: str = "bee@localhost/1"
    ) -> None:
        """Send an item."""
        item = f"<item id='{item_id}' q:token='{token}'/>"
        await self.event(f"<items node='{NODE}'>{item}</items>", to=to)

    async def in_step(self) -> None:
        """Return when the worker has seen everything that was sent before."""
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        await self.component.send(
            f"<iq type='get' id='step' from='{QUEUE}' to='bee@localhost/1'>{ping}</iq>"
        )
        await self.component.expect(stanza("iq", id="step"))


def token_in(request: ET.Element) -> str | None:
    """The token in a request of a worker."""
    (item,) = (each for each in request.iter() if local(each) == "item")
    return item.get("{xmpp-qos:queue:0}token")


class LogIn(Protocol):
    """Logs a client in, until the end of the test."""

    async def __call__(self, name: str, **plugins: Any) -> ClientXMPP: ...


class Handler:
    """A handler that handles jobs as a test wants.

    Attributes:
        jobs: all jobs of its calls.
        go_on: it waits for this before it returns; set from the beginning.
    """

    def __init__(self, *failures: BaseException) -> None:
        """Raise these errors, one in each of the first calls."""
        self.jobs: list[Job] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._failures = list(failures)

    @property
    def ids(self) -> list[str]:
        return [job.id for job in self.jobs]

    async def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        await self.go_on.wait()
        if self._failures:
            raise self._failures.pop(0)
