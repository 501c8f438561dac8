"""The command: `python -m gate`, with tests/harness in the PYTHONPATH.

`make test` and `make test-all` call it when all that the tests need is installed. Each
stage runs, also after one that failed, so that one run shows everything. See gate.run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gate.run import Gate
from parents import die_with_parent


def main(words: Sequence[str] | None = None) -> int:
    """Run the gate; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gate",
        description="Run checks and tests. A test that fails runs once more, alone; if it "
        "passes then, it is unsteady, and the gate passes. The last page names what was "
        "unsteady and what failed.",
    )
    parser.add_argument(
        "--all", action="store_true", help="leave out no test, not those marked long"
    )
    parser.add_argument(
        "--jobs", default="auto", metavar="N", help="tests at once (one for each core)"
    )
    parser.add_argument("words", nargs="*", help="more arguments of pytest, after `--`")
    options = parser.parse_args(words)
    gate = Gate(Path("build"), ["-n", options.jobs, *options.words])
    make = ["make", "--no-print-directory"]
    coverage = [sys.executable, "-m", "coverage"]
    gate.stage("check and docs", [*make, "-j2", "check", "docs"])
    # The core is proved by its own tests, every branch of it; to trace all else as well
    # would take three times as long.
    not_long = () if options.all else ("-m", "not long")
    gate.core("core", *not_long, "tests/core")
    gate.stage(
        "each branch of core",
        [*coverage, "combine", "--quiet"],
        [*coverage, "report", "--fail-under=100"],
    )
    gate.tests("other tests", *not_long, "--ignore=tests/core")
    gate.keep_unsteady()
    print(gate.summary(), flush=True)
    return 0 if gate.passed else 1


if __name__ == "__main__":
    die_with_parent()
    sys.exit(main())
