"""HornetQ's words: queues that are found and made, messages that are posted.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.requests import Configure, SetAffiliations
from qos.rest.hornetq.paths import url
from rest_bench import Response, RestBench, rest

QUEUE = "/hornetq/queues/orders"
ATOM = "{http://www.w3.org/2005/Atom}link"
MAKES = "application/hornetq.jms.queue+xml"


async def one_off(bench: RestBench, node: str = "orders") -> str:
    """Where a post to `create` is sent on to."""
    answer = await bench.post(url("hornetq-create", node=node), b"ignored")
    assert answer.status == 307, answer
    return answer.headers["Location"]


# -- what is found ---------------------------------------------------------


async def test_links_are_headers_that_begin_with_msg(bench: RestBench) -> None:
    """H1, H2: whole URLs, since HornetQ's clients take them as they are."""
    answer = await bench.http("HEAD", QUEUE)
    base = f"http://127.0.0.1:{bench.web}{QUEUE}"
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["msg-create"] == f"{base}/create"
    assert answer.headers["msg-create-with-id"] == f"{base}/create/{{id}}"
    assert "Link" not in answer.headers


async def test_links_are_in_one_header_by_option(tmp_path: Path) -> None:
    """H1: with rel and title."""
    async with rest(tmp_path, link_headers=True) as bench:
        await bench.create("orders")
        answer = await bench.http("HEAD", QUEUE)
        base = f"http://127.0.0.1:{bench.web}{QUEUE}"
        shown = f'<{base}/create>; rel="create"; title="create"'
        assert shown in answer.headers["Link"]
        assert not [name for name in answer.headers if name.startswith("msg-")]
        posted = await bench.post(await one_off(bench), b"1")
        assert posted.link("create-next").startswith(f"{base}/create/")


@pytest.mark.parametrize("host", ["a b", "a>; rel=x", "<a>", "a/b"])
async def test_a_host_that_is_none_is_in_no_link(bench: RestBench, host: str) -> None:
    """H1: then links are paths."""
    answer = await bench.http("HEAD", QUEUE, Host=host)
    assert answer.headers["msg-create"] == f"{QUEUE}/create"


async def test_a_queue_of_hornetq_is_shown_as_xml(bench: RestBench) -> None:
    """H2: with the same links; by its name in JMS too."""
    for name in ("orders", "jms.queue.orders"):
        answer = await bench.get(url("hornetq-queue", node=name))
        assert answer.headers["Content-Type"] == "application/xml"
        root = ET.fromstring(answer.body)  # noqa: S314 - ours
        assert (root.tag, root.findtext("name")) == ("queue", "orders")
        for each in root.iter(ATOM):
            shown = answer.headers[f"msg-{each.attrib['rel']}"]
            assert shown == each.attrib["href"]
    assert (await bench.get("/hornetq/queues/none")).status == 404
    assert (await bench.get(QUEUE, user="bob")).status == 404


# -- what is posted --------------------------------------------------------


async def test_duplicates_are_possible_where_no_ids_are_remembered(
    bench: RestBench,
) -> None:
    """H3: each post makes a message, and the next one goes to the same URL."""
    await bench.ask(Configure("orders", {"queue#dedupe_window": "0"}))
    for _ in range(2):
        answer = await bench.post(f"{QUEUE}/create", b"order")
        assert answer.status == 201
        assert answer.headers["msg-create-next"].endswith(f"{QUEUE}/create")
    assert len(await bench.items("orders")) == 2


async def test_a_message_is_sent_on_and_made_once(bench: RestBench) -> None:
    """H4: 307, then 201 with the next link; again 201, whatever the body is."""
    link = await one_off(bench)
    assert not await bench.items("orders")
    for body in (b"order", b"order", b"another"):
        answer = await bench.post(link, body)
        assert answer.status == 201
    (item,) = (await bench.items("orders")).values()
    following = await bench.post(answer.headers["msg-create-next"], b"next")
    assert following.status == 201
    assert len(await bench.items("orders")) == 2
    shown = await bench.get(f"/queues/orders/messages/{item.item_id}")
    assert shown.body == b"order"


async def test_a_client_that_follows_redirects_posts_once(bench: RestBench) -> None:
    """H4: 307 keeps the method and the body."""
    async with bench.session.post(
        f"http://127.0.0.1:{bench.web}{QUEUE}/create",
        data=b"order",
        headers={"Authorization": "Basic YWxpY2U6c2VjcmV0"},
    ) as answer:
        assert answer.status == 201
    assert len(await bench.items("orders")) == 1


async def test_of_posts_at_once_to_one_link_one_makes_the_message(
    bench: RestBench,
) -> None:
    """H4."""
    link = await one_off(bench)
    answers = await asyncio.gather(*(bench.post(link, b"x") for _ in range(4)))
    assert [each.status for each in answers] == [201] * 4
    assert len(await bench.items("orders")) == 1


async def test_a_link_of_hornetq_survives_a_restart(tmp_path: Path) -> None:
    """H4: what was made before is known."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        used, unused = [httpless(await one_off(bench)) for _ in range(2)]
        assert (await bench.post(used, b"1")).status == 201
    async with rest(tmp_path) as bench:
        for link in (used, unused, unused):
            assert (await bench.post(link, b"1")).status == 201
        assert len(await bench.items("orders")) == 2


def httpless(link: str) -> str:
    """The path of a link: another process has another port."""
    return "/" + link.split("/", 3)[3]


async def test_a_link_that_is_too_old_and_unused_is_gone(bench: RestBench) -> None:
    """H4: 201 would claim that the message is there."""
    token = bench.rest.one_off.new(
        *("hornetq-create", "orders", f"alice@{DOMAIN}"),
        item_id="1" * 32,
        now=bench.engine.now() - ONCE_S_MAX - 1,
    )
    answer = await bench.post(f"{QUEUE}/create/{token}", b"1")
    assert (answer.status, "too old" in answer.text) == (410, True)
    posted = await bench.post(answer.headers["msg-create-next"], b"1")
    assert posted.status == 201
    assert len(await bench.items("orders")) == 1


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_message_has_the_id_that_its_client_gives(
    bench: RestBench, method: str
) -> None:
    """H5: the same again is made once; another content is refused, not dropped."""

    async def send(body: bytes) -> Response:
        return await bench.http(method, f"{QUEUE}/create/order%2F7", body)

    answers = [await send(b"1"), await send(b"1")]
    assert [each.status for each in answers] == [201, 201]
    assert (await send(b"2")).status == 422
    assert (await bench.items("orders")).keys() == {"order/7"}
    following = answers[1].headers["msg-create-next"]
    assert (await bench.post(following, b"3")).status == 201


async def test_parameters_of_a_message_in_hornetq_s_words(bench: RestBench) -> None:
    """H6: expiration comes before ttl; a priority that is none is ignored."""
    now_ms = int(1000 * bench.engine.now())
    for query in (
        "priority=9&durable=false&ttl=60000",
        f"priority=10&expiration={now_ms + 600_000}&ttl=5",
        "priority=x&durable=true&ttl=0",
    ):
        answer = await bench.post(f"{await one_off(bench)}?{query}", b"1")
        assert answer.status == 201, answer
    items = (await bench.items("orders")).values()
    first, second, third = sorted(items, key=lambda item: item.seq)
    assert [each.priority for each in (first, second, third)] == [9, 4, 4]
    assert first.expires_at == pytest.approx(first.published_at + 60)
    assert second.expires_at == pytest.approx(now_ms / 1000 + 600, abs=0.01)
    assert third.expires_at is None
    wrong = await bench.post(f"{await one_off(bench)}?durable=yes", b"1")
    assert (wrong.status, "durable" in wrong.text) == (400, True)


@pytest.mark.parametrize(
    ("affiliation", "status"),
    [(Affiliation.MEMBER, 403), (Affiliation.PUBLISHER, 307)],
)
async def test_only_publishers_are_sent_on(
    bench: RestBench, affiliation: Affiliation, status: int
) -> None:
    await bench.ask(SetAffiliations("orders", {f"bob@{DOMAIN}": affiliation}))
    answer = await bench.post(f"{QUEUE}/create", b"1", user="bob")
    assert answer.status == status
    offered = (await bench.get(QUEUE, user="bob")).headers
    assert ("msg-create" in offered) == (status == 307)


async def test_a_full_queue_asks_a_client_of_hornetq_to_come_again(
    bench: RestBench,
) -> None:
    await bench.ask(Configure("orders", {"queue#max_items": "1"}))
    link = await one_off(bench)
    await bench.publish("orders", "<x/>")
    full = await bench.post(link, b"2")
    assert (full.status, full.headers["Retry-After"]) == (507, "5")


# -- what is made ----------------------------------------------------------


async def test_a_queue_is_made_by_a_document(bench: RestBench) -> None:
    """H15: by its name in JMS too; what is there already is 412."""
    for name, node in [("bills", "bills"), ("jms.queue.letters", "letters")]:
        document = f"<queue name='{name}'><durable>true</durable></queue>".encode()
        made = await bench.post("/hornetq/queues", document, Content_Type=MAKES)
        assert made.status == 201, made
        assert made.headers["Location"].endswith(f"/hornetq/queues/{node}")
        assert (await bench.get(made.headers["Location"])).status == 200
        again = await bench.post("/hornetq/queues", document, Content_Type=MAKES)
        assert again.status == 412
    assert (await bench.get("/hornetq/queues/bills", user="bob")).status == 404


@pytest.mark.parametrize("given", [".", "..", "%2e", "%2E%2e"])
async def test_an_id_that_clients_take_out_of_a_url_is_refused(
    bench: RestBench, given: str
) -> None:
    """RFC 3986 §6.2.2.3: no client could read the message by its URL."""
    for method in ("PUT", "POST"):
        answer = await bench.http(method, f"{QUEUE}/create/{given}", b"1")
        assert (answer.status, "cannot be in a URL" in answer.text) == (400, True)
    posted = "/queues/orders/messages"
    answer = await bench.post(posted, b"1", Idempotency_Key=unquote(given))
    assert (answer.status, "cannot be in a URL" in answer.text) == (400, True)
    assert not await bench.items("orders")


@pytest.mark.parametrize(
    ("document", "kind", "status", "says"),
    [
        (b"<queue name='x'/>", "application/xml", 415, MAKES),
        (b"<queue/>", MAKES, 400, "name="),
        (b"<!DOCTYPE a><queue name='x'/>", MAKES, 400, "DTD"),
        (f"<queue name='{'x' * 1025}'/>".encode(), MAKES, 400, "1024"),
        (b"<queue name='.'/>", MAKES, 400, "'.' cannot be in a URL"),
        (b"<queue name='jms.queue...'/>", MAKES, 400, "'..' cannot be in a URL"),
    ],
)
async def test_a_document_that_makes_no_queue_is_refused(
    bench: RestBench, document: bytes, kind: str, status: int, says: str
) -> None:
    """H15."""
    answer = await bench.post("/hornetq/queues", document, Content_Type=kind)
    assert (answer.status, says in answer.text) == (status, True), answer


async def test_only_creators_make_queues(tmp_path: Path) -> None:
    """H15."""
    async with rest(tmp_path, creators={f"alice@{DOMAIN}"}) as bench:
        for user, status in [("bob", 403), ("alice", 201)]:
            answer = await bench.post(
                "/hornetq/queues", b"<queue name='x'/>", user=user, Content_Type=MAKES
            )
            assert answer.status == status


async def test_a_header_is_a_property_that_selectors_read(bench: RestBench) -> None:
    """H16: `Foo-Bar` is `http_foo$bar`; nobody has named the others."""
    posted = await bench.post(
        await one_off(bench),
        b"1",
        Foo_Bar="x",
        Content_Disposition="inline",
        Content_Type="text/plain",
        X_Api_Key="s3cret",
        X_Authorization="Bearer s3cret",
        X_Passwd="s3cret",  # noqa: S106 - of nobody
        X_Forwarded_For="192.0.2.1",
    )
    assert posted.status == 201
    (item,) = (await bench.items("orders")).values()
    assert dict(item.properties) == {
        "http_foo$bar": "x",
        "http_content$type": "text/plain",
    }
    chosen = "/queues/orders/consumer?selector=http_foo$bar%3D%27x%27"
    assert (await bench.post(chosen)).body == b"1"


async def test_a_message_of_hornetq_is_the_same_item_for_all(bench: RestBench) -> None:
    """The same nodes: XMPP and the other dialect see it."""
    await bench.post(await one_off(bench), b"<x xmlns='y'/>", Content_Type="a/b+xml")
    taken = await bench.take()
    assert (taken.body, taken.headers["Content-Type"]) == (b"<x xmlns='y'/>", "a/b+xml")
