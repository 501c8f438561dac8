"""The command: `python -m benchmarks`, with tests/harness in the PYTHONPATH."""

from __future__ import annotations

import sys

from benchmarks import command
from qos.cli.entry import run_found

__all__ = ["PROG", "main"]

PROG = "python -m benchmarks"


def main(words: list[str]) -> int:
    """Run the command with these words; returns the exit status."""
    return run_found(lambda: (command, PROG, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
