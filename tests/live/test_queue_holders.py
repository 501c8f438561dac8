"""queue.md §4 on the wire: who gets an item, how many, and who is still there."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import pytest_asyncio

from prosody import Prosody
from queue_service import (
    DISCO_INFO,
    EAGER,
    EVENT,
    EXTENSIONS,
    PRIVATE,
    PUBSUB,
    QUICK,
    Delivered,
    Peer,
    Served,
    delivered,
    item,
    own_server,
    peers,
    pubsub,
    retract,
    served,
    unlock,
)
from raw_client import local

NODE = "orders"
QOS = "urn:xmpp:qos"
PING = "urn:xmpp:ping"
Q = f"xmlns:q='{EXTENSIONS}'"

DURABLE = {"queue#durable_locks": "1"}
ACKNOWLEDGED = {"queue#events": "acknowledged"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prosody]:
    async with own_server(tmp_path_factory.mktemp("prosody")) as prosody:
        yield prosody


@pytest_asyncio.fixture(loop_scope="module")
async def queues(server: Prosody, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(server, tmp_path) as service:
        yield service


def unsubscribe(worker: Peer) -> str:
    return pubsub(f"<unsubscribe node='{NODE}' jid='{worker.jid}'/>")


async def taken(worker: Peer, count: int) -> list[str]:
    """The ids of so many items, in the order of their events."""
    return [(await worker.item()).id for _ in range(count)]


# -- how many, in which order ----------------------------------------------


async def test_nobody_has_more_than_its_queue_requests(queues: Served) -> None:
    """The number is what a worker can do at once; each end makes room for one."""
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
    """Who unsubscribes and subscribes again has its hands as full as before."""
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
    """Whoever of the account comes next has them all; while the holder is there, it."""
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
        assert (again.named, again.to) == (one.named, other.jid)
        await other.nothing()
        await other.done(retract(NODE, one.named))
        assert (await other.item()).id == "2"
        await bob.no_items()


async def events_of(peer: Peer) -> list[Delivered]:
    """The items that have come and were not asked for yet."""
    await peer.synced()
    return [each for xml in peer.received() for each in delivered(xml)]


async def test_first_deliveries_are_in_the_order_of_publishing(queues: Served) -> None:
    """Within a priority; a redelivery goes behind the first deliveries of its own."""
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
    """If another is eligible; alone, it gets it again."""
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
    """So that items are done in parallel, and nobody is forgotten."""
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
    """Never to this one again; while it is alone, the item shows in the stats."""
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
    """The worker helper does so at intervals; what it holds is sent again."""
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
    """Row 9: it finishes what it has."""
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
    """AMQP's *unsettled-state*: who comes back goes on, by whatever resource."""
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
            assert (again.named, again.count) == (one.named, 0)
            await other.done(retract(NODE, again.named))


# -- who is there ----------------------------------------------------------


async def test_after_a_time_out_nothing_comes_until_a_stanza_does(
    queues: Served,
) -> None:
    """A worker that hangs must not burn one item after the other."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, QUICK)
        await bob.subscribe(NODE, 1)
        await alice.publish(NODE, item("1"), item("2"))
        one = await bob.item()
        await bob.told("unlock", "1")
        await alice.configure(NODE, lock_timeout="60")
        assert (await alice.stats(NODE))["available"] == "2"
        await bob.ping()
        assert not bob.received()
        await bob.synced()
        # First deliveries come first: the other one, then this one again.
        assert (await bob.item()).id == "2"
        await bob.done(retract(NODE, "2"))
        again = await bob.item()
        assert (again.id, again.count) == ("1", 1)
        assert again.token != one.token


async def test_an_event_that_bounces_releases_and_suspends(queues: Served) -> None:
    """The client is gone and nobody said so: not its fault, so it does not count."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 5)
        # It never sent presence, so the server tells nobody that it went.
        await bob.cut()
        await alice.publish(NODE, item("1"), item("2"))
        await alice.until_stats(NODE, available="2", acquired="0", subscribers="1")
        for q in (await alice.browse(NODE)).values():
            assert q["delivery-count"] == "0"
        await carol.subscribe(NODE, 5)
        again = [await carol.item(), await carol.item()]
        assert {each.q["first-acquirer"] for each in again} == {"false"}
        await alice.publish(NODE, item("3"))
        assert (await carol.item()).count == 0
        async with peers(queues, "bob/b") as (back,):
            await alice.publish(NODE, item("4"))
            assert (await carol.item()).id == "4"
            await back.nothing()
            # It has been heard now; its subscription was there all the time.
            await alice.publish(NODE, item("5"))
            assert (await back.item()).id == "5"


async def pinged(worker: Peer) -> ET.Element:
    """The probe of the service (XEP-0199)."""
    return await worker.expect(
        lambda xml: (
            local(xml) == "iq"
            and xml.get("type") == "get"
            and xml.get("from") == worker.service
            and xml.find(f"{{{PING}}}ping") is not None
        )
    )


async def answer(worker: Peer, iq: ET.Element, kind: str, content: str = "") -> None:
    """Answer what the service has asked."""
    await worker.send(
        f"<iq type='{kind}' id='{iq.get('id')}' to='{iq.get('from')}'>{content}</iq>"
    )


async def test_after_a_restart_a_lock_is_sent_again_with_its_token(
    queues: Served,
) -> None:
    """Once its holder is heard of: the event before the crash may never have left."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await bob.subscribe(NODE, 2)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await queues.restart()
        await alice.publish(NODE, item("2"))
        await pinged(bob)
        assert not bob.received()
        await bob.synced()
        again = await bob.item()
        assert again == one
        assert (await bob.item()).id == "2"
        await bob.done(retract(NODE, again.named))
        await bob.told("retract", "1")
        await bob.nothing()
        await carol.nothing()


@pytest.mark.parametrize(
    ("kind", "condition", "there"),
    [
        ("result", "", True),
        ("error", "feature-not-implemented", True),
        ("error", "service-unavailable", False),
        ("error", "recipient-unavailable", False),
    ],
)
async def test_after_a_restart_a_probe_tells_who_is_there(
    queues: Served, kind: str, condition: str, there: bool
) -> None:
    """An idle worker sends nothing, and must get work all the same."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 2)
        await queues.restart()
        await alice.publish(NODE, item("1"))
        probe = await pinged(bob)
        error = (
            f"<error type='cancel'><{condition} "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        )
        await answer(bob, probe, kind, error if condition else "")
        if there:
            assert (await bob.item()).id == "1"
            return
        await bob.ping()
        stats = await alice.stats(NODE)
        assert (stats["available"], stats["subscribers"]) == ("1", "1")


async def test_nobody_answers_the_probe_of_another(queues: Served) -> None:
    """An id that was guessed must not make somebody else present."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE)
        await bob.subscribe(NODE, 2)
        await queues.restart()
        await alice.publish(NODE, item("1"))
        await answer(mallory, await pinged(bob), "result")
        await mallory.synced()
        assert (await alice.stats(NODE))["available"] == "1"


async def test_live_locks_keep_their_deadlines_over_a_restart(queues: Served) -> None:
    """One that ended while the service was away has timed out, and counts."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, QUICK)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await bob.item()
        await queues.stop()
        await asyncio.sleep(0.11)  # the deadline, with nobody to await it
        await queues.start()
        await bob.told("unlock", "1")
        await alice.configure(NODE, lock_timeout="60")
        await carol.subscribe(NODE)
        assert (await carol.item()).count == 1


async def test_without_a_connection_nobody_gets_anything(queues: Served) -> None:
    """What cannot be sent must not be locked: it would time out, and count."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        config = {"queue#lock_timeout": "0.3", "queue#backoff": "0"}
        await alice.create(NODE, config | {"queue#max_deliveries": "2"})
        await carol.subscribe(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        # It is with carol, who was the first; its lock ends while nobody can be told.
        await carol.item()
        await queues.cut()
        await asyncio.sleep(0.7)  # two time-outs, which nobody is told of
        await queues.come_back()
        stats = await alice.stats(NODE)
        assert (stats["dead"], stats["acquired"], stats["available"]) == ("0", "0", "1")
        assert (await alice.browse(NODE))["1"]["delivery-count"] == "1"
        await bob.synced()
        assert (await bob.item()).count == 1


async def test_after_a_lost_connection_locks_are_sent_again(queues: Served) -> None:
    """The event may have been lost with it."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await queues.cut()
        await queues.come_back()
        probe = await pinged(bob)
        await answer(bob, probe, "result")
        assert (await bob.item()).named == one.named
        await bob.done(retract(NODE, one.named))


# -- acknowledged events ---------------------------------------------------


async def introduced(worker: Peer) -> None:
    """Say that this one speaks `urn:xmpp:qos`, when it is asked."""
    iq = await worker.expect(lambda xml: xml.find(f"{{{DISCO_INFO}}}query") is not None)
    features = f"<feature var='{DISCO_INFO}'/><feature var='{QOS}'/>"
    identity = "<identity category='client' type='bot'/>"
    query = f"<query xmlns='{DISCO_INFO}'>{identity}{features}</query>"
    await answer(worker, iq, "result", query)


async def acknowledgeable(worker: Peer) -> tuple[ET.Element, Delivered]:
    """The next event at level acknowledged: its iq, and the item in it."""
    iq = await worker.expect(lambda xml: xml.find(f"{{{QOS}}}acknowledged") is not None)
    assert (iq.get("type"), iq.get("from")) == ("set", worker.service)
    (message,) = iq[0]
    assert local(message) == "message"
    (element,) = message.iter(f"{{{EVENT}}}item")
    prefix = f"{{{EXTENSIONS}}}"
    q = {k.removeprefix(prefix): v for k, v in element.attrib.items() if prefix in k}
    assert "".join(element.itertext()) == PRIVATE
    return iq, Delivered(iq.get("to", ""), element.get("id", ""), PRIVATE, q)


async def test_acknowledged_events_are_answered_by_an_empty_result(
    queues: Served,
) -> None:
    """For a worker on a bad line; the token passes through unharmed."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"), item("2"))
        await introduced(bob)
        for wanted in ("1", "2"):
            iq, one = await acknowledgeable(bob)
            assert (one.to, one.id, one.count) == (bob.jid, wanted, 0)
            await answer(bob, iq, "result")
            await bob.done(retract(NODE, one.named))
            await bob.told("retract", wanted)


async def test_an_acknowledged_event_that_is_refused_is_a_bounce(
    queues: Served,
) -> None:
    """It certainly did not arrive: released, and the next one gets it."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        await introduced(bob)
        iq, _ = await acknowledgeable(bob)
        await carol.subscribe(NODE)
        error = (
            "<error type='cancel'><not-acceptable "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        )
        await answer(bob, iq, "error", error)
        assert (await carol.item()).count == 0


async def test_an_acknowledged_event_ends_with_its_lock(queues: Served) -> None:
    """A worker that never answers: the lock times out as any other."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, {"queue#lock_timeout": "0.5", "queue#backoff": "0"})
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        await introduced(bob)
        _, one = await acknowledgeable(bob)
        await bob.told("unlock", "1")
        await alice.configure(NODE, lock_timeout="60")
        await carol.subscribe(NODE)
        again = await carol.item()
        assert (again.count, again.token == one.token) == (1, False)


async def test_an_acknowledged_event_for_one_who_knows_no_qos_is_a_bounce(
    queues: Served,
) -> None:
    """RFC 6120 §8.4: it answers service-unavailable; so does a server for who is gone."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER | {"queue#lock_timeout": "2"})
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        iq, _ = await acknowledgeable(bob)
        await carol.subscribe(NODE)
        error = (
            "<error type='cancel'><service-unavailable "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        )
        await answer(bob, iq, "error", error)
        assert (await carol.item()).count == 0


async def test_the_options_of_a_subscription_can_be_read_and_changed(
    queues: Served,
) -> None:
    """XEP-0060 §6.3: what is not given stays, and what is locked too."""
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
