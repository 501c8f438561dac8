"""Assured messages by HTTP, to a device at an XMPP server.

docs/rest-checklist.md S1 to S9.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from qos.core.backoff import Backoff
from qos.core.contents import unwrap
from qos.core.message.model import Ended, Outgoing
from qos.core.payers import BURST_S
from qos.core.queue.publishing import ONCE_S_MAX
from qos.engine.account_room import AccountRoom
from qos.errors import StoreError, StoreFull
from qos.rest import bounds
from qos.rest.paths import url
from qos.stores.base import Change, Contents
from qos.xml_text import render
from send_bench import ALICE, DEVICE, DOMAIN, EVE, SendBench, sending, xmpp
from waiting import until
from xep_qos.relay import RELAYED_MAX

PLAIN = {"Content_Type": "text/plain"}
XML = {"Content_Type": "application/xml"}
USED = "OPTIONS"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[SendBench]:
    async with sending(tmp_path) as bench:
        yield bench


async def test_a_device_gets_what_was_posted_once(bench: SendBench) -> None:
    """Link, post, repeats, outcome."""
    async with bench.device():
        link = await bench.once()
        sent = await bench.post(link, b"on", **PLAIN)
        assert sent.status == 202
        assert json.loads(sent.body)["outcome"] == "pending"
        got = await bench.message()
        assert (str(got["from"]), got["body"]) == (f"{ALICE}/http", "on")
        outcome = await bench.outcome(sent)
        assert (outcome["to"], outcome["outcome"]) == (DEVICE, "delivered")
        for again in (b"on", b"off"):
            repeated = await bench.post(link, again, **PLAIN)
            assert (repeated.status, repeated.headers["Allow"]) == (405, USED)
        following = await bench.post(repeated.link("create-next"), b"off", **PLAIN)
        assert (await bench.outcome(following))["outcome"] == "delivered"
        assert (await bench.message())["body"] == "off"
        assert bench.got.empty()


async def test_a_destination_is_discovered_by_its_links(bench: SendBench) -> None:
    for method in ("GET", "HEAD"):
        shown = await bench.http(method, bench.url)
        assert shown.status == 200
        once = shown.link("post-message-once")
        assert once == shown.link("message-factory")
        assert await bench.once(once) != await bench.once(once)


async def test_a_message_waits_for_its_device(bench: SendBench) -> None:
    """Pending while the device is away; who waits is told when it has got it."""
    link = await bench.once()
    sent = await bench.post(link, b"on", **PLAIN)
    where = sent.headers["Content-Location"]
    pending = await bench.get(where)
    assert (pending.status, pending.headers["Location"]) == (202, where)
    assert json.loads(pending.body)["outcome"] == "pending"
    waited = await bench.get(where, Prefer="wait=1")
    assert waited.status == 202
    assert waited.headers["Preference-Applied"] == "wait=1"
    assert (await bench.post(link, b"on", **PLAIN)).status == 405
    waiting = asyncio.create_task(bench.outcome(sent))
    async with bench.device():
        assert (await waiting)["outcome"] == "delivered"
        assert (await bench.message())["body"] == "on"


async def test_a_device_that_is_back_says_so_by_its_presence(
    bench: SendBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be tried again after a minute here, and after five by default."""
    relay = bench.rest.relay
    assert relay is not None
    endpoint = relay._endpoint
    monkeypatch.setattr(endpoint, "jitter", lambda: 0.99)
    backoff = Backoff(first_s=60.0, max_s=60.0)
    monkeypatch.setattr(endpoint.outbox.in_flight, "_backoff", backoff)
    sent = await bench.post(await bench.once(), b"on", **PLAIN)

    async def bounced() -> bool:
        answer = await bench.get(sent.headers["Content-Location"])
        return "condition" in json.loads(answer.body)

    await until(bounced)
    monkeypatch.setattr(endpoint, "jitter", lambda: 0.0)
    async with bench.device() as lamp:
        lamp.send_presence(pto=ALICE)
        assert (await bench.outcome(sent))["outcome"] == "delivered"


async def test_a_message_ends_with_its_ttl(bench: SendBench) -> None:
    link = await bench.once()
    sent = await bench.post(f"{link}?ttl=300", b"on", **PLAIN)
    outcome = await bench.outcome(sent)
    assert outcome["outcome"] == "not-delivered"
    assert outcome["reason"]


async def test_a_device_that_refuses_is_told_with_the_reason(bench: SendBench) -> None:
    async with bench.device(trust="nobody"):
        sent = await bench.post(await bench.once(), b"on", **PLAIN)
        outcome = await bench.outcome(sent)
    assert outcome["outcome"] == "not-delivered"
    assert outcome["condition"] == "not-allowed"
    assert "does not trust" in outcome["reason"]


async def test_a_key_is_sent_once(bench: SendBench) -> None:
    """Also when its message has ended: the same content again, and another one."""
    async with bench.device():
        for _ in range(2):
            sent = await bench.post(bench.url, b"on", Idempotency_Key="k", **PLAIN)
            assert (await bench.outcome(sent))["outcome"] == "delivered"
        other = await bench.post(bench.url, b"off", Idempotency_Key="k", **PLAIN)
        assert other.status == 422
        assert (await bench.message())["body"] == "on"
    away = await bench.post(bench.url, b"on", Idempotency_Key="k2", **PLAIN)
    assert away.status == 202
    again = await bench.post(bench.url, b"on", Idempotency_Key="k2", **PLAIN)
    assert again.headers["Content-Location"] == away.headers["Content-Location"]
    other = await bench.post(bench.url, b"off", Idempotency_Key="k2", **PLAIN)
    assert other.status == 422
    assert bench.got.empty()


async def test_nothing_is_sent_without_a_link_or_a_key(bench: SendBench) -> None:
    answer = await bench.post(bench.url, b"on", **PLAIN)
    assert answer.status == 400
    assert "create-next" in answer.text


@pytest.mark.parametrize("content", [b"same", b"other"])
async def test_of_two_posts_at_once_one_is_sent(
    bench: SendBench, content: bytes
) -> None:
    link = await bench.once()
    bodies = [b"same"] * 4 + [content]
    answers = await asyncio.gather(*(bench.post(link, each) for each in bodies))
    assert sorted(each.status for each in answers) == [202, 405, 405, 405, 405]


async def test_a_post_is_answered_when_its_message_is_on_disk(
    bench: SendBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is a repeat; who has gone meanwhile has sent it all the same."""
    relay = bench.rest.relay
    assert relay is not None
    store, disk = relay._endpoint.store, asyncio.Event()
    write = store.write

    async def slowly(written: asyncio.Future[None] | None) -> None:
        await disk.wait()
        if written is not None:
            await written

    def held(changes: Sequence[Change]) -> asyncio.Future[None]:
        return asyncio.ensure_future(slowly(write(changes)))

    waits, known = 0, relay.once.known

    async def counted(msg_id: str) -> Outgoing | Ended | None:
        nonlocal waits
        waits += 1
        try:
            return await known(msg_id)
        finally:
            waits -= 1

    monkeypatch.setattr(relay.once, "known", counted)
    monkeypatch.setattr(store, "write", held)
    link, other = await bench.once(), await bench.once()
    posts = [asyncio.create_task(bench.post(each, b"on")) for each in (link, other)]
    await until(lambda: relay.once.accepting == 2)
    posts.append(asyncio.create_task(bench.post(link, b"on")))
    await until(lambda: waits == 1)
    posts[1].cancel()
    await asyncio.wait(posts[1:2])
    posts.append(asyncio.create_task(bench.post(other, b"on")))
    await until(lambda: waits == 2)
    assert [each.done() for each in posts] == [False, True, False, False]
    disk.set()
    assert [(await posts[at]).status for at in (0, 2, 3)] == [202, 405, 405]


@pytest.mark.parametrize(
    ("failed", "says"),
    [
        (StoreFull, "could not be written: "),
        # Nobody knows what is on the disk: the next process may find the message.
        (StoreError, "may be sent after a restart: post it again to the same URL"),
    ],
)
async def test_a_disk_that_fails_sends_nothing(
    bench: SendBench,
    monkeypatch: pytest.MonkeyPatch,
    failed: type[StoreError],
    says: str,
) -> None:
    """503; the same link sends the message once when the disk is there again."""
    relay = bench.rest.relay
    assert relay is not None
    store = relay._endpoint.store

    def fail(_changes: Sequence[Change]) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(failed(store.url, "no space"))
        return future

    link = await bench.once()
    with monkeypatch.context() as full:
        full.setattr(store, "write", fail)
        answer = await bench.post(link, b"on", Content_Type="text/plain")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert says in answer.text
    for status in (202, 405):
        again = await bench.post(link, b"on", Content_Type="text/plain")
        assert again.status == status
    async with bench.device():
        assert (await bench.message())["body"] == "on"


async def test_bodies_arrive_as_they_are(bench: SendBench) -> None:
    """A text as text, an element as itself, all else byte for byte."""
    element = "<light xmlns='urn:example:light' on='1'>ü</light>"
    async with bench.device():
        for kind, body in (
            ("text/plain; charset=utf-8", " a <b>\r\nü ".encode()),
            ("application/xml", element.encode()),
            ("text/plain", b"\x00\xff"),
            ("image/png", bytes(range(256))),
            ("", b""),
        ):
            headers = {"Content_Type": kind} if kind else {}
            sent = await bench.post(await bench.once(), body, **headers)
            assert sent.status == 202
            (child,) = (await bench.message()).xml
            if child.tag == "{jabber:client}body":
                assert (child.text or "").encode() == body
                assert kind.startswith("text/plain")
            elif kind == "application/xml":
                assert ET.canonicalize(render(child)) == ET.canonicalize(element)
            else:
                found = unwrap(render(child))
                assert found == (body, kind or "application/octet-stream") or (
                    found == (body, "")
                )


async def test_what_a_message_does_not_carry_is_refused(bench: SendBench) -> None:
    link = await bench.once()
    for query, headers in (
        ("?priority=3", {}),
        ("?delay=3", {}),
        ("?ttl=0", {}),
        ("", {"Msg_Properties": "a=1"}),
        ("", {"Content_Encoding": "gzip"}),
    ):
        answer = await bench.post(link + query, b"on", **headers)
        assert answer.status == 400, (query, headers)
    large = await bench.post(link, b"&" * 100_000, **PLAIN)
    assert large.status == 413
    assert (await bench.post(link, b"on", **PLAIN)).status == 202


async def test_a_user_without_an_address_here_is_named(bench: SendBench) -> None:
    """The message is from the service, and cannot be taken for the service's own."""
    async with bench.device(trust=DOMAIN):
        link = await bench.once(user=EVE)
        forged = b"<event xmlns='http://jabber.org/protocol/pubsub#event'/>"
        refused = await bench.post(link, forged, user=EVE, **XML)
        assert refused.status == 403
        assert "pubsub#event" in refused.text
        element = b"<light xmlns='urn:example:light'/>"
        sent = await bench.post(link, element, user=EVE, **XML)
        assert sent.status == 202
        got = await bench.message()
        assert str(got["from"]) == DOMAIN
        light, addresses = got.xml
        assert light.tag == "{urn:example:light}light"
        (address,) = addresses
        assert address.tag == "{http://jabber.org/protocol/address}address"
        assert address.attrib == {"type": "ofrom", "jid": EVE}


async def test_a_user_sends_only_to_whom_it_may(
    bench: SendBench, caplog: pytest.LogCaptureFixture
) -> None:
    """By the file, which is read again when it has changed; a broken one closes.

    That is logged once a minute for each account.
    """
    other = url("device", jid="lamp@localhost/2")
    assert (await bench.post(bench.url, user="bob")).status == 403
    assert (await bench.get(bench.url, user="bob")).status == 403
    assert (await bench.post(other, user=EVE)).status == 403
    assert (await bench.post(other)).status == 200
    for jid in ("nobody@localhost/1", "x@devices.localhost/y"):
        assert (await bench.post(url("device", jid=jid), user="bob")).status == 200
    link = await bench.once(other)
    bench.targets.write_text("bob: lamp@localhost\n")
    assert (await bench.post(bench.url, user="bob")).status == 200
    assert (await bench.post(link, b"on", **PLAIN)).status == 403
    bench.targets.write_text("nonsense\n")
    for _ in range(3):
        assert (await bench.post(bench.url, user="bob")).status == 403
    (line,) = [each for each in caplog.messages if "nor anybody else" in each]
    assert line.startswith("bob@queue.localhost may not send")


@pytest.mark.parametrize("jid", ["lamp@localhost", "@", "a b@c/d"])
async def test_only_a_full_jid_is_sent_to(bench: SendBench, jid: str) -> None:
    answer = await bench.post(url("device", jid=jid))
    assert answer.status == 400
    assert "JID" in answer.text


async def test_a_link_and_an_outcome_are_of_one_user(bench: SendBench) -> None:
    link = await bench.once()
    assert (await bench.post(link, b"on", user=EVE)).status == 404
    moved = link.replace("localhost%2F1", "localhost%2F2")
    assert (await bench.post(moved, b"on")).status == 404
    sent = await bench.post(link, b"on")
    where = sent.headers["Content-Location"]
    assert (await bench.get(where)).status == 202
    assert (await bench.get(where, user=EVE)).status == 404
    unknown = await bench.get(url("sent", jid=DEVICE, item="0" * 32))
    assert unknown.status == 404


def old_link(bench: SendBench, item_id: str, age_s: float) -> str:
    now = bench.service.engine.now()
    token = bench.rest.one_off.new(
        "send", DEVICE, ALICE, item_id=item_id, now=now - age_s
    )
    return url("send", jid=DEVICE, link=token)


async def test_an_expired_link_tells_whether_it_was_sent(bench: SendBench) -> None:
    used, unused = "0" * 32, "1" * 32
    good = old_link(bench, used, ONCE_S_MAX - 60)
    assert (await bench.post(good, b"x")).status == 202
    assert (await bench.post(old_link(bench, used, ONCE_S_MAX + 1))).status == 405
    gone = await bench.post(old_link(bench, unused, ONCE_S_MAX + 1), b"x")
    assert gone.status == 410
    assert (await bench.post(gone.link("create-next"), b"x")).status == 202


async def test_a_full_outbox_asks_to_come_again(
    bench: SendBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user's part of it; others go on, and so does the user when one has ended."""
    relay = bench.rest.relay
    assert relay is not None
    outbox = relay._endpoint.outbox
    room = AccountRoom(Contents(), messages=8, size=10**6)
    monkeypatch.setattr(outbox, "_room", room)
    sent = await bench.post(await bench.once(), b"1")
    link = await bench.once()
    full = await bench.post(link, b"2")
    assert (full.status, full.headers["Retry-After"]) == (507, "5")
    assert "1 messages of yours" in full.text
    assert (await bench.post(await bench.once(user=EVE), b"3", user=EVE)).status == 202
    async with bench.device():
        assert (await bench.outcome(sent))["outcome"] == "delivered"
    assert (await bench.post(link, b"2")).status == 202


async def test_outcomes_are_remembered_for_longer_than_links(bench: SendBench) -> None:
    """Else a repeat could be taken for a first post: so the rate of all is bounded."""
    an_hour = bounds.SENDS_PER_S * (ONCE_S_MAX + BURST_S) + 1
    assert an_hour < RELAYED_MAX
    bench.rest.sends.take("", 10_000, asyncio.get_running_loop().time())
    link = await bench.once()
    full = await bench.post(link, b"on")
    assert (full.status, full.headers["Retry-After"]) == (507, "5")
    bench.rest.sends.take("", -10_000, asyncio.get_running_loop().time())
    assert (await bench.post(link, b"on")).status == 202


async def test_one_user_sends_no_more_than_half_of_what_all_may(
    bench: SendBench,
) -> None:
    """Another one still sends, and this one is told that it is his own rate."""
    bench.rest.sends_of_accounts.take(ALICE, 10_000, asyncio.get_running_loop().time())
    assert (await bench.post(await bench.once(), b"1")).status == 429
    assert (await bench.post(await bench.once(user=EVE), b"1", user=EVE)).status == 202


async def test_links_messages_and_outcomes_survive_a_restart(tmp_path: Path) -> None:
    """A delivered message stays so, an accepted one goes on, and repeats are known."""
    async with xmpp() as server:
        bench = SendBench(tmp_path, server)
        async with bench.serving():
            unused, away, done = [await bench.once() for _ in range(3)]
            async with bench.device():
                delivered = await bench.post(done, b"1", **PLAIN)
                assert (await bench.outcome(delivered))["outcome"] == "delivered"
            waiting = await bench.post(away, b"2", **PLAIN)
            assert waiting.status == 202
        async with bench.serving():
            assert (await bench.outcome(delivered))["outcome"] == "delivered"
            for link in (away, done):
                assert (await bench.post(link, b"2", **PLAIN)).status == 405
            async with bench.device():
                third = await bench.post(unused, b"3", **PLAIN)
                for sent in (waiting, third):
                    assert (await bench.outcome(sent))["outcome"] == "delivered"
    bodies = [bench.got.get_nowait()["body"] for _ in range(bench.got.qsize())]
    assert sorted(bodies) == ["1", "2", "3"]


async def test_who_waits_is_answered_when_the_service_stops(tmp_path: Path) -> None:
    async with xmpp() as server:
        bench = SendBench(tmp_path, server)
        async with bench.serving():
            sent = await bench.post(await bench.once(), b"on")
            where = sent.headers["Content-Location"]
            waiting = asyncio.create_task(bench.get(where, Prefer="wait=30"))
            relay = bench.rest.relay
            assert relay is not None
            await until(lambda: relay._waiting)
            await bench.rest.aclose()
            assert (await waiting).status == 202
