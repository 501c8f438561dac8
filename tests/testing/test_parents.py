"""A run that is killed leaves no process: each dies with the one that has started it."""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from waiting import until

HERE = Path(__file__).parent

#: A test that never ends.
WAITS = """
import pathlib, time

def test_that_waits():
    pathlib.Path("ready").touch()
    time.sleep(3600)
"""


async def kill_when(
    ready: Path, command: Sequence[str], folder: Path, *, processes: int
) -> None:
    """Run a command in a folder, kill it when a file is there, and see none left.

    Args:
        ready: made when the processes are there.
        command: the words of the command.
        folder: where it, and all that it starts, runs.
        processes: that there are at least by then.
    """
    path = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
    parent = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: ready.exists() or parent.returncode is not None)
        assert parent.returncode is None
        await until(lambda: len(processes_in(folder)) >= processes)
    finally:
        if parent.returncode is None:
            parent.kill()
        await parent.wait()
    await until(lambda: not processes_in(folder))


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is in this folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").readlink().is_relative_to(folder):
                found.append(int(each.name))
        except OSError:
            continue  # It has ended, or has another user.
    return found


@pytest.mark.crash
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param("forks", 4, id="forks, and their server"),
        pytest.param("gate", 3, id="the gate, pytest and its workers"),
        pytest.param("pool", 2, id="a pool that writes journals"),
    ],
)
async def test_a_killed_parent_leaves_no_process(
    tmp_path: Path, name: str, processes: int
) -> None:
    """Nobody is there to end them, and they would hold ports, stores and memory."""
    shutil.copy(HERE.parent / "conftest.py", tmp_path)
    command = (sys.executable, str(HERE / "killed_parents.py"), name)
    await kill_when(tmp_path / "ready", command, tmp_path, processes=processes)


@pytest.mark.crash
async def test_a_killed_make_test_leaves_no_process(tmp_path: Path) -> None:
    """Its gate runs a test of a small project here, which never ends."""
    core = tmp_path / "tests" / "core"
    core.mkdir(parents=True)
    (tmp_path / "Makefile").write_text("check docs:\n\ttrue\n")
    shutil.copy(HERE.parent / "conftest.py", core.parent)
    (core.parent / "harness").symlink_to(HERE.parent / "harness")
    (core / "test_it.py").write_text(WAITS)
    command = (
        *("make", "--file", str(HERE.parents[1] / "Makefile"), "--old-file=installed"),
        *(f"BIN={Path(sys.executable).parent}", "JOBS=1", "test"),
    )
    await kill_when(tmp_path / "ready", command, tmp_path, processes=4)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.xmpp
async def test_a_killed_campaign_leaves_no_process(tmp_path: Path) -> None:
    """With its server, the service, the workers, senders and receivers."""
    command = (
        *(sys.executable, "-P", "-m", "campaign", "--minutes", "10"),
        *("--server", "prosody", "--store", "sqlite", "--programs", "library"),
        *("--out", str(tmp_path / "evidence")),
    )
    ready = tmp_path / "evidence" / "prosody" / "server"
    await kill_when(ready, command, tmp_path, processes=8)
