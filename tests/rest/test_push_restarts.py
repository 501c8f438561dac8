"""A push target behind a proxy restarts: what its proxy answers meanwhile kills nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rest_bench import RestBench, rest
from test_pushing import LOOPBACK, made, target
from waiting import until
from web_proxies import PROXIES, proxy

#: More than the number of deliveries that may fail.
MANY = 3


async def attempts(bench: RestBench) -> int:
    """The attempts that came to nothing."""
    counts = bench.rest.pushers.counts("orders")
    return sum(
        count
        for name, count in counts.items()
        if name.startswith("push_attempts_") and not name.endswith("_accepted")
    )


async def until_tried(bench: RestBench, times: int) -> None:
    async def enough() -> bool:
        return await attempts(bench) >= times

    await until(enough)


@pytest.mark.parametrize(
    # haproxy waits before each 503.
    "name",
    [pytest.param(x, marks=[pytest.mark.long] * (x == "haproxy")) for x in PROXIES],
)
async def test_a_target_that_is_down_behind_a_proxy_makes_no_message_dead(
    tmp_path: Path, name: str
) -> None:
    """502 of nginx was a failed delivery: after five of them, in three seconds, it was
    dead. A target without a proxy could be away for hours."""
    async with target() as first:
        port = first.port
    async with (
        proxy(name, tmp_path / "proxy", port) as url,
        rest(tmp_path, push=LOOPBACK) as bench,
    ):
        await bench.create("orders", max_deliveries="1")
        await made(bench, f"{url}/in")
        await bench.post("/queues/orders/messages", b"1")
        await until_tried(bench, MANY)
        assert not await bench.items("orders", "dead")
        async with target(port) as to:
            assert await to.bodies(1) == [b"1"]
            await bench.until_items("orders", 0)


@pytest.mark.parametrize("name", PROXIES)
async def test_a_target_that_is_killed_behind_a_proxy_makes_no_message_dead(
    tmp_path: Path, name: str
) -> None:
    """Nobody knows whether it has the message: it comes again under the same key."""
    async with target() as first:
        first.answers = [None]
        port = first.port
        async with (
            proxy(name, tmp_path / "proxy", port) as url,
            rest(tmp_path, push=LOOPBACK) as bench,
        ):
            await bench.create("orders", max_deliveries="1")
            await made(bench, f"{url}/in")
            await bench.post("/queues/orders/messages", b"1")
            request, body = await first.next()
            assert request.transport is not None
            request.transport.close()
            await until_tried(bench, 1)
            again, body_again = await first.next()
            assert (body, body_again) == (b"1", b"1")
            key = "Idempotency-Key"
            assert again.headers[key] == request.headers[key]
            await bench.until_items("orders", 0)
            assert not await bench.items("orders", "dead")


async def test_a_message_behind_a_proxy_that_always_fails_disables_its_subscriber(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the message that brings the target down: that has an end, too."""
    monkeypatch.setattr("qos.rest.bounds.PUSH_FAILURES_MAX", MANY)
    async with target() as to, rest(tmp_path, push=LOOPBACK) as bench:
        to.answers = [502, 504, 502]
        await bench.create("orders", max_deliveries="1")
        location = await made(bench, to.url)
        await bench.post("/queues/orders/messages", b"1")
        await _until_disabled(bench, location)
        assert len(await bench.items("orders")) == 1
        assert not await bench.items("orders", "dead")


async def _until_disabled(bench: RestBench, location: str) -> None:
    async def disabled() -> bool:
        answer = await bench.get(location)
        return '"enabled": false' in answer.text

    await until(disabled)
