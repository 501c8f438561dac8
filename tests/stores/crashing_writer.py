"""Writes numbered records into a store, and dies in the middle of it.

Not a test: `test_crash.py` runs it as a program; see `killed_runs`. A run, `FOLDER URL HOW
NUMBER`, opens the store, continues to write after the last record, and appends each
number to `FOLDER/acks` when its write is done. HOW says how the run ends:

- `step`: killed at step NUMBER on the disk, or of acknowledging;
- `byte`: killed when a file grows over NUMBER bytes, in the middle of that write;
- `never`: it goes on until it is killed from outside.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from killed_runs import kills_at, main
from qos.core.message.effects import Forget, Save
from qos.core.message.model import OutgoingState
from qos.stores import Change, FilesStore, Remember, SqliteStore, store_from_url
from qos.testing.store_records import incoming, outgoing, write

#: The numbers written in a run, and the number of records that stay in the store.
WRITES = 3
KEPT = 2


def changes(number: int) -> list[Change]:
    """One write: all or none of it must be there."""
    sent = outgoing(number, payload=f"{number}" * 100)
    found: list[Change] = [Save(sent), Save(incoming(f"k{number}"))]
    if number > KEPT:
        last = number - KEPT
        found.append(Forget(outgoing(last)))
        found.append(Forget(incoming(f"k{last}")))
        before = outgoing(last + 1, payload=f"{last + 1}" * 100)
        found.append(Save(replace(before, state=OutgoingState.OFFERED)))
    return [*found, Remember("number", str(number)), Remember(f"n{number}", "")]


async def live(folder: Path, url: str, how: str, number: int) -> None:
    """One run."""
    store = store_from_url(url)
    assert isinstance(store, SqliteStore | FilesStore)
    store.probe = probe = kills_at(number if how == "step" else -1)
    if how == "byte":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
    contents = store.open()
    first = int(contents.remembered.get("number", "0")) + 1
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def writes(numbers: Iterable[int]) -> None:
        for each in numbers:
            await write(store, *changes(each))
            probe("acknowledge")
            os.write(acks, f"{each}\n".encode())

    if how == "never":
        await writes(itertools.count(first))
    await writes([first])
    # Some are written at once, and share a commit.
    numbers = range(first + 1, first + WRITES)
    await asyncio.gather(*[writes([each]) for each in numbers])
    await store.close()


if __name__ == "__main__":
    main(
        lambda folder, url, how, number: asyncio.run(
            live(Path(folder), url, how, int(number))
        )
    )
