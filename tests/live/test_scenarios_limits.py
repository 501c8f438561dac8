"""Limits of a message: withdrawal, time, room, and trust."""

import asyncio
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from clients import log_in
from devices import (
    NEVER_S,
    NO_RETRY,
    answers,
    device,
    error,
    make_device,
    numbered,
    outcome_of,
    request,
)
from passing_time import let_pass
from qos.core.message.model import IncomingState, Level, OutgoingState
from qos.errors import CannotWithdraw, NotDelivered, OutboxFull, UnknownMessage
from qos.testing.prosody import Prosody
from text_peer import TextReceiver
from waiting import limit, until

BOB = "bob@localhost"
BOB_B = "bob@localhost/b"
QOS_LEVELS = (Level.ACKNOWLEDGED, Level.ASSURED)

#: Of a message that must have ended; tests let the time pass.
DEADLINE_S = 500.0


# -- withdraw --------------------------------------------------------------


async def test_a_message_to_a_peer_that_is_away_can_be_withdrawn(
    prosody: Prosody,
) -> None:
    """For example "lamp on" and "no, don't".

    An absent lamp must never get the first.
    """
    async with device(prosody, "alice/a") as alice:
        waits = [await alice.qos.submit(alice.message(BOB_B, b)) for b in numbered(8)]
        await alice.tap.wait_seen(error("service-unavailable"), 2)
        # The first are in flight; the last waits for room in the window.
        for delivery in (waits[0], waits[7]):
            await delivery.withdraw()
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.NOT_DELIVERED
            with pytest.raises(UnknownMessage):
                await delivery.withdraw()
        async with device(prosody, "bob/b") as bob:
            for delivery in waits[1:7]:
                await outcome_of(delivery)
            assert sorted(bob.arrivals.bodies) == numbered(8)[1:7]


async def test_a_held_message_can_be_withdrawn_before_it_is_released(
    prosody: Prosody,
) -> None:
    """The peer holds it, and will not act on it without a `deliver`."""
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b") as bob,
    ):
        alice.tap.lose(answers("received"))
        delivery = await alice.qos.submit(alice.message(BOB_B, "never mind"))
        await alice.tap.wait_lost()
        await delivery.withdraw()
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.NOT_DELIVERED
        alice.tap.release()
        await alice.qos.send(BOB_B, "go on")
        assert bob.arrivals.bodies == ["go on"]
        held = [r for r in bob.qos.store.incoming() if r.state is IncomingState.HELD]
        assert len(held) == 1


async def test_a_message_that_may_have_been_handed_over_cannot_be_withdrawn(
    prosody: Prosody,
) -> None:
    """It goes on, so that its outcome becomes known."""
    async with (
        device(prosody, "alice/a") as alice,
        device(prosody, "bob/b") as bob,
    ):
        bob.tap.lose(request("deliver"))
        delivery = await alice.qos.submit(alice.message(BOB_B, "too late"))
        await bob.tap.wait_lost()
        with pytest.raises(CannotWithdraw):
            await delivery.withdraw()
        bob.tap.lose(None)
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.DELIVERED
        assert bob.arrivals.bodies == ["too late"]


# -- deadline --------------------------------------------------------------


@pytest.mark.parametrize("to", [BOB_B, BOB])
async def test_a_deadline_that_passes_while_the_peer_is_away_ends_it_for_certain(
    prosody: Prosody, to: str
) -> None:
    """A command that comes too late is worse than none."""
    async with device(prosody, "alice/a") as alice:
        with pytest.raises(NotDelivered) as caught:
            async with limit():
                await alice.qos.send(to, "late", deadline_s=0.4)
        assert caught.value.to == to
        async with device(prosody, "bob/b") as bob:
            async with limit():
                await alice.qos.send(to, "in time", deadline_s=DEADLINE_S)
            assert bob.arrivals.bodies == ["in time"]


async def test_a_deadline_is_for_messages_that_wait_for_room_as_well(
    prosody: Prosody,
) -> None:
    """Most of a long outbox has not been tried even once."""
    async with device(prosody, "alice/a") as alice:
        message = alice.message(BOB_B, "late")
        waits = [await alice.qos.submit(message, deadline_s=0.3) for _ in range(50)]
        for delivery in waits:
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.NOT_DELIVERED
        assert len(alice.qos.outstanding()) == 0


@pytest.mark.parametrize(
    ("level", "lost"),
    [(Level.ASSURED, "deliver"), (Level.ACKNOWLEDGED, "acknowledged")],
)
async def test_a_deadline_that_passes_after_a_release_leaves_doubt(
    prosody: Prosody, level: Level, lost: str
) -> None:
    """The peer did not answer, but may have acted."""
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b") as bob,
    ):
        bob.tap.lose(request(lost))
        message = alice.message(BOB_B, "perhaps")
        delivery = await alice.qos.submit(message, level=level, deadline_s=DEADLINE_S)
        await bob.tap.wait_lost()
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.IN_DOUBT


# -- room ------------------------------------------------------------------


async def test_the_window_grows_with_what_is_delivered_and_halves_when_refused(
    prosody: Prosody,
) -> None:
    """Five is what the strictest receivers accept; others accept more."""
    bodies = numbered(80)
    async with (
        TextReceiver(prosody, "bob/b") as bob,
        device(prosody, "alice/a", **NO_RETRY) as alice,
    ):

        def ended(xml: ET.Element) -> bool:
            return answers("")(xml) and xml.get("from") == BOB_B

        async def offered() -> int:
            """How many offers are there that bob has not answered."""
            # What alice sends now comes after everything before.
            plain = bob.plain
            await alice.qos.send(BOB_B, "now", level=Level.UNACKNOWLEDGED)
            await bob.wait_plain(plain + 1)
            return len({iq.get("id") for iq in bob.unanswered})

        bob.silent = {"assured"}
        deliveries = [await alice.qos.submit(alice.message(BOB_B, b)) for b in bodies]
        await bob.wait_offered(5)
        assert await offered() == 5
        await bob.answer()
        await bob.wait_offered(15)
        assert await offered() == 10
        await bob.answer()
        await bob.wait_offered(35)
        assert await offered() == 20
        # One finds no room; the window in flight stays as large as it is.
        bob.refusing = 1
        await bob.answer()
        await alice.tap.wait_seen(ended, 34)
        await bob.wait_offered(45)
        assert 10 <= await offered() <= 12
        bob.silent = set()
        await bob.answer()
        # The one that was refused is due again after its delay.
        await until(lambda: sum(not each.ended for each in deliveries) == 1)
        await let_pass(NEVER_S)
        for delivery in deliveries:
            outcome = await outcome_of(delivery)
            assert outcome.status is OutgoingState.DELIVERED
        assert sorted(bob.taken) == bodies


@pytest.mark.parametrize(
    "quota",
    [
        {"quota_messages": 3},
        {"quota_bytes": 300},
        {"quota_total_messages": 3},
        {"quota_total_bytes": 300},
    ],
    ids=lambda quota: next(iter(quota)),
)
async def test_what_a_quota_refuses_arrives_in_the_end(
    prosody: Prosody, quota: dict[str, Any]
) -> None:
    """resource-constraint means "later": the sender slows down and repeats."""
    bodies = numbered(30)
    async with (
        device(prosody, "alice/a") as alice,
        device(prosody, "bob/b", **quota) as bob,
    ):
        await asyncio.gather(*(alice.qos.send(BOB_B, body) for body in bodies))
        assert sorted(bob.arrivals.bodies) == bodies
        assert alice.tap.count(error("resource-constraint")) > 0


async def test_a_sender_that_fills_its_quota_takes_no_room_of_others(
    prosody: Prosody,
) -> None:
    """By bare JID: another resource of it gets no room either."""
    async with (
        device(prosody, "alice/one") as one,
        device(prosody, "alice/two") as two,
        device(prosody, "carol/c") as carol,
        device(prosody, "bob/b", quota_messages=2, trust="anyone") as bob,
    ):
        bob.tap.lose(request("deliver"))
        fill = [await one.qos.submit(one.message(BOB_B, body)) for body in ("1", "2")]
        await bob.tap.wait_lost(2)
        late = await two.qos.submit(two.message(BOB_B, "3"))
        await two.tap.wait_seen(error("resource-constraint"), 2)
        bob.tap.lose(lambda xml: request("deliver")(xml) and xml.get("from") == one.jid)
        await carol.qos.send(BOB_B, "of carol")
        assert bob.arrivals.bodies == ["of carol"]
        assert not late.ended
        bob.tap.lose(None)
        for delivery in (*fill, late):
            await outcome_of(delivery)
        assert sorted(bob.arrivals.bodies) == ["1", "2", "3", "of carol"]


async def test_an_outbox_that_is_full_says_so(prosody: Prosody) -> None:
    """It has room again when a message has left it."""
    async with device(prosody, "alice/a", outbox_messages_max=3) as alice:
        message = alice.message(BOB_B, "on")
        waits = [await alice.qos.submit(message) for _ in range(3)]
        with pytest.raises(OutboxFull, match="3 messages"):
            await alice.qos.submit(message)
        await waits[0].withdraw()
        await alice.qos.submit(message)
        async with device(prosody, "bob/b") as bob:
            await bob.arrivals.reach(3)


# -- trust -----------------------------------------------------------------


async def test_a_stranger_is_refused_and_a_contact_is_not(prosody: Prosody) -> None:
    """Without the user's consent nobody may fill his store."""
    async with (
        device(prosody, "bob/b") as bob,
        device(prosody, "alice/a") as alice,
        device(prosody, "mallory/m", **NO_RETRY) as mallory,
    ):
        with pytest.raises(NotDelivered) as caught:
            await mallory.qos.send(BOB_B, "buy!")
        assert caught.value.condition == "not-allowed"
        assert caught.value.by == BOB_B
        assert caught.value.attempts == 1
        await alice.qos.send(BOB_B, "hello")
        assert bob.arrivals.bodies == ["hello"]
        assert [r.source for r in bob.qos.store.incoming()] == [alice.jid]


async def test_level_acknowledged_can_be_opened_to_anyone(prosody: Prosody) -> None:
    """The proto-XEP has no rule there, and such messages are not held."""
    async with (
        device(prosody, "bob/b", accepts="anyone") as bob,
        device(prosody, "carol/c") as carol,
        device(prosody, "mallory/m", **NO_RETRY) as mallory,
    ):
        await mallory.qos.send(BOB_B, "hello", level=Level.ACKNOWLEDGED)
        with pytest.raises(NotDelivered) as caught:
            await mallory.qos.send(carol.jid, "hello", level=Level.ACKNOWLEDGED)
        assert caught.value.condition == "not-allowed"
        assert bob.arrivals.bodies == ["hello"]
        assert carol.arrivals.bodies == []


async def test_an_allow_list_and_a_function_decide_as_they_are_told(
    prosody: Prosody,
) -> None:
    """They replace the roster; they are not added to it."""
    asked: list[str] = []

    async def decide(jid: str) -> bool:
        asked.append(jid)
        await asyncio.sleep(0)
        return jid.startswith("mallory@")

    async with (
        device(prosody, "bob/b", trust="mallory@localhost/m,carol@localhost") as bob,
        device(prosody, "carol/c", trust=decide) as carol,
        device(prosody, "mallory/m", **NO_RETRY) as mallory,
        device(prosody, "alice/a", **NO_RETRY) as alice,
    ):
        for friend in (bob, carol):
            await mallory.qos.send(friend.jid, "hello")
            with pytest.raises(NotDelivered, match="not-allowed"):
                await alice.qos.send(friend.jid, "hello?")
            assert friend.arrivals.bodies == ["hello"]
        assert asked == [mallory.jid, alice.jid]


async def test_a_contact_is_not_refused_before_the_roster_is_known(
    prosody: Prosody,
) -> None:
    """Just after the start the roster is not known yet: the answer waits for it."""
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        make_device(prosody, "bob/b") as bob,
    ):
        bob.tap.lose(lambda xml: xml.find("{jabber:iq:roster}query") is not None)
        await log_in(bob.xmpp, prosody)
        bob.client.send_presence()
        await bob.tap.wait_lost()
        sending = [
            asyncio.create_task(alice.qos.send(BOB_B, level.value, level=level))
            for level in QOS_LEVELS
        ]
        await bob.tap.wait_seen(request("assured"))
        await bob.tap.wait_seen(request("acknowledged"))
        await bob.ping()
        assert bob.arrivals.bodies == []
        bob.tap.release()
        await asyncio.gather(*sending)
        assert sorted(bob.arrivals.bodies) == ["acknowledged", "assured"]
        assert alice.tap.count(error("not-allowed")) == 0
