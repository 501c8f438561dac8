"""Runs the simulation on a source that is wrong on purpose; the files stay as they are.

A script: it must be there before the module that it changes, so it may import nothing
of ours. What it is to do stands in stdin, as JSON (see `campaign`): one mutant, and the words of a command to run with it; or several, each to be
hunted in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import multiprocessing
import runpy
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from types import CodeType, ModuleType
from typing import Any

#: What takes long to import, and has nothing of ours in it.
_HEAVY = ("asyncio", "slixmpp", "sqlite3", "argparse", "logging", "random")

_PR_SET_PDEATHSIG = 1


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module with one place in it changed."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old = old
        self._new = new

    def get_code(self, fullname: str) -> CodeType:
        """Not from the cache, and not into it."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        count = source.count(self._old)
        if count != 1:
            raise LookupError(f"{fullname} has {count} times what is to be changed")
        return compile(source.replace(self._old, self._new), path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated module before anybody else does."""

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
    """Run seeds until one violates what the mutant is to be found out by."""
    sys.meta_path.insert(0, _Finder(mutant))
    found: dict[str, Any] = {"name": mutant["name"], "runs": seeds, "violation": ""}
    try:
        simulation = importlib.import_module("simulation")
        if mutant["module"] not in sys.modules:
            raise LookupError(f"the simulation does not use {mutant['module']}")
        tried = (mutant["seed"], *range(first, first + seeds))
        for runs, seed in enumerate(tried, start=1):
            result = simulation.run(simulation.plan_of(seed))
            violated = {each.invariant for each in result.violations}
            finders = [each for each in mutant["by"] if each in violated]
            if finders:
                found |= {"runs": runs, "seed": seed, "violation": finders[0]}
                break
    except Exception as error:  # noqa: BLE001 - told to who asked
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def die_with_parent() -> None:
    """Do not outlive whoever has started this process, and leave Ctrl-C to him."""
    # There is no such call elsewhere than on Linux.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _main() -> None:
    die_with_parent()
    order = json.loads(sys.stdin.readline())
    # The folder of a script comes first, and its modules are not for everybody.
    del sys.path[0]
    mutants = order["mutants"]
    if "words" in order:
        sys.meta_path.insert(0, _Finder(mutants[0]))
        sys.argv = ["simulation", *order["words"]]
        runpy.run_module("simulation", run_name="__main__")
        return
    for name in _HEAVY:
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
    # One write, or that of another process might come in between.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
