"""Child processes: their answers, the resources they use, and their ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.usage import Watch
from qos.testing import processes
from qos.testing.ports import ADDRESS, free_ports
from qos.testing.processes import (
    Child,
    NotInstalled,
    Process,
    ProcessFailed,
    find_program,
)
from waiting import LIMIT_S, until

HERE = Path(__file__).parent


@pytest.fixture
async def child(tmp_path: Path) -> AsyncIterator[Child]:
    child = await start(tmp_path)
    yield child
    await child.kill()


async def start(folder: Path) -> Child:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path}
    return await Child.start("talking_child", folder=folder, environment=environment)


async def test_a_child_answers_what_it_is_asked_and_nothing_else(child: Child) -> None:
    """Otherwise the output of a library would be read as an answer."""
    assert await child.do("add", one=1, other=2) == {"sum": 3}
    assert await child.do("add", one=2, other=2) == {"sum": 4}
    assert "what a library prints" in child.log


async def test_what_fails_in_a_child_is_raised_by_its_parent(child: Child) -> None:
    """A measurement that failed must not look like one of zero messages."""
    with pytest.raises(
        ProcessFailed, match=r"^talking_child: ValueError: no such thing$"
    ):
        await child.do("fail")
    assert "Traceback" in child.log
    assert await child.do("add", one=1, other=2) == {"sum": 3}


async def test_a_child_that_has_died_is_an_error_and_not_a_wait(child: Child) -> None:
    """Otherwise the error would only be found by a time-out."""
    for command in ("die", "add"):
        with pytest.raises(ProcessFailed, match=r"^talking_child ended with status 3$"):
            await child.do(command)


async def test_what_a_user_can_do_something_about_is_told_apart(
    child: Child,
) -> None:
    """By this, a script recognises that there is no server, in whichever process it is
    noticed.
    """
    with pytest.raises(
        ProcessFailed, match=r"^talking_child: there is no server$"
    ) as it:
        await child.do("refuse")
    assert it.value.unreachable
    assert child.log == ""


async def test_the_last_words_are_in_the_error_and_in_one_line(tmp_path: Path) -> None:
    """The log is removed with the folder before anybody can read it."""
    program = "import sys; sys.exit('one\\ntwo\\n\\nthree\\nfour')"
    server = await Process.start(
        *(sys.executable, "-P", "-c", program), name="it", folder=tmp_path
    )
    (port,) = free_ports(1)
    with pytest.raises(
        ProcessFailed, match=r"^it ended with status 1: two \| three \| f"
    ):
        await server.until_listening(port)


async def test_a_child_that_a_library_crashes_leaves_its_stack(child: Child) -> None:
    with pytest.raises(ProcessFailed, match="ended with status -11"):
        await child.do("crash")
    assert "in crash" in child.log


async def test_a_child_ends_whatever_it_is_doing(child: Child) -> None:
    """Only the end of its stdin ends it, and in order: it may have to log out."""
    await child.do("add", one=1, other=2)
    with pytest.raises(ProcessFailed, match="did not sleep within"):
        await child.do("sleep", seconds=3600, patience_s=0.05)
    await child.end(seconds=LIMIT_S)
    assert child.status == 0  # not by force


async def test_the_processor_time_is_that_of_the_child(child: Child) -> None:
    """The cost of a message is calculated from differences of these figures."""
    before = await child.do("work", seconds=0.0)
    with Watch({"sender": child.pid}) as used:
        done = await child.do("work", seconds=0.1)
    after = await child.do("work", seconds=0.0)
    own_s = done["ended"] - done["began"]
    assert 0.1 <= own_s <= used.cpu_s["sender"] <= after["began"] - before["ended"]
    assert used.rss_bytes["sender"] > 2**20


async def test_a_child_ends_when_it_is_told_to(child: Child) -> None:
    """A benchmark leaves no processes behind."""
    await child.do("add", one=1, other=2)
    await child.end()
    assert not child.running
    await child.end()
    await child.kill()


async def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """Even if the parent is killed, and cannot end anything."""
    program = (
        "import asyncio, pathlib, time\n"
        "from qos.testing.processes import Process\n"
        "async def main():\n"
        "    folder = pathlib.Path.cwd()\n"
        "    process = await Process.start('sleep', '3600', folder=folder)\n"
        "    print(process.pid, flush=True)\n"
        "    time.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    # Before that it is setpriv, which may not have set the signal yet.
    await until(lambda: _name(pid) == "sleep")
    parent.kill()
    await parent.wait()
    await until(lambda: not _lives(pid))


async def test_a_server_is_awaited_until_it_listens(tmp_path: Path) -> None:
    """A client that comes too early would fail the whole benchmark."""
    (port,) = free_ports(1)
    arguments = ("-m", "http.server", "--bind", "127.0.0.1", str(port))
    server = await Process.start(sys.executable, *arguments, folder=tmp_path)
    await server.until_listening(port)
    os.kill(server.pid, signal.SIGKILL)
    await server.end()
    with pytest.raises(ProcessFailed, match="ended with status -9"):
        await server.until_listening(port)


async def test_the_status_of_a_process_that_has_just_died_is_its_own(
    tmp_path: Path,
) -> None:
    """It happened once.

    The status was 255, because asyncio was told that there is no such child.
    """
    for spins in range(0, 3000, 20):
        process = await Process.start("sleep", "60", folder=tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        for _ in range(spins):
            pass
        await process.end()
        with pytest.raises(ProcessFailed, match="ended with status -9"):
            await process.until_listening(1)


async def test_a_server_that_has_ended_is_not_taken_for_another_on_its_port(
    tmp_path: Path,
) -> None:
    """Otherwise another program would be measured."""
    other = await asyncio.start_server(lambda _, writer: writer.close(), ADDRESS, 0)
    port = other.sockets[0].getsockname()[1]
    server = await Process.start("false", folder=tmp_path)
    await server.end()
    with pytest.raises(ProcessFailed, match="false ended with status"):
        await server.until_listening(port)
    other.close()
    await other.wait_closed()


def test_a_program_that_is_not_there_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user has to know which package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "SBIN", ())
    with pytest.raises(
        NotInstalled, match=r"not installed \(Debian package: mosquitto\)"
    ):
        find_program("mosquitto", "mosquitto")


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _lives(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The init of a container may not reap its orphans.
    return " Z " not in status
