"""Runs the scenario at one level: the server, the bad link, the doors and the counter."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from qos.core.message.model import Level
from qos.demo import counter, scenario
from qos.demo.device import Device, jid_of, reporting
from qos.demo.process import SpareProcess, Supervisor, told_path
from qos.demo.scenario import DOORS, Passing
from qos.demo.table import Row, reckon
from qos.testing.link import Link
from qos.testing.server import LoopbackServer
from xep_0337 import XEP_0337, EventTag, LogEvent
from xep_qos import XEP_QOS

__all__ = ["Conditions", "Progress", "first_error", "run_level"]

#: The average number of people in a second.
PEOPLE_PER_S: Final = 100.0

#: How long to wait for the end of a message, in seconds; a retry takes at most one.
_OUTCOME_S_MAX = 30.0

#: How long devices may take to come online, in seconds.
_ONLINE_S_MAX = 15.0

#: When nothing has come for this long, in seconds, nothing more is expected. The delay
#: of the link is added.
_QUIET_S = 0.2

_SHOW_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions, which are the same for all levels.

    Attributes:
        seed: decides who passes when, what the link does to the n-th stanza, and at
            which passing the counter is killed.
        messages: the number of people who pass.
        loss: the probability that a stanza is lost.
        cut: the probability that a stanza costs its receiver the connection.
        delay_s: the longest delay of a stanza.
        kills: the number of times that the counter is killed.
    """

    seed: int
    messages: int
    loss: float
    cut: float
    delay_s: float
    kills: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run."""

    level: Level
    sent: int
    messages: int
    counted: int
    stanzas_dropped: int
    cuts: int
    kills: int


async def run_level(
    level: Level,
    conditions: Conditions,
    folder: Path,
    spare: SpareProcess,
    show: Callable[[Progress], object] | None = None,
    journal: Path | None = None,
) -> Row:
    """Let the people pass, and find out what the counter has counted.

    Everything is new: the server, so that nothing from another level comes late, and
    the link, so that it is the same for each level.

    Args:
        level: the level at which the doors report.
        conditions: the conditions of the run.
        folder: for the stores; it must be empty.
        spare: the source of the counter's processes.
        show: called now and then with the progress.
        journal: the folder for the journals of all; None: no journal.

    Raises:
        ProcessDied: the counter has ended by itself.
        TimeoutError: the devices did not come online.
    """
    link = Link(
        f"{conditions.seed}/link",
        loss=conditions.loss,
        cut=conditions.cut,
        delay_s=(0.0, conditions.delay_s),
    )
    passwords = {name: secrets.token_hex(16) for name in (*DOORS, counter.NAME)}
    contacts = {f"{door}@{LoopbackServer.domain}": "both" for door in DOORS}
    began_at = time.monotonic()
    async with LoopbackServer(
        accounts=passwords, rosters={counter.NAME: contacts}, link=link
    ) as server:
        task = {
            "port": server.port,
            "password": passwords[counter.NAME],
            "folder": str(folder),
        }
        kept = told_path(journal)
        supervisor = Supervisor(spare, task | {"journal": kept})
        async with _doors(passwords, server.port, folder, kept) as doors:
            run = _Run(level, conditions, server, link, doors, supervisor)
            await run.run(show)
        stanzas = server.counts["message"] + server.counts["iq"]
        # A stanza that was sent to a client that was away counts, too.
        stanzas += server.counts["refused"]
    return reckon(
        level,
        run.passings,
        passed_at=run.passed_at,
        book=counter.read_book(folder),
        outcomes=dict(run.outcomes),
        stanzas=stanzas,
        stanzas_dropped=link.counts.lost,
        cuts=link.counts.cut,
        kills=supervisor.kills,
        seconds=time.monotonic() - began_at,
    )


def first_error(errors: ExceptionGroup[Exception]) -> Exception:
    """The cause, when one of several tasks has failed and the others were cancelled."""
    error: Exception = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _doors(
    passwords: dict[str, str], port: int, folder: Path, journal: str | None
) -> AsyncIterator[dict[str, Device]]:
    """The doors, connected."""
    doors: dict[str, Device] = {}
    try:
        for name in DOORS:
            doors[name] = Device(
                name,
                password=passwords[name],
                port=port,
                plugins=reporting(folder, name, journal),
            )
            doors[name].start()
        yield doors
    finally:
        for door in doors.values():
            await door.aclose()


class _Run:
    """One run, from the first passing to the last count."""

    def __init__(
        self,
        level: Level,
        conditions: Conditions,
        server: LoopbackServer,
        link: Link,
        doors: dict[str, Device],
        supervisor: Supervisor,
    ) -> None:
        self._level = level
        self._conditions = conditions
        self._server = server
        self._link = link
        self._doors = doors
        self._supervisor = supervisor
        self.passings = scenario.people(
            conditions.seed, conditions.messages, per_s=PEOPLE_PER_S
        )
        self.passed_at: dict[int, float] = {}
        self.outcomes: Counter[str] = Counter()

    async def run(self, show: Callable[[Progress], object] | None) -> None:
        """Do the whole run."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervisor.run())
                shown = group.create_task(self._show(show))
                await self._all_online()
                await self._let_pass()
                await self._quiet()
                await self._supervisor.stop()
                shown.cancel()
        except ExceptionGroup as errors:
            raise first_error(errors) from None

    async def _let_pass(self) -> None:
        """Let all people pass; returns when each message has ended."""
        conditions = self._conditions
        kills = scenario.kills(
            conditions.seed, conditions.kills, among=conditions.messages
        )
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for passing in self.passings:
                await asyncio.sleep(begin + passing.at_s - time.monotonic())
                group.create_task(self._report(passing))
                if passing.number in kills:
                    # The counter cannot have noted the end of this hand-over yet.
                    kill = self._supervisor.kill_soon(counter.COUNTED)
                    group.create_task(kill)

    async def _report(self, passing: Passing) -> None:
        """Report a passing, as a door."""
        self.passed_at[passing.number] = time.monotonic()
        door = self._doors[passing.door]
        event = LogEvent(
            f"{passing.event}.",
            datetime.now(UTC),
            id=passing.event,
            tags=(EventTag(counter.NUMBER, str(passing.number), "xs:int"),),
        )
        message = XEP_0337.of(door.client).make_message(jid_of(counter.NAME), event)
        outcome = "not ended"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OUTCOME_S_MAX):
                delivery = await XEP_QOS.of(door.client).submit(
                    message, level=self._level
                )
                outcome = (await delivery.outcome()).status.value
        self.outcomes[outcome] += 1

    async def _all_online(self) -> None:
        everybody = {jid_of(name) for name in (*DOORS, counter.NAME)}
        async with asyncio.timeout(_ONLINE_S_MAX):
            # The server sends no event for this.
            while not everybody <= self._server.online:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _quiet(self) -> None:
        """Wait until nothing is in flight any more: a plain message, or a repeat."""
        counted = -1
        while counted != self._supervisor.said[counter.COUNTED]:
            counted = self._supervisor.said[counter.COUNTED]
            await self._all_online()
            await asyncio.sleep(self._conditions.delay_s + _QUIET_S)

    async def _show(self, show: Callable[[Progress], object] | None) -> None:
        while show is not None:
            show(
                Progress(
                    self._level,
                    sent=len(self.passed_at),
                    messages=self._conditions.messages,
                    counted=self._supervisor.said[counter.COUNTED],
                    stanzas_dropped=self._link.counts.lost,
                    cuts=self._link.counts.cut,
                    kills=self._supervisor.kills,
                )
            )
            await asyncio.sleep(_SHOW_EVERY_S)
