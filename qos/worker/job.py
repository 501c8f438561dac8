"""A job: an item while a worker has it, and the possible ends of the delivery.

It knows the order of the steps, but nothing of streams: its holder makes the requests.

::

                       settle (an answer came)
    HELD ───────────────────────────────────────────▶ SETTLED (outcome)
      │
      └──▶ LOST   its lock has ended in another way, or a settlement was refused
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import traceback
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.amqp.bodies import body_of
from qos.core.contents import Json, content_of, is_json, read_json
from qos.core.queue.item import Disposition, ItemOutcome
from qos.errors import JobLost, LocalProtocolError, StoreFull, UnrecoverableError
from qos.worker.effects import Effects
from xep_0254.events import DeliveredItem

__all__ = ["Holder", "Job", "cancelled", "unrecoverable"]

log = logging.getLogger(__name__)

#: The longest text of an exception that becomes the reason of a failure.
_REASON_CHARS_MAX = 800

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Holder(Protocol):
    """The object that sends requests to the service for a job."""

    service: str
    node: str

    @property
    def account(self) -> str:
        """The bare JID of the worker."""

    def settle(self, job: Job, how: Disposition) -> None:
        """Begin to settle it; the end of that is one call of `Job.end_settling`."""

    async def extend(self, job: Job, seconds: float) -> float:
        """Return how long the lock lasts."""

    def give_up(self, error: BaseException) -> None:
        """Stop the worker: no other item would fare better."""


class Job:
    """An item to be worked on, as a handler of `Worker.run` gets it.

    An application that takes jobs from `async for job in worker` writes `async with
    job`. On a clean exit of that block the job is accepted. On an exception it is
    modified, as a failed delivery, and the exception is raised again: it ends a loop
    around the block unless it is caught between the two. When the task is cancelled the
    job is released. A settlement inside the block stays. One exception does not leave
    the block: the JobLost of this job. Then `outcome` is None, and `lost` is set.

    Attributes:
        id: of the item.
        node: the name of its node.
        token: fence of this delivery; '' if the service has none.
        payload_text: XML, one element or ''.
        delivery_count: prior unsuccessful deliveries.
        first_acquirer: certainly no worker had it before, since it was published or
            requeued.
        priority: 0 to 9; a larger number is delivered earlier.
        publisher: the JID of its publisher, or ''.
        properties: values that its publisher gave it, by name.
        item: the whole item of the event.
        lost: set when the item does not belong to this worker any more; its work must
            be discarded.
        outcome: its end, once the service has confirmed that; else None.
    """

    def __init__(self, item: DeliveredItem, holder: Holder) -> None:
        self.item = item
        self.id = item.item_id
        self.node = holder.node
        self.token = item.token
        self.payload_text = item.payload
        self.delivery_count = item.delivery_count
        self.first_acquirer = item.first_acquirer
        self.priority = item.priority
        self.publisher = item.publisher
        self.properties = item.properties
        self.lost = asyncio.Event()
        self.outcome: ItemOutcome | None = None
        self._holder = holder
        self._loss: tuple[str, str | None] = ("", None)
        # The outcome that is in flight, and those who wait for its end.
        self._ending: ItemOutcome | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<Job {self.id!r} of {self.node!r}>"

    @property
    def payload(self) -> ET.Element | None:
        """The payload as a new element each time; None: there is none."""
        if not self.payload_text:
            return None
        return ET.fromstring(self.payload_text)  # noqa: S314 - written by qos.xml_text

    def json(self) -> Json:
        """The value of a payload that is JSON (XEP-0335), by whatever protocol it came.

        Raises:
            ValueError: it is none. If the handler lets it pass, the delivery has failed.
        """
        content, media_type = self._content() or (b"", "")
        if not is_json(media_type):
            raise ValueError(f"item {self.id!r} has no JSON")
        return read_json(content)

    def text(self) -> str:
        """The text of a payload that is a text in UTF-8, by whatever protocol it came.

        Raises:
            ValueError: it is none. If the handler lets it pass, the delivery has failed.
        """
        content, media_type = self._content() or (b"", "")
        if not media_type.startswith("text/"):
            raise ValueError(f"item {self.id!r} has no text")
        return content.decode()

    def content(self) -> bytes:
        """The JSON or the text inside the payload, in UTF-8; or a body of HTTP or AMQP.

        A payload that is another element is returned as it is.
        """
        content = self._content()
        return self.payload_text.encode() if content is None else content[0]

    def _content(self) -> tuple[bytes, str] | None:
        """The content of the payload, and its media type."""
        return content_of(self.payload_text) or body_of(self.payload_text)

    @property
    def held(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.outcome is None and not self.lost.is_set()

    @property
    def settling(self) -> bool:
        """Whether its settlement is in flight."""
        return self._ending is not None

    async def settled(self) -> None:
        """Wait for a settlement in flight, if there is one; see accept for errors."""
        if self._ending is not None:
            # A future of one's own: who is cancelled takes nothing with it.
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    # -- its end -----------------------------------------------------------

    async def accept(self) -> None:
        """Report success: delete the item (XEP-0254 §2.3).

        Returns when the service has done so.

        Without an answer the request is repeated with the token until the lock is over;
        the service recognizes a repeat. A caller that is cancelled while waiting can
        wait again; the request goes on meanwhile.

        Raises:
            JobLost: it was not accepted, so discard the work; or, if the reason says
                so, there was no answer, and the result is in doubt.
            LocalProtocolError: it has another outcome.
        """
        await self._settle(Disposition(ItemOutcome.ACCEPTED))

    async def release(self) -> None:
        """Give the item back as if it had not been delivered (XEP-0254 §2.4).

        The delivery does not count. The service does not recognize a repeat, because
        another worker may have the item by then; the same holds for `modify`.

        Raises:
            JobLost, LocalProtocolError: as for accept.
        """
        await self._settle(Disposition(ItemOutcome.RELEASED))

    async def modify(
        self,
        delivery_failed: bool = True,
        undeliverable_here: bool = False,
        reason: str = "",
    ) -> None:
        """Give the item back after a failure.

        Args:
            delivery_failed: it counts; after the maximum of failures the item is dead.
            undeliverable_here: it is not delivered to this full JID again.
            reason: of the failure, for whoever looks at the dead item.

        Raises:
            JobLost, LocalProtocolError: as for accept.
        """
        arguments.flag("delivery_failed", delivery_failed)
        arguments.flag("undeliverable_here", undeliverable_here)
        arguments.text("reason", reason)
        how = Disposition(
            ItemOutcome.MODIFIED,
            delivery_failed=delivery_failed,
            undeliverable_here=undeliverable_here,
            reason=reason,
        )
        await self._settle(how)

    async def reject(self, reason: str = "") -> None:
        """Report that no worker can handle the item: it is dead, with this reason.

        Raises:
            JobLost, LocalProtocolError: as for accept.
        """
        arguments.text("reason", reason)
        await self._settle(Disposition(ItemOutcome.REJECTED, reason=reason))

    async def extend(self, seconds: float) -> float:
        """Keep the lock for this many seconds from now; returns the granted seconds.

        Raises:
            JobLost: the item does not belong to this worker any more.
            RequestFailed: this is not known; ask again.
        """
        arguments.seconds("seconds", seconds)
        self.check_held()
        return await self._holder.extend(self, seconds)

    def effects(self, db: sqlite3.Connection) -> Effects:
        """The effects of this job: `async with job.effects(db) as effects`.

        They happen exactly once. See qos.worker.effects, also for conditions on the
        connection.
        """
        arguments.instance(sqlite3.Connection, "db", db, "a connection of sqlite3")
        return Effects(self, db, service=self._holder.service, by=self._holder.account)

    async def _settle(self, how: Disposition) -> None:
        if self.outcome is how.outcome:
            return
        in_flight = self._ending
        state = self.outcome or in_flight
        if state not in {None, how.outcome}:
            raise LocalProtocolError(
                f"item {self.id!r} cannot be {how.outcome.value}: "
                f"it is {'being ' if in_flight else ''}{state.value}"
            )
        if in_flight is None:
            self.check_held()
            self._ending = how.outcome
            self._holder.settle(self, how)
        await self.settled()

    def end_settling(self, error: BaseException | None = None) -> None:
        """End a settlement in flight; called by the holder.

        Args:
            error: why the outcome in flight is not its outcome, or not known to be;
                None: it is.
        """
        if error is None:
            self.outcome = self._ending
        self._ending = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.done():
                continue  # who waited was cancelled
            if error is None:
                future.set_result(None)
            elif isinstance(error, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(error)

    def check_held(self) -> None:
        """Raise JobLost if it is lost."""
        if self.lost.is_set():
            reason, condition = self._loss
            raise JobLost(self.id, reason, condition=condition)

    def lose(self, reason: str, *, condition: str | None = None) -> None:
        """Mark the job as lost; called by the holder. Harmless if it has ended."""
        if self.held:
            self._loss = (reason, condition)
            self.lost.set()

    # -- async with --------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if exc is not None and unrecoverable(exc):
            self._holder.give_up(exc)
            return False
        try:
            if self.settling:
                # Cancelled while the settlement is in flight, which goes on.
                if exc is None:
                    await self.settled()
            elif self.held:
                await self._end_after(exc)
            else:
                self.check_held()
        except JobLost as lost:
            log.warning("%s", lost)
        return isinstance(exc, JobLost) and exc.item_id == self.id

    async def _end_after(self, exc: BaseException | None) -> None:
        if exc is None:
            await self.accept()
        elif isinstance(exc, Exception | asyncio.CancelledError) and not cancelled(exc):
            await self.modify(reason=_reason_of(exc))
        else:
            await self.release()


def _reason_of(error: BaseException) -> str:
    """The reason that an exception is: its type and text, and where it was raised."""
    text = f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
    last = traceback.extract_tb(error.__traceback__, -1)
    place = [f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last]
    return "".join([text, *place])


def cancelled(error: BaseException) -> bool:
    """Whether the error is the cancellation of the current task.

    If something that the task awaits was cancelled by others, that is a failure like
    any other.
    """
    task = asyncio.current_task()
    is_own = task is not None and task.cancelling() > 0
    return is_own and isinstance(error, asyncio.CancelledError)


def unrecoverable(error: BaseException) -> bool:
    """Whether no other item would fare better here (XEP-0254 §4: "disk full")."""
    if isinstance(error, UnrecoverableError | StoreFull):
        return True
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _NO_SPACE
