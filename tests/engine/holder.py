"""Another process that has a store open."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def holder(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that prints `open` when it has a store open, and kill it."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()
