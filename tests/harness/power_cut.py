"""Cuts the power of our stores on disk, at every moment, and checks the remaining data.

`make power-cut STATES=N` prints what was tried, and what was lost.

A store writes in several lives, some of them killed, while all its system calls are
recorded (`power_cut_trace`). From the record follow the possible contents of the disk
after a cut (`power_cut_disk`). Each such state is made, and the store is opened on it.
The store must open, and must show exactly its contents after one of the writes. That
must not be an earlier one than the last write that it had confirmed, or that it showed
when it was opened after a kill, since a program acts on that. And it must have its id,
once it had said that it is open.

This is a proof within the states tried: the calls are those of the unchanged store, and
the disk is assumed to keep nothing but what it confirmed. Its limits: SQLite's shared
memory (`-shm`) is assumed not to survive; and a disk that confirms data without keeping
it is not considered.

Linux only; needs strace, and pytest with hypothesis, as `qos.testing.store_contract`
does.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import os
import pickle
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.report import aligned
from power_cut_disk import Cut, Trace, Tree, cuts, states, write_out
from power_cut_stores import KINDS, Kind
from power_cut_trace import Recorder, RecordError
from power_cut_writer import Plan, Weakness
from qos.errors import StoreError

__all__ = ["Result", "campaign", "main"]

#: The default number of states in the table.
_STATES = 2000

#: For a store with a weakness: a loss is found soon.
_WEAK_STATES = 200

#: A folder in memory.
_RAM = Path("/dev/shm")  # noqa: S108 - shared memory; what is made there has a random name


@dataclass(frozen=True, slots=True)
class Result:
    """The results for one store.

    Attributes:
        name: of its kind.
        operations: recorded changes of files and names.
        syncs: recorded syncs.
        cuts: moments at which the power was cut.
        whole: cuts of which every state was tried.
        states: states tried, all different.
        lost: states in which something was wrong.
        first: the problem in the first of them, or ''.
    """

    name: str
    operations: int
    syncs: int
    cuts: int
    whole: int
    states: int
    lost: int
    first: str


#: Writes that are made at once: one, two or three.
_GROUPS = (1, 1, 2, 1, 3)


# -- the campaign -----------------------------------------------------------


def campaign(
    kind: Kind, *, states: int, seed: str = "", weakness: Weakness = Weakness.NONE
) -> Result:
    """Record a store, and open it in many states that its disk may be in.

    Args:
        kind: of the store.
        states: the number, at most; if there are more, some of each cut.
        seed: of the choice of these.
        weakness: the step that the store leaves out; then something should be lost.

    Raises:
        RecordError: it could not be recorded.
    """
    with _folder() as folder, asyncio.Runner() as runner:
        store = _Watched(kind, folder, runner)
        trace = store.record(weakness)
        moments = list(cuts(trace))
        dice = random.Random(seed)
        result = Result(
            *(kind.name, len(trace.operations), len(trace.syncs), len(moments)),
            *(0, 0, 0, ""),
        )
        seen: set[tuple[bytes, int]] = set()
        for cut, budget in _shares(moments, states):
            tried, lost, first = store.try_states(cut, budget, dice, seen)
            result = replace(
                result,
                whole=result.whole + (_count(cut) <= budget),
                states=result.states + tried,
                lost=result.lost + lost,
                first=result.first or first,
            )
        return result


class _Watched:
    """A kind of store in a folder for its trial."""

    def __init__(self, kind: Kind, folder: Path, runner: asyncio.Runner) -> None:
        self._kind = kind
        self._folder = folder
        self._runner = runner
        self._snapshots = [snapshot for snapshot, _ in self._reference()]

    def _reference(self) -> Iterator[tuple[object, str]]:
        """The contents after each of the writes, without any fault."""
        place = self._folder / "reference"
        place.mkdir()
        for write in (*self._kind.writes, None):
            yield self._shown(place, write)

    def record(self, weakness: Weakness) -> Trace:
        """Record its lives: some killed and one not killed; only the last if weak."""
        disk, plan_file = self._folder / "disk", self._folder / "plan"
        disk.mkdir()
        acks = self._folder / "acks"
        recorder = Recorder(disk, acks)
        plan = Plan(
            *(self._kind.store, self._store_path(disk), self._kind.writes, 0, ()),
            *(None, weakness),
        )
        code = "from power_cut_writer import main; main()"
        command: list[str | Path] = [sys.executable, "-P", "-c", code, plan_file, acks]
        deaths = self._kind.deaths if weakness is Weakness.NONE else ()
        for death in (*deaths, None):
            step = death if isinstance(death, tuple) else None
            left = len(self._kind.writes) - plan.first
            plan = replace(plan, groups=tuple(_groups(left)), dies_after=step)
            plan_file.write_bytes(pickle.dumps(plan))
            recorder.run(command, dies_in_sync=death if isinstance(death, int) else 0)
            copy = self._folder / "copy"
            shutil.copytree(disk, copy)
            shown, _ = self._shown(copy)
            shutil.rmtree(copy)
            plan = replace(plan, first=self._snapshots.index(shown))
        if plan.first != len(self._kind.writes):
            raise RecordError(f"{self._kind.name}: not all is written")
        return recorder.trace

    def try_states(
        self, cut: Cut, budget: int, dice: random.Random, seen: set[tuple[bytes, int]]
    ) -> tuple[int, int, str]:
        """The number of new states tried, the number with a loss, and the first
        problem.
        """
        done = [ack.text.split()[1] for ack in cut.acks if ack.text.startswith("done")]
        opened = [
            ack.text.split()[1] for ack in cut.acks if ack.text.startswith("open")
        ]
        least = max([0, *map(int, done)])
        tried, lost, first = 0, 0, ""
        for tree in states(cut, budget, dice):
            key = (_digest(tree), least + len(opened[:1]))
            if key in seen:
                continue
            seen.add(key)
            tried += 1
            said = self._wrong(tree, least, opened[0] if opened else None, dice)
            if said:
                lost += 1
                first = first or f"cut {cut.at}: {said}"
        return tried, lost, first

    def _wrong(
        self, tree: Tree, least: int, store_id: str | None, dice: random.Random
    ) -> str:
        """The problem of the store on this disk, or ''."""
        place = self._folder / "state"
        place.mkdir()
        try:
            write_out(tree, place)
            for shared in place.rglob("*-shm"):
                # The kernel writes its pages at any time.
                shared.write_bytes(dice.randbytes(shared.stat().st_size))
            shown, found_id = self._shown(place)
        except StoreError as error:
            return f"{error}".replace(str(place), "")
        finally:
            shutil.rmtree(place)
        if store_id not in {None, found_id}:
            return "it has another id"
        if shown not in self._snapshots:
            return "it shows what never was"
        # The last one: two writes may leave the same contents.
        last = len(self._snapshots) - 1 - self._snapshots[::-1].index(shown)
        if last < least:
            return f"{least} writes were done, and it shows what was after {last}"
        return ""

    def _shown(
        self, place: Path, write: Sequence[Any] | None = None
    ) -> tuple[object, str]:
        """The contents of the store there, and its id; then this may be written."""
        return self._runner.run(self._show(place, write))

    async def _show(
        self, place: Path, write: Sequence[Any] | None
    ) -> tuple[object, str]:
        store = self._kind.store(self._store_path(place))
        contents = store.open()
        try:
            shown = self._kind.snapshot(store, contents)
            if write is not None:
                written = store.write(write)
                assert written is not None
                await written
            return shown, store.store_id
        finally:
            await store.close()

    def _store_path(self, place: Path) -> Path:
        return place.resolve() / "store"


def _groups(writes: int) -> Iterator[int]:
    place = 0
    while writes:
        size = min(writes, _GROUPS[place % len(_GROUPS)])
        yield size
        writes -= size
        place += 1


def _count(cut: Cut) -> int:
    return math.prod(1 + len(operation.forms()) for operation in cut.open)


def _shares(moments: Sequence[Cut], total: int) -> Iterator[tuple[Cut, int]]:
    """Each cut with the number of its states to be tried; if there are few, all."""
    left = len(moments)
    for cut in sorted(moments, key=_count):
        budget = max(1, total // left)
        yield cut, budget
        total -= min(budget, _count(cut))
        left -= 1


def _digest(tree: Tree) -> bytes:
    content = [(path, data) for path, data in tree.contents()]
    return hashlib.sha256(pickle.dumps(content)).digest()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory, if there is one: no state needs a real disk."""
    where = _RAM if os.access(_RAM, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="power-cut-", dir=where) as folder:
        yield Path(folder)


# -- the command ------------------------------------------------------------

_HEADER = (
    "store",
    "left out",
    "operations",
    "syncs",
    "cuts",
    "whole",
    "states",
    "lost",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table.

    Returns 1 if something was lost that must not be, or the reverse.
    """
    parser = argparse.ArgumentParser(prog="python -m power_cut")
    parser.add_argument(
        *("--states", "-n"),
        type=int,
        default=_STATES,
        help="states of each store, at most (default: %(default)s)",
    )
    parser.add_argument("--seed", default="", help="chooses them, where there are more")
    options = parser.parse_args(arguments)
    rows: list[Sequence[str]] = [_HEADER]
    wrong = []
    try:
        for kind in KINDS:
            for weakness in (Weakness.NONE, *kind.weaknesses):
                states = options.states
                if weakness is not Weakness.NONE:
                    states = min(states, _WEAK_STATES)
                result = campaign(
                    kind, states=states, seed=options.seed, weakness=weakness
                )
                rows.append(_row(result, weakness))
                if (result.lost > 0) == (weakness is Weakness.NONE):
                    said = result.first or "nothing was lost, and should be"
                    wrong.append(f"{kind.name}, {weakness.value} left out: {said}")
    except RecordError as error:
        sys.stderr.write(f"power_cut: {error}\n")
        return 1
    sys.stdout.write("\n".join([*aligned(rows), *wrong]) + "\n")
    return 1 if wrong else 0


def _row(result: Result, weakness: Weakness) -> Sequence[str]:
    figures = (
        *(result.operations, result.syncs, result.cuts),
        *(result.whole, result.states, result.lost),
    )
    return (result.name, weakness.value, *map(str, figures))


if __name__ == "__main__":
    sys.exit(main())
