"""`worker`: stops, starts that fail, a connection that is away, and containers."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import errno
import functools
import os
import resource
import shlex
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

import fork_settings
import init_process
from qos.cli import worker as worker_command
from qos.cli.child import run_child
from qos.stream.login import AccountSession
from qos.stream.server import Login
from tests.cli.test_no_descriptors import without_descriptors
from tests.cli.test_worker import SERVICE, WAIT, left, publish, read, started, working
from waiting import until

if TYPE_CHECKING:
    from qos.testing.server import LoopbackServer
    from tests.cli.conftest import Commands, Running

#: The unit of a worker in the guide.
UNIT = Path(__file__).parents[2] / "docs" / "code" / "worker.service"

#: As a program that ends well by SIGTERM reports it.
TRAPPED = "trap 'exit 143' TERM\n" + WAIT


#: Free descriptors that the start of a command takes.
NEEDED = 7


def open_descriptors() -> set[int]:
    """The descriptors of this process."""
    # Without the one that lists the folder.
    return {int(name) for name in os.listdir("/proc/self/fd") if _is_open(int(name))}


def _is_open(number: int) -> bool:
    return Path(f"/proc/self/fd/{number}").exists()


@pytest.mark.parametrize("script", [WAIT, TRAPPED], ids=["killed", "trapped"])
@pytest.mark.parametrize("first", ["worker", "command"])
async def test_a_command_that_is_stopped_with_its_worker_is_released(
    first: str, script: str, queues: Commands, tmp_path: Path
) -> None:
    """As systemd does by default: two deployments must not make an item dead."""
    path = tmp_path / "run"
    worker = await working(queues, script, path, "--grace", "600")
    await worker.note("ready")
    await publish(queues, "a")
    pid = await started(path)
    if first == "worker":
        worker.process.terminate()
        await worker.note("stopping")
    os.kill(pid, signal.SIGTERM)
    if first == "command":
        worker.process.terminate()
    ended = await worker.end()
    assert ended.status == 0, ended.err
    assert [line["outcome"] for line in ended.out] == ["released"]
    (item,) = (await queues.queue("browse")).out
    assert item["delivery_count"] == 0


async def test_a_command_that_is_stopped_alone_has_failed(
    queues: Commands, tmp_path: Path
) -> None:
    """By somebody else, or by itself: it would come again for ever."""
    path = tmp_path / "run"
    worker = await working(queues, WAIT, path)
    await worker.note("ready")
    await publish(queues, "a")
    os.kill(await started(path), signal.SIGTERM)
    line = await worker.line()
    assert (line["outcome"], line["signal"]) == ("failed", "SIGTERM")
    worker.process.terminate()
    assert (await worker.end()).status == 0


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("away", "No such file"),
        ("without x", "Permission denied"),
        ("being written", "Text file busy"),
        ("too few descriptors", "too few files may be open (ulimit -n)"),
    ],
)
async def test_a_command_that_cannot_be_started_costs_only_its_own_item_a_while(
    how: str, reason: str, queues: Commands, tmp_path: Path
) -> None:
    """A deployment replaces the program: what runs goes on, and the item comes again."""
    program, path = tmp_path / "program", tmp_path / "run"
    program.write_text(
        f'#!/bin/sh\n[ -e "{path}.started" ] && exit 0\nset -- "{path}"\n{WAIT}'
    )
    program.chmod(0o755)
    words = ("worker", *SERVICE, "--parallel", "3", "--", program)
    worker = await queues.start(*words, user="alice")
    await worker.note("ready")
    (first,) = await publish(queues, "a")
    pid = await started(path)
    deployed = contextlib.ExitStack()
    if how == "away":
        program.rename(tmp_path / "old")
        deployed.callback((tmp_path / "old").rename, program)
    elif how == "without x":
        program.chmod(0o644)
        deployed.callback(program.chmod, 0o755)
    elif how == "too few descriptors":
        deployed.enter_context(without_descriptors(worker))
    else:
        deployed.enter_context(program.open("a"))
    (second,) = await publish(queues, "b")
    said = await worker.note("cannot be started")
    assert reason in said
    assert "1 run; again in" in said
    line = await worker.line()
    assert (line["id"], line["outcome"], line["exit"]) == (second, "released", None)
    (item,) = (await queues.queue("browse")).out[1:]
    # A released item may wait a moment, as the service protects itself.
    assert item["state"] in {"available", "delayed"}
    assert item["delivery_count"] == 0
    deployed.close()
    while (line := await worker.line())["outcome"] == "released":
        assert line["id"] == second
    assert (line["id"], line["outcome"]) == (second, "accepted")
    assert line["delivery_count"] == 0
    os.kill(pid, 0)
    (tmp_path / "run.end").touch()
    line = await worker.line()
    assert (line["id"], line["outcome"]) == (first, "accepted")
    worker.process.terminate()
    assert (await worker.end()).status == 0


async def test_a_worker_says_how_many_commands_its_descriptors_are_enough_for(
    queues: Commands, tmp_path: Path
) -> None:
    """`ulimit -n 70`: it takes no more items than it can start commands for."""
    usual = queues.function
    queues.function = functools.partial(fork_settings.command, files=(70, 70))
    path = tmp_path / "run"
    script = (
        'mkdir "$1.$$" && until [ -e "$1.end" ]; do sleep 0.05; done; rmdir "$1.$$"'
    )
    worker = await working(queues, script, path, "--parallel", "9")
    queues.function = usual
    said = await worker.note("ulimit -n")
    assert "may have 70 files open (ulimit -n), so only 3 commands run" in said
    await worker.note("ready")
    await publish(queues, *"abcdefghi")
    await until(lambda: len(list(tmp_path.glob("run.[0-9]*"))) == 3)
    assert await left(queues) == {"acquired": 3, "available": 6, "subscribers": 1}
    (tmp_path / "run.end").touch()
    for _ in range(9):
        line = await worker.line()
        assert (line["outcome"], line["delivery_count"]) == ("accepted", 0)
    worker.process.terminate()
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, [])
    assert "cannot be started" not in ended.err


async def test_a_worker_that_can_start_nothing_leaves_the_items_to_others(
    queues: Commands, tmp_path: Path
) -> None:
    """It is not subscribed while it waits, and it has not drained."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    words = ("worker", *SERVICE, "--drain", "1800", "--", program)
    worker = await queues.start(*words, user="alice")
    await worker.note("ready")
    program.unlink()
    await publish(queues, "a")
    await worker.note("0 run; again in")
    await until(lambda: _has_no_subscriber(queues))
    other = await queues.start("worker", *SERVICE, "--", "true", user="alice")
    assert (await other.line())["outcome"] == "accepted"
    other.process.terminate()
    assert (await other.end()).status == 0
    worker.process.terminate()
    ended = await worker.end()
    # Stopped by SIGTERM, and not drained.
    assert {line["outcome"] for line in ended.out} == {"released"}
    assert "stopping" in ended.err


async def _has_no_subscriber(commands: Commands) -> bool:
    return "subscribers" not in await left(commands)


async def test_a_worker_without_a_connection_has_not_drained(
    server: LoopbackServer, queues: Commands, serving: Running, tmp_path: Path
) -> None:
    """Otherwise a job of a scheduler ends with success, and has done nothing."""
    path = tmp_path / "got"
    worker = await working(queues, 'cat >> "$1"', path, "--drain", "1800")
    await worker.note("ready")
    await server.stop()
    await worker.note("trying again")
    worker.turn_clock()
    worker.turn_clock()
    await server.start()
    await serving.note("connected again")
    await worker.note("connected again")
    await publish(queues, "a")
    assert (await worker.line())["outcome"] == "accepted"
    worker.turn_clock()
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, [])
    assert read(path).count("<text") == 1


async def test_as_process_1_it_reaps_what_its_commands_leave_behind(
    queues: Commands, tmp_path: Path
) -> None:
    """A container without an init would fill up with zombies."""
    path = tmp_path / "left"
    script = '(sh -c "echo \\$\\$ >> $1" &)'
    queues.function = init_process.command
    worker = await working(queues, script, path, "--parallel", "4")
    queues.function = type(queues)(tmp_path, 0).function
    await worker.note("ready")
    await publish(queues, *map(str, range(12)))
    for _ in range(12):
        assert (await worker.line())["outcome"] == "accepted"
    await until(lambda: len(read(path).splitlines()) == 12)
    orphans = [int(line) for line in read(path).splitlines()]
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans))
    worker.process.terminate()
    assert (await worker.end()).status == 0


async def test_a_session_waits_no_longer_for_its_servers_end_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of the grace time bounds this wait, too."""
    waits: list[float] = []

    async def disconnect(wait: float) -> None:
        waits.append(wait)

    for closing_s in (None, 0.25, 0.0):
        session = AccountSession(Login.of("bee@localhost", "secret"))
        monkeypatch.setattr(session.client, "disconnect", disconnect)
        async with session:
            if closing_s is not None:
                session.closing_s = closing_s
    assert waits == [2.0, 0.25, 0.0]


def test_the_unit_of_the_guide_stops_the_worker_alone_and_gives_it_the_time() -> None:
    """Commands get no SIGTERM, and SIGKILL comes after the grace time.

    A worker that was killed gets its items back at once, by its resource.
    """
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(UNIT.read_text().replace("\\\n", ""))
    service = unit["Service"]
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")
    program, command, *words = shlex.split(service["ExecStart"])
    assert (program.rpartition("/")[2], command) == ("xmpp-qos", "worker")
    arguments = worker_command.parser("xmpp-qos worker").parse_args(words)
    assert arguments.command == ["/opt/shop/handle-order"]
    assert float(service["TimeoutStopSec"]) > arguments.grace
    assert arguments.jid == "bee@home.arpa/%H-%N"


@pytest.mark.parametrize("memory", [True, False])
async def test_a_command_gets_its_input_wherever_there_is_room_for_it(
    memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have no folder that can be written, or forbid memfd_create."""

    def refuse(*_arguments: object) -> NoReturn:
        error = FileNotFoundError if memory else PermissionError
        raise error("No usable temporary directory found")

    if memory:
        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    else:
        monkeypatch.setattr(os, "memfd_create", refuse)
    content = os.urandom(300_000)
    command = ("sh", "-c", 'cat > "$0"', str(tmp_path / "got"))
    exit_ = await run_child(command, stdin=content, environment=dict(os.environb))
    assert exit_.status == 0
    assert (tmp_path / "got").read_bytes() == content


@pytest.mark.parametrize("free", range(10))
async def test_a_start_that_lacks_a_descriptor_fails_whole_and_takes_none(
    free: int,
) -> None:
    """Each step of a start may be the one that gets none: the pipes, the input, the fork."""
    await run_child(("true",), stdin=b"x", environment=dict(os.environb))
    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # New descriptors take the free numbers below the limit.
    numbers = sorted(set(range(max(before) + 2 + free)) - before)
    resource.setrlimit(resource.RLIMIT_NOFILE, (numbers[free], hard))
    lack: int | None = None
    try:
        await run_child(("true",), stdin=b"x", environment=dict(os.environb))
    except OSError as error:
        lack = error.errno
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await asyncio.sleep(0)
    assert open_descriptors() == before
    assert lack == (errno.EMFILE if free < NEEDED else None)


async def test_commands_take_no_descriptors_after_their_end_or_a_failed_start(
    tmp_path: Path,
) -> None:
    """A worker runs millions of them."""

    async def run(*command: str) -> None:
        await run_child(command, stdin=b"x", environment=dict(os.environb))

    await run("true")
    before = open_descriptors()
    for _ in range(20):
        await run("true")
        with pytest.raises(OSError, match="No such file"):
            await run(str(tmp_path / "none"))
    await asyncio.sleep(0)
    assert open_descriptors() <= before
