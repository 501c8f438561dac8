"""A stderr that nobody reads holds up no command: the work goes on, and so does a stop.

The same for `worker` is in test_writer.py, and for `bridge` in tests/amqp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from small_pipe import SmallPipe
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Commands, Running

TO = "bob@localhost/1"

#: Lines that no message can carry. The notes of so many do not fit into what may wait.
BAD = 4_000


@pytest.fixture
def pipe() -> Iterator[SmallPipe]:
    pipe = SmallPipe()
    yield pipe
    pipe.close()


async def send(sender: Running, good: str) -> None:
    """Send lines of which only the last is good, and wait for their outcomes."""
    stdin = sender.process.stdin
    assert stdin is not None
    stdin.write(b"\x01\n" * BAD + f"{good}\n".encode())
    outcomes = [str((await sender.line())["outcome"]) for _ in range(BAD + 1)]
    assert sorted(outcomes) == ["delivered", *["not delivered"] * BAD]


async def test_a_sender_whose_stderr_nobody_reads_works_on_and_hears_a_signal(
    commands: Commands, pipe: SmallPipe
) -> None:
    """Each bad line is a note. What is missing among them is counted at its place."""
    listener = await commands.listen("bob")
    with pipe.as_stderr() as commands.function:
        sender = await commands.start("send", TO, "--lines", user="alice")
    await send(sender, "first")
    assert (await listener.line())["body"] == "first"
    await until(pipe.dropped)
    (dropped,) = pipe.dropped()
    assert pipe.read().count(b"not delivered to") + dropped == BAD
    await send(sender, "second")
    assert (await listener.line())["body"] == "second"
    sender.process.terminate()
    ended = await sender.end()
    assert (ended.status, ended.out) == (130, [])
