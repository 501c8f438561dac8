"""The measured usage of a process agrees with the system's."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import usage
from benchmarks.usage import Usage, Watch, machine_s, usage_of

BUSY = """
import threading, time
def work():
    while time.thread_time() < 0.1: pass
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
input()
"""


def test_the_time_of_another_process_is_that_of_all_its_threads() -> None:
    """A store works in threads; and a message takes less than a tick of /proc."""
    with subprocess.Popen(
        (sys.executable, "-P", "-c", BUSY),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = usage_of(process.pid)
        fields = (
            Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        after = usage_of(process.pid)
        process.communicate(b"\n")
    assert used is not None
    assert after is not None
    assert used.cpu_s > 0.2
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    by_ticks_s = (int(fields[11]) + int(fields[12])) * tick_s
    # Of the time of the user and of that of the system, each is rounded.
    assert used.cpu_s - 3 * tick_s < by_ticks_s < after.cpu_s + 3 * tick_s
    assert 2**20 < used.rss_bytes < 2**28


def test_our_own_time_is_what_python_says() -> None:
    """There is another way to read the same clock."""
    before = time.process_time()
    used = usage_of(os.getpid())
    assert used is not None
    assert before <= used.cpu_s <= time.process_time()


def test_what_all_else_uses_is_a_part_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program beside the measurement is seen, and what is measured is not."""
    read = iter([100.0, 103.5, 200.0, 203.5, 300.0, 320.0])
    moments = iter([10.0, 12.0, 20.0, 22.0, 30.0, 32.0])
    used = iter([Usage(1.0, 1), Usage(2.5, 1)])
    monkeypatch.setattr(usage, "machine_s", lambda: next(read))
    monkeypatch.setattr(usage, "usage_of", lambda _pid: next(used))
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr(usage, "time", clock)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with Watch({"sender": 1}) as mine:
        pass
    with Watch({}) as its, Watch({}) as too_much:
        pass
    assert mine.cpu_s == {"sender": 1.5}
    assert mine.others_share == (3.5 - 1.5) / (2 * 2.0)
    assert (its.others_share, too_much.others_share) == (1, 1)


def test_a_program_that_works_is_seen_in_the_time_of_the_machine() -> None:
    """Whatever else there is: it is not less than the time of that program."""
    busy = "while True: pass"
    with subprocess.Popen((sys.executable, "-P", "-c", busy)) as process:
        try:
            before = spent = usage_of(process.pid)
            machine_before = machine_s()
            assert before is not None
            while spent is not None and spent.cpu_s < before.cpu_s + 0.3:
                time.sleep(0.01)
                spent = usage_of(process.pid)
            machine_after = machine_s()
        finally:
            process.kill()
    assert machine_before is not None
    assert machine_after is not None
    # It is counted in ticks.
    assert machine_after - machine_before > 0.2


def test_a_process_that_is_gone_has_used_nothing_we_know() -> None:
    """The caller that misses its answer reports the end."""
    process = subprocess.Popen((sys.executable, "-P", "-c", ""))
    process.wait()
    assert usage_of(process.pid) is None
    with Watch({"server": process.pid, "sender": os.getpid()}) as used:
        pass
    assert set(used.cpu_s) == set(used.rss_bytes) == {"sender"}
