"""Request and reply: a message names a queue for replies, whatever door they use.

docs/rest-checklist.md R2.

alice asks, and bob is the worker. The client by AMQP is that of Qpid Proton.
"""

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from uuid import UUID

import pytest
from proton import Message
from proton.utils import BlockingConnection

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import Delete, Publish, PublishedItem, SetAffiliations
from rest_bench import Response, RestBench, rest
from waiting import LIMIT_S

ASK = "/queues/orders/messages"
REPLY_TO = '</queues/replies>; rel="reply-to"'
RELS = {"reply-to", "reply-to-once", "reply-to-batch", "reply-to-batch-once"}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await bench.create("replies")
        for node, what in (
            ("orders", Affiliation.PUBLISHER),
            # A worker need not see the replies of others.
            ("replies", Affiliation.PUBLISH_ONLY),
        ):
            await bench.ask(SetAffiliations(node, {f"bob@{DOMAIN}": what}))
        yield bench


def reply_links(taken: Response) -> dict[str, str]:
    return {rel: href for rel, href in taken.links.items() if rel.startswith("reply")}


async def asked(bench: RestBench, body: bytes = b"1", **headers: str) -> str:
    """The id of a request that was posted by HTTP."""
    answer = await bench.post(ASK, body, **{"Link": REPLY_TO, **headers})
    assert answer.status == 200, answer
    return answer.headers["Content-Location"].rpartition("/")[2]


async def replies(bench: RestBench, count: int = 1) -> list[tuple[bytes, str]]:
    """The replies, each with the properties that it has."""
    found = []
    for _ in range(count):
        taken = await bench.take("replies", Prefer="wait=30")
        found.append((taken.body, taken.headers.get("Msg-Properties", "")))
        await bench.settle(taken, "acknowledge=true")
    return found


async def test_a_reply_by_http_is_matched_by_the_id_of_the_request(
    bench: RestBench,
) -> None:
    """HTTP to HTTP: the worker posts to the link that it was given, and no more."""
    item_id = await asked(bench)
    taken = await bench.take(user="bob")
    assert reply_links(taken).keys() == RELS
    answer = await bench.post(taken.link("reply-to"), b"done", user="bob")
    assert answer.status == 200
    assert await replies(bench) == [(b"done", f'JMSCorrelationID="{item_id}"')]


async def test_each_reply_link_posts_to_the_queue_for_replies(bench: RestBench) -> None:
    """One message or several, and each of both once; the id goes along the links."""
    item_id = await asked(bench)
    links = reply_links(await bench.take(user="bob"))
    batch = b"--b\r\n\r\nA\r\n--b\r\n\r\nB\r\n--b--"
    multipart = "multipart/mixed; boundary=b"

    async def posted(href: str, body: bytes, status: int = 200) -> Response:
        kind = multipart if body == batch else "text/plain"
        answer = await bench.post(href, body, user="bob", Content_Type=kind)
        assert answer.status == status, answer
        return answer

    await posted(links["reply-to-batch"], batch)
    for rel, body in (("reply-to-once", b"C"), ("reply-to-batch-once", batch)):
        once = (await bench.post(links[rel], user="bob")).link("create-next")
        first = await posted(once, body)
        await posted(once, body, status=405)
        await posted(first.link("create-next"), body)
    found = await replies(bench, 8)
    assert [body for body, _ in found] == [b"A", b"B", b"C", b"C", *[b"A", b"B"] * 2]
    assert {named for _, named in found} == {f'JMSCorrelationID="{item_id}"'}


async def test_a_request_has_a_correlation_id_of_its_own(bench: RestBench) -> None:
    """It comes before the id of the message, as in JMS and AMQP."""
    answer = await bench.post(f"{ASK}?correlation-id=job%207", b"1", Link=REPLY_TO)
    assert answer.status == 200
    taken = await bench.take(user="bob")
    assert 'JMSCorrelationID="job 7"' in taken.headers["Msg-Properties"]
    await bench.post(taken.link("reply-to"), b"done", user="bob")
    assert await replies(bench) == [(b"done", 'JMSCorrelationID="job 7"')]


def reply_by_amqp(client: BlockingConnection) -> Message:
    """Do as each worker of AMQP does: take a request, reply, acknowledge."""
    receiver = client.create_receiver("orders")
    request = receiver.receive(timeout=LIMIT_S)
    reply = Message(body="done", correlation_id=request.correlation_id or request.id)
    client.create_sender(request.reply_to).send(reply)
    receiver.accept()
    return request


async def test_a_worker_of_amqp_replies_to_a_request_by_http(bench: RestBench) -> None:
    """HTTP to AMQP to HTTP."""
    item_id = await asked(bench)
    request = await bench.proton(reply_by_amqp, user="bob")
    assert (request.reply_to, request.id) == ("replies", item_id)
    assert not request.properties
    assert await replies(bench) == [(b"done", f'JMSCorrelationID="{item_id}"')]


async def test_a_worker_of_http_replies_to_a_request_by_amqp(bench: RestBench) -> None:
    """AMQP to HTTP to AMQP: the id comes back with its type, as AMQP tells them apart."""

    def receive(client: BlockingConnection) -> Message:
        receiver = client.create_receiver("replies")
        message = receiver.receive(timeout=LIMIT_S)
        receiver.accept()
        return message

    def send(client: BlockingConnection) -> None:
        client.create_sender("orders").send(request)

    ids = ("order-1", 7, UUID(int=5), b"\1\xff", "ID:AMQP_ULONG:7")
    for field, named in product(("id", "correlation_id"), ids):
        request = Message(body="1", reply_to="replies", **{field: named})
        await bench.proton(send)
        taken = await bench.take(user="bob")
        await bench.settle(taken, "acknowledge=true", user="bob")
        await bench.post(taken.link("reply-to"), b"done", user="bob")
        reply = await bench.proton(receive)
        found = (reply.body, reply.correlation_id)
        assert found == (b"done", named), (field, named)


async def test_a_worker_of_xmpp_reads_where_to_reply(bench: RestBench) -> None:
    """As properties of the item; and one who asks by XMPP sets the same ones."""
    await asked(bench)
    (item,) = (await bench.items("orders")).values()
    assert item.properties["JMSReplyTo"] == "replies"
    entry = PublishedItem(
        item_id="x",
        payload="<a xmlns='b'/>",
        digest="d",
        size=1,
        properties={"JMSReplyTo": "replies"},
    )
    await bench.ask(Publish("orders", (entry,)))
    await bench.take(user="bob")
    assert reply_links(await bench.take(user="bob")).keys() == RELS


async def test_replies_may_go_to_a_topic(bench: RestBench) -> None:
    await bench.create("news", node_type="topic")
    await asked(bench, Link='</topics/news>; rel="reply-to"')
    taken = await bench.take()
    await bench.post(taken.link("reply-to"), b"done")
    assert (await bench.get("/topics/news/first")).body == b"done"


async def test_only_who_may_publish_there_is_given_the_links(bench: RestBench) -> None:
    """Nor does anyone lead a worker to a queue that he may not use himself."""
    await bench.create("secret")
    # alice may use it, and bob may not publish there.
    await asked(bench, Link='</queues/secret>; rel="reply-to"')
    taken = await bench.take(user="bob")
    assert not reply_links(taken)
    # It is shown to who may, without taking it.
    seen = await bench.get(taken.link("self"))
    assert reply_links(seen).keys() == RELS
    # bob names the queue by AMQP, and only alice may publish there.
    request = Message(body="1", reply_to="secret")
    await bench.proton(
        lambda client: client.create_sender("orders").send(request), user="bob"
    )
    assert not reply_links(await bench.take())
    # By HTTP he is told so; it is hidden from him.
    for name in ("secret", "none"):
        link = f'</queues/{name}>; rel="reply-to"'
        answer = await bench.post(ASK, b"1", user="bob", Link=link)
        assert (answer.status, name in answer.text) == (400, True)


async def test_nobody_is_led_to_where_the_sender_may_only_read(
    bench: RestBench,
) -> None:
    """The worker would post there with its own rights; by HTTP, AMQP and XMPP."""
    await bench.create("news")
    bob = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("news", bob))
    link = '</queues/news>; rel="reply-to"'
    answer = await bench.post(ASK, b"1", user="bob", Link=link)
    assert (answer.status, "may publish to" in answer.text) == (400, True)
    named = {"JMSReplyTo": "news", "color": "red"}
    entry = PublishedItem(
        item_id="x", payload="<a xmlns='b'/>", digest="d", size=1, properties=named
    )

    def ask(client: BlockingConnection) -> None:
        sender = client.create_sender("orders")
        sender.send(Message(body="by AMQP", reply_to="news", properties={"color": 1}))

    def work(client: BlockingConnection) -> list[tuple[str | None, object]]:
        receiver = client.create_receiver("orders")
        found: list[tuple[str | None, object]] = []
        for _ in range(2):
            message = receiver.receive(timeout=LIMIT_S)
            assert message.properties is not None
            found.append((message.reply_to, message.properties["color"]))
            receiver.release()
        return found

    await bench.proton(ask, user="bob")
    await bench.ask(Publish("orders", (entry,)), f"bob@{DOMAIN}/x")
    assert await bench.proton(work) == [(None, 1), (None, "red")]
    for color in ("color=1", 'color="red"'):
        taken = await bench.take()
        assert not reply_links(taken)
        assert taken.headers["Msg-Properties"] == color
    # Its right is looked at when the message is given out.
    await bench.ask(SetAffiliations("news", {f"bob@{DOMAIN}": Affiliation.PUBLISHER}))
    await bench.proton(ask, user="bob")
    assert reply_links(await bench.take()).keys() == RELS


async def test_a_queue_for_replies_that_has_ended_has_no_links(
    bench: RestBench,
) -> None:
    await asked(bench)
    await bench.ask(Delete("replies"))
    assert not reply_links(await bench.take(user="bob"))


async def test_a_queue_that_remembers_nothing_gives_two_links(bench: RestBench) -> None:
    await bench.create("fast", dedupe_window="0")
    await asked(bench, Link='</queues/fast>; rel="reply-to"')
    taken = await bench.take()
    assert reply_links(taken).keys() == {"reply-to", "reply-to-batch"}


async def test_any_other_url_travels_as_it_is(bench: RestBench) -> None:
    """Another service's, and what a message says beside it; none of this service's."""
    mine = f"http://127.0.0.1:{bench.web}/queues/replies"
    other = "https://other.example/in"
    await asked(bench, Link=f'<{other}>; rel="reply-to", </a>; rel="up"')
    taken = await bench.take(user="bob")
    assert taken.link("reply-to") == other
    assert taken.link("up") == "/a"
    await asked(bench, Link=f'<{mine}>; rel="reply-to"')
    taken = await bench.take(user="bob")
    assert taken.link("reply-to").startswith("/queues/replies/messages?")


@pytest.mark.parametrize(
    "href", ["/queues/replies/messages", "replies", "/", "//127.0.0.1:{port}/x"]
)
async def test_a_url_of_this_service_that_is_no_queue_is_refused(
    bench: RestBench, href: str
) -> None:
    """A worker would post there, with its password."""
    link = f'<{href.format(port=bench.web)}>; rel="reply-to"'
    answer = await bench.post(ASK, b"1", Link=link)
    assert (answer.status, "reply-to" in answer.text) == (400, True)


async def test_an_id_that_is_too_long_is_refused_or_left_out(bench: RestBench) -> None:
    answer = await bench.post(f"{ASK}?correlation-id={'x' * 257}", b"1")
    assert (answer.status, "correlation-id" in answer.text) == (400, True)
    await asked(bench, Msg_Properties=f'JMSCorrelationID="{"x" * 257}"')
    assert (await bench.take()).link("reply-to") == "/queues/replies/messages"
