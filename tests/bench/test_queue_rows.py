"""Our queues as rows.

A real Prosody, service and workers, and the items left on disk.
"""

import sqlite3
from pathlib import Path

import pytest

from benchmarks.queue_roles import WORKERS
from benchmarks.queue_rows import BATCH, OurQueue, queue_rows
from benchmarks.sample import Work
from measuring import check, processes_in
from qos.testing.processes import NotInstalled

WORK = Work(window=BATCH, payload_bytes=200, seconds=0.2)
AGAIN = Work(window=1, payload_bytes=0, seconds=0.05)


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.long), BATCH])
async def test_each_item_of_a_row_is_accepted_once_and_nothing_is_left(
    batch: int, tmp_path: Path
) -> None:
    """Each counted item was on disk, was delivered to a worker, and ended there."""
    contender = OurQueue(batch=batch)
    try:
        await contender.start(tmp_path)
        first = await contender.measure(WORK)
        check(first, WORK, in_window=False, service=True)
        again = await contender.measure(AGAIN)
        check(again, AGAIN, in_window=False, service=True)
        with sqlite3.connect(tmp_path / "queue.sqlite") as db:
            assert db.execute("SELECT COUNT(*) FROM item").fetchone() == (0,)
            ended = "SELECT COUNT(*) FROM ended WHERE outcome = 'accepted'"
            done = first.messages + again.messages
            assert db.execute(ended).fetchone() == (done,)
            assert db.execute("SELECT accepted FROM node").fetchone() == (done,)
            # The peers have as many workers, and as many items at once.
            workers = "SELECT COUNT(*), MIN(queue_requests), MAX(batch)"
            assert db.execute(f"{workers} FROM subscription").fetchone() == (
                WORKERS,
                100,
                batch,
            )
        db.close()
        assert len(processes_in(tmp_path)) == 3
    finally:
        await contender.stop()
    assert not processes_in(tmp_path)


async def test_without_a_prosody_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The benchmark leaves the row out, and names the package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    contender = queue_rows()[0]
    with pytest.raises(NotInstalled, match=r"^prosody .*package: prosody\)$"):
        await contender.start(tmp_path)
    await contender.stop()


def test_there_is_a_row_for_one_item_a_stanza_and_one_for_batches() -> None:
    """The issue has a target for each."""
    assert [each.name for each in queue_rows()] == [
        "XEP-0254 on Prosody, one item a stanza",
        "XEP-0254 on Prosody, batches of 32",
    ]
