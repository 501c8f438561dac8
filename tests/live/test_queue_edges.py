"""Combinations of the queue's rules.

Names, sizes, restarts, dead letters that die again.
"""

import pytest

from passing_time import let_pass
from queue_service import (
    BAD_REQUEST,
    CONFLICT,
    EAGER,
    EXTENSIONS,
    NOT_FOUND,
    OWNER,
    PUBSUB,
    UNEXPECTED,
    Peer,
    Served,
    delivered,
    item,
    peers,
    publish,
    pubsub,
    retract,
    settled,
    subscribe,
    unlock,
)
from raw_client import stanza

NODE = "orders"
LETTERS = "letters"
Q = f"xmlns:q='{EXTENSIONS}'"

FAILED = "<q:modified delivery-failed='true'/>"
REJECTED = "<q:rejected/>"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def requeue(node: str, *item_ids: str) -> str:
    return pubsub(f"<q:requeue node='{node}'>{settled(*item_ids)}</q:requeue>")


async def reject(worker: Peer, node: str = NODE) -> None:
    """Reject the next item of a node."""
    one = await worker.item(node)
    await worker.done(unlock(node, one.named, content=REJECTED))


# -- names and types -------------------------------------------------------


@pytest.mark.parametrize("resource", ["ä<&'\">😀", "a/b@c", " x ", "]]>"])
async def test_a_worker_may_have_any_resource(queues: Served, resource: str) -> None:
    """The resource is part of the holder, and is in each event."""
    async with (
        peers(queues, "alice/a") as (alice,),
        Peer(
            f"bob@localhost/{resource}",
            queues.server.accounts["bob"],
            port=queues.server.c2s_port,
            service=queues.jid,
        ) as bob,
    ):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        assert one.to == bob.jid
        assert (await alice.browse(NODE))["1"]["holder"] == bob.jid
        await queues.restart()
        await bob.done(unlock(NODE, one.named, content=FAILED))
        await bob.told("unlock", "1")
        await bob.done(retract(NODE, (await bob.item()).named))


async def test_a_request_has_the_type_of_its_deed(queues: Served) -> None:
    """Only for requests that XEP-0254 itself mixes up, both types are accepted."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        who = f"node='{NODE}' jid='{alice.jid}'"
        for kind, content, xmlns in (
            ("get", f"<publish node='{NODE}'><item/></publish>", PUBSUB),
            ("get", f"<subscribe {who}/>", PUBSUB),
            ("get", f"<unsubscribe {who}/>", PUBSUB),
            ("get", "<create/>", PUBSUB),
            ("get", f"<q:requeue node='{NODE}'/>", PUBSUB),
            ("set", f"<items node='{NODE}'/>", PUBSUB),
            ("set", "<subscriptions/>", PUBSUB),
            ("set", "<affiliations/>", PUBSUB),
            ("set", "<default/>", OWNER),
            ("get", f"<delete node='{NODE}'/>", OWNER),
            ("get", f"<purge node='{NODE}'/>", OWNER),
        ):
            assert await alice.refused(pubsub(content, xmlns), kind) == BAD_REQUEST
        assert await alice.browse(NODE) == {}


async def test_a_worker_may_subscribe_another_resource_of_its_account(
    queues: Served,
) -> None:
    """XEP-0060 §6.1: the account is the same; events go to the subscribed resource."""
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, jid=other.jid)
        await alice.publish(NODE, item("1"))
        await bob.nothing()
        await other.synced()
        assert (await other.item()).to == other.jid
        await bob.no_items()


# -- sizes -----------------------------------------------------------------


async def test_a_batch_that_does_not_fit_comes_in_several_events(
    queues: Served,
) -> None:
    """An event over the server's limit would end the stream of the service."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for number in range(4):
            await alice.publish(NODE, item(str(number), "x" * 90_000))
        await bob.subscribe(NODE, 10, options={"queue#batch": "10"})
        found = list[str]()
        while len(found) < 4:
            found += [each.id for each in delivered(await bob.items())]
        assert found == ["0", "1", "2", "3"]
        await bob.done(retract(NODE, *found))


async def test_a_hold_is_capped_however_often_it_is_extended(queues: Served) -> None:
    """docs/design/queue.md §1.13: a worker that needs more than a day hangs."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        for _ in range(2):
            head = f"<q:extend node='{NODE}' seconds='604800'>"
            answer = await bob.done(pubsub(f"{head}{settled(one.named)}</q:extend>"))
            (element,) = answer.iter(f"{{{EXTENSIONS}}}extend")
            assert 86_000 < float(element.get("seconds", "")) <= 86_400


async def test_fewer_queue_requests_take_nothing_away(queues: Served) -> None:
    """The new number limits further deliveries only."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 3)
        await alice.publish(NODE, *(item(str(number)) for number in range(5)))
        held = [await bob.item() for _ in range(3)]
        await bob.subscribe(NODE, 1)
        again = [await bob.item() for _ in held]
        assert sorted(each.named for each in again) == sorted(
            each.named for each in held
        )
        for one in held[:2]:
            await bob.done(retract(NODE, one.named))
        await bob.no_items()
        await bob.done(retract(NODE, held[2].named))
        assert (await bob.item()).id == "3"


# -- time and restarts -----------------------------------------------------


async def test_a_kept_item_is_forgotten_when_its_time_is_over(queues: Served) -> None:
    """`queue#keep_accepted` is exact to the second, not to the rounds of a cleaner."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#keep_accepted": "600"})
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await bob.done(retract(NODE, (await bob.item()).named))
        # Some seconds, which a busy machine may take for one step, before and after.
        await let_pass(540)
        assert list(await alice.browse(NODE, "accepted")) == ["1"]
        await let_pass(60)
        assert await alice.browse(NODE, "accepted") == {}


async def test_all_that_waits_survives_a_restart(queues: Served) -> None:
    """Order, delays, counts, exclusions, subscriptions, affiliations."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await alice.affiliate(NODE, carol="publisher")
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("failed"))
        one = await bob.item()
        not_here = "<q:modified delivery-failed='true' undeliverable-here='true'/>"
        await bob.done(unlock(NODE, one.named, content=not_here))
        await bob.told("unlock", "failed")
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.jid}'/>"))
        await alice.publish(NODE, item("late", more=f"{Q} q:delay='60'"), item("a"))
        await alice.publish(NODE, item("first", more=f"{Q} q:priority='9'"), item("b"))
        before = await alice.browse(NODE)
        await queues.restart()
        assert await alice.browse(NODE) == before
        assert before["late"]["state"] == "delayed"
        await carol.publish(NODE, item("c"))
        await bob.subscribe(NODE, 9)
        assert [(await bob.item()).id for _ in range(4)] == ["first", "a", "b", "c"]
        await bob.no_items()
        await carol.subscribe(NODE)
        again = await carol.item()
        assert (again.id, again.count) == ("failed", 1)


async def test_a_bare_subscriber_is_found_again_after_a_restart(
    queues: Served,
) -> None:
    """By a probe to the resource that subscribed, or by a stanza of another resource."""
    async with peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, jid=bob.account)
        await queues.restart()
        await alice.publish(NODE, item("1"))
        probe = await bob.expect(stanza("iq", type="get", from_=queues.jid))
        await bob.send(f"<iq type='result' id='{probe.get('id')}' to='{queues.jid}'/>")
        one = await bob.item()
        await bob.done(retract(NODE, one.named))
        assert not other.received(stanza("iq", type="get"))


# -- dead letters of dead letters ------------------------------------------


async def test_a_dead_letter_that_dies_stays_where_it_is(queues: Served) -> None:
    """Two nodes that name each other would pass it back and forth for ever."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(LETTERS, EAGER)
        await alice.create(NODE, {"queue#dead_letter_node": LETTERS} | EAGER)
        await alice.configure(LETTERS, dead_letter_node=NODE)
        await bob.subscribe(NODE)
        await bob.subscribe(LETTERS)
        await alice.publish(NODE, item("1"))
        await reject(bob, NODE)
        await reject(bob, LETTERS)
        await bob.no_items()
        letter_id = f"{NODE}/1"
        assert list(await alice.browse(LETTERS, "dead")) == [letter_id]
        assert (await alice.stats(LETTERS))["dead"] == "1"
        await queues.restart()
        await alice.done(requeue(LETTERS, letter_id))
        await bob.synced()
        again = await bob.item(LETTERS)
        # Now it belongs to this node.
        assert again.id == letter_id
        assert "origin" not in again.q
        await bob.done(unlock(LETTERS, again.named))
        await bob.item(LETTERS)


async def test_two_dead_letters_may_have_had_the_same_id(queues: Served) -> None:
    """Without a dedupe window an id is free at once: neither item is lost."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(LETTERS)
        config = {"queue#dead_letter_node": LETTERS, "queue#dedupe_window": "0"}
        await alice.create(NODE, config | EAGER)
        await bob.subscribe(NODE)
        for payload in ("first", "second"):
            await alice.publish(NODE, item("1", payload))
            await reject(bob)
        assert (await alice.stats(NODE))["dead"] == "2"
        assert len(await alice.browse(LETTERS)) == 2
        # Only one item at a time can live with that id.
        await alice.done(requeue(NODE, "1"))
        assert (await bob.item()).id == "1"
        assert await alice.refused(requeue(NODE, "1")) == CONFLICT
        await carol.subscribe(LETTERS, 2)
        letter = await carol.item(LETTERS)
        assert letter.q["origin-id"] == "1"
        await carol.no_items()


async def test_a_dead_item_cannot_come_back_over_a_living_one(queues: Served) -> None:
    """Its id belongs to another item now.

    Of all dead items, the others are requeued.
    """
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#dedupe_window": "0"} | EAGER)
        await bob.subscribe(NODE)
        for name in ("1", "2"):
            await alice.publish(NODE, item(name))
            await reject(bob)
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.jid}'/>"))
        await alice.publish(NODE, item("1", "alive"))
        assert await alice.refused(requeue(NODE, "1")) == CONFLICT
        assert await alice.refused(requeue(NODE, "2", "1")) == CONFLICT
        assert await alice.refused(requeue(NODE, "2", "none")) == NOT_FOUND
        assert (await alice.stats(NODE))["dead"] == "2"
        answer = await alice.done(requeue(NODE))
        (element,) = answer.iter(f"{{{EXTENSIONS}}}requeue")
        assert [each.get("id") for each in element] == ["2"]
        assert set(await alice.browse(NODE)) == {"1", "2"}
        assert list(await alice.browse(NODE, "dead")) == ["1"]


async def test_dead_letters_outlive_the_node_that_they_came_from(
    queues: Served,
) -> None:
    """They belong to another node now.

    A new node with the old name is not their origin.
    """
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(LETTERS)
        await alice.create(NODE, {"queue#dead_letter_node": LETTERS} | EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await reject(bob)
        await alice.done(pubsub(f"<delete node='{NODE}'/>", OWNER))
        assert list(await alice.browse(LETTERS)) == [f"{NODE}/1"]
        # A stranger who takes the name must not get the payloads of others.
        await mallory.create(NODE)
        assert await mallory.browse(NODE, "dead") == {}
        assert await mallory.refused(requeue(NODE, "1")) == NOT_FOUND
        await mallory.done(requeue(NODE))
        assert await mallory.browse(NODE) == {}
        assert list(await alice.browse(LETTERS)) == [f"{NODE}/1"]
        await queues.restart()
        assert await mallory.browse(NODE, "dead") == {}
        assert (await mallory.stats(NODE))["dead"] == "0"


# -- settling what changes hands -------------------------------------------


async def test_one_who_is_owner_and_worker_takes_back_only_without_a_token(
    queues: Served,
) -> None:
    """With a token it acts as a worker whose delivery has ended.

    Without, as the owner.
    """
    async with peers(queues, "alice/a", "alice/b") as (alice, other):
        await alice.create(NODE, EAGER)
        await alice.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await alice.item()
        assert await other.refused(retract(NODE, "1")) == CONFLICT
        await alice.done(pubsub(f"<unsubscribe node='{NODE}' jid='{alice.jid}'/>"))
        await alice.done(unlock(NODE, one.named))
        assert await alice.refused(retract(NODE, one.named)) == UNEXPECTED
        await alice.done(retract(NODE, "1"))
        assert await alice.browse(NODE) == {}


async def test_a_repeat_of_a_released_lock_is_told_from_the_next_one(
    queues: Served,
) -> None:
    """Only an ended item remembers its token; a repeated unlock is refused."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await bob.done(unlock(NODE, one.named))
        again = await bob.item()
        assert await bob.refused(unlock(NODE, one.named)) == UNEXPECTED
        await bob.done(retract(NODE, again.named))
        await bob.done(retract(NODE, again.named))


async def test_an_item_of_the_same_id_in_another_node_is_another_item(
    queues: Served,
) -> None:
    """Ids, tokens and locks belong to one node."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        for node in (NODE, "other"):
            await alice.create(node, EAGER)
            await bob.subscribe(node)
            await alice.publish(node, item("1", node))
        one, two = await bob.item(NODE), await bob.item("other")
        assert (one.payload, two.payload) == (NODE, "other")
        assert await bob.refused(retract("other", one.named)) == UNEXPECTED
        await bob.done(retract(NODE, one.named))
        assert (await alice.browse("other"))["1"]["state"] == "acquired"
        await bob.done(retract("other", two.named))


async def test_an_outcast_is_refused_whatever_it_asks(queues: Served) -> None:
    """Also subscribing without options, and publishing to an open node."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"pubsub#publish_model": "open"})
        await alice.affiliate(NODE, bob="outcast")
        await alice.publish(NODE, item("1"))
        options = {"pubsub#queue_requests": "1"}
        for request, kind in (
            (publish(NODE, item("2")), "set"),
            (subscribe(NODE, bob.jid, None), "set"),
            (subscribe(NODE, bob.jid, options), "set"),
            (retract(NODE, "1"), "set"),
            (pubsub(f"<items node='{NODE}'/>"), "get"),
        ):
            assert await bob.refused(request, kind) == NOT_FOUND
