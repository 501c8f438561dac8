"""HornetQ's words for topics: they are made, found and subscribed to.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from qos.core.queue import owner_requests
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import Create, Delete, Refusal, SetAffiliations
from rest_bench import Response, RestBench, rest
from waiting import until

TOPIC = "/hornetq/topics/news"
PULL = f"{TOPIC}/pull-subscriptions"
NEXT, ACKNOWLEDGE_NEXT = "msg-consume-next", "msg-acknowledge-next"
ACKNOWLEDGEMENT = "msg-acknowledgement"
MAKES = "application/hornetq.jms.topic+xml"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path) as bench:
        await bench.create("news", node_type="topic")
        yield bench


def path_of(url: str) -> str:
    """The path of a URL: after a restart the port is another one."""
    return "/" + url.split("/", 3)[3]


async def publish(bench: RestBench, *bodies: bytes, **headers: str) -> None:
    link = (await bench.get(TOPIC)).headers["msg-create"]
    for body in bodies:
        sent_on = await bench.post(link, body)
        answer = await bench.post(sent_on.headers["Location"], body, **headers)
        assert answer.status == 201, answer


async def follow(
    bench: RestBench, answer: Response, rel: str, body: str = ""
) -> Response:
    return await bench.post(path_of(answer.headers[rel]), body.encode())


async def subscribe(bench: RestBench, form: str = "") -> Response:
    answer = await bench.post(PULL, form.encode())
    assert answer.status == 201, answer
    return answer


async def names(bench: RestBench) -> int:
    """How many nodes there are."""
    return (await bench.get("/", Accept="application/xml")).text.count("rel=")


async def test_a_topic_is_made_and_found(bench: RestBench) -> None:
    """H2, H15: its relations are those of a topic; and no queue has its name."""
    document = b"<topic name='jms.topic.sport'/>"
    made = await bench.post("/hornetq/topics", document, Content_Type=MAKES)
    assert made.headers["Location"].endswith("/hornetq/topics/sport")
    again = await bench.post("/hornetq/topics", document, Content_Type=MAKES)
    assert (made.status, again.status) == (201, 412)
    shown = await bench.get(made.headers["Location"])
    assert shown.body.startswith(b"<topic ")
    offered = {name for name in shown.headers if name.startswith("msg-")}
    assert offered == {
        *("msg-create", "msg-create-with-id"),
        *("msg-pull-subscriptions", "msg-push-subscriptions"),
    }
    assert (await bench.get("/hornetq/queues/sport")).status == 404
    await bench.create("orders")
    for path in ("/hornetq/topics/orders", "/hornetq/topics/none"):
        assert (await bench.get(path)).status == 404
        assert (await bench.post(f"{path}/pull-subscriptions")).status == 404


async def test_each_subscriber_has_each_message(bench: RestBench) -> None:
    """H13: auto-ack and client-ack; what was published before is not for them."""
    await publish(bench, b"0")
    first = await subscribe(bench)
    second = await subscribe(bench, "autoAck=false&durable=true&name=n")
    await publish(bench, b"1", b"2")
    for body in (b"1", b"2"):
        first = await follow(bench, first, NEXT)
        taken = await follow(bench, second, ACKNOWLEDGE_NEXT)
        second = await follow(bench, taken, ACKNOWLEDGEMENT, "acknowledge=true")
        assert (first.body, taken.body, second.status) == (body, body, 204)
    assert (await follow(bench, first, NEXT)).status == 503


async def test_a_subscription_has_a_selector(bench: RestBench) -> None:
    """H13: on a pull."""
    made = await subscribe(bench, "selector=http_n%3D%27x%27")
    await publish(bench, b"1")
    await publish(bench, b"2", N="x")
    assert (await follow(bench, made, NEXT)).body == b"2"
    wrong = await bench.post(PULL, b"selector=n+%3E")
    assert (wrong.status, "selector" in wrong.text) == (400, True)


@pytest.mark.parametrize("durable", ["true", "false"])
async def test_a_subscription_is_found_by_its_name(
    bench: RestBench, durable: str
) -> None:
    """H13: 204 and its links; another mode of acknowledgement or durability is 412."""
    made = await subscribe(bench, f"name=n&autoAck=false&durable={durable}")
    await publish(bench, b"1")
    taken = await follow(bench, made, ACKNOWLEDGE_NEXT)
    again = await bench.post(PULL, f"name=n&autoAck=false&durable={durable}".encode())
    assert again.status == 204
    assert (
        again.headers[ACKNOWLEDGEMENT].rpartition("/")[2]
        == (taken.headers[ACKNOWLEDGEMENT].rpartition("/")[2])
    )
    other = {"true": "false", "false": "true"}[durable]
    for form in (f"name=n&durable={durable}", f"name=n&autoAck=false&durable={other}"):
        assert (await bench.post(PULL, form.encode())).status == 412
    assert await names(bench) == 2


@pytest.mark.parametrize("durable", ["true", "false"])
async def test_a_subscription_ends_when_it_is_deleted(
    bench: RestBench, durable: str
) -> None:
    """H13: its queue goes too."""
    made = await subscribe(bench, f"durable={durable}")
    assert await names(bench) == 2
    deleted = await bench.http("DELETE", made.headers["Location"])
    assert deleted.status == 204
    assert await names(bench) == 1
    assert (await follow(bench, made, NEXT)).status == 404


async def test_a_durable_subscription_outlives_the_service(tmp_path: Path) -> None:
    """H13: reconnect after a restart, by the link or by the name."""
    form = b"durable=true&name=n"
    async with rest(tmp_path) as bench:
        await bench.create("news", node_type="topic")
        made = await subscribe(bench, form.decode())
        await publish(bench, b"1", b"2")
        first = await follow(bench, made, NEXT)
    async with rest(tmp_path) as bench:
        second = await follow(bench, first, NEXT)
        assert second.body == b"2"
        assert (await follow(bench, second, NEXT)).status == 503
    async with rest(tmp_path) as bench:
        await publish(bench, b"3")
        found = await bench.post(PULL, form)
        assert found.status == 204
        assert (await follow(bench, found, NEXT)).body == b"3"
    async with rest(tmp_path) as bench:
        for other in (b"name=n", b"durable=true&name=n&selector=a%3D1"):
            assert (await bench.post(PULL, other)).status == 412


async def test_two_who_find_a_subscription_at_once_find_one_consumer(
    tmp_path: Path,
) -> None:
    """A second one would hide the first, which nobody could end then."""
    form = b"durable=true&name=n"
    async with rest(tmp_path) as bench:
        await bench.create("news", node_type="topic")
        await subscribe(bench, form.decode())
    async with rest(tmp_path) as bench:
        found = await asyncio.gather(*(bench.post(PULL, form) for _ in range(4)))
        assert {each.status for each in found} == {204}
        assert len(bench.rest.pull_consumers._all) == 1


async def test_a_subscription_that_is_not_durable_is_lost(tmp_path: Path) -> None:
    """H13: 405 after a restart, and its queue has gone."""
    async with rest(tmp_path) as bench:
        await bench.create("news", node_type="topic")
        made = await subscribe(bench)
        await publish(bench, b"1")
    async with rest(tmp_path) as bench:
        location = path_of(made.headers["Location"])
        assert (await bench.get(location)).status == 405
        assert (await follow(bench, made, NEXT)).status == 405
        assert await names(bench) == 1


@pytest.mark.parametrize(
    ("form", "left"),
    [
        ("", 1),
        ("durable=true", 2),
        ("durable=true&delete-when-idle=true", 1),
        ("delete-when-idle=false", 2),
    ],
)
async def test_a_subscription_that_is_idle_ends_or_stays(
    bench: RestBench, form: str, left: int
) -> None:
    """H13."""
    made = await subscribe(
        bench, f"{form}&idle-timeout=50" if form else "idle-timeout=50"
    )
    if left == 1:

        async def is_gone() -> bool:
            return await names(bench) == 1

        await until(is_gone)
        status = (await follow(bench, made, NEXT)).status
        assert status == (404 if "durable" in form else 405)
    else:
        await publish(bench, b"1")
        if "durable" in form:
            await until(lambda: not bench.rest.pull_consumers._all)
        assert (await follow(bench, made, NEXT)).body == b"1"
        assert await names(bench) == 2


async def test_a_subscription_is_its_own_account_s(bench: RestBench) -> None:
    """H13: names too."""
    await subscribe(bench, "durable=true&name=n")
    assert (await bench.post(PULL, b"", user="bob")).status == 404
    rights = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    result = await bench.ask(SetAffiliations("news", rights))
    assert not isinstance(result, Refusal)
    made = await bench.post(PULL, b"durable=true&name=n", user="bob")
    assert made.status == 201
    assert (await bench.post(made.headers[NEXT])).status == 404


BOB = f"bob@{DOMAIN}"


async def as_bob(bench: RestBench) -> None:
    """Let bob subscribe to the topic."""
    result = await bench.ask(SetAffiliations("news", {BOB: Affiliation.MEMBER}))
    assert not isinstance(result, Refusal)


async def test_nobody_takes_the_name_of_a_subscription_of_others(
    bench: RestBench,
) -> None:
    """H13: its name can be told in advance."""
    await as_bob(bench)
    name = f"subscription/news/{BOB}/n"
    forged = await bench.ask(Create(name, {"queue#topic": "news"}))
    assert isinstance(forged, Refusal), forged
    assert forged.condition == "not-acceptable"
    made = await bench.post(PULL, b"durable=true&name=n", user="bob")
    assert made.status == 201


async def forge(bench: RestBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the name of a subscription of bob, as was possible in earlier versions."""
    with monkeypatch.context() as patched:
        patched.setattr(owner_requests, "check_name", lambda *_: None)
        name = f"subscription/news/{BOB}/n"
        made = await bench.ask(Create(name, {"queue#topic": "news"}))
        assert not isinstance(made, Refusal)


@pytest.mark.parametrize("what", [Affiliation.OWNER, Affiliation.MEMBER])
async def test_a_queue_of_a_stranger_is_none_of_ones_own_subscriptions(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch, what: Affiliation
) -> None:
    """H13: its creator counts, whatever right it has given to bob."""
    await as_bob(bench)
    await forge(bench, monkeypatch)
    await bench.ask(SetAffiliations(f"subscription/news/{BOB}/n", {BOB: what}))
    answer = await bench.post(PULL, b"durable=true&name=n", user="bob")
    assert (answer.status, NEXT in answer.headers) == (412, False)


async def test_a_consumer_does_not_go_on_at_a_queue_of_a_stranger(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H13: the links of a subscription lead to the queue that its account has made."""
    await as_bob(bench)
    made = await bench.post(PULL, b"durable=true&name=n", user="bob")
    name = f"subscription/news/{BOB}/n"
    assert (await bench.ask(Delete(name), f"{BOB}/x")) is not None
    await forge(bench, monkeypatch)
    await bench.ask(SetAffiliations(name, {BOB: Affiliation.OWNER}))
    await publish(bench, b"forged")
    taken = await bench.post(path_of(made.headers[NEXT]), user="bob")
    assert (taken.status, taken.body) != (200, b"forged")
    assert taken.status == 404
    ended = await bench.http("DELETE", path_of(made.headers["Location"]), user="bob")
    assert ended.status == 404
    assert await names(bench) == 2
