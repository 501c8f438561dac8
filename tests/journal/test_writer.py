"""The files of a journal: whole lines in order, whatever happens."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from qos.errors import JournalError
from qos.journal import Entry, Event, ReceiverEvent, SenderEvent
from qos.journal.counts import ROUTES_MAX
from qos.journal.schema import time_of, time_text
from qos.journal.writer import JournalWriter, check_folder
from waiting import LIMIT_S

NODE = "meter@example.org/1"
NOON = time_of("2026-11-21T12:00:00.000000Z")
HOUR = 3600.0


def entry(msg_id: str = "m1") -> Entry:
    return Entry(
        SenderEvent.ACCEPTED,
        level="assured",
        msg_id=msg_id,
        source=NODE,
        to="lamp@example.org",
        bytes=3,
    )


class Time:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def writing(folder: Path, **options: Any) -> AsyncIterator[JournalWriter]:
    writer = JournalWriter(folder, NODE, **{"now": Time(), **options})
    try:
        yield writer
    finally:
        await writer.close()


async def flush(writer: JournalWriter) -> None:
    """Write as a store does: in a thread of its own, and then commit."""
    before = writer.commit_begins()
    if before is not None:
        await asyncio.to_thread(before)
    writer.commit_ended(idle=True)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


def paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*"))


def seqs(folder: Path) -> list[int]:
    """The seq of all lines: first `opened`, at the end the last count and `closed`."""
    return [line["seq"] for line in read_journal(folder, own=True)]


async def test_a_file_is_hidden_until_it_is_closed(tmp_path: Path) -> None:
    """A reader sees only complete files that never change again."""
    async with writing(tmp_path, boot="b1") as writer:
        writer.note(entry("m1"), entry("m2"))
        await flush(writer)
        hidden = "date=2026-11-21/.meter@example.org%2F1-b1-1.jsonl"
        assert files(tmp_path) == [hidden]
        assert read_journal(tmp_path) == []
        assert len(read_journal(tmp_path, hidden=True)) == 2
    assert files(tmp_path) == [hidden.replace("/.", "/")]
    lines = read_journal(tmp_path)
    assert [(line["seq"], line["msg_id"]) for line in lines] == [(2, "m1"), (3, "m2")]
    assert {line["node"] for line in lines} == {NODE}


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """It shows who talks to whom."""
    folder = tmp_path / "new" / "journal"
    async with writing(folder) as writer:
        writer.note(entry())
    (path,) = paths(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_node_to_which_nothing_happens_leaves_the_proof_of_it(
    tmp_path: Path,
) -> None:
    """Otherwise its silence would look like a missing file."""
    time = Time()
    async with writing(tmp_path, now=time) as writer:
        assert writer.commit_begins() is None
        time.now += 10
    await writer.close()
    writer.note(entry())
    assert writer.commit_begins() is None
    assert len(files(tmp_path)) == 1
    lines = read_journal(tmp_path, own=True)
    assert [(line["seq"], line["role"], line["event"]) for line in lines] == [
        (1, "journal", "opened"),
        (2, "journal", "counted"),
        (3, "journal", "closed"),
    ]
    assert time_of(lines[2]["at"]) - time_of(lines[0]["at"]) == 10


async def test_what_was_noted_is_written_before_the_commit_that_it_is_about(
    tmp_path: Path,
) -> None:
    """Commits rely on it: the kernel has the lines, in their order."""
    async with writing(tmp_path) as writer:
        for number in range(1, 200):
            writer.note(entry(f"m{number}"))
            if number % 7 == 0:
                await flush(writer)
                lines = read_journal(tmp_path, hidden=True)
                assert [line["msg_id"] for line in lines][-1] == f"m{number}"
            elif number % 3 == 0:
                await asyncio.sleep(0)
    assert seqs(tmp_path) == list(range(1, 203))
    assert [line["msg_id"] for line in read_journal(tmp_path)] == [
        f"m{number}" for number in range(1, 200)
    ]


async def test_two_threads_that_write_keep_the_lines_in_their_order(
    tmp_path: Path,
) -> None:
    """The store's thread writes what a commit waits for, the journal's thread the rest."""
    async with writing(tmp_path) as writer:
        slow, go = threading.Event(), threading.Event()

        def probe(step: str) -> None:
            if step == "write" and not slow.is_set():
                slow.set()
                assert go.wait(LIMIT_S)

        writer.probe = probe
        writer.note(entry())
        await asyncio.to_thread(slow.wait)
        # The journal's thread is in the middle of a line that has left the list.
        empty = writer.commit_begins()
        assert empty is not None
        writer.note(entry(), entry())
        before = writer.commit_begins()
        assert before is not None
        order: list[str] = []

        def commit(write: Callable[[], None], begun: threading.Event) -> None:
            begun.set()
            write()
            order.append("commit")

        commits = []
        for write in (before, empty):
            begun = threading.Event()
            made = asyncio.to_thread(commit, write, begun)
            commits.append(asyncio.create_task(made))
            await asyncio.to_thread(begun.wait)
        assert order == []
        order.append("go on")
        go.set()
        await asyncio.gather(*commits)
        assert order == ["go on", "commit", "commit"]
        lines = read_journal(tmp_path, hidden=True)
        assert [line["seq"] for line in lines] == [2, 3, 4]
        assert writer.commit_begins() is None
        writer.commit_ended(idle=True)


async def test_a_file_that_is_large_enough_makes_room_for_another(
    tmp_path: Path,
) -> None:
    """Each file has whole lines, and is not larger than asked for."""
    async with writing(tmp_path, rotate_bytes=1000) as writer:
        writer.note(*[entry(f"m{number}") for number in range(50)])
    sizes = [path.stat().st_size for path in paths(tmp_path)]
    assert len(sizes) > 5
    assert max(sizes) <= 1000
    assert seqs(tmp_path) == list(range(1, 54))


async def test_a_line_that_is_larger_than_a_file_has_one_for_itself(
    tmp_path: Path,
) -> None:
    """A small limit must not lose a line."""
    async with writing(tmp_path, rotate_bytes=10) as writer:
        writer.note(entry(), entry("m2"))
    assert len(files(tmp_path)) == 5
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.looptime
async def test_a_file_that_is_old_enough_is_closed_though_nothing_happens(
    tmp_path: Path,
) -> None:
    """Otherwise the last lines of a quiet device would be read a day later."""
    async with writing(tmp_path, rotate_s=60) as writer:
        for count in (1, 2):
            writer.note(entry())
            await asyncio.sleep(61)
            assert len(read_journal(tmp_path)) == count
    # Nor a file with nothing but `closed`.
    assert len(files(tmp_path)) == 3


async def test_a_new_day_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Even within one write."""
    time = Time(NOON)
    async with writing(tmp_path, now=time) as writer:
        writer.note(entry())
        time.now += 12 * HOUR
        writer.note(entry(), entry())
    assert [path.partition("/")[0] for path in files(tmp_path)] == [
        "date=2026-11-21",
        "date=2026-11-22",
    ]
    assert [line["seq"] for line in read_journal(tmp_path)] == [2, 4, 5]
    assert seqs(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_clock_that_goes_back_loses_nothing_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    """By an hour, and over midnight and back: seq gives the order, not the time."""
    time = Time(NOON + 12 * HOUR)
    async with writing(tmp_path, now=time) as writer:
        for jump in (-1, -1, +3, -HOUR, +HOUR, -24 * HOUR, 0):
            time.now += jump
            writer.note(entry())
    assert len(read_journal(tmp_path)) == 7
    # With `opened`, `closed` and the counts of the windows.
    assert seqs(tmp_path) == list(range(1, 16))
    for path in paths(tmp_path):
        day = path.parent.name.removeprefix("date=")
        assert f'"at":"{day}T' in path.read_text()


async def test_two_writers_share_a_folder(tmp_path: Path) -> None:
    """Even of one node: a sender and a receiver of the same account."""
    async with writing(tmp_path) as one, writing(tmp_path) as other:
        for writer in (one, other):
            writer.note(entry())
            await flush(writer)
        assert one.boot != other.boot
        assert len(files(tmp_path)) == 2
    assert seqs(tmp_path) == [1, 2, 3, 4] * 2


async def test_a_node_may_have_the_longest_of_names(tmp_path: Path) -> None:
    """RFC 7622 allows JIDs of 3071 bytes, and file names 255."""
    nodes = [f"{'ü' * 300}@example.org/{number}" for number in (1, 2)]
    for node in nodes:
        writer = JournalWriter(tmp_path, node)
        writer.note(entry())
        await writer.close()
    assert len(files(tmp_path)) == 2
    assert [line["node"] for line in read_journal(tmp_path)] == nodes


@pytest.mark.parametrize("node", ["_meter@example.org/1", ".meter@example.org/1", "_"])
async def test_no_file_is_hidden_by_the_name_of_its_node(
    node: str, tmp_path: Path
) -> None:
    """Spark ignores names that begin with `_`.

    The device would be missing without notice.
    """
    writer = JournalWriter(tmp_path, node)
    await writer.close()
    (path,) = paths(tmp_path)
    assert path.name[:3] in {"%5F", "%2E"}
    (opened, _counted, _closed) = read_journal(tmp_path, own=True)
    assert opened["node"] == node


def test_it_can_be_made_and_noted_in_before_a_loop_runs(tmp_path: Path) -> None:
    """This is how plugins are loaded."""
    writer = JournalWriter(tmp_path, NODE, now=Time())
    writer.note(entry())
    asyncio.run(writer.close())
    assert seqs(tmp_path) == [1, 2, 3, 4]


def test_a_loop_that_ended_with_work_undone_is_not_waited_for(tmp_path: Path) -> None:
    """The next loop writes the rest."""
    writer = JournalWriter(tmp_path, NODE, now=Time())

    async def note() -> None:
        writer.note(entry())

    asyncio.run(note())
    asyncio.run(writer.close())
    assert seqs(tmp_path) == [1, 2, 3, 4]


# -- what cannot be written ------------------------------------------------


@pytest.mark.parametrize("of", [JournalWriter, check_folder])
def test_a_folder_that_cannot_be_is_named(
    of: Callable[..., object], tmp_path: Path
) -> None:
    """At the start, before anything is done."""
    file = tmp_path / "file"
    file.touch()
    arguments = (NODE,) if of is JournalWriter else ()
    with pytest.raises(JournalError, match=str(file)) as caught:
        of(file / "journal", *arguments)
    assert str(file) in caught.value.path


class Disk:
    """A disk on which steps with this prefix fail."""

    def __init__(self, *steps: str, code: int = errno.ENOSPC) -> None:
        self.steps = steps
        self.code = code

    def __call__(self, step: str) -> None:
        if step in self.steps:
            raise OSError(self.code, os.strerror(self.code))


async def test_a_full_disk_costs_the_lines_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error in the log, a count, and a gap in seq, but not inside a file."""
    monkeypatch.setattr("qos.journal.file_series._AGAIN_S", 0.0)
    async with writing(tmp_path) as writer:
        writer.note(entry())
        await flush(writer)
        writer.probe = Disk("write", "create")
        for _ in range(3):
            writer.note(entry(), entry())
            await flush(writer)
        assert writer.lost == 6
        writer.probe = Disk()
        writer.note(entry())
    assert [line["seq"] for line in read_journal(tmp_path)] == [2, 9]
    assert seqs(tmp_path) == [1, 2, 9, 10, 11]
    assert len(files(tmp_path)) == 2
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert str(tmp_path) in record.getMessage()
    assert "No space left" in record.getMessage()


async def test_it_is_not_tried_again_for_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a dead disk each message would cost a system call that may hang."""
    monkeypatch.setattr("qos.journal.file_series._AGAIN_S", 3600.0)
    async with writing(tmp_path) as writer:
        steps = []

        def fail(step: str) -> None:
            steps.append(step)
            raise OSError(errno.EIO, "broken")

        writer.probe = fail
        for _ in range(5):
            writer.note(entry())
            await flush(writer)
        assert steps == ["write", "sync"]
        writer.probe = Disk()


async def test_half_a_line_does_not_stay(tmp_path: Path) -> None:
    """The kernel accepts as much as there is room for: here, up to a limit."""
    async with writing(tmp_path) as writer:
        writer.note(entry())
        await flush(writer)
        (path,) = paths(tmp_path)
        size = path.stat().st_size
        limited = _limit_file_size(size + 10)
        try:
            writer.note(entry())
            await flush(writer)
        finally:
            limited()
        assert writer.lost == 1
        (path,) = paths(tmp_path)
        assert path.stat().st_size == size
    assert len(read_journal(tmp_path)) == 1
    # The lines that could be written at the end, with a gap before them.
    assert seqs(tmp_path) in ([1, 2], [1, 2, 4])


def _limit_file_size(size: int) -> Callable[[], None]:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_file_that_cannot_be_put_into_place_is_left_for_the_next_start(
    tmp_path: Path,
) -> None:
    """Its lines are not lost."""
    async with writing(tmp_path) as writer:
        writer.note(entry())
        await flush(writer)
        writer.probe = Disk("rename")
    assert read_journal(tmp_path) == []
    async with writing(tmp_path):
        assert len(read_journal(tmp_path)) == 1


# -- what the journal says of itself ------------------------------------------


def counted(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """The counts of each window: its beginning, and these fields."""
    return [
        tuple(line.get(name) for name in ("since", *names))
        for line in read_journal(folder, own=True)
        if line["event"] == "counted"
    ]


def at(minute: int) -> str:
    return time_text(NOON + 60 * minute)


def message(event: Event, source: str, to: str | None = None) -> Entry:
    return Entry(
        event, level="assured", msg_id="m", source=source, to=to, attempt=1, bytes=1
    )


async def test_each_window_is_counted_by_route_where_it_ends(tmp_path: Path) -> None:
    """By account, not by device; a message that is handed over again counts once."""
    time = Time(NOON + 10)
    lamp, me = "lamp@example.org", "meter@example.org"
    async with writing(tmp_path, now=time) as writer:
        for resource in ("1", "2"):
            writer.note(message(SenderEvent.ACCEPTED, NODE, f"{lamp}/{resource}"))
            writer.note(message(ReceiverEvent.HANDED_OVER, f"{lamp}/{resource}", NODE))
        writer.note(message(ReceiverEvent.REDELIVERED, f"{lamp}/1", NODE))
        writer.note(message(ReceiverEvent.HANDED_OVER, f"{lamp}/1"))
        time.now = NOON + 299.999999
        writer.note(message(SenderEvent.DELIVERED, NODE, lamp))
        time.now = NOON + 300
        writer.note(message(SenderEvent.ACCEPTED, NODE, lamp))
        time.now = NOON + 900
    assert counted(tmp_path, "level", "from", "to", "sent", "received") == [
        (at(0), "assured", me, lamp, 2, 0),
        (at(0), "assured", lamp, me, 0, 3),
        # The window from 5 to 10 minutes later is missing: it is not known that the
        # node was up.
        (at(5), "assured", me, lamp, 1, 0),
        (at(15), None, None, None, 0, 0),
    ]
    lines = read_journal(tmp_path, own=True)
    assert [line["event"] for line in lines[-6:]] == [
        *("counted", "counted", "accepted", "counted", "counted", "closed")
    ]
    assert [line["at"] for line in lines[-6:]] == [at(5)] * 3 + [at(15)] * 3


async def test_a_node_that_ends_counts_what_it_has_sent(tmp_path: Path) -> None:
    """A command that sends one message lives in no window's end; two may in one."""
    me, lamp = "meter@example.org", "lamp@example.org"
    for _ in range(2):
        async with writing(tmp_path, now=Time(NOON + 10)) as writer:
            writer.note(message(SenderEvent.ACCEPTED, NODE, lamp))
    assert counted(tmp_path, "from", "to", "sent") == [(at(0), me, lamp, 1)] * 2


async def test_a_window_without_a_message_is_counted_too(tmp_path: Path) -> None:
    """Otherwise it would look like a missing window."""
    time = Time()
    async with writing(tmp_path, now=time) as writer:
        time.now += 301
        writer.note(entry())
        time.now += 10
    assert counted(tmp_path, "level", "from", "to", "sent", "received") == [
        (at(0), None, None, None, 0, 0),
        (at(5), "assured", "meter@example.org", "lamp@example.org", 1, 0),
    ]


@pytest.mark.looptime
async def test_a_window_ends_though_nothing_happens(tmp_path: Path) -> None:
    """A quiet device proves by its own timer that it was there."""
    loop_time = asyncio.get_running_loop().time
    began = loop_time()

    def now() -> float:
        return NOON + loop_time() - began

    async with writing(tmp_path, now=now):
        await asyncio.sleep(901)
        lines = read_journal(tmp_path, own=True, hidden=True)
        assert [line["event"] for line in lines].count("counted") == 3
    assert counted(tmp_path) == [(at(0),), (at(5),), (at(10),), (at(15),)]


async def test_a_crowd_of_accounts_does_not_fill_the_memory(
    tmp_path: Path,
) -> None:
    """A peer can choose any number of them: the rest is counted without a route."""
    time = Time()
    async with writing(tmp_path, now=time) as writer:
        for number in range(ROUTES_MAX + 500):
            source = f"bot{number}@evil.example"
            for _ in range(2):
                writer.note(message(ReceiverEvent.HANDED_OVER, source, NODE))
        await flush(writer)
        assert len(writer._counts._routes) == ROUTES_MAX + 1
        time.now += 300
    rows = [
        row for row in counted(tmp_path, "from", "sent", "received") if row[0] == at(0)
    ]
    assert len(rows) == ROUTES_MAX + 1
    assert rows[-1] == (at(0), None, 0, 1000)
    assert sum(received for *_, received in rows) == 2 * (ROUTES_MAX + 500)


async def test_a_clock_that_goes_back_counts_each_message_in_its_window(
    tmp_path: Path,
) -> None:
    """The counts of one window may come in two lines, which add up."""
    time = Time(NOON + 301)
    async with writing(tmp_path, now=time) as writer:
        for minute in (6, 3, 6, 4, 6):
            time.now = NOON + 60 * minute
            writer.note(entry())
        time.now = NOON + 601
    sums: dict[str, int] = {}
    for since, sent in counted(tmp_path, "sent"):
        sums[since] = sums.get(since, 0) + sent
    assert sums == {at(0): 2, at(5): 3, at(10): 0}


async def test_a_file_waits_for_its_commit_though_the_writer_adds_its_own_lines(
    tmp_path: Path,
) -> None:
    """They count in seq, but no commit waits for them."""
    time = Time()
    async with writing(tmp_path, now=time, rotate_bytes=600) as writer:
        for _ in range(4):
            time.now += 300
            writer.note(entry())
            await flush(writer)
        known = len(read_journal(tmp_path))
        writer.commit_wanted()
        writer.note(*[entry(f"n{number}") for number in range(9)])
        before = writer.commit_begins()
        assert before is not None
        before()
        # Some of these files are full, but no line of this commit is visible.
        new = [line["msg_id"] for line in read_journal(tmp_path)[known:]]
        assert not [msg_id for msg_id in new if msg_id.startswith("n")]
        writer.commit_ended(idle=True)
    assert len(read_journal(tmp_path)) == 13


async def test_a_clock_that_is_put_right_moves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker would seem to have worked for an hour, or to have ended before it began."""
    async with JournalWriter.opened(tmp_path, NODE) as writer:
        assert writer is not None
        writer.note(entry("before"))
        is_right = time.time
        monkeypatch.setattr(time, "time", lambda: is_right() + HOUR)
        writer.note(entry("after"))
    before, after = (time_of(line["at"]) for line in read_journal(tmp_path))
    assert before <= after < before + HOUR / 2
