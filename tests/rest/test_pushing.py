"""Push subscribers of the HTTP gateway.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from amqp_bench import DOMAIN
from qos.core.queue.item import Item, ItemState
from qos.core.queue.properties import HOPS_MAX
from qos.core.queue.requests import Delete, Refusal
from qos.core.rest.link_header import read_links
from qos.rest import bounds
from qos.testing.ports import free_ports
from rest_bench import Response, RestBench, basic, rest
from waiting import limit, until

ATOM = "application/atom+xml"
LOOPBACK = ["127.0.0.1"]


def atom(href: str, rel: str = "post-message") -> bytes:
    return (
        f"<link xmlns='http://www.w3.org/2005/Atom' rel='{rel}' href='{href}'/>"
    ).encode()


async def subscribe(
    bench: RestBench, href: str, rel: str = "post-message", **headers: str
) -> Response:
    """Ask for push."""
    return await bench.post(
        "/queues/orders/subscribers", atom(href, rel), Content_Type=ATOM, **headers
    )


async def made(bench: RestBench, href: str, rel: str = "post-message") -> str:
    """The location of a new push subscriber."""
    answer = await subscribe(bench, href, rel)
    assert answer.status == 201, answer
    return answer.headers["Location"]


async def shown(bench: RestBench, location: str) -> dict[str, Any]:
    answer = await bench.get(location)
    assert answer.status == 200, answer
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def until_shown(
    bench: RestBench, location: str, **wanted: object
) -> dict[str, Any]:
    """The subscriber, once it is shown like this."""
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update(await shown(bench, location))
        return wanted.items() <= found.items()

    await until(is_so)
    return found


async def until_failed(bench: RestBench, location: str) -> None:
    """Wait until an attempt has failed; another one may have failed since."""

    async def has_failed() -> bool:
        return bool((await shown(bench, location))["failures"])

    await until(has_failed)


class Target:
    """A web server that notes what it gets.

    Attributes:
        port: of it.
        got: the requests, with their bodies.
        answers: the statuses of the next answers; 200 after them; None: there is none.
    """

    def __init__(self) -> None:
        self.port = 0
        self.got: asyncio.Queue[tuple[web.BaseRequest, bytes]] = asyncio.Queue()
        self.answers: list[int | web.Response | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.got.put_nowait((request, body))
        answer = self.answers.pop(0) if self.answers else 200
        if answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, int):
            return web.Response(status=answer)
        assert answer is not None
        return answer

    async def next(self) -> tuple[web.BaseRequest, bytes]:
        async with limit():
            return await self.got.get()

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.next())[1] for _ in range(count)]


@contextlib.asynccontextmanager
async def target(
    port: int = 0, *, found: Target | None = None
) -> AsyncIterator[Target]:
    found = found or Target()
    server = web.Server(found._handle)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(server, "127.0.0.1", port)
    found.port = listening.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        listening.close()
        await server.shutdown(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="20")
        yield bench


@pytest.fixture
async def to() -> AsyncIterator[Target]:
    async with target() as found:
        yield found


async def test_a_subscriber_is_made_shown_and_ended(
    bench: RestBench, to: Target
) -> None:
    """U1, R4."""
    queue = await bench.get("/queues/orders")
    assert queue.link("subscribers") == "/queues/orders/subscribers"
    location = await made(bench, to.url)
    assert await shown(bench, location) == {
        "location": location,
        "rel": "post-message",
        "href": to.url,
        "enabled": True,
        "failures": 0,
        "reason": "",
    }
    listed = json.loads((await bench.get("/queues/orders/subscribers")).body)
    assert [each["location"] for each in listed] == [location]
    await bench.post("/queues/orders/messages", b"1")
    assert await to.bodies(1) == [b"1"]
    # It is of its account only.
    assert (await bench.get(location, user="bob")).status == 404
    assert (await bench.http("DELETE", location)).status == 204
    assert (await bench.get(location)).status == 404
    await bench.post("/queues/orders/messages", b"2")
    taken = await bench.take()
    assert taken.body == b"2"


async def test_a_forwarded_message_tells_where_it_is_and_where_it_is_from(
    bench: RestBench, to: Target
) -> None:
    """U4: with what its publisher has sent, and nothing of ours."""
    await made(bench, to.url)
    await bench.post(
        "/queues/orders/messages?priority=7",
        b"<a/>",
        Content_Type="text/plain",
        Msg_Properties='color="red"',
        Link='</more>; rel="related"',
    )
    request, body = await to.next()
    assert body == b"<a/>"
    base = f"http://127.0.0.1:{bench.web}"
    links = {each.rel: each.href for each in read_links(request.headers["Link"])}
    assert links["self"].startswith(f"{base}/queues/orders/messages/")
    assert links["generator"] == f"{base}/queues/orders"
    assert links["related"] == "/more"
    assert request.headers["Content-Type"] == "text/plain"
    assert request.headers["Msg-Properties"] == 'color="red"'
    assert request.headers["Msg-Hops"] == "1"
    assert "Authorization" not in request.headers
    assert "Cookie" not in request.headers


async def test_another_service_gets_each_message_once_by_one_off_links(
    bench: RestBench, tmp_path: Path
) -> None:
    """U2, with the Authorization that the subscriber was made with."""
    folder = tmp_path / "other"
    folder.mkdir()
    async with rest(folder) as other:
        await other.create("orders")
        href = f"http://127.0.0.1:{other.web}/queues/orders/once"
        answer = await subscribe(
            bench, href, "post-message-once", Push_Authorization=basic("alice")
        )
        assert answer.status == 201
        for number in range(20):
            await bench.post("/queues/orders/messages", b"%d" % number)
        got = [(await other.take(Prefer="wait=30")).body for _ in range(20)]
        assert got == [b"%d" % number for number in range(20)]
    assert not await bench.items("orders")
    assert "Basic" not in (await bench.get(answer.headers["Location"])).text


async def test_the_authorization_goes_to_no_other_host(
    bench: RestBench, to: Target
) -> None:
    async with target() as other:
        moved = web.Response(status=307, headers={"Location": other.url})
        to.answers.append(moved)
        answer = await subscribe(bench, to.url, Push_Authorization="Bearer 1")
        assert answer.status == 201
        await bench.post("/queues/orders/messages", b"1")
        first, _ = await to.next()
        second, _ = await other.next()
        assert first.headers["Authorization"] == "Bearer 1"
        assert "Authorization" not in second.headers


async def test_an_unknown_outcome_is_asked_for_at_the_same_link(
    bench: RestBench, to: Target
) -> None:
    """U5: also by the next process, since the link is on disk before it is used."""
    first = web.Response(headers={"Link": '</in/1>; rel="create-next"'})
    to.answers += [first, 500, 405]
    location = await made(bench, to.url, "post-message-once")
    await bench.post("/queues/orders/messages", b"1")
    paths = [(await to.next())[0].path for _ in range(3)]
    assert paths == ["/in", "/in/1", "/in/1"]
    await until_shown(bench, location, failures=0)
    await bench.until_items("orders", 0)


async def test_a_subscriber_that_fails_too_often_is_disabled(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U8: it is visible, and can be enabled again."""
    monkeypatch.setattr(bounds, "PUSH_FAILURES_MAX", 2)
    to.answers += [500, 500]
    location = await made(bench, to.url)
    await bench.post("/queues/orders/messages", b"1")
    found = await until_shown(bench, location, enabled=False)
    assert "answered 500" in found["reason"]
    assert await to.bodies(2) == [b"1", b"1"]
    again = await bench.post(
        location, b"enabled=true", Content_Type="application/x-www-form-urlencoded"
    )
    assert again.status == 204
    assert await to.bodies(1) == [b"1"]
    await until_shown(bench, location, enabled=True, failures=0, reason="")
    assert (await bench.post(location, b"enabled=perhaps")).status == 400
    assert (await bench.post(location, b"enabled=false")).status == 204
    assert not (await shown(bench, location))["enabled"]


async def test_a_subscriber_whose_end_cannot_be_written_holds_no_message(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each message that it is still given is locked, and pushed by nobody."""
    location = await made(bench, to.url)
    await bench.post("/queues/orders/messages", b"1")
    await to.bodies(1)
    await bench.until_items("orders", 0)
    pushers = bench.rest.pushers
    (pusher,) = pushers.of("orders", f"alice@{DOMAIN}")

    async def forbidden(_request: object) -> None:
        raise Refusal("you may not subscribe", condition="forbidden", type="auth")

    async def unwritten(_change: object) -> None:
        raise Refusal(
            "the disk is full", condition="internal-server-error", type="wait"
        )

    with monkeypatch.context() as patch:
        patch.setattr(pusher, "ask", forbidden)
        patch.setattr(pushers, "save", unwritten)
        pusher.start()
        await until_shown(bench, location, enabled=False)
        assert not pusher.is_running
    await bench.post("/queues/orders/messages", b"2")
    (item,) = (await bench.items("orders")).values()
    assert item.state is ItemState.AVAILABLE
    form = "application/x-www-form-urlencoded"
    assert (
        await bench.post(location, b"enabled=true", Content_Type=form)
    ).status == 204
    assert await to.bodies(1) == [b"2"]


async def push_counts(bench: RestBench) -> dict[str, int]:
    """The counts of push that are not 0."""
    counts = json.loads((await bench.get("/queues/orders")).body)["counts"]
    return {
        name.removeprefix("push_"): count
        for name, count in counts.items()
        if name.startswith("push_") and count
    }


async def test_subscribers_and_attempts_are_counted(
    bench: RestBench, to: Target
) -> None:
    """U8: `queue stats` shows the same counts as the queue's own page."""
    busy = web.Response(status=503, headers={"Retry-After": "0"})
    to.answers += [500, 200, 400, busy, 403]
    location = await made(bench, to.url)
    for number in range(4):
        await bench.post("/queues/orders/messages", f"{number}".encode())
    await until_shown(bench, location, enabled=False)
    (port,) = free_ports(1)
    down = await made(bench, f"http://127.0.0.1:{port}/")
    await until_failed(bench, down)
    counted = await push_counts(bench)
    assert counted.pop("attempts_unsent") >= 1
    assert counted == {
        "enabled": 1,
        "disabled": 1,
        "attempts_failed": 1,
        "attempts_accepted": 1,
        "attempts_rejected": 1,
        "attempts_released": 1,
        "attempts_disabled": 1,
    }
    await bench.ask(Delete("orders"))
    await bench.create("orders")
    assert await push_counts(bench) == {}


@pytest.mark.parametrize("status", [401, 406])
async def test_a_status_that_cannot_change_disables_at_once(
    bench: RestBench, to: Target, status: int
) -> None:
    """U7."""
    to.answers.append(status)
    location = await made(bench, to.url)
    await bench.post("/queues/orders/messages", b"1")
    await until_shown(bench, location, enabled=False)
    # The message has not failed.
    (item,) = (await bench.items("orders")).values()
    assert item.delivery_count == 0


async def test_a_message_that_is_refused_is_dead(bench: RestBench, to: Target) -> None:
    """U7: and the next one is pushed."""
    to.answers.append(422)
    await made(bench, to.url)
    for body in (b"1", b"2"):
        await bench.post("/queues/orders/messages", body)
    assert await to.bodies(2) == [b"1", b"2"]
    counts = json.loads((await bench.get("/queues/orders")).body)["counts"]
    assert counts["dead"] == 1


async def test_a_target_that_is_busy_says_when(bench: RestBench, to: Target) -> None:
    """U7: 503 with Retry-After; the message has not failed."""
    to.answers.append(web.Response(status=503, headers={"Retry-After": "0"}))
    location = await made(bench, to.url)
    await bench.post("/queues/orders/messages", b"1")
    assert await to.bodies(2) == [b"1", b"1"]
    assert (await shown(bench, location))["failures"] == 0


async def test_a_target_that_is_down_makes_no_message_dead(bench: RestBench) -> None:
    """A message that was never sent has not failed, however often that is tried."""
    async with target() as first:
        port, href = first.port, first.url
    location = await made(bench, href)
    await bench.post("/queues/orders/messages", b"1")
    await until_failed(bench, location)
    async with target(port) as to:
        assert await to.bodies(1) == [b"1"]
    await until_shown(bench, location, failures=0)


async def test_a_subscriber_survives_a_restart(tmp_path: Path, to: Target) -> None:
    """U1: so do its lock and its link."""
    first = web.Response(headers={"Link": '</in/1>; rel="create-next"'})
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders")
        to.answers += [first, 500]
        await made(bench, to.url, "post-message-once")
        await bench.post("/queues/orders/messages", b"1")
        assert [(await to.next())[0].path for _ in range(2)] == ["/in", "/in/1"]
    async with rest(tmp_path, push=LOOPBACK) as bench:
        request, body = await to.next()
        assert (request.path, body) == ("/in/1", b"1")
        (listed,) = json.loads((await bench.get("/queues/orders/subscribers")).body)
        assert listed["enabled"]


async def test_what_is_on_its_way_at_a_restart_has_not_failed(
    tmp_path: Path, to: Target
) -> None:
    """Its lock goes on: one failed delivery would make it dead here."""
    first = web.Response(headers={"Link": '</in/1>; rel="create-next"'})
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="1")
        to.answers += [first, None]
        await made(bench, to.url, "post-message-once")
        await bench.post("/queues/orders/messages", b"1")
        await to.bodies(2)
    async with rest(tmp_path, push=LOOPBACK) as bench:
        request, body = await to.next()
        assert (request.path, body) == ("/in/1", b"1")


async def test_a_subscriber_ends_with_its_queue(bench: RestBench, to: Target) -> None:
    """U1: also one that is disabled, and so not told of its end."""
    to.answers.append(403)
    disabled = await made(bench, to.url)
    await bench.post("/queues/orders/messages", b"1")
    await until_shown(bench, disabled, enabled=False)
    location = await made(bench, to.url)
    await to.bodies(2)
    await bench.ask(Delete("orders"))
    assert (await bench.get(location)).status == 404
    assert (await bench.get(disabled)).status == 404
    await bench.create("orders")
    assert json.loads((await bench.get("/queues/orders/subscribers")).body) == []


async def test_nothing_is_pushed_where_only_the_service_can_go(tmp_path: Path) -> None:
    """U9: closed by default."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        for href in (
            "http://127.0.0.1:1/",
            "https://127.0.0.1:8443/",
            "https://[::1]:8443/",
            "https://169.254.169.254/",
            "http://example.org/",
            "https://2130706433/",
            "ftp://example.org/",
        ):
            answer = await subscribe(bench, href)
            assert answer.status == 400, (href, answer)
            assert "nothing is pushed to this href" in answer.text


async def test_a_name_is_checked_when_it_is_resolved(tmp_path: Path) -> None:
    """U9: localhost is a name like any other until then."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        location = await made(bench, "https://localhost:8443/")
        await bench.post("/queues/orders/messages", b"1")
        found = await until_shown(bench, location, enabled=False)
        assert "an address that is loopback" in found["reason"]


async def test_the_number_of_subscribers_is_bounded(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PUSH_PER_ACCOUNT_MAX", 1)
    await made(bench, to.url)
    answer = await subscribe(bench, to.url)
    assert answer.status == 507
    assert "as many push subscribers" in answer.text


async def test_who_may_not_consume_may_not_subscribe(
    bench: RestBench, to: Target
) -> None:
    answer = await subscribe(bench, to.url, user="bob")
    assert answer.status in {403, 404}
    assert (await bench.post("/queues/none/subscribers", atom(to.url))).status == 404
    wrong = await bench.post("/queues/orders/subscribers", b"{}", Content_Type="a/b")
    assert wrong.status == 415


RING = {"post-message": "messages", "post-message-once": "once", "destination": ""}


async def until_dead(bench: RestBench, node: str) -> Item:
    """The one item of a queue, once it is dead."""
    await bench.until_items(node, 1, "dead")
    (item,) = (await bench.items(node, "dead")).values()
    return item


@pytest.mark.parametrize("rel", RING)
async def test_a_queue_that_is_pushed_into_itself_has_an_end(
    bench: RestBench, rel: str
) -> None:
    """After so many hops the message is dead, and says why."""
    here = f"http://127.0.0.1:{bench.web}/queues/orders/{RING[rel]}".rstrip("/")
    answer = await subscribe(bench, here, rel, Push_Authorization=basic("alice"))
    assert answer.status == 201, answer
    await bench.post("/queues/orders/messages", b"1", Msg_Properties="color=red")
    item = await until_dead(bench, "orders")
    assert item.properties["qos_hops"] == HOPS_MAX
    assert item.properties["color"] == "red"
    assert "forwarded 16 times" in item.history[-1].reason
    counts = json.loads((await bench.get("/queues/orders")).body)["counts"]
    assert (counts["push_attempts_accepted"], counts["available"]) == (HOPS_MAX, 0)
    assert counts["push_enabled"] == 1


async def test_a_topic_that_is_pushed_into_itself_has_an_end(bench: RestBench) -> None:
    """A copy counts as its item does."""
    await bench.create("news", node_type="topic")
    await bench.create("copies", topic="news")
    here = f"http://127.0.0.1:{bench.web}/topics/news/messages"
    answer = await bench.post(
        "/queues/copies/subscribers",
        atom(here),
        Content_Type=ATOM,
        Push_Authorization=basic("alice"),
    )
    assert answer.status == 201, answer
    await bench.post("/topics/news/messages", b"1")
    item = await until_dead(bench, "copies")
    assert item.properties["qos_hops"] == HOPS_MAX


async def test_a_ring_of_services_and_dead_letters_has_an_end(tmp_path: Path) -> None:
    """From here to there, where all dies, and from the dead letters back here."""
    (tmp_path / "other").mkdir()
    async with (
        rest(tmp_path, push=LOOPBACK) as bench,
        rest(tmp_path / "other", push=LOOPBACK) as other,
    ):
        await bench.create("orders")
        await other.create("graves")
        await other.create("orders", dead_letter_node="graves", ttl="0.01")
        for one, node, to in (
            (bench, "orders", other),
            (other, "graves", bench),
        ):
            there = f"http://127.0.0.1:{to.web}/queues/orders/messages"
            answer = await one.post(
                f"/queues/{node}/subscribers",
                atom(there),
                Content_Type=ATOM,
                Push_Authorization=basic("alice"),
            )
            assert answer.status == 201, answer
        await bench.post("/queues/orders/messages", b"1")
        item = await until_dead(bench, "orders")
        assert item.properties["qos_hops"] == HOPS_MAX
