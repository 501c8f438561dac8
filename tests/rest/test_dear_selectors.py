"""Dear selectors by a real client: nobody else waits for them, and they come to an end."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from amqp_bench import DOMAIN
from qos.core.payers import Rates
from qos.core.queue import selector_time
from qos.core.queue.item import Affiliation
from qos.core.queue.item_names import ItemNames
from qos.core.queue.properties import content_digest
from qos.core.queue.requests import Publish, PublishedItem, SetAffiliations
from qos.core.queue.selector import Selector
from qos.core.queue.selector.parser import SEARCHES_MAX
from qos.core.queue.selector.tokens import TEXT_CHARS_MAX
from qos.core.queue.selector_time import ACCOUNT_S, FREE_S, SLICE_S, STEP_S
from qos.rest import waiting
from qos.testing import ManualClock
from rest_bench import Response, RestBench, rest
from turned_time import turned
from waiting import limit, until

ITEMS = 10_000
PROPERTIES = {"x": "a" * 7500}

#: What an evaluation takes, by a clock of the tests.
EVALUATION_S = 0.001


def dear(number: int) -> str:
    """A selector of nearly the longest text, which matches nothing."""
    length = TEXT_CHARS_MAX // SEARCHES_MAX - 20
    pattern = "%" + "a_" * (length // 2 - 4) + f"{number:03}_%"
    return " OR ".join([f"x LIKE '{pattern}'"] * SEARCHES_MAX)


async def fill(bench: RestBench, properties: dict[str, str]) -> None:
    """Make two queues; in `orders` are so many items, and bob may take them."""
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
                properties=properties,
            )
            for number in range(first, first + 1000)
        )
        await bench.ask(Publish("orders", entries))
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))


async def pull(bench: RestBench, number: int, wait_s: int) -> Response:
    """Wait for a message that a dear selector of alice or bob chooses."""
    return await bench.post(
        f"/queues/orders/consumer?selector={quote(dear(number))}",
        user="bob" if number % 2 else "alice",
        Prefer=f"wait={wait_s}",
    )


async def served_meanwhile(
    bench: RestBench, pulls: list[asyncio.Task[Response]]
) -> int:
    """How many messages others can post until all of these have their answers."""
    served = 0
    while not all(each.done() for each in pulls):
        answer = await bench.post("/queues/other/messages", b"1")
        assert answer.status == 200
        served += 1
    return served


async def test_eight_dear_selectors_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They held up all of the service for a minute.

    By a clock that moves while a selector is evaluated, and not otherwise: no account
    gets any of its time back meanwhile.
    """
    taken = ManualClock()
    turns_s: list[float] = []
    handle = asyncio.Handle._run

    def evaluated(_self: Selector, _names: ItemNames) -> bool:
        taken.advance(EVALUATION_S)
        return False

    def run(self: asyncio.Handle) -> None:
        began = taken.now()
        handle(self)
        turns_s.append(taken.now() - began)

    async with rest(
        tmp_path,
        clock=ManualClock(1_700_000_000.0),
        meter=taken.now,
        rates=Rates(requests=0),
    ) as bench:
        await fill(bench, {"x": "a"})
        with monkeypatch.context() as patch:
            patch.setattr(Selector, "matches", evaluated)
            patch.setattr(asyncio.Handle, "_run", run)
            async with limit():
                pulls = [
                    asyncio.create_task(pull(bench, number, 30)) for number in range(8)
                ]
                served = await served_meanwhile(bench, pulls)
    for each in pulls:
        assert each.result().status == 429
        assert "have taken as much time as is possible" in each.result().text
    assert served >= 10
    # With the evaluations that were begun before the end of the step and of the slice.
    assert max(turns_s) < STEP_S + SLICE_S + 2.5 * EVALUATION_S
    # Both accounts have used up what they have, and some evaluations were begun before.
    assert taken.now() * (1 - FREE_S / EVALUATION_S) < 2.1 * ACCOUNT_S


async def turns(into: list[float]) -> None:
    """Note the processor time of each turn of the loop."""
    before = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now = time.thread_time()
        into.append(now - before)
        before = now


@pytest.mark.long  # it measures
async def test_the_longest_selectors_take_little_of_each_turn(tmp_path: Path) -> None:
    """As they are, with the processor time that they need."""
    taken: list[float] = []
    async with rest(tmp_path) as bench:
        await fill(bench, PROPERTIES)
        gc.collect()
        gc.freeze()
        noting = asyncio.create_task(turns(taken))
        pulls = [asyncio.create_task(pull(bench, number, 2)) for number in range(8)]
        served = await served_meanwhile(bench, pulls)
        noting.cancel()
        gc.unfreeze()
    for each in pulls:
        answer = each.result()
        if answer.status == 429:
            assert "have taken as much time as is possible" in answer.text
        else:
            assert answer.status == 202
    assert served >= 10
    # 6 ms, and 30 ms with a commit, a collection of garbage, or a page that is read.
    assert sorted(taken)[-len(taken) // 1000] < 0.02
    assert max(taken) < 0.2


async def test_a_wait_ends_as_asked_for_whatever_selectors_are_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one without a wait, which looks through what is there for a second."""
    # They come to no end.
    monkeypatch.setattr(selector_time.SelectorTime, "is_over", True)
    clock = turned(monkeypatch, waiting)
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await bench.publish("orders", "<x/>")
        for wait, seconds in (("wait=2", 2.0), ("", waiting._LOOK_S)):
            pulling = asyncio.create_task(
                bench.post("/queues/orders/consumer?selector=n+%3D+1", Prefer=wait)
            )
            await until(lambda: clock.deadline() is not None)
            clock.advance(seconds - 0.1)
            # Many turns of the loop, and a commit.
            assert (await bench.post("/queues/orders/messages", b"1")).status == 200
            assert not pulling.done()
            clock.advance(0.1)
            async with limit():
                assert (await pulling).status == 202
        await until(lambda: not bench.rest.consumers)
