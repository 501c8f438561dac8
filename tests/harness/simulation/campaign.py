"""Many seeds, in several processes, and their results together."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path

from simulation.mutants import Mutant
from simulation.mutation import die_with_parent
from simulation.planner import plan_of
from simulation.world import run

__all__ = ["Hunted", "Totals", "campaign", "hunt", "run_mutated", "run_some"]

_MUTATION = Path(__file__).with_name("mutation.py")

#: Seeds that a process gets at a time.
_CHUNK = 25


@dataclass(slots=True)
class Totals:
    """The results of some seeds.

    Attributes:
        seeds: how many.
        seconds: of virtual time.
        messages: accepted messages.
        items: published items.
        faults: faults that really happened, by kind.
        violated: seeds, each with the name of the invariant.
    """

    seeds: int = 0
    seconds: float = 0.0
    messages: int = 0
    items: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violated: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Add these results."""
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.messages += other.messages
        self.items += other.items
        self.faults += other.faults
        self.violated += other.violated


def run_some(first: int, seeds: int) -> Totals:
    """Run these seeds in this process, one after the other."""
    totals = Totals()
    for seed in range(first, first + seeds):
        result = run(plan_of(seed))
        some = Totals(1, result.seconds, result.messages, result.items, result.faults)
        some.violated = [(seed, each.invariant) for each in result.violations[:1]]
        totals.add(some)
    return totals


def campaign(
    first: int, seeds: int, *, jobs: int, progress: Callable[[Totals], object]
) -> Totals:
    """Run these seeds.

    Args:
        first: the first of them.
        seeds: how many.
        jobs: processes at a time.
        progress: called now and then with the results so far.
    """
    totals = Totals()
    chunks = _chunks(first, seeds)
    # Forked: only this keeps a mutant in place.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=die_with_parent
    ) as pool:
        running: set[Future[Totals]] = set()
        while True:
            # Only as many as needed, so that Ctrl-C ends it at once.
            while len(running) < 2 * jobs and (chunk := next(chunks, None)):
                running.add(pool.submit(run_some, *chunk))
            if not running:
                totals.violated.sort()
                return totals
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                totals.add(each.result())
            progress(totals)


def _chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + seeds, _CHUNK):
        yield start, min(_CHUNK, first + seeds - start)


# -- mutants ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hunted:
    """The result for a mutant.

    Attributes:
        name: of it.
        runs: how many seeds were run.
        violation: the invariant that it violates, or its test; '': it survives.
        seed: the seed that found it; -1: a test did.
        error: the reason why it could not be tried, or ''.
    """

    name: str
    runs: int
    violation: str = ""
    seed: int = -1
    error: str = ""


def hunt(
    mutants: Sequence[Mutant], *, first: int, seeds: int, jobs: int
) -> Iterator[Hunted]:
    """Run seeds with each mutant until one finds it; yields results as they come.

    Args:
        mutants: each in a process of its own.
        first: the first seed.
        seeds: of a mutant, at most.
        jobs: processes at a time.
    """
    order = {"first": first, "seeds": seeds, "jobs": jobs}
    with _mutated(mutants, order, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Hunted(**json.loads(line))


def run_mutated(mutant: Mutant, words: Sequence[str]) -> int:
    """Run the command with these words on a mutant; returns its exit status."""
    with _mutated([mutant], {"words": list(words)}, stdout=None) as process:
        return process.wait()


@contextlib.contextmanager
def _mutated(
    mutants: Sequence[Mutant], order: Mapping[str, object], *, stdout: int | None
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(_MUTATION)]
    order = {"mutants": [asdict(each) for each in mutants], **order}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, text=True
    ) as process:
        try:
            assert process.stdin is not None
            with process.stdin as stdin:
                stdin.write(json.dumps(order) + "\n")
            yield process
        finally:
            process.terminate()
