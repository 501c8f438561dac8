"""`audit` as a process of its own: killed, started again, and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synth import Plan, synthesise
from fleets import Fleets, journals_in
from parquet import rows_of
from published import differences, wrong_verdicts
from qos.audit.batch_tables import TABLES
from qos.cli import main
from qos.testing.processes import Child
from small_pipe import SmallPipe

COMMAND = "import sys; from qos.cli import main; sys.exit(main())"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(600),
]


class Process:
    """The command, in a group of processes of its own, as of a shell."""

    def __init__(
        self,
        journals: Sequence[str],
        out: Path,
        *options: str,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self._process = subprocess.Popen(
            (
                *(*Child.mortal(), sys.executable),
                *("-P", "-c", COMMAND, "audit", *journals),
                *("--out", str(out)),
                *("--master", "local[2]", "--json", *options),
            ),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            assert self._process.poll() is None, self._process.communicate()
            time.sleep(0.02)

    def kill(self) -> None:
        """With the JVM, as when the machine goes down."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def stop_all(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)

    def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def ended(self) -> tuple[int, list[dict[str, object]], str]:
        out, err = self._process.communicate()
        lines = [json.loads(line) for line in out.splitlines()]
        return self._process.returncode, lines, err

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def process(*args: object, **options: int) -> Process:
        started.append(Process(*args, **options))  # type: ignore[arg-type]  # as given
        return started[-1]

    yield process
    for each in started:
        each.close()


@pytest.mark.long
def test_a_killed_follower_goes_on_and_a_stopped_one_ends_its_batch(
    start: Callable[..., Process],
    tmp_path: Path,
    fleets: Fleets,
    audited_fleets: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGKILL while the tables are written: and they come out as those of an audit.

    Some files come only then.
    """
    journals, out = tmp_path / "journals", tmp_path / "out"
    fleets.write(journals, late=False)
    follow = ("--follow", "--every", "0.2")
    first = start(journals_in(journals), out, *follow)
    first.until(lambda: any((out / "deliveries").rglob("*.parquet")))
    first.kill()
    assert not (out / "anomalies").exists()
    second = start(journals_in(journals), out, *follow)
    second.until((out / "anomalies").exists)
    fleets.write(journals, late=True)
    assert main(["audit", *journals_in(journals), "--out", str(out), "--follow"]) == 2
    _, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "another audit writes into it" in err
    second.until(lambda: differences(out, fleets.recount) == {})
    second.stop()
    status, _, err = second.ended()
    assert (status, err.count("\n")) == (1, 1)
    assert "stopping after this batch" in err
    assert wrong_verdicts(out, fleets.truth) == {}
    for name in set(TABLES) - {"anomalies"}:
        found, expected = (
            rows_of(folder / name, without=("judged_at", "found_at", "history"))
            for folder in (out, audited_fleets)
        )
        assert found == expected, name
    problems = rows_of(out / "problems")
    there = {
        row.replace(str(fleets.journals), str(journals)): n
        for row, n in rows_of(audited_fleets / "problems").items()
    }
    assert problems == there


@pytest.mark.long
def test_who_ends_the_whole_group_reads_no_traceback(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    """As `timeout` does, or a supervisor: Java is gone before the command."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    synthesise(Plan(devices=5, messages=20_000), journals, processes=1)
    process = start([str(journals)], out)
    process.until(lambda: out.exists() and any(out.iterdir()))
    process.stop_all()
    status, lines, err = process.ended()
    assert (status, lines) == (130, [])
    assert err == ""


@pytest.fixture
def pipe() -> Iterator[SmallPipe]:
    pipe = SmallPipe()
    yield pipe
    pipe.close()


@pytest.mark.long
def test_a_follower_whose_stderr_nobody_reads_looks_on_and_hears_a_signal(
    start: Callable[..., Process], tmp_path: Path, pipe: SmallPipe
) -> None:
    """Each missing folder is a note; those that were dropped are counted at their place."""
    first, second = (tmp_path / name for name in ("first", "second"))
    plan = Plan(devices=2, messages=20)
    synthesise(plan, first, processes=1)
    missing = [f"{number}{'/x' * 1500}" for number in range(120)]
    second.mkdir()
    follow = ("--follow", "--every", "0.2")
    journals = [str(first), str(second), *missing]
    process = start(journals, tmp_path / "out", *follow, stderr=pipe.writer)
    lines = process.line()["lines"]
    assert lines > 0
    process.until(lambda: bool(pipe.dropped()))
    (dropped,) = pipe.dropped()
    assert pipe.read().count(b"left out") + dropped == len(missing)
    pipe.fill()
    synthesise(plan, second, processes=1)
    assert process.line()["lines"] > lines
    process.stop()
    status, _, _ = process.ended()
    assert status in {0, 1}
