"""A publisher and a worker that attach one name twice: on two sessions of a connection.

By AMQP 1.0 (transport §2.6.1) the second link steals the first. So the name goes from
session to session, while there are messages and outcomes under way on the one that loses
it. What has no outcome is sent again, and what was not ended comes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from amqp_frames import (
    DETACH,
    DISPOSITION,
    FALSE,
    FLOW,
    TRANSFER,
    TRUE,
    Frame,
    Frames,
    described,
    transfer,
)
from amqp_roles import item_of
from notebooks import ACCEPTED, REJECTED, Deed, Notebook
from qos.core.amqp import values
from qos.core.amqp.values import NULL, decode, elements
from role import Connect, Role, Say, ended_by_signal, open_log

__all__ = ["TwinPublisher", "TwinWorker"]

#: Seconds for an answer, and before a new connection.
_ANSWER_S, _AGAIN_S = 4.0, 0.1

#: Messages of a batch, and the credit of a worker.
_BATCH, _CREDIT = 4, 6

_NAME = "twin"

#: The codes of outcomes, and those of two sections of a message.
_ACCEPTED, _REJECTED, _RELEASED = 0x24, 0x25, 0x26
_HEADER, _PROPERTIES, _APPLICATION, _VALUE = 0x70, 0x73, 0x74, 0x77

_OUTCOMES = {ACCEPTED: _ACCEPTED, REJECTED: _REJECTED}

#: What becomes of deliveries, of a hundred: the rest is accepted.
_GIVEN_BACK, _REFUSED = 6, 4


class _LostError(Exception):
    """The connection is lost, or does not answer."""


@dataclass
class _Link:
    """One of the two links, by what has come for it.

    Attributes:
        channel: of its session.
        handle: of its present life.
        credit: of a sender, without what it has sent.
        outcomes: of settled deliveries, by delivery-id: the code of their state.
        came: the deliveries that have come: delivery-id and payload.
        part: the payload of one that has not come as a whole.
        gone: it was detached by the service.
    """

    channel: int
    handle: int = 0
    credit: int = 0
    outcomes: dict[int, int] = field(default_factory=dict)
    came: list[tuple[int, bytes]] = field(default_factory=list)
    part: bytes = b""
    gone: bool = True


class _Twins:
    """A connection with two sessions, and up to one link of the name on each."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        #: The link whose turn it is comes first.
        self.links = [_Link(0), _Link(1)]
        self.next_id = [0, 0]
        self._of_channel = list(self.links)
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    def close(self) -> None:
        """Go without a word."""
        self._reading.cancel()
        self.frames.abort()

    async def until(self, link: _Link, count: int, *, stop_s: float) -> None:
        """Wait for so many deliveries, or for that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(stop_s):
                while len(link.came) < count and not link.gone:
                    await self.change()

    async def change(self) -> None:
        """Wait until anything has come."""
        if self._reading.done():
            raise _LostError
        self._more.clear()
        await self._more.wait()

    async def steal(self, link: _Link) -> None:
        """Wait until the link can be attached: its last life has ended."""
        async with asyncio.timeout(_ANSWER_S):
            while not link.gone:
                await self.change()
        link.handle += 1
        link.credit, link.gone = 0, False
        link.outcomes.clear()
        link.came.clear()

    async def _read(self) -> None:
        try:
            async for frame in self.frames.frames():
                self._take(frame)
                self._more.set()
        except OSError:
            pass
        finally:
            self._more.set()

    def _take(self, frame: Frame) -> None:
        link = self._of_channel[frame.channel % 2]
        if frame.code == FLOW and frame.field(4) != NULL:
            link.credit = frame.number(5) + frame.number(6)
        elif frame.code == DETACH:
            link.gone = True
            self.frames.detach(handle=link.handle, channel=link.channel)
        elif frame.code == DISPOSITION and frame.flag(3):
            first = frame.number(1)
            for number in range(first, frame.number(2, first) + 1):
                link.outcomes[number] = frame.state(4)
        elif frame.code == TRANSFER:
            link.part += frame.payload
            if not frame.flag(5):
                link.came.append((frame.number(1), link.part))
                link.part = b""


@contextlib.asynccontextmanager
async def _connected(connect: Connect) -> AsyncIterator[_Twins]:
    """A connection of the role.

    Raises:
        _LostError: there is none, or it was refused.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            streams = await asyncio.open_connection(connect.host, connect.port)
            frames = Frames(*streams)
            if not await frames.log_in(connect.jid, connect.password):
                raise _LostError
            frames.open(f"twins-{os.getpid()}", channels=2)
    except (OSError, EOFError, TimeoutError):
        raise _LostError from None
    twins = _Twins(frames)
    try:
        yield twins
    except (OSError, TimeoutError):
        raise _LostError from None
    finally:
        twins.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinPublisher(Role):
    """Publishes a batch on each of two links of one name, in turn.

    The second link steals the first while its batch is under way.

    Attributes:
        node: the queue.
        published: the file with the ids of items that are there, a line each.
        pause_s: after each batch.
    """

    node: str
    published: str
    pause_s: float

    async def live(self, say: Say) -> None:
        """See Role."""
        ends = ended_by_signal()
        say("ready")
        log = open_log(self.published)
        first = _lines(self.published)
        while True:
            with contextlib.suppress(_LostError):
                async with _connected(self.connect) as twins:
                    while True:
                        numbers = range(first, first + 2 * _BATCH)
                        await self._publish(twins, numbers)
                        lines = "".join(f"string:t{number}\n" for number in numbers)
                        os.write(log, lines.encode())
                        first += 2 * _BATCH
                        if ends.is_set():
                            return
                        await asyncio.sleep(self.pause_s)
            await asyncio.sleep(_AGAIN_S)

    async def _publish(self, twins: _Twins, numbers: range) -> None:
        """Publish some of them on each link in turn, and again what has no outcome."""
        left = set(numbers)
        turns = itertools.cycle(twins.links)
        while left:
            some = random.sample(sorted(left), min(_BATCH, len(left)))
            left -= await self._send(twins, next(turns), some)
        if next(turns) is twins.links[1]:
            twins.links.reverse()

    async def _send(self, twins: _Twins, link: _Link, some: list[int]) -> set[int]:
        """Take the name over to this link, and send; returns what was accepted.

        Some of the time nobody waits for the outcomes: the other link takes the name.
        """
        await twins.steal(link)
        twins.frames.attach_sender(
            *(_NAME, self.node), handle=link.handle, channel=link.channel
        )
        async with asyncio.timeout(_ANSWER_S):
            while link.credit < len(some):
                if link.gone:
                    return set()
                await twins.change()
        sent = {}
        for each in some:
            number = twins.next_id[link.channel]
            twins.next_id[link.channel] += 1
            sent[number] = each
            data = transfer(
                number, _message(each), handle=link.handle, channel=link.channel
            )
            twins.frames.write(data)
        if random.random() < 0.5:
            async with asyncio.timeout(_ANSWER_S):
                while len(link.outcomes) < len(sent) and not link.gone:
                    await twins.change()
        else:
            await asyncio.sleep(random.uniform(0, 0.01))
        return {
            sent[number]
            for number, state in link.outcomes.items()
            if state == _ACCEPTED and number in sent
        }


def _message(number: int) -> bytes:
    """A message with its id, its parity and a text."""
    parity = values.pack_map((values.string("parity"), values.long(number % 2)))
    return b"".join(
        (
            described(_PROPERTIES, values.string(f"t{number}")),
            b"\x00" + values.ulong(_APPLICATION) + parity,
            b"\x00" + values.ulong(_VALUE) + values.string(f"work {number}"),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinWorker(Role):
    """Takes messages on two links of one name, in turn, and ends them.

    Attributes:
        node: the queue.
        notebook: its file.
        work_s: how long it works on a message, at most.
    """

    node: str
    notebook: str
    work_s: float

    async def live(self, say: Say) -> None:
        """See Role."""
        ends = ended_by_signal()
        say("ready")
        book = Notebook(self.notebook)
        while not ends.is_set():
            with contextlib.suppress(_LostError):
                async with _connected(self.connect) as twins:
                    while not ends.is_set():
                        for link in twins.links:
                            await self._work(twins, link, book)
            await asyncio.sleep(_AGAIN_S)

    async def _work(self, twins: _Twins, link: _Link, book: Notebook) -> None:
        """Take the name over to this link, and end what comes, but not all of it."""
        (other,) = (each for each in twins.links if each is not link)
        await twins.steal(link)
        twins.frames.attach_receiver(
            *(_NAME, self.node),
            credit=_CREDIT,
            handle=link.handle,
            channel=link.channel,
        )
        # What is left of the other link comes again, to anybody, and is not counted.
        async with asyncio.timeout(_ANSWER_S):
            while not other.gone:
                await twins.change()
        for _, message in other.came:
            item, count = _read(message)
            book.took(item, count)
            book.gives_back(item, count)
        other.came.clear()
        await twins.until(link, random.randrange(1, _CREDIT), stop_s=0.5)
        told = []
        while link.came and random.random() < 0.8:
            told.append(await self._end(twins, link, *link.came.pop(0), book))
        if random.random() < 0.7:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    while any(number not in link.outcomes for number, _ in told):
                        await twins.change()
        for number, deed in told:
            if deed is not None and number in link.outcomes:
                confirmed = link.outcomes[number] == _OUTCOMES[deed.outcome]
                book.answered(deed.delivery, confirmed=confirmed)

    async def _end(
        self, twins: _Twins, link: _Link, number: int, message: bytes, book: Notebook
    ) -> tuple[int, Deed | None]:
        """Tell the outcome of a delivery; returns its id, and what must be confirmed."""
        item, count = _read(message)
        book.took(item, count)
        await asyncio.sleep(random.uniform(0, self.work_s))
        chance = random.randrange(100)
        deed = None
        if chance < _GIVEN_BACK:
            book.gives_back(item, count)
            outcome = _RELEASED
        else:
            rejected = chance < _GIVEN_BACK + _REFUSED
            deed = Deed(item, REJECTED if rejected else ACCEPTED, uuid.uuid4().hex)
            book.ends(deed)
            outcome = _OUTCOMES[deed.outcome]
        twins.frames.send(
            *(DISPOSITION, TRUE, values.uint(number), NULL, FALSE),
            described(outcome),
            channel=link.channel,
        )
        return number, deed


def _read(message: bytes) -> tuple[str, int]:
    """The id of the item of a message, and its delivery count."""
    name, count = "", 0
    at = 0
    while at < len(message):
        code = message[at + 2]
        start = at + 3
        at = values.end_of(message, start)
        if code in {_HEADER, _PROPERTIES}:
            fields = elements(message[start:at])
            if code == _PROPERTIES:
                _, value = decode(fields[0])
                name = str(value)
            elif len(fields) > 4 and fields[4] != NULL:
                _, value = decode(fields[4])
                count = value if isinstance(value, int) else 0
    return item_of(name), count


def _lines(path: str) -> int:
    return Path(path).read_bytes().count(b"\n")
