"""A queue for programs that only publish to it or work on it.

`Queue` only puts together: the plugin xep_0254 publishes, and `Worker` works.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP

from qos import arguments
from qos.core.contents import Json
from qos.engine.retry import Retry
from qos.errors import InvalidArgument, LocalProtocolError
from qos.jids import jid_of
from qos.journal.writer import JournalWriter
from qos.worker import signals
from qos.worker.creation import Creation, node_options
from qos.worker.worker import Handler, Worker
from xep_0254 import client_stanza
from xep_0254.items import NewItem, Published
from xep_0254.queueing import XEP_0254

__all__ = ["Connected", "Queue", "WorkerOptions"]

T = TypeVar("T")

_A_SESSION = (
    "a device of qos.connect that has been entered, or a client or component of slixmpp"
)


class WorkerOptions(TypedDict, total=False):
    """The options of `Queue.run`, for type checkers and editors; see `Worker`."""

    batch: int
    resumable_locks: bool
    durable_locks: bool
    events: Literal["message", "acknowledged"]
    selector: str
    lock_timeout_s: float | None
    resubscribe_s: float
    grace_s: float
    extend: bool
    effects_db: sqlite3.Connection | None
    journal: JournalWriter | None


@runtime_checkable
class Connected(Protocol):
    """The part of a device of `qos.connect` that a queue needs."""

    @property
    def client(self) -> ClientXMPP:
        """The client of slixmpp."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work; end it by CannotConnect if no session can be expected."""


class Queue:
    """A queue at a service, to publish to it and to work on it.

    ::

        async with qos.connect("bee@example.org/1", password, store="memory:") as bee:
            queue = Queue(bee, "queue.example.org", "orders")
            await queue.publish(json={"number": 7})
            await queue.run(pack, parallel=8)  # until SIGTERM or Ctrl-C

    For all other requests there is the plugin, `xep_0254.XEP_0254.of(client)`. To take
    items one by one, use `Worker`.

    Args:
        session: a device of `qos.connect` that has been entered, or a client or component
            of slixmpp.
        service: the queue service.
        node: the queue.
        create: create the queue at the first `publish` or `run`, or by `create`, if it is
            not there. True: with the default options; or options by name, such as `{"lock_timeout": "30"}`,
            with the names that `xmpp-qos queue create --set` takes. A queue that is there
            must belong to this account. It keeps its options, and a warning says which
            differ. False: use the queue that is there.

    Attributes:
        service: the JID of the service, in normal form.
        node: the name of the queue.

    Raises:
        InvalidArgument: an argument has a wrong value.
    """

    def __init__(
        self,
        session: Connected | ClientXMPP | ComponentXMPP,
        service: str | JID,
        node: str,
        *,
        create: bool | Mapping[str, str] = False,
    ) -> None:
        self._client, self._device = _parts(session)
        self.service = jid_of("service", service)
        self.node = arguments.text("node", node, empty=False)
        options = node_options(create)
        self._creates = options is not None
        self._plugin = XEP_0254.of(self._client)
        self._creation = Creation(self._plugin, self.service, self.node, options)
        self._workers: set[Worker] = set()

    async def create(self, *, attempts: int = 5) -> None:
        """Create the queue now, if it is not there; harmless if it is.

        For a queue to which this program neither publishes nor works, such as one for
        dead letters.

        Args:
            attempts: the most attempts.

        Raises:
            LocalProtocolError: this object was made without `create`.
            RequestRefused: not done; also if the queue belongs to another account.
            NoAnswer: no attempt had an answer; it may have been created.
            CannotConnect: the device has ended.
        """
        arguments.whole("attempts", attempts, least=1)
        if not self._creates:
            raise LocalProtocolError("say how: Queue(…, create=True), or with options")
        await self._done(self._create(attempts))

    async def publish(
        self,
        entries: Sequence[NewItem] = (),
        *,
        json: Json = None,
        text: str | None = None,
        attempts: int = 5,
    ) -> list[Published]:
        """Publish items, all or none; they are on the service's disk on return.

        Without an answer the same ids are sent again, and each item is in the queue once;
        see `XEP_0254.publish`.

        Args:
            entries: the items.
            json: a value, which is published as one item in JSON; null has to be
                inside of a value, see NewItem.
            text: likewise, a text.
            attempts: the most attempts of each request.

        Returns:
            Each item, and whether the service had it before.

        Raises:
            InvalidArgument: an argument has a wrong value; nothing was sent.
            MessageTooLarge: the request is larger than the server allows.
            RequestRefused: not done; with `create` also if the queue belongs to another
                account.
            NoAnswer: no attempt had an answer. To be sure, publish the same NewItems
                again.
            CannotConnect: the device has ended.
        """
        if json is not None or text is not None:
            entries = [*entries, NewItem(json=json, text=text)]
        if not self._creation.is_done:
            # Check the request first: a wrong argument creates no queue.
            arguments.whole("attempts", attempts, least=1)
            client_stanza.publish(self.node, entries)
            await self._done(self._create(attempts))
        return await self._done(
            self._plugin.publish(self.service, self.node, entries, attempts=attempts)
        )

    async def run(
        self,
        handler: Handler,
        *,
        parallel: int = 1,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Call the handler for each item, `parallel` at once, until stopped.

        SIGTERM and Ctrl-C stop it in order, and a second one at once; so does `stop`. The
        signals reach only the main thread. While the service is away, at the start too,
        this waits for it. See `Worker.run` for the handler and its exceptions.

        Args:
            handler: a coroutine function, or a plain function, which runs in a thread.
            parallel: the most jobs at a time.
            options: those of `Worker`.

        Raises:
            InvalidArgument: an argument has a wrong value; nothing was begun.
            RequestRefused: the service refuses the first subscribe for good; with
                `create` also if the queue belongs to another account.
            LocalProtocolError: this client has a worker of the queue already.
            CannotConnect: the device has ended.
            UnrecoverableError, StoreFull, OSError, sqlite3.Error: see `Worker.run`.
        """
        worker = _CreatingWorker(
            self._client, self.service, self.node, parallel=parallel, **options
        )
        worker.creation = self._creation
        self._workers.add(worker)
        try:
            if threading.current_thread() is threading.main_thread():
                worker.install_signal_handlers()
            await self._done(worker.run(handler))
        finally:
            self._workers.discard(worker)
            # A worker that never began has not done this itself.
            signals.forget(asyncio.get_running_loop(), worker)

    def stop(self) -> None:
        """End `run` in order; a second call ends it at once.

        Harmless if nothing runs.
        """
        for worker in tuple(self._workers):
            worker.stop()

    async def _create(self, attempts: int) -> None:
        await Retry(self._plugin.backoff).repeat(
            self._creation.make,
            is_temporary=lambda error: error.unreachable,
            pause=self._plugin.pause,
            attempts_max=attempts,
        )

    async def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return await (work if self._device is None else self._device.run(work))


class _CreatingWorker(Worker):
    """A worker that creates its queue before it subscribes.

    The subscription repeats, reports and ends both alike.
    """

    creation: Creation

    async def _before_subscribe(self) -> None:
        await self.creation.make()
        await super()._before_subscribe()


def _parts(session: object) -> tuple[ClientXMPP | ComponentXMPP, Connected | None]:
    """The client, and the device if there is one."""
    if isinstance(session, ClientXMPP | ComponentXMPP):
        return session, None
    # A device that has not been entered has no client yet.
    if isinstance(session, Connected) and isinstance(session.client, BaseXMPP):
        return session.client, session
    raise InvalidArgument("session", session, _A_SESSION)
