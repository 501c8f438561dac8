"""HornetQ's push consumers.

The rows are those of docs/rest-checklist.md.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rest_bench import Response, RestBench, basic, rest

PUSH = "/hornetq/queues/orders/push-consumers"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, push=["127.0.0.1"]) as bench:
        await bench.create("orders")
        await bench.create("bills")
        yield bench


async def register(bench: RestBench, inner: str) -> Response:
    body = f"<push-registration>{inner}</push-registration>".encode()
    return await bench.post(PUSH, body, Content_Type="application/xml")


def authentication(password: str) -> str:
    return (
        "<authentication><basic-auth><username>alice</username>"
        f"<password>{password}</password></basic-auth></authentication>"
    )


async def test_messages_are_pushed_to_a_destination_of_hornetq(
    bench: RestBench,
) -> None:
    """H14: HEAD of the destination, then create-with-id: once, whatever is repeated."""
    target = f"http://127.0.0.1:{bench.web}/hornetq/queues/bills"
    link = f"<link rel='destination' href='{target}'/>"
    made = await register(bench, link + authentication("secret"))
    assert made.status == 201, made
    assert PUSH in made.headers["Location"]
    for body in (b"1", b"2"):
        sent_on = await bench.post("/hornetq/queues/orders/create", body)
        posted = await bench.post(
            sent_on.headers["Location"], body, Content_Type="text/plain"
        )
        assert posted.status == 201
    await bench.until_items("bills", 2)
    await bench.until_items("orders", 0)
    taken = await bench.take("bills")
    assert (taken.body, taken.headers["Content-Type"]) == (b"1", "text/plain")


async def test_only_messages_of_its_selector_are_pushed(bench: RestBench) -> None:
    """H14: the others stay."""
    target = f"http://127.0.0.1:{bench.web}/hornetq/queues/bills"
    made = await register(
        bench,
        f"<link rel='destination' href='{target}'/><selector>http_n = 'x'</selector>"
        + authentication("secret"),
    )
    assert made.status == 201, made
    assert (
        b"<selector>http_n = 'x'</selector>"
        in (await bench.get(made.headers["Location"])).body
    )
    for number, name in enumerate("yx"):
        path = f"/hornetq/queues/orders/create/{number}"
        assert (await bench.post(path, b"m", N=name)).status == 201
    await bench.until_items("bills", 1)
    await bench.until_items("orders", 1)
    assert (await bench.items("orders")).keys() == {"0"}


async def test_messages_of_a_topic_are_pushed(bench: RestBench) -> None:
    """H14: by a queue of its own, which ends with its subscription."""
    answer = await bench.post(
        "/hornetq/topics",
        b"<topic name='news'/>",
        Content_Type="application/hornetq.jms.topic+xml",
    )
    assert answer.status == 201, answer
    target = f"http://127.0.0.1:{bench.web}/hornetq/queues/bills"
    inner = f"<link rel='destination' href='{target}'/>" + authentication("secret")
    made = await bench.post(
        "/hornetq/topics/news/push-subscriptions",
        f"<push-registration>{inner}</push-registration>".encode(),
        Content_Type="application/xml",
    )
    assert made.status == 201, made
    path = "/hornetq/queues/news/create/1"
    assert (await bench.post(path, b"new")).status == 201
    await bench.until_items("bills", 1)
    location = made.headers["Location"]
    assert target in (await bench.get(location)).text
    assert (await bench.get(location, user="bob")).status == 404
    assert (await bench.http("DELETE", location)).status == 204
    assert (await bench.get(location)).status == 404
    assert (await bench.post("/hornetq/queues/news/create/2", b"2")).status == 201
    await bench.until_items("bills", 1)


async def test_a_template_has_the_id_of_the_message(bench: RestBench) -> None:
    """H14: rel template, and headers of the registration."""
    href = f"http://127.0.0.1:{bench.web}/hornetq/queues/bills/create/{{id}}"
    inner = f"<link rel='template' href='{href}'/><header name='X-From'>here</header>"
    made = await register(bench, inner + authentication("secret"))
    assert made.status == 201, made
    assert (await bench.post("/hornetq/queues/orders/create/1", b"1")).status == 201
    await bench.until_items("bills", 1)
    ((item_id, item),) = (await bench.items("bills")).items()
    assert item_id.startswith(made.headers["Location"].rpartition("/")[2])
    assert item.properties["http_x$from"] == "here"


async def test_a_push_consumer_is_shown_and_deleted(bench: RestBench) -> None:
    """H14: without its password."""
    href = "http://127.0.0.1:9/in"
    made = await register(
        bench, f"<link rel='push' href='{href}'/>" + authentication("geheim")
    )
    location = made.headers["Location"]
    shown = await bench.get(location)
    assert shown.headers["Content-Type"] == "application/xml"
    assert f'rel="push" href="{href}"' in shown.text
    assert "<username>alice</username>" in shown.text
    assert "password" not in shown.text
    assert basic("alice", "geheim").split()[1] not in shown.text
    assert (await bench.get(location, user="bob")).status == 404
    assert (await bench.http("DELETE", location)).status == 204
    for method in ("GET", "DELETE"):
        assert (await bench.http(method, location)).status == 404


async def test_a_registration_that_is_none_is_refused(bench: RestBench) -> None:
    """H14: and a target that nothing is pushed to."""
    for inner, says in [
        ("", "<link"),
        ("<link rel='x' href='http://192.0.2.1/'/>", "nothing is pushed"),
        ("<link rel='x' href='http://127.0.0.1/' method='GET'/>", "POST or PUT"),
    ]:
        answer = await register(bench, inner)
        assert (answer.status, says in answer.text) == (400, True), answer
    plain = await bench.post(PUSH, b"<push-registration/>", Content_Type="text/plain")
    assert plain.status == 415
