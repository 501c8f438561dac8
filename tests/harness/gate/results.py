"""A plugin of pytest that keeps the result of each test in a file: `-p gate.results`.

It writes one line of JSON for each phase of a test (set-up, call, tear-down), and one
with the exit status at the end, which is missing if the process died. With pytest-xdist only the process that
shares out the tests writes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

#: What pytest-xdist adds to the name of a test of a group, with `--dist=loadgroup`.
#: The name ends with `]` if it has parameters, so an `@` in these is not meant.
_GROUP: Final = re.compile(r"@[^]@]*$")


@dataclass
class Results:
    """The results of one run, or of several one after the other."""

    #: Each test, with the seconds it took.
    seconds: dict[str, float] = field(default_factory=dict)

    #: The tests that failed, with the first line of the error.
    failed: dict[str, str] = field(default_factory=dict)

    #: The exit status of pytest; None if its process died before its end.
    status: int | None = None

    @property
    def passed(self) -> set[str]:
        """The tests without an error."""
        return self.seconds.keys() - self.failed.keys()

    def add(self, more: Results) -> None:
        """Add the results of another run."""
        self.seconds |= more.seconds
        self.failed |= more.failed

    def by_file(self) -> list[tuple[str, float, int]]:
        """Each file, its seconds and its tests; the slowest first."""
        files: dict[str, list[float]] = {}
        for test, seconds in self.seconds.items():
            files.setdefault(test.partition("::")[0], []).append(seconds)
        rows = [(file, sum(all_), len(all_)) for file, all_ in files.items()]
        return sorted(rows, key=lambda row: row[1], reverse=True)


def read(path: Path) -> Results:
    """Read what the plugin has written; without a file there are no results."""
    results = Results()
    if not path.exists():
        return results
    for line in path.read_text().splitlines():
        phase = json.loads(line)
        if "status" in phase:
            results.status = phase["status"]
            continue
        test = str(phase["test"])
        results.seconds[test] = results.seconds.get(test, 0.0) + phase["seconds"]
        if phase["outcome"] == "failed":
            results.failed.setdefault(test, str(phase["error"]))
    return results


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--results", type=Path, help="write the result of each test here")


def pytest_configure(config: pytest.Config) -> None:
    """Write, except in the processes that only run tests."""
    path = config.getoption("--results")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(path))


class _Writer:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phase = {
            "test": _GROUP.sub("", report.nodeid),
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            "error": _first_line(report),
        }
        self._file.write(f"{json.dumps(phase)}\n")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._file.write(f"{json.dumps({'status': int(exitstatus)})}\n")

    def pytest_unconfigure(self) -> None:
        self._file.close()


def _first_line(report: pytest.TestReport) -> str:
    """The first line of the error, without the traceback; "" if there is none."""
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    return next(iter(text.strip().splitlines()), "")
