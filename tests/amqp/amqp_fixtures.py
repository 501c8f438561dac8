"""Gateways with a queue, for the tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import Bench, gateway
from qos.testing import ManualClock

__all__ = ["bench", "clock", "timed"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway with the queue `orders`."""
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        yield bench


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `timed`."""
    return ManualClock(1_700_000_000.0)


@pytest.fixture
async def timed(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    """A bench whose queues have the time of the clock."""
    async with gateway(tmp_path, clock=clock) as bench:
        await bench.create("orders")
        yield bench
