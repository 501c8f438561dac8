"""A stop of a bridge ends within its grace time, even if neither side takes part."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from qos.amqp.source import Source
from qos.amqp.target import Target
from qos.bridge import bridge as bridge_module
from qos.bridge import from_broker, to_broker
from qos.bridge.to_broker import ToBroker
from qos.cli import bridge as command
from qos.cli import bridge_run
from qos.testing import ManualClock
from turned_time import turned
from waiting import limit, until

#: Seconds that the clock moves at a time, and turns of the loop between two moves.
_STEP_S, _TURNS = 0.05, 20


def arguments(*words: str) -> argparse.Namespace:
    parser = command.parser("xmpp-qos bridge")
    return parser.parse_args(
        [
            *("--from-broker", "amqp://127.0.0.1/orders", "queue.localhost", "orders"),
            *("--jid", "bridge@localhost", *words),
        ]
    )


class FrozenSession:
    """A session with a server that answers nothing more.

    Attributes:
        closing_s: as of AccountSession.
    """

    def __init__(self, _login: object) -> None:
        self.closing_s = 2.0
        self.client = SimpleNamespace(
            plugin={"xep_0254": None},
            boundjid=SimpleNamespace(full="bridge@localhost/1"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        # As long as it may.
        await cast(Any, bridge_module).asyncio.sleep(self.closing_s)

    def start(self) -> None:
        """It is online."""

    async def work(self, work: Coroutine[Any, Any, None]) -> None:
        await work


class FrozenLink:
    """A link to a broker that answers nothing more.

    Attributes:
        lost: see BrokerLink.
    """

    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception] = (
            asyncio.get_running_loop().create_future()
        )

    async def open(self) -> None:
        """It is attached."""

    async def close(self, timeout_s: float) -> None:
        # As long as it may.
        await cast(Any, bridge_module).asyncio.sleep(timeout_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the bridge and its command; there is no other side."""
    clock = turned(monkeypatch, bridge_module, bridge_run)
    monkeypatch.setattr(bridge_run, "AccountSession", FrozenSession)
    monkeypatch.setattr(
        bridge_run,
        "login_from",
        lambda _: SimpleNamespace(jid="bridge@localhost", backoff=None),
    )
    monkeypatch.setattr(bridge_run, "_broker", lambda _: "the broker")

    @contextlib.asynccontextmanager
    async def no_journal(*_: object, **__: object) -> AsyncIterator[None]:
        yield None

    monkeypatch.setattr(bridge_run, "JournalWriter", SimpleNamespace(opened=no_journal))
    return clock


@pytest.mark.parametrize("grace", [None, "3", "60", "0.5"])
async def test_a_stop_ends_within_its_grace_though_neither_side_answers(
    grace: str | None, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager kills who takes longer. Work that has begun has most of it."""
    publishing: list[float] = []

    class Stuck(from_broker.FromBroker):
        def _link(self) -> Source:
            return cast(Source, FrozenLink())

        async def _find_queue(self) -> None:
            """It is there."""

        async def _publish_all(self, link: Source) -> None:
            publishing.append(clock.now())
            try:
                await asyncio.Event().wait()
            finally:
                publishing.append(clock.now())

    monkeypatch.setattr(from_broker, "FromBroker", Stuck)
    words = () if grace is None else ("--grace", grace)
    running = asyncio.create_task(bridge_run.run(arguments(*words)))
    await until(lambda: len(publishing) == 1)
    began_at = clock.now()
    running.cancel()
    async with limit():
        while not running.done():
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            clock.advance(_STEP_S)
    assert running.cancelled()
    grace_s = 15.0 if grace is None else float(grace)
    assert clock.now() - began_at <= grace_s + 3 * _STEP_S
    assert publishing[1] - began_at >= grace_s * 0.8


@pytest.mark.parametrize("grace_s", [15.0, 3.0, 60.0])
async def test_the_jobs_of_a_bridge_leave_time_for_the_broker_and_the_session(
    grace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker gives items back at the end of its time; then the link closes in order."""
    times: list[float] = []

    class Ended(Exception):
        pass

    def worker(*_: object, grace_s: float, **__: object) -> None:
        times.append(grace_s)
        raise Ended

    monkeypatch.setattr(to_broker, "Worker", worker)
    session = cast(Any, SimpleNamespace(client=None))
    bridge = ToBroker(
        session, cast(Any, None), "queue.localhost", "orders", grace_s=grace_s
    )
    with pytest.raises(Ended):
        await bridge._carry(cast(Target, FrozenLink()))
    (jobs_s,) = times
    bridge.stop()
    assert grace_s / 2 < jobs_s < bridge.run_left_s < bridge.left_s <= grace_s
