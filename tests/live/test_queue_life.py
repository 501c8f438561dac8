"""Outcomes, counts, time, and the end of an item, on the wire.

docs/design/queue.md §5.
"""

import pytest

from passing_time import let_pass
from qos.core.queue.link_time import LOOK_S
from queue_items import NODE, dead_of, failures, held, q_of
from queue_service import (
    EAGER,
    EXTENSIONS,
    FORBIDDEN,
    LOCK_S,
    LOCKING,
    NOT_FOUND,
    PRIVATE,
    Served,
    item,
    peers,
    pubsub,
    retract,
    unlock,
)

Q = f"xmlns:q='{EXTENSIONS}'"

FAILED = "<q:modified delivery-failed='true'/>"
REJECTED = "<q:rejected>no such street</q:rejected>"

pytestmark = pytest.mark.asyncio(loop_scope="module")


# -- outcomes and counts ---------------------------------------------------


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("", 0),
        ("<q:modified/>", 0),
        ("<q:modified delivery-failed='false'/>", 0),
        (FAILED, 1),
        ("<q:modified delivery-failed='1' undeliverable-here='0'/>", 1),
    ],
)
async def test_released_does_not_count_and_failed_does(
    queues: Served, content: str, count: int
) -> None:
    """AMQP 1.0 §3.4: only prior unsuccessful deliveries count."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob)
        assert (one.count, one.q["first-acquirer"]) == (0, "true")
        await bob.done(unlock(NODE, one.named, content=content))
        again = await bob.item()
        assert (again.id, again.count) == ("1", count)
        assert again.q["first-acquirer"] == "false"
        assert again.payload == PRIVATE


async def test_failed_deliveries_end_an_item_and_released_ones_do_not(
    queues: Served,
) -> None:
    """`queue#max_deliveries` limits failed deliveries only."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob, {"queue#max_deliveries": "2"})
        for content in ("", "", "", FAILED, ""):
            await bob.done(unlock(NODE, one.named, content=content))
            one = await bob.item()
        assert one.count == 1
        await bob.done(unlock(NODE, one.named, content=FAILED))
        # A repeat of the settling request gets the same result.
        await bob.done(unlock(NODE, one.named, content=FAILED))
        await bob.no_items()
        (dead,) = (await dead_of(alice)).values()
        assert q_of(dead, "delivery-count") == "2"
        assert q_of(dead, "state") == "dead"
        assert failures(dead) == ["failed", "failed"]
        assert await alice.browse(NODE) == {}


async def test_a_lock_time_out_counts_and_ends_an_item(queues: Served) -> None:
    """An item that hangs every worker must end."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, LOCKING | {"queue#max_deliveries": "2"})
        await bob.subscribe(NODE)
        await carol.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        for _ in range(2):
            await alice.until_stats(NODE, acquired="1")
            await let_pass(LOCK_S)
            # The service has heard something since the deadline, and looks once more.
            await alice.synced()
            await let_pass(LOOK_S)
            await alice.synced()
        await alice.until_stats(NODE, dead="1")
        (dead,) = (await dead_of(alice)).values()
        assert failures(dead) == ["timed out", "timed out"]
        assert (await bob.item()).count + (await carol.item()).count == 1


async def test_unavailable_presence_counts(queues: Served) -> None:
    """An item that kills its workers must end; durable locks wait for the deadline."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await held(alice, bob, {"queue#max_deliveries": "1"})
        await bob.go()
        await alice.until_stats(NODE, dead="1", subscribers="0")
        (dead,) = (await dead_of(alice)).values()
        assert failures(dead) == ["gone"]


async def test_rejected_is_dead_at_once_with_the_reason(queues: Served) -> None:
    """However many deliveries are left; it counts. Only an owner sees who did it."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob)
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        await bob.told("unlock", "1")
        (dead,) = (await dead_of(alice)).values()
        assert q_of(dead, "delivery-count") == "1"
        assert failures(dead) == ["rejected: no such street"]
        assert q_of(dead, "reason") == "rejected: no such street"
        (failure,) = dead.iter(f"{{{EXTENSIONS}}}failure")
        assert failure.get("by") == bob.jid
        assert dead.get("publisher") == alice.account
        assert PRIVATE in "".join(dead.itertext())
        assert (
            await bob.refused(pubsub(f"<items node='{NODE}' q:state='dead'/>"), "get")
            == FORBIDDEN
        )


async def test_a_released_item_waits_for_the_backoff(queues: Served) -> None:
    """Otherwise a worker that cannot do it would get it again and again at once."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob, {"queue#backoff": "600"})
        for releases in (1, 2):
            await bob.done(unlock(NODE, one.named))
            stats = await alice.stats(NODE)
            assert (stats["delayed"], stats["available"]) == ("1", "0")
            assert stats["releases_most"] == str(releases)
            assert (await alice.browse(NODE))["1"]["state"] == "delayed"
            await bob.no_items()
            # It doubles with each release.
            await let_pass(600 * releases)
            one = await bob.item()


async def test_who_accepts_makes_the_number_of_accepted(queues: Served) -> None:
    """Only the owner can look at kept items."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob, {"queue#keep_accepted": "60"})
        await bob.done(retract(NODE, one.named))
        stats = await alice.stats(NODE)
        assert (stats["accepted"], stats["acquired"]) == ("1", "0")
        assert (await alice.browse(NODE, "accepted"))["1"]["state"] == "accepted"
        assert await alice.browse(NODE) == {}
        asked = pubsub(f"<items node='{NODE}' q:state='accepted'/>")
        assert await bob.refused(asked, "get") == FORBIDDEN


# -- time ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["node", "item"])
async def test_ttl_ends_an_item_that_nobody_has(queues: Served, where: str) -> None:
    """The node's ttl is for items without one of their own."""
    async with peers(queues, "alice/a") as (alice,):
        ttl = "0.05" if where == "node" else "60"
        await alice.create(NODE, {"queue#ttl": ttl})
        more = f"{Q} q:ttl='0.05'" if where == "item" else ""
        await alice.publish(NODE, item("1", more=more))
        await alice.until_stats(NODE, dead="1", available="0")
        (dead,) = (await dead_of(alice)).values()
        assert failures(dead) == ["expired"]
        assert q_of(dead, "delivery-count") == "0"


async def test_ttl_is_not_looked_at_while_an_item_is_locked(queues: Served) -> None:
    """A delivery that has begun may be finished; given back, the item expires."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 2)
        more = f"{Q} q:ttl='0.05'"
        await alice.publish(NODE, item("1", more=more), item("2", more=more))
        one, two = await bob.item(), await bob.item()
        await alice.publish(NODE, item("3", more=more))
        await alice.until_stats(NODE, dead="1", acquired="2")
        await bob.done(retract(NODE, one.named))
        await bob.done(unlock(NODE, two.named))
        await alice.until_stats(NODE, dead="2", accepted="1", available="0")
        await bob.no_items()
        assert await bob.refused(retract(NODE, "2")) == NOT_FOUND


async def test_a_delayed_item_comes_when_its_time_has_come(queues: Served) -> None:
    """Behind ready items, even if those were published later."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE, 5)
        await alice.publish(NODE, item("1", more=f"{Q} q:delay='60'"), item("2"))
        assert (await alice.stats(NODE))["delayed"] == "1"
        assert (await bob.item()).id == "2"
        await bob.no_items()
        await let_pass(60)
        assert (await bob.item()).id == "1"


async def test_a_reconfigure_changes_no_running_deadline(queues: Served) -> None:
    """The worker was told the old deadline."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob, LOCKING)
        await alice.configure(NODE, lock_timeout="60")
        await carol.subscribe(NODE)
        await alice.publish(NODE, item("2"))
        assert (await carol.item()).id == "2"
        await let_pass(60)
        await carol.told("unlock", "2")
        assert (await alice.browse(NODE))["1"]["state"] == "acquired"
        await bob.done(retract(NODE, one.named))
