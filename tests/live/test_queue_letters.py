"""Dead letters, and operations that end many items, on the wire.

docs/design/queue.md §5.
"""

from xml.etree import ElementTree as ET

import pytest

from queue_items import NODE, dead_of, failures, held, q_of, requeue
from queue_service import (
    CONFLICT,
    DISCO_INFO,
    EAGER,
    EVENT,
    EXTENSIONS,
    FORBIDDEN,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    OWNER,
    PRIVATE,
    Delivered,
    Peer,
    Served,
    item,
    peers,
    pubsub,
    retract,
    unlock,
)

LETTERS = "letters"
Q = f"xmlns:q='{EXTENSIONS}'"

FAILED = "<q:modified delivery-failed='true'/>"
REJECTED = "<q:rejected>no such street</q:rejected>"

pytestmark = pytest.mark.asyncio(loop_scope="module")


# -- dead letters ----------------------------------------------------------


async def with_letters(owner: Peer, worker: Peer) -> Delivered:
    """As `held`, with a dead-letter node."""
    await owner.create(LETTERS, EAGER)
    return await held(owner, worker, {"queue#dead_letter_node": LETTERS})


async def test_a_dead_letter_is_an_item_of_another_node(queues: Served) -> None:
    """With its origin, its reason, and a life of its own."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await with_letters(alice, bob)
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        letter_id = f"{NODE}/1"
        assert list(await alice.browse(LETTERS)) == [letter_id]
        assert (await alice.stats(NODE))["dead"] == "1"
        (dead,) = (await dead_of(alice)).values()
        assert (q_of(dead, "origin"), q_of(dead, "origin-id")) == (NODE, "1")
        assert failures(dead) == ["rejected: no such street"]
        await carol.subscribe(LETTERS)
        letter = await carol.item(LETTERS)
        assert (letter.id, letter.count, letter.payload) == (letter_id, 0, PRIVATE)
        assert (letter.q["origin"], letter.q["origin-id"]) == (NODE, "1")
        assert letter.q["first-acquirer"] == "true"
        # It was never received here, and is locked: neither worker may touch it.
        assert await bob.refused(retract(LETTERS, letter_id)) == FORBIDDEN
        assert await alice.refused(requeue("1")) == CONFLICT
        await carol.done(retract(LETTERS, letter.named))
        assert (await alice.stats(NODE))["dead"] == "0"


@pytest.mark.parametrize("target", ["", NODE, "deleted"])
async def test_without_a_dead_letter_node_the_dead_stay_where_they_are(
    queues: Served, target: str
) -> None:
    """Nothing is dropped: with no node, the node itself, or a deleted one."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        if target == "deleted":
            await alice.create(target)
        one = await held(alice, bob, {"queue#dead_letter_node": target})
        if target == "deleted":
            await alice.done(pubsub(f"<delete node='{target}'/>", OWNER))
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        assert list(await dead_of(alice)) == ["1"]
        await queues.restart()
        assert list(await dead_of(alice)) == ["1"]
        assert (await alice.stats(NODE))["dead"] == "1"


@pytest.mark.parametrize("letters", [False, True], ids=["stayed", "letter"])
@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
async def test_a_requeue_restores_the_item_with_its_history(
    queues: Served, letters: bool, named: bool
) -> None:
    """Count 0, the same id, payload and publisher.

    After another death it shows both lives.
    """
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        one = await (with_letters if letters else held)(alice, bob)
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        assert await bob.refused(requeue("1")) == FORBIDDEN
        if letters:
            assert await alice.refused(requeue(f"{NODE}/1")) == NOT_FOUND
        answer = await alice.done(requeue("1") if named else requeue())
        (element,) = answer.iter(f"{{{EXTENSIONS}}}requeue")
        assert [each.get("id") for each in element] == ["1"]
        again = await bob.item(NODE)
        assert (again.id, again.count, again.payload) == ("1", 0, PRIVATE)
        assert again.q["first-acquirer"] == "true"
        assert await dead_of(alice) == {}
        await alice.publish(NODE, item("1"))
        assert list(await alice.browse(NODE)) == ["1"]
        await bob.done(unlock(NODE, again.named, content=REJECTED))
        (dead,) = (await dead_of(alice)).values()
        assert failures(dead) == ["rejected: no such street"] * 2
        assert dead.get("publisher") == alice.account


async def test_a_dead_letter_node_of_others_takes_nothing(queues: Served) -> None:
    """Only an account that may publish there can send dead items there."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await bob.create(LETTERS)
        change = {
            "pubsub#access_model": "open",
            "queue#dead_letter_node": LETTERS,
        }
        config = "".join(
            f"<field var='{k}'><value>{v}</value></field>" for k, v in change.items()
        )
        x = f"<configure><x xmlns='jabber:x:data' type='submit'>{config}</x></configure>"
        request = pubsub(f"<create node='{NODE}'/>{x}")
        assert await alice.refused(request) == NOT_ACCEPTABLE
        await bob.affiliate(LETTERS, alice="publisher")
        await alice.done(request)
        await bob.affiliate(LETTERS, alice="none")
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await bob.done(unlock(NODE, (await bob.item()).named, content=REJECTED))
        assert await bob.browse(LETTERS) == {}
        assert list(await dead_of(alice)) == ["1"]


# -- one request upon the other --------------------------------------------


async def both(peer: Peer, first: str, second: str) -> list[ET.Element]:
    """Send two requests at once: the second is decided before the first is written."""
    requests = [
        f"<iq type='set' id='{iq_id}' to='{peer.service}'>{content}</iq>"
        for iq_id, content in (("first", first), ("second", second))
    ]
    await peer.send("".join(requests))
    return [await peer.answered("first"), await peer.answered("second")]


async def test_a_purge_takes_what_has_just_died(queues: Served) -> None:
    """A decision counts even before it is on disk: the item must not reappear."""
    async with peers(queues, "alice/a") as (alice,):
        one = await held(alice, alice)
        reject = unlock(NODE, one.named, content=REJECTED)
        purge = pubsub(f"<purge node='{NODE}'/>", OWNER)
        for answer in await both(alice, reject, purge):
            assert answer.get("type") == "result", ET.tostring(answer)
        assert (await alice.stats(NODE))["dead"] == "0"
        assert await dead_of(alice) == {}


@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
async def test_a_requeue_finds_what_has_just_died(queues: Served, named: bool) -> None:
    """The owner saw the reject, and is answered in order."""
    async with peers(queues, "alice/a") as (alice,):
        one = await held(alice, alice)
        reject = unlock(NODE, one.named, content=REJECTED)
        answers = await both(alice, reject, requeue("1") if named else requeue())
        for answer in answers:
            assert answer.get("type") == "result", ET.tostring(answer)
        assert (await alice.stats(NODE))["dead"] == "0"
        assert (await alice.item()).id == "1"


async def test_a_repeat_finds_what_has_just_been_accepted(queues: Served) -> None:
    """A retract sent twice, and a publish of an item that has just ended."""
    async with peers(queues, "alice/a") as (alice,):
        one = await held(alice, alice)
        again = pubsub(f"<publish node='{NODE}'>{item('1')}</publish>")
        for request in (retract(NODE, one.named), again):
            for answer in await both(alice, retract(NODE, one.named), request):
                assert answer.get("type") == "result", ET.tostring(answer)
        assert await alice.browse(NODE) == {}


# -- the end of many -------------------------------------------------------


async def test_a_purge_takes_locked_and_dead_items_too(queues: Served) -> None:
    """A later retract finds nothing; subscribers are told, and stay."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob)
        await bob.done(unlock(NODE, one.named, content=REJECTED))
        await alice.publish(NODE, item("2"), item("3"))
        two = await bob.item()
        purge = pubsub(f"<purge node='{NODE}'/>", OWNER)
        assert await carol.refused(purge) == FORBIDDEN
        await alice.done(purge)
        await bob.expect(lambda xml: xml.find(f".//{{{EVENT}}}purge") is not None)
        assert await bob.refused(retract(NODE, two.named)) == NOT_FOUND
        stats = await alice.stats(NODE)
        gone = ("available", "acquired", "dead", "bytes")
        assert [stats[name] for name in gone] == ["0"] * 4
        assert stats["subscribers"] == "1"
        await alice.publish(NODE, item("4"))
        assert (await bob.item()).id == "4"
        await carol.nothing()


async def test_a_delete_takes_all_and_is_told(queues: Served) -> None:
    """Every promise about its ids ends: a new node with the name knows nothing."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob)
        delete = pubsub(f"<delete node='{NODE}'/>", OWNER)
        assert await carol.refused(delete) == FORBIDDEN
        await alice.done(delete)
        event = await bob.expect(
            lambda xml: xml.find(f".//{{{EVENT}}}delete") is not None
        )
        (element,) = event.iter(f"{{{EVENT}}}delete")
        assert element.get("node") == NODE
        for request in (retract(NODE, one.named), unlock(NODE, "1")):
            assert await bob.refused(request) == NOT_FOUND
        await alice.create(NODE)
        assert await bob.refused(retract(NODE, one.named)) == NOT_FOUND
        await alice.publish(NODE, item("1", "another"))
        await bob.no_items()
        assert list(await alice.browse(NODE)) == ["1"]
        assert (await alice.stats(NODE))["subscribers"] == "0"


@pytest.mark.parametrize("how", ["outcast", "whitelist"])
async def test_who_may_not_work_any_more_loses_subscription_and_locks(
    queues: Served, how: str
) -> None:
    """The worker is told of both; the item goes to the next one, and does not count."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        one = await held(alice, bob)
        await alice.affiliate(NODE, carol="member")
        await carol.subscribe(NODE)
        if how == "outcast":
            await alice.affiliate(NODE, bob="outcast")
        else:
            config = "<field var='pubsub#access_model'><value>whitelist</value></field>"
            x = f"<x xmlns='jabber:x:data' type='submit'>{config}</x>"
            await alice.done(pubsub(f"<configure node='{NODE}'>{x}</configure>", OWNER))
        event = await bob.expect(
            lambda xml: xml.find(f".//{{{EVENT}}}subscription") is not None
        )
        (element,) = event.iter(f"{{{EVENT}}}subscription")
        assert element.get("subscription") == "none"
        assert (element.get("node"), element.get("jid")) == (NODE, bob.jid)
        await bob.told("unlock", "1")
        again = await carol.item()
        assert (again.id, again.count) == ("1", 0)
        assert await bob.refused(retract(NODE, one.named)) == NOT_FOUND
        await bob.no_items()


async def test_the_stats_of_a_node_add_up(queues: Served) -> None:
    """`queue stats` shows them; a stranger to the node sees nothing."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        config = {"pubsub#access_model": "whitelist", "queue#max_deliveries": "1"}
        await alice.create(NODE, config)
        await alice.affiliate(NODE, bob="member")
        await bob.subscribe(NODE, 1)
        await alice.publish(NODE, item("1"), item("2"), item("3"), item("4"))
        await alice.publish(NODE, item("5", more=f"{Q} q:delay='60'"))
        await bob.done(retract(NODE, (await bob.item()).named))
        one = await bob.item()
        await bob.done(unlock(NODE, one.named, content=FAILED))
        await bob.item()
        stats = await bob.stats(NODE)
        assert float(stats.pop("oldest_seconds")) >= 0
        assert (
            stats.items()
            >= {
                "available": "1",
                "acquired": "1",
                "delayed": "1",
                "dead": "1",
                "accepted": "1",
                "subscribers": "1",
            }.items()
        )
        info = f"<query xmlns='{DISCO_INFO}' node='{NODE}'/>"
        assert await mallory.refused(info, "get") == NOT_FOUND
