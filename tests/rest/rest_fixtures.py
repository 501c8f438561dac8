"""Gateways with a queue, for the tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qos.testing import ManualClock
from rest_bench import RestBench, rest

__all__ = ["bench", "clock", "timed"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    """A gateway with the queue `orders`."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        yield bench


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `timed`."""
    return ManualClock(1_700_000_000.0)


@pytest.fixture
async def timed(tmp_path: Path, clock: ManualClock) -> AsyncIterator[RestBench]:
    """A bench whose queues, and whatever else has this clock, have its time."""
    async with rest(tmp_path, clock=clock) as bench:
        await bench.create("orders")
        yield bench
