"""Runs the simulation with a deliberate fault; the files stay as they are.

A script: it must run before the module that it changes is imported, so it may import
nothing of ours. Its task comes from stdin, as JSON (see `campaign`): one mutant, and
the words of a command to run with it; or several mutants, each to be hunted in a
process of its own, by seeds or by the test that it names.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

#: Modules that are slow to import, and have nothing of ours in them.
_HEAVY = (
    "asyncio",
    "aiohttp",
    "proton",
    "slixmpp",
    "sqlite3",
    "argparse",
    "logging",
    "random",
)

_PR_SET_PDEATHSIG = 1

_TESTS = Path(__file__).parents[2]


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module with one place changed."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old = old
        self._new = new

    def get_code(self, fullname: str) -> CodeType:
        """Neither read from the cache nor written to it."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        count = source.count(self._old)
        if count != 1:
            raise LookupError(f"{fullname} has {count} times what is to be changed")
        return compile(source.replace(self._old, self._new), path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated module before the usual finders do."""

    def __init__(self, mutant: dict[str, Any]) -> None:
        self._mutant = mutant

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """See MetaPathFinder."""
        mutant = self._mutant
        if fullname != mutant["module"]:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.origin is not None:
                spec.loader = _Mutated(
                    fullname, spec.origin, mutant["old"], mutant["new"]
                )
                return spec
        return None


def _hunt(mutant: dict[str, Any], *, first: int, seeds: int) -> dict[str, Any]:
    """Run seeds until one violates an invariant of the mutant."""
    sys.meta_path.insert(0, _Finder(mutant))
    found: dict[str, Any] = {"name": mutant["name"], "runs": seeds, "violation": ""}
    try:
        if mutant["test"]:
            found["runs"] = 1
            found["violation"] = _fails(mutant)
            return found
        planner = importlib.import_module("simulation.planner")
        world = importlib.import_module("simulation.world")
        if mutant["module"] not in sys.modules:
            raise LookupError(f"the simulation does not use {mutant['module']}")
        tried = (mutant["seed"], *range(first, first + seeds))
        for runs, seed in enumerate(tried, start=1):
            result = world.run(planner.plan_of(seed))
            violated = {each.invariant for each in result.violations}
            finders = [each for each in mutant["by"] if each in violated]
            if finders:
                found |= {"runs": runs, "seed": seed, "violation": finders[0]}
                break
    except Exception as error:  # noqa: BLE001 - told to who asked
        found["error"] = f"{type(error).__name__}: {error}"
    return found


class _Calls:
    """Notes the tests that fail by themselves, and not while they are set up."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """See pytest."""
        if report.when == "call":
            self.ran.append(report.nodeid)
            if report.failed:
                self.failed.append(report.nodeid)


def _fails(mutant: dict[str, Any]) -> str:
    """Run the test of the mutant; returns it if it fails, or ''."""
    calls = _Calls()
    os.chdir(_TESTS.parent)
    words = ["-q", "-x", "-n0", "-pno:cacheprovider", f"tests/{mutant['test']}"]
    out = os.dup(1)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        try:
            importlib.import_module("pytest").main(words, plugins=[calls])
        finally:
            os.dup2(out, 1)
            os.close(out)
    if not calls.ran:
        raise LookupError(f"there is no test {mutant['test']}, or it cannot begin")
    if mutant["module"] not in sys.modules:
        raise LookupError(f"{mutant['test']} does not use {mutant['module']}")
    return mutant["test"] if calls.failed else ""


def die_with_parent() -> None:
    """End with the parent, and leave Ctrl-C to it."""
    # Only Linux has this call.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _main() -> None:
    die_with_parent()
    order = json.loads(sys.stdin.readline())
    # The folder of a script comes first, but its modules must not hide others.
    del sys.path[0]
    mutants = order["mutants"]
    if "words" in order:
        sys.meta_path.insert(0, _Finder(mutants[0]))
        sys.argv = ["simulation", *order["words"]]
        runpy.run_module("simulation", run_name="__main__")
        return
    for name in (
        *_HEAVY,
        *(["pytest"] if any(each["test"] for each in mutants) else []),
    ):
        importlib.import_module(name)
    context = multiprocessing.get_context("fork")
    running: list[Any] = []
    for mutant in mutants:
        while len(running) >= order["jobs"]:
            wait([each.sentinel for each in running])
            running = [each for each in running if each.is_alive()]
        running.append(context.Process(target=_tell, args=(mutant, order)))
        running[-1].start()
    for each in running:
        each.join()


def _tell(mutant: dict[str, Any], order: dict[str, Any]) -> None:
    die_with_parent()
    found = _hunt(mutant, first=order["first"], seeds=order["seeds"])
    # One write: that of another process must not come in between.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
