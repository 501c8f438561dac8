"""A child for the tests of qos.testing.processes and qos.testing.child."""

import asyncio
import os
import signal
import time

from qos.errors import CannotConnect
from qos.testing.child import run_commands


async def add(*, one: int, other: int) -> dict[str, int]:
    print("what a library prints")
    return {"sum": one + other}


async def work(*, seconds: float) -> dict[str, float]:
    began = time.process_time()
    while time.process_time() < began + seconds:
        pass
    return {"began": began, "ended": time.process_time()}


async def fail() -> None:
    raise ValueError("no such thing")


async def refuse() -> None:
    async with asyncio.TaskGroup():
        raise CannotConnect("there is no server")


async def sleep(*, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def die() -> None:
    os._exit(3)


async def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


asyncio.run(run_commands([add, work, fail, refuse, sleep, die, crash]))
