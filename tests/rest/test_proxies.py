"""The service, its workers and its push targets behind the proxies that people have."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from qos.core.rest.batches import reading_batch
from qos.core.rest.msg_properties import read_properties
from qos.core.rest.waits import WAIT_S_MAX
from qos.steps import at_once
from rest_bench import Response, RestBench, basic, rest
from test_pushing import ATOM, LOOPBACK, Target, atom, target
from waiting import LIMIT_S, until
from web_proxies import PROXIES, proxy

PART = "multipart/mixed"


@dataclass(frozen=True)
class Front:
    """A service behind a proxy.

    Attributes:
        bench: the service.
        url: of the proxy.
    """

    bench: RestBench
    url: str

    async def post(self, path: str, body: bytes = b"", **headers: str) -> Response:
        """The answer to a post through the proxy."""
        return await self.bench.post(f"{self.url}{path}", body, **headers)

    async def counts(self) -> tuple[int, int]:
        """The messages that are there, and those that are dead."""
        items = await self.bench.items("orders")
        return len(items), len(await self.bench.items("orders", "dead"))


@pytest.fixture(params=PROXIES)
async def front(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Front]:
    """With one failed delivery a message is dead."""
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="1")
        folder = tmp_path / "proxy"
        async with proxy(request.param, folder, bench.web) as url:
            yield Front(bench, url)


@pytest.fixture(params=PROXIES)
async def hidden(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Target, str]]:
    """A push target behind a proxy, and its URL."""
    async with target() as to:
        folder = tmp_path / "before-target"
        async with proxy(request.param, folder, to.port) as url:
            yield to, f"{url}/in"


def body_of(taken: Response) -> bytes:
    """The body of a message in a part."""
    (part,) = at_once(reading_batch(taken.body, taken.headers["Content-Type"]))
    return part.body


@pytest.mark.parametrize("size", [10, 2000, 5000, 7900])
async def test_a_worker_behind_a_proxy_takes_messages_with_properties_of_any_size(
    front: Front, size: int
) -> None:
    """Or is told how to: the proxy would answer 502, and the message would be dead."""
    posted = await front.post(
        "/queues/orders/messages", b"1", Msg_Properties=f'n="{"x" * size}"'
    )
    assert posted.status == 200
    plain = await front.post("/queues/orders/consumer")
    assert plain.status == (200 if size <= 2000 else 406), plain
    if plain.status == 406:
        assert await front.counts() == (1, 0)
        plain = await front.post("/queues/orders/consumer", Accept=PART)
        assert body_of(plain) == b"1"
        (part,) = at_once(reading_batch(plain.body, plain.headers["Content-Type"]))
        assert read_properties(part.headers["msg-properties"]) == {"n": "x" * size}
    ended = await front.post(plain.link("acknowledgement"), b"acknowledge=true")
    assert ended.status == 204
    assert await front.counts() == (0, 0)


@pytest.mark.long
async def test_a_worker_behind_a_proxy_waits_as_long_as_it_may(front: Front) -> None:
    """Not 504: the service answers before the proxy does."""
    timeout = aiohttp.ClientTimeout(total=WAIT_S_MAX + LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as front.bench.session:
        answer = await front.post("/queues/orders/consumer", Prefer="wait=60")
    assert answer.status == 202, answer
    assert answer.headers["Preference-Applied"] == f"wait={WAIT_S_MAX}"


async def test_a_worker_behind_a_proxy_is_told_of_a_message_at_once(
    front: Front,
) -> None:
    asking = asyncio.create_task(
        front.post("/queues/orders/consumer", Prefer="wait=60")
    )
    await until(lambda: front.bench.rest.consumers)
    await front.post("/queues/orders/messages", b"1")
    taken = await asking
    assert taken.body == b"1"


async def test_a_name_with_a_slash_passes_through_a_proxy(front: Front) -> None:
    await front.bench.create("a/b ü")
    path = "/queues/a%2Fb%20%C3%BC"
    assert (await front.post(f"{path}/messages", b"1")).status == 200
    taken = await front.post(f"{path}/consumer")
    assert taken.body == b"1"
    ended = await front.post(taken.link("acknowledgement"), b"acknowledge=true")
    assert ended.status == 204


@pytest.mark.parametrize("name", PROXIES)
async def test_a_service_below_a_path_of_a_proxy_is_found_by_its_links(
    name: str, tmp_path: Path
) -> None:
    """nginx passes the path on as it came, haproxy leaves the prefix out."""
    # As the clients call the service, by a name that only they know.
    async with rest(tmp_path, base="https://example.org/team/mq") as bench:
        await bench.create("orders")
        folder = tmp_path / "proxy"
        async with proxy(name, folder, bench.web, prefix="/team/mq") as url:
            site = url.removesuffix("/team/mq")

            async def post(path: str, body: bytes = b"") -> Response:
                return await bench.post(f"{site}{path}", body)

            shown = await bench.get(f"{site}/team/mq/queues/orders")
            made = await post(shown.link("post-message-once"))
            posted = await post(made.link("create-next"), b"1")
            assert posted.status == 200
            seen = await bench.get(f"{site}{posted.headers['Content-Location']}")
            assert seen.body == b"1"
            taken = await post(shown.link("consumer"))
            done = await post(taken.link("acknowledgement"), b"acknowledge=true")
            assert (taken.body, done.status) == (b"1", 204)
            whole = await bench.get(f"{site}/team/mq/hornetq/queues/orders")
            href = whole.headers["msg-pull-consumers"]
            assert href.startswith("https://example.org/team/mq/hornetq/")
            pulls = href.removeprefix("https://example.org")
            assert (await post(pulls)).status == 201


async def test_a_push_target_behind_a_proxy_gets_each_message_once(
    tmp_path: Path, hidden: tuple[Target, str]
) -> None:
    """Its connections end after each message, when they are idle, or in the middle."""
    to, url = hidden
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="1")
        made = await bench.post(
            "/queues/orders/subscribers", atom(url), Content_Type=ATOM
        )
        assert made.status == 201
        bodies = [b"%d" % number for number in range(30)]
        for number, body in enumerate(bodies):
            properties = f'n="{"x" * (700 * (number % 8))}"'
            await bench.post("/queues/orders/messages", body, Msg_Properties=properties)
        assert await to.bodies(len(bodies)) == bodies
        await bench.until_items("orders", 0)
        counts = bench.rest.pushers.counts("orders")
        assert counts["push_attempts_accepted"] == len(bodies)
        assert not await bench.items("orders", "dead")


async def test_two_services_with_a_proxy_between_push_each_message_once(
    tmp_path: Path, front: Front
) -> None:
    """By one-off links; and the properties of the largest message arrive."""
    (tmp_path / "one").mkdir()
    async with rest(tmp_path / "one", push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="1")
        made = await bench.post(
            "/queues/orders/subscribers",
            atom(f"{front.url}/queues/orders/once", "post-message-once"),
            Content_Type=ATOM,
            Push_Authorization=basic("alice"),
        )
        assert made.status == 201
        for number in range(20):
            await bench.post(
                "/queues/orders/messages",
                b"%d" % number,
                Msg_Properties=f'n="{"x" * (400 * number)}"',
            )
        got = []
        for _ in range(20):
            taken = await front.post(
                "/queues/orders/consumer", Accept=PART, Prefer="wait=30"
            )
            got.append(body_of(taken))
            await front.post(taken.link("acknowledgement"), b"acknowledge=true")
        assert got == [b"%d" % number for number in range(20)]
        await bench.until_items("orders", 0)
        assert not await bench.items("orders", "dead")
        assert await front.counts() == (0, 0)
