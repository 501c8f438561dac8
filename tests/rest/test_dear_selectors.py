"""Dear selectors by a real client: nobody else waits for them, and they come to an end."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from amqp_bench import DOMAIN, until
from qos.core.queue import selector_time
from qos.core.queue.item import Affiliation
from qos.core.queue.properties import content_digest
from qos.core.queue.requests import Publish, PublishedItem, SetAffiliations
from qos.core.queue.selector.parser import SEARCHES_MAX
from qos.core.queue.selector.tokens import TEXT_CHARS_MAX
from qos.rest import consuming
from rest_bench import Response, RestBench, rest

ITEMS = 10_000
PROPERTIES = {"x": "a" * 7500}


def dear(number: int) -> str:
    """A selector of nearly the longest text, which matches nothing."""
    length = TEXT_CHARS_MAX // SEARCHES_MAX - 20
    pattern = "%" + "a_" * (length // 2 - 4) + f"{number:03}_%"
    return " OR ".join([f"x LIKE '{pattern}'"] * SEARCHES_MAX)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path) as bench:
        await bench.create("orders", max_items="", max_bytes="")
        await bench.create("other")
        payload = json.dumps("<x/>")
        for first in range(0, ITEMS, 1000):
            entries = tuple(
                PublishedItem(
                    item_id=f"i{number}",
                    payload="<x/>",
                    digest=content_digest(payload.encode(), {}),
                    size=4,
                    properties=PROPERTIES,
                )
                for number in range(first, first + 1000)
            )
            await bench.ask(Publish("orders", entries))
        yield bench


async def turns(into: list[float]) -> None:
    """Note the processor time of each turn of the loop."""
    before = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now = time.thread_time()
        into.append(now - before)
        before = now


async def test_eight_dear_selectors_hold_up_nobody(bench: RestBench) -> None:
    """They held up all of the service for a minute."""
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))
    gc.collect()
    gc.freeze()
    taken: list[float] = []
    noting = asyncio.create_task(turns(taken))

    async def pull(number: int) -> tuple[Response, float]:
        begun = time.monotonic()
        answer = await bench.post(
            f"/queues/orders/consumer?selector={quote(dear(number))}",
            user="bob" if number % 2 else "alice",
            Prefer="wait=2",
        )
        return answer, time.monotonic() - begun

    pulls = [asyncio.create_task(pull(number)) for number in range(8)]
    waits = []
    while not all(each.done() for each in pulls):
        asked = time.monotonic()
        answer = await bench.post("/queues/other/messages", b"1")
        waits.append(time.monotonic() - asked)
        assert answer.status == 200
    noting.cancel()
    gc.unfreeze()
    for each in pulls:
        answer, took = each.result()
        if answer.status == 429:
            assert "have taken as much time as is possible" in answer.text
        else:
            assert answer.status == 202
        # Much more than it needs: other tests run too.
        assert took < 5
    assert len(waits) >= 10
    assert sorted(taken)[-len(taken) // 1000] < 0.006
    # With a commit, a collection of garbage, or a page that is read.
    assert max(taken) < 0.03


async def test_a_wait_ends_as_asked_for_whatever_selectors_are_doing(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one without a wait, which looks through what is there for a second."""
    monkeypatch.setattr(selector_time.SelectorTime, "is_over", True)
    for wait, least in (("wait=2", 2), ("", consuming._LOOK_S)):
        begun = time.monotonic()
        answer = await bench.post(
            "/queues/orders/consumer?selector=n+%3D+1", Prefer=wait
        )
        assert answer.status == 202
        assert least <= time.monotonic() - begun < least + 3
    await until(lambda: not bench.rest.consumers)
