"""Peers that leave between any two steps, and come back unchanged or changed."""

import asyncio
from pathlib import Path

import pytest
from slixmpp import Message

from devices import (
    NEVER_S,
    NO_RETRY,
    Matches,
    answers,
    device,
    error,
    make_device,
    numbered,
    outcome_of,
    request,
)
from passing_time import let_pass
from qos import Handover
from qos.core.message.model import IncomingState, Level, OutgoingState
from qos.errors import InDoubt
from qos.testing.prosody import Prosody
from raw_client import local
from text_peer import TextReceiver, TextSender
from waiting import limit, until

BOB = "bob@localhost"
BOB_B = "bob@localhost/b"
QOS_LEVELS = (Level.ACKNOWLEDGED, Level.ASSURED)
DURABLE = ("sqlite", "files")


#: Of a message that must have ended; tests let the time pass.
DEADLINE_S = 500.0

#: How long a message is held for its release; likewise. It is less than a retry takes.
HOLD_S = 500.0


def is_there(jid: str) -> Matches:
    """Match the presence of this full JID."""
    return lambda xml: local(xml) == "presence" and xml.get("from") == jid


def store_url(kind: str, folder: Path, name: str) -> str:
    """A store that survives its device."""
    return f"{kind}:{folder / name}"


@pytest.mark.parametrize("to", [BOB_B, BOB])
@pytest.mark.parametrize("level", QOS_LEVELS)
async def test_a_message_waits_for_a_peer_that_is_away(
    prosody: Prosody, to: str, level: Level
) -> None:
    """The server says at once that nobody is there; that is not the end."""
    async with device(prosody, "alice/a", **NO_RETRY) as alice:
        message = alice.message(to, "when you are back")
        delivery = await alice.qos.submit(message, level=level)
        if to == BOB_B:
            # To the question what it supports, and to the message.
            await alice.tap.wait_seen(error("service-unavailable"), 2)
        await alice.ping()
        assert not delivery.ended
        async with device(prosody, "bob/b") as bob:
            if to == BOB_B:
                # Its presence makes a repeat due, spread over the first delay.
                await alice.tap.wait_seen(is_there(BOB_B))
                await let_pass(NEVER_S)
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            assert bob.arrivals.bodies == ["when you are back"]


async def test_a_peer_that_shows_no_presence_is_asked_again_in_time(
    prosody: Prosody,
) -> None:
    """Without a subscription nobody announces its return: only a retry finds out."""
    async with device(prosody, "mallory/m") as mallory:
        delivery = await mallory.qos.submit(mallory.message(BOB_B, "guess who"))
        await mallory.tap.wait_seen(error("service-unavailable"), 3)
        async with device(prosody, "bob/b", trust="anyone", available=False) as bob:
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            assert bob.arrivals.bodies == ["guess who"]


@pytest.mark.parametrize("to", [BOB_B, BOB])
async def test_a_peer_that_comes_and_goes_gets_everything_once(
    prosody: Prosody, tmp_path: Path, to: str
) -> None:
    """In order each time, with all messages in flight; it has its store only."""
    store = store_url("sqlite", tmp_path, "bob.db")
    bodies = numbered(60)
    got: list[str] = []
    async with device(prosody, "alice/a") as alice:
        sending = [await alice.qos.submit(alice.message(to, body)) for body in bodies]
        for part in (10, 25, 40):
            async with device(prosody, "bob/b", store=store) as bob:
                await bob.arrivals.reach(part - len(got))
            got += bob.arrivals.bodies
        async with device(prosody, "bob/b", store=store) as bob:
            for delivery in sending:
                outcome = await outcome_of(delivery)
                assert outcome.status is OutgoingState.DELIVERED
        got += bob.arrivals.bodies
    assert sorted(got) == bodies


@pytest.mark.parametrize("store", DURABLE)
async def test_a_held_message_is_released_where_the_peer_comes_back(
    prosody: Prosody, tmp_path: Path, store: str
) -> None:
    """Between the two steps it restarts under another resource, with its store."""
    url = store_url(store, tmp_path, "bob")
    async with device(prosody, "alice/a") as alice:
        async with device(prosody, "bob/one", store=url) as bob:
            bob.tap.lose(request("deliver"))
            delivery = await alice.qos.submit(alice.message(BOB, "once"))
            await bob.tap.wait_lost()
        async with device(prosody, "bob/two", store=url) as bob:
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            (arrival,) = await bob.arrivals.take(1)
            assert arrival.body == "once"
            assert arrival.info is not None
            assert not arrival.info.redelivered
            assert bob.tap.count(request("assured")) == 0


@pytest.mark.parametrize("store", DURABLE)
async def test_held_messages_survive_a_restart_of_the_receiver(
    prosody: Prosody, tmp_path: Path, store: str
) -> None:
    """`received` was a promise; messages that were never released are not marked."""
    url = store_url(store, tmp_path, "bob")
    bodies = numbered(5)
    async with device(prosody, "alice/a") as alice:
        async with device(prosody, "bob/b", store=url) as bob:
            bob.tap.lose(request("deliver"))
            sent = [await alice.qos.submit(alice.message(BOB_B, b)) for b in bodies]
            await bob.tap.wait_lost(5)
            assert bob.arrivals.bodies == []
        async with device(prosody, "bob/b", store=url) as bob:
            for delivery in sent:
                outcome = await outcome_of(delivery)
                assert outcome.status is OutgoingState.DELIVERED
            assert sorted(bob.arrivals.bodies) == bodies
            assert not any(
                a.info is None or a.info.redelivered for a in bob.arrivals.all
            )
            assert bob.tap.count(request("assured")) == 0


@pytest.mark.parametrize("consumes", [False, True])
async def test_a_held_message_that_cannot_be_read_any_more_is_no_delivery(
    prosody: Prosody,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    consumes: bool,
) -> None:
    """A store that people can read is one that they can damage."""
    url = store_url("files", tmp_path, "bob")
    async with device(prosody, "alice/a", deadline_s=DEADLINE_S) as alice:
        async with device(prosody, "bob/b", store=url) as bob:
            bob.tap.lose(request("deliver"))
            delivery = await alice.qos.submit(alice.message(BOB_B, "on"))
            await bob.tap.wait_lost()
        (held,) = (tmp_path / "bob" / "incoming").iterdir()
        held.write_text(held.read_text().replace("</message>", "</massage>"))
        async with make_device(prosody, "bob/b", store=url) as bob:
            got: list[str] = []
            if consumes:

                @bob.qos.consumer()
                async def take(message: Message, handover: Handover) -> None:
                    got.append(message["body"])

            await bob.log_in()
            problem = f"{url}: the message {delivery.msg_id!r} of alice@"
            await until(lambda: problem in caplog.text)
            await let_pass(DEADLINE_S)
            assert (await outcome_of(delivery)).status is OutgoingState.IN_DOUBT
            assert (got, bob.arrivals.bodies) == ([], [])

            def states() -> list[IncomingState]:
                return [record.state for record in bob.qos.store.incoming()]

            # The last attempt may be under way when its sender gives up.
            await until(lambda: states() == [IncomingState.HELD])
            assert "Traceback" not in caplog.text


async def test_a_message_whose_hold_is_gone_before_its_release_is_offered_again(
    prosody: Prosody,
) -> None:
    """Certainly not handed over: the very first `deliver` finds an empty store."""
    async with device(prosody, "alice/a", **NO_RETRY) as alice:
        alice.tap.lose(answers("received"))
        async with device(prosody, "bob/b") as bob:
            delivery = await alice.qos.submit(alice.message(BOB_B, "once"))
            await alice.tap.wait_lost()
        async with device(prosody, "bob/b") as bob:
            alice.tap.release()
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            assert bob.arrivals.bodies == ["once"]
            assert bob.tap.count(request("assured")) == 1
            assert bob.tap.count(request("deliver")) == 2


async def test_a_message_that_expired_before_its_release_is_offered_again(
    prosody: Prosody,
) -> None:
    """A hold does not last for ever; its end is an answer, not a loss."""
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b", hold_ttl_s=HOLD_S) as bob,
    ):

        def states() -> list[IncomingState]:
            return [record.state for record in bob.qos.store.incoming()]

        alice.tap.lose(answers("received"))
        delivery = await alice.qos.submit(alice.message(BOB_B, "once"))
        await alice.tap.wait_lost()
        await let_pass(HOLD_S)
        await until(lambda: states() == [IncomingState.EXPIRED])
        alice.tap.release()
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.DELIVERED
        assert bob.arrivals.bodies == ["once"]


async def test_a_store_that_is_lost_after_a_deliver_leaves_doubt_and_no_lie(
    prosody: Prosody,
) -> None:
    """That `deliver` may have released it before the store was lost.

    This is not known.
    """
    async with device(prosody, "alice/a") as alice:
        async with device(prosody, "bob/b") as bob:
            bob.tap.lose(request("deliver"))
            sending = asyncio.create_task(alice.qos.send(BOB_B, "perhaps"))
            await bob.tap.wait_lost()
        async with device(prosody, "bob/b") as bob:
            with pytest.raises(InDoubt) as caught:
                async with limit():
                    await sending
            assert caught.value.condition == "item-not-found"
            assert caught.value.by == BOB_B
            assert bob.arrivals.bodies == []
            assert bob.tap.count(request("assured")) == 0


async def test_another_device_of_the_account_does_not_answer_for_the_first(
    prosody: Prosody, tmp_path: Path
) -> None:
    """It says that it does not hold the message, so the search goes on."""
    url = store_url("sqlite", tmp_path, "bob.db")
    async with device(prosody, "alice/a") as alice:
        async with device(prosody, "bob/first", store=url) as first:
            first.tap.lose(request("deliver"))
            delivery = await alice.qos.submit(alice.message(BOB, "once"))
            await first.tap.wait_lost()
        async with device(prosody, "bob/other") as other:
            await alice.tap.wait_seen(error("item-not-found"))
            assert not delivery.ended
            async with device(prosody, "bob/first", store=url) as first:
                outcome = await outcome_of(delivery)
                assert outcome.status is OutgoingState.DELIVERED
                assert first.arrivals.bodies == ["once"]
            assert other.arrivals.bodies == []
            assert other.tap.count(request("assured")) == 0


async def test_another_device_of_the_account_brings_no_false_delivered(
    prosody: Prosody, tmp_path: Path
) -> None:
    """The first device never comes back, and in the end there is doubt."""
    url = store_url("sqlite", tmp_path, "bob.db")
    async with device(prosody, "alice/a", deadline_s=DEADLINE_S) as alice:
        async with device(prosody, "bob/first", store=url) as first:
            first.tap.lose(request("deliver"))
            delivery = await alice.qos.submit(alice.message(BOB, "perhaps"))
            await first.tap.wait_lost()
        async with device(prosody, "bob/other") as other:
            await alice.tap.wait_seen(error("item-not-found"))
            await let_pass(DEADLINE_S)
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.IN_DOUBT
            assert other.arrivals.bodies == []


async def test_an_empty_result_of_a_device_that_is_not_ours_is_no_delivery(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Another device under the same full JID acknowledges messages that it never had."""
    url = store_url("sqlite", tmp_path, "bob.db")
    async with device(prosody, "alice/a") as alice:
        async with device(prosody, "bob/b", store=url) as bob:
            bob.tap.lose(request("deliver"))
            delivery = await alice.qos.submit(alice.message(BOB_B, "once"))
            await bob.tap.wait_lost()
        async with TextReceiver(prosody, "bob/b") as stranger:
            await stranger.wait_asked("deliver")
            await alice.tap.wait_seen(answers(""), 1)
            await alice.ping()
            assert not delivery.ended
            assert stranger.taken == []
        async with device(prosody, "bob/b", store=url) as bob:
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            assert bob.arrivals.bodies == ["once"]


# -- the sender ------------------------------------------------------------


@pytest.mark.parametrize("store", DURABLE)
async def test_the_outbox_survives_a_restart_of_the_sender(
    prosody: Prosody, tmp_path: Path, store: str
) -> None:
    """Accepted messages are sent, whether they were in flight or queued."""
    url = store_url(store, tmp_path, "alice")
    bodies = numbered(40)
    async with device(prosody, "alice/a", store=url) as alice:
        sent = [await alice.qos.submit(alice.message(BOB_B, body)) for body in bodies]
        await alice.tap.wait_seen(error("service-unavailable"), 2)
        assert not any(delivery.ended for delivery in sent)
    async with make_device(prosody, "alice/a", store=url) as alice:
        assert len(alice.qos.outstanding()) == len(bodies)
        again = [alice.qos.delivery(delivery.msg_id) for delivery in sent]
        async with device(prosody, "bob/b") as bob:
            await alice.log_in()
            for delivery in again:
                outcome = await outcome_of(delivery)
                assert outcome.status is OutgoingState.DELIVERED
                assert outcome.to == BOB_B
            assert sorted(bob.arrivals.bodies) == bodies
            assert len(alice.qos.outstanding()) == 0


@pytest.mark.parametrize("step", ["received", "hold"])
async def test_a_sender_that_comes_back_under_another_resource_is_the_same(
    prosody: Prosody, tmp_path: Path, step: str
) -> None:
    """Its mark shows that.

    The message is held once, and either resource releases it.
    """
    url = store_url("sqlite", tmp_path, "alice.db")
    async with device(prosody, "bob/b") as bob:
        async with device(prosody, "alice/one", store=url) as alice:
            alice.tap.lose(answers(step))
            delivery = await alice.qos.submit(alice.message(BOB_B, "once"))
            await alice.tap.wait_lost()
        async with make_device(prosody, "alice/two", store=url) as alice:
            delivery = alice.qos.delivery(delivery.msg_id)
            await alice.log_in()
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
            assert bob.arrivals.bodies == ["once"]
            (record,) = bob.qos.store.incoming()
            assert record.state is IncomingState.DONE
            (arrival,) = bob.arrivals.all
            assert arrival.message["from"] == "alice@localhost/one"


async def test_a_peer_that_is_not_ours_cannot_be_asked_from_another_resource(
    prosody: Prosody, tmp_path: Path
) -> None:
    """It would acknowledge a `deliver` for a message that it never had.

    So, in doubt.
    """
    url = store_url("sqlite", tmp_path, "alice.db")
    async with TextReceiver(prosody, "bob/b") as bob:
        bob.silent = {"deliver"}
        async with device(prosody, "alice/one", store=url) as alice:
            delivery = await alice.qos.submit(alice.message(BOB_B, "perhaps"))
            await bob.wait_asked("deliver")
        bob.silent = set()
        # All that she sent has come before this.
        await bob.raw.send(f"<message to='{bob.raw.jid}'/>")
        await bob.wait_plain(1)
        seen = len(bob.asked)
        async with make_device(prosody, "alice/two", store=url) as alice:
            delivery = alice.qos.delivery(delivery.msg_id)
            await alice.log_in()
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.IN_DOUBT
            await alice.ping()
        assert len(bob.asked) == seen
        assert bob.taken == []


async def test_a_peer_that_is_not_ours_is_asked_again_from_the_same_resource(
    prosody: Prosody, tmp_path: Path
) -> None:
    """In the proto-XEP the full JID is the sender, so a restart must keep it."""
    url = store_url("sqlite", tmp_path, "alice.db")
    async with TextReceiver(prosody, "bob/b") as bob:
        bob.silent = {"deliver"}
        # The server chooses the resource; the store remembers it.
        async with device(prosody, "alice", store=url) as alice:
            own = alice.jid
            delivery = await alice.qos.submit(alice.message(BOB_B, "once"))
            await bob.wait_asked("deliver")
        bob.silent = set()
        async with make_device(prosody, "alice", store=url) as alice:
            delivery = alice.qos.delivery(delivery.msg_id)
            await alice.log_in()
            assert alice.jid == own
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
        assert bob.taken == ["once"]
        kinds = [kind for kind, _, _ in bob.asked]
        assert "assured" not in kinds[kinds.index("deliver") :]


# -- peers that are not ours -----------------------------------------------


async def test_a_receiver_that_is_not_ours_gets_every_level_once(
    prosody: Prosody,
) -> None:
    """It has no marks, and its `received` has no namespace of its own."""
    bodies = numbered(20)
    async with (
        TextReceiver(prosody, "bob/b") as bob,
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "carol/c", **NO_RETRY) as carol,
    ):
        for level in QOS_LEVELS:
            outcome = await alice.qos.send(BOB, level.value, level=level)
            assert outcome.status is OutgoingState.DELIVERED
        await asyncio.gather(*(alice.qos.send(BOB_B, body) for body in bodies))
        await asyncio.gather(*(carol.qos.send(BOB_B, body) for body in bodies))
        assert bob.taken[:2] == [level.value for level in QOS_LEVELS]
        assert sorted(bob.taken[2:]) == sorted(bodies * 2)


async def test_a_sender_that_is_not_ours_may_count_from_one_after_each_start(
    prosody: Prosody,
) -> None:
    """The same iq ids, msgIds and content after a restart are new messages."""
    async with device(prosody, "bob/b") as bob:
        for boot in range(3):
            async with TextSender(prosody, "alice/sensor") as sensor:
                await sensor.assured(BOB_B, "on")
                await sensor.acknowledged(BOB_B, "off")
                await sensor.assured(BOB_B, "on")
            assert bob.arrivals.bodies == ["on", "off", "on"] * (boot + 1)
        async with (
            TextSender(prosody, "alice/one") as one,
            TextSender(prosody, "alice/two") as two,
        ):
            ids = await one.offer(BOB_B, "of one"), await two.offer(BOB_B, "of two")
            assert ids == ("1", "1")
            await two.deliver(BOB_B, "1")
            await one.deliver(BOB_B, "1")
            assert bob.arrivals.bodies[9:] == ["of two", "of one"]


async def test_a_repeated_step_of_a_sender_that_is_not_ours_acts_once(
    prosody: Prosody,
) -> None:
    """Its retries have new iq ids; the msgId counts."""
    async with (
        device(prosody, "bob/b") as bob,
        TextSender(prosody, "alice/sensor") as sensor,
    ):
        offer = (
            "<assured xmlns='urn:xmpp:qos' msgId='7'><message xmlns='jabber:client'>"
            "<body>once</body></message></assured>"
        )
        for _ in range(3):
            (received,) = await sensor.ask(BOB_B, offer)
            assert received.get("msgId") == "7"
        for _ in range(3):
            await sensor.deliver(BOB_B, "7")
        assert bob.arrivals.bodies == ["once"]
