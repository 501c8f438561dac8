"""`worker`: a command for each item, and each good item accepted once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qos.testing.server import LoopbackServer
from raw_client import RawComponent
from waiting import until
from worker_setup import ScriptedService, token_in

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Ended, Running

SERVICE = ("queue.localhost", "orders")

#: Records its input, and exits as the payload says.
DO_AS_TOLD = """
payload=$(cat)
echo "$QOS_ITEM_ID $QOS_NODE $QOS_DELIVERY_COUNT $payload" >> "$1"
echo "on stdout"
case $payload in
  *good*) exit 0 ;;
  *later*) [ -e "$1.later" ] && exit 0; touch "$1.later"; exit 75 ;;
  *bad*) echo "first line" >&2; echo "this is no order" >&2; echo >&2; exit 65 ;;
  *weak*) echo "out of ink" >&2; exit 3 ;;
  *killed*) kill -9 $$ ;;
esac
"""

#: Reports its start, and runs until it gets a signal.
WAIT = """
echo $$ > "$1.started"
while [ ! -e "$1.end" ]; do sleep 0.05; done
"""


async def working(
    commands: Commands, script: str, path: Path, *words: str, user: str = "alice"
) -> Running:
    """Start a worker that runs a shell script, with the path as its $1."""
    command = ("--", "sh", "-c", script, "sh", path)
    return await commands.start("worker", *SERVICE, *words, *command, user=user)


async def ended_after(worker: Running, count: int) -> Ended:
    """Stop a worker when so many items have ended; returns its end with their lines."""
    lines = [await worker.line() for _ in range(count)]
    worker.process.terminate()
    ended = await worker.end()
    return replace(ended, out=[*lines, *ended.out])


def read(path: Path) -> str:
    """The text that a command has written to a file so far."""
    return path.read_text() if path.exists() else ""


async def started(path: Path) -> int:
    """Wait until WAIT runs; return its process id."""
    file = path.with_name(f"{path.name}.started")
    await until(lambda: read(file).endswith("\n"))
    return int(read(file))


async def publish(commands: Commands, *lines: str) -> list[str]:
    """Publish these lines; return the ids of the items."""
    given = "".join(f"{line}\n" for line in lines).encode()
    ended = await commands.queue("publish", "--lines", input_=given)
    assert ended.status == 0, ended.err
    return [str(line["id"]) for line in ended.out]


async def left(commands: Commands) -> dict[str, object]:
    """The numbers of the queue that are not 0."""
    (stats,) = (await commands.queue("stats")).out
    names = ("available", "acquired", "delayed", "dead", "accepted", "subscribers")
    return {name: stats[name] for name in names if stats[name]}


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not count."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def test_the_exit_status_decides_what_becomes_of_an_item(
    queues: Commands, tmp_path: Path
) -> None:
    """The whole contract with the command, in one run."""
    settings = ("--set", "backoff=0", "--set", "max_deliveries=2")
    assert (await queues.queue("configure", *settings)).status == 0
    given = ("good", "later", "bad", "weak", "killed")
    ids = dict(zip(given, await publish(queues, *given), strict=True))
    path = tmp_path / "got"
    worker = await working(queues, DO_AS_TOLD, path)
    ended = await ended_after(worker, 8)
    assert ended.status == 0, ended.err
    outcomes = Counter(
        (line["id"], line["outcome"], line["exit"], line["signal"])
        for line in ended.out
    )
    assert outcomes == {
        (ids["good"], "accepted", 0, None): 1,
        (ids["later"], "released", 75, None): 1,
        (ids["later"], "accepted", 0, None): 1,
        (ids["bad"], "rejected", 65, None): 1,
        (ids["weak"], "failed", 3, None): 2,
        (ids["killed"], "failed", None, "SIGKILL"): 2,
    }
    assert all(float(str(line["seconds"])) >= 0 for line in ended.out)
    got = read(path).splitlines()
    line = "<text xmlns='xmpp-qos:text:0'>{}</text>".format
    assert f"{ids['good']} orders 0 {line('good')}" in got
    assert got.count(f"{ids['later']} orders 0 {line('later')}") == 2
    assert f"{ids['weak']} orders 0 {line('weak')}" in got
    assert f"{ids['weak']} orders 1 {line('weak')}" in got
    dead = {
        item["id"]: item["reason"] for item in (await queues.queue("dead list")).out
    }
    assert dead.keys() == {ids["bad"], ids["weak"], ids["killed"]}
    assert "this is no order" in str(dead[ids["bad"]])
    assert dead[ids["weak"]] == "failed: exit status 3: out of ink"
    assert dead[ids["killed"]] == "failed: SIGKILL"
    assert ended.notes.count("on stdout") == len(got)
    assert "first line" in ended.notes
    assert await left(queues) == {"dead": 3, "accepted": 2}


async def test_a_command_gets_the_content_if_it_wants_that(
    queues: Commands, tmp_path: Path
) -> None:
    """JSON for jq, a text for the shell, and XML as it is."""
    for words in (("--json", '{"n": 1}'), ("--text", "a <b>"), ("--payload", "<x/>")):
        assert (await queues.queue("publish", *words)).status == 0
    path = tmp_path / "got"
    script = 'cat >> "$1"; echo >> "$1"'
    worker = await working(queues, script, path, "--content")
    assert (await ended_after(worker, 3)).status == 0
    assert read(path).splitlines() == ['{"n":1}', "a <b>", "<x xmlns=''/>"]


async def test_a_worker_takes_only_what_its_selector_wants(
    queues: Commands, tmp_path: Path
) -> None:
    """Its command gets the properties; the others wait, and `stats` counts them."""
    payload = ("publish", "--payload", "<x/>")
    for item_id, *words in (
        ("red", "--property", "color=red", "--property", "n=7"),
        ("text", "--property", "color=red", "--property", "n:string=7"),
        ("blue", "--property", "color=blue", "--property", "n=7"),
        ("none",),
    ):
        ended = await queues.queue(*payload, "--id", item_id, *words)
        assert ended.status == 0, ended.err
    browsed = {item["id"]: item for item in (await queues.queue("browse")).out}
    assert browsed["red"]["properties"] == {"color": "red", "n": 7}
    assert browsed["text"]["properties"] == {"color": "red", "n": "7"}
    assert "properties" not in browsed["none"]
    path = tmp_path / "got"
    script = 'echo "$QOS_ITEM_ID $QOS_PROPERTIES" >> "$1"'
    selector = ("--selector", " color = 'red' AND n > 5 ")
    worker = await working(queues, script, path, *selector)
    await worker.note("ready")
    (stats,) = (await queues.queue("stats")).out
    ended = await ended_after(worker, 1)
    assert (ended.status, len(ended.out)) == (0, 1), ended.err
    assert read(path) == 'red {"color": "red", "n": 7}\n'
    assert stats["unmatched"] == 3
    assert await left(queues) == {"available": 3, "accepted": 1}


async def all_accepted(commands: Commands, count: int) -> bool:
    return (await left(commands)) == {"accepted": count, "subscribers": 1}


@pytest.mark.long
async def test_two_workers_share_a_queue_and_one_may_die(
    queues: Commands, tmp_path: Path
) -> None:
    """Workers of one account, without further options.

    Items of the killed one come again.
    """
    settings = ("--set", "lock_timeout=30", "--set", "backoff=0")
    assert (await queues.queue("configure", *settings)).status == 0
    path = tmp_path / "got"
    script = 'cat >> "$1"; echo >> "$1"; sleep 0.1'
    one = await working(queues, script, path, "--parallel", "4")
    other = await working(queues, script, path, "--parallel", "4")
    for worker in (one, other):
        await worker.note("ready")
    ids = await publish(queues, *(f"line {number}" for number in range(100)))
    done = [await one.line(), await other.line()]
    one.process.kill()
    killed = await one.end()
    await until(lambda: all_accepted(queues, 100))
    other.process.terminate()
    ended = await other.end()
    said = f"{ended.err}{killed.err}"
    assert {line["outcome"] for line in done} == {"accepted"}, said
    assert ended.status == 0, ended.err
    assert killed.status == -signal.SIGKILL
    told = (*done, *ended.out, *killed.out)
    accepted = Counter(str(x["id"]) for x in told if x["outcome"] == "accepted")
    # An outcome from just before the kill may not have been printed.
    assert max(accepted.values()) == 1
    assert accepted.keys() <= set(ids)
    assert len(accepted) >= 100 - 4
    for number in range(100):
        assert f">line {number}<" in read(path)
    assert await left(queues) == {"accepted": 100}


async def test_so_many_run_at_a_time_and_no_more(
    queues: Commands, tmp_path: Path
) -> None:
    """--parallel is a promise to the machine."""
    script = """
      touch "$1.$$"; echo x >> "$1"
      while [ ! -e "$1.end" ]; do sleep 0.05; done
      rm "$1.$$"
    """
    await publish(queues, *map(str, range(7)))
    path = tmp_path / "run"
    worker = await working(queues, script, path, "--parallel", "3")
    await until(lambda: read(path).count("x") == 3)
    assert await left(queues) == {"available": 4, "acquired": 3, "subscribers": 1}
    running = set(os.listdir(tmp_path)) - {"run"}
    assert len([name for name in running if name.startswith("run.")]) == 3
    (tmp_path / "run.end").touch()
    ended = await ended_after(worker, 7)
    assert [line["outcome"] for line in ended.out] == ["accepted"] * 7


async def test_it_ends_when_it_has_had_nothing_to_do_for_so_long(
    queues: Commands, tmp_path: Path
) -> None:
    """But not while a command runs, however long that takes."""
    week = "604800"
    assert (
        await queues.queue("configure", "--set", f"lock_timeout={week}")
    ).status == 0
    path = tmp_path / "run"
    await publish(queues, "a")
    words = ("--drain", "3600", "--lock-timeout", week)
    worker = await working(queues, WAIT, path, *words)
    await worker.note("ready")
    await started(path)
    worker.turn_clock()
    (tmp_path / "run.end").touch()
    await worker.line()
    await publish(queues, "b")
    await worker.line()
    worker.turn_clock()
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, []), ended.err
    assert await left(queues) == {"accepted": 2}


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
async def test_stopped_it_finishes_what_runs_and_gives_the_rest_back(
    signal_: signal.Signals, queues: Commands, tmp_path: Path
) -> None:
    """A deployment must cost no delivery."""
    path = tmp_path / "run"
    worker = await working(queues, WAIT, path, "--grace", "600")
    await worker.note("ready")
    await publish(queues, "a", "b")
    await started(path)
    worker.process.send_signal(signal_)
    await worker.note("stopping")
    (tmp_path / "run.end").touch()
    ended = await worker.end()
    assert ended.status == (0 if signal_ == signal.SIGTERM else 130)
    assert [line["outcome"] for line in ended.out] == ["accepted"]
    assert await left(queues) == {"available": 1, "accepted": 1}


async def test_a_worker_goes_on_at_a_sighup(queues: Commands, tmp_path: Path) -> None:
    path = tmp_path / "run"
    worker = await working(queues, WAIT, path, "--grace", "600")
    await worker.note("ready")
    await publish(queues, "a")
    await started(path)
    worker.process.send_signal(signal.SIGHUP)
    await worker.note("SIGHUP: going on")
    (tmp_path / "run.end").touch()
    assert (await worker.line())["outcome"] == "accepted"
    worker.process.send_signal(signal.SIGTERM)
    assert (await worker.end()).status == 0


@pytest.mark.parametrize("grace", ["0.2", "600"])
async def test_what_does_not_end_in_the_grace_time_is_killed_and_given_back(
    grace: str, queues: Commands, tmp_path: Path
) -> None:
    """Also at a second signal: its sender does not want to wait."""
    path = tmp_path / "run"
    worker = await working(queues, WAIT, path, "--grace", grace)
    await publish(queues, "a")
    pid = await started(path)
    worker.process.terminate()
    if grace == "600":
        await worker.note("stopping")
        worker.process.terminate()
    ended = await worker.end()
    assert ended.status == (130 if grace == "600" else 0)
    assert not alive(pid)
    assert [line["outcome"] for line in ended.out] == ["released"]
    (item,) = (await queues.queue("browse")).out
    assert (item["state"], item["delivery_count"]) in {("available", 0), ("delayed", 0)}


async def test_a_command_whose_item_is_gone_is_killed(
    queues: Commands, tmp_path: Path
) -> None:
    """With all its children: nobody needs its work any more."""
    path = tmp_path / "run"
    script = '[ -e "$1.end" ] || { sleep 600 & echo $! > "$1.child"; }\n' + WAIT
    worker = await working(queues, script, path)
    await publish(queues, "a")
    pid = await started(path)
    assert (await queues.queue("purge")).status == 0
    line = await worker.line()
    assert (line["outcome"], line["exit"], line["signal"]) == ("lost", None, None)
    assert not alive(pid)
    # They are killed together, and nobody waits for the other one's end.
    await until(lambda: not alive(int(read(tmp_path / "run.child"))))
    (tmp_path / "run.end").touch()
    await publish(queues, "b")
    assert (await worker.line())["outcome"] == "accepted"
    worker.process.terminate()
    assert (await worker.end()).status == 0


async def test_a_lock_is_extended_while_its_command_runs(
    server: LoopbackServer, commands: Commands, tmp_path: Path
) -> None:
    """The lock time-out is meant for dead workers, not for slow ones."""
    path = tmp_path / "run"
    async with RawComponent(
        SERVICE[0], "secret of queues", port=server.component_port
    ) as component:
        scripted = ScriptedService(component)
        worker = await working(commands, WAIT, path)
        bee = str((await scripted.subscribe()).get("from"))
        await scripted.deliver("i", "t", to=bee)
        await started(path)
        extend = await scripted.asked("extend")
        assert token_in(extend) == "t"
        await scripted.extended(extend, 3600)
        (tmp_path / "run.end").touch()
        await scripted.answer(await scripted.asked("retract"))
        assert (await worker.line())["outcome"] == "accepted"
        worker.process.terminate()
        await scripted.answer(await scripted.asked("unsubscribe"))
        assert (await worker.end()).status == 0


@pytest.mark.long
async def test_a_lock_lasts_as_long_as_its_command(
    queues: Commands, tmp_path: Path
) -> None:
    """Likewise, where the worker must be in time."""
    assert (await queues.queue("configure", "--set", "lock_timeout=1")).status == 0
    await publish(queues, "a")
    script, words = 'sleep 3; echo x >> "$1"', ("--lock-timeout", "1")
    worker = await working(queues, script, tmp_path / "got", *words)
    line = await worker.line()
    assert (line["outcome"], line["delivery_count"]) == ("accepted", 0)
    assert await left(queues) == {"accepted": 1, "subscribers": 1}
    assert read(tmp_path / "got") == "x\n"


async def test_a_lost_connection_does_not_end_it(
    server: LoopbackServer, queues: Commands, tmp_path: Path
) -> None:
    """It subscribes again, and goes on."""
    path = tmp_path / "got"
    worker = await working(queues, DO_AS_TOLD, path)
    await worker.note("ready")
    assert server.disconnect("alice@localhost") == 1
    await worker.note("connected again")
    (item_id,) = await publish(queues, "good")
    line = await worker.line()
    assert (line["id"], line["outcome"]) == (item_id, "accepted")
    await server.restart()
    await worker.note("connected again")
    worker.process.terminate()
    assert (await worker.end()).status == 0


async def test_a_service_that_is_restarted_finds_its_worker_again(
    queues: Commands, serving: Running, tmp_path: Path
) -> None:
    """The item stayed locked all the time, and its command ran once."""
    path = tmp_path / "run"
    worker = await working(queues, WAIT, path)
    (item_id,) = await publish(queues, "a")
    await started(path)
    serving.process.kill()
    await serving.process.wait()
    await queues.serve()
    (tmp_path / "run.end").touch()
    line = await worker.line()
    assert (line["id"], line["outcome"]) == (item_id, "accepted")
    assert await left(queues) == {"accepted": 1, "subscribers": 1}


async def test_who_may_not_work_on_a_queue_is_told(
    queues: Commands, tmp_path: Path
) -> None:
    """One line, status 1; trying again would not help."""
    assert (await queues.queue("affiliate", "bob@localhost=outcast")).status == 0
    worker = await working(queues, DO_AS_TOLD, tmp_path / "got", user="bob")
    ended = await worker.end()
    assert (ended.status, ended.out) == (1, [])
    assert "item-not-found" in ended.notes[-1]
    words = ("worker", "queue.localhost", "nothing", "--", "true")
    ended = await queues.run(*words, user="alice")
    assert (ended.status, ended.out) == (1, [])
    assert "item-not-found" in ended.notes[-1]


async def test_without_a_server_there_is_no_connection(
    server: LoopbackServer, commands: Commands
) -> None:
    """Status 4, as for the other commands."""
    await server.stop()
    words = ("worker", *SERVICE, "--connect-timeout", "3600", "--", "true")
    worker = await commands.start(*words, user="alice")
    await worker.note("trying again")
    worker.turn_clock()
    ended = await worker.end()
    assert (ended.status, ended.out) == (4, [])
    assert "gave up after 3600 s" in ended.err


async def test_it_can_be_stopped_before_there_is_a_session(
    server: LoopbackServer, commands: Commands
) -> None:
    """There is nothing to give back."""
    await server.stop()
    worker = await commands.start("worker", *SERVICE, "--", "true", user="alice")
    await worker.note("trying again")
    worker.process.terminate()
    ended = await worker.end()
    assert (ended.status, ended.out) == (0, [])
    assert ended.notes[-1].startswith("xmpp-qos: stopped")


async def test_nobody_who_reads_its_stdout_ends_it(
    queues: Commands, tmp_path: Path
) -> None:
    """As a shell reports SIGPIPE; without a reader it does no further work."""
    worker = await working(queues, DO_AS_TOLD, tmp_path / "got")
    await publish(queues, "good")
    await worker.line()
    worker.close_stdout()
    await publish(queues, "good")
    await worker.note("nobody reads stdout any more")
    assert await worker.process.wait() == 141


async def test_an_item_whose_id_no_command_can_be_given_is_rejected_alone(
    server: LoopbackServer, commands: Commands, tmp_path: Path
) -> None:
    """Linux accepts no variable of 128 KiB; other items must not suffer from it."""
    async with RawComponent(
        SERVICE[0], "secret of queues", port=server.component_port
    ) as component:
        scripted = ScriptedService(component)
        worker = await working(commands, "cat", tmp_path)
        bee = str((await scripted.subscribe()).get("from"))
        await scripted.deliver("i" * 200_000, "t1", to=bee)
        rejected = await scripted.asked("unlock")
        assert token_in(rejected) == "t1"
        reason = "its id has 200000 bytes, and a command is given up to 65536"
        assert reason in "".join(rejected.itertext())
        await scripted.answer(rejected)
        await scripted.deliver("good", "t2", to=bee)
        accepted = await scripted.asked("retract")
        assert token_in(accepted) == "t2"
        await scripted.answer(accepted)
        worker.process.terminate()
        await scripted.answer(await scripted.asked("unsubscribe"))
        ended = await worker.end()
    assert ended.status == 0
    assert [line["outcome"] for line in ended.out] == ["rejected", "accepted"]
