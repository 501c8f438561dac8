"""`xmpp-qos queue publish`: puts items into a queue, each once.

The ids are made here, and a publish without an answer is repeated under the same ids:
the service recognizes them.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from qos.cli.lines import stdin_lines
from qos.cli.output import ProgressBar, note, print_json
from qos.cli.queue_client import asked
from qos.cli.status import CommandError, Status
from qos.core.backoff import Backoff
from qos.core.contents import json_payload, read_json, text_payload
from qos.engine.retry import Retry
from qos.errors import (
    LocalProtocolError,
    MessageTooLarge,
    NoAnswer,
    RequestFailed,
    RequestRefused,
    UsageError,
)
from qos.options.login import login_from
from qos.stream.login import AccountSession
from qos.xml_text import text as xml_text
from xep_0254.item_properties import render_properties
from xep_0254.items import Published
from xep_0254.queueing import XEP_0254, NewItem

__all__ = ["run"]

#: The most items in one publish, and the most bytes of their lines. Servers accept
#: larger stanzas, even if each character is escaped.
_BATCH_ITEMS_MAX = 100
_BATCH_BYTES_MAX = 100 * 1024

#: The bytes of markup around each line.
_ITEM_BYTES = 150

#: The number of publishes in flight, and of lines that are read ahead.
_PUBLISHES_MAX = 4
_LINES_AHEAD_MAX = 1000

#: A longer line is above every limit: it is read to its end, and not kept.
_LINE_BYTES_MAX = 1024 * 1024

_BAR_INTERVAL_S = 0.1

#: The options of which one says what is published.
_CONTENTS = ("json", "text", "payload", "file", "lines")

#: Conditions that concern one item; the next item may be accepted.
_FAULTS = frozenset({"bad-request", "conflict", "not-acceptable", "policy-violation"})

#: The condition for too many items: there may be room for fewer.
_FULL = "resource-constraint"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of stdin as an item.

    Attributes:
        number: of the line, from 1.
        item: made from it.
        size: approximate bytes on the wire.
    """

    number: int
    item: NewItem
    size: int


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    options = [
        f"--{name}"
        for name in _CONTENTS
        if getattr(arguments, name) not in {None, False}
    ]
    if not options:
        *most, last = (f"--{name}" for name in _CONTENTS)
        raise UsageError(f"one of {', '.join(most)} and {last} is needed")
    if len(options) > 1:
        raise UsageError(f"{options[0]} and {options[1]} exclude each other")
    if arguments.lines and arguments.id is not None:
        raise UsageError("--id is for one item, and --lines makes one of each line")
    item = None if arguments.lines else _item(arguments)
    lines = _Lines(arguments)
    backoff = login_from(arguments).backoff

    async def ask(session: AccountSession, queueing: XEP_0254) -> int:
        publishing = _Publishing(session, queueing, arguments, backoff)
        if item is None:
            await lines.run(publishing)
            return lines.status
        (published,) = await publishing.publish([item])
        await print_json({"id": item.item_id, **_repeated(published)})
        return Status.DONE

    return await asked(arguments, ask, lambda: "" if item else f"; {lines.result}")


class _Publishing:
    """One run of `publish`."""

    def __init__(
        self,
        session: AccountSession,
        queueing: XEP_0254,
        arguments: argparse.Namespace,
        backoff: Backoff,
    ) -> None:
        self._session = session
        self._queueing = queueing
        self._arguments = arguments
        self._backoff = backoff
        #: The service has answered before: if it is away now, it may come back.
        self._met = False

    async def publish(self, items: Sequence[NewItem]) -> list[Published]:
        """Publish items, all or none; repeat until there is an answer.

        Raises:
            RequestRefused, LocalProtocolError: certainly not done.
            NoAnswer: the time is over, and it may have been done.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._arguments.deadline
        service, node = self._arguments.service, self._arguments.node
        maybe_done = False

        def is_temporary(error: RequestFailed) -> bool:
            nonlocal maybe_done
            maybe_done = maybe_done or isinstance(error, NoAnswer)
            return error.unreachable and (self._met or maybe_done)

        async def online_again(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            async with asyncio.timeout_at(give_up_at):
                await self._session.online.wait()

        published = await Retry(self._backoff).repeat(
            lambda: self._queueing.publish(service, node, items, attempts=1),
            is_temporary=is_temporary,
            pause=online_again,
            give_up_at=give_up_at,
        )
        self._met = True
        return published


class _Lines:
    """Publishes the lines of stdin, many in one publish, several publishes at once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.status = Status.DONE
        self._arguments = arguments
        self._ahead: asyncio.Queue[_Line | None] = asyncio.Queue(_LINES_AHEAD_MAX)
        self._ids = secrets.token_hex(12)
        self._read = 0
        self._published = 0
        self._refused = 0
        self._more = True
        #: The error after which nothing more is published.
        self._failure: CommandError | None = None
        self._reader: asyncio.Task[None] | None = None
        self._bar = ProgressBar()
        self._bar_due_at = 0.0

    @property
    def result(self) -> str:
        """A phrase that says how many lines are published."""
        return f"{self._published} of {self._read} lines are published"

    async def run(self, publishing: _Publishing) -> None:
        """Publish all lines.

        Raises:
            CommandError: a line could not be published, and the later ones cannot
                either.
        """
        slots = asyncio.Semaphore(_PUBLISHES_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                self._reader = group.create_task(self._read_lines())
                while True:
                    # A free slot comes first, then the batch: the more lines wait, the
                    # larger it is.
                    await slots.acquire()
                    batch = await self._batch()
                    if not batch:
                        break
                    task = group.create_task(self._publish(publishing, batch))
                    task.add_done_callback(lambda _: slots.release())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._bar.close()
        if self._failure is not None:
            text = f"{self._failure}; {self.result}"
            raise CommandError(text, self._failure.status)
        note(self.result)

    async def _read_lines(self) -> None:
        try:
            async for line in stdin_lines(_LINE_BYTES_MAX):
                self._read += 1
                if line is None:
                    self._refuse(self._read, f"longer than {_LINE_BYTES_MAX} bytes")
                    continue
                try:
                    text = line.decode()
                    xml_text(text)
                except ValueError as error:
                    self._refuse(self._read, str(error))
                    continue
                await self._ahead.put(self._item(text, len(line)))
        except CommandError as error:
            self._fail(error)
            return
        self._more = False
        await self._ahead.put(None)

    def _item(self, text: str, size: int) -> _Line:
        payload = text_payload(text)
        item = _new_item(self._arguments, payload, f"{self._ids}-{self._read}")
        own = len(render_properties(item.item_id, item.properties))
        return _Line(self._read, item, size + own + _ITEM_BYTES)

    async def _batch(self) -> list[_Line]:
        """The lines for one publish; empty: there are no more lines."""
        batch: list[_Line] = []
        size = 0
        line = await self._ahead.get()
        while line is not None:
            batch.append(line)
            size += line.size
            if len(batch) == _BATCH_ITEMS_MAX or size >= _BATCH_BYTES_MAX:
                break
            if self._ahead.empty():
                break
            line = self._ahead.get_nowait()
        else:
            # The next caller must see the end too.
            self._ahead.put_nowait(None)
        return batch

    async def _publish(self, publishing: _Publishing, batch: list[_Line]) -> None:
        """Publish the lines; a refused line is found by halving the batch."""
        if self._failure is not None:
            return
        try:
            published = await publishing.publish([line.item for line in batch])
            self._published += len(batch)
            await print_json(
                *(
                    {"id": line.item.item_id, "line": line.number, **_repeated(entry)}
                    for line, entry in zip(batch, published, strict=True)
                )
            )
        except NoAnswer as error:
            self._fail(CommandError(f"{_named(batch)}: {error}", Status.IN_DOUBT))
        except (RequestRefused, LocalProtocolError) as error:
            if len(batch) > 1 and _may_be_one(error):
                middle = len(batch) // 2
                await self._publish(publishing, batch[:middle])
                await self._publish(publishing, batch[middle:])
            elif _its_own_fault(error):
                self._refuse(batch[0].number, str(error))
            else:
                text = f"{_named(batch)}: {error}"
                self._fail(CommandError(text, Status.REFUSED))
        except CommandError as error:
            self._fail(error)
        self._show()

    def _refuse(self, number: int, why: str) -> None:
        """Report that this line is not published; others are."""
        self._refused += 1
        self.status = Status.REFUSED
        note(f"line {number}: {why}")

    def _fail(self, error: CommandError) -> None:
        """Publish nothing more; the publishes in flight come to their end."""
        self._failure = self._failure or error
        assert self._reader is not None
        self._reader.cancel()
        while not self._ahead.empty():
            self._ahead.get_nowait()
        self._ahead.put_nowait(None)

    def _show(self) -> None:
        now = asyncio.get_running_loop().time()
        ended_count = self._published + self._refused
        if now >= self._bar_due_at or ended_count == self._read:
            self._bar_due_at = now + _BAR_INTERVAL_S
            self._bar.show(
                ended_count=ended_count,
                read_count=self._read,
                more=self._more,
                trouble=self._refused,
            )


def _repeated(published: Published) -> dict[str, bool]:
    return {"repeated": True} if published.repeated else {}


def _may_be_one(error: RequestRefused | LocalProtocolError) -> bool:
    """Whether a smaller batch may be accepted."""
    if _its_own_fault(error):
        return True
    return isinstance(error, RequestRefused) and error.condition == _FULL


def _its_own_fault(error: RequestRefused | LocalProtocolError) -> bool:
    if isinstance(error, RequestRefused):
        return error.condition in _FAULTS
    return isinstance(error, MessageTooLarge)


def _named(batch: Sequence[_Line]) -> str:
    first, last = batch[0].number, batch[-1].number
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _new_item(
    arguments: argparse.Namespace, payload: ET.Element | str, item_id: str
) -> NewItem:
    return NewItem(
        payload,
        item_id=item_id,
        priority=arguments.priority,
        ttl=arguments.ttl,
        delay=arguments.delay,
        properties=dict(arguments.property),
    )


def _item(arguments: argparse.Namespace) -> NewItem:
    """The item of --json, --text, --payload or --file."""
    item_id = arguments.id or secrets.token_hex(16)
    source, option = arguments.payload, "--payload"
    try:
        if arguments.json is not None:
            option = "--json"
            text = json_payload(read_json(arguments.json))
            return _new_item(arguments, text, item_id)
        if arguments.text is not None:
            option = "--text"
            return _new_item(arguments, text_payload(arguments.text), item_id)
        if arguments.file is not None:
            option = f"--file {arguments.file}"
            source = arguments.file.read_bytes()
        payload = ET.fromstring(source)  # noqa: S314 - the user's own
    except OSError as error:
        raise UsageError(f"{option}: {error.strerror}") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise UsageError(f"{option}: not well-formed: {error}") from None
    return _new_item(arguments, payload, item_id)
