"""Disks that take their time, lose unsynced data, and fail when told to.

A disk outlives the processes that use it. Writes reach it in commits, one at a time
(`qos.stores.group_commit`, the real one). After half of a commit's time the data is on
the disk; after the rest the process hears of it. A process killed in between has
written it without knowing. A commit that fails for lack of space has written nothing;
one that fails with EIO may have written.

This module knows the promises of stores, but not their use.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from qos.core.message.effects import End, Save
from qos.core.message.model import (
    Ended,
    Incoming,
    IncomingState,
    Outgoing,
    OutgoingState,
)
from qos.core.wall_clock import ClockHistory, shift
from qos.engine.clock import Clock
from qos.errors import StoreError, StoreFull
from qos.stores.base import (
    Change,
    Contents,
    Journal,
    Parameters,
    Remember,
    accounts_of,
)
from qos.stores.group_commit import GroupCommit
from qos.stores.memory import MemoryStore
from qos.stores.times import happened_at, moved

__all__ = [
    "COMMIT_S",
    "Commits",
    "Disk",
    "Effect",
    "MessageDisk",
    "SimulatedStore",
]

#: An fsync of a usual disk.
COMMIT_S = 0.003

_Change = TypeVar("_Change")


@dataclass(frozen=True, slots=True)
class Effect:
    """A write of an application in a transaction."""

    sql: str


class Disk(Generic[_Change]):
    """A machine's disk with one store.

    Attributes:
        name: of the machine.
        commits: how many were begun, failed ones included.
        failures: how many have failed.
        fails: whether this commit (1: the first) fails, and how.
        slow: how many seconds longer this commit (likewise) takes.
        full: all commits fail for lack of space.
        busy_until: when the last commit ends, or has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits = self.failures = 0
        self.full = False
        self.busy_until = -math.inf
        self.fails: Callable[[int], StoreError | None] = _never
        self.slow: Callable[[int], float] = _at_once
        #: Changes of a failed commit that may be there all the same after a restart.
        self._unsure: Sequence[_Change] = ()

    def begin(self) -> StoreError | None:
        """Begin a commit; returns how it will fail, if it does."""
        self.commits += 1
        if self.full:
            return StoreFull(f"sim:{self.name}", "no space left on device")
        return self.fails(self.commits)

    def refusal(self, _changes: Sequence[_Change]) -> StoreError | None:
        """Why these changes cannot be made, with any disk; None: they can."""
        return None

    def left(self, changes: Sequence[_Change], error: StoreError | None) -> None:
        """A commit has begun, and will end in this way: decide on its changes.

        A write or an fsync that fails with EIO says nothing about the disk. The process
        is told that its commit has failed, and sees the former contents. A process that
        opens the disk later may find the changes there, unless something was written
        since. Here that happens for every second one.
        """
        if error is None:
            self._unsure = ()
            return
        self.failures += 1
        if not isinstance(error, StoreFull) and self.commits % 2:
            self._unsure = changes

    def recover(self) -> None:
        """A process opens the disk."""
        changes, self._unsure = self._unsure, ()
        if changes:
            self.apply(changes)

    def apply(self, changes: Sequence[_Change]) -> None:
        """Apply changes that are synced."""
        raise NotImplementedError


class MessageDisk(Disk[Change | Effect]):
    """The records of one endpoint.

    Attributes:
        store_id: of the store.
        kept: the contents.
        last_seq: the largest that was ever there.
    """

    def __init__(
        self,
        name: str,
        store_id: str,
        expired: Callable[[str], None] = lambda _: None,
        written: Callable[[str], None] = lambda _: None,
        keeps: Callable[[Incoming], None] = lambda _: None,
    ) -> None:
        """Begin empty.

        Args:
            name: of the machine.
            store_id: of the store.
            expired: called with the id of a message that was held for too long.
            written: called with the writes of an application.
            keeps: called with what is written of each message that came.
        """
        super().__init__(name)
        self._expired = expired
        self._written = written
        self._keeps = keeps
        self.kept = MemoryStore()
        self.kept.open()
        self.store_id = store_id
        self.last_seq = 0
        #: Named values.
        self.remembered: dict[str, str] = {}
        self.clock = ClockHistory()

    def apply(self, changes: Sequence[Change | Effect]) -> None:
        """See Disk."""
        for change in changes:
            if isinstance(change, Effect):
                self._written(change.sql)
                continue
            if isinstance(change, Remember):
                self.remembered[change.name] = change.value
            self.kept.write((change,))
            if not isinstance(change, Save):
                continue
            if isinstance(change.record, Outgoing):
                self.last_seq = max(self.last_seq, change.record.seq)
                continue
            self._keeps(change.record)
            if change.record.state is IncomingState.EXPIRED:
                self._expired(change.record.msg_id)

    def move(self, now: float) -> None:
        """Move all times, if they do not fit to the present time."""
        kept: list[Outgoing | Incoming] = [*self.kept.outgoing(), *self.kept.incoming()]
        ended = list(self.kept.ended())
        records: list[Outgoing | Incoming | Ended] = [*kept, *ended]
        times = (at for each in records for at in happened_at(each))
        by_s, self.clock = shift(max(times, default=None), now, self.clock)
        if by_s:
            self.kept.write([Save(moved(each, by_s)) for each in kept])
            self.kept.write([End(moved(each, by_s)) for each in ended])

    def contents(self) -> Contents:
        """The contents that a process finds at its start."""
        outgoing = list(self.kept.outgoing())
        queued: dict[str, int] = {}
        for record in outgoing:
            if record.state is OutgoingState.QUEUED:
                queued[record.flow] = queued.get(record.flow, 0) + 1
        in_flight = {OutgoingState.OFFERED, OutgoingState.RELEASING}
        return Contents(
            outgoing=[record for record in outgoing if record.state in in_flight],
            queued=queued,
            outbox_messages=len(outgoing),
            outbox_bytes=sum(record.size for record in outgoing),
            accounts=accounts_of(outgoing),
            next_seq=self.last_seq + 1,
            incoming=list(self.kept.incoming()),
            remembered=dict(self.remembered),
        )


class Commits(Generic[_Change]):
    """The commits of one process to a disk.

    Attributes:
        killed: the process is dead.
    """

    def __init__(self, disk: Disk[_Change], clock: Clock) -> None:
        self.killed = False
        self._disk = disk
        self._clock = clock
        self._group = GroupCommit(self._start)

    @property
    def journal(self) -> Journal:
        """It is ahead of each commit."""
        return self._group.journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        self._group.journal = journal

    def write(self, changes: Sequence[_Change]) -> asyncio.Future[None] | None:
        return self._group.write(changes) if changes else None

    async def drain(self) -> None:
        await self._group.drain()

    async def take_turn(self) -> None:
        await self._group.take_turn()

    def end_turn(self) -> None:
        self._group.end_turn()

    def commit(self, changes: list[_Change]) -> asyncio.Future[None]:
        """Commit in a turn that was taken, and end the turn."""
        done = self._start(changes, None)
        done.add_done_callback(lambda _done: self.end_turn())
        return done

    def _start(
        self, changes: list[_Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        if before is not None:
            before()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        error = self._disk.refusal(changes)
        if error is None:
            error = self._disk.begin()
            self._disk.left(changes, error)
        takes_s = COMMIT_S + self._disk.slow(self._disk.commits)
        now = self._clock.now()
        self._disk.busy_until = now + takes_s

        def synced() -> None:
            if not self.killed:
                self._disk.apply(changes)

        def ended() -> None:
            if self.killed:
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        if error is None:
            self._clock.call_at(now + takes_s / 2, synced)
        self._clock.call_at(now + takes_s, ended)
        return done


class SimulatedTransaction:
    """The interface of `qos.stores.sqlite_transaction` on a simulated disk.

    See Transaction.
    """

    def __init__(self, commits: Commits[Change | Effect]) -> None:
        self._commits = commits
        self._effects: list[Change | Effect] = []
        self._begun = self._ended = False

    @property
    def is_open(self) -> bool:
        """See Transaction."""
        return self._begun and not self._ended

    async def begin(self) -> None:
        """See Transaction."""
        if not self._begun:
            await self._commits.take_turn()
            self._begun = True

    async def execute(
        self, sql: str, _parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """See Transaction."""
        await self.begin()
        self._effects.append(Effect(sql))
        return []

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """See Transaction."""
        self._ended = True
        if not self._begun:
            return self._commits.write(changes)
        return self._commits.commit([*changes, *self._effects])

    def rollback(self) -> None:
        """See Transaction."""
        if self.is_open:
            self._commits.end_turn()
        self._ended = True


class SimulatedStore:
    """A store of messages on a disk, opened by one process; see Store."""

    durable = True

    def __init__(
        self,
        disk: MessageDisk,
        clock: Clock,
        effect: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the store.

        Args:
            disk: with the records.
            clock: of the process.
            effect: called before each write.
        """
        self.url = f"sim:{disk.name}"
        self.store_id = disk.store_id
        self.journal: Journal | None = None
        self.disk = disk
        self._clock = clock
        self._commits: Commits[Change | Effect] = Commits(disk, clock)
        self._effect = effect

    def kill(self) -> SimulatedStore:
        """End, without a loop that knows processes.

        Returns the contents for the next process.
        """
        self._commits.killed = True
        return SimulatedStore(self.disk, self._clock, self._effect)

    def open(self, now: float | None = None) -> Contents:
        """See Store."""
        self.disk.recover()
        if now is not None:
            self.disk.move(now)
        return self.disk.contents()

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """See Store."""
        self._effect()
        return self._commits.write(changes)

    def transaction(self) -> SimulatedTransaction:
        """See Store."""
        return SimulatedTransaction(self._commits)

    async def close(self) -> None:
        """See Store."""
        await self._commits.drain()

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        return self.disk.kept.queued(flow, after=after, limit=limit)

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        return self.disk.kept.expiring(now, limit=limit)

    def next_expiry(self) -> float | None:
        """See Store."""
        return self.disk.kept.next_expiry()

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""
        return self.disk.kept.outgoing()

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""
        return self.disk.kept.find_outgoing(msg_id)

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """See Store."""
        return self.disk.kept.ended(msg_id)

    def find_ended(self, msg_id: str) -> Ended | None:
        """See Store."""
        return self.disk.kept.find_ended(msg_id)

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        return self.disk.kept.incoming()


def _never(_commit: int) -> StoreError | None:
    return None


def _at_once(_commit: int) -> float:
    return 0.0
