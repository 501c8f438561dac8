"""docs/design/queue.md §4 on the wire: presence, and repeated notifications."""

import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from passing_time import let_pass
from qos.core.backoff import Backoff
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.link_time import LOOK_S
from queue_roles import query
from queue_service import (
    EAGER,
    EVENT,
    EXTENSIONS,
    LOCK_S,
    LOCKING,
    PRIVATE,
    TOO_MANY,
    Delivered,
    Peer,
    Served,
    item,
    peers,
    retract,
    subscribe,
)
from raw_client import local

NODE = "orders"
QOS = "urn:xmpp:qos"
PING = "urn:xmpp:ping"

ACKNOWLEDGED = {"queue#events": "acknowledged"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


# -- who is there ----------------------------------------------------------


async def test_after_a_time_out_nothing_comes_until_a_stanza_does(
    queues: Served,
) -> None:
    """A worker that hangs must not use up one item after the other."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE, 1)
        await alice.publish(NODE, item("1"), item("2"))
        one = await bob.item()
        await let_pass(LOCK_S)
        await bob.told("unlock", "1")
        assert (await alice.stats(NODE))["available"] == "2"
        await bob.ping()
        assert not bob.received()
        await bob.synced()
        # First deliveries come first: the other item, then this one again.
        assert (await bob.item()).id == "2"
        await bob.done(retract(NODE, "2"))
        again = await bob.item()
        assert (again.id, again.count) == ("1", 1)
        assert again.token != one.token


async def test_an_event_that_bounces_releases_and_suspends(queues: Served) -> None:
    """The client is gone without notice.

    The item is not to blame, so it does not count.
    """
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 5)
        # It never sent presence, so the server does not announce that it left.
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
            # It has been heard of now; its subscription was there all the time.
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
    """Answer the probe."""
    await worker.send(
        f"<iq type='{kind}' id='{iq.get('id')}' to='{iq.get('from')}'>{content}</iq>"
    )


async def test_after_a_restart_a_lock_is_sent_again_with_its_token(
    queues: Served,
) -> None:
    """When its holder is heard of.

    The event before the crash may never have been sent.
    """
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
        # It is dormant, which proves nothing: any stanza of it ends that.
        assert (stats["available"], stats["subscribers"]) == ("1", "0")
        await bob.synced()
        assert (await bob.item()).id == "1"
        assert (await alice.stats(NODE))["subscribers"] == "1"


async def test_nobody_answers_the_probe_of_another(queues: Served) -> None:
    """A guessed id must not make another client look present."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE)
        await bob.subscribe(NODE, 2)
        await queues.restart()
        await alice.publish(NODE, item("1"))
        await answer(mallory, await pinged(bob), "result")
        await mallory.synced()
        assert (await alice.stats(NODE))["available"] == "1"


async def test_locks_wait_while_the_service_is_down_and_end_after_that(
    queues: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could be heard. What was left of a lock is left, and its end counts."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await bob.item()
        await queues.stop()
        # The deadline passes while the service is away.
        later = time.time() + 2 * LOCK_S
        monkeypatch.setattr("time.time", lambda: later)
        await queues.start()
        await carol.subscribe(NODE)
        assert (await alice.stats(NODE))["acquired"] == "1"
        for seconds in (LOCK_S, LOOK_S):
            await let_pass(seconds)
            await alice.synced()
        await bob.told("unlock", "1")
        assert (await carol.item()).count == 1


async def test_without_a_connection_nobody_gets_or_loses_anything(
    queues: Served,
) -> None:
    """Who has an item could not extend its lock: what is left of that counts afterwards."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, LOCKING | {"queue#max_deliveries": "2"})
        await carol.subscribe(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        # Carol, who was the first, has the item, and says nothing more.
        await carol.item()
        await queues.cut()
        await let_pass(2 * LOCK_S)
        file = Path(queues.store.removeprefix("sqlite:"))
        asked = "SELECT state, delivery_count FROM item"
        assert query(file, asked) == [("acquired", 0)]
        await queues.come_back()
        await bob.synced()
        await let_pass(LOCK_S)
        assert (await bob.item()).count == 1
        assert (await alice.stats(NODE))["dead"] == "0"


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
    """For a worker on a bad link; the token arrives unchanged."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"), item("2"))
        for wanted in ("1", "2"):
            iq, one = await acknowledgeable(bob)
            assert (one.to, one.id, one.count) == (bob.jid, wanted, 0)
            await answer(bob, iq, "result")
            await bob.done(retract(NODE, one.named))
            await bob.told("retract", wanted)


async def test_an_unanswered_event_is_repeated_until_it_is_answered(
    queues: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a bad link the first repeat may be lost as well."""
    monkeypatch.setattr(
        "xep_0254.event_sender._REPEAT", Backoff(first_s=0.05, max_s=0.05)
    )
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        iq, one = await acknowledgeable(bob)
        for _ in range(3):
            again, same = await acknowledgeable(bob)
            assert (again.get("id"), same) == (iq.get("id"), one)
        await answer(bob, iq, "result")


async def test_an_acknowledged_event_that_is_refused_is_a_bounce(
    queues: Served,
) -> None:
    """It certainly did not arrive.

    The item is released, and the next worker gets it.
    """
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        iq, _ = await acknowledgeable(bob)
        await carol.subscribe(NODE)
        error = (
            "<error type='cancel'><not-acceptable "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        )
        await answer(bob, iq, "error", error)
        assert (await carol.item()).count == 0


async def test_an_acknowledged_event_ends_with_its_lock(queues: Served) -> None:
    """If a worker never answers, its lock times out like any other."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        _, one = await acknowledgeable(bob)
        await let_pass(LOCK_S)
        await bob.told("unlock", "1")
        await carol.subscribe(NODE)
        again = await carol.item()
        assert (again.count, again.token == one.token) == (1, False)


async def test_an_acknowledged_event_for_one_who_is_gone_is_a_bounce(
    queues: Served,
) -> None:
    """RFC 6120 §10.5: its server answers service-unavailable, and nothing was done."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, LOCKING)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await bob.cut()
        await alice.publish(NODE, item("1"))
        await carol.subscribe(NODE)
        assert (await carol.item()).count == 0


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_acknowledged_event_is_not_repeated_after_its_lock_has_ended(
    queues: Served, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has forgotten the token would do an accepted item once more."""
    monkeypatch.setattr(
        "xep_0254.event_sender._REPEAT", Backoff(first_s=0.05, max_s=0.05)
    )
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 1, options=ACKNOWLEDGED)
        await alice.publish(NODE, item("1"))
        # Without an answer it is repeated. The answer is lost, but the item was done.
        _, one = await acknowledgeable(bob)
        _, again = await acknowledgeable(bob)
        assert again == one
        await bob.done(retract(NODE, one.named))
        bob.forget()
        if restarted:
            await queues.restart()
        await bob.synced()
        # Time for some repeats.
        more = f"xmlns:q='{EXTENSIONS}' q:delay='60'"
        await alice.publish(NODE, item("2", more=more))
        for _ in range(3):
            await let_pass(20)
            await bob.synced()
        iq, two = await acknowledgeable(bob)
        assert two.id == "2"
        await answer(bob, iq, "result")


async def test_workers_that_left_while_the_service_was_away_lock_nobody_out(
    queues: Served,
) -> None:
    """With a new resource each time, as workers have.

    Such subscriptions never count.
    """
    queues.bounds = QueueBounds(subscriptions_per_account=2)
    await queues.restart()
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for life in range(5):
            names = (f"bob/{life}-1", f"bob/{life}-2")
            async with peers(queues, *names) as (one, two):
                await one.subscribe(NODE)
                await two.subscribe(NODE)
                full = subscribe(NODE, one.account, {"pubsub#queue_requests": "1"})
                assert await one.refused(full) == TOO_MANY
                await queues.stop()
            await queues.start()
            await alice.until_stats(NODE, subscribers="0")
        async with peers(queues, "bob/b") as (bob,):
            await bob.subscribe(NODE)
            await alice.publish(NODE, item("1"))
            assert (await bob.item()).id == "1"
            assert (await alice.stats(NODE))["subscribers"] == "1"
