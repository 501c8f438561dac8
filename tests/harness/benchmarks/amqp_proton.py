"""A queue by AMQP 1.0 with Qpid Proton: its own thread of events, and its callbacks.

The program of the child processes of `benchmarks.amqp_clients`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from proton import Delivery, Event, Link, Message, Receiver, Sender, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, LinkOption

from benchmarks.queue_roles import WORKERS, call_main
from qos.testing.ports import ADDRESS

_QUEUE = "bench"

#: The most items that a worker has at once; as many as those of the other rows.
_CREDIT = 100

_ANSWER_S_MAX = 20.0


class _Durable(LinkOption):
    """RabbitMQ makes the queue of a link that asks for it, and this makes it durable."""

    def apply(self, link: Link) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.durability = Terminus.CONFIGURATION


class Proton(MessagingHandler):
    """See benchmarks.queue_roles.CallbackLibrary."""

    def __init__(self) -> None:
        super().__init__(prefetch=_CREDIT, auto_accept=False)
        self._loop = asyncio.get_running_loop()
        self._opened = asyncio.Event()
        # How many links have to be opened by the broker.
        self._links = 0
        self._url = ""
        self._user = self._password = ""
        self._sender: Sender | None = None
        self._receivers: list[Receiver] = []
        self._injector = EventInjector()
        self._thread = 0
        # Of the publisher: what is to be called when an item is accepted, by tag.
        self._accepted: dict[str, Callable[[], None]] = {}
        # Of the workers.
        self._confirmed = False
        self._done: Callable[[bytes], None] | None = None
        self._bodies: dict[tuple[str, str], bytes] = {}

    async def connect(self, port: int, **options: Any) -> None:
        """See Library.

        The options are `user` and `password`, and `confirmed`: whether a worker waits
        until the broker settles what it has accepted, or settles it at once.
        """
        self._confirmed = options["confirmed"]
        self._url = f"amqp://{ADDRESS}:{port}"
        self._user, self._password = options["user"], options["password"]

    async def work(self, done: Callable[[bytes], None]) -> None:
        """See Library: each worker is a link, and all of them share a connection."""
        self._done = done
        await self._run(WORKERS)

    async def ready(self) -> None:
        """See CallbackLibrary."""
        if self._sender is None:
            await self._run(1)

    def give(self, item: bytes, accepted: Callable[[], None]) -> None:
        """See CallbackLibrary."""
        if threading.get_ident() == self._thread:
            self._give(item, accepted)
        else:
            event = ApplicationEvent("give", subject=(item, accepted))
            self._injector.trigger(event)

    async def _run(self, links: int) -> None:
        self._links = links
        container = Container(self)
        container.selectable(self._injector)
        threading.Thread(target=container.run, daemon=True).start()
        async with asyncio.timeout(_ANSWER_S_MAX):
            await self._opened.wait()

    def _give(self, item: bytes, accepted: Callable[[], None]) -> None:
        assert self._sender is not None
        # Inferred: the body is a data section.
        delivery = self._sender.send(Message(body=item, inferred=True, durable=True))
        assert isinstance(delivery, Delivery)
        self._accepted[delivery.tag] = accepted

    # -- in proton's thread ------------------------------------------------

    def on_start(self, event: Event) -> None:
        """See MessagingHandler."""
        self._thread = threading.get_ident()
        container = event.container
        connection = container.connect(
            self._url,
            allowed_mechs="PLAIN",
            reconnect=False,
            user=self._user,
            password=self._password,
        )
        if self._done is None:
            self._sender = container.create_sender(
                connection, _QUEUE, options=_Durable()
            )
            return
        self._receivers = [
            container.create_receiver(
                connection, _QUEUE, name=f"worker-{number}", options=_Durable()
            )
            for number in range(self._links)
        ]

    def on_link_opened(self, event: Event) -> None:
        """See MessagingHandler."""
        self._links -= 1
        if not self._links:
            self._loop.call_soon_threadsafe(self._opened.set)

    def on_give(self, event: ApplicationEvent) -> None:
        """Take an item of another thread."""
        self._give(*event.subject)

    def on_accepted(self, event: Event) -> None:
        """See MessagingHandler."""
        assert event.delivery is not None
        self._accepted.pop(event.delivery.tag)()

    def on_message(self, event: Event) -> None:
        """See MessagingHandler."""
        delivery, link = event.delivery, event.link
        assert delivery is not None
        assert link is not None
        assert self._done is not None
        body = bytes(event.message.body)
        if self._confirmed:
            self._bodies[link.name, delivery.tag] = body
            delivery.update(Delivery.ACCEPTED)
        else:
            self.accept(delivery)
            self._done(body)

    def on_settled(self, event: Event) -> None:
        """See MessagingHandler."""
        delivery, link = event.delivery, event.link
        assert delivery is not None
        assert link is not None
        if self._done is not None:
            body = self._bodies.pop((link.name, delivery.tag))
            delivery.settle()
            self._done(body)


if __name__ == "__main__":
    call_main(Proton)
