"""The cost of a far link: the turns and seconds until a message is delivered.

The sender is behind a link with a delay; the receiver is next to the server. Each sample
is a login, and then one message or many at level assured, until the sender knows that
the last one is delivered.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias

import qos
from benchmarks.footprint import Part, Progress, Target
from benchmarks.sample import BenchFailed
from benchmarks.servers import ProsodyServer
from benchmarks.slow_link import SlowLink

__all__ = ["Plan", "measure"]

Tls: TypeAlias = Literal["off", "starttls"]

_RESOURCE = "/1"

#: The most turns from the first byte to the end of the first message, by `tls`.
_TURNS_MAX = {"off": 8, "starttls": 11}

#: The most seconds for the messages of a sample.
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The extent of the measurement.

    Attributes:
        round_trip_s: the delay of both directions together, in seconds.
        messages: how many are sent in the rows with many.
        repeat: the number of samples for each row.
    """

    round_trip_s: float = 0.05
    messages: int = 1000
    repeat: int = 3


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table.

    Attributes:
        tls: as of `qos.connect`.
        is_bare: whether messages are addressed to the bare JID, which has to be
            resolved.
        restarted: whether the store is that of an earlier start.
        messages: their number.
    """

    tls: Tls
    is_bare: bool
    restarted: bool
    messages: int

    @property
    def name(self) -> str:
        address = "bare JID" if self.is_bare else "full JID"
        start = "a later start" if self.restarted else "the first start"
        count = "one message" if self.messages == 1 else f"{self.messages:,} messages"
        return f"{count}, {address}, {start}, TLS {self.tls}"


@dataclass(frozen=True, slots=True)
class _Sample:
    """From the first byte on the link to the end of the last message."""

    turns: int
    seconds: float


async def measure(
    server: ProsodyServer, folder: Path, plan: Plan, progress: Progress
) -> Part:
    """Measure all rows.

    Args:
        server: with TLS, and with its accounts as contacts; started.
        folder: an empty folder.
        plan: the extent.
        progress: gets a description of each step.

    Raises:
        BenchFailed: a message did not arrive.
    """
    samples: dict[_Row, list[_Sample]] = {row: [] for row in _rows(plan)}
    async with _receiver(server):
        for turn, row in itertools.product(range(plan.repeat), samples):
            progress(f"{row.name} ({turn + 1} of {plan.repeat})")
            store = folder / f"{turn}-{row.tls}-{row.is_bare}.db"
            samples[row].append(await _sample(row, server, store, plan))
    return _part(plan, samples)


def _rows(plan: Plan) -> Iterator[_Row]:
    """The rows, in the order of measuring: a later start follows a first one."""
    kinds: tuple[Tls, ...] = ("off", "starttls")
    for tls in kinds:
        for is_bare, restarted in itertools.product((False, True), repeat=2):
            yield _Row(tls, is_bare, restarted, 1)
        yield _Row(tls, False, True, plan.messages)


async def _sample(row: _Row, server: ProsodyServer, store: Path, plan: Plan) -> _Sample:
    """Log in and send, over a link of its own."""
    login = server.sender
    assert login.host is not None
    assert login.port is not None
    to = server.receiver.jid + ("" if row.is_bare else _RESOURCE)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(SlowLink(login.port, plan.round_trip_s))
        device = await stack.enter_async_context(
            qos.connect(
                f"{login.jid}/1",
                login.password,
                host=login.host,
                port=link.port,
                tls=row.tls,
                ca_file=None if row.tls == "off" else server.ca_file,
                store=f"sqlite:{store}",
                receives=False,
            )
        )
        async with asyncio.timeout(_PATIENCE_S):
            outcomes = await asyncio.gather(
                *(device.send(to, "on") for _ in range(row.messages)),
                return_exceptions=True,
            )
        failed = [each for each in outcomes if isinstance(each, BaseException)]
        if failed:
            raise BenchFailed(f"{len(failed)} messages did not arrive: {failed[0]}")
        assert link.first_at is not None
        return _Sample(link.turns, time.monotonic() - link.first_at)


@asynccontextmanager
async def _receiver(server: ProsodyServer) -> AsyncIterator[None]:
    """A receiver next to the server, which accepts each message."""

    async def accept() -> None:
        async for _ in device.messages():
            pass

    login = server.receiver
    device = qos.connect(
        f"{login.jid}{_RESOURCE}",
        login.password,
        host=login.host,
        port=login.port,
        tls="off",
        store="memory:",
    )
    async with device:
        accepting = asyncio.create_task(accept())
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)


def _part(plan: Plan, samples: dict[_Row, list[_Sample]]) -> Part:
    figures: dict[str, object] = {
        "round_trip_s": plan.round_trip_s,
        "messages": plan.messages,
        "rows": [
            {
                "name": row.name,
                "tls": row.tls,
                "to": "bare" if row.is_bare else "full",
                "restarted": row.restarted,
                "messages": row.messages,
                "turns": [each.turns for each in found],
                "seconds": [each.seconds for each in found],
            }
            for row, found in samples.items()
        ],
    }
    middle = {
        row: (
            median(each.turns for each in found),
            median(each.seconds for each in found),
        )
        for row, found in samples.items()
    }
    targets = [
        Target(f"turns of {row.name}", turns, _TURNS_MAX[row.tls])
        for row, (turns, _) in middle.items()
        if row.messages == 1 and row.restarted
    ]
    return Part(
        title=f"a link with a round trip of {plan.round_trip_s * 1000:g} ms",
        head=[("", ""), ("", "turns"), ("", "seconds"), ("messages", "a second")],
        rows=[
            (row.name, f"{turns:g}", f"{seconds:.2f}", _rate(row.messages, seconds))
            for row, (turns, seconds) in middle.items()
        ],
        targets=targets,
        figures=figures,
    )


def _rate(messages: int, seconds: float) -> str:
    """Messages a second; a single message has none."""
    return f"{messages / seconds:,.0f}" if messages > 1 else ""
