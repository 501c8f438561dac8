"""Taking messages by a real client: waits, acknowledgements, and clients that go.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import contextlib
import errno
import os
import socket
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import httpx
import pytest
import requests

from amqp_bench import DOMAIN
from cheap_passwords import cheap_hash
from qos.core.queue.item import Affiliation, ItemState
from qos.core.queue.properties import why_not
from qos.core.queue.ready_items import SLICE
from qos.core.queue.requests import (
    Configure,
    Delete,
    Publish,
    PublishedItem,
    Purge,
    SetAffiliations,
    Subscriptions,
)
from qos.core.queue.results import SubscriptionsResult
from qos.core.rest.batches import reading_batch
from qos.core.rest.link_header import read_links
from qos.core.rest.msg_properties import read_properties
from qos.core.rest.waits import WAIT_S_MAX
from qos.rest import consuming
from qos.rest import waiting as rest_waiting
from qos.steps import at_once
from qos.testing import ManualClock
from rest_bench import RestBench, basic, rest
from turned_time import turned
from waiting import LIMIT_S, limit, until

TAKE = "/queues/orders/consumer"


async def publish(bench: RestBench, *bodies: bytes, **headers: str) -> None:
    for body in bodies:
        answer = await bench.post("/queues/orders/messages", body, **headers)
        assert answer.status == 200, answer


async def test_a_message_is_taken_and_acknowledged(bench: RestBench) -> None:
    """C1, C2, C3: and nothing else of it is left."""
    await publish(bench, b"1", b"2")
    taken = await bench.take()
    assert (taken.status, taken.body) == (200, b"1")
    path = taken.link("acknowledgement")
    assert path.startswith("/queues/orders/messages/")
    assert "/acknowledgement/" in path
    assert not set(path) & set(";,")
    ended = await bench.settle(taken, "acknowledge=true")
    assert (ended.status, ended.body) == (204, b"")
    assert len(await bench.items("orders")) == 1
    assert not bench.rest.consumers


async def test_a_delivery_is_acknowledged_by_the_link_of_earlier_versions(
    bench: RestBench,
) -> None:
    """C2: the matrix parameter of REST-*, which a client may have written down."""
    await publish(bench, b"1")
    taken = await bench.take()
    before, _, etag = taken.link("acknowledgement").rpartition("/")
    answer = await bench.post(f"{before};etag={etag}", b"acknowledge=true")
    assert answer.status == 204
    assert not await bench.items("orders")


@pytest.mark.parametrize("value", ["x" * 7990, "ü" * 1330])
async def test_an_item_with_as_many_properties_as_can_be_is_read(
    bench: RestBench, value: str
) -> None:
    """Many HTTP clients read no header over 8 KiB; an XMPP publisher does not know that."""
    assert why_not({"n": value}) is None
    assert why_not({"n": value + "xxxxx" + "ü" * 3})
    entry = PublishedItem(
        item_id="a",
        payload="<a xmlns='b'/>",
        digest="d",
        size=9000,
        properties={"n": value},
    )
    await bench.ask(Publish("orders", (entry,)))
    taken = await bench.take(Accept="multipart/mixed")
    (part,) = at_once(reading_batch(taken.body, taken.headers["Content-Type"]))
    assert read_properties(part.headers["msg-properties"]) == {"n": value}
    assert (await bench.settle(taken, "acknowledge=true")).status == 204


async def test_an_item_with_a_long_id_is_read_and_acknowledged(
    bench: RestBench,
) -> None:
    """Its links would be over 8 KiB together: all are in the body, the first is here too."""
    replies = "r" * 1024
    await bench.create(replies)
    properties = {"JMSReplyTo": replies, "JMSCorrelationID": "ü" * 128}
    entry = PublishedItem(
        item_id=":" * 1024,
        payload="<a xmlns='b'/>",
        digest="d",
        size=9000,
        properties=properties,
    )
    await bench.ask(Publish("orders", (entry,)))
    assert (await bench.post(TAKE)).status == 406
    taken = await bench.take(Accept="multipart/mixed")
    (part,) = at_once(reading_batch(taken.body, taken.headers["Content-Type"]))
    links = {each.rel: each.href for each in read_links(part.headers["link"])}
    assert {"acknowledgement", "reply-to", "reply-to-batch-once"} <= set(links)
    done = await bench.post(links["acknowledgement"], b"acknowledge=true")
    assert done.status == 204


@pytest.mark.parametrize(
    "link",
    [
        "<http://evil/;rel=acknowledgement;x=y>; rel=up",
        '<http://evil/>; rel="up;rel=acknowledgement"',
        '<http://evil/>; rel=up; type="a/b;rel=acknowledgement"',
        '<http://evil/>; rel="up"; title="a", <http://evil/>; rel=acknowledgement',
    ],
)
async def test_no_client_takes_a_publisher_s_link_for_one_of_the_service(
    bench: RestBench, link: str
) -> None:
    """Clients that split a header at each semicolon and comma would send a password there."""
    await publish(bench, b"1", Link=link)
    taken = await bench.take()
    for parsed in (
        requests.utils.parse_header_links(taken.headers["Link"]),
        list(
            httpx.Response(200, headers={"Link": taken.headers["Link"]}).links.values()
        ),
    ):
        (own,) = [each for each in parsed if each.get("rel") == "acknowledgement"]
        assert own["url"].startswith("/queues/orders/")


def acknowledged_by_requests(base: str) -> int:
    with requests.Session() as session:
        session.auth = ("alice", "secret")
        taken = session.post(f"{base}{TAKE}", timeout=LIMIT_S)
        link = urljoin(taken.url, taken.links["acknowledgement"]["url"])
        form = {"acknowledge": "true"}
        return session.post(link, data=form, timeout=LIMIT_S).status_code


def acknowledged_by_httpx(base: str) -> int:
    # No file of authorities: none of them is asked for.
    login = ("alice", "secret")
    with httpx.Client(auth=login, timeout=LIMIT_S, trust_env=False) as client:
        taken = client.post(f"{base}{TAKE}")
        link = taken.url.join(taken.links["acknowledgement"]["url"])
        return client.post(link, data={"acknowledge": "true"}).status_code


async def acknowledged_by_aiohttp(base: str, session: aiohttp.ClientSession) -> int:
    headers = {"Authorization": basic("alice")}
    async with session.post(f"{base}{TAKE}", headers=headers) as taken:
        link = taken.links["acknowledgement"]["url"]
    form = {"acknowledge": "true"}
    async with session.post(link, data=form, headers=headers) as answer:
        return answer.status


async def test_clients_follow_the_acknowledgement_link_as_they_read_it(
    bench: RestBench,
) -> None:
    """C2: requests and httpx cut a link at its first semicolon."""
    base = f"http://127.0.0.1:{bench.web}"
    await publish(bench, b"1", b"2", b"3")
    assert await asyncio.to_thread(acknowledged_by_requests, base) == 204
    assert await asyncio.to_thread(acknowledged_by_httpx, base) == 204
    assert await acknowledged_by_aiohttp(base, bench.session) == 204
    assert not await bench.items("orders")


async def test_several_workers_of_one_account_have_different_messages(
    bench: RestBench,
) -> None:
    """A consumer is a request, and not an account."""
    await publish(bench, *map(str.encode, "12345"))
    taken = await asyncio.gather(*(bench.take(Prefer="wait=30") for _ in range(5)))
    assert sorted(each.body for each in taken) == [b"1", b"2", b"3", b"4", b"5"]
    ends = await asyncio.gather(
        *(bench.settle(each, "acknowledge=true") for each in taken)
    )
    assert {each.status for each in ends} == {204}


async def test_a_message_that_was_given_back_is_not_acknowledged(
    bench: RestBench,
) -> None:
    """C4: it is available again, or somebody else has it."""
    await publish(bench, b"1")
    first = await bench.take()
    assert (await bench.settle(first, "acknowledge=false")).status == 204
    assert (await bench.settle(first, "acknowledge=true")).status == 412
    second = await bench.take()
    assert second.body == b"1"
    assert (await bench.settle(first, "acknowledge=true")).status == 412
    assert (await bench.settle(second, "acknowledge=true")).status == 204
    assert (await bench.settle(first, "acknowledge=true")).status == 412


async def test_a_lock_that_has_timed_out_is_not_acknowledged(
    timed: RestBench, clock: ManualClock
) -> None:
    """C4, C11: the next delivery tells that this one has failed."""
    await timed.ask(Configure("orders", {"queue#lock_timeout": "10"}))
    await publish(timed, b"1")
    first = await timed.take()
    # While something is written, the service's clock would stand still.
    await until(lambda: not timed.engine._busy)
    clock.advance(10.0)
    second = await timed.take(Prefer="wait=30")
    assert (second.body, second.headers["Msg-Delivery-Count"]) == (b"1", "1")
    assert second.headers["Msg-First-Acquirer"] == "false"
    assert (await timed.settle(first, "acknowledge=true")).status == 412
    assert (await timed.settle(second, "acknowledge=true")).status == 204


async def test_a_repeated_acknowledgement_was_done_before(bench: RestBench) -> None:
    """C5: by the same client; nobody else learns as much."""
    await bench.ask(SetAffiliations("orders", {f"bob@{DOMAIN}": Affiliation.MEMBER}))
    await publish(bench, b"1")
    taken = await bench.take()
    assert (await bench.settle(taken, "acknowledge=true", user="bob")).status == 412
    assert (await bench.settle(taken, "acknowledge=true")).status == 204
    again = await bench.settle(taken, "acknowledge=true")
    assert (again.status, again.headers["Allow"]) == (405, "OPTIONS")
    assert (await bench.settle(taken, "acknowledge=true", user="bob")).status == 412


@pytest.mark.parametrize("other", ["acknowledge=false", "reject=x", "extend=5"])
async def test_another_end_than_the_one_that_was_set_is_none(
    bench: RestBench, other: str
) -> None:
    """C6."""
    await publish(bench, b"1")
    taken = await bench.take()
    await bench.settle(taken, "acknowledge=true")
    assert (await bench.settle(taken, other)).status == 412


async def test_each_end_is_what_it_says(bench: RestBench) -> None:
    """C6: released does not count, failed does, rejected is dead with its reason."""
    await publish(bench, b"1", b"2", b"3")
    failed = "acknowledge=false&delivery-failed=true&reason=no ink"
    for form in (failed, "reject=no such order"):
        assert (await bench.settle(await bench.take(), form)).status == 204
    released = await bench.take()
    assert (await bench.settle(released, "acknowledge=false")).status == 204
    live = list((await bench.items("orders")).values())
    assert sorted(each.delivery_count for each in live) == [0, 1]
    assert {each.state for each in live} == {ItemState.AVAILABLE}
    (history,) = [each.history for each in live if each.history]
    assert [each.reason for each in history] == ["failed: no ink"]
    (dead,) = (await bench.items("orders", "dead")).values()
    assert dead.history[-1].reason == "rejected: no such order"


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        ("", {}, 400),
        ("acknowledge=maybe", {}, 400),
        ("acknowledge=true", {"Content_Type": "text/plain"}, 415),
        ("acknowledge=true", {"Content_Type": "application/json"}, 415),
    ],
)
async def test_a_form_that_is_none_ends_nothing(
    bench: RestBench, form: str, headers: dict[str, str], status: int
) -> None:
    """C7."""
    await publish(bench, b"1")
    taken = await bench.take()
    assert (await bench.settle(taken, form, **headers)).status == status
    await bench.until_locked("orders", 1)


async def test_an_unknown_delivery_has_been_requeued_for_all_we_know(
    bench: RestBench,
) -> None:
    """C7: 412, and not 404."""
    for path in (
        "no/acknowledgement/a.b",
        "no/acknowledgement;etag=.",
        "x/acknowledgement/a",
    ):
        answer = await bench.post(
            f"/queues/orders/messages/{path}", b"acknowledge=true"
        )
        assert answer.status == 412, path
    # Without a token it would be whatever delivery there is.
    await publish(bench, b"1")
    taken = await bench.take()
    bare = taken.link("acknowledgement").rpartition(".")[0]
    for path in (bare, f"{bare}."):
        assert (await bench.post(path, b"acknowledge=true")).status == 412
    await bench.until_locked("orders", 1)


@pytest.mark.parametrize(
    "header", ["X-RS-Wait: 30", "Accept-Wait: 30", "Prefer: wait=30"]
)
async def test_a_consumer_waits_as_long_as_it_says(
    bench: RestBench, header: str
) -> None:
    """C8, C9."""
    name, value = header.replace("-", "_").split(": ")
    waiting = asyncio.create_task(bench.take(**{name: value.replace("_", "-")}))
    await until(lambda: bench.rest.consumers)
    await publish(bench, b"1")
    taken = await waiting
    assert taken.body == b"1"
    assert taken.headers.get("Preference-Applied") == (
        "wait=30" if name == "Prefer" else None
    )


async def test_a_wait_is_answered_before_a_proxy_gives_up(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C9: nginx answers 504 after 60 s, and haproxy as Debian installs it after 50 s."""
    clock = turned(monkeypatch, rest_waiting)
    asking = asyncio.create_task(bench.post(TAKE, Prefer="wait=60"))
    await until(lambda: bench.rest.consumers)
    # Its timer is set when its subscription has been answered.
    await bench.items("orders")
    clock.advance(WAIT_S_MAX)
    answer = await asking
    assert answer.status == 202
    assert answer.headers["Preference-Applied"] == f"wait={WAIT_S_MAX}"


async def test_where_nothing_came_the_client_learns_where_to_ask(
    bench: RestBench,
) -> None:
    """C8."""
    for headers in ({}, {"X_RS_Wait": "1"}):
        answer = await bench.post(f"{TAKE}?selector=n%3D1", b"", **headers)
        assert (answer.status, answer.headers["Retry-After"]) == (202, "0")
        assert answer.headers["Location"] == f"{TAKE}?selector=n%3D1"
        assert answer.link("poller") == answer.headers["Location"]
    assert (await bench.post(TAKE)).headers["Location"] == TAKE
    await until(lambda: not bench.rest.consumers)


async def test_a_wait_that_is_no_number_is_refused(bench: RestBench) -> None:
    """C9."""
    answer = await bench.post(TAKE, X_RS_Wait="soon")
    assert (answer.status, "whole seconds" in answer.text) == (400, True)
    assert (await bench.post(TAKE, b"body")).status == 400


async def test_a_client_that_goes_while_it_waits_takes_nothing(
    bench: RestBench,
) -> None:
    """C10."""
    waiting = asyncio.create_task(bench.take(Prefer="wait=30"))
    await until(lambda: bench.rest.consumers)
    waiting.cancel()
    await until(lambda: not bench.rest.consumers)
    await publish(bench, b"1")
    (item,) = (await bench.items("orders")).values()
    assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 0)
    assert not item.receivers


async def test_a_client_that_goes_when_its_message_is_locked_has_not_taken_it(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10: at any step between the lock and the answer; it does not count."""
    shown = consuming.shown
    goes: list[socket.socket] = []

    def closes(*arguments: object) -> object:
        goes.pop().close()
        return shown(*arguments)  # type: ignore[arg-type]  # passed on

    client = socket.create_connection(("127.0.0.1", bench.web))
    goes.append(client)
    request = f"POST {TAKE} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic('alice')}\r\n"
    client.sendall(f"{request}X-RS-Wait: 30\r\nContent-Length: 0\r\n\r\n".encode())
    await until(lambda: bench.rest.consumers)
    with monkeypatch.context() as patch:
        patch.setattr(consuming, "shown", closes)
        await publish(bench, b"1")
        await until(lambda: not goes and not bench.rest.consumers)
    taken = await bench.take(Prefer="wait=30")
    assert (taken.body, taken.headers["Msg-Delivery-Count"]) == (b"1", "0")


async def test_messages_survive_clients_that_go_at_any_time(
    timed: RestBench, clock: ManualClock
) -> None:
    """C10: each message is acknowledged once, although other clients are cut."""
    # However often it goes with one of them, it is no dead letter.
    await timed.ask(Configure("orders", {"queue#max_deliveries": "100"}))
    bodies = [str(number).encode() for number in range(30)]
    await publish(timed, *bodies)
    done: list[bytes] = []
    # With each of them a message may go, so there is an end of them.
    waits_s = [0.002 * (1 + number % 9) for number in range(30)]

    async def is_cut(wait_s: float) -> None:
        url = f"http://127.0.0.1:{timed.web}{TAKE}"
        headers = {"Authorization": basic("alice"), "X-RS-Wait": "1"}
        timeout = aiohttp.ClientTimeout(total=wait_s)
        with contextlib.suppress(TimeoutError):
            async with timed.session.post(url, headers=headers, timeout=timeout):
                pass

    async def work() -> None:
        while True:
            if waits_s:
                await is_cut(waits_s.pop())
            taken = await timed.post(TAKE, b"", X_RS_Wait="1")
            if taken.status != 200:
                return
            assert (await timed.settle(taken, "acknowledge=true")).status == 204
            done.append(taken.body)

    async with limit():
        while len(done) < len(bodies):
            await asyncio.gather(work(), work(), work())
            # What a client has got before it was cut comes again.
            clock.advance(60.0)
    assert len(waits_s) < 20
    assert sorted(done) == sorted(bodies)


async def test_a_lock_is_extended(bench: RestBench) -> None:
    """C11."""
    await bench.ask(Configure("orders", {"queue#lock_timeout": "60"}))
    await publish(bench, b"1")
    taken = await bench.take()
    assert "Msg-Lock-Expires" in taken.headers
    (before,) = (await bench.items("orders")).values()
    assert (await bench.settle(taken, "extend=120")).status == 204
    (after,) = (await bench.items("orders")).values()
    assert after.deadline > before.deadline + 50
    assert (await bench.settle(taken, "acknowledge=true")).status == 204


async def test_a_message_tells_where_it_is_and_where_it_is_from(
    bench: RestBench,
) -> None:
    """C12, C13: and it can be looked at without being taken."""
    await publish(bench, b"1", Content_Type="text/plain")
    taken = await bench.take()
    assert taken.link("generator") == "/queues/orders"
    for method in ("GET", "HEAD"):
        shown = await bench.http(method, taken.link("self"))
        assert (shown.status, shown.headers["Content-Type"]) == (200, "text/plain")
        assert shown.body == (b"1" if method == "GET" else b"")
        assert shown.headers["Content-Length"] == "1"
        assert "acknowledgement" not in shown.links
    assert taken.headers["X-Content-Type-Options"] == "nosniff"
    assert taken.headers["Content-Security-Policy"] == "sandbox"
    await bench.settle(taken, "acknowledge=true")
    assert (await bench.get(taken.link("self"))).status == 404


async def test_a_selector_chooses_messages(bench: RestBench) -> None:
    """C14."""
    await publish(bench, b"1", Msg_Properties="n=1")
    await publish(bench, b"2", Msg_Properties="n=2", Content_Type="text/csv")
    taken = await bench.post(f"{TAKE}?selector=n+%3E+1")
    assert taken.body == b"2"
    await bench.settle(taken, "acknowledge=false")
    kind = "http_content%24type+LIKE+%27text/%25%27"
    assert (await bench.post(f"{TAKE}?selector={kind}", X_RS_Wait="30")).body == b"2"


async def test_a_selector_finds_a_message_behind_many_others(bench: RestBench) -> None:
    """C14: without a wait too, although a step evaluates it for some items only."""
    count = 5 * SLICE // 2
    await bench.publish("orders", *["<x/>"] * (count - 1))
    await publish(bench, b"last", Msg_Properties="n=1")
    for _ in range(2):
        taken = await bench.post(f"{TAKE}?selector=n+%3D+1")
        assert taken.body == b"last"
        await bench.settle(taken, "acknowledge=false")
    assert (await bench.post(f"{TAKE}?selector=n+%3D+2")).status == 202


async def test_a_selector_that_is_none_is_refused_with_the_position(
    bench: RestBench,
) -> None:
    """C14."""
    answer = await bench.post(f"{TAKE}?selector=n+%3D+%3D+1")
    assert answer.status == 400
    assert "character 5" in answer.text or "position" in answer.text, answer.text


async def test_without_the_right_nothing_is_taken(bench: RestBench) -> None:
    """R5."""
    assert (await bench.post(TAKE, user="bob")).status == 404
    assert (await bench.post("/queues/no/consumer")).status == 404
    assert not bench.rest.consumers


async def test_a_queue_that_ends_ends_the_requests_that_wait(bench: RestBench) -> None:
    await bench.create("gone")
    waiting = [
        asyncio.create_task(bench.post(f"/queues/{node}/consumer", Prefer="wait=30"))
        for node in ("gone", "orders")
    ]
    await until(lambda: len(bench.rest.consumers) == 2)
    await bench.ask(Purge("orders"))
    await bench.ask(Delete("gone"))
    assert (await waiting[0]).status == 404
    await bench.ask(SetAffiliations("orders", {f"alice@{DOMAIN}": Affiliation.OWNER}))
    await publish(bench, b"1")
    assert (await waiting[1]).status == 200


async def test_who_loses_the_right_waits_no_longer(bench: RestBench) -> None:
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))
    waiting = asyncio.create_task(bench.post(TAKE, user="bob", Prefer="wait=30"))
    await until(lambda: bench.rest.consumers)
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.NONE}))
    assert (await waiting).status == 403


async def test_requests_that_wait_are_answered_at_the_end(tmp_path: Path) -> None:
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        waiting = asyncio.create_task(bench.post(TAKE, Prefer="wait=30"))
        await until(lambda: bench.rest.consumers)
        await bench.rest.aclose()
        answer = await waiting
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")


async def test_a_request_that_waited_when_the_service_was_killed_has_left(
    tmp_path: Path,
) -> None:
    """Also one of an account of another domain: nobody is asked whether it is there."""
    boss = "boss@example.org"
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await bench.ask(SetAffiliations("orders", {boss: Affiliation.MEMBER}))
        lines = bench.users_file.read_text()
        bench.users_file.write_text(f"{lines}{boss}:{cheap_hash('secret')}\n")
        waiting = asyncio.create_task(
            bench.post(TAKE, b"", user=boss, Prefer="wait=30")
        )
        await until(lambda: bench.rest.consumers)
        await bench.items("orders")
        # As a kill does: nothing is written any more.
        await bench.engine.aclose()
        waiting.cancel()
    async with rest(tmp_path) as bench:
        result = await bench.ask(Subscriptions("orders", owner=True))
        assert isinstance(result, SubscriptionsResult)
        assert not result.subscriptions
        assert not bench.xmpp.probed


async def test_a_store_that_fails_loses_and_doubles_nothing(bench: RestBench) -> None:
    """Who waits and who posts is asked to come again, and it goes on from the disk."""
    link = (await bench.post("/queues/orders/once")).link("create-next")
    waiting = asyncio.create_task(bench.post(TAKE, Prefer="wait=30"))
    await until(lambda: bench.rest.consumers)
    await bench.items("orders")

    def full(_step: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    bench.store.probe = full
    refused = await bench.post(link, b"1")
    bench.store.probe = lambda _step: None
    assert (refused.status, refused.headers["Retry-After"]) == (507, "5")
    ended = await waiting
    assert (ended.status, ended.headers["Retry-After"]) == (503, "2")

    async def posted() -> bool:
        answer = await bench.post(link, b"1")
        assert answer.status in {200, 503}, answer
        return answer.status == 200

    await until(posted)
    assert (await bench.post(link, b"1")).status == 405
    taken = await bench.take(Prefer="wait=30")
    assert (await bench.settle(taken, "acknowledge=true")).status == 204
    await until(lambda: not bench.rest.consumers)


async def test_one_queue_has_workers_of_three_protocols(bench: RestBench) -> None:
    """HTTP, AMQP and XMPP: each reads what the others publish, and each item is one's."""
    xml = "<order xmlns='shop'>1</order>"
    await publish(bench, xml.encode(), Content_Type="application/xml")
    await bench.publish("orders", "<order xmlns='shop'>2</order>")
    await bench.rhea("send", node="orders", quiet=True)
    bodies = []
    for _ in range(3):
        taken = await bench.take()
        bodies.append(taken.text)
        await bench.settle(taken, "acknowledge=true")
    assert bodies[:2] == [xml, "<order xmlns='shop'>2</order>"]
    assert bodies[2] == "body 0"
    for body, kind in ((xml.encode(), "application/xml"), (b"\0\xff", "image/x")):
        await publish(bench, body, Content_Type=kind)
        (found,) = await bench.rhea("receive", node="orders")
        assert bytes(found["body"]["content"]["data"]) == body


async def test_the_xmpp_server_hears_nothing_of_consumers_by_http(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Their full JIDs are of accounts that it has, but it has no such resources."""
    erin = "erin@home.example.org"
    async with rest(tmp_path, clock=clock) as bench:
        lines = bench.users_file.read_text()
        bench.users_file.write_text(f"{lines}{erin}:{cheap_hash('secret')}\n")
        await bench.create("orders", lock_timeout="10")
        await bench.ask(SetAffiliations("orders", {erin: Affiliation.MEMBER}))
        await publish(bench, b"1", b"2")
        acknowledged = await bench.take(user=erin)
        await bench.settle(acknowledged, "acknowledge=true", user=erin)
        await bench.take(user=erin)
        await until(lambda: not bench.engine._busy)
        clock.advance(10.0)
        await bench.until_locked("orders", 0)
        for request in (Purge("orders"), Delete("orders")):
            await publish(bench, b"3")
            await bench.take(user=erin)
            await bench.ask(request)
        assert not bench.xmpp.notified
