"""Batches that a raw peer sends, correct or not, and their answers (BATCH.md)."""

import asyncio
from typing import Any

import pytest

from devices import child, device
from passing_time import let_pass
from qos.core.message.model import Level
from qos.testing.prosody import Prosody
from raw_batches import (
    BATCH,
    alone,
    answers,
    batch,
    holds,
    is_result,
    offers,
    with_id,
)
from raw_client import RawClient, stanza
from test_raw_peers import (
    QOS,
    acknowledged,
    answer_to,
    ask,
    assured,
    deliver,
    error_of,
    events,
    message,
    one_event,
    raw,
    received,
    synced,
)
from xep_qos import XEP_QOS


async def held(alice: RawClient, to: str, count: int) -> dict[str, str]:
    """Offer this many in a batch; returns the holds by msgId."""
    offered = await ask(alice, to, batch(*offers(range(count))))
    assert answers(offered) == {f"i{number}": "received" for number in range(count)}
    return holds(offered)


def releases(held: dict[str, str]) -> list[str]:
    """A `deliver` for each, with the ids `d0`, `d1`, …"""
    return [
        with_id(f"d{number}", release(msg_id, hold))
        for number, (msg_id, hold) in enumerate(held.items())
    ]


def release(msg_id: str, hold: str) -> str:
    """A `deliver` in the form for a batch."""
    return f"<deliver xmlns='{QOS}' msgId='{msg_id}' hold='{hold}'/>"


async def test_a_batch_is_answered_by_one_result_with_all_answers(
    prosody: Prosody,
) -> None:
    """Each answer is the same as alone."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        given = await held(alice, bob.jid, 2)
        assert list(given) == ["m0", "m1"]
        assert len(set(given.values())) == 2
        assert not bob.arrivals.all
        mixed = await ask(
            alice,
            bob.jid,
            batch(
                *releases(given),
                with_id("a", acknowledged("now")),
                with_id("u", release("nobody holds it", "h")),
                with_id("t", deliver("nor this")),
                *offers([2]),
            ),
        )
        assert answers(mixed) == {
            "d0": "result",
            "d1": "result",
            "a": "result",
            "u": "item-not-found",
            "t": "result",
            "i2": "received",
        }
        assert len(bob.arrivals.all) == 3
        infos = [arrival.info for arrival in bob.arrivals.all]
        assert [(info.level, info.msg_id) for info in infos if info] == [
            (Level.ASSURED, "m0"),
            (Level.ASSURED, "m1"),
            (Level.ACKNOWLEDGED, "a"),
        ]


async def test_a_message_may_come_in_a_batch_and_alone(prosody: Prosody) -> None:
    """A repeat is the same message, in a batch or alone."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        given = await held(alice, bob.jid, 2)
        again = await ask(alice, bob.jid, assured("m0", mark="s"))
        assert received(again) == ("m0", given["m0"])
        assert await held(alice, bob.jid, 2) == given
        single = deliver("m0", mark="s", hold=given["m0"])
        assert child(await ask(alice, bob.jid, single)) == "hold"
        both = await ask(alice, bob.jid, batch(*releases(given)))
        assert answers(both) == {"d0": "result", "d1": "result"}
        assert len(bob.arrivals.all) == 2


async def test_a_malformed_request_is_refused_alone(prosody: Prosody) -> None:
    """Well-formed requests in the same batch are accepted."""
    async with (
        raw(prosody, "alice/a") as alice,
        raw(prosody, "carol/log") as log,
        device(prosody, "bob/b", event_log_to=log.jid) as bob,
        one_event(bob, alice, log),
    ):
        answer = await ask(
            alice,
            bob.jid,
            batch(
                *offers([0]),
                with_id("x", "<assured xmlns='urn:xmpp:qos'/>"),
                with_id("y", f"<assured xmlns='urn:xmpp:qos' msgId='{'m' * 1025}'/>"),
                with_id("z", "<deliver xmlns='urn:xmpp:qos' msgId=''/>"),
            ),
        )
        assert answers(answer) == {
            "i0": "received",
            **dict.fromkeys("xyz", "bad-request"),
        }


MALFORMED = {
    "empty": batch(),
    "too many": batch(*offers(range(257))),
    "nested": batch(*offers([0]), with_id("n", batch(*offers([1])))),
    "foreign": batch(*offers([0]), with_id("f", "<ping xmlns='urn:xmpp:ping'/>")),
    "unknown": batch(*offers([0]), with_id("f", "<received xmlns='urn:xmpp:qos' />")),
    "without an id": batch(*offers([0]), assured("m1")),
    "an empty id": batch(*offers([0]), with_id("", assured("m1"))),
    "a long id": batch(*offers([0]), with_id("i" * 1025, assured("m1"))),
    "an id twice": batch(*offers([0]), with_id("i0", assured("m1"))),
    "a msgId twice": batch(*offers([0]), with_id("i1", assured("m0"))),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=list(MALFORMED))
async def test_a_malformed_batch_is_refused_as_a_whole(
    prosody: Prosody, content: str
) -> None:
    """One answer, one report, and nothing of it is held."""
    async with (
        raw(prosody, "alice/a") as alice,
        raw(prosody, "carol/log") as log,
        device(prosody, "bob/b", event_log_to=log.jid) as bob,
    ):
        async with one_event(bob, alice, log):
            answer = await ask(alice, bob.jid, content)
            assert error_of(answer) == ("bad-request", "modify", "")
        assert not list(bob.qos.store.incoming())


async def test_a_batch_without_a_usable_id_is_not_answered_by_it(
    prosody: Prosody,
) -> None:
    """An answer would repeat the id, and could end our own stream."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        await alice.send(
            f"<iq type='set' id='{'i' * 1025}' to='{bob.jid}'>"
            f"{batch(*offers([0]))}</iq>"
        )
        await synced(alice, bob.jid)
        assert not alice.received(is_result)
        assert not list(bob.qos.store.incoming())


@pytest.mark.parametrize("off", [True, False], ids=["off", "on"])
async def test_the_feature_is_advertised_unless_it_is_off(
    prosody: Prosody, off: bool
) -> None:
    """An endpoint without batches answers that it does not support them."""
    options: dict[str, Any] = {"batch_max": 1} if off else {}
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", **options) as bob,
    ):
        await alice.send(
            f"<iq type='get' id='q' to='{bob.jid}'>"
            "<query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
        )
        info = await answer_to(alice, "q")
        features = {feature.get("var") for feature in info[0]}
        assert (BATCH in features) is not off
        answer = await ask(alice, bob.jid, batch(*offers([0])))
        if off:
            assert error_of(answer)[0] == "feature-not-implemented"
        else:
            assert answers(answer) == {"i0": "received"}


async def test_a_quota_is_counted_by_the_message(prosody: Prosody) -> None:
    """Only messages over the quota are refused, with one report for all."""
    async with (
        raw(prosody, "alice/a") as alice,
        raw(prosody, "carol/log") as log,
        device(prosody, "bob/b", event_log_to=log.jid, quota_messages=3) as bob,
        one_event(bob, alice, log),
    ):
        answer = await ask(alice, bob.jid, batch(*offers(range(20))))
        said = answers(answer)
        assert [said[f"i{number}"] for number in range(20)] == (
            ["received"] * 3 + ["resource-constraint"] * 17
        )


async def test_a_stranger_has_no_more_from_a_batch_than_from_its_requests(
    prosody: Prosody,
) -> None:
    """Each request is refused, and all of it is one report."""
    async with (
        raw(prosody, "mallory/m") as mallory,
        raw(prosody, "carol/log") as log,
        device(prosody, "bob/b", event_log_to=log.jid) as bob,
    ):
        async with one_event(bob, mallory, log):
            for start in (0, 100):
                numbers = range(start, start + 100)
                answer = await ask(mallory, bob.jid, batch(*offers(numbers)))
                assert set(answers(answer).values()) == {"not-allowed"}
        assert len(events(log)) == 1
        assert not list(bob.qos.store.incoming())


async def test_a_slow_handler_holds_up_its_own_message_only(prosody: Prosody) -> None:
    """The other requests are answered; its own answer comes later, by its id."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        slow: dict[str, asyncio.Future[None]] = {}

        def take(received: Any) -> None:
            if received["body"] in {"1", "2"}:
                taken = asyncio.get_running_loop().create_future()
                slow[received["body"]] = taken
                XEP_QOS.of(bob.xmpp).take_until(received, taken)

        bob.xmpp.add_event_handler("message", take)
        offered = [
            with_id(f"i{number}", assured(f"m{number}", str(number)))
            for number in range(4)
        ]
        result = await ask(alice, bob.jid, batch(*offered))
        given = holds(result)
        first = await ask(alice, bob.jid, batch(*releases(given)))
        assert answers(first) == {"d0": "result", "d3": "result"}
        slow["2"].set_result(None)
        late = await alice.expect(alone("d2"))
        assert (late.get("type"), child(late)) == ("result", "hold")
        # A repeat in between is answered in both ways.
        repeat = deliver("m1", mark="s", hold=given["m1"])
        await alice.send(f"<iq type='set' id='r' to='{bob.jid}'>{repeat}</iq>")
        await synced(alice, bob.jid)
        assert not alice.received(alone("d1"))
        assert not alice.received(alone("r"))
        slow["1"].set_result(None)
        for iq_id in ("d1", "r"):
            late = await alice.expect(alone(iq_id))
            assert (late.get("type"), child(late)) == ("result", "hold")
        assert len(bob.arrivals.all) == 4


async def test_a_batch_of_slow_ones_is_answered_from_the_first_on(
    prosody: Prosody,
) -> None:
    """There is no result without an answer in it."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        taken: list[asyncio.Future[None]] = []

        def take(received: Any) -> None:
            taken.append(asyncio.get_running_loop().create_future())
            XEP_QOS.of(bob.xmpp).take_until(received, taken[-1])

        bob.xmpp.add_event_handler("message", take)
        given = await held(alice, bob.jid, 2)
        await alice.send(
            f"<iq type='set' id='b' to='{bob.jid}'>{batch(*releases(given))}</iq>"
        )
        await bob.arrivals.take(2)
        # However long they take.
        await let_pass(3_600)
        await synced(alice, bob.jid)
        assert not alice.received(is_result)
        taken[1].set_result(None)
        assert answers(await answer_to(alice, "b")) == {"d1": "result"}
        taken[0].set_result(None)
        assert child(await alice.expect(alone("d0"))) == "hold"


async def test_answers_too_long_for_one_stanza_do_not_end_our_stream(
    prosody: Prosody,
) -> None:
    """They repeat text that the peer chose, and escaping makes it longer."""
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", quota_messages=1_000) as bob,
    ):
        ids = [f"{number}-".ljust(1024, "'") for number in range(100)]
        offered = [
            with_id(
                f"i{number}",
                f'<assured xmlns="urn:xmpp:qos" msgId="{msg_id}">'
                f"{message('x')}</assured>",
            )
            for number, msg_id in enumerate(ids)
        ]
        first = await ask(alice, bob.jid, batch(*offered))
        found = {each.get("msgId", "") for each in first[0]}
        assert 0 < len(found) < 100
        await synced(alice, bob.jid)
        rest = alice.received(stanza("iq", type="result"))
        found |= {received(iq)[0] for iq in rest}
        assert found == set(ids)
        assert bob.sessions == 1


async def test_what_is_stopped_refuses_each_request_of_a_batch(
    prosody: Prosody,
) -> None:
    """A message that is not kept must not be confirmed; the sender tries again."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        bob.qos.stop_receiving()
        refused = await ask(alice, bob.jid, batch(*offers([0, 1])))
        assert answers(refused) == {
            "i0": "service-unavailable",
            "i1": "service-unavailable",
        }
