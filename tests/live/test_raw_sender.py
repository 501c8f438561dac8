"""docs/design/protocol.md §2 and §4: a raw receiver, and the plugin sends.

The receiver is not ours: it answers by hand, as scripted, correctly or not.
"""

import asyncio
import base64
import contextlib
import hashlib
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from devices import (
    NEVER_S,
    NO_RETRY,
    Device,
    component,
    device,
    make_device,
    outcome_of,
    patient,
)
from passing_time import let_pass
from qos import Delivery, Outcome
from qos.core.message.model import Level, OutgoingState
from qos.errors import CannotWithdraw, MessageTooLarge, UnknownMessage
from qos.testing.prosody import Prosody
from raw_client import RawClient, RawComponent
from test_raw_peers import (
    ALL_QOS,
    CLIENT,
    DISCO,
    HOLD,
    IEEE,
    MARKS,
    NEURON,
    QOS,
    SENDER,
    answer,
    asks,
    bodies,
    discoverable,
    raw,
    say_done,
    say_error,
    say_received,
    synced,
    wiretap,
)
from waiting import limit, until

DELIVERED = OutgoingState.DELIVERED
NOT_DELIVERED = OutgoingState.NOT_DELIVERED
IN_DOUBT = OutgoingState.IN_DOUBT

HEX = re.compile(r"[0-9a-f]{32}")

#: Short, so that tests need not wait for a retry. A retry may come at any time.
FIRST_S = 0.1

#: Less than this goes by while a test does its steps.
SLACK_S = 200.0

#: Of a message; tests that see its end let the time pass.
DEADLINE_S = 500.0


@contextlib.asynccontextmanager
async def peers(
    server: Prosody,
    features: Collection[str] = (QOS,),
    *,
    name: str = "bob/b",
    sender: str = "alice/a",
    **options: Any,
) -> AsyncIterator[tuple[Device, RawClient]]:
    """Alice with the plugin, and bob by hand, who advertises these features."""
    settings = {"retry_first_s": FIRST_S, "retry_max_s": 4 * FIRST_S} | options
    async with (
        raw(server, name) as bob,
        discoverable(bob, features),
        device(server, sender, **settings) as alice,
    ):
        patient(alice)
        yield alice, bob


async def submit(
    alice: Device,
    to: str,
    body: str = "x",
    level: Level = Level.ASSURED,
    **options: Any,
) -> Delivery:
    return await alice.qos.submit(alice.message(to, body), level=level, **options)


async def skip(
    bob: RawClient | RawComponent, matches: Callable[[ET.Element], bool]
) -> int:
    """Drop what has come and matches; returns how many that were."""
    found = bob.received(matches)
    for _ in found:
        await bob.expect(matches)
    return len(found)


async def goes_on(bob: RawClient, delivery: Delivery, *, hold: str = "") -> Outcome:
    """From here on bob does what the proto-XEP says, and the message arrives."""
    await say_received(
        await bob.expect(asks("assured", delivery.msg_id)), bob, hold=hold
    )
    return await released(bob, delivery, hold=hold)


async def released(bob: RawClient, delivery: Delivery, *, hold: str = "") -> Outcome:
    await say_done(await bob.expect(asks("deliver", delivery.msg_id)), bob, hold=hold)
    outcome = await outcome_of(delivery)
    assert outcome.status is DELIVERED
    return outcome


def bounced(jid: str) -> Callable[[ET.Element], bool]:
    """Match the errors that the server returns for this JID."""
    return lambda xml: xml.get("type") == "error" and xml.get("from") == jid


async def met(alice: Device, bob: RawClient, level: Level) -> None:
    """A message has arrived; from now on she knows what bob supports."""
    delivery = await submit(alice, bob.jid, level=level)
    if level is Level.ASSURED:
        await goes_on(bob, delivery)
    else:
        await answer(await bob.expect(asks(level.value)), bob)
        await outcome_of(delivery)


async def almost(alice: Device, seconds: float) -> None:
    """Let all of this time pass but the slack.

    After three quarters of the first delay she asks the server whether it has read the
    request. It has the time to answer.
    """
    for part_s in (0.75 * NEVER_S, seconds - 0.75 * NEVER_S - SLACK_S):
        await let_pass(part_s)
        await alice.ping()


async def held(
    alice: Device, bob: RawClient, *, hold: str = "", **options: Any
) -> tuple[Delivery, ET.Element]:
    """A message for which bob has said `received`, and the first `deliver` for it."""
    delivery = await submit(alice, bob.jid, **options)
    await say_received(await bob.expect(asks("assured")), bob, hold=hold)
    deliver = await bob.expect(asks("deliver"))
    # All repeats of the offer have come before it.
    await skip(bob, asks("assured"))
    return delivery, deliver


# -- what stands on the wire -----------------------------------------------


async def test_the_exchange_is_that_of_the_text_and_marked(prosody: Prosody) -> None:
    """Ids unguessable and new, `to` left out, our store's id as a mark.

    docs/design/protocol.md §2.3 and §2.4.
    """
    payload = "<message xmlns='jabber:client' id='m7'><body>Entered.</body></message>"
    async with wiretap(prosody) as (tapped, tap), raw(prosody, "bob/b") as bob:
        async with (
            discoverable(bob),
            device(tapped, "alice/a", **NO_RETRY) as alice,
        ):
            addressed = payload.replace("id=", f"to='{bob.jid}' id=")
            sending = asyncio.create_task(alice.qos.send(bob.jid, payload=addressed))
            assured = await bob.expect(asks("assured"))
            await say_received(assured, bob)
            deliver = await bob.expect(asks("deliver"))
            await say_done(deliver, bob)
            outcome = await sending
        assert (outcome.status, outcome.attempts) == (DELIVERED, 2)
        (offered,) = tap.requests("assured")
        (release,) = tap.requests("deliver")
    store_id = assured[0].get(SENDER, "")
    assert offered == (
        f"<iq type='set' id='{assured.get('id')}' to='{bob.jid}'>"
        f"<assured xmlns='{QOS}' msgId='{outcome.msg_id}' "
        f"xmlns:q='{MARKS}' q:sender='{store_id}'>{payload}</assured></iq>"
    )
    assert release == (
        f"<iq type='set' id='{deliver.get('id')}' to='{bob.jid}'>"
        f"<deliver xmlns='{QOS}' msgId='{outcome.msg_id}' "
        f"xmlns:q='{MARKS}' q:sender='{store_id}'/></iq>"
    )
    ids = [outcome.msg_id or "", assured.get("id", ""), deliver.get("id", "")]
    assert len(set(ids)) == 3
    assert all(HEX.fullmatch(each) for each in ids)


async def test_ids_are_never_used_twice(prosody: Prosody) -> None:
    """docs/design/protocol.md §2.4: iq id and msgId, never reused by us."""
    async with peers(prosody, window_max=64) as (alice, bob):
        deliveries = [await submit(alice, bob.jid) for _ in range(5)]
        ids = [delivery.msg_id for delivery in deliveries]
        for delivery in deliveries:
            iq = await bob.expect(asks("assured", delivery.msg_id))
            ids.append(iq.get("id", ""))
            await say_received(iq, bob)
            iq = await bob.expect(asks("deliver", delivery.msg_id))
            ids.append(iq.get("id", ""))
            await say_done(iq, bob)
        assert len(set(ids)) == 15


async def test_the_hold_is_echoed_and_the_result_must_carry_it(
    prosody: Prosody,
) -> None:
    """With a hold, the result must carry it; any other is ignored.

    docs/design/protocol.md §4.4.
    """
    async with peers(prosody, [QOS, MARKS]) as (alice, bob):
        hold = "<h'&\">"
        delivery, first = await held(alice, bob, hold=hold)
        assert first[0].get(HOLD) == hold
        await say_done(first, bob)
        second = await bob.expect(asks("deliver"))
        await say_done(second, bob, hold="another")
        third = await bob.expect(asks("deliver"))
        assert first.get("id") == second.get("id") == third.get("id")
        assert not delivery.ended
        await answer(third, bob, f"<hold xmlns='{MARKS}'>&lt;h'&amp;\"&gt;</hold>")
        assert (await outcome_of(delivery)).status is DELIVERED


async def test_all_three_namespaces_are_chosen_in_order_and_kept(
    prosody: Prosody,
) -> None:
    """The first that the peer's disco#info lists, in a configurable order.

    docs/design/protocol.md §2.1.
    """
    async with raw(prosody, "bob/b") as bob:
        for features, order, expected in (
            ([QOS, IEEE, NEURON], ALL_QOS, QOS),
            ([NEURON, IEEE], ALL_QOS, IEEE),
            ([NEURON], ALL_QOS, NEURON),
            ([QOS, IEEE, NEURON], (NEURON, IEEE, QOS), NEURON),
            ([QOS, IEEE], (NEURON, IEEE, QOS), IEEE),
            ([], ALL_QOS, QOS),
            (["urn:xmpp:qos:99"], (NEURON, IEEE, QOS), QOS),
            ([NEURON], (QOS, IEEE), QOS),
        ):
            async with (
                discoverable(bob, features),
                device(prosody, "alice/a", namespaces=order) as alice,
            ):
                patient(alice)
                delivery, deliver = await held(alice, bob)
                assert deliver[0].tag == f"{{{expected}}}deliver"
                await say_done(deliver, bob)
                assert (await outcome_of(delivery)).status is DELIVERED
                delivery = await submit(alice, bob.jid, level=Level.ACKNOWLEDGED)
                iq = await bob.expect(asks("acknowledged"))
                assert iq[0].tag == f"{{{expected}}}acknowledged"
                await answer(iq, bob)
                assert (await outcome_of(delivery)).status is DELIVERED


@pytest.mark.parametrize("refused", [False, True], ids=["silent", "refused"])
async def test_without_a_disco_answer_the_texts_namespace_is_used(
    prosody: Prosody, refused: bool
) -> None:
    """`urn:xmpp:qos` where disco gives no answer, or lists none.

    docs/design/protocol.md §2.1.
    """
    async with (
        raw(prosody, "bob/b") as bob,
        device(
            prosody, "alice/a", namespaces=(NEURON, QOS), retry_first_s=FIRST_S
        ) as alice,
    ):
        delivery = await submit(alice, bob.jid)
        if refused:
            iq = await bob.expect(lambda xml: xml.get("type") == "get")
            await say_error(iq, bob, "service-unavailable", "cancel")
        iq = await bob.expect(asks("assured"))
        assert iq[0].tag == f"{{{QOS}}}assured"
        await say_received(iq, bob)
        await released(bob, delivery)


async def test_a_namespace_may_change_until_the_first_answer_by_qos(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §2.1: a peer that was absent may support another one.

    After its answer it is fixed.
    """
    async with (
        raw(prosody, "bob/b") as bob,
        device(prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S) as alice,
    ):
        async with discoverable(bob, [QOS]):
            delivery = await submit(alice, bob.jid)
            first = await bob.expect(asks("assured"))
            assert first[0].tag == f"{{{QOS}}}assured"
            # The server of a departed peer says so; the peer returns with another
            # namespace.
            await say_error(first, bob, "service-unavailable", "cancel")
        async with discoverable(bob, [IEEE]):
            second = await bob.expect(
                lambda xml: (
                    asks("assured")(xml) and xml[0].tag.startswith(f"{{{IEEE}}}")
                )
            )
            assert second.get("id") == first.get("id")
            assert second[0].get("msgId") == first[0].get("msgId")
            await say_error(second, bob, "resource-constraint", "wait")
        # That was an answer by QoS: from now on only this namespace is used.
        async with discoverable(bob, [QOS, NEURON]):
            await synced(bob, alice.jid)
            await skip(bob, asks())
            third = await bob.expect(asks("assured"))
            assert third[0].tag == f"{{{IEEE}}}assured"
            await say_received(third, bob)
            deliver = await bob.expect(asks("deliver"))
            assert deliver[0].tag == f"{{{IEEE}}}deliver"
            await say_done(deliver, bob)
            assert (await outcome_of(delivery)).status is DELIVERED


async def test_entity_capabilities_save_the_question(prosody: Prosody) -> None:
    """The proto-XEP, Determining Support: XEP-0115 where possible, else XEP-0030."""
    # XEP-0115 §5.1: category/type/lang/name, then the features in order.
    features = sorted([DISCO, NEURON])
    text = "client/pc//<" + "".join(f"{feature}<" for feature in features)
    ver = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()  # noqa: S324
    caps = (
        "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='urn:x' "
        f"ver='{ver}'/>"
    )
    asked = []

    async def serve(bob: RawClient) -> None:
        while True:
            iq = await bob.expect(lambda xml: xml.get("type") == "get", timeout_s=None)
            asked.append(iq[0].get("node"))
            lines = "".join(f"<feature var='{feature}'/>" for feature in features)
            await answer(
                iq,
                bob,
                f"<query xmlns='{DISCO}' node='urn:x#{ver}'>"
                f"<identity category='client' type='pc'/>{lines}</query>",
            )

    async with (
        raw(prosody, "bob/b") as bob,
        device(prosody, "alice/a", **NO_RETRY) as alice,
    ):
        serving = asyncio.create_task(serve(bob))
        try:
            await bob.send_presence(caps)
            await synced(bob, alice.jid)
            assert not asked, "there is no message yet"
            for to in (bob.jid, "bob@localhost"):
                delivery = await submit(alice, to)
                iq = await bob.expect(asks("assured"))
                assert iq[0].tag == f"{{{NEURON}}}assured"
                await say_received(iq, bob)
                await released(bob, delivery)
                # Its next presence says that this is still so.
                await bob.send_presence(f"<show>away</show>{caps}")
                await synced(bob, alice.jid)
            assert asked == [None]
        finally:
            serving.cancel()


async def test_qos_that_comes_later_is_found(prosody: Prosody) -> None:
    """A device may answer disco#info before its plugins are loaded.

    docs/design/protocol.md §4.7.
    """
    async with (
        raw(prosody, "bob/b") as bob,
        device(prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S) as alice,
    ):
        async with discoverable(bob, []):
            await bob.send_presence()
            delivery = await submit(alice, "bob@localhost")
            await alice.tap.wait_seen(
                lambda xml: xml.get("from") == bob.jid and xml.get("type") == "result"
            )
        async with discoverable(bob, [IEEE]):
            iq = await bob.expect(asks("assured"))
            assert iq[0].tag == f"{{{IEEE}}}assured"
            await say_received(iq, bob)
            await released(bob, delivery)


@pytest.mark.parametrize(
    "form",
    [
        "<received msgId='{id}'/>",
        "<received xmlns='urn:xmpp:qos' msgId='{id}'/>",
        "<q:received xmlns:q='urn:ieee:iot:qos:1.0' msgId='{id}'/>",
        "<received xmlns='' msgId='{id}'/>",
        "\n <received msgId='{id}'></received>\n <x xmlns='urn:x'/>",
    ],
)
async def test_received_is_understood_in_whatever_namespace(
    prosody: Prosody, form: str
) -> None:
    """The examples and the schema of the proto-XEP differ.

    docs/design/protocol.md §2.2.
    """
    async with peers(prosody) as (alice, bob):
        delivery = await submit(alice, bob.jid)
        iq = await bob.expect(asks("assured"))
        await answer(iq, bob, form.format(id=delivery.msg_id))
        await released(bob, delivery)


# -- retries ---------------------------------------------------------------


async def test_a_jid_may_be_written_in_capitals(prosody: Prosody) -> None:
    """The answer comes from the JID in its normal form (RFC 7622 §3)."""
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        for to in ("BOB@LOCALHOST/b", "bob@Localhost/b"):
            await goes_on(bob, await submit(alice, to))
        await bob.send_presence()
        await goes_on(bob, await submit(alice, "Bob@localhost"))


async def test_a_retry_repeats_id_and_bytes_with_growing_delays(
    prosody: Prosody,
) -> None:
    """The same iq id; exponential backoff, jitter, a cap.

    docs/design/protocol.md §2.4 and §4.5.
    """
    first_s, max_s = NEVER_S, 3 * NEVER_S
    for level, other in (
        (Level.ASSURED, Level.ACKNOWLEDGED),
        (Level.ACKNOWLEDGED, Level.ASSURED),
    ):
        async with (
            wiretap(prosody) as (tapped, tap),
            raw(prosody, "bob/b") as bob,
            discoverable(bob, [QOS, MARKS]),
            device(
                tapped, "alice/a", retry_first_s=first_s, retry_max_s=max_s
            ) as alice,
        ):
            await met(alice, bob, other)
            # Each delay is the longest possible.
            alice.qos._endpoint.jitter = lambda: 1.0
            delivery = await submit(alice, bob.jid, level=level)
            steps = [level.value, *["deliver"] * (level is Level.ASSURED)]
            for step in steps:
                iq = await bob.expect(asks(step))
                for delay_s in (first_s, 2 * first_s, max_s, max_s, max_s):
                    await almost(alice, delay_s)
                    await synced(bob, alice.jid)
                    assert not bob.received(asks())
                    await let_pass(SLACK_S)
                    iq = await bob.expect(asks(step))
                if step == "assured":
                    await say_received(iq, bob, hold="h")
            await (answer(iq, bob) if len(steps) == 1 else say_done(iq, bob, hold="h"))
            assert (await outcome_of(delivery)).attempts == 6 * len(steps)
            for step in steps:
                assert len(tap.requests(step)) == 6
                assert len(set(tap.requests(step))) == 1


async def test_the_delays_differ_and_grow_on_the_whole(prosody: Prosody) -> None:
    """Full jitter spreads many messages; without it they would come in a burst."""
    first_s, count = NEVER_S, 30
    async with peers(
        prosody, retry_first_s=first_s, retry_max_s=1e6, window_max=64
    ) as (alice, bob):
        await met(alice, bob, Level.ASSURED)
        jitter = random.Random(1).random
        alice.qos._endpoint.jitter = jitter
        deliveries = [
            await submit(alice, bob.jid, level=Level.ACKNOWLEDGED) for _ in range(5)
        ]
        offers = [await bob.expect(asks("acknowledged")) for _ in deliveries]
        times = {iq.get("id", ""): [0] for iq in offers}
        for quarter in itertools.count(1):
            await let_pass(first_s / 4)
            await alice.ping()
            await synced(bob, alice.jid)
            for iq in bob.received(asks("acknowledged")):
                times[iq.get("id", "")].append(quarter)
            await skip(bob, asks())
            if sum(map(len, times.values())) >= count:
                break
        gaps = [
            [later - earlier for earlier, later in itertools.pairwise(each)]
            for each in times.values()
        ]
        first = [each[0] for each in times.values()]
        last = [each[-1] for each in times.values()]
        assert len(times) == len(deliveries)
        # They start together, but do not stay so.
        assert max(last) - min(last) > max(first) - min(first)
        # Each first repeat comes as soon as it may, and later ones take longer.
        assert {each[0] for each in gaps} == {4}
        assert all(max(each) > 4 for each in gaps)
        for delivery in deliveries:
            await delivery_withdrawn(delivery)


async def delivery_withdrawn(delivery: Delivery) -> None:
    with contextlib.suppress(CannotWithdraw, UnknownMessage):
        await delivery.withdraw()


async def test_nothing_is_sent_twice_before_its_time(prosody: Prosody) -> None:
    """A peer that takes a while to answer gets no burst of copies.

    docs/design/protocol.md §4.5.
    """
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        deliveries = [await submit(alice, bob.jid) for _ in range(5)]
        offers = [await bob.expect(asks("assured")) for _ in range(5)]
        await let_pass(NEVER_S - SLACK_S)
        await synced(bob, alice.jid)
        assert not bob.received(asks())
        for delivery, iq in zip(deliveries, offers, strict=True):
            await say_received(iq, bob)
            await released(bob, delivery)
        assert not bob.received(asks())


async def test_late_answers_count_and_answers_that_come_twice_do_no_harm(
    prosody: Prosody,
) -> None:
    """The same iq id for each retry, so each of their answers counts.

    docs/design/protocol.md §2.4.
    """
    async with peers(prosody) as (alice, bob):
        delivery = await submit(alice, bob.jid)
        copies = [await bob.expect(asks("assured")) for _ in range(3)]
        for iq in copies:
            await say_received(iq, bob)
        deliver = await bob.expect(asks("deliver"))
        # All repeats of the offer have come before it.
        await skip(bob, asks("assured"))
        for iq in copies:
            await say_received(iq, bob)
            await say_error(iq, bob, "not-allowed", "cancel")
        copies = [deliver, *[await bob.expect(asks("deliver")) for _ in range(2)]]
        assert len({iq.get("id") for iq in copies}) == 1
        assert not delivery.ended
        for iq in copies:
            await say_done(iq, bob)
            await say_error(iq, bob, "item-not-found", "cancel")
        outcome = await outcome_of(delivery)
        assert outcome.status is DELIVERED
        assert len(alice.qos.outstanding()) == 0
        await synced(bob, alice.jid)
        assert not bob.received(asks("assured"))


async def test_what_does_not_answer_the_question_is_ignored_and_asked_again(
    prosody: Prosody,
) -> None:
    """An empty result to `assured`, or another msgId, is ignored and retried.

    docs/design/protocol.md §4.3.
    """
    async with peers(prosody) as (alice, bob):
        delivery = await submit(alice, bob.jid)
        for content in (
            "",
            "<received/>",
            "<received msgId=''/>",
            "<received msgId='other'/>",
            f"<received msgId='{delivery.msg_id.upper()}x'/>",
            f"<hold xmlns='{MARKS}'>h</hold>",
            f"<x xmlns='urn:x'><received msgId='{delivery.msg_id}'/></x>",
        ):
            iq = await bob.expect(asks("assured"))
            await answer(iq, bob, content)
        iq = await bob.expect(asks("assured"))
        assert not bob.received(asks("deliver"))
        await say_received(iq, bob)
        # An answer to the first step does not answer the second.
        deliver = await bob.expect(asks("deliver"))
        await say_received(deliver, bob)
        deliver = await bob.expect(asks("deliver"))
        assert not delivery.ended
        await say_done(deliver, bob)
        assert (await outcome_of(delivery)).status is DELIVERED


async def test_an_answer_counts_only_from_whom_was_asked(prosody: Prosody) -> None:
    """A third party may know the ids; the server sets its sender.

    docs/design/protocol.md §4.3.
    """
    async with (
        peers(prosody) as (alice, bob),
        raw(prosody, "mallory/m") as mallory,
        raw(prosody, "bob/other") as other,
    ):
        delivery = await submit(alice, bob.jid)
        iq = await bob.expect(asks("assured"))
        for liar in (mallory, other):
            forged: dict[str, str] = {"from_": ""}
            msg_id = delivery.msg_id
            await answer(iq, liar, f"<received msgId='{msg_id}'/>", **forged)
            await answer(
                iq,
                liar,
                "<error type='cancel'><not-allowed "
                "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>",
                type="error",
                **forged,
            )
            await liar.ping()
        await synced(bob, alice.jid)
        assert not bob.received(asks("deliver"))
        assert not delivery.ended
        await say_received(iq, bob)
        deliver = await bob.expect(asks("deliver"))
        for liar in (mallory, other):
            await answer(deliver, liar, from_="")
            await liar.ping()
        await synced(bob, alice.jid)
        assert not delivery.ended
        await say_done(deliver, bob)
        assert (await outcome_of(delivery)).status is DELIVERED


async def test_everything_outstanding_is_due_again_after_a_reconnect(
    prosody: Prosody,
) -> None:
    """Spread by jitter, but soon; with the same ids and bytes.

    docs/design/protocol.md §4.9.
    """
    async with (
        wiretap(prosody) as (tapped, tap),
        raw(prosody, "bob/b") as bob,
        discoverable(bob, [QOS, MARKS]),
        device(tapped, "alice/a", **NO_RETRY) as alice,
    ):
        offered = await submit(alice, bob.jid, "offered")
        await bob.expect(asks("assured", offered.msg_id))
        releasing = await submit(alice, bob.jid, "releasing")
        iq = await bob.expect(asks("assured", releasing.msg_id))
        await say_received(iq, bob, hold="h")
        await bob.expect(asks("deliver", releasing.msg_id))
        alice.cut()
        await alice.come_back()
        await bob.expect(asks("assured", offered.msg_id))
        await bob.expect(asks("deliver", releasing.msg_id))
        assert not bob.received(asks("assured", releasing.msg_id))
        assert len(set(tap.requests("deliver"))) == 1
        assert len(set(tap.requests("assured"))) == 2


async def test_nothing_piles_up_while_there_is_no_session(prosody: Prosody) -> None:
    """slixmpp would queue each copy, and send all of them later.

    docs/design/protocol.md §5.3.
    """
    async with (
        wiretap(prosody) as (tapped, tap),
        raw(prosody, "bob/b") as bob,
        discoverable(bob),
        device(tapped, "alice/a", **NO_RETRY) as alice,
    ):
        deliveries = [await submit(alice, bob.jid) for _ in range(5)]
        for _ in deliveries:
            await bob.expect(asks("assured"))
        alice.cut()
        await until(lambda: not alice.xmpp.is_connected())
        before = len(tap.requests("assured"))
        for _ in range(3):
            await let_pass(NEVER_S)  # an attempt of each would have been due
        assert len(tap.requests("assured")) == before
        assert not bob.received(asks())
        await alice.come_back()
        for delivery in deliveries:
            await bob.expect(asks("assured", delivery.msg_id))
        await synced(bob, alice.jid)
        assert len(tap.requests("assured")) - before == len(deliveries)
        for delivery in deliveries:
            await delivery.withdraw()


async def test_who_is_away_gets_it_when_he_comes(prosody: Prosody) -> None:
    """Service-unavailable is how a *server* says that the peer is absent.

    docs/design/protocol.md §4.6.
    """
    async with device(
        prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=NEVER_S
    ) as alice:
        delivery = await submit(alice, "bob@localhost/b")
        await alice.tap.wait_seen(
            lambda xml: xml.get("type") == "error" and len(xml) > 0, 2
        )
        async with raw(prosody, "bob/b") as bob, discoverable(bob):
            # Presence makes it due at once, however long the backoff had become.
            await bob.send_presence()
            await goes_on(bob, delivery)


# -- errors of the first step ----------------------------------------------

#: RFC 6120 §8.3.3, with its types.
ENDS = [
    ("not-allowed", "cancel"),
    ("forbidden", "auth"),
    ("not-authorized", "auth"),
    ("registration-required", "auth"),
    ("subscription-required", "auth"),
    ("bad-request", "modify"),
    ("not-acceptable", "modify"),
    ("jid-malformed", "modify"),
    ("policy-violation", "modify"),
    ("feature-not-implemented", "cancel"),
    ("item-not-found", "cancel"),
    ("conflict", "cancel"),
    ("undefined-condition", "cancel"),
]
PASSES = [
    ("resource-constraint", "wait"),
    ("resource-constraint", "cancel"),
    ("recipient-unavailable", "wait"),
    ("remote-server-timeout", "wait"),
    ("unexpected-request", "wait"),
    ("internal-server-error", "wait"),
    ("undefined-condition", "wait"),
    ("policy-violation", "wait"),
    ("service-unavailable", "cancel"),
    ("recipient-unavailable", "cancel"),
    ("remote-server-not-found", "cancel"),
    ("remote-server-timeout", "cancel"),
    ("gone", "cancel"),
]


async def test_an_error_that_will_not_pass_ends_the_first_step_at_once(
    prosody: Prosody,
) -> None:
    """*not delivered*, with the condition and its sender.

    docs/design/protocol.md §4.6.
    """
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        for level in (Level.ASSURED, Level.ACKNOWLEDGED):
            for condition, kind in ENDS:
                delivery = await submit(alice, bob.jid, level=level)
                iq = await bob.expect(asks(level.value))
                await say_error(iq, bob, condition, kind)
                outcome = await outcome_of(delivery)
                assert outcome.status is NOT_DELIVERED, condition
                assert outcome.condition == condition
                assert (outcome.by, outcome.attempts) == (bob.jid, 1)
        assert len(alice.qos.outstanding()) == 0
        await synced(bob, alice.jid)
        assert not bob.received(asks())


async def test_an_error_that_may_pass_is_retried_in_the_first_step(
    prosody: Prosody,
) -> None:
    """Time-out, any `wait`, and the errors of a server for an absent peer.

    docs/design/protocol.md §4.6.
    """
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        for level in (Level.ASSURED, Level.ACKNOWLEDGED):
            delivery = await submit(alice, bob.jid, level=level)
            texts = set()
            for condition, kind in PASSES:
                iq = await bob.expect(asks(level.value))
                texts.add((iq.get("id"), ET.tostring(iq[0])))
                await say_error(iq, bob, condition, kind)
                await synced(bob, alice.jid)
                await let_pass(NEVER_S)
            iq = await bob.expect(asks(level.value))
            assert len(texts) == 1
            assert not delivery.ended
            if level is Level.ACKNOWLEDGED:
                await answer(iq, bob)
            else:
                await say_received(iq, bob)
                await say_done(await bob.expect(asks("deliver")), bob)
            outcome = await outcome_of(delivery)
            assert outcome.status is DELIVERED
            assert outcome.attempts == len(PASSES) + 1 + (level is Level.ASSURED)


async def test_an_error_is_waited_out_and_not_answered_by_a_burst(
    prosody: Prosody,
) -> None:
    """Retried with backoff: an immediate error does not shorten the delay.

    docs/design/protocol.md §4.5.
    """
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        delivery = await submit(alice, bob.jid)
        for _ in range(3):
            iq = await bob.expect(asks("assured"))
            await say_error(iq, bob, "resource-constraint", "wait")
            await synced(bob, alice.jid)
            await almost(alice, NEVER_S)
            await synced(bob, alice.jid)
            assert not bob.received(asks())
            await let_pass(SLACK_S)
        await bob.expect(asks("assured"))
        await delivery.withdraw()


# -- errors of the second step ---------------------------------------------


@pytest.mark.parametrize("hold", ["", "h"])
async def test_in_the_second_step_every_error_but_bad_request_is_retried(
    prosody: Prosody, hold: str
) -> None:
    """docs/design/protocol.md §4.7: the peer has shown that it can and may.

    Also item-not-found without our hold.
    """
    retried = [each for each in [*ENDS, *PASSES] if each[0] != "bad-request"]
    async with peers(prosody, [QOS, MARKS], **NO_RETRY) as (alice, bob):
        delivery, deliver = await held(alice, bob, hold=hold)
        ids = {deliver.get("id")}
        for condition, kind in retried:
            await say_error(deliver, bob, condition, kind)
            await synced(bob, alice.jid)
            await let_pass(NEVER_S)
            deliver = await bob.expect(asks())
            ids.add(deliver.get("id"))
            assert asks("deliver")(deliver), condition
        if hold:
            await say_error(deliver, bob, "item-not-found", "cancel", hold="other")
            await synced(bob, alice.jid)
            await let_pass(NEVER_S)
            deliver = await bob.expect(asks("deliver"))
            ids.add(deliver.get("id"))
        assert not delivery.ended
        assert len(ids) == 1
        await say_error(deliver, bob, "bad-request", "modify")
        outcome = await outcome_of(delivery)
        assert outcome.status is IN_DOUBT
        assert (outcome.condition, outcome.by) == ("bad-request", bob.jid)


async def test_a_store_that_is_gone_at_the_first_deliver_is_offered_anew(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §4.8.

    It was certainly not handed over: it starts again, with new iq ids for both steps.
    """
    async with peers(prosody, [QOS, MARKS], **NO_RETRY) as (alice, bob):
        delivery = await submit(alice, bob.jid, "the body")
        offer = await bob.expect(asks("assured"))
        await say_received(offer, bob, hold="one")
        deliver = await bob.expect(asks("deliver"))
        await say_error(deliver, bob, "item-not-found", "cancel", hold="one")
        again = await bob.expect(asks("assured"))
        assert again.get("id") not in {offer.get("id"), deliver.get("id")}
        assert again[0].get("msgId") == offer[0].get("msgId") == delivery.msg_id
        assert ET.tostring(again[0]) == ET.tostring(offer[0])
        # A late answer to the first attempt does not answer this one.
        await say_received(offer, bob, hold="one")
        await synced(bob, alice.jid)
        assert not bob.received(asks("deliver"))
        await say_received(again, bob, hold="two")
        release = await bob.expect(asks("deliver"))
        assert release.get("id") not in {deliver.get("id"), again.get("id")}
        assert release[0].get(HOLD) == "two"
        await say_done(release, bob, hold="two")
        assert (await outcome_of(delivery)).status is DELIVERED


async def test_a_store_that_is_gone_later_leaves_it_in_doubt(prosody: Prosody) -> None:
    """An earlier `deliver` may have released it: only *in doubt* is honest.

    docs/design/protocol.md §4.8.
    """
    async with peers(prosody, [QOS, MARKS]) as (alice, bob):
        delivery, _ = await held(alice, bob, hold="h")
        second = await bob.expect(asks("deliver"))
        await say_error(second, bob, "item-not-found", "cancel", hold="h")
        outcome = await outcome_of(delivery)
        assert outcome.status is IN_DOUBT
        assert outcome.condition == "item-not-found"
        await synced(bob, alice.jid)
        assert not bob.received(asks("assured"))


async def test_an_enormous_hold_does_not_end_our_stream(prosody: Prosody) -> None:
    """docs/design/protocol.md §5.9: an echo would exceed the server's limit."""
    async with peers(prosody) as (alice, bob):
        delivery = await submit(alice, bob.jid)
        iq = await bob.expect(asks("assured"))
        huge = "'" * 200_000
        await bob.send(
            f"<iq type='result' id='{iq.get('id')}' to='{alice.jid}'>"
            f"<received msgId='{delivery.msg_id}' xmlns:m='{MARKS}' m:hold=\"{huge}\"/></iq>"
        )
        await synced(bob, alice.jid)
        for _ in range(2):
            await bob.expect(asks())
        await synced(bob, alice.jid)
        assert alice.sessions == 1


# -- acknowledged ----------------------------------------------------------


async def test_acknowledged_is_one_step(prosody: Prosody) -> None:
    """The proto-XEP: an iq and an empty response; no msgId, and no attribute but our mark."""
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        delivery = await submit(alice, bob.jid, "80", level=Level.ACKNOWLEDGED)
        iq = await bob.expect(asks("acknowledged"))
        assert iq[0].attrib == {
            f"{{{MARKS}}}sender": alice.qos._endpoint.store.store_id
        }
        assert list(bodies([iq])) == ["80"]
        await answer(iq, bob)
        outcome = await outcome_of(delivery)
        assert (outcome.status, outcome.attempts) == (DELIVERED, 1)


async def test_acknowledged_without_an_answer_is_in_doubt_at_its_deadline(
    prosody: Prosody,
) -> None:
    """docs/levels.md#levels-and-guarantees.

    It arrives at least once, or the sender learns that it did not or may not have.
    """
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        delivery = await submit(
            alice, bob.jid, level=Level.ACKNOWLEDGED, deadline_s=DEADLINE_S
        )
        await bob.expect(asks("acknowledged"))
        await let_pass(DEADLINE_S)
        assert (await outcome_of(delivery)).status is IN_DOUBT
        # Nobody ever received it: certainly not delivered.
        delivery = await submit(
            alice, "bob@localhost/gone", level=Level.ACKNOWLEDGED, deadline_s=DEADLINE_S
        )
        # To the question what it supports, and to the message.
        await alice.tap.wait_seen(bounced("bob@localhost/gone"), 2)
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(delivery)
        assert outcome.status is NOT_DELIVERED
        assert outcome.condition == "service-unavailable"


async def test_unacknowledged_is_a_plain_message(prosody: Prosody) -> None:
    """The proto-XEP: a normal message stanza; nothing is asked and nothing is known."""
    async with peers(prosody) as (alice, bob):
        delivery = await submit(alice, bob.jid, "hi", level=Level.UNACKNOWLEDGED)
        assert (await outcome_of(delivery)).status is OutgoingState.SENT
        xml = await bob.expect(lambda xml: xml.tag == f"{{{CLIENT}}}message")
        assert xml.findtext(f"{{{CLIENT}}}body") == "hi"
        assert (xml.get("from"), xml.get("to")) == (alice.jid, bob.jid)
        await synced(bob, alice.jid)
        assert not bob.received(asks())


async def test_a_payload_arrives_whole_at_every_level(prosody: Prosody) -> None:
    """Including foreign attributes, which slixmpp's own serialiser drops."""
    payload = (
        "<message xmlns='jabber:client' id='m7' xml:lang='en' type='chat'>"
        "<body>ä &lt;&amp;&gt; ' \" \t\n 😀</body>"
        "<x xmlns='urn:x' xmlns:y='urn:y' y:a='1' xml:lang='de'>t<z/>u</x></message>"
    )
    async with peers(prosody) as (alice, bob):
        for level in Level:
            sending = asyncio.create_task(
                alice.qos.send(bob.jid, payload=payload, level=level)
            )
            if level is Level.UNACKNOWLEDGED:
                got = await bob.expect(lambda xml: xml.tag == f"{{{CLIENT}}}message")
            else:
                iq = await bob.expect(asks(level.value))
                got = iq[0][0]
                if level is Level.ASSURED:
                    await say_received(iq, bob)
                    iq = await bob.expect(asks("deliver"))
                await answer(iq, bob)
            async with limit():
                await sending
            assert got.findtext(f"{{{CLIENT}}}body") == "ä <&> ' \" \t\n 😀"
            x = got.find("{urn:x}x")
            assert x is not None
            assert x.attrib == {
                "{urn:y}a": "1",
                "{http://www.w3.org/XML/1998/namespace}lang": "de",
            }, level
            assert (x.text, x[0].tail) == ("t", "u")


# -- the ends that the application can ask for -----------------------------


async def test_before_the_first_deliver_a_message_can_be_withdrawn(
    prosody: Prosody,
) -> None:
    """Then *not delivered* is certain, although the peer may hold it.

    docs/design/protocol.md §4.2.
    """
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        delivery = await submit(alice, bob.jid)
        iq = await bob.expect(asks("assured"))
        await delivery.withdraw()
        assert (await outcome_of(delivery)).status is NOT_DELIVERED
        await say_received(iq, bob)
        await synced(bob, alice.jid)
        assert not bob.received(asks())


async def test_after_a_deliver_it_cannot_be_withdrawn_and_goes_on(
    prosody: Prosody,
) -> None:
    """Afterwards only *delivered* or *in doubt* can be true.

    docs/design/protocol.md §4.2.
    """
    async with peers(prosody) as (alice, bob):
        delivery, deliver = await held(alice, bob)
        with pytest.raises(CannotWithdraw):
            await delivery.withdraw()
        await say_done(deliver, bob)
        assert (await outcome_of(delivery)).status is DELIVERED
        with pytest.raises(UnknownMessage):
            await delivery.withdraw()


async def test_a_deadline_is_not_delivered_before_the_first_deliver_and_in_doubt_after(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §4.2: nothing else would be true."""
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        offered = await submit(alice, bob.jid, deadline_s=DEADLINE_S)
        await bob.expect(asks("assured"))
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(offered)
        assert outcome.status is NOT_DELIVERED
        assert outcome.attempts == 1
        releasing, _ = await held(alice, bob, deadline_s=DEADLINE_S)
        await let_pass(DEADLINE_S)
        assert (await outcome_of(releasing)).status is IN_DOUBT
        await let_pass(10 * NEVER_S)
        await synced(bob, alice.jid)
        assert not bob.received(asks())


async def test_what_is_over_the_servers_limit_is_refused_before_it_is_accepted(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §5.9: otherwise its retry would end every new connection.

    A smaller one goes through.
    """
    async with peers(prosody, **NO_RETRY) as (alice, bob):
        for size in (10_000_000, 256 * 1024):
            for level in Level:
                with pytest.raises(MessageTooLarge) as caught:
                    await alice.qos.send(bob.jid, "x" * size, level=level)
                assert caught.value.limit == 256 * 1024
                assert caught.value.size > size
        assert len(alice.qos.outstanding()) == 0
        fits = 256 * 1024 - 700
        delivery = await submit(alice, bob.jid, "x" * fits)
        iq = await bob.expect(asks("assured"))
        assert [len(body) for body in bodies([iq])] == [fits]
        await say_received(iq, bob)
        await released(bob, delivery)
        assert alice.sessions == 1


# -- the window ------------------------------------------------------------


async def window_of(alice: Device, bob: RawClient, least: int) -> list[ET.Element]:
    """All messages that alice has in flight, these at least, after time to send more."""
    found = [await bob.expect(asks("assured")) for _ in range(least)]
    await synced(bob, alice.jid)
    await synced(bob, alice.jid)
    more = bob.received(asks("assured"))
    return found + [await bob.expect(asks("assured")) for _ in more]


async def finish(bob: RawClient, offers: Sequence[ET.Element]) -> None:
    for iq in offers:
        await say_received(iq, bob)
    for iq in offers:
        deliver = await bob.expect(asks("deliver", iq[0].get("msgId", "")))
        await say_done(deliver, bob)


async def test_the_window_starts_at_5_doubles_and_is_halved_by_a_refusal(
    prosody: Prosody,
) -> None:
    """Five is a common limit; it doubles until the first resource-constraint.

    docs/design/protocol.md §4.10.
    """
    async with peers(prosody, **NO_RETRY, window_max=256) as (alice, bob):
        deliveries = [await submit(alice, bob.jid) for _ in range(80)]
        offers = await window_of(alice, bob, 5)
        assert len(offers) == 5
        await finish(bob, offers)
        offers = await window_of(alice, bob, 10)
        assert len(offers) == 10
        await finish(bob, offers)
        offers = await window_of(alice, bob, 20)
        assert len(offers) == 20
        # One refusal, together with others of the same window, halves it once.
        for iq in offers[:3]:
            await say_error(iq, bob, "resource-constraint", "wait")
        await finish(bob, offers[3:])
        offers = await window_of(alice, bob, 7)
        in_flight = 3 + len(offers)
        assert 10 <= in_flight <= 12
        # From now on it grows by one for each window delivered.
        await finish(bob, offers)
        later = 3 + len(await window_of(alice, bob, in_flight - 3))
        assert in_flight <= later <= in_flight + 1
        assert sum(delivery.ended for delivery in deliveries) >= 5 + 10 + 17


async def test_the_window_is_per_account_and_capped(prosody: Prosody) -> None:
    """docs/design/protocol.md §4.10: a peer that does not answer delays nobody else."""
    async with (
        peers(prosody, **NO_RETRY, window_max=3) as (
            alice,
            bob,
        ),
        raw(prosody, "carol/c") as carol,
        discoverable(carol),
    ):
        for _ in range(5):
            await submit(alice, bob.jid)
        to_carol = [await submit(alice, carol.jid) for _ in range(5)]
        assert len(await window_of(alice, bob, 3)) == 3
        for delivery in to_carol:
            await goes_on(carol, delivery)


async def test_ordered_messages_are_released_one_by_one_in_order(
    prosody: Prosody,
) -> None:
    """Released in the order of sending; offered when all before are held.

    docs/design/protocol.md §4.11.
    """
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        deliveries = [
            await submit(alice, bob.jid, str(number), ordered=True)
            for number in range(4)
        ]
        for delivery in deliveries:
            offer = await bob.expect(asks("assured", delivery.msg_id))
            await synced(bob, alice.jid)
            assert not bob.received(asks("assured"))
            await say_received(offer, bob)
        for delivery in deliveries:
            deliver = await bob.expect(asks("deliver"))
            assert deliver[0].get("msgId") == delivery.msg_id
            await synced(bob, alice.jid)
            assert not bob.received(asks("deliver"))
            await say_done(deliver, bob)
            assert (await outcome_of(delivery)).status is DELIVERED


async def test_ordered_acknowledged_messages_wait_for_each_other(
    prosody: Prosody,
) -> None:
    """Their first step is the hand-over, so only one may be in flight."""
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        deliveries = [
            await submit(alice, bob.jid, str(number), Level.ACKNOWLEDGED, ordered=True)
            for number in range(3)
        ]
        for number, delivery in enumerate(deliveries):
            iq = await bob.expect(asks("acknowledged"))
            assert list(bodies([iq])) == [str(number)]
            await synced(bob, alice.jid)
            assert not bob.received(asks())
            await answer(iq, bob)
            assert (await outcome_of(delivery)).status is DELIVERED


async def test_an_ordered_message_that_is_refused_lets_the_next_one_go(
    prosody: Prosody,
) -> None:
    """Its end is known, so the next one need not wait."""
    async with peers(prosody, **NO_RETRY) as (
        alice,
        bob,
    ):
        first = await submit(alice, bob.jid, "1", ordered=True)
        second = await submit(alice, bob.jid, "2", ordered=True)
        one = await bob.expect(asks("assured", first.msg_id))
        await say_error(one, bob, "not-allowed", "cancel")
        assert (await outcome_of(first)).status is NOT_DELIVERED
        two = await bob.expect(asks("assured", second.msg_id))
        await say_received(two, bob)
        await released(bob, second)


# -- restarts of the sender ------------------------------------------------


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
async def test_after_a_restart_each_step_is_repeated_by_the_same_bytes(
    prosody: Prosody, tmp_path: Path, scheme: str
) -> None:
    """*offered* repeats `assured`; *releasing* repeats `deliver` and only that.

    docs/design/protocol.md §4.1.
    """
    store = f"{scheme}:{tmp_path / 'alice'}"
    options: dict[str, Any] = {
        "store": store,
        "retry_first_s": FIRST_S,
        "retry_max_s": FIRST_S,
    }
    async with (
        wiretap(prosody) as (tapped, tap),
        raw(prosody, "bob/b") as bob,
        discoverable(bob, [QOS, MARKS]),
    ):
        async with device(tapped, "alice/a", **options) as alice:
            offered = await submit(alice, bob.jid, "offered")
            releasing = await submit(alice, bob.jid, "releasing")
            plain = await submit(alice, bob.jid, "plain", Level.ACKNOWLEDGED)
            await bob.expect(asks("assured", offered.msg_id))
            iq = await bob.expect(asks("assured", releasing.msg_id))
            await say_received(iq, bob, hold="h")
            await bob.expect(asks("deliver", releasing.msg_id))
            await bob.expect(asks("acknowledged"))
        before = len(tap.text)
        # All that she sent has come before the answer.
        await bob.ping()
        await skip(bob, asks())
        async with device(tapped, "alice/a", **options) as alice:
            await bob.expect(asks("assured", offered.msg_id))
            await bob.expect(asks("deliver", releasing.msg_id))
            await bob.expect(asks("acknowledged"))
            for kind, count in (("assured", 2), ("deliver", 1), ("acknowledged", 1)):
                assert len(set(tap.requests(kind))) == count
            after = tap.text[before:]
            assert f"<assured xmlns='{QOS}' msgId='{releasing.msg_id}'" not in after
            done = alice.qos.delivery(releasing.msg_id)
            deliver = await bob.expect(asks("deliver", releasing.msg_id))
            # With more than one `deliver`, a lost store means doubt.
            await say_error(deliver, bob, "item-not-found", "cancel", hold="h")
            assert (await outcome_of(done)).status is IN_DOUBT
            assert len(alice.qos.outstanding()) == 2
            with pytest.raises(CannotWithdraw):
                # A copy of it may have arrived before the restart.
                await alice.qos.delivery(plain.msg_id).withdraw()
            await alice.qos.delivery(offered.msg_id).withdraw()


async def test_the_same_resource_is_asked_for_after_a_restart(
    prosody: Prosody, tmp_path: Path
) -> None:
    """A foreign peer knows the message by our full JID.

    docs/design/protocol.md §4.4.
    """
    store = f"sqlite:{tmp_path / 'alice.db'}"
    async with raw(prosody, "bob/b") as bob, discoverable(bob):
        options: dict[str, Any] = {"store": store, "retry_first_s": FIRST_S}
        async with device(prosody, "alice", **options) as alice:
            jid = alice.jid
            delivery, _ = await held(alice, bob)
        async with device(prosody, "alice", **options) as alice:
            assert alice.jid == jid
            await released(bob, alice.qos.delivery(delivery.msg_id))


@pytest.mark.parametrize("hold", ["", "h"])
async def test_another_resource_leaves_only_what_has_a_hold(
    prosody: Prosody, tmp_path: Path, hold: str
) -> None:
    """Without a hold the result counts only for the full JID that got `received`.

    docs/design/protocol.md §4.4.
    """
    options: dict[str, Any] = {
        "store": f"sqlite:{tmp_path / 'alice.db'}",
        "retry_first_s": FIRST_S,
    }
    async with raw(prosody, "bob/b") as bob, discoverable(bob, [QOS, MARKS]):
        async with device(prosody, "alice/a", **options) as alice:
            delivery, _ = await held(alice, bob, hold=hold)
        again = make_device(prosody, "alice/new", **options)
        async with again:
            waiting = again.qos.delivery(delivery.msg_id)
            await again.log_in()
            if hold:
                await released(bob, waiting, hold=hold)
            else:
                assert (await outcome_of(waiting)).status is IN_DOUBT
                await bob.ping()
                for iq in bob.received(asks()):
                    assert iq.get("from") == "alice@localhost/a"


# -- a bare JID ------------------------------------------------------------


async def test_a_bare_jid_goes_to_the_resource_that_supports_qos(
    prosody: Prosody,
) -> None:
    """Resolved at each attempt, among the available resources.

    docs/design/protocol.md §4.12.
    """
    async with (
        device(prosody, "alice/a", retry_first_s=FIRST_S) as alice,
        raw(prosody, "bob/phone") as phone,
        discoverable(phone, []),
        raw(prosody, "bob/lamp") as lamp,
        discoverable(lamp, [IEEE]),
    ):
        delivery = await submit(alice, "bob@localhost")
        await phone.send_presence("<priority>10</priority>")
        await synced(phone, alice.jid)
        assert not lamp.received(asks())  # it has not sent presence
        await lamp.send_presence("<priority>-1</priority>")
        iq = await lamp.expect(asks("assured"))
        assert iq.get("to") == lamp.jid
        assert iq[0].tag == f"{{{IEEE}}}assured"
        await say_received(iq, lamp)
        outcome = await released(lamp, delivery)
        assert outcome.to == "bob@localhost"
        assert not phone.received(asks())


async def test_an_account_that_nobody_is_at_costs_no_attempt(prosody: Prosody) -> None:
    """There is nobody to ask; the deadline is kept."""
    async with device(prosody, "alice/a", retry_first_s=FIRST_S) as alice:
        delivery = await submit(alice, "bob@localhost", deadline_s=DEADLINE_S)
        # The server has said what it supports.
        await alice.tap.wait_seen(lambda xml: xml.get("from") == "bob@localhost")
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(delivery)
        assert (outcome.status, outcome.attempts) == (NOT_DELIVERED, 0)


async def test_a_device_is_followed_to_its_new_resource_in_the_first_step(
    prosody: Prosody,
) -> None:
    """With the same ids; only an answer from the addressed resource counts.

    docs/design/protocol.md §4.3 and §4.12.
    """
    async with device(
        prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S
    ) as alice:
        async with raw(prosody, "bob/one") as one, discoverable(one):
            await one.send_presence()
            delivery = await submit(alice, "bob@localhost")
            first = await one.expect(asks("assured"))
        async with raw(prosody, "bob/two") as two, discoverable(two):
            await two.send_presence()
            iq = await two.expect(asks("assured"))
            assert iq.get("id") == first.get("id")
            await say_received(iq, two)
            await released(two, delivery)


async def test_when_the_preferred_resource_goes_the_next_one_is_asked(
    prosody: Prosody,
) -> None:
    """RFC 6121 §4.5: after its unavailable presence nobody is there."""
    async with (
        device(prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S) as alice,
        raw(prosody, "bob/spare") as spare,
        discoverable(spare),
    ):
        async with raw(prosody, "bob/first") as first, discoverable(first):
            await first.send_presence("<priority>5</priority>")
            delivery = await submit(alice, "bob@localhost")
            asked = await first.expect(asks("assured"))
            await spare.send_presence("<priority>0</priority>")
            await synced(spare, alice.jid)
            await first.expect(asks("assured"))
            assert not spare.received(asks())
        iq = await spare.expect(asks("assured"))
        assert iq.get("id") == asked.get("id")
        await say_received(iq, spare)
        await released(spare, delivery)


async def test_in_the_second_step_without_a_hold_only_the_same_resource_is_asked(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §4.12.

    Another one would acknowledge, by the proto-XEP, a message that it never had.
    """
    async with device(
        prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S
    ) as alice:
        async with raw(prosody, "bob/one") as one, discoverable(one):
            await one.send_presence()
            delivery = await submit(alice, "bob@localhost")
            await say_received(await one.expect(asks("assured")), one)
            await one.expect(asks("deliver"))
        async with raw(prosody, "bob/two") as two, discoverable(two, [QOS, MARKS]):
            await two.send_presence()
            await synced(two, alice.jid)
            async with raw(prosody, "bob/one") as one, discoverable(one):
                await one.send_presence()
                await released(one, delivery)
            assert not two.received(asks())


async def test_in_the_second_step_with_a_hold_another_of_ours_is_asked(
    prosody: Prosody,
) -> None:
    """One with the marks; its "not mine" means that the search goes on.

    docs/design/protocol.md §4.8 and §4.12.
    """
    async with device(
        prosody, "alice/a", retry_first_s=FIRST_S, retry_max_s=FIRST_S
    ) as alice:
        async with raw(prosody, "bob/one") as one, discoverable(one, [QOS, MARKS]):
            await one.send_presence()
            delivery = await submit(alice, "bob@localhost")
            await say_received(await one.expect(asks("assured")), one, hold="h")
            first = await one.expect(asks("deliver"))
        async with (
            raw(prosody, "bob/foreign") as foreign,
            discoverable(foreign, [QOS]),
            raw(prosody, "bob/two") as two,
            discoverable(two, [QOS, MARKS]),
        ):
            await foreign.send_presence("<priority>50</priority>")
            await two.send_presence()
            for _ in range(3):
                iq = await two.expect(asks("deliver"))
                assert iq.get("id") == first.get("id")
                assert iq[0].get(HOLD) == "h"
                await say_error(iq, two, "item-not-found", "cancel", hold="h")
            assert not delivery.ended
            # Its empty result says nothing: by the proto-XEP it acknowledges anything.
            await say_done(await two.expect(asks("deliver")), two)
            await say_done(await two.expect(asks("deliver")), two, hold="h")
            assert (await outcome_of(delivery)).status is DELIVERED
            assert not foreign.received(asks())


async def test_an_entity_without_presence_is_asked_for_itself(
    prosody: Prosody,
) -> None:
    """A component has no visible resources."""
    ((jid, secret),) = prosody.components.items()
    async with (
        RawComponent(jid, secret, port=prosody.component_port) as lamps,
        discoverable(lamps, [NEURON]),
        device(prosody, "alice/a", **NO_RETRY) as alice,
    ):
        for to in (f"one@{jid}", jid, f"two@{jid}/x"):
            delivery = await submit(alice, to)
            iq = await lamps.expect(asks("assured"))
            assert iq.get("to") == to
            assert iq[0].tag == f"{{{NEURON}}}assured"
            await say_received(iq, lamps)
            iq = await lamps.expect(asks("deliver"))
            await say_done(iq, lamps)
            assert (await outcome_of(delivery)).status is DELIVERED


async def test_a_component_sends_as_each_of_its_addresses(prosody: Prosody) -> None:
    """Answers go to the address that asked; both steps come from the same address."""
    async with (
        raw(prosody, "bob/b") as bob,
        discoverable(bob, [QOS, MARKS]),
        component(
            prosody, "comp.localhost", retry_first_s=FIRST_S, retry_max_s=FIRST_S
        ) as lamps,
    ):
        for sender, hold in (
            ("comp.localhost", ""),
            ("one@comp.localhost", "h"),
            ("two@comp.localhost/x", ""),
        ):
            sent = lamps.message(bob.jid, "on")
            sent["from"] = sender
            delivery = await lamps.qos.submit(sent)
            offers = [await bob.expect(asks("assured")) for _ in range(2)]
            assert {iq.get("from") for iq in offers} == {sender}
            assert {iq.get("id") for iq in offers} == {offers[0].get("id")}
            assert list(bodies(offers)) == ["on", "on"]
            assert not {"to", "from"} & set(offers[0][0][0].attrib)
            await say_received(offers[0], bob, hold=hold)
            release = await bob.expect(asks("deliver"))
            assert release.get("from") == sender
            await say_done(release, bob, hold=hold)
            assert (await outcome_of(delivery)).status is DELIVERED
            # All that it sent has come before the answer.
            await synced(bob, "comp.localhost")
            await skip(bob, asks())


async def test_the_own_server_may_answer_for_the_peer_by_an_error(
    prosody: Prosody,
) -> None:
    """An error counts from our own server as well, a result never.

    docs/design/protocol.md §4.3.
    """
    async with device(prosody, "alice/a", **NO_RETRY) as alice:
        for to, conditions in (
            ("nobody@localhost/x", {"service-unavailable"}),
            # Of a server without s2s, and of one that does not find the other.
            ("x@nowhere.invalid/y", {"not-allowed", "remote-server-not-found"}),
        ):
            delivery = await submit(alice, to, deadline_s=DEADLINE_S)
            # To the question what it supports, and to the message.
            await alice.tap.wait_seen(bounced(to), 2)
            await let_pass(DEADLINE_S)
            outcome = await outcome_of(delivery)
            assert outcome.status is NOT_DELIVERED
            assert outcome.condition in conditions
        await until(lambda: len(alice.qos.outstanding()) == 0)
