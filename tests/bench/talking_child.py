"""A child for the tests of qos.bench.processes."""

import asyncio
import os
import time

from qos.bench.processes import obey


async def add(*, one: int, other: int) -> dict[str, int]:
    print("what a library prints")
    return {"sum": one + other}


async def work(*, seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


async def fail() -> None:
    raise ValueError("no such thing")


async def die() -> None:
    os._exit(3)


asyncio.run(obey([add, work, fail, die]))
