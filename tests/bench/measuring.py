"""The rules for every sample, and the processes that work in a folder."""

import contextlib
import os
from pathlib import Path

import pytest

from benchmarks.sample import Sample, Work
from waiting import LIMIT_S, until

#: For `in_children`: a late answer is waited for. Otherwise a busy machine would repeat
#: messages, and the figures would have more stanzas.
NO_REPEATS = """
from xep_qos.settings import Settings
Settings.__init__.__kwdefaults__["retry_first_s"] = 60.0
"""


def check(
    sample: Sample, work: Work, *, in_window: bool = True, service: bool = False
) -> None:
    """Check that the figures agree with each other and with the work.

    Args:
        sample: the sample.
        work: the work that was requested.
        in_window: whether the next message waits for the end of an earlier one.
        service: whether there is a service beside the server.
    """
    assert sample.messages >= work.window
    assert sample.seconds < work.seconds + LIMIT_S
    assert 0 < sample.p50_s <= sample.p99_s <= sample.p999_s <= sample.seconds
    if in_window:
        # The sender learns of an end a little later than it happens.
        assert sample.seconds >= 0.9 * work.seconds
        # Half of the messages took at least this long, and only a window of them runs
        # at a time.
        busy_s = sample.p50_s * sample.messages / 2
        assert busy_s <= work.window * sample.seconds
    processes = {"sender", "receiver", "server"} | ({"service"} if service else set())
    assert set(sample.cpu_s) == processes
    for name, used_s in sample.cpu_s.items():
        # Each process can use at most two cores.
        assert 0 < used_s < 2 * (sample.seconds + LIMIT_S)
        assert sample.rss_bytes[name] > 2**20


def processes_in(folder: Path) -> list[int]:
    """Return the ids of all processes that work in this folder."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdecimal() and Path(os.readlink(f"/proc/{name}/cwd")) == folder:
                found.append(int(name))
    return found


async def left_in(folder: Path) -> list[int]:
    """The processes that still work there; Erlang's helpers end soon after the broker."""
    with contextlib.suppress(TimeoutError):
        await until(lambda: not processes_in(folder))
    return processes_in(folder)


def in_children(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """Make each Python that is started run this code first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(program)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
