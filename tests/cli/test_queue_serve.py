"""`queue serve`: as a component and from an account, with every kind of failure."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fork_settings
import turned_clock
from qos.cli.status import Status
from qos.testing.server import LoopbackServer

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Running

COMPONENT = ("queue", "serve", "--component", "queue.localhost")
SECRET = "secret of queues"  # noqa: S105 - of the embedded server

#: See `Running.turn_clock`.
AN_HOUR = ("--connect-timeout", "3600")


async def test_an_account_serves_at_its_full_jid(commands: Commands) -> None:
    """For users who cannot have a component; its resource never changes."""
    words = (
        "queue",
        "serve",
        "--jid",
        "bob@localhost",
        "--creators",
        "alice@localhost",
    )
    serving = await commands.start(*words, user="bob")
    assert await serving.note("ready") == "ready bob@localhost/queue"
    service = ("bob@localhost/queue", "orders")

    async def queue(*words: str, user: str = "alice") -> tuple[int, object]:
        ended = await commands.run("queue", words[0], *service, *words[1:], user=user)
        return ended.status, ended.out

    assert (await queue("create", user="mallory"))[0] == 1
    assert await queue("create") == (0, [{"node": "orders"}])
    item = ("--payload", "<x/>", "--id", "i")
    assert await queue("publish", *item) == (0, [{"id": "i"}])
    serving.process.terminate()
    assert (await serving.end()).status == 0
    again = await commands.start(*words, user="bob")
    assert await again.note("ready") == "ready bob@localhost/queue"
    status, out = await queue("browse")
    assert (status, [item["id"] for item in out]) == (0, ["i"])  # type: ignore[attr-defined]
    state = commands.folder / ".local/state/xmpp-qos"
    assert (state / "bob@localhost%2Fqueue.queue.sqlite").exists()


async def test_by_default_nothing_is_open_to_everybody(commands: Commands) -> None:
    """Accounts of the domain can create queues, and own what they create.

    Nothing else.
    """
    serving = await commands.serve()
    assert serving.err == ["ready queue.localhost"]
    assert (await commands.queue("create")).status == 0
    refused = await commands.queue("publish", "--payload", "<x/>", user="bob")
    assert refused.status == 1
    stats = await commands.queue("stats", user="bob")
    assert (stats.status, stats.out) == (1, [])
    assert "item-not-found" in stats.err


async def test_what_everybody_may_do_is_said_at_the_start(commands: Commands) -> None:
    """In one line, with the options that cause it."""
    serving = await commands.serve("--creators", "anyone")
    warning = "xmpp-qos: warning: everybody who can reach this service may"
    assert serving.err[0] == f"{warning} create queues (--creators anyone)"
    opened = ("--set", "access_model=open", "--set", "publish_model=open")
    assert (await commands.queue("create", *opened)).status == 0
    serving.process.terminate()
    await serving.end()
    again = await commands.serve()
    assert again.err[0] == (
        f"{warning} work on 'orders' (access_model=open); "
        "publish to 'orders' (publish_model=open)"
    )


async def test_only_the_creators_create(commands: Commands) -> None:
    """By account, with any of its resources."""
    await commands.serve("--creators", "bob@localhost/phone,mallory@localhost")
    assert (await commands.queue("create")).status == 1
    assert (await commands.queue("create", user="bob")).status == 0


async def test_one_account_creates_as_many_queues_as_is_said(
    commands: Commands,
) -> None:
    """The limit of other accounts is not affected."""
    await commands.serve("--nodes-per-account", "1")
    assert (await commands.queue("create")).status == 0
    more = ("queue", "create", "queue.localhost", "more")
    ended = await commands.run(*more, user="alice")
    assert ended.status == 1
    assert "alice@localhost has created as many nodes as are possible" in ended.err
    assert (await commands.run(*more, user="bob")).status == 0


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_order_and_goes_on_with_what_there_was(
    signal_: signal.Signals, queues: Commands, serving: Running
) -> None:
    """A restart has no effect on a queue."""
    item = ("--payload", "<x/>", "--id", "i")
    assert (await queues.queue("publish", *item)).status == 0
    serving.process.send_signal(signal_)
    ended = await serving.end()
    assert (ended.status, ended.out) == (0 if signal_ == signal.SIGTERM else 130, [])
    assert ended.notes[1:] == [
        "xmpp-qos: stopped; what is in the queues stays in the store"
    ]
    await queues.serve()
    assert [item["id"] for item in (await queues.queue("browse")).out] == ["i"]


async def test_a_service_goes_on_at_a_sighup(
    queues: Commands, serving: Running
) -> None:
    """Service managers send it so that files are read again."""
    serving.process.send_signal(signal.SIGHUP)
    await serving.note("SIGHUP: going on")
    assert (await queues.queue("publish", "--text", "a")).status == 0
    serving.process.send_signal(signal.SIGTERM)
    assert (await serving.end()).status == 0


async def test_what_was_published_is_there_after_a_kill(
    queues: Commands, serving: Running
) -> None:
    """The publisher was told that the item is on disk."""
    item = ("--payload", "<x/>", "--id", "i")
    assert (await queues.queue("publish", *item)).status == 0
    serving.process.kill()
    await serving.process.wait()
    await queues.serve()
    assert [item["id"] for item in (await queues.queue("browse")).out] == ["i"]


async def test_it_comes_back_whenever_the_connection_is_lost(
    server: LoopbackServer, queues: Commands, serving: Running
) -> None:
    """A server is restarted now and then, and nobody watches the service."""
    for _ in range(2):
        await server.restart()
        await serving.note("connected again as queue.localhost")
        assert (await queues.queue("stats")).status == 0
    assert server.disconnect("queue.localhost") == 1
    await serving.note("connected again as queue.localhost")
    assert (await queues.queue("stats")).status == 0


@pytest.mark.parametrize(
    ("words", "password", "said"),
    [
        ((), "guess", "ended the stream: not-authorized"),
        (("--component", "other.localhost"), SECRET, "ended the stream: host-unknown"),
    ],
)
async def test_a_component_that_is_not_let_in_is_told_at_once(
    words: tuple[str, ...], password: str, said: str, commands: Commands
) -> None:
    """Waiting for the time-out would not make it right."""
    words = (*words, *AN_HOUR, "--port", str(commands.component_port))
    ended = await commands.run(*COMPONENT, *words, password=password)
    assert (ended.status, ended.out) == (4, [])
    assert len(ended.notes) == 1
    assert said in ended.err


async def test_a_server_that_is_not_there_is_given_up(
    server: LoopbackServer, commands: Commands
) -> None:
    """The first connection is bounded; status 4 as for the other commands."""
    await server.stop()
    words = (*AN_HOUR, "--port", str(commands.component_port))
    serving = await commands.start(*COMPONENT, *words, password=SECRET)
    await serving.note("trying again")
    serving.turn_clock()
    ended = await serving.end()
    assert (ended.status, ended.out) == (4, [])
    assert "Connection refused; gave up after 3600 s" in ended.notes[-1]


async def test_a_server_that_comes_a_little_late_is_waited_for(
    server: LoopbackServer, commands: Commands
) -> None:
    """A service and its server often start together."""
    await server.stop()
    port = ("--port", str(commands.component_port))
    serving = await commands.start(*COMPONENT, *port, password=SECRET)
    await serving.note("trying again")
    await server.start()
    assert await serving.note("ready") == "ready queue.localhost"
    state = commands.folder / ".local/state/xmpp-qos"
    assert (state / "queue.localhost.queue.sqlite").exists()


async def test_a_second_service_does_not_get_the_store(
    commands: Commands, serving: Running
) -> None:
    """Otherwise both would give the same item to two workers."""
    words = ("--port", str(commands.component_port))
    store = ("--store", f"sqlite:{commands.folder / 'queues.db'}")
    ended = await commands.run(*COMPONENT, *words, *store, password=SECRET)
    assert (ended.status, ended.out) == (5, [])
    assert "each service needs its own (--store)" in ended.err
    assert len(ended.notes) == 1


@pytest.mark.parametrize(("content", "status"), [(b"no database" * 1000, 5), (None, 5)])
async def test_a_store_that_is_none_is_left_alone(
    content: bytes | None, status: int, commands: Commands, tmp_path: Path
) -> None:
    """A file of another program, or a folder that does not exist."""
    path = tmp_path / "no" / "such" / "folder.db"
    if content is not None:
        path = tmp_path / "letter.doc"
        path.write_bytes(content)
    words = ("--port", str(commands.component_port), "--store", f"sqlite:{path}")
    ended = await commands.run(*COMPONENT, *words, password=SECRET)
    assert (ended.status, ended.out) == (status, [])
    assert str(path) in ended.err
    assert len(ended.notes) == 1, ended.err
    assert content is None or path.read_bytes() == content


async def test_a_service_that_serves_nothing_ends_with_a_line_and_a_status(
    commands: Commands,
) -> None:
    """So that its supervisor starts it anew: it was there for ever, without queues."""
    commands.function = fork_settings.unreadable
    running = await commands.serve("--recover-for", "0.1")
    commands.function = turned_clock.command
    # Nobody can be served, and the first who asks finds out.
    refused = await commands.queue("create")
    assert refused.status != 0
    ended = await running.end()
    assert ended.status == Status.STORE
    assert "no queue could be served for 0.1 s; see above" in ended.notes[-1]


async def test_a_service_whose_large_store_is_damaged_ends_when_that_is_found(
    commands: Commands,
) -> None:
    """It serves meanwhile; then it ends, with what is wrong and a status."""
    running = await commands.serve()
    assert (await commands.queue("create")).status == 0
    running.process.send_signal(signal.SIGTERM)
    assert (await running.end()).status == 0
    path = commands.folder / "queues.db"
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'item_letter_by_id'"
        ((page,),) = db.execute(sql)
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    commands.function = fork_settings.as_if_large
    words = ("--port", str(commands.component_port), "--store", f"sqlite:{path}")
    ended = await commands.run(*COMPONENT, *words, password=SECRET)
    assert ended.status == Status.STORE
    assert f"sqlite:{path}: " in ended.notes[-1]
