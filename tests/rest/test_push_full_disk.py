"""Push subscribers whose changes cannot be written: the log says it, and nothing sticks."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from qos.core.queue.effects import NotifySubscription
from qos.core.queue.requests import Refusal
from qos.rest.push.pusher import Pusher
from qos.rest.push.pushers import Pushers
from rest_bench import RestBench, rest
from test_pushing import LOOPBACK, Target, made, shown, target, until_shown
from waiting import until

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="20")
        yield bench


@pytest.fixture
async def to() -> AsyncIterator[Target]:
    async with target() as found:
        yield found


@contextlib.contextmanager
def full_disk(pushers: Pushers, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """No change of a subscriber can be written within."""

    async def unwritten(_change: object) -> None:
        raise Refusal("the disk is full", condition="resource-constraint", type="wait")

    with patch.context() as context:
        context.setattr(pushers, "save", unwritten)
        yield


def only_pusher(bench: RestBench) -> Pusher:
    (pusher,) = bench.rest.pushers.of("orders", f"alice@{DOMAIN}")
    return pusher


async def test_the_end_of_a_subscription_on_a_full_disk_is_in_the_log(
    bench: RestBench,
    to: Target,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was said by asyncio only, as an exception that was never retrieved."""
    location = await made(bench, to.url)
    pusher = only_pusher(bench)
    lost = NotifySubscription(pusher.jid, "orders", pusher.jid, "1")
    with full_disk(bench.rest.pushers, monkeypatch):
        pusher.notify(lost)
        await until_shown(bench, location, enabled=False)
        await until(lambda: "the disk is full" in caplog.text)
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "only until a restart" in caplog.text
    assert not pusher.is_running


async def test_who_could_not_be_enabled_can_be_enabled_later(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as enabled, pushed nothing, and could not be enabled any more."""
    location = await made(bench, to.url)
    off = await bench.post(location, b"enabled=false", Content_Type=FORM)
    assert off.status == 204
    with full_disk(bench.rest.pushers, monkeypatch):
        refused = await bench.post(location, b"enabled=true", Content_Type=FORM)
        assert refused.status == 507
        assert not (await shown(bench, location))["enabled"]
    on = await bench.post(location, b"enabled=true", Content_Type=FORM)
    assert on.status == 204
    await bench.post("/queues/orders/messages", b"1")
    assert await to.bodies(1) == [b"1"]


async def test_who_could_not_be_disabled_on_disk_can_be_disabled_again(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try said that it is done, and after a restart it pushed again."""
    location = await made(bench, to.url)
    with full_disk(bench.rest.pushers, monkeypatch):
        refused = await bench.post(location, b"enabled=false", Content_Type=FORM)
        assert refused.status == 507
    off = await bench.post(location, b"enabled=false", Content_Type=FORM)
    assert off.status == 204
    (kept,) = bench.rest.pushers.engine.store.push_subscribers()
    assert not kept.enabled
