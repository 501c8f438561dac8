"""Batches between two of our endpoints, and with a raw peer that accepts them
(BATCH.md).
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp.stanza import Iq
from slixmpp.xmlstream.stanzabase import StanzaBase

from devices import (
    NO_RETRY,
    Device,
    child,
    component,
    counters_agree,
    device,
    numbered,
    outcome_of,
    patient,
    settle,
)
from qos import Delivery
from qos.core.message.model import Level, OutgoingState
from qos.testing import Link
from qos.testing.clients import friends, logged_in
from qos.testing.prosody import Prosody
from raw_batches import (
    BATCH,
    FEATURES,
    all_well,
    alone,
    batch,
    content,
    elements,
    error,
    is_batch,
    next_batch,
    serve,
    well,
)
from raw_client import RawClient
from test_raw_peers import (
    MARKS,
    QOS,
    SENDER,
    answer,
    asks,
    bodies,
    discoverable,
    parsed,
    raw,
    say_done,
    say_error,
    say_received,
    wiretap,
)
from test_raw_sender import peers, submit
from test_scenarios_streams import each_once, send_all
from waiting import limit
from xep_qos import XEP_QOS

DELIVERED = OutgoingState.DELIVERED


def kinds(end: Device) -> Counter[str]:
    """How many iqs with each child have come."""
    return Counter(child(xml) for xml in end.tap.seen if xml.tag.endswith("}iq"))


async def released(bob: RawClient, deliveries: list[Delivery]) -> None:
    """From here on bob answers correctly in any form, and everything arrives."""
    serving = asyncio.create_task(serve(bob, seen=[]))
    try:
        for delivery in deliveries:
            assert (await outcome_of(delivery)).status is DELIVERED
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def each_alone(bob: RawClient, kind: str, deliveries: list[Delivery]) -> None:
    """Bob gets this request for each message alone, and answers every one he gets."""
    waiting = {delivery.msg_id for delivery in deliveries}
    while waiting:
        iq = await bob.expect(asks(kind))
        waiting.discard(iq[0].get("msgId"))
        await answer(iq, bob, content(iq[0]))


@contextlib.asynccontextmanager
async def gathered(
    server: Prosody, count: int = 3, **options: Any
) -> AsyncIterator[tuple[Device, RawClient, list[Delivery], ET.Element]]:
    """Alice sends this many at once to a raw bob who accepts batches.

    Returns the first batch.
    """
    async with peers(server, FEATURES, **options) as (alice, bob):
        submits = (submit(alice, bob.jid, body) for body in numbered(count))
        deliveries = await asyncio.gather(*submits)
        yield alice, bob, list(deliveries), await next_batch(bob)


# -- two of ours -----------------------------------------------------------


@pytest.mark.parametrize("smacks", [False, True], ids=["plain", "XEP-0198"])
async def test_two_of_ours_need_far_fewer_than_four_stanzas_a_message(
    prosody: Prosody, smacks: bool
) -> None:
    """Their purpose: a server's cost is per stanza."""
    names = numbered(600)
    async with (
        device(prosody, "alice/a", smacks=smacks, **NO_RETRY) as alice,
        device(prosody, "bob/b", smacks=smacks, **NO_RETRY) as bob,
    ):
        await send_all(alice, bob.jid, names)
        each_once(bob, names)
        requests, answers = kinds(bob), kinds(alice)
        assert requests["batch"] > 0
        stanzas = sum(
            seen[kind]
            for seen in (requests, answers)
            for kind in ("batch", "assured", "deliver", "received", "hold")
        )
        assert stanzas < 0.5 * len(names)
        if smacks:
            # A batch is one stanza for XEP-0198.
            await settle(alice, bob)
            for end in (alice, bob):
                await counters_agree(end)


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
async def test_what_is_sent_alone_has_the_form_of_the_text(
    prosody: Prosody, level: Level
) -> None:
    """There are no batches of one, and no waiting for a second request."""
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b", **NO_RETRY) as bob,
    ):
        for body in numbered(3):
            await alice.qos.send(bob.jid, body, level=level)
        assert kinds(bob)["batch"] == kinds(alice)["batch"] == 0
        assert kinds(bob)[level.value] == 3


async def test_level_acknowledged_goes_in_batches_too(prosody: Prosody) -> None:
    """It has no msgId; the ids in the batch distinguish the answers."""
    names = numbered(100)
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b", **NO_RETRY) as bob,
    ):
        sends = (
            alice.qos.send(bob.jid, name, level=Level.ACKNOWLEDGED) for name in names
        )
        outcomes = await asyncio.gather(*sends)
        assert {outcome.status for outcome in outcomes} == {DELIVERED}
        each_once(bob, names)
        assert kinds(bob)["batch"] > 0
        # The journals of both ends use the same id for a message.
        infos = [arrival.info for arrival in bob.arrivals.all]
        assert {info.msg_id for info in infos if info} == {
            outcome.msg_id for outcome in outcomes
        }


async def test_an_option_switches_it_off_at_either_end(prosody: Prosody) -> None:
    """The feature is not advertised, so the other end needs no option."""
    names = numbered(30)
    for sends, receives in ((1, 32), (32, 1)):
        async with (
            device(prosody, "alice/a", batch_max=sends, **NO_RETRY) as alice,
            device(prosody, "bob/b", batch_max=receives, **NO_RETRY) as bob,
        ):
            await send_all(alice, bob.jid, names)
            assert kinds(bob)["batch"] == 0
            assert kinds(bob)["assured"] == len(names)


async def test_an_option_bounds_how_many_go_together(prosody: Prosody) -> None:
    """For a peer behind a server with a small limit, for example."""
    names = numbered(60)
    async with (
        device(prosody, "alice/a", batch_max=3, **NO_RETRY) as alice,
        device(prosody, "bob/b", **NO_RETRY) as bob,
    ):
        await send_all(alice, bob.jid, names)
        sizes = [len(xml[0]) for xml in bob.tap.seen if is_batch(xml)]
        assert max(sizes) == 3
        assert min(sizes) >= 2


async def test_long_messages_go_in_batches_that_no_server_refuses(
    prosody: Prosody,
) -> None:
    """A stanza over the server's limit would close the stream at each attempt."""
    names = [f"{number}" + "é<&" * 10_000 for number in range(12)]
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b", **NO_RETRY) as bob,
    ):
        await send_all(alice, bob.jid, names)
        each_once(bob, names)
        assert (alice.sessions, bob.sessions) == (1, 1)


@pytest.mark.parametrize("sender", [False, True], ids=["receives", "sends"])
async def test_a_component_is_an_end_like_any(prosody: Prosody, sender: bool) -> None:
    """It has many addresses: requests from each, and to each, must not be mixed."""
    names = numbered(60)
    async with (
        component(prosody, "comp.localhost", trust="anyone", **NO_RETRY) as gateway,
        device(prosody, "bob/b", trust="anyone", **NO_RETRY) as bob,
    ):
        sends = []
        for name, number in zip(names, itertools.cycle(range(3)), strict=False):
            own = f"d{number}@comp.localhost/x"
            message = gateway.message(bob.jid, name)
            message["from"] = own
            if not sender:
                message = bob.message(own, name)
            sends.append(message)
        end, other = (gateway, bob) if sender else (bob, gateway)
        deliveries = await asyncio.gather(*map(end.qos.submit, sends))
        for delivery in deliveries:
            assert (await outcome_of(delivery)).status is DELIVERED
        each_once(other, names)
        batches = [xml for xml in other.tap.seen if is_batch(xml)]
        assert {xml.get("from" if sender else "to") for xml in batches} == {
            f"d{number}@comp.localhost/x" for number in range(3)
        }


async def test_a_filter_of_the_application_sees_a_batch(prosody: Prosody) -> None:
    """As it sees every other outgoing stanza."""
    seen: list[str] = []

    def look(stanza: StanzaBase) -> StanzaBase:
        if isinstance(stanza, Iq):
            seen.append(child(stanza.xml))
        return stanza

    names = numbered(20)
    async with (
        device(prosody, "alice/a", **NO_RETRY) as alice,
        device(prosody, "bob/b", **NO_RETRY) as bob,
    ):
        alice.xmpp.add_filter("out", look)
        await send_all(alice, bob.jid, names)
        each_once(bob, names)
        assert seen.count("batch") == kinds(bob)["batch"] > 0


@pytest.mark.looptime
async def test_a_bad_link_loses_whole_batches_and_no_message() -> None:
    """A lost, doubled or late batch is as many lost, doubled or late requests."""
    names = numbered(150)
    options = {"retry_first_s": 0.3, "retry_max_s": 1.0}
    plugins = {"xep_qos": {**options, "quota_messages": 1_000}}
    came: Counter[str] = Counter()
    batches = Counter[str]()

    def look(stanza: StanzaBase) -> StanzaBase:
        batches[child(stanza.xml)] += stanza.name == "iq"
        return stanza

    async with friends("alice", "bob") as server:
        async with (
            logged_in(server, "alice/a", plugins) as alice,
            logged_in(server, "bob/b", plugins) as bob,
        ):
            alice.add_filter("out", look)
            bob.add_event_handler("message", lambda msg: came.update([msg["body"]]))
            await XEP_QOS.of(bob).roster_known()
            # Discovery is done before the link becomes bad.
            await XEP_QOS.of(alice).send(bob.boundjid.full, "first")
            server.link = link = Link("batches", loss=0.1, duplicate=0.1)
            sends = (XEP_QOS.of(alice).send(bob.boundjid.full, each) for each in names)
            async with limit():
                outcomes = await asyncio.gather(*sends)
            server.link = None
        assert {outcome.status for outcome in outcomes} == {DELIVERED}
        assert came == Counter(["first", *names])
        assert batches["batch"] > 0
        assert link.counts.lost > 0
        assert link.counts.duplicated > 0


async def test_a_batch_is_lost_with_its_connection_and_no_message_is(
    prosody: Prosody,
) -> None:
    """Gathered requests are dropped; outstanding ones are repeated."""
    names = numbered(60)
    async with (
        device(prosody, "alice/a") as alice,
        device(prosody, "bob/b") as bob,
    ):
        patient(alice)
        alice.keep_connected()
        bob.tap.lose(is_batch)
        sending = asyncio.create_task(send_all(alice, bob.jid, names))
        await bob.tap.wait_lost()
        alice.cut()
        bob.tap.lose(None)
        await alice.come_back()
        async with limit():
            await sending
        each_once(bob, names)


# -- a raw peer that is sent batches ---------------------------------------


async def test_a_batch_holds_the_requests_of_the_text_and_their_ids(
    prosody: Prosody,
) -> None:
    """A repeat has the same bytes as alone, with the same id."""
    async with (
        wiretap(prosody) as (tapped, tap),
        raw(prosody, "bob/b") as bob,
        discoverable(bob, FEATURES),
    ):
        async with device(tapped, "alice/a", retry_first_s=0.3) as alice:
            patient(alice)
            submits = (submit(alice, bob.jid, body) for body in ("one", "two"))
            deliveries = await asyncio.gather(*submits)
            first = await next_batch(bob)
            repeats = [await bob.expect(alone(iq_id)) for iq_id in elements(first)]
            for repeat in repeats:
                await say_received(repeat, bob, hold="h")
            await released(bob, list(deliveries))
        (sent,) = tap.requests("batch")[:1]
        # Each has been repeated once or more, by the same bytes.
        singles = sorted(set(tap.requests("assured")))
    assert set(elements(first)) == {repeat.get("id") for repeat in repeats}
    mark = parsed(singles[0])[0].get(SENDER)
    content = ""
    for iq_id, element in elements(first).items():
        (single,) = (each for each in singles if f"id='{iq_id}'" in each)
        payload = single[single.index("<message") : single.index("</assured>")]
        msg_id = element.get("msgId")
        assert f"msgId='{msg_id}'" in single
        content += (
            f"<assured xmlns='{QOS}' id='{iq_id}' msgId='{msg_id}'>{payload}</assured>"
        )
    assert sent == (
        f"<iq type='set' id='{first.get('id')}' to='{bob.jid}'>"
        f"<batch xmlns='{BATCH}' sender='{mark}'>{content}</batch></iq>"
    )
    assert sorted(bodies([parsed(single) for single in singles])) == ["one", "two"]


async def test_both_steps_go_in_batches_and_what_comes_meanwhile_gathers(
    prosody: Prosody,
) -> None:
    """A batch is filled with the requests that wait when an answer comes."""
    async with peers(prosody, FEATURES, **NO_RETRY) as (
        alice,
        bob,
    ):
        deliveries = [await submit(alice, bob.jid, "0")]
        # A single request is sent at once.
        alone = await bob.expect(asks("assured"))
        deliveries += await asyncio.gather(
            *(submit(alice, bob.jid, body) for body in ("1", "2"))
        )
        second = await next_batch(bob)
        # Two are unanswered now: further requests wait for an answer.
        deliveries += [await submit(alice, bob.jid, body) for body in ("3", "4")]
        await answer(second, bob, all_well(second))
        third = await next_batch(bob)
        names = [child.tag.rpartition("}")[2] for child in third[0]]
        assert Counter(names) == {"assured": 2, "deliver": 2}
        await answer(third, bob, all_well(third))
        await answer(alone, bob, content(alone[0]))
        await released(bob, deliveries)


async def test_an_unanswered_batch_does_not_block_what_comes_after(
    prosody: Prosody,
) -> None:
    """Neither for ever, nor as long as a retry takes."""
    async with gathered(prosody, **NO_RETRY) as (
        alice,
        bob,
        _,
        _,
    ):
        for body in ("3", "4"):
            await submit(alice, bob.jid, body)
            await bob.expect(asks("assured"))


async def test_a_peer_that_answers_no_batch_gets_each_message_alone(
    prosody: Prosody,
) -> None:
    """The batch may be the problem: the limit of its server may be lower."""
    async with gathered(prosody) as (_, bob, deliveries, _):
        await each_alone(bob, "assured", deliveries)
        # Some of these may be sent in a batch first, which gets no answer either.
        await each_alone(bob, "deliver", deliveries)
        for delivery in deliveries:
            assert (await outcome_of(delivery)).status is DELIVERED


async def test_a_batch_may_be_answered_in_pieces(prosody: Prosody) -> None:
    """Some answers are in the result, some come later by their own id, and some are
    missing.
    """
    async with gathered(prosody) as (_, bob, deliveries, first):
        (one, two, three), asked = elements(first), elements(first)
        await answer(first, bob, batch(well(asked[one])))
        await bob.send(
            f"<iq type='result' id='{two}' to='{first.get('from')}'>"
            f"{content(asked[two])}</iq>"
        )
        released_alone = {asked[one].get("msgId"), asked[two].get("msgId")}
        while released_alone:
            iq = await bob.expect(asks("deliver"))
            released_alone.discard(iq[0].get("msgId"))
            await say_done(iq, bob, hold=f"h{iq[0].get('msgId')}")
        # The others may have been repeated before they were answered.
        repeat = await bob.expect(alone(three))
        await answer(repeat, bob, content(repeat[0]))
        await released(bob, deliveries)


async def test_each_answer_in_a_batch_is_judged_for_itself(prosody: Prosody) -> None:
    """Refusals by quota or trust concern one message; so does every other answer."""
    async with gathered(prosody, 4) as (_, bob, deliveries, first):
        asked = elements(first)
        one, two, three, four = asked
        await answer(
            first,
            bob,
            batch(
                error(one, "not-allowed", "cancel"),
                error(two, "resource-constraint", "wait"),
                well(asked[three]),
                f"<received id='{four}' msgId='another'/>",
            ),
        )
        outcomes = {delivery.msg_id: delivery for delivery in deliveries}
        refused = await outcome_of(outcomes.pop(asked[one].get("msgId", "")))
        assert refused.status is OutgoingState.NOT_DELIVERED
        assert (refused.condition, refused.by) == ("not-allowed", bob.jid)
        await released(bob, list(outcomes.values()))


NONSENSE = (
    "",
    "<x xmlns='urn:x'/>",
    batch(),
    batch("<result/>", "<x xmlns='urn:x'/>", "<received id='i' msgId='m'/>"),
    batch(batch("<result id='i'/>")),
    batch("<received id='nobody asked' msgId='m'/>", error("", "a", "b")),
)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_what_answers_nothing_is_ignored_and_asked_again(
    prosody: Prosody, nonsense: str
) -> None:
    """As for a single request."""
    async with gathered(prosody) as (alice, bob, deliveries, first):
        await answer(first, bob, nonsense)
        await bob.expect(asks("assured"))
        await released(bob, deliveries)
        assert alice.sessions == 1


async def test_a_batch_is_answered_by_whom_it_was_sent_to_and_once(
    prosody: Prosody,
) -> None:
    """A stranger who guesses the id could otherwise release or refuse messages."""
    async with (
        raw(prosody, "mallory/m") as mallory,
        gathered(prosody, **NO_RETRY) as (
            alice,
            bob,
            deliveries,
            first,
        ),
    ):
        forged = batch(
            *(error(each, "not-allowed", "cancel") for each in elements(first))
        )
        refused = "<error type='cancel'><not-allowed xmlns='urn:x'/></error>"
        for text, kind in (
            (forged, "result"),
            (all_well(first), "result"),
            (refused, "error"),
        ):
            await answer(first, mallory, text, from_="", type=kind)
        await mallory.ping()
        await alice.ping()
        assert len(alice.qos.outstanding()) == len(deliveries)
        assert not bob.received(asks("deliver"))
        await answer(first, bob, all_well(first))
        # The second answer differs, and comes too late.
        await answer(first, bob, forged)
        await released(bob, deliveries)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("bad-request", "modify"),
        ("feature-not-implemented", "cancel"),
        ("service-unavailable", "cancel"),
        ("policy-violation", "modify"),
        ("resource-constraint", "wait"),
    ],
)
async def test_a_batch_that_is_refused_is_repeated_as_single_messages(
    prosody: Prosody, condition: str, kind: str
) -> None:
    """In either step: the peer may not have understood the batch."""
    async with gathered(prosody) as (_, bob, deliveries, first):
        await say_error(first, bob, condition, kind)
        await each_alone(bob, "assured", deliveries)
        waiting = {delivery.msg_id for delivery in deliveries}
        while waiting:
            iq = await bob.expect(lambda xml: xml.get("type") == "set")
            if is_batch(iq):
                await say_error(iq, bob, condition, kind)
                continue
            if asks("deliver")(iq):
                waiting.discard(iq[0].get("msgId", ""))
            await answer(iq, bob, content(iq[0]))
        for delivery in deliveries:
            assert (await outcome_of(delivery)).status is DELIVERED


@pytest.mark.parametrize("features", [(QOS,), (QOS, MARKS), (QOS, BATCH)])
async def test_any_other_peer_sees_the_form_of_the_text(
    prosody: Prosody, features: tuple[str, ...]
) -> None:
    """Batches are only for peers that advertise them, and our marks."""
    async with peers(prosody, features, **NO_RETRY) as (
        alice,
        bob,
    ):
        seen: list[ET.Element] = []
        serving = asyncio.create_task(serve(bob, seen=seen))
        await send_all(alice, bob.jid, numbered(40))
        serving.cancel()
        names = Counter(child(iq) for iq in seen)
        assert names == {"assured": 40, "deliver": 40}
        assert all(iq[0].get("id") is None for iq in seen)
        assert all(len(iq) == 1 for iq in seen)
