"""Messages whose headers are larger than what proxies take: no answer has them.

A proxy answers 502 in its place: the service would believe that the message is taken, and
after some deliveries it would be dead.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qos.core.queue.item import ItemState
from qos.core.rest.batches import Part, reading_batch
from qos.core.rest.header_room import HEADERS_BYTES_MAX
from qos.core.rest.link_header import read_links
from qos.core.rest.msg_properties import read_properties
from qos.rest.paths import url
from qos.steps import at_once
from rest_bench import Response, RestBench, rest

TAKE = "/queues/orders/consumer"
PART = "multipart/mixed"
LARGE = f'n="{"x" * 5000}"'


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path) as bench:
        await bench.create("orders", max_deliveries="1")
        yield bench


async def publish(
    bench: RestBench, node: str = "/queues/orders", properties: str = LARGE
) -> None:
    answer = await bench.post(
        f"{node}/messages",
        b"1",
        Content_Type="text/plain",
        Msg_Properties=properties,
        Link="</a>; rel=up",
    )
    assert answer.status == 200, answer


def head_size(answer: Response) -> int:
    """The bytes before the body of an answer."""
    lines = sum(len(f"{name}: {value}") + 2 for name, value in answer.headers.items())
    return len("HTTP/1.1 200 Not Acceptable") + lines + 4


def part_of(answer: Response) -> Part:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"].startswith(f"{PART}; boundary=")
    assert head_size(answer) <= HEADERS_BYTES_MAX
    (part,) = at_once(reading_batch(answer.body, answer.headers["Content-Type"]))
    return part


async def test_a_plain_request_is_told_so_and_takes_nothing(bench: RestBench) -> None:
    """However often it comes: one failed delivery would make the message dead here."""
    await publish(bench)
    for _ in range(3):
        answer = await bench.post(TAKE)
        assert answer.status == 406
        assert f"Accept: {PART}" in answer.text
        assert head_size(answer) <= HEADERS_BYTES_MAX
        (item,) = (await bench.items("orders")).values()
        assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 0)
    assert not bench.rest.consumers


async def test_a_request_for_a_part_has_the_properties_in_the_body(
    bench: RestBench,
) -> None:
    """The delivery itself stays in the headers of the answer."""
    await publish(bench)
    taken = await bench.take(Accept=PART)
    part = part_of(taken)
    assert part.body == b"1"
    assert part.headers["content-type"] == "text/plain"
    assert read_properties(part.headers["msg-properties"]) == {"n": "x" * 5000}
    links = {each.rel: each.href for each in read_links(part.headers["link"])}
    assert links["up"] == "/a"
    assert "up" not in taken.links
    assert links["acknowledgement"] == taken.link("acknowledgement")
    assert taken.headers["Msg-Delivery-Count"] == "0"
    assert (await bench.settle(taken, "acknowledge=true")).status == 204


async def test_a_small_message_has_both_forms(bench: RestBench) -> None:
    await publish(bench, properties="n=1")
    taken = await bench.take()
    assert (taken.body, taken.headers["Msg-Properties"]) == (b"1", "n=1")
    await bench.settle(taken, "acknowledge=false")
    part = part_of(await bench.take(Accept=f"text/plain, {PART};q=0.1"))
    assert (part.body, part.headers["msg-properties"]) == (b"1", "n=1")


@pytest.mark.parametrize("size", range(2600, 3400, 100))
async def test_an_answer_is_never_larger_than_what_there_is_room_for(
    bench: RestBench, size: int
) -> None:
    """Links that nobody needs are left out before a message is not shown."""
    await publish(bench, properties=f'n="{"x" * size}"')
    answer = await bench.post(TAKE)
    assert head_size(answer) <= HEADERS_BYTES_MAX
    if answer.status == 200:
        assert "acknowledgement" in answer.links
        (item,) = (await bench.items("orders")).values()
        assert item.state is ItemState.ACQUIRED
    else:
        assert answer.status == 406


async def test_a_message_that_is_only_shown_has_both_forms(bench: RestBench) -> None:
    await publish(bench)
    (item,) = (await bench.items("orders")).values()
    path = url("message", node="orders", item=item.item_id)
    assert (await bench.get(path)).status == 406
    assert (await bench.http("HEAD", path)).status == 406
    assert part_of(await bench.get(path, Accept=PART)).body == b"1"


async def test_a_reader_of_a_topic_gets_past_a_message_that_is_too_large(
    bench: RestBench,
) -> None:
    await bench.create("news", node_type="topic")
    await publish(bench, "/topics/news")
    await publish(bench, "/topics/news", "n=2")
    first = await bench.get("/topics/news/first")
    assert first.status == 406
    assert (await bench.get(first.link("next"))).headers["Msg-Properties"] == "n=2"
    part = part_of(await bench.get("/topics/news/first", Accept=PART))
    assert read_properties(part.headers["msg-properties"]) == {"n": "x" * 5000}


@pytest.mark.parametrize("auto_ack", ["true", "false"])
async def test_a_consumer_of_hornetq_is_told_so_too(
    bench: RestBench, auto_ack: str
) -> None:
    """It has no properties, but all headers of the content that a publisher has given."""
    answer = await bench.post(
        "/queues/orders/messages",
        b"1",
        Content_Type=f"text/plain; a={'x' * 900}",
        Content_Encoding="y" * 1000,
        Content_Language=", ".join(["de-DE"] * 140),
        Link=f"</{'a' * 900}>; rel=up",
    )
    assert answer.status == 200, answer
    pull = "/hornetq/queues/orders/pull-consumers"
    made = await bench.post(pull, f"autoAck={auto_ack}".encode())
    rel = "msg-consume-next" if auto_ack == "true" else "msg-acknowledge-next"
    for _ in range(2):
        answer = await bench.post(made.headers[rel])
        assert answer.status == 406, answer
        (item,) = (await bench.items("orders")).values()
        assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 0)
    taken = await bench.post(made.headers[rel], Accept=PART)
    part = part_of(taken)
    assert (part.body, part.headers["content-encoding"]) == (b"1", "y" * 1000)
    assert "msg-consumer" in taken.headers


async def test_the_links_of_a_queue_with_a_long_name_are_in_the_body_too(
    bench: RestBench,
) -> None:
    """Its header has those that there is room for."""
    name = "n" * 700
    await bench.create(name)
    answer = await bench.get(url("queue", node=name))
    assert answer.status == 200
    assert head_size(answer) <= HEADERS_BYTES_MAX
    assert "post-message" in answer.links
    for rel in ("post-message-once", "consumer", "subscribers"):
        assert f'"{rel}"' in answer.text


async def test_requests_at_once_give_a_large_message_back(bench: RestBench) -> None:
    """Each its own delivery, and only that."""
    await publish(bench)
    both = [asyncio.create_task(bench.post(TAKE)) for _ in range(4)]
    statuses = {answer.status for answer in await asyncio.gather(*both)}
    assert statuses <= {202, 406}
    taken = await bench.take(Accept=PART, Prefer="wait=30")
    assert (await bench.settle(taken, "acknowledge=true")).status == 204
