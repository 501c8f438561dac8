"""A sender or a receiver as a process of its own, which can kill itself.

    python crash_device.py '{"role": "sender", …}'      (the fields of End, as JSON)

A line on its stdin, `["deliver", 3]` for example, makes it kill itself as it gets the
third stanza from then on with such a child, before the plugin sees it; or, of a
receiver, `before log` or `after log` of a message that it was handed. `["end", 0]`
makes it log out and close what it has.
"""

import asyncio
import json
import os
import signal
import sys
from typing import NoReturn

from qos.testing.message_roles import Device, End
from qos.testing.role import Connect


class Doom:
    """Kills its process when that gets to a point, if it is told to."""

    def __init__(self) -> None:
        self._at: str | None = None
        self._count = 0

    def listen(self, device: Device) -> None:
        """What comes on stdin says where to die; its end, that the test has."""

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
        """Die here and now, if that is the plan."""
        if point == self._at:
            self._count -= 1
            if self._count == 0:
                die()


async def main(text: str) -> None:
    """Live it."""
    options = json.loads(text)
    end = End(connect=Connect(**options.pop("connect")), **options)
    doom = Doom()
    device = Device(end, lambda event: None, doom.reached)
    doom.listen(device)
    await device.run()


def die() -> NoReturn:
    """By the signal that nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
