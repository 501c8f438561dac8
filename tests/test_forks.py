"""A fork that outlives the process that forked it keeps nothing of it locked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qos import forks
from qos.core.message.effects import Save
from qos.journal.writer import JournalWriter
from qos.stores import store_from_url
from qos.testing.store_records import opened, outgoing, write
from waiting import LIMIT_S

_PARENT = """
import asyncio, os, signal, sys
from qos.core.message.effects import Save
from qos.journal.writer import JournalWriter
from qos.journal.writer import JournalWriter
from qos.stores import store_from_url
from qos.testing.store_records import outgoing, write

async def main():
    store = store_from_url(sys.argv[1])
    store.open()
    await write(store, Save(outgoing(1)))
    journal = JournalWriter(sys.argv[2], "lamp@localhost")
    if os.fork() == 0:
        # Only now has it let go of what it inherited.
        print(os.getpid(), flush=True)
        sys.stdin.read()  # until the test ends
        os._exit(0)
    signal.pause()  # until the test kills it

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_store_and_journal_are_free_when_their_process_has_died_though_a_fork_lives(
    kind: str, tmp_path: Path
) -> None:
    """As of a program that uses multiprocessing, and is killed."""
    url = f"{kind}:{tmp_path / 'store'}"
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", _PARENT, url, str(tmp_path / "journal")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.readline())
        parent.kill()
        assert parent.wait(LIMIT_S) == -signal.SIGKILL
        os.kill(child, 0)  # it lives

        async def use() -> None:
            store = store_from_url(url)
            async with opened(store):
                await write(store, Save(outgoing(2)))

        asyncio.run(use())
        (left,) = (tmp_path / "journal").glob("*/.*.jsonl")
        JournalWriter(tmp_path / "journal", "lamp@localhost")
        (own,) = (tmp_path / "journal").glob("*/.*.jsonl")
        assert own != left, "it is still taken for that of a living writer"
        # The end of stdin ends the fork.


def test_a_fork_writes_into_no_file_of_its_parent_and_the_parent_keeps_it(
    tmp_path: Path,
) -> None:
    """Its descriptor is another file there, so that closing it closes no stranger's."""
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    forks.keep(file)
    child = os.fork()
    if child == 0:
        os.write(file, b"of the fork")
        os.close(file)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.write(file, b"of the parent")
    forks.forget(file)
    os.close(file)
    assert (tmp_path / "file").read_bytes() == b"of the parent"


def test_a_number_that_was_forgotten_may_be_that_of_another_file() -> None:
    read, write_end = os.pipe()
    forks.keep(write_end)
    forks.forget(write_end)
    child = os.fork()
    if child == 0:
        os.write(write_end, b"x")
        os._exit(0)
    os.close(write_end)
    assert os.read(read, 2) == b"x"
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
