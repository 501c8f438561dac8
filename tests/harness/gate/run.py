"""A run of the gate: stages one after the other, and a second try for tests that failed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gate.results import Results, read
from qos.testing.processes import Child

#: If more tests than this fail, all of them have failed: there is no second try.
UNSTEADY_MAX: Final = 5

#: The exit status of pytest if tests failed, and nothing worse happened.
_TESTS_FAILED: Final = 1

#: Files of tests that the summary names, the slowest first.
_SLOWEST: Final = 10

#: Characters of a line of the summary.
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the gate that has ended."""

    name: str
    passed: bool
    seconds: float


@dataclass
class Gate:
    """The stages that have ended, and their results.

    Args:
        folder: For the results of the tests, and `unsteady.txt`.
        pytest_words: Arguments of pytest in each run of tests.
    """

    folder: Path
    pytest_words: Sequence[str] = ()
    stages: list[Stage] = field(default_factory=list)
    results: Results = field(default_factory=Results)

    #: Tests that failed beside others and passed alone, with the same line.
    unsteady: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all stages have passed."""
        return all(stage.passed for stage in self.stages)

    def stage(self, name: str, *commands: Sequence[str]) -> None:
        """Run commands one after the other, until one fails."""
        began = time.monotonic()
        passed = all(_status(command) == 0 for command in commands)
        self._add(name, passed, began)

    def tests(self, name: str, *words: str) -> None:
        """Run tests with these arguments of pytest; those that fail once more, alone.

        The second try tells a fault from a test that is unsteady: nothing runs beside it.
        """
        began = time.monotonic()
        results = self._pytest("tests", *words)
        if results.status == _TESTS_FAILED and 0 < len(results.failed) <= UNSTEADY_MAX:
            again = self._pytest("once-more", "-n", "0", *results.failed)
            results.status = again.status
            if again.status is not None:
                for test in results.failed.keys() & again.passed:
                    self.unsteady[test] = results.failed.pop(test)
        self._add_tests(name, results, began)

    def core(self, name: str, *words: str) -> None:
        """Run tests with coverage. They have no time, server or process: no second try."""
        began = time.monotonic()
        coverage = (sys.executable, "-m", "coverage")
        _status([*coverage, "erase"])
        command = (*coverage, "run", "-m", "pytest")
        results = self._pytest("core", *words, command=command)
        self._add_tests(name, results, began)

    def _pytest(
        self,
        file: str,
        *words: str,
        command: Sequence[str] = (sys.executable, "-m", "pytest"),
    ) -> Results:
        path = self.folder / f"{file}.jsonl"
        path.unlink(missing_ok=True)
        plugin = ("-p", "gate.results", "--results", str(path))
        _status([*command, *plugin, *self.pytest_words, *words])
        return read(path)

    def _add_tests(self, name: str, results: Results, began: float) -> None:
        self.results.add(results)
        self._add(name, results.status == 0 and not results.failed, began)

    def _add(self, name: str, passed: bool, began: float) -> None:
        self.stages.append(Stage(name, passed, time.monotonic() - began))

    def keep_unsteady(self) -> None:
        """Write the unsteady tests to `unsteady.txt`; if there are none, it is empty."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{test}  {why}\n" for test, why in self.unsteady.items())
        (self.folder / "unsteady.txt").write_text(text)

    def summary(self) -> str:
        """One page: the times, what was unsteady and what failed."""
        lines = ["", f"{'stage':<42}{'minutes':>9}"]
        for stage in self.stages:
            verdict = "" if stage.passed else "  FAILED"
            lines.append(f"{stage.name:<42}{_minutes(stage.seconds):>9}{verdict}")
        total = sum(stage.seconds for stage in self.stages)
        lines += [f"{'all':<42}{_minutes(total):>9}", ""]
        lines.append(f"{'the slowest files':<60}{'seconds':>9}{'tests':>7}")
        for file, seconds, tests in self.results.by_file()[:_SLOWEST]:
            lines.append(f"{file:<60}{seconds:>9.0f}{tests:>7}")
        failed = self.results.failed
        for title, named in (("UNSTEADY", self.unsteady), ("FAILED", failed)):
            if named:
                lines += ["", title, *(_cut(test, why) for test, why in named.items())]
        passed = len(self.results.passed)
        lines += ["", f"{passed} passed, {len(failed)} failed"]
        return "\n".join(lines)


def _status(command: Sequence[str]) -> int:
    """Run a command that dies with this process."""
    return subprocess.run((*Child.mortal(), *command), check=False).returncode


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _cut(test: str, why: str) -> str:
    line = f"{test}  {why}"
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
