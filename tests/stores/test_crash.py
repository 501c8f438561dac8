"""A writing process is killed at every point; everything acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from killed_runs import Runs
from qos.core.message.model import OutgoingState
from qos.stores import Contents, store_from_url
from qos.stores.base import accounts_of
from qos.testing.store_records import incoming, opened, outgoing

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

#: As in crashing_writer.py.
WRITES = 3
KEPT = 2


class Writer(Runs):
    """The program that dies."""

    def start(self, life: Life, how: str, number: int) -> int:
        """Start; returns the process id of the child that has begun to write."""
        return self.begin(life.folder, life.url, how, number)

    def died(self) -> bool:
        """Whether the child was killed; returns when it has ended."""
        status = self.end()
        assert status in {0, -signal.SIGKILL, -signal.SIGXFSZ}
        return status != 0


class Life:
    """A store, and the numbers that its writer has acknowledged."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self.folder = folder
        self.url = f"{scheme}:{folder}/store"
        folder.mkdir()

    def acknowledged(self) -> list[int]:
        acks = self.folder / "acks"
        text = acks.read_text() if acks.exists() else ""
        return [int(line) for line in text.splitlines()]

    def check(self) -> int:
        """Everything acknowledged is there, and nothing is half there.

        Returns the count.
        """
        return asyncio.run(self._check())

    async def _check(self) -> int:
        store = store_from_url(self.url)
        async with opened(store) as contents:
            last = int(contents.remembered.pop("number", "0"))
            numbers = {int(name[1:]) for name in contents.remembered}
            assert numbers >= set(self.acknowledged())
            assert numbers == set(range(1, last + 1))
            assert contents.next_seq == last + 1
            sent = list(store.outgoing())
            assert sent == expected(last)
            keys = [f"k{record.seq}" for record in sent]
            assert {r.key: r for r in contents.incoming} == {
                key: incoming(key) for key in keys
            }
            assert contents == Contents(
                outgoing=[r for r in sent if r.state is OutgoingState.OFFERED],
                queued=contents.queued,
                outbox_messages=len(sent),
                outbox_bytes=sum(record.size for record in sent),
                accounts=accounts_of(sent),
                next_seq=last + 1,
                incoming=contents.incoming,
                remembered=contents.remembered,
            )
            return last


def expected(last: int) -> list[object]:
    """The outbox after the writes up to this one."""
    found: list[object] = []
    for seq in range(max(1, last - KEPT + 1), last + 1):
        record = outgoing(seq, payload=f"{seq}" * 100)
        # The write of number + KEPT - 1 takes it one step further.
        offered = last >= seq + KEPT - 1 and last > KEPT
        state = OutgoingState.OFFERED if offered else OutgoingState.QUEUED
        found.append(replace(record, state=state))
    return found


@pytest.fixture(scope="module")
def writer() -> Iterator[Writer]:
    with Writer(Path(__file__).with_name("crashing_writer.py")) as writer:
        yield writer


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_killed_at_the_nth_step_for_growing_n(
    writer: Writer, ram_path: Path, scheme: str
) -> None:
    """Until it survives. Each time it is then killed once more, in its recovery."""
    step, alive = 0, False
    while not alive:
        life = Life(ram_path / str(step), scheme)
        writer.start(life, "step", step)
        alive = not writer.died()
        before = life.check()
        writer.start(life, "step", step % 7)
        writer.died()
        assert life.check() >= before
        writer.start(life, "step", -1)
        assert not writer.died()
        assert life.check() >= before + WRITES
        step += 1
    assert step > 5


@pytest.mark.parametrize(("scheme", "stride"), [("sqlite", 2503), ("files", 101)])
def test_killed_in_the_middle_of_a_write_at_the_nth_byte(
    writer: Writer, ram_path: Path, scheme: str, stride: int
) -> None:
    """A page or a file is torn at a place where no program would stop by itself."""
    size, alive = 0, False
    while not alive:
        life = Life(ram_path / str(size), scheme)
        writer.start(life, "byte", size)
        alive = not writer.died()
        before = life.check()
        writer.start(life, "step", -1)
        assert not writer.died()
        assert life.check() == before + WRITES
        size += stride
    assert size > 8 * stride


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_killed_at_any_time(writer: Writer, tmp_path: Path, scheme: str) -> None:
    """Twenty runs on one store, each ended from outside."""
    life = Life(tmp_path / "life", scheme)
    chance = random.Random(scheme)
    before = 0
    for _ in range(20):
        child = writer.start(life, "never", 0)
        while len(life.acknowledged()) <= before:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert writer.died()
        before = len(life.acknowledged())
        assert life.check() >= before
