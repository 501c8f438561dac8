"""Runs of a program that is killed at every step, one run after the other.

    with Runs(Path(__file__).with_name("crashing_writer.py")) as writer:
        status = writer.run(folder, 7)

The program calls `main` with a function. Each run is a fork of the program that calls
this function with the words that the test gives: a new interpreter would take longer than
the run itself. No run outlives the test.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from parents import die_with_parent

__all__ = ["Runs", "kills_at", "main"]

_END_S_MAX = 10.0


class Runs:
    """A program that runs again and again, as the test asks."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, *words: object) -> int:
        """Begin a run with these words; returns its process id."""
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def end(self) -> int:
        """Wait for the end of a run; returns its status, or minus its signal."""
        return self._answer()

    def run(self, *words: object) -> int:
        """Run with these words; returns the status, or minus the signal."""
        self.begin(*words)
        return self.end()

    def survives(self, *words: object) -> bool:
        """Run with these words; returns whether the run ended by itself."""
        status = self.run(*words)
        assert status in {0, -signal.SIGKILL}
        return status == 0

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def main(run: Callable[..., None]) -> None:
    """Run as the program: do each run that a line of stdin asks for."""
    die_with_parent()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                die_with_parent()
                run(*line.split())
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def kills_at(number: int) -> Callable[[str], None]:
    """A probe of each step of a run, which kills the run at this step; -1: at none."""
    steps = itertools.count()

    def probe(_step: str) -> None:
        if next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # In another thread the signal may take a moment.

    return probe
