"""Measures contenders in turns, so that a disturbance of the machine hits all of them.

This module knows contenders and their work, but no servers and no terminals.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Measured
from benchmarks.sample import BenchFailed, Contender, Sample, Work
from qos.testing.processes import NotInstalled, ProcessFailed

__all__ = ["Plan", "measure"]

#: The time before the first turn in which each opens its windows and loads its code, in
#: seconds.
_WARM_UP_S = 0.5

#: Gets a description of the present step, and the finished part of the whole.
Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The measurements of each contender.

    Attributes:
        windows: the numbers of messages in flight.
        sizes: the payload sizes, in bytes.
        seconds: the duration of each sample.
        repeat: the number of turns.
    """

    windows: Sequence[int]
    sizes: Sequence[int]
    seconds: float
    repeat: int


async def measure(
    contenders: Sequence[Contender],
    plan: Plan,
    folder: Path,
    *,
    progress: Progress,
    absent: Callable[[str, str], object],
) -> list[Measured]:
    """Start all, measure each in each turn, and end all.

    Args:
        contenders: in the order of the result.
        plan: the extent of the measurements.
        folder: for their files; it is empty.
        progress: see Progress.
        absent: called with the name of a contender that cannot be measured here, and
            the reason.

    Returns:
        For each contender its figures by payload size and window.

    Raises:
        BenchFailed: a contender has failed.
    """
    async with contextlib.AsyncExitStack() as stack:
        here = []
        for number, each in enumerate(contenders):
            progress(f"starting {each.name}", 0.0)
            own = folder / str(number)
            own.mkdir()
            try:
                with _named(each):
                    await stack.enter_async_context(_started(each, own))
            except NotInstalled as error:
                absent(each.name, str(error))
            else:
                here.append(each)
        for each in here:
            progress(f"warming up {each.name}", 0.0)
            seconds = min(plan.seconds, _WARM_UP_S)
            await _measured(each, Work(max(plan.windows), plan.sizes[0], seconds))
        return await _in_turns(here, plan, progress)


async def _in_turns(
    here: Sequence[Contender], plan: Plan, progress: Progress
) -> list[Measured]:
    works = [
        Work(window, size, plan.seconds)
        for size, window in itertools.product(plan.sizes, plan.windows)
    ]
    samples: dict[tuple[str, Work], list[Sample]] = {
        (each.name, work): [] for each in here for work in works
    }
    # All contenders at one window, one after the other: they are compared with each
    # other.
    steps = list(itertools.product(range(plan.repeat), works, here))
    for done, (turn, work, each) in enumerate(steps):
        progress(
            f"turn {turn + 1} of {plan.repeat}, window {work.window}, "
            f"{work.payload_bytes} bytes: {each.name}",
            done / len(steps),
        )
        samples[each.name, work].append(await _measured(each, work))
    return [
        Measured(name, work.window, work.payload_bytes, found)
        for (name, work), found in samples.items()
    ]


async def _measured(contender: Contender, work: Work) -> Sample:
    with _named(contender):
        return await contender.measure(work)


@contextlib.contextmanager
def _named(contender: Contender) -> Iterator[None]:
    """Add the name of the contender to an error: there may be two dozen of them."""
    try:
        yield
    except ProcessFailed as error:
        text = f"{contender.name}: {error}"
        raise BenchFailed(text, unreachable=error.unreachable) from None


@contextlib.asynccontextmanager
async def _started(contender: Contender, folder: Path) -> AsyncIterator[None]:
    try:
        await contender.start(folder)
        yield
    finally:
        await contender.stop()
