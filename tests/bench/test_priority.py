"""`bench --priority`: what is measured runs ahead of other programs."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.__main__ import main
from benchmarks.priority import raise_priority

#: In a process of its own: it cannot be taken back without the same right.
CHILD = """
import json, os, subprocess, sys
from benchmarks.priority import raise_priority
raised = raise_priority()
read = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"
child = subprocess.check_output([sys.executable, "-P", "-c", read], text=True)
print(json.dumps([raised, *map(int, child.split())]))
"""


def _refused(*_: object) -> None:
    raise PermissionError


def test_it_is_raised_for_the_children_too() -> None:
    """As far as this machine allows it."""
    done = subprocess.check_output([sys.executable, "-P", "-c", CHILD], text=True)
    raised, scheduler, nice = json.loads(done)
    before = (None, os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))
    assert (raised, scheduler, nice) in [
        ("SCHED_RR, priority 1", os.SCHED_RR, before[2]),
        ("nice -10", os.SCHED_OTHER, -10),
        before,
    ]


def test_where_real_time_is_not_allowed_nice_has_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", _refused)
    asked: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda *given: asked.append(given[-1]))
    assert raise_priority() == "nice -10"
    assert asked == [-10]


def test_where_nothing_is_allowed_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A figure without it would be taken for one with it."""
    monkeypatch.setattr(os, "sched_setscheduler", _refused)
    monkeypatch.setattr(os, "setpriority", _refused)
    assert main(["--priority", "--embedded"]) == 2
    assert "needs root or CAP_SYS_NICE" in capsys.readouterr().err
