"""The measured usage of a process agrees with the system's."""

import os
import subprocess
import sys
import time
from pathlib import Path

from qos.bench.usage import Watch, usage_of

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
        (sys.executable, "-c", BUSY), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = usage_of(process.pid)
        fields = (
            Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        process.communicate(b"\n")
    assert used is not None
    assert used.cpu_s > 0.2
    ticks = int(fields[11]) + int(fields[12])
    assert abs(used.cpu_s - ticks / os.sysconf("SC_CLK_TCK")) < 0.05
    assert 2**20 < used.rss_bytes < 2**28


def test_our_own_time_is_what_python_says() -> None:
    """There is another way to read the same clock."""
    before = time.process_time()
    used = usage_of(os.getpid())
    assert used is not None
    assert before <= used.cpu_s <= time.process_time()


def test_what_all_else_uses_is_a_part_of_the_machine() -> None:
    """A program beside the measurement is seen, and what is measured is not."""
    busy = "while True: pass"
    with subprocess.Popen((sys.executable, "-c", busy)) as process:
        try:
            with Watch({"sender": process.pid}) as mine:
                time.sleep(0.5)
            with Watch({}) as its:
                time.sleep(0.5)
        finally:
            process.kill()
    assert mine.others_share is not None
    assert its.others_share is not None
    assert 0 <= mine.others_share <= 1
    assert its.others_share > 0.3 / (os.cpu_count() or 1)


def test_a_process_that_is_gone_has_used_nothing_we_know() -> None:
    """The caller that misses its answer reports the end."""
    process = subprocess.Popen((sys.executable, "-c", ""))
    process.wait()
    assert usage_of(process.pid) is None
    with Watch({"server": process.pid, "sender": os.getpid()}) as used:
        pass
    assert set(used.cpu_s) == set(used.rss_bytes) == {"sender"}
