from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qos.core.message.effects import Save
from qos.errors import StoreError, StoreFull
from qos.stores import Change, Remember
from qos.stores.durable_store import DurableStore
from qos.stores.group_commit import GroupCommit
from qos.testing.store_records import opened, outgoing, write

if TYPE_CHECKING:
    from tests.stores.conftest import MakeStore


class Disk:
    """Commits that end when the test says so."""

    def __init__(self) -> None:
        self.batches: list[list[Change]] = []
        self.before: list[Callable[[], None] | None] = []
        self._commits: list[asyncio.Future[None]] = []

    def start(
        self, changes: list[Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        self.batches.append(changes)
        self.before.append(before)
        self._commits.append(asyncio.get_running_loop().create_future())
        return self._commits[-1]

    async def done(self, error: StoreError | None = None) -> None:
        if error is None:
            self._commits[-1].set_result(None)
        else:
            self._commits[-1].set_exception(error)
        await turns()


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def named(*names: str) -> list[Change]:
    return [Remember(name, "") for name in names]


async def test_what_is_written_in_one_turn_of_the_loop_is_one_commit() -> None:
    """Tasks that a commit wakes write again at once, and together."""
    disk = Disk()
    commits = GroupCommit(disk.start)
    first, second = commits.write(named("a")), commits.write(named("b", "c"))
    assert first is second
    await turns()
    assert disk.batches == [named("a", "b", "c")]
    await disk.done()
    assert first.done()


async def test_what_is_written_during_a_commit_waits_for_the_next() -> None:
    """One commit at a time, in the order of the writes."""
    disk = Disk()
    commits = GroupCommit(disk.start)
    first = commits.write(named("a"))
    await turns()
    waiting = [commits.write(named(name)) for name in "bcd"]
    await turns()
    assert disk.batches == [named("a")]
    assert waiting[0] is waiting[1] is waiting[2] is not first
    await disk.done()
    assert first.done()
    assert not waiting[0].done()
    assert disk.batches == [named("a"), named("b", "c", "d")]
    await disk.done()
    assert waiting[0].done()


async def test_all_that_wait_for_a_commit_are_called_in_one_turn_of_the_loop() -> None:
    """Each in the context in which it began to wait, and whatever becomes of others."""
    disk, failed = Disk(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: failed.append(told["exception"]))
    written = GroupCommit(disk.start).write(named("a"))
    variable = contextvars.ContextVar("variable", default="")
    called: list[tuple[str, str, asyncio.Future[None]]] = []

    def waits(name: str, *, fails: bool = False) -> Callable[..., None]:
        def call(done: asyncio.Future[None]) -> None:
            called.append((name, variable.get(), done))
            if fails:
                raise ValueError(name)

        context = contextvars.copy_context()
        context.run(variable.set, name)
        context.run(written.add_done_callback, call)
        return call

    waits("first", fails=True)
    gone = waits("gone")
    waits("last")
    given = contextvars.copy_context()
    given.run(variable.set, "given")
    written.add_done_callback(
        lambda done: called.append(("other", variable.get(), done)), context=given
    )
    assert written.remove_done_callback(gone) == 1
    assert written.remove_done_callback(gone) == 0
    await turns()
    await disk.done()
    assert called == [
        ("first", "first", written),
        ("last", "last", written),
        ("other", "given", written),
    ]
    assert list(map(str, failed)) == ["first"]
    waits("late")
    await turns()
    assert called[-1] == ("late", "late", written)


async def test_those_that_a_commit_wakes_join_those_that_wait() -> None:
    """Otherwise they would take turns for ever, in commits of half the size."""
    disk = Disk()
    commits = GroupCommit(disk.start)

    async def writes_twice() -> None:
        await commits.write(named("first"))
        await commits.write(named("second"))

    task = asyncio.create_task(writes_twice())
    await turns()
    commits.write(named("other"))
    await disk.done()
    assert disk.batches[1:] == [named("other", "second")]
    await disk.done()
    await task


async def test_those_that_its_writers_tell_of_an_end_join_as_well() -> None:
    """An application gives its next message when it learns how one has ended."""
    disk = Disk()
    commits = GroupCommit(disk.start)
    told = asyncio.get_running_loop().create_future()

    async def application() -> None:
        await told
        commits.write(named("next"))

    task = asyncio.create_task(application())
    first = commits.write(named("first"))
    first.add_done_callback(lambda _: told.set_result(None))
    await turns()
    commits.write(named("other"))
    await disk.done()
    assert disk.batches[1:] == [named("other", "next")]
    await disk.done()
    await task


async def test_a_commit_that_fails_fails_all_in_it_and_none_after_it() -> None:
    """The disk was full, and then was not."""
    disk = Disk()
    commits = GroupCommit(disk.start)
    failing = commits.write(named("a"))
    await turns()
    waiting = commits.write(named("b"))
    await disk.done(StoreFull("x:", "full"))
    assert isinstance(failing.exception(), StoreFull)
    await disk.done()
    assert waiting.exception() is None


async def test_a_commit_that_cannot_begin_fails_as_well() -> None:
    """Otherwise its writers, and all later ones, would wait for ever."""
    calls = 0

    def start(
        _changes: list[Change], _before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("no threads left")
        commit = asyncio.get_running_loop().create_future()
        commit.set_result(None)
        return commit

    commits = GroupCommit(start)
    with pytest.raises(RuntimeError, match="no threads"):
        await commits.write(named("a"))
    await commits.write(named("b"))


@pytest.mark.parametrize("step", ["commit_wanted", "commit_begins", "commit_ended"])
async def test_a_journal_that_meets_an_error_stops_no_writer_for_ever(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out in it, and the queues waited for that commit as long as they lived."""
    disk, journal, errors = Disk(), Ahead(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: errors.append(about["exception"]))
    commits = GroupCommit(disk.start)
    commits.journal = journal

    def fail(*_args: object, **_options: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(journal, step, fail)
    if step == "commit_wanted":
        with pytest.raises(MemoryError):
            commits.write(named("a"))
    else:
        first = commits.write(named("a"))
        await turns()
        if step == "commit_ended":
            await disk.done()
            assert first.exception() is None
            assert [type(each) for each in errors] == [MemoryError]
        else:
            assert isinstance(first.exception(), MemoryError)
    await turns()
    second = commits.write(named("b"))
    await turns()
    assert disk.batches[-1] == named("b")
    await disk.done()
    assert second.exception() is None


async def test_a_commit_cannot_be_cancelled_by_one_of_its_writers() -> None:
    """A task that waits for it is cancelled when the commit is done."""
    disk = Disk()
    commits = GroupCommit(disk.start)

    async def writes() -> None:
        await commits.write(named("a"))

    tasks = [asyncio.create_task(writes()) for _ in range(2)]
    await turns()
    tasks[0].cancel()
    await turns()
    assert not tasks[0].done()
    assert not commits.write(named("b")).cancel()
    await disk.done()
    assert tasks[0].cancelled()
    assert tasks[1].done()
    assert not tasks[1].cancelled()
    await disk.done()


async def test_draining_waits_for_all_and_leaves_nothing_behind() -> None:
    """No task is left, and a failure concerns its writer only."""
    disk = Disk()
    commits = GroupCommit(disk.start)
    await commits.drain()
    failing = commits.write(named("a"))
    draining = asyncio.create_task(commits.drain())
    await turns()
    waiting = commits.write(named("b"))
    await disk.done(StoreError("x:", "broken"))
    assert not draining.done()
    await disk.done()
    assert draining.done()
    assert failing.exception() is not None
    assert waiting.exception() is None
    assert asyncio.all_tasks() - {draining} == {asyncio.current_task()}


async def test_a_thousand_writers_share_a_few_commits(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """This is worth a factor of 20 to 30 on any disk."""
    store = make_store(tmp_path)
    commits = 0
    start = store._start

    def counting(
        changes: list[Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        nonlocal commits
        commits += 1
        return start(changes, before)

    store._commits = GroupCommit(counting)
    records = [outgoing(seq) for seq in range(1, 1001)]
    async with opened(store):
        await asyncio.gather(*[write(store, Save(record)) for record in records])
        assert list(store.outgoing()) == records
    assert commits == 1


async def test_a_write_costs_its_caller_next_to_nothing(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """No task is made for it."""
    store = make_store(tmp_path)
    async with opened(store):
        tasks = asyncio.all_tasks()
        futures = {store.write([Save(outgoing(seq))]) for seq in range(1, 101)}
        assert asyncio.all_tasks() == tasks
        assert len(futures) == 1
        (written,) = futures
        assert written is not None
        await written


def test_a_loop_that_ends_does_not_tear_a_commit(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """`asyncio.run` cancels remaining tasks, but must not leave a torn commit."""
    store = make_store(tmp_path)
    changes = [Save(outgoing(seq)) for seq in range(1, 21)]

    async def forgets_to_wait() -> None:
        store.open()
        store.write(changes)
        await turns()

    asyncio.run(forgets_to_wait())
    asyncio.run(store.close())

    async def finds() -> int:
        async with opened(make_store(tmp_path)) as contents:
            return contents.outbox_messages

    assert asyncio.run(finds()) == 20


class Ahead:
    """A journal with or without noted lines."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.threads: list[threading.Thread] = []
        self.has_noted = True

    def commit_wanted(self) -> None:
        self.said.append("wanted")

    def commit_begins(self) -> Callable[[], None] | None:
        self.said.append("begins")
        return self.write if self.has_noted else None

    def commit_ended(self, *, idle: bool) -> None:
        self.said.append("idle" if idle else "ended")

    def write(self) -> None:
        self.threads.append(threading.current_thread())
        self.said.append("written")


async def test_each_commit_is_given_what_the_journal_has_to_do_before_it() -> None:
    """A line that is noted meanwhile goes into the next commit."""
    disk, journal = Disk(), Ahead()
    commits = GroupCommit(disk.start)
    commits.journal = journal
    commits.write(named("a"))
    await turns()
    commits.write(named("b"))
    await turns()
    assert disk.before == [journal.write]
    journal.has_noted = False
    await disk.done()
    assert disk.before == [journal.write, None]
    await disk.done()
    third = commits.write(named("c"))
    await turns()
    await disk.done(StoreFull("x:", "full"))
    assert third.exception() is not None
    assert journal.said == [
        *("wanted", "begins", "ended", "begins", "ended", "idle"),
        *("wanted", "begins", "ended", "idle"),
    ]


async def test_the_journal_waits_for_what_waits_for_a_turn() -> None:
    """Otherwise readers would see a message that the store never knew."""
    disk, journal = Disk(), Ahead()
    commits = GroupCommit(disk.start)
    commits.journal = journal
    await commits.take_turn()
    assert journal.said == ["wanted"]
    commits.write(named("a"))
    # A commit during the turn of another transaction, which does not include this
    # write.
    commits.turn_committed()
    commits.end_turn()
    await turns()
    assert journal.said == ["wanted", "begins"]
    await disk.done()
    assert journal.said == ["wanted", "begins", "ended", "idle"]


async def test_the_journal_hears_of_a_turn_in_which_nobody_else_writes() -> None:
    """Lines noted before its commit are settled then, and all later ones after it."""
    journal = Ahead()
    commits = GroupCommit(Disk().start)
    commits.journal = journal
    for _ in range(2):
        await commits.take_turn()
        commits.turn_committed()
        commits.end_turn()
        await turns()
    assert journal.said == ["wanted", "ended", "idle"] * 2


async def test_the_journal_is_written_before_the_store_and_not_by_the_loop(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Otherwise a store could have changes without a journal line.

    And the disk may be slow.
    """
    store, journal = make_store(tmp_path), Ahead()
    async with opened(store):
        if not store.durable:
            return
        assert isinstance(store, DurableStore)
        store.journal = journal
        store.probe = lambda _: journal.said.append("disk")
        await write(store, Remember("a", "1"))
        await write(store, Save(outgoing(1)), Save(outgoing(2)))
    said = [word for word in journal.said if word in {"begins", "written", "disk"}]
    assert said[:3] == ["begins", "written", "disk"]
    second = said.index("begins", 1)
    assert said[second : second + 3] == ["begins", "written", "disk"]
    assert threading.main_thread() not in journal.threads
