"""A service below a path of a site: all its links begin with that path."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from qos.core.rest.origins import OWN_PATHS
from qos.rest.routes import PATHS
from rest_bench import Response, RestBench, rest
from test_pushing import ATOM, LOOPBACK, atom, target

BASE = "https://example.org/mq"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, base=BASE, push=LOOPBACK) as bench:
        await bench.create("orders")
        await bench.create("replies")
        await bench.create("news", node_type="topic")
        yield bench


def urls_of(answer: Response) -> list[str]:
    """All URLs of an answer, in its headers and its body."""
    urls = list(answer.links.values())
    for name, value in answer.headers.items():
        if name in {"Location", "Content-Location"} or "://" in value:
            urls.append(value)
    text = answer.body.decode(errors="replace")
    urls += re.findall(r"(?:href|location)(?:\": |=)[\"']([^\"']*)", text)
    urls += re.findall(r"<code>([^<]*)", text)
    if answer.headers.get("Content-Type") == "text/uri-list":
        urls += text.split()
    return urls


def check(answer: Response, *statuses: int, whole: bool = False) -> Response:
    """Check that all its links begin with the base, and that it has one."""
    assert answer.status in (statuses or (200, 201, 202)), answer
    urls = urls_of(answer)
    assert urls, answer
    for each in urls:
        assert each.startswith(f"{BASE}/" if whole else "/mq/"), answer
        assert "/mq/mq" not in each
    return answer


async def test_all_links_of_a_queue_begin_with_the_prefix(bench: RestBench) -> None:
    for kind in ("application/json", "application/xml", "text/html"):
        for path in ("/mq/", "/mq/queues/orders", "/mq/topics/news"):
            check(await bench.get(path, Accept=kind))
    shown = await bench.get("/mq/queues/orders", Accept="application/xml")
    assert ET.fromstring(shown.body).tag == "queue"  # noqa: S314 - ours


async def test_a_client_that_follows_links_stays_below_the_prefix(
    bench: RestBench,
) -> None:
    queue = check(await bench.get("/mq/queues/orders"))
    made = check(await bench.post(queue.link("post-message-once")))
    posted = check(await bench.post(made.link("create-next"), b"1"))
    again = check(await bench.post(made.link("create-next"), b"1"), 405)
    assert again.link("create-next") != posted.link("create-next")
    check(await bench.get(posted.headers["Content-Location"]))
    taken = check(await bench.post(queue.link("consumer")))
    assert taken.body == b"1"
    assert (await bench.settle(taken, "acknowledge=true")).status == 204
    nothing = check(await bench.post(queue.link("consumer")))
    assert nothing.headers["Location"] == nothing.link("poller")
    key = await bench.post(queue.link("post-message"), b"2", Idempotency_Key="k")
    assert key.headers["Content-Location"] == "/mq/queues/orders/messages/k"
    mixed = "multipart/mixed; boundary=b"
    body = b"--b\r\n\r\n3\r\n--b--"
    check(await bench.post(queue.link("post-batch"), body, Content_Type=mixed))
    wrong = await bench.get("/mq/topics/orders")
    assert (wrong.status, "/mq/queues/orders" in wrong.text) == (404, True)
    nowhere = await bench.get("/mq/none")
    assert (nowhere.status, "/mq/ has the links" in nowhere.text) == (404, True)


async def test_a_proxy_may_leave_the_prefix_out_of_the_requests(
    bench: RestBench,
) -> None:
    for path in ("/", "/queues/orders", "/topics/news", "/hornetq/queues/orders"):
        whole = path.startswith("/hornetq")
        check(await bench.get(path), whole=whole)
        check(await bench.get(f"/mq{path}"), whole=whole)


async def test_the_links_of_a_topic_begin_with_the_prefix(bench: RestBench) -> None:
    topic = check(await bench.get("/mq/topics/news"))
    await bench.post(topic.link("post-message"), b"1")
    first = check(await bench.get(topic.link("first")))
    check(await bench.get(first.link("next")))
    made = await bench.post(
        topic.link("subscriptions"), b"name=mine", Content_Type=FORM
    )
    check(made, 201)
    assert made.headers["Location"] == "/mq/topics/news/subscriptions/mine"


async def test_the_links_of_hornetq_begin_with_the_whole_base(
    bench: RestBench,
) -> None:
    here = f"http://127.0.0.1:{bench.web}"

    def path_of(url: str) -> str:
        assert url.startswith(f"{BASE}/hornetq/")
        return here + url.removeprefix("https://example.org")

    queue = check(await bench.get("/mq/hornetq/queues/orders"), whole=True)
    sent_on = await bench.post(path_of(queue.headers["msg-create"]), b"1")
    check(sent_on, 307, whole=True)
    posted = await bench.post(path_of(sent_on.headers["Location"]), b"1")
    check(posted, 201, whole=True)
    made = await bench.post(path_of(queue.headers["msg-pull-consumers"]))
    check(made, 201, whole=True)
    taken = await bench.post(path_of(made.headers["msg-consume-next"]))
    assert check(taken, whole=True).body == b"1"


async def test_replies_go_below_the_prefix(bench: RestBench) -> None:
    for named in ("/mq/queues/replies", f"{BASE}/queues/replies", "/queues/replies"):
        answer = await bench.post(
            "/mq/queues/orders/messages", b"1", Link=f'<{named}>; rel="reply-to"'
        )
        assert answer.status == 200, answer
        taken = check(await bench.take())
        assert taken.link("reply-to").startswith("/mq/queues/replies/messages?")
        assert (await bench.post(taken.link("reply-to"), b"2")).status == 200
        await bench.settle(taken, "acknowledge=true")


async def test_a_pushed_message_and_its_subscriber_have_the_prefix(
    bench: RestBench,
) -> None:
    async with target() as to:
        made = await bench.post(
            "/mq/queues/orders/subscribers", atom(to.url), Content_Type=ATOM
        )
        assert made.headers["Location"].startswith("/mq/queues/orders/subscribers/")
        for path in (made.headers["Location"], "/mq/queues/orders/subscribers"):
            shown = json.loads((await bench.get(path)).body)
            for each in shown if isinstance(shown, list) else [shown]:
                assert each["location"] == made.headers["Location"]
        await bench.post("/mq/queues/orders/messages", b"1")
        request, _ = await to.next()
        assert f"<{BASE}/queues/orders>; rel=" in request.headers["Link"]
        assert f"<{BASE}/queues/orders/messages/" in request.headers["Link"]


async def test_the_description_says_where_the_paths_begin(bench: RestBench) -> None:
    described = json.loads((await bench.get("/mq/openapi.json")).body)
    assert described["servers"] == [{"url": "/mq"}]
    assert "/queues/{node}" in described["paths"]


def test_no_prefix_can_be_taken_for_a_path_of_the_service() -> None:
    firsts = {each.template.split("/")[1] for each in PATHS.values()}
    assert firsts - {""} == OWN_PATHS
