"""The number of our own calls for an assured message, from `send()` to its outcome.

Both ends and the embedded server are in this process; the server's calls are not
counted. The store is in memory, and one message is sent after another.

    python tests/bench/calls.py
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Final

from qos.testing import friends, logged_in
from xep_qos import XEP_QOS

#: Our modules, and those among them that only tests and benchmarks use.
OURS: Final = ("qos.", "xep_qos", "xep_0254", "xep_0337")
NOT_COUNTED: Final = ("qos.testing", "benchmarks", "qos.cli")

#: The first messages look up the peer's features, and fill caches.
WARM_UP: Final = 20

COUNTED: Final = 25

#: Calls by timers do not belong to a message.
PAUSE_S: Final = 0.01


class Profile:
    """Counts calls by module and function while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Profile:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        # The methods of a dataclass have no file, but the names of their module.
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(OURS) and not module.startswith(NOT_COUNTED):
                self.calls[module, frame.f_code.co_qualname] += 1


async def count() -> Counter[tuple[str, str]]:
    """The calls for the cheapest of some messages, by module and function."""
    counts: list[Counter[tuple[str, str]]] = []
    async with (
        friends("alice", "bob") as server,
        logged_in(server, "alice/a") as alice,
        logged_in(server, "bob/b") as bob,
    ):
        bob.add_event_handler("message", lambda _: None)
        for _ in range(WARM_UP + COUNTED):
            with Profile() as profile:
                await XEP_QOS.of(alice).send("bob@localhost/b", "on")
            counts.append(profile.calls)
            await asyncio.sleep(PAUSE_S)
    return min(counts[WARM_UP:], key=Counter.total)


def main() -> None:
    """Print the count, and the functions that are called most."""
    calls = asyncio.run(count())
    files = {module for module, _ in calls}
    print(f"{calls.total()} calls of our own in {len(files)} modules")
    for (module, function), number in sorted(
        calls.items(), key=lambda each: (-each[1], each[0])
    ):
        print(f"{number:6} {module}.{function}")


if __name__ == "__main__":
    main()
