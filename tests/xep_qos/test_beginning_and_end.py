"""Start and end of XEP_QOS under disturbance; the store is free afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slixmpp import ClientXMPP, Message

from qos.core.message.effects import Save
from qos.core.message.model import Incoming, IncomingState, Level
from qos.engine import Handover
from qos.errors import JournalError, StoreInUse
from qos.stores import store_from_url
from qos.testing.clients import close, friends, logged_in, new_client
from waiting import limit, until
from xep_qos import XEP_QOS

URL = "sqlite:{}/bob.db"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run yet, as when slixmpp's examples make their client."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    asyncio.set_event_loop(None)


def make_client() -> ClientXMPP:
    return new_client("bob@localhost/b", "secret", {})


def register(client: ClientXMPP, **options: Any) -> XEP_QOS:
    client.register_plugin("xep_qos", options)
    return XEP_QOS.of(client)


async def remember(url: str, count: int) -> None:
    """Put this many tombstones into a store."""
    store = store_from_url(url)
    store.open()
    memories = [
        Incoming(
            key=f"k{number}",
            msg_id=f"m{number}",
            source="alice@localhost/a",
            to="bob@localhost/b",
            level=Level.ASSURED,
            payload="",
            size=5,
            received_at=1_700_000_000.0,
            changed_at=4_000_000_000.0 + number,
            state=IncomingState.DONE,
            mark="store of alice",
            hold=f"h{number}",
        )
        for number in range(count)
    ]
    written = store.write([Save(memory) for memory in memories])
    assert written is not None
    await written
    await store.close()


def test_a_store_that_remembers_too_much_is_opened_before_the_loop_runs(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """After tombstones_max was lowered, or a kill before an eviction was written."""
    url = URL.format(tmp_path)
    loop.run_until_complete(remember(url, 6))
    client = make_client()
    assert register(client, store=url, tombstones_max=4).store.url == url
    loop.run_until_complete(close(client))


def fail(*_: object, **__: object) -> Any:
    raise JournalError("journal", "no space left on device")


@pytest.fixture(
    params=["qos.journal.writer.JournalWriter.of_store", "qos.stream.tap.Tap.join"]
)
def break_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Let the start fail after the store was opened: first of all, or last of all."""
    return lambda: monkeypatch.setattr(request.param, fail)


async def test_a_beginning_that_fails_leaves_nothing_and_may_be_repeated(
    tmp_path: Path, break_it: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody then has the plugin, so nobody else could close its store."""
    options = {"store": URL.format(tmp_path), "journal": tmp_path / "journal"}
    client = make_client()
    before = asyncio.all_tasks()
    break_it()
    with pytest.raises(JournalError):
        register(client, **options)
    monkeypatch.undo()
    await asyncio.wait(asyncio.all_tasks() - before)
    register(client, **options)
    await close(client)


def test_so_it_is_before_the_loop_runs(
    tmp_path: Path,
    loop: asyncio.AbstractEventLoop,
    break_it: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else can close it there."""
    options = {"store": URL.format(tmp_path), "journal": tmp_path / "journal"}
    client = make_client()
    break_it()
    with pytest.raises(JournalError):
        register(client, **options)
    monkeypatch.undo()
    register(client, **options)
    loop.run_until_complete(close(client))


Handler = Callable[[XEP_QOS], Awaitable[None]]


@contextlib.asynccontextmanager
async def consuming(store: Path, handler: Handler) -> AsyncIterator[XEP_QOS]:
    """Bob's plugin, whose consumer is at work on a message."""
    server, begun = friends("alice", "bob"), asyncio.Event()

    def prepare(client: ClientXMPP) -> None:
        @XEP_QOS.of(client).consumer()
        async def take(_message: Message, _handover: Handover) -> None:
            begun.set()
            await handler(XEP_QOS.of(client))

    plugins = {"xep_qos": {"store": f"sqlite:{store}"}}
    async with (
        server,
        logged_in(server, "alice/a") as alice,
        logged_in(server, "bob/b", plugins, prepare=prepare) as bob,
    ):
        qos = XEP_QOS.of(bob)
        await XEP_QOS.of(alice).submit(alice.make_message("bob@localhost/b", "x"))
        await begun.wait()
        yield qos


async def states(store: Path) -> list[IncomingState]:
    """The states in the store, once it is free."""
    opened = store_from_url(f"sqlite:{store}")

    def is_free() -> bool:
        with contextlib.suppress(StoreInUse):
            opened.open()
            return True
        return False

    await until(is_free)
    found = [record.state for record in opened.incoming()]
    await opened.close()
    return found


async def test_an_end_whose_caller_is_cancelled_goes_on(tmp_path: Path) -> None:
    """For example after a time-out of the application, while a consumer tidies up."""
    gate = asyncio.Event()

    async def tidy_up(_qos: XEP_QOS) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()

    store = tmp_path / "bob.db"
    async with consuming(store, tidy_up) as qos:
        closing = asyncio.create_task(qos.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        gate.set()
        await qos.aclose()
        assert await states(store) == [IncomingState.RELEASING]


@pytest.mark.parametrize("late", [False, True])
async def test_a_consumer_can_end_it(tmp_path: Path, late: bool) -> None:
    """It cannot wait for the end, which waits for the consumer.

    Even if it is cancelled.
    """

    async def end(qos: XEP_QOS) -> None:
        try:
            if late:
                await asyncio.Event().wait()
        finally:
            await qos.aclose()

    store = tmp_path / "bob.db"
    async with consuming(store, end) as qos:
        expected = IncomingState.RELEASING if late else IncomingState.DONE
        async with limit():
            if late:
                await qos.aclose()
            assert await states(store) == [expected]
            await qos.aclose()
