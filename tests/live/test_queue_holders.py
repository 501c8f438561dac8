"""docs/design/queue.md §4 on the wire: distribution of items, limits, and presence."""

import itertools

import pytest

from queue_service import (
    EAGER,
    EXTENSIONS,
    PUBSUB,
    UNEXPECTED,
    Delivered,
    Peer,
    Served,
    delivered,
    item,
    peers,
    pubsub,
    retract,
    unlock,
)

NODE = "orders"
Q = f"xmlns:q='{EXTENSIONS}'"

DURABLE = {"queue#durable_locks": "1"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def unsubscribe(worker: Peer) -> str:
    return pubsub(f"<unsubscribe node='{NODE}' jid='{worker.jid}'/>")


async def taken(worker: Peer, count: int) -> list[str]:
    """The ids of this many items, in the order of their events."""
    return [(await worker.item()).id for _ in range(count)]


# -- how many, in which order ----------------------------------------------


async def test_nobody_has_more_than_its_queue_requests(queues: Served) -> None:
    """The number is what a worker can do at once; each end makes room for one more."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 2)
        await carol.subscribe(NODE, 3)
        await alice.publish(NODE, *(item(str(i)) for i in range(7)))
        first = await bob.item()
        await bob.item()
        for _ in range(3):
            await carol.item()
        for peer in (bob, carol):
            await peer.nothing()
        assert (await alice.stats(NODE))["acquired"] == "5"
        await bob.done(retract(NODE, first.named))
        assert (await bob.item()).id == "5"
        assert (await alice.stats(NODE))["acquired"] == "5"


async def test_locks_count_by_holder_whatever_became_of_its_subscription(
    queues: Served,
) -> None:
    """Unsubscribing and subscribing again does not make room."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1)
        await alice.publish(NODE, item("1"), item("2"))
        one = await bob.item()
        await bob.done(unsubscribe(bob))
        await bob.subscribe(NODE, 1)
        again = await bob.item()
        assert again == one
        await bob.subscribe(NODE, 1, jid=bob.account)
        assert await bob.item() == one
        await bob.no_items()
        await bob.done(retract(NODE, one.named))
        assert (await bob.item()).id == "2"
        await bob.no_items()


async def test_durable_locks_count_by_account(queues: Served) -> None:
    """The next worker of the account gets them all.

    While the holder is there, it keeps them.
    """
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, options=DURABLE)
        await alice.publish(NODE, item("1"), item("2"))
        one = await bob.item()
        await other.subscribe(NODE, 1, options=DURABLE)
        await other.nothing()
        await bob.go()
        await bob.ping()
        await other.subscribe(NODE, 1, options=DURABLE)
        again = await other.item()
        assert (again.id, again.to) == ("1", other.jid)
        await other.nothing()
        # Taken over with a new token: only one of two workers that settle it is told
        # so.
        assert await bob.refused(retract(NODE, one.named)) == UNEXPECTED
        await other.done(retract(NODE, again.named))
        assert (await other.item()).id == "2"
        await bob.no_items()


async def events_of(peer: Peer) -> list[Delivered]:
    """The items that have come and were not taken yet."""
    await peer.synced()
    return [each for xml in peer.received() for each in delivered(xml)]


async def test_first_deliveries_are_in_the_order_of_publishing(queues: Served) -> None:
    """Within a priority; a redelivery goes behind its first deliveries."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, EAGER)
        for item_id, priority in ("a", 4), ("b", 0), ("c", 9), ("d", 4), ("e", 9):
            more = f"{Q} q:priority='{priority}'"
            await alice.publish(NODE, item(item_id, more=more))
        await bob.subscribe(NODE)
        order = []
        for _ in range(6):
            one = await bob.item()
            again = one.id == "a" and one.q["first-acquirer"] == "true"
            order.append(one.id)
            await bob.done((unlock if again else retract)(NODE, one.named))
        assert order == ["c", "e", "a", "d", "a", "b"]


async def test_the_next_one_is_not_the_one_that_gave_it_back(queues: Served) -> None:
    """If another worker is eligible; otherwise it gets it again."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await bob.done(unlock(NODE, one.named))
        one = await bob.item()
        await carol.subscribe(NODE)
        for worker, next_one in ((bob, carol), (carol, bob), (bob, carol)):
            await worker.done(unlock(NODE, one.named))
            one = await next_one.item()
        await bob.no_items()


async def test_the_least_loaded_is_next_then_round_robin(queues: Served) -> None:
    """So items are done in parallel, and no worker is forgotten."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await bob.subscribe(NODE, 4)
        await alice.publish(NODE, item("1"), item("2"))
        assert await taken(bob, 2) == ["1", "2"]
        await carol.subscribe(NODE, 4)
        await alice.publish(NODE, item("3"), item("4"))
        assert await taken(carol, 2) == ["3", "4"]
        await bob.done(retract(NODE, "1", "2"))
        await carol.done(retract(NODE, "3", "4"))
        receivers = []
        for number in range(5, 9):
            await alice.publish(NODE, item(str(number)))
            for peer in (bob, carol):
                for one in await events_of(peer):
                    await peer.item()
                    await peer.done(retract(NODE, one.named))
                    receivers.append(peer.account)
        assert len(receivers) == 4
        assert all(a != b for a, b in itertools.pairwise(receivers))


async def test_an_item_that_is_undeliverable_here_goes_to_another_resource(
    queues: Served,
) -> None:
    """Never to this resource again.

    While no other is there, the stats show the item as stuck.
    """
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"), item("2"))
        one = await bob.item()
        outcome = "<q:modified undeliverable-here='true'/>"
        await bob.done(unlock(NODE, one.named, content=outcome))
        two = await bob.item()
        assert two.id == "2"
        await bob.done(retract(NODE, two.named))
        await bob.told("unlock", "1")
        await bob.told("retract", "2")
        await bob.nothing()
        assert (await alice.stats(NODE))["excluded"] == "1"
        await bob.subscribe(NODE, 5)
        await bob.nothing()
        await other.subscribe(NODE)
        again = await other.item()
        assert (again.id, again.count) == ("1", 0)


# -- subscriptions ---------------------------------------------------------


async def test_subscribing_again_changes_the_options_and_nothing_else(
    queues: Served,
) -> None:
    """The worker helper does so at intervals.

    The items that it holds are sent again.
    """
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        subid = await bob.subscribe(NODE, 1)
        await alice.publish(NODE, item("1"), item("2"), item("3"))
        one = await bob.item()
        assert await bob.subscribe(NODE, 2) == subid
        assert (await bob.item()).named == one.named
        assert (await bob.item()).id == "2"
        await bob.nothing()
        assert (await alice.stats(NODE))["subscribers"] == "1"


async def test_after_unsubscribing_nothing_new_comes_and_the_locks_stay(
    queues: Served,
) -> None:
    """Row 9: the worker finishes the items that it holds."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 2)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await bob.done(unsubscribe(bob))
        await alice.publish(NODE, item("2"))
        await bob.nothing()
        await bob.done(retract(NODE, one.named))
        await bob.told("retract", "1")
        await bob.nothing()


async def test_durable_locks_outlive_presence_and_are_sent_again(
    queues: Served,
) -> None:
    """AMQP's *unsettled-state*: a worker that returns continues, with any resource."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.be_present()
        await bob.subscribe(NODE, options=DURABLE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await carol.subscribe(NODE)
        await bob.close()
        await alice.until_stats(NODE, subscribers="1", acquired="1")
        await carol.nothing()
        async with peers(queues, "bob/d") as (other,):
            await other.subscribe(NODE, options=DURABLE)
            again = await other.item()
            assert (again.id, again.count) == (one.id, 0)
            assert again.q["first-acquirer"] == "false"
            assert await other.refused(retract(NODE, one.named)) == UNEXPECTED
            await other.done(retract(NODE, again.named))


async def test_the_options_of_a_subscription_can_be_read_and_changed(
    queues: Served,
) -> None:
    """XEP-0060 §6.3: options not given stay, and so do locks."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        subid = await bob.subscribe(NODE, 1, options={"queue#batch": "3"})
        await alice.publish(NODE, *(item(str(i)) for i in range(4)))
        await bob.item()
        who = f"node='{NODE}' jid='{bob.jid}'"
        change = (
            "<x xmlns='jabber:x:data' type='submit'>"
            "<field var='pubsub#queue_requests'><value>4</value></field></x>"
        )
        await bob.done(pubsub(f"<options {who} subid='{subid}'>{change}</options>"))
        assert [each.id for each in delivered(await bob.items())] == ["1", "2", "3"]
        answer_ = await bob.done(pubsub(f"<options {who}/>"), "get")
        (x,) = answer_.iter("{jabber:x:data}x")
        assert x.get("type") == "form"
        fields = {
            each.get("var"): each.findtext("{jabber:x:data}value")
            for each in x.iter("{jabber:x:data}field")
        }
        assert fields["pubsub#queue_requests"] == "4"
        assert fields["queue#batch"] == "3"
        assert fields["queue#durable_locks"] == "0"
        assert fields["queue#events"] == "message"
        (options,) = answer_.iter(f"{{{PUBSUB}}}options")
        assert options.get("subid") == subid
