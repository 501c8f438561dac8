"""Decisions on open points of the XEP, and settlement, on the wire.

docs/design/queue.md §1 and §2: the second one is a fixed order of checks, of which the first that matches decides. Each test
is one check, or a pair of checks that both match.
"""

from collections.abc import Callable

import pytest

from passing_time import let_pass
from queue_service import (
    BAD_REQUEST,
    CONFLICT,
    EAGER,
    EXTENSIONS,
    FORBIDDEN,
    INVALID_OPTIONS,
    LOCK_S,
    LOCKING,
    NOT_FOUND,
    PUBSUB,
    QUEUEING,
    QUEUEING_OLD,
    STANZAS,
    UNEXPECTED,
    Delivered,
    Peer,
    Refused,
    Served,
    delivered,
    item,
    kinds,
    peers,
    pubsub,
    retract,
    settled,
    subscribe,
    unlock,
)

NODE = "orders"

MODIFIED = "<q:modified/>"
FAILED = "<q:modified delivery-failed='true'/>"
NOT_HERE = "<q:modified undeliverable-here='true'/>"
REJECTED = "<q:rejected>no such street</q:rejected>"

pytestmark = pytest.mark.asyncio(loop_scope="module")

Settle = Callable[..., str]

#: Both requests that settle, since the order of checks is the same.
SETTLING = pytest.mark.parametrize("settle", [retract, unlock])


async def held(
    owner: Peer,
    worker: Peer,
    config: dict[str, str] = EAGER,
    options: dict[str, str] | None = None,
) -> Delivered:
    """A worker holds the only item of a new node."""
    await owner.create(NODE, config)
    await worker.subscribe(NODE, options=options)
    await owner.publish(NODE, item("1"))
    return await worker.item()


async def left_alone(owner: Peer, worker: Peer) -> Delivered:
    """A worker has had the only item, which waits now without any worker."""
    one = await held(owner, worker)
    await worker.done(pubsub(f"<unsubscribe node='{NODE}' jid='{worker.jid}'/>"))
    await worker.done(unlock(NODE, one.named))
    await worker.told("unlock", "1")
    return one


# -- docs/design/queue.md §2 -----------------------------------------------


@SETTLING
async def test_step_0_there_must_be_such_a_node(queues: Served, settle: Settle) -> None:
    """This comes before any check of the item."""
    async with peers(queues, "bob/b") as (bob,):
        for request in (
            settle("no such node", "1"),
            settle("no such node", ("1", "t")),
        ):
            assert await bob.refused(request) == NOT_FOUND


async def test_step_1_an_accepted_item_is_there_for_its_settling_token_only(
    queues: Served,
) -> None:
    """A lost result must not look like a refusal, nor a stranger's guess like a result."""
    async with peers(queues, "alice/a", "bob/b", "bob/c", "carol/c") as found:
        alice, bob, other, carol = found
        one = await held(alice, bob)
        await bob.done(retract(NODE, one.named))
        await bob.told("retract", "1")
        # The same account, with any resource: the worker may have come back with
        # another.
        await bob.done(retract(NODE, one.named))
        await other.done(retract(NODE, one.named))
        for peer, request in (
            (bob, retract(NODE, "1")),
            (bob, retract(NODE, ("1", "another token"))),
            (bob, unlock(NODE, one.named)),
            (bob, unlock(NODE, one.named, content=REJECTED)),
            (carol, retract(NODE, one.named)),
            (alice, retract(NODE, "1")),
        ):
            assert await peer.refused(request) == NOT_FOUND
        await bob.nothing()
        await queues.restart()
        await bob.done(retract(NODE, one.named))
        assert await bob.refused(retract(NODE, "1")) == NOT_FOUND


async def test_step_1_an_accepted_item_that_is_kept_is_not_found_either(
    queues: Served,
) -> None:
    """It is kept for inspection only."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob, {"queue#keep_accepted": "60"})
        await bob.done(retract(NODE, "1"))
        assert list(await alice.browse(NODE, "accepted")) == ["1"]
        for peer in (alice, bob):
            assert await peer.refused(retract(NODE, "1")) == NOT_FOUND
            assert await peer.refused(unlock(NODE, "1")) == NOT_FOUND
        # Its token is remembered, although the worker had not sent it.
        await bob.done(retract(NODE, one.named))


async def test_step_1_a_dead_item_is_there_for_its_settling_token_only(
    queues: Served,
) -> None:
    """A repeated reject gets the same result."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob)
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        for peer, request in (
            (bob, unlock(NODE, "1", content=REJECTED)),
            (bob, unlock(NODE, one.named)),
            (bob, retract(NODE, one.named)),
            (bob, retract(NODE, "1")),
            (carol, unlock(NODE, one.named, content=REJECTED)),
            (alice, retract(NODE, "1")),
        ):
            assert await peer.refused(request) == NOT_FOUND
        assert list(await alice.browse(NODE, "dead")) == ["1"]


@SETTLING
async def test_step_1_expired_and_purged_items_are_not_found(
    queues: Served, settle: Settle
) -> None:
    """No token has settled them."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, EAGER)
        await alice.publish(
            NODE, item("short", more=f"xmlns:q='{EXTENSIONS}' q:ttl='0.01'")
        )
        await alice.until_stats(NODE, dead="1")
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await alice.done(pubsub(f"<purge node='{NODE}'/>", f"{PUBSUB}#owner"))
        for name in ("short", "1", one.named):
            assert await bob.refused(settle(NODE, name)) == NOT_FOUND


@SETTLING
async def test_step_2_who_never_received_it_is_forbidden(
    queues: Served, settle: Settle
) -> None:
    """Locked or not, with any token: a stranger learns nothing of the lock."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob)
        await carol.subscribe(NODE, 1)
        for name in ("1", one.named, ("1", "a guess")):
            assert await carol.refused(settle(NODE, name)) == FORBIDDEN
        await carol.done(pubsub(f"<unsubscribe node='{NODE}' jid='{carol.jid}'/>"))
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.jid}'/>"))
        await bob.done(unlock(NODE, "1"))
        for name in ("1", one.named):
            assert await carol.refused(settle(NODE, name)) == FORBIDDEN


async def test_step_2_owner_and_publisher_may_retract_what_is_not_locked(
    queues: Served,
) -> None:
    """XEP-0060 allows it; but a lock belongs to the worker, and so does unlock."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await alice.affiliate(NODE, carol="publisher")
        await carol.publish(NODE, item("1"), item("2"), item("3"))
        await bob.subscribe(NODE)
        one = await bob.item()
        for peer in (alice, carol):
            assert await peer.refused(unlock(NODE, "2")) == FORBIDDEN
            assert await peer.refused(retract(NODE, one.id)) == CONFLICT
        await carol.done(retract(NODE, "2"))
        await alice.done(retract(NODE, "3"))
        assert list(await alice.browse(NODE)) == ["1"]
        # No worker had the item, so none is notified.
        for peer in (alice, bob, carol):
            await peer.nothing()


async def test_step_2_a_publisher_may_not_retract_the_items_of_others(
    queues: Served,
) -> None:
    """A publisher may publish; only an owner has rights to all items."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="publisher", carol="publisher")
        await bob.publish(NODE, item("1"))
        assert await carol.refused(retract(NODE, "1")) == FORBIDDEN
        assert list(await alice.browse(NODE)) == ["1"]


@SETTLING
async def test_step_3_the_holder_is_done_with_and_without_its_live_token(
    queues: Served, settle: Settle
) -> None:
    """Foreign workers know no tokens."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#backoff": "100"})
        await bob.subscribe(NODE, 2)
        await alice.publish(NODE, item("1"), item("2"))
        first, second = await bob.item(), await bob.item()
        await bob.done(settle(NODE, first.id))
        await bob.done(settle(NODE, second.named))


@SETTLING
async def test_step_3_a_stale_token_does_not_settle_the_newer_delivery(
    queues: Served, settle: Settle
) -> None:
    """The fence: a late retract does not concern the present delivery."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob)
        await bob.done(unlock(NODE, one.named))
        again = await bob.item()
        assert again.token != one.token
        assert await bob.refused(settle(NODE, one.named)) == UNEXPECTED
        assert (await alice.browse(NODE))["1"]["state"] == "acquired"
        await bob.done(settle(NODE, again.named))


@SETTLING
async def test_step_3_a_durable_lock_is_its_accounts_with_the_token(
    queues: Served, settle: Settle
) -> None:
    """The lock outlives a connection, and the worker returns with another resource."""
    async with peers(queues, "alice/a", "bob/b", "bob/c", "carol/c") as found:
        alice, bob, other, carol = found
        one = await held(alice, bob, options={"queue#durable_locks": "1"})
        assert await carol.refused(settle(NODE, one.named)) == FORBIDDEN
        assert await other.refused(settle(NODE, ("1", "stale"))) == UNEXPECTED
        # Without a token only the full JID owns the lock: step 4.
        assert await other.refused(settle(NODE, "1")) == CONFLICT
        await other.done(settle(NODE, one.named))


@SETTLING
async def test_step_4_locked_by_anyone_else_is_a_conflict_whatever_the_token(
    queues: Served, settle: Settle
) -> None:
    """Another account, or another resource of the same: the holder is a full JID."""
    async with peers(queues, "alice/a", "bob/b", "bob/c", "carol/c") as found:
        alice, bob, other, carol = found
        one = await held(alice, bob)
        assert await other.refused(settle(NODE, "1")) == CONFLICT
        assert await other.refused(settle(NODE, one.named)) == CONFLICT
        await carol.subscribe(NODE)
        await bob.done(unlock(NODE, one.named))
        live = await carol.item()
        for peer in (bob, other):
            for name in ("1", one.named, live.named):
                assert await peer.refused(settle(NODE, name)) == CONFLICT


@SETTLING
async def test_step_5_who_had_it_and_has_it_no_more_is_unexpected(
    queues: Served, settle: Settle
) -> None:
    """ "Received" is kept by account and is durable.

    Not forbidden, even after a restart.
    """
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        one = await left_alone(alice, bob)
        for _ in range(2):
            for peer in (bob, other):
                assert await peer.refused(settle(NODE, "1")) == UNEXPECTED
                assert await peer.refused(settle(NODE, one.named)) == UNEXPECTED
            await queues.restart()
        assert list(await alice.browse(NODE)) == ["1"]


async def test_received_is_of_this_life_of_the_item(queues: Served) -> None:
    """A requeued item has been received by nobody yet."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob)
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.jid}'/>"))
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        await alice.done(pubsub(f"<q:requeue node='{NODE}'/>"))
        assert await bob.refused(retract(NODE, "1")) == FORBIDDEN
        assert await bob.refused(unlock(NODE, "1", content=REJECTED)) == FORBIDDEN
        # The token of the first life is remembered, and has no effect on the second.
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        assert (await alice.browse(NODE))["1"]["state"] == "available"


# -- docs/design/queue.md §1.11: several items ----------------------------


@SETTLING
async def test_several_items_are_settled_all_or_none(
    queues: Served, settle: Settle
) -> None:
    """The first refusal decides, and the error names the item."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#backoff": "100"})
        await bob.subscribe(NODE, 2)
        await alice.publish(NODE, item("1"), item("2"), item("3"))
        first, second = await bob.item(), await bob.item()
        for names, refusal, guilty in (
            ((first.named, "none", "3"), NOT_FOUND, "none"),
            ((first.named, "3", "none"), FORBIDDEN, "3"),
            ((("1", "stale"), second.named), UNEXPECTED, "1"),
        ):
            answer = await bob.ask(settle(NODE, *names))
            assert Refused.of(answer) == refusal
            assert repr(guilty) in answer.findtext(f".//{{{STANZAS}}}text", "")
            states = {
                name: q["state"] for name, q in (await alice.browse(NODE)).items()
            }
            assert states == {"1": "acquired", "2": "acquired", "3": "available"}
        await bob.done(settle(NODE, first.named, second.named))
        told = await bob.event(NODE)
        what = "retract" if settle is retract else "unlock"
        assert kinds(told) == [(what, "1"), (what, "2")]


async def test_several_items_come_in_one_event_when_that_is_asked_for(
    queues: Served,
) -> None:
    """`queue#batch`; without it each event has one item, as in the listings."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await bob.subscribe(NODE, 5, options={"queue#batch": "3"})
        await alice.publish(NODE, *(item(str(i)) for i in range(5)))
        sizes = [len(delivered(await bob.event(NODE))) for _ in range(2)]
        assert sizes == [3, 2]
        await carol.subscribe(NODE, 2)
        await alice.publish(NODE, item("a"), item("b"))
        assert [(await carol.item()).id for _ in range(2)] == ["a", "b"]


async def test_several_items_are_published_all_or_none(queues: Served) -> None:
    """Otherwise the publisher would have to find out which ones."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE, {"queue#max_items": "3"})
        await alice.publish(NODE, item("1"))
        for items, refusal in (
            ((item("2"), item("1", "other")), CONFLICT),
            ((item("2"), item("3"), item("4")), Refused("wait", "resource-constraint")),
            ((item("2"), item("2")), BAD_REQUEST),
        ):
            request = pubsub(f"<publish node='{NODE}'>{''.join(items)}</publish>")
            assert await alice.refused(request) == refusal
            assert list(await alice.browse(NODE)) == ["1"]


# -- docs/design/queue.md §1, the other rows ------------------------------


async def test_row_6_a_full_jid_is_served_and_no_other_resource(queues: Served) -> None:
    """An event goes to the resource that holds the lock."""
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        one = await held(alice, bob)
        assert one.to == bob.jid
        await other.nothing()


async def test_row_6_a_bare_jid_is_served_by_an_available_resource(
    queues: Served,
) -> None:
    """The listings subscribe in this way.

    The lock belongs to the resource with the item.
    """
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 2, jid=bob.account)
        await other.be_present()
        await other.synced()
        await alice.publish(NODE, item("1"), item("2"))
        items = [await bob.item(), await other.item()]
        assert {each.id for each in items} == {"1", "2"}
        assert await other.refused(retract(NODE, items[0].named)) == CONFLICT
        await bob.done(retract(NODE, items[0].named))
        await bob.told("retract", items[0].id)


async def test_row_6_a_bare_subscription_ends_with_the_last_resource(
    queues: Served,
) -> None:
    """A resource that leaves gives back only its own items.

    The account is still there.
    """
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 2, jid=bob.account)
        await alice.publish(NODE, item("1"))
        assert (await bob.item()).count == 0
        await other.be_present()
        await other.synced()
        await bob.go()
        assert (await other.item()).count == 1
        assert (await alice.stats(NODE))["subscribers"] == "1"
        await other.go()
        await other.synced()
        await alice.until_stats(NODE, subscribers="0", available="1")


@pytest.mark.parametrize("what", ["unavailable", "the connection is gone"])
async def test_row_7_unavailable_ends_locks_and_subscription(
    queues: Served, what: str
) -> None:
    """It counts as a failure: an item that kills its worker must end."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await bob.be_present()
        await held(alice, bob)
        if what == "unavailable":
            await bob.go()
        else:
            await bob.cut()
        await alice.until_stats(NODE, subscribers="0", available="1")
        assert (await alice.browse(NODE))["1"]["delivery-count"] == "1"


async def test_row_8_the_result_of_a_retract_comes_before_the_event(
    queues: Served,
) -> None:
    """The result is decisive; the event is for subscribers that wait for it."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await held(alice, bob)
        await bob.start_asking(retract(NODE, one.named))
        await bob.told("retract", "1")
        (answer,) = bob.received(lambda xml: xml.get("type") == "result")
        assert not len(answer)


@pytest.mark.parametrize("xmlns", [QUEUEING, QUEUEING_OLD])
async def test_row_4_items_may_be_in_the_namespace_of_unlock(
    queues: Served, xmlns: str
) -> None:
    """In the listing the default namespace causes that."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await held(alice, bob)
        in_pubsub = (
            f"<u:unlock xmlns:u='{xmlns}' node='{NODE}'>{settled('1')}</u:unlock>"
        )
        await bob.done(pubsub(in_pubsub))
        await bob.told("unlock", "1")
        await bob.item()
        await bob.done(unlock(NODE, "1", xmlns=xmlns))


async def test_an_event_says_what_our_extensions_know(queues: Served) -> None:
    """docs/design/queue.md §1.12: token, count, priority, and the remaining ttl."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE)
        more = f"xmlns:q='{EXTENSIONS}' q:priority='7' q:ttl='1000'"
        await alice.publish(NODE, item("1", more=more))
        first = await bob.item()
        assert first.payload == "the-private-payload"
        assert first.q["priority"] == "7"
        assert "delivery-count" not in first.q
        assert first.q["first-acquirer"] == "true"
        assert 900 < float(first.q["ttl"]) <= 1000
        await let_pass(100)
        assert len(first.token) >= 16
        await bob.done(unlock(NODE, "1", content=FAILED))
        again = await bob.item()
        assert again.q["delivery-count"] == "1"
        assert again.q["first-acquirer"] == "false"
        assert float(again.q["ttl"]) <= float(first.q["ttl"]) - 100
        assert again.token != first.token


async def test_an_extend_needs_the_live_token_and_moves_the_deadline(
    queues: Served,
) -> None:
    """The worker is still working: otherwise the lock would end before the retract."""

    def extend(*items: str | tuple[str, str], seconds: str = "6000") -> str:
        head = f"<q:extend node='{NODE}' seconds='{seconds}'>"
        return pubsub(f"{head}{settled(*items)}</q:extend>")

    async with peers(queues, "alice/a", "bob/b", "bob/c", "carol/c") as found:
        alice, bob, other, carol = found
        one = await held(alice, bob, LOCKING)
        answer = await bob.done(extend(one.named))
        (element,) = answer.iter(f"{{{EXTENSIONS}}}extend")
        assert float(element.get("seconds", "")) == 6000
        await carol.subscribe(NODE)
        # An item that was locked later has timed out; this one has not.
        await alice.publish(NODE, item("2"))
        assert (await carol.item()).id == "2"
        await let_pass(LOCK_S)
        await carol.told("unlock", "2")
        await bob.nothing()
        assert await bob.refused(extend("1")) == BAD_REQUEST
        assert await bob.refused(extend(("1", "stale"))) == UNEXPECTED
        assert await bob.refused(extend(("none", one.token))) == NOT_FOUND
        assert await carol.refused(extend(one.named)) == FORBIDDEN
        assert await other.refused(extend(one.named)) == CONFLICT
        for seconds in ("0", "-1", "1000000000", "soon", "", "nan", "inf"):
            request = extend(one.named, seconds=seconds)
            assert await bob.refused(request) == BAD_REQUEST
        answer = await bob.ask(extend(one.named), "get")
        assert Refused.of(answer) == BAD_REQUEST
        await bob.done(retract(NODE, one.named))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pubsub#queue_requests", ("0", "-1", "1000000000", "many", "1.5", "")),
        ("queue#batch", ("0", "-1", "1000000000", "many", "")),
        ("queue#durable_locks", ("2", "yes", "")),
        ("queue#events", ("assured", "", "MESSAGE")),
    ],
)
async def test_a_bad_option_of_a_subscription_is_an_invalid_option(
    queues: Served, name: str, values: tuple[str, ...]
) -> None:
    """An existing subscription stays as it was."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for value in values:
            options = {"pubsub#queue_requests": "1", name: value}
            request = subscribe(NODE, bob.jid, options)
            assert await bob.refused(request) == INVALID_OPTIONS
        assert (await alice.stats(NODE))["subscribers"] == "0"
        await bob.subscribe(NODE)
        for value in values:
            options = {"pubsub#queue_requests": "1", name: value}
            request = subscribe(NODE, bob.jid, options)
            assert await bob.refused(request) == INVALID_OPTIONS
        await alice.publish(NODE, item("1"), item("2"))
        await bob.item()
        await bob.nothing()
