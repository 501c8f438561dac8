"""Makes given writes to a queue store, and dies in the middle of them.

Not a test: `test_queue_store.py` runs it as a program; see `killed_runs`. A run, `FOLDER
NUMBER`, opens `FOLDER/store.db`, makes the writes pickled in `FOLDER/writes`, the first
alone and the others at once, and appends a byte to `FOLDER/acks` when one is done. It is
killed at step NUMBER: of the store, before or after any row that it changes, or of
acknowledging.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Sequence
from pathlib import Path

from killed_runs import kills_at, main
from qos.core.queue.effects import Change
from qos.stores.queue_store import SqliteQueueStore
from row_probes import probe_rows

TABLES = ("node", "subscription", "item", "item_payload", "ended", "purged")


async def live(folder: Path, number: int) -> None:
    """One run."""
    probe = kills_at(number)
    writes = pickle.loads((folder / "writes").read_bytes())  # noqa: S301 - the test's
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = SqliteQueueStore(folder / "store.db")
    store.probe = probe
    store.open()
    assert store._writer is not None
    probe_rows(store._writer, TABLES, probe)

    async def write(changes: Sequence[Change]) -> None:
        written = store.write(changes)
        assert written is not None
        await written
        probe("acknowledge")
        os.write(acks, b".")

    await write(writes[0])
    await asyncio.gather(*map(write, writes[1:]))
    await store.close()


if __name__ == "__main__":
    main(lambda folder, number: asyncio.run(live(Path(folder), int(number))))
