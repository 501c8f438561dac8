"""A sender or a receiver as a process of its own, which can kill itself.

    Forked.start(crash_device.live, end, file_for_stderr)

A line on its stdin, for example `["deliver", 3]`, makes it kill itself when it gets the
third such request from then on, alone or in a batch, before the plugin sees it; the
same holds for answers. A receiver can also kill itself `before log` or `after log` of a
message that was handed to it.
`["end", 0]` makes it log out and close everything.
"""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import NoReturn

from message_roles import Device, End


class Doom:
    """Kills its process when that comes to a given point."""

    def __init__(self) -> None:
        self._at: str | None = None
        self._count = 0

    def listen(self, device: Device) -> None:
        """Each line on stdin names a place to die.

        Its end means that the test is over.
        """

        def told() -> None:
            line = os.read(0, 1_000).decode()
            if not line:
                die()
            self._at, count = json.loads(line)
            self._count = int(count)
            if self._at == "end":
                device.xmpp.loop.remove_reader(0)
                os.kill(os.getpid(), signal.SIGTERM)

        device.xmpp.loop.add_reader(0, told)

    def reached(self, point: str) -> None:
        """Die here and now, if that was asked for."""
        if point == self._at:
            self._count -= 1
            if self._count == 0:
                die()


def live(end: End, stderr: Path) -> int:
    """Run the device; its stderr goes into the file."""
    with stderr.open("ab") as file:
        os.dup2(file.fileno(), 2)
    asyncio.run(_run(end))
    return 0


async def _run(end: End) -> None:
    doom = Doom()
    device = Device(end, lambda event: None, doom.reached)
    doom.listen(device)
    await device.run()


def die() -> NoReturn:
    """Die by the signal that nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")
