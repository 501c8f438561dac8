"""Bad input from the wire: a clear answer, nothing lost, and the stream stays up.

See the proto-XEP, Security Considerations. After each abuse the payload was not echoed,
and there was one event by XEP-0337 and no flood of them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import Message

from devices import Device, device
from passing_time import let_pass
from qos.testing.prosody import MakeProsody, Prosody
from raw_client import RawClient, stanza
from test_raw_peers import (
    ALL_QOS,
    EVENT_LOG,
    PRIVATE,
    QOS,
    acknowledged,
    answer_to,
    ask,
    assured,
    confirms,
    deliver,
    error_of,
    events,
    is_empty,
    message,
    one_event,
    raw,
    received,
    request_text,
    shows,
    synced,
)
from waiting import limit

ROOMS = 'Component "rooms.localhost" "muc"\n  muc_room_locking = false\n'
ROOM = "room@rooms.localhost"

#: Every event at once: these tests count reports, not their rate.
UNLIMITED = 0.000_001


@contextlib.asynccontextmanager
async def guarded(
    server: Prosody, **options: Any
) -> AsyncIterator[tuple[Device, RawClient]]:
    """Bob with the plugin, and the log to which his events go."""
    async with (
        raw(server, "carol/log") as log,
        device(server, "bob/b", event_log_to=log.jid, **options) as bob,
    ):
        yield bob, log


def stored_size(body: str) -> int:
    """Bytes of a message with this body, as it is stored."""
    stored = f"<message xmlns='jabber:client'><body>{body}</body></message>"
    return len(stored.encode())


async def insist(peer: RawClient, to: str, content: str) -> ET.Element:
    """Repeat a request until there is room for it, as every sender does."""
    _, iq_id = request_text(to, content)
    async with limit():
        while (answer := await ask(peer, to, content, iq_id=iq_id)).get("type") != (
            "result"
        ):
            assert error_of(answer)[:2] == ("resource-constraint", "wait")
        return answer


# -- malformed -------------------------------------------------------------

INNER = message(PRIVATE)
MALFORMED = {
    "no message child": "<assured xmlns='{ns}' msgId='1'/>",
    "text instead": "<assured xmlns='{ns}' msgId='1'>the-private-payload</assured>",
    "another child": "<assured xmlns='{ns}' msgId='1'><body>{private}</body></assured>",
    "two": "<assured xmlns='{ns}' msgId='1'>{inner}{inner}</assured>",
    "two, one inherited": "<assured xmlns='{ns}' msgId='1'>{inner}<message/></assured>",
    "deeper": "<assured xmlns='{ns}' msgId='1'><x>{inner}</x></assured>",
    "nested": (
        "<assured xmlns='{ns}' msgId='1'><message xmlns='jabber:client'>"
        "<assured xmlns='{ns}' msgId='2'>{inner}</assured></message></assured>"
    ),
    "nested, of another namespace": (
        "<assured xmlns='{ns}' msgId='1'><message xmlns='jabber:client'>"
        "<acknowledged xmlns='urn:nf:iot:qos:1.0'>{inner}</acknowledged></message>"
        "</assured>"
    ),
    "no msgId": "<assured xmlns='{ns}'>{inner}</assured>",
    "empty msgId": "<assured xmlns='{ns}' msgId=''>{inner}</assured>",
    "2,000 characters": "<assured xmlns='{ns}' msgId='{long}'>{inner}</assured>",
    "2,000 of mark": (
        "<assured xmlns='{ns}' msgId='1' xmlns:m='xmpp-qos:store:0' m:sender='{long}'>"
        "{inner}</assured>"
    ),
    "200,000 characters": "<assured xmlns='{ns}' msgId='{huge}'>{inner}</assured>",
    "acknowledged, empty": "<acknowledged xmlns='{ns}'/>",
    "acknowledged, two": "<acknowledged xmlns='{ns}'>{inner}{inner}</acknowledged>",
    "acknowledged, nested": (
        "<acknowledged xmlns='{ns}'><message><acknowledged>{inner}</acknowledged>"
        "</message></acknowledged>"
    ),
    "deliver, no msgId": "<deliver xmlns='{ns}'/>",
    "deliver, empty msgId": "<deliver xmlns='{ns}' msgId=''/>",
    "deliver, 2,000 characters": "<deliver xmlns='{ns}' msgId='{long}'/>",
    "deliver, 2,000 of hold": (
        "<deliver xmlns='{ns}' msgId='1' xmlns:m='xmpp-qos:store:0' m:hold='{long}'/>"
    ),
}

#: Those of them that are correct but for what they hold.
WRONG_CONTENT = {
    *("no message child", "text instead", "another child", "two", "deeper", "nested"),
    *("two, one inherited", "nested, of another namespace"),
    *("acknowledged, empty", "acknowledged, two", "acknowledged, nested"),
}


@pytest.mark.parametrize("xmlns", ALL_QOS)
async def test_what_is_malformed_is_refused_from_friend_and_stranger(
    prosody: Prosody, xmlns: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The content of a stranger's request is not even looked at.

    docs/design/protocol.md §2.5 and §3.2.
    """
    async with (
        guarded(prosody, event_interval_s=UNLIMITED) as (bob, log),
        raw(prosody, "alice/a") as alice,
        raw(prosody, "mallory/m") as mallory,
    ):
        for (name, form), peer in product(MALFORMED.items(), (alice, mallory)):
            content = form.format(
                ns=xmlns,
                inner=INNER,
                private=PRIVATE,
                long="x" * 2_000,
                huge="&apos;" * 30_000,
            )
            expected = ("bad-request", "modify", "")
            if peer is mallory and name in WRONG_CONTENT:
                expected = ("not-allowed", "cancel", "")
            async with one_event(bob, peer, log):
                answer = await ask(peer, bob.jid, content)
                assert error_of(answer) == expected, name
                assert not shows(answer)
            assert events(log)[-1].get("id") == expected[0]
        assert not bob.arrivals.all
        # Nothing was held, and nothing blocks later messages.
        received(await ask(alice, bob.jid, assured("1", "x")))
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        assert bob.arrivals.bodies == ["x"]
    assert PRIVATE not in caplog.text


async def test_an_over_long_iq_id_does_not_end_our_stream(prosody: Prosody) -> None:
    """The id goes into the answer, where each `'` takes six bytes: over the limit.

    A stranger could keep us offline with it: the server closes the stream of a client
    that sends more than the limit (docs/design/protocol.md §5.9).
    """
    async with (
        guarded(prosody) as (bob, log),
        raw(prosody, "alice/a") as alice,
        raw(prosody, "mallory/m") as mallory,
    ):
        huge = "'" * 200_000
        for content in (
            assured("1"),
            acknowledged(),
            deliver("1"),
            f"<assured xmlns='{QOS}'/>",
        ):
            text = f"<iq type='set' id=\"{huge}\" to='{bob.jid}'>{content}</iq>"
            await mallory.send(text)
            await synced(alice, bob.jid, log)
            await mallory.ping()
        assert bob.sessions == 1
        assert len(events(log)) <= 1
        assert is_empty(await ask(alice, bob.jid, acknowledged("x"), iq_id="y" * 500))


@pytest.mark.parametrize("depth", [520, 8_000])
async def test_a_very_deep_stanza_ends_alone(prosody: Prosody, depth: int) -> None:
    """Recursion over a peer's nesting would end the stream, or the process.

    520 levels in a request that nobody handles were enough, of any stranger.
    """
    deep = "<a>" * depth + "</a>" * depth
    for_qos = (
        f"<assured xmlns='{QOS}' msgId='1'><message xmlns='jabber:client'>"
        f"<body>deep</body><x xmlns='urn:x'>{deep}</x></message></assured>"
    )
    unknown = f"<x xmlns='urn:x'>{deep}</x>"
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        for content in (for_qos, unknown):
            answer = await ask(alice, bob.jid, content)
            assert error_of(answer)[:2] == ("not-acceptable", "modify")
        await alice.send(
            f"<message to='{bob.jid}'><body>deep</body>{unknown}</message>"
        )
        received(await ask(alice, bob.jid, assured("2", "flat")))
        assert is_empty(await ask(alice, bob.jid, deliver("2")))
        assert bob.arrivals.bodies == ["flat"]
        assert bob.sessions == 1


async def test_10_mb_end_the_stream_of_who_sends_them_and_no_other(
    prosody: Prosody,
) -> None:
    """The server's limit protects us; whatever it lets pass is accepted."""
    async with guarded(prosody) as (bob, log), raw(prosody, "alice/a") as alice:
        async with raw(prosody, "mallory/m") as mallory:
            text, _ = request_text(bob.jid, assured("1", "x" * 10_000_000))
            with contextlib.suppress(ConnectionError):
                await mallory.send(text)
            await mallory.wait_closed()
        await synced(alice, bob.jid, log)
        assert not events(log)
        assert bob.sessions == 1


async def test_an_iq_without_an_id_harms_nobody(prosody: Prosody) -> None:
    """The proto-XEP: the iq must have one. The first entity that sees it refuses it."""
    async with device(prosody, "bob/b") as bob:
        async with raw(prosody, "alice/a") as alice:
            await alice.send(f"<iq type='set' to='{bob.jid}'>{assured('1')}</iq>")
            with contextlib.suppress(ConnectionError):
                answer = await alice.expect(stanza("iq", type="error"))
                assert error_of(answer)[0] == "bad-request"
                assert not shows(answer) or answer.get("from") != bob.jid
        async with raw(prosody, "alice/a") as alice:
            await synced(alice, bob.jid)
        assert bob.sessions == 1
        assert not bob.arrivals.all


# -- repeats ---------------------------------------------------------------


async def test_a_thousand_times_the_same_assured_is_one_message(
    prosody: Prosody,
) -> None:
    """Each request gets the same answer; the message is held and counted once."""
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", quota_messages=2) as bob,
    ):
        for number in range(1_000):
            content = assured("1", "x", mark="s" if number < 500 else "")
            text, _ = request_text(bob.jid, content, iq_id=f"n{number}")
            await alice.send(text)
        answers = [
            received(await answer_to(alice, f"n{number}")) for number in range(1_000)
        ]
        assert len(set(answers[:500])) == len(set(answers[500:])) == 1
        full = await ask(alice, bob.jid, assured("2"))
        assert error_of(full) == ("resource-constraint", "wait", "")
        for content in (deliver("1", mark="s", hold=answers[0][1]), deliver("1")):
            assert (await ask(alice, bob.jid, content)).get("type") == "result"
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["x", "x"]
        received(await ask(alice, bob.jid, assured("2")))


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
async def test_a_thousand_times_the_same_assured_is_written_once(
    prosody: Prosody, tmp_path: Path, scheme: str
) -> None:
    """While it is being written a limited number waits; others are refused at once."""
    store = f"{scheme}:{tmp_path / 'bob'}"
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", quota_messages=1, store=store) as bob,
    ):
        texts = (
            request_text(bob.jid, assured("1", "x", mark="s")) for _ in range(1_000)
        )
        await alice.send("".join(text for text, _ in texts))
        async with limit():
            while len(alice.received(stanza("iq"))) < 1_000:
                await synced(alice, bob.jid)
        last = received(await ask(alice, bob.jid, assured("1", "x", mark="s")))
        all_ = alice.received(stanza("iq"))
        answers = [received(iq) for iq in all_ if iq.get("type") == "result"]
        assert set(answers) == {last}
        assert len(answers) >= 16
        refused = {error_of(iq) for iq in all_ if iq.get("type") == "error"}
        assert refused <= {("resource-constraint", "wait", "")}
        assert len(all_) == 1_000
        assert len(list(bob.qos.store.incoming())) == 1
        full = await ask(alice, bob.jid, assured("2"))
        assert error_of(full) == ("resource-constraint", "wait", "")
        for _ in range(50):
            content = deliver("1", mark="s", hold=last[1])
            await alice.send(request_text(bob.jid, content)[0])
        assert confirms(await insist(alice, bob.jid, content), last[1])
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["x"]
        received(await ask(alice, bob.jid, assured("2")))


async def test_many_unknown_deliver_are_all_answered_and_reported_once(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.8: not held: the empty result, counted."""
    async with (
        guarded(prosody) as (bob, log),
        raw(prosody, "mallory/m") as mallory,
        one_event(bob, mallory, log),
    ):
        for number in range(200):
            text, _ = request_text(bob.jid, deliver(str(number)), iq_id=f"n{number}")
            await mallory.send(text)
        for number in range(200):
            assert is_empty(await answer_to(mallory, f"n{number}"))


# -- quotas ----------------------------------------------------------------

BODY = "x" * 1_000
SIZE = stored_size(BODY)
TRUSTED = "alice@localhost,carol@localhost,bob@localhost"


@pytest.mark.parametrize(
    ("option", "limit", "of_all"),
    [
        ("quota_messages", 3, False),
        ("quota_bytes", 3 * SIZE, False),
        ("quota_total_messages", 3, True),
        ("quota_total_bytes", 3 * SIZE, True),
    ],
)
async def test_over_its_quota_a_sender_is_refused_for_now(
    prosody: Prosody, option: str, limit: int, of_all: bool
) -> None:
    """The proto-XEP, Memory attacks, 2 and 3; exact to the byte, by bare JID.

    docs/design/protocol.md §3.5.
    """
    options: dict[str, Any] = {option: limit, "event_interval_s": UNLIMITED}
    async with (
        guarded(prosody, trust=TRUSTED, **options) as (bob, log),
        raw(prosody, "alice/1") as one,
        raw(prosody, "alice/2") as two,
        raw(prosody, "carol/c") as carol,
    ):
        received(await ask(one, bob.jid, assured("1", BODY)))
        received(await ask(two, bob.jid, assured("1", BODY)))
        third = carol if of_all else two
        received(await ask(third, bob.jid, assured("3", BODY)))
        async with one_event(bob, one, log):
            full = await ask(one, bob.jid, assured("4", BODY))
            assert error_of(full) == ("resource-constraint", "wait", "")
        assert events(log)[-1].get("id") == "resource-constraint"
        # A repeat of a held message uses no further room.
        received(await ask(one, bob.jid, assured("1", BODY)))
        if of_all:
            full = await ask(carol, bob.jid, assured("4", BODY))
            assert error_of(full) == ("resource-constraint", "wait", "")
        else:
            received(await ask(carol, bob.jid, assured("4", BODY)))
        # The room of a delivered message is free again, exactly the size that was
        # counted.
        assert is_empty(await ask(two, bob.jid, deliver("1")))
        if "bytes" in option:
            over = await ask(one, bob.jid, assured("4", BODY + "x"))
            assert error_of(over) == ("resource-constraint", "wait", "")
        received(await ask(one, bob.jid, assured("4", BODY)))


async def test_one_message_over_the_quota_of_bytes_is_refused_alone(
    prosody: Prosody,
) -> None:
    """Bytes are those of the stored message in UTF-8."""
    body = "ä€😀"
    size = stored_size(body)
    async with raw(prosody, "alice/a") as alice:
        for limit in (size - 1, size):
            async with device(prosody, "bob/b", quota_bytes=limit) as bob:
                answer = await ask(alice, bob.jid, assured("1", body))
                assert (answer.get("type") == "result") is (limit == size)


async def test_acknowledged_counts_while_it_is_written(
    prosody: Prosody, tmp_path: Path
) -> None:
    """While it is written, and handed over, it counts towards the quotas.

    Without a write, too: it fills memory.

    docs/design/protocol.md §3.5.
    """
    async with raw(prosody, "alice/a") as alice:
        store = f"sqlite:{tmp_path / 'bob.db'}"
        async with guarded(prosody, store=store, quota_bytes=SIZE) as (bob, log):
            for _ in range(3):
                done = await ask(alice, bob.jid, acknowledged(BODY))
                assert is_empty(done), ET.tostring(done)
            async with one_event(bob, alice, log):
                full = await ask(alice, bob.jid, acknowledged(BODY + "x"))
                assert error_of(full) == ("resource-constraint", "wait", "")
            assert len(bob.arrivals.all) == 3
        async with guarded(prosody, quota_bytes=SIZE) as (bob, log):
            assert is_empty(await ask(alice, bob.jid, acknowledged(BODY)))
            async with one_event(bob, alice, log):
                full = await ask(alice, bob.jid, acknowledged(BODY + "x"))
                assert error_of(full) == ("resource-constraint", "wait", "")


async def test_a_flood_over_the_quota_is_answered_and_reported_once(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.16: an attacker must not be able to flood our log."""
    async with (
        guarded(prosody, quota_messages=5) as (bob, log),
        raw(prosody, "alice/a") as alice,
    ):
        async with one_event(bob, alice, log):
            for number in range(500):
                text, _ = request_text(
                    bob.jid, assured(str(number)), iq_id=f"n{number}"
                )
                await alice.send(text)
            kinds = [
                (await answer_to(alice, f"n{number}")).get("type")
                for number in range(500)
            ]
        assert kinds == ["result"] * 5 + ["error"] * 495


# -- trust -----------------------------------------------------------------


async def test_a_stranger_is_not_allowed_and_acknowledged_is_his_right(
    prosody: Prosody,
) -> None:
    """The proto-XEP, Memory attacks, 1; it has no such rule for level acknowledged, we do."""
    async with guarded(prosody) as (bob, log), raw(prosody, "mallory/m") as mallory:
        async with one_event(bob, mallory, log):
            for msg_id in ("1", "1", "2"):
                answer = await ask(mallory, bob.jid, assured(msg_id))
                assert error_of(answer) == ("not-allowed", "cancel", "")
            answer = await ask(mallory, bob.jid, acknowledged("x"))
            assert error_of(answer) == ("not-allowed", "cancel", "")
        assert events(log)[-1].get("id") == "not-allowed"
        assert not bob.arrivals.bodies


async def test_level_acknowledged_can_be_open_to_anyone(prosody: Prosody) -> None:
    """Such messages are not held; those of level assured are."""
    async with (
        guarded(prosody, accepts="anyone") as (bob, log),
        raw(prosody, "mallory/m") as mallory,
    ):
        async with one_event(bob, mallory, log):
            answer = await ask(mallory, bob.jid, assured("1"))
            assert error_of(answer) == ("not-allowed", "cancel", "")
        assert is_empty(await ask(mallory, bob.jid, acknowledged("x")))
        await bob.arrivals.reach(1)


async def test_any_subscription_in_the_roster_is_trusted_and_none_is_not(
    make_prosody: MakeProsody,
) -> None:
    """docs/design/protocol.md §3.15: `both`, `from` or `to`."""
    subscriptions = {"alice": "both", "carol": "from", "mallory": "to", "dave": "none"}
    accounts = dict.fromkeys(("bob", *subscriptions), "secret")
    server = await make_prosody(accounts=accounts, rosters={"bob": subscriptions})
    async with device(server, "bob/b") as bob:
        for user, subscription in subscriptions.items():
            async with raw(server, f"{user}/x") as peer:
                answer = await ask(peer, bob.jid, assured("1"))
                trusted = subscription != "none"
                assert (answer.get("type") == "result") is trusted, subscription
        async with raw(server, "bob/other") as other:
            received(await ask(other, bob.jid, assured("1")))


@pytest.mark.parametrize(
    ("trust", "trusted"),
    [
        ("anyone", {"alice/a", "alice/b", "mallory/m"}),
        ("@localhost", {"alice/a", "alice/b", "mallory/m"}),
        ("contacts,mallory@localhost/m", {"alice/a", "alice/b", "mallory/m"}),
        ("mallory@localhost", {"mallory/m"}),
        ("MALLORY@localhost, alice@localhost/b", {"mallory/m", "alice/b"}),
        (["alice@localhost"], {"alice/a", "alice/b"}),
        (lambda jid: jid == "alice@localhost/a", {"alice/a"}),
    ],
    ids=[
        *("anyone", "a domain", "contacts and a JID"),
        *("one account", "a list", "a collection", "a function"),
    ],
)
async def test_an_allow_list_or_a_function_decides_instead_of_the_roster(
    prosody: Prosody, trust: Any, trusted: set[str]
) -> None:
    """docs/design/protocol.md §3.15: a full JID in a list means one resource."""
    async with device(prosody, "bob/b", trust=trust) as bob:
        for name in ("alice/a", "alice/b", "mallory/m"):
            async with raw(prosody, name) as peer:
                answer = await ask(peer, bob.jid, assured("1"))
                assert (answer.get("type") == "result") is (name in trusted), name


async def test_a_function_that_takes_its_time_or_fails_refuses_nobody_wrongly(
    prosody: Prosody,
) -> None:
    """The answer comes with the decision; an error in the function means no trust."""
    decide = asyncio.Event()

    async def trust(jid: str) -> bool:
        await decide.wait()
        if "mallory" in jid:
            raise ZeroDivisionError
        return True

    async with (
        device(prosody, "bob/b", trust=trust) as bob,
        raw(prosody, "alice/a") as alice,
        raw(prosody, "mallory/m") as mallory,
    ):
        for peer in (alice, mallory):
            await peer.send(request_text(bob.jid, assured("1"), iq_id="1")[0])
            await synced(peer, bob.jid)
            assert not peer.received(stanza("iq"))
        decide.set()
        received(await answer_to(alice, "1"))
        answer = await answer_to(mallory, "1")
        assert error_of(answer) == ("not-allowed", "cancel", "")


async def test_who_comes_into_the_roster_is_trusted_and_who_goes_is_not(
    prosody: Prosody,
) -> None:
    """The present roster decides, even in a session that began after a lost one."""
    item = (
        "<iq type='set' id='{id}'><query xmlns='jabber:iq:roster'>{item}</query></iq>"
    )
    async with (
        raw(prosody, "bob/other") as other,
        raw(prosody, "alice/a") as alice,
        raw(prosody, "mallory/m") as mallory,
        device(prosody, "bob/b") as bob,
    ):
        await other.send_presence()
        await mallory.send_presence()
        received(await ask(alice, bob.jid, assured("1")))
        await bob.go_offline()
        # While the device is away, its owner changes the roster elsewhere.
        await other.send(
            item.format(
                id="out",
                item="<item jid='alice@localhost' subscription='remove'/>",
            )
        )
        await answer_to(other, "out")
        await mallory.send("<presence to='bob@localhost' type='subscribe'/>")
        await other.expect(stanza("presence", type="subscribe"))
        await other.send("<presence to='mallory@localhost' type='subscribed'/>")
        await other.ping()
        await mallory.expect(stanza("presence", from_="bob@localhost/other"))
        await bob.come_back()
        received(await ask(mallory, bob.jid, assured("1")))
        answer = await ask(alice, bob.jid, assured("2"))
        assert error_of(answer) == ("not-allowed", "cancel", "")


@pytest.mark.parametrize(
    "trust", ["anyone", "contacts", f"{ROOM},{ROOM}/mallory", "function"]
)
async def test_an_occupant_of_a_room_is_never_trusted(
    make_prosody: MakeProsody, trust: str
) -> None:
    """The proto-XEP names rooms first: anybody can enter one, with another name."""
    server = await make_prosody(extra=ROOMS)
    rule: Any = (lambda _: True) if trust == "function" else trust
    join = "<presence to='{}'><x xmlns='http://jabber.org/protocol/muc'/></presence>"
    async with (
        guarded(server, trust=rule) as (bob, log),
        raw(server, "mallory/m") as mallory,
    ):
        bob.xmpp.send_raw(join.format(f"{ROOM}/bob"))
        await bob.tap.wait_seen(
            lambda xml: xml.get("from") == f"{ROOM}/bob" and "presence" in xml.tag
        )
        await mallory.send(join.format(f"{ROOM}/mallory"))
        await mallory.expect(stanza("presence", from_=f"{ROOM}/mallory"))
        async with one_event(bob, mallory, log, source=f"{ROOM}/mallory"):
            answer = await ask(mallory, f"{ROOM}/bob", assured("1"))
            assert answer.get("from") == f"{ROOM}/bob"
            assert error_of(answer) == ("not-allowed", "cancel", "")
        # Under his own JID he is trusted as before.
        answer = await ask(mallory, bob.jid, assured("1"))
        assert (answer.get("type") == "result") is (trust in {"anyone", "function"})


async def test_what_is_said_in_a_room_is_no_business_of_qos(
    make_prosody: MakeProsody,
) -> None:
    """A groupchat message that contains a request is just a message."""
    server = await make_prosody(extra=ROOMS)
    join = "<presence to='{}'><x xmlns='http://jabber.org/protocol/muc'/></presence>"
    async with (
        device(server, "bob/b") as bob,
        raw(server, "alice/a") as alice,
        raw(server, "mallory/m") as mallory,
    ):
        bob.xmpp.send_raw(join.format(f"{ROOM}/bob"))
        await mallory.send(join.format(f"{ROOM}/mallory"))
        await mallory.expect(stanza("presence", from_=f"{ROOM}/mallory"))
        await mallory.send(
            f"<message type='groupchat' to='{ROOM}'><body>hi</body>{assured('1')}"
            "</message>"
        )
        await bob.tap.wait_seen(
            lambda xml: (
                xml.get("type") == "groupchat"
                and xml.findtext("{jabber:client}body") == "hi"
            )
        )
        assert not list(bob.qos.store.incoming())
        assert is_empty(await ask(alice, bob.jid, acknowledged("x")))


# -- events ----------------------------------------------------------------


async def test_an_account_is_reported_once_in_the_interval_whatever_its_resources(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.16: a rate limit per source.

    As for quotas, resources cost their owner nothing.
    """
    async with guarded(prosody) as (bob, log):
        for number in range(4):
            async with raw(prosody, f"mallory/{number}") as mallory:
                answer = await ask(mallory, bob.jid, assured("1"))
                assert error_of(answer)[0] == "not-allowed"
        async with raw(prosody, "alice/a") as alice:
            await synced(alice, bob.jid, log)
            assert len(events(log)) == 1
            # Another account is another source.
            async with one_event(bob, alice, log):
                await ask(alice, bob.jid, f"<assured xmlns='{QOS}'/>")


async def test_the_next_event_says_how_many_were_left_out(prosody: Prosody) -> None:
    """The log shows the extent of an abuse, not each part of it."""
    async with (
        guarded(prosody, event_interval_s=600) as (bob, log),
        raw(prosody, "mallory/m") as mallory,
    ):
        for number in range(8):
            await ask(mallory, bob.jid, assured(str(number)))
            await synced(mallory, bob.jid, log)
            assert len(events(log)) == 1
        await let_pass(600)
        await ask(mallory, bob.jid, assured("8"))
        await synced(mallory, bob.jid, log)
        first, second = events(log)
        tag = f"{{{EVENT_LOG}}}tag"
        left_out = [event.find(tag) for event in (first, second)]
        values = [each.get("value") for each in left_out if each is not None]
        assert values == ["0", "7"]
        for event in (first, second):
            assert event.get("module") == "xep_qos"
            assert event.get("timestamp", "").endswith("Z")


async def test_an_event_says_who_and_why_and_cannot_be_forged_by_an_id(
    prosody: Prosody, caplog: pytest.LogCaptureFixture
) -> None:
    """The proto-XEP: so that the source can be found. A peer's id stays a value."""
    evil = "7'\n]]></message><x/>\u2028INFO root: all is well"
    async with guarded(prosody) as (bob, log), raw(prosody, "mallory/m") as mallory:
        async with one_event(bob, mallory, log):
            quoted = evil.replace("\n", "&#10;")
            content = deliver("@").replace(
                "@", quoted.replace("<", "&lt;").replace("'", "&apos;")
            )
            assert is_empty(await ask(mallory, bob.jid, content))
        (event,) = events(log)
        assert [child.tag for child in event] == [
            f"{{{EVENT_LOG}}}message",
            f"{{{EVENT_LOG}}}tag",
        ]
        assert event.get("subject") == mallory.jid
    assert "\nINFO" not in caplog.text
    assert "\u2028INFO" not in caplog.text


async def test_without_a_log_to_send_to_it_is_a_line_in_ours(
    prosody: Prosody, caplog: pytest.LogCaptureFixture
) -> None:
    """An event log is not required."""
    async with device(prosody, "bob/b") as bob, raw(prosody, "mallory/m") as mallory:
        for _ in range(5):
            await ask(mallory, bob.jid, assured("1"))
        lines = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
        assert len(lines) == 1
        assert mallory.jid in lines[0]
        assert PRIVATE not in caplog.text


async def test_an_event_log_that_refuses_our_events_changes_nothing(
    prosody: Prosody,
) -> None:
    """The log may be away: a message to it comes back as an error, with no effect."""
    async with (
        device(prosody, "bob/b", event_log_to="nobody@localhost/x") as bob,
        raw(prosody, "mallory/m") as mallory,
    ):
        got: list[Message] = []
        bob.xmpp.add_event_handler("message_error", got.append)
        for number in range(3):
            answer = await ask(mallory, bob.jid, assured(str(number)))
            assert error_of(answer)[0] == "not-allowed"
        await synced(mallory, bob.jid)
        assert bob.sessions == 1
