"""Parents of processes, to be killed: `python killed_parents.py NAME`.

Each makes the file `ready` when its processes are there, and then waits for ever. All of
them are in the folder that it was started in.
"""

import asyncio
import sys
import time
from pathlib import Path

from benchmarks.synth import Plan, synthesise
from forked import Forked
from gate.run import Gate

#: A test in a process of pytest-xdist, which imports this module.
TEST = """
import killed_parents

def test_that_waits():
    killed_parents.wait()
"""


def wait() -> None:
    """Tell that the processes are there, and wait for ever."""
    Path("ready").touch()
    time.sleep(3600)


def say_and_wait() -> int:
    """Tell the parent that this fork is there, and wait for ever."""
    print("here", flush=True)
    time.sleep(3600)
    return 0


async def forks() -> None:
    """Two forks of the fork server."""
    for _ in range(2):
        fork = await Forked.start(say_and_wait)
        assert await fork.stdout.readline() == b"here\n"
    wait()


def gate() -> None:
    """A gate, pytest, and a process of pytest-xdist."""
    Path("test_it.py").write_text(TEST)
    Gate(Path("build"), ["-n", "1", "-p", "no:cacheprovider"]).tests("tests")


def pool() -> None:
    """The processes that write journals for the benchmarks of the audit."""
    plan = Plan(devices=1, messages=400, days=4)
    synthesise(plan, Path("out"), processes=2, progress=lambda done, of: wait())


if __name__ == "__main__":
    if sys.argv[1] == "forks":
        asyncio.run(forks())
    else:
        {"gate": gate, "pool": pool}[sys.argv[1]]()
