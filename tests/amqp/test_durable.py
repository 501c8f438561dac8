"""Durable termini: a link goes on where it was after a restart of the service (messaging §3.5.5)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amqp_bench import BOSS, Bench, gateway, rhea
from killed_services import services
from qos.amqp.browsing import BrowsingLink
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.item import ItemState
from qos.core.queue.requests import Publish, PublishedItem
from qos.core.queue.terminus import ExpiryPolicy
from qos.testing.ports import free_ports
from waiting import until

NAME = (BOSS.partition("/")[0], "desk", "mine")


def durable(
    durability: int = 1,
    policy: str = "connection-close",
    timeout: int = 60,
    **source: object,
) -> dict[str, Any]:
    """A receiver with a durable source; always of the same name."""
    source = {
        "address": "orders",
        "durable": durability,
        "expiry_policy": policy,
        "timeout": timeout,
        **source,
    }
    return {"receiver": {"source": source, "name": "mine"}, "container": "desk"}


#: Like a subscription of JMS that is to be looked at, or ended.
AGAIN = {"receiver": {"name": "mine", "source": {}}, "container": "desk"}


async def publish(bench: Bench, *names: str) -> None:
    entries = tuple(
        PublishedItem(item_id=each, payload="<x/>", digest=each, size=4)
        for each in names
    )
    await bench.ask(Publish("orders", entries))


def cursor(bench: Bench) -> int:
    """Up to which item the durable copy has settled all."""
    found = bench.engine.terminus(NAME)
    return 0 if found is None else found[0].cursor


def ids(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(each["id"], each["count"]) for each in found if "id" in each]


@pytest.mark.crash
async def test_a_durable_source_outlives_a_killed_gateway_with_its_deliveries(
    tmp_path: Path,
) -> None:
    """What a link had that is not durable is given back; nothing of both has failed."""
    (port,) = free_ports(1)
    async with services("gateway_process") as start:
        process = await start(tmp_path, port, "orders", "others")
        for node in ("orders", "others"):
            await rhea(port, "send", node=node, count=2, prefix=node, quiet=True)
        options: dict[str, Any] = {"outcome": "nothing", "count": 9, "killed": True}
        told: list[list[dict[str, Any]]] = [[], []]
        kinds: tuple[dict[str, Any], ...] = durable(2), {"node": "others"}
        holding = [
            asyncio.create_task(rhea(port, "receive", told=lines, **each, **options))
            for lines, each in zip(told, kinds, strict=True)
        ]
        await until(lambda: [len(ids(each)) for each in told] == [2, 2])
        await process.kill()
    await asyncio.gather(*holding)
    first, second = map(ids, told)
    assert len(first) == len(second) == 2
    async with gateway(tmp_path) as bench:
        others = (await bench.items("others")).values()
        assert all(each.delivery_count == each.lost == 1 for each in others)
        assert not any(each.token for each in others)
        held = (await bench.items("orders")).values()
        assert all(each.token and not each.delivery_count for each in held)
        assert ids(await bench.rhea("receive", **durable(2), count=2)) == first
        await bench.until_items("orders", 0)
        # And its credit is counted on.
        await publish(bench, "a", "b", "c")
        more = await bench.rhea("receive", **durable(2), count=3, credit=0, once=3)
        assert len(ids(more)) == 3
        assert not bench.xmpp.probed


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (durable(1), 1),
        (durable(2), 2),
        (durable(2, "never", 0), 2),
        # Nothing of it outlives its connection.
        (durable(2, "session-end", 0), None),
    ],
)
async def test_the_answer_tells_the_durability_in_force(
    tmp_path: Path, options: dict[str, Any], shown: int | None
) -> None:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        await bench.publish("orders", "<x/>")
        (told, _) = await bench.rhea("receive", **options, tell_open=True)
        assert (told.get("durable") or None) == shown


async def test_a_durable_copy_goes_on_after_what_was_settled(tmp_path: Path) -> None:
    """Messaging §3.5.2: what was accepted is never sent again, over a restart either."""
    source = durable(2, "never", 0, distribution_mode="copy")
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        await publish(bench, "a", "b", "c")
        options: dict[str, Any] = {"outcomes": {"1": "nothing"}, "count": 3}
        dying = asyncio.create_task(
            bench.rhea("receive", **source, **options, stays=asyncio.Event())
        )

        def are_settled() -> bool:
            """All but the second one, and the place before that is on disk."""
            found = [
                each.ours
                for connection in bench.gateway._connections
                for each in connection._links._attached
            ]
            return any(
                isinstance(each, BrowsingLink)
                and each._terminus is not None
                and each._terminus.cursor == 1
                and not each._saving
                and [*each._unsettled] == [2]
                for each in found
            )

        await until(are_settled)
        dying.cancel()
        await asyncio.wait((dying,))
        await until(lambda: not bench.gateway._connections)
        assert bench.engine.terminus(NAME)
    async with gateway(tmp_path) as bench:
        await publish(bench, "d")
        stays = asyncio.Event()
        taking = asyncio.create_task(
            bench.rhea("receive", **source, count=3, stays=stays)
        )
        await until(lambda: cursor(bench) == 4)
        stays.set()
        found = await taking
        # All after the first one that was not settled.
        assert [each for each, _ in ids(found)] == ["b", "c", "d"]
        await publish(bench, "e")
        found = await bench.rhea("receive", **source, count=1)
        assert [each for each, _ in ids(found)] == ["e"]
        assert len(await bench.items("orders")) == 5


async def test_a_link_without_an_address_finds_its_terminus(tmp_path: Path) -> None:
    """And ends it, as JMS ends a durable subscription."""
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        await bench.publish("orders", "<x/>")
        asked = durable(1, "never", 0)
        await bench.rhea("receive", **asked, detach=True, linger=600)
        found = bench.engine.terminus(NAME)
        assert found is not None
        assert found[0].policy is ExpiryPolicy.NEVER
    async with gateway(tmp_path) as bench:
        await publish(bench, "later")
        told, item = await bench.rhea(
            "receive", **AGAIN, tell_open=True, close=True, linger=800
        )
        assert (told["durable"], told["expiry"], item["count"]) == (1, "never", 0)
        await until(lambda: bench.engine.terminus(NAME) is None)
        assert not bench.engine.keeps(NAME[0])
        (refused, *_) = await bench.rhea("receive", **AGAIN)
        assert refused["error"]["condition"] == "amqp:invalid-field"


async def test_another_source_or_none_durable_ends_the_durable_one(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        await bench.create("others")
        await bench.publish("orders", "<x/>")
        await bench.rhea("receive", **durable(), outcome="nothing", die=True)
        await until(lambda: not bench.gateway.attached())
        await bench.rhea("send", node="others", quiet=True)
        await bench.rhea("receive", **durable(address="others"))
        item = (await bench.items("orders"))["xmpp-0"]
        assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 1)
        assert [each.node for each in bench.store.contents().termini] == ["others"]
        await bench.rhea("send", node="others", quiet=True)
        await bench.rhea("receive", **durable(0, address="others"))
        assert not bench.store.contents().termini


async def test_an_account_has_only_so_many_durable_termini(tmp_path: Path) -> None:
    bounds = QueueBounds(termini_per_account=0, termini_per_domain=0)
    async with gateway(tmp_path, bounds=bounds) as bench:
        await bench.create("orders")
        await bench.publish("orders", "<x/>")
        (refused, *_) = await bench.rhea("receive", **durable())
        assert refused["error"]["condition"] == "amqp:resource-limit-exceeded"
        item = (await bench.items("orders"))["xmpp-0"]
        assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 0)
