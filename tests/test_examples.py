"""The examples run unchanged, and the README shows their content."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qos.core.queue.node_options import NODE_FIELDS
from qos.testing import LoopbackServer, friends, logged_in, queue_service
from qos.testing.processes import Child
from waiting import LIMIT_S
from xep_0254 import XEP_0254, NewItem

ROOT = Path(__file__).parents[1]


def run(example: str, folder: Path | None = None) -> str:
    """Run an example, in a folder for its stores; returns what it printed."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_quickstart_delivers_its_message(tmp_path: Path) -> None:
    """Every newcomer runs it first, and then again."""
    for _ in range(2):
        said = run("quickstart.py", tmp_path).splitlines()
        assert said == ["lamp: on", "controller: delivered"]


def test_quickstart_that_is_killed_in_the_middle_gets_its_message_again(
    tmp_path: Path,
) -> None:
    """As the README says: the kill comes when the loop has printed, and is not done."""
    text = (ROOT / "examples" / "quickstart.py").read_text()
    printing = 'print("lamp:", message["body"])'
    assert printing in text
    dies = f"{printing[:-1]}, flush=True); import os; os.kill(os.getpid(), 9)"
    victim = tmp_path / "victim.py"
    victim.write_text(text.replace(printing, dies))
    died = subprocess.run(
        [sys.executable, victim],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "lamp: on\n")
    said = run("quickstart.py", tmp_path).splitlines()
    assert sorted(said) == ["controller: delivered", "lamp: on", "lamp: on"]


@asynccontextmanager
async def example(folder: Path, name: str, *words: str | int) -> AsyncIterator[Process]:
    """An example with arguments, in a folder for its store."""
    process = await asyncio.create_subprocess_exec(
        *Child.mortal(),
        sys.executable,
        ROOT / "examples" / name,
        *map(str, words),
        cwd=folder,
        env=os.environ | {"XMPP_QOS_PASSWORD": "secret"},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(2 * LIMIT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_the_device_does_what_the_controller_says(tmp_path: Path) -> None:
    """Also after a restart of the server between two commands."""
    device = ("device.py", "lamp@localhost/1")
    controller = ("controller.py", "me@localhost/1")
    async with (
        friends("lamp", "me") as server,
        example(tmp_path, *device, server.port) as lamp,
    ):
        assert lamp.stdout is not None
        for command in ("on", "off"):
            words = (server.port, "lamp@localhost", command)
            async with example(tmp_path, *controller, *words) as me:
                out, err = await me.communicate()
                assert (out.decode(), err) == (f"{command} delivered\n", b"")
            assert await lamp.stdout.readline() == f"the lamp is {command}\n".encode()
            await server.restart()


async def test_the_worker_does_each_item_and_stops_in_order(tmp_path: Path) -> None:
    """After SIGTERM it gives back the items that it has not begun."""
    async with queue() as (server, queues):
        await queues.publish(SERVICE, "orders", [named(name) for name in "abc"])
        words = ("bee@localhost", server.port, SERVICE, "orders")
        async with example(tmp_path, "worker.py", *words) as bee:
            assert bee.stdout is not None
            lines = [(await bee.stdout.readline()).decode() for _ in "abc"]
            bee.send_signal(signal.SIGTERM)
            _, err = await bee.communicate()
            assert (bee.returncode, err) == (0, b"")
        names = [name for line in lines for name in re.findall(">(.)<", line)]
        assert sorted(names) == ["a", "b", "c"]
        assert (await queues.stats(SERVICE, "orders"))["accepted"] == 3


async def test_the_publisher_says_what_is_in_the_queue() -> None:
    """The text that it read, under the id that it prints."""
    async with queue() as (server, queues):
        words = ("boss@localhost/2", server.port, SERVICE, "orders")
        async with example(ROOT, "publisher.py", *words) as boss:
            out, err = await boss.communicate(b"seven <boxes>")
        assert (boss.returncode, err) == (0, b"")
        (item,) = (await queues.items(SERVICE, "orders")).items
        assert out.decode() == f"Published(item_id={item.item_id!r}, repeated=False)\n"
        assert "seven &lt;boxes&gt;" in item.payload


def lines_that_count(path: Path) -> list[str]:
    """The lines of a program without its docstrings, comments and blank lines."""
    text = re.sub(r'r?""".*?"""', "", path.read_text(), flags=re.DOTALL)
    lines = [line.partition("  #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_a_worker_and_a_publisher_are_short() -> None:
    """What others need in their first lines is not less."""
    assert len(lines_that_count(ROOT / "examples" / "worker.py")) <= 12
    publisher = lines_that_count(ROOT / "examples" / "publisher.py")
    imports = [line for line in publisher if re.match("(import|from) ", line)]
    assert len(publisher) - len(imports) <= 6


def test_the_light_ends_at_the_level_sent_last() -> None:
    """Acknowledged.

    Each level arrives at least once, over a link that loses stanzas.
    """
    lines = run("light_switch.py").splitlines()
    levels = re.findall(r"Light is (\d+)", "\n".join(lines))
    assert list(dict.fromkeys(levels)) == ["0", "20", "40", "60", "80"]
    assert sum("delivered" in line for line in lines) == 5


def test_the_people_counted_are_those_who_went_through() -> None:
    """Assured: over a link that loses, doubles and cuts."""
    output = run("count_people.py")
    assert "30 entered, 18 left, 12 inside" in output
    assert not re.search(r"lost=0,|cut=0\)", output)


def test_each_sale_takes_one_can_out_of_the_machine() -> None:
    """Effects of a consumer that fails, and of one that is cut short."""
    assert run("vending_machine.py").splitlines() == [
        "the machine is switched off in the middle of a sale",
        "20 ordered, 20 sold, 20 cans out of the machine",
    ]


def test_three_bees_do_each_order_once() -> None:
    """One of them sometimes fails, and one order cannot be done."""
    *bees, together, dead = run("work_queue.py").splitlines()
    found = [re.fullmatch(r"(\w+): (\d+) done, (\d+) failed", line) for line in bees]
    assert [bee[1] for bee in found if bee] == ["anna", "ben", "carl"]
    assert sum(int(bee[2]) for bee in found if bee) == 59
    assert together == "together: 59 done, each once"
    assert dead.startswith("dead after 4 deliveries: <order ")
    assert "number='13'" in dead


# -- the worker-bee --------------------------------------------------------

SERVICE = "queue.localhost"

#: Prints its input, found by the item's id; `bad` is rejected, `sick` fails.
COMMAND = """\
import os, sys
assert (os.environ["QOS_NODE"], os.environ["QOS_DELIVERY_COUNT"]) == ("orders", "0")
name = os.environ["QOS_ITEM_ID"]
assert sys.stdin.read().endswith(f">{name}</order>")
sys.exit({"bad": 65, "sick": 1}.get(name, 0))
"""


@asynccontextmanager
async def worker_bee(
    server: LoopbackServer, *command: str, user: str = "bee"
) -> AsyncIterator[Process]:
    """The example, working on the queue `orders` for this account."""
    words = (
        *(SERVICE, "orders", "--jid", f"{user}@localhost"),
        *("--host", server.host, "--port", str(server.port), "--tls", "off"),
        *("--parallel", "2", "--", *command),
    )
    async with example(ROOT, "worker_bee.py", *words) as process:
        yield process


@asynccontextmanager
async def queue() -> AsyncIterator[tuple[LoopbackServer, XEP_0254]]:
    """A queue `orders`, and its owner."""
    async with (
        friends("boss", "bee", components={SERVICE: "secret"}) as server,
        queue_service(server, SERVICE),
        logged_in(server, "boss", {"xep_0254": {}}) as boss,
    ):
        queues = XEP_0254.of(boss)
        await queues.create(
            SERVICE,
            "orders",
            {"pubsub#access_model": "open", "queue#max_deliveries": "1"},
        )
        yield server, queues


def named(name: str) -> NewItem:
    return NewItem(f"<order xmlns='urn:example:shop'>{name}</order>", name)


async def results(process: Process, count: int) -> list[str]:
    """The first lines of the worker's own log, sorted."""
    assert process.stderr is not None
    found: list[str] = []
    while len(found) < count and (line := await process.stderr.readline()):
        name, _, rest = line.decode().strip().partition(": ")
        if name == "worker-bee":
            found.append(rest)
    return sorted(found)


async def test_the_worker_bee_runs_its_command_for_each_item() -> None:
    """The exit status decides what it tells the service; SIGTERM ends it in order."""
    async with queue() as (server, queues):
        await queues.publish(SERVICE, "orders", [named(n) for n in ("a", "bad", "b")])
        async with worker_bee(server, sys.executable, "-P", "-c", COMMAND) as bee:
            assert await results(bee, 3) == [
                "a: exit status 0",
                "b: exit status 0",
                "bad: exit status 65",
            ]
            await queues.publish(SERVICE, "orders", [named("sick")])
            assert await results(bee, 1) == ["sick: exit status 1"]
            # A running command ends first, and the service gets its result.
            bee.send_signal(signal.SIGTERM)
            await bee.communicate()
            assert bee.returncode == 0
        stats = await queues.stats(SERVICE, "orders")
        dead = [item async for item in queues.browse(SERVICE, "orders", state="dead")]
    assert (stats["accepted"], stats["available"], stats["acquired"]) == (2, 0, 0)
    assert stats["subscribers"] == 0
    reasons = {item.item_id: item.history[0].reason for item in dead}
    assert reasons.keys() == {"bad", "sick"}
    assert reasons["bad"] == f"rejected: {sys.executable} says so"
    assert reasons["sick"].startswith("failed: CalledProcessError: ")


async def test_the_worker_bee_comes_back_with_the_server() -> None:
    """A program that runs for ever has to; slixmpp alone does not."""
    async with (
        queue() as (server, queues),
        worker_bee(server, sys.executable, "-P", "-c", COMMAND) as bee,
    ):
        await queues.publish(SERVICE, "orders", [named("a")])
        assert await results(bee, 1) == ["a: exit status 0"]
        await server.restart()
        await queues.publish(SERVICE, "orders", [named("b")], attempts=100)
        assert await results(bee, 1) == ["b: exit status 0"]


async def test_the_worker_bee_says_that_it_may_not() -> None:
    """No such account, or a missing queue: it ends with a message."""
    async with queue() as (server, queues):
        async with worker_bee(server, "true", user="nobody") as bee:
            _, errors = await bee.communicate()
            assert bee.returncode == 1
            assert errors.endswith(b"the server has refused the login\n")
        await queues.delete(SERVICE, "orders")
        async with worker_bee(server, "true") as bee:
            _, errors = await bee.communicate()
            assert bee.returncode == 1
            assert "item-not-found" in errors.decode()
            assert "Traceback" not in errors.decode()


def test_the_readme_shows_the_quickstart() -> None:
    """Word for word: the shown code is the tested code."""
    quickstart = (ROOT / "examples" / "quickstart.py").read_text()
    assert f"```python\n{quickstart}```" in (ROOT / "README.md").read_text()


def test_every_example_is_tested() -> None:
    """A new one gets its test here, or beside the code that it needs."""
    tests = (Path(__file__), *ROOT.glob("tests/spark/test_*.py"))
    source = "".join(test.read_text() for test in tests)
    # Or it is a part of an example with a test.
    scripts = "".join(path.read_text() for path in ROOT.glob("examples/*.sh"))
    for path in ROOT.glob("examples/*.*"):
        name = f'"{path.name}"'
        tested = f"run({name})" in source or f"/ {name}" in source
        tested = tested or f"({name}, " in source or f"tmp_path, {name}" in source
        tested = tested or f"ROOT, {name}" in source
        assert tested or f"/examples/{path.name}" in scripts, path


@pytest.mark.parametrize("path", ["README.md", "CHANGELOG.md"])
def test_files_that_are_named_exist(path: str) -> None:
    """Links inside the repository do not go stale."""
    text = (ROOT / path).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_guide_lists_the_options_of_a_queue() -> None:
    """Each field of the form, with its default, and none that is not there."""
    guide = (ROOT / "docs" / "queues.md").read_text()
    row = r"^\| `((?:pubsub|queue)#\w+)` \| (\S+) \| (.+) \|$"
    assert re.findall(row, guide, re.MULTILINE) == [
        (field.var, f"`{field.default}`" if field.default else "empty", field.label)
        for field in NODE_FIELDS
    ]
