"""Bodies: read after the rights are known, in room that is taken as their bytes come."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from cheap_passwords import cheap_hash
from qos.core.payers import Rates
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.rest import bounds
from qos.rest.route import Need, Route
from qos.rest.routes import PATHS, ROUTES
from qos.testing import ManualClock
from raw_http import AUTH, Raw
from rest_bench import RestBench, basic, rest
from waiting import until

POST = "/queues/orders/messages"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, creators=[f"alice@{DOMAIN}"]) as bench:
        await bench.create("orders")
        await bench.create("prices", node_type="topic")
        rights = {f"bob@{DOMAIN}": Affiliation.PUBLISHER}
        await bench.ask(SetAffiliations("orders", rights))
        lines = bench.users_file.read_text()
        secret = cheap_hash("secret")
        bench.users_file.write_text(f"{lines}carol:{secret}\neve:{secret}\n")
        yield bench


def head(path: str, *headers: str, user: str = "alice", method: str = "POST") -> bytes:
    """A request without its body."""
    lines = (
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Authorization: {basic(user)}",
        *headers,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def given_up(clock: ManualClock) -> None:
    """Let the time pass in which the rest of a body is thrown away."""
    await until(lambda: clock.deadline() is not None)
    clock.advance(bounds.DRAIN_S)


# -- rights come first -----------------------------------------------------


#: The values of the variables of all paths.
PATH = {
    "node": "orders",
    "jid": "lamp@localhost%2F1",
    "mode": "client-ack",
    "queue": "audit",
}

#: Each route whose body is read, with each method that has one.
WITH_BODY = [
    (route, method)
    for route in ROUTES.values()
    for method in route.methods
    if method in {"POST", "PUT"}
]


def path_of(route: Route) -> str:
    template = PATHS[route.name].template
    node = "prices" if "/topics/" in template else "orders"
    names = ("item", "link", "subscriber", "etag", "id", "consumer", "delivery")
    return template.format_map({**dict.fromkeys(names, "x"), **PATH, "node": node})


@pytest.mark.parametrize("asks", [False, True], ids=["sends", "asks"])
async def test_without_a_right_no_body_is_read(
    bench: RestBench, body_clock: ManualClock, asks: bool
) -> None:
    """The answer comes at once, though nothing of the body ever does."""
    expect = ("Expect: 100-continue",) if asks else ()
    size = f"Content-Length: {bounds.BATCH_BYTES_MAX}"
    for route, method in WITH_BODY:
        request = head(path_of(route), size, *expect, user="eve", method=method)
        async with Raw(bench) as raw:
            raw.writer.write(request)
            # No time passes, in which a body could come.
            answer = await raw.head()
            await given_up(body_clock)
            # It ends the connection, and has no timer any more.
            await raw.rest()
        assert answer[9:12] in {b"403", b"404", b"412"}, (route.name, method, answer)
        assert b"\r\nConnection: close\r\n" in answer, (route.name, method, answer)


def test_each_route_with_a_body_needs_a_right() -> None:
    for route, _ in WITH_BODY:
        assert route.need is not Need.LOGIN, route.name


async def test_without_a_password_no_body_is_read(
    bench: RestBench, body_clock: ManualClock
) -> None:
    async with Raw(bench) as raw:
        line = f"POST {POST} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        raw.writer.write(f"{line}Expect: 100-continue\r\n\r\n".encode())
        assert (await raw.head())[9:12] == b"401"
        await given_up(body_clock)


async def test_a_link_of_another_user_is_refused_before_its_body(
    bench: RestBench, body_clock: ManualClock
) -> None:
    """Also of one who may publish."""
    link = (await bench.post("/queues/orders/once")).link("create-next")
    async with Raw(bench) as raw:
        raw.writer.write(head(link, "Content-Length: 100000", user="bob"))
        assert (await raw.head())[9:12] == b"404"
        await given_up(body_clock)


async def test_hornetq_s_create_sends_on_before_the_body(
    bench: RestBench, body_clock: ManualClock
) -> None:
    """A redirected body is sent to the other URL, and is not read here."""
    async with Raw(bench) as raw:
        path = "/hornetq/queues/jms.queue.orders/create"
        raw.writer.write(head(path, "Content-Length: 100000"))
        answer = await raw.head()
        await given_up(body_clock)
        assert answer[9:12] == b"307"
        assert b"Location: http://x/hornetq/queues/orders/create/" in answer


async def test_the_body_of_a_get_is_not_read(
    bench: RestBench, body_clock: ManualClock
) -> None:
    """RFC 9110 §9.3.1: it means nothing."""
    async with Raw(bench) as raw:
        size = f"Content-Length: {bounds.BATCH_BYTES_MAX}"
        raw.writer.write(head("/queues/orders", size, method="GET"))
        assert (await raw.head())[9:12] == b"200"
        await given_up(body_clock)


async def test_a_client_that_only_sends_gets_its_refusal(bench: RestBench) -> None:
    """The body is thrown away, and the connection goes on."""
    body = b"x" * bounds.BODY_BYTES_MAX
    size = f"Content-Length: {len(body)}"
    async with Raw(bench) as raw:
        for _ in range(3):
            raw.writer.write(head(POST, size, user="eve") + body)
            await raw.writer.drain()
            answer = await raw.head()
            assert answer[9:12] == b"404"
            assert b"Connection: close" not in answer
            await raw.reader.readexactly(26)


async def test_a_body_that_is_not_wanted_is_not_thrown_away_for_ever(
    bench: RestBench, body_clock: ManualClock
) -> None:
    async with Raw(bench) as slow, Raw(bench) as large:
        slow.writer.write(head(POST, "Content-Length: 100", user="eve") + b"x")
        assert (await slow.head())[9:12] == b"404"
        await given_up(body_clock)
        await slow.rest()
        chunked = "Transfer-Encoding: chunked"
        large.writer.write(head(POST, chunked, user="eve"))
        assert (await large.head())[9:12] == b"404"
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64:
                large.writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await large.writer.drain()
                sent += 1
                await asyncio.sleep(0.01)
        assert sent < 64


async def test_bodies_that_are_not_wanted_are_paid_for(tmp_path: Path) -> None:
    """They cost the service the same as others."""
    (tmp_path / "own").mkdir()
    async with rest(tmp_path / "own", rates=Rates(requests=0, bytes=1000)) as own:
        await own.create("orders")
        assert (await own.post(POST, b"x" * 10_000, user="bob")).status == 404
        assert (await own.post(POST, b"x", user="bob")).status == 429


# -- how a body comes ------------------------------------------------------


async def test_a_broken_body_is_refused(bench: RestBench) -> None:
    async with Raw(bench) as raw:
        head = "POST /queues/orders/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        raw.writer.write(f"{head}{AUTH}\r\nzz\r\n".encode())
        assert b"400" in (await raw.rest())[:20]
    assert not await bench.items("orders")


async def test_a_body_without_a_length_is_bounded(bench: RestBench) -> None:
    async with Raw(bench) as raw:
        head = "POST /queues/orders/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        raw.writer.write(f"{head}{AUTH}\r\n".encode())
        for _ in range(20):
            raw.writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        assert b"413" in (await raw.rest())[:20]


async def test_a_client_that_asks_whether_to_go_on_is_told_so(bench: RestBench) -> None:
    async with Raw(bench) as raw:
        head = "POST /queues/orders/messages HTTP/1.1\r\nContent-Length: 1\r\n"
        raw.writer.write(
            f"{head}Expect: 100-continue\r\nConnection: close\r\n{AUTH}\r\n".encode()
        )
        said = await raw.reader.readuntil(b"\r\n\r\n")
        raw.writer.write(b"1")
        assert (await raw.rest()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert said == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_a_client_of_http_1_0_is_told_nothing_before_its_answer(
    bench: RestBench, body_clock: ManualClock
) -> None:
    """RFC 9110 §10.1.1."""
    async with Raw(bench) as raw:
        line = f"POST {POST} HTTP/1.0\r\nContent-Length: 1\r\n"
        raw.writer.write(f"{line}Expect: 100-continue\r\n{AUTH}\r\n".encode())
        # The body is read, and it would have been told before that.
        await until(lambda: body_clock.deadline() is not None)
        raw.writer.write(b"1")
        assert (await raw.rest())[:12] == b"HTTP/1.0 200"


async def test_nothing_is_read_where_nothing_is_expected(
    bench: RestBench, body_clock: ManualClock
) -> None:
    for path in ("/queues/orders/once", "/queues/orders/consumer"):
        async with Raw(bench) as raw:
            raw.writer.write(head(path, "Content-Length: 100000"))
            assert (await raw.head())[9:12] == b"400"
            await given_up(body_clock)
        async with Raw(bench) as raw:
            raw.writer.write(head(path, "Transfer-Encoding: chunked") + b"1\r\nx\r\n")
            assert (await raw.head())[9:12] == b"400"
            await given_up(body_clock)


async def test_a_body_comes_at_a_minimum_speed(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch, body_clock: ManualClock
) -> None:
    monkeypatch.setattr(bounds, "BODY_START_S", 0.3)
    monkeypatch.setattr(bounds, "BODY_BYTES_PER_S_MIN", 10_000)
    async with Raw(bench) as slow, Raw(bench) as fast:
        for raw in (slow, fast):
            raw.writer.write(head(POST, "Content-Length: 20000"))
        slow.writer.write(b"x" * 100)
        for number in range(9):
            fast.writer.write(b"x" * 2000)
            await has_come(bench, "alice", 2000 * (number + 1))
            body_clock.advance(0.1)
        fast.writer.write(b"x" * 2000)
        assert (await fast.head())[9:12] == b"200"
        assert (await slow.rest())[9:12] == b"408"


# -- room ------------------------------------------------------------------


def begin(raw: Raw, user: str, size: int, more: int = 100) -> None:
    """Send this many bytes of a body, and not yet the last ones."""
    length = f"Content-Length: {size + more}"
    raw.writer.write(head(POST, length, user=user) + b"x" * size)


async def come(bench: RestBench, raw: Raw, user: str, size: int) -> None:
    """The same; returns when they have come, and take room."""
    begin(raw, user, size)
    await has_come(bench, user, size)


async def has_come(bench: RestBench, user: str, size: int) -> None:
    """Wait until so much of the bodies of a user takes room."""
    assert bench.rest._http is not None
    room = bench.rest._http._room
    await until(lambda: room._bytes[f"{user}@{DOMAIN}"] >= size)


async def test_a_body_that_does_not_come_takes_no_room(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users could otherwise block every post: by saying how large theirs will be."""
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 2 * bounds.BATCH_BYTES_MAX)
    raws = [Raw(bench) for _ in range(8)]
    for each in raws:
        await each.__aenter__()
    for raw, user in zip(raws, ("bob", "alice") * 4, strict=True):
        size = f"Content-Length: {bounds.BATCH_BYTES_MAX}"
        raw.writer.write(head("/queues/orders/batches", size, user=user))
    assert bench.rest._http is not None
    bodies = bench.rest._http._room._bodies

    def are_awaited() -> int:
        """The bodies that may come now."""
        every = [each for its in bodies.values() for each in its]
        return sum(each.limit is not None for each in every)

    await until(lambda: are_awaited() == len(raws))
    assert (await bench.post(POST, b"x" * bounds.BODY_BYTES_MAX)).status == 200
    for each in raws:
        await each.__aexit__()


async def test_one_user_has_half_of_the_room(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 2000)
    async with Raw(bench) as first, Raw(bench) as second:
        await come(bench, first, "alice", 600)
        begin(second, "alice", 600)
        answer = await second.head()
        assert answer[9:12] == b"429"
        assert b"Retry-After: 5" in answer
        assert (await bench.post(POST, b"x" * 900, user="bob")).status == 200
        first.writer.write(b"x" * 100)
        assert (await first.head())[9:12] == b"200"
    # What was in memory is not counted any more.
    assert (await bench.post(POST, b"x" * 900)).status == 200


async def test_whoever_holds_most_makes_room_for_others(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users that fill it with bodies that never end block nobody."""
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 2000)
    await bench.ask(
        SetAffiliations("orders", {f"carol@{DOMAIN}": Affiliation.PUBLISHER})
    )
    async with Raw(bench) as most, Raw(bench) as less:
        await come(bench, most, "alice", 990)
        await come(bench, less, "bob", 980)
        assert (await bench.post(POST, b"x" * 100, user="carol")).status == 200
        answer = await most.head()
        assert answer[9:12] == b"503"
        assert b"Retry-After: 2" in answer
        less.writer.write(b"x" * 100)
        assert (await less.head())[9:12] == b"429"


async def test_whoever_would_hold_most_finds_no_room(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 1000)
    await bench.ask(
        SetAffiliations("orders", {f"carol@{DOMAIN}": Affiliation.PUBLISHER})
    )
    async with Raw(bench) as first, Raw(bench) as second:
        await come(bench, first, "alice", 400)
        await come(bench, second, "bob", 400)
        refused = await bench.post(POST, b"x" * 450, user="carol")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        for each in (first, second):
            each.writer.write(b"x" * 100)
        assert b"200" in (await first.head())[9:12] + (await second.head())[9:12]
