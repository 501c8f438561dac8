"""A full disk, at every URL: the answer is one that `openapi.json` describes there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qos.engine.queue_commit import Answer, unwritten
from qos.engine.queue_engine import QueueEngine
from qos.errors import StoreFull
from qos.rest.paths import find
from qos.rest.routes import PATHS, ROUTES
from rest_bench import RestBench, rest

FORM = "application/x-www-form-urlencoded"
ATOM = "application/atom+xml"

#: A method, a path, a body, and its media type.
Asked = tuple[str, str, bytes, str]

#: Their messages are in another store; see test_sending.
OF_DEVICES = frozenset({"device", "send", "sent"})

#: Posts that say where to post, and consumers that are kept in memory.
WRITE_NOTHING = frozenset(
    {
        *("once", "batchonce", "topic-once", "topic-batchonce", "hornetq-create"),
        *("hornetq-pull-consumers", "hornetq-consumer"),
    }
)

#: They come again in any case.
CONSUME = frozenset(
    {
        *("consumer", "hornetq-next", "hornetq-pull-subscriptions"),
        *("hornetq-push-consumers", "hornetq-push-subscriptions"),
    }
)


@contextlib.contextmanager
def full_disk(engine: QueueEngine, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """No commit can be written within.

    What reads waits for the commit before it, and is refused together with that.
    """
    why = unwritten(StoreFull("queues.db", "no space left"))

    def request(_request: object, _by: str, answer: Answer, **_options: object) -> None:
        answer(why, {})

    def save(_changes: object, answer: Answer) -> None:
        answer(why, {})

    def stats(_node: str, _by: str, tell: Callable[[object], object]) -> bool:
        tell(why)
        return True

    with patch.context() as context:
        context.setattr(engine, "request", request)
        context.setattr(engine, "save", save)
        context.setattr(engine, "stats", stats)
        context.setattr(engine, "nodes", lambda _by, tell: tell(why))
        yield


async def of_messages(bench: RestBench, node: str) -> list[Asked]:
    """Requests that post messages, one and several, and read one."""
    message = (await bench.post(f"{node}/once")).link("create-next")
    batch = (await bench.post(f"{node}/batch-once")).link("create-next")
    posted = await bench.post(f"{node}/messages", b"1")
    feed = b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><content>1</content></entry></feed>"
    return [
        ("POST", f"{node}/messages", b"1", ""),
        ("POST", f"{node}/batches", feed, ATOM),
        ("POST", f"{node}/once", b"", ""),
        ("POST", f"{node}/batch-once", b"", ""),
        ("POST", message, b"1", ""),
        ("POST", batch, feed, ATOM),
        ("GET", posted.headers["Content-Location"], b"", ""),
    ]


async def of_queues(bench: RestBench) -> list[Asked]:
    """Requests that take and settle messages, and have them pushed."""
    await bench.post("/queues/orders/messages", b"1")
    acknowledgement = (await bench.take()).link("acknowledgement")
    push = "/queues/bills/subscribers"
    link = b"<link rel='post-message' href='http://127.0.0.1:9/'/>"
    made = await bench.post(push, link, Content_Type=ATOM)
    subscriber = made.headers["Location"]
    return [
        ("GET", "/", b"", ""),
        ("GET", "/openapi.json", b"", ""),
        ("GET", "/queues/orders", b"", ""),
        ("POST", "/queues/orders/consumer", b"", ""),
        ("POST", acknowledgement, b"acknowledge=true", FORM),
        ("GET", push, b"", ""),
        ("POST", push, link, ATOM),
        ("GET", subscriber, b"", ""),
        ("POST", subscriber, b"enabled=false", FORM),
        ("DELETE", subscriber, b"", ""),
    ]


async def of_topics(bench: RestBench) -> list[Asked]:
    """Requests that read a topic, and subscribe to it."""
    subscriptions = "/topics/prices/subscriptions"
    await bench.post(subscriptions, b"name=audit", Content_Type=FORM)
    return [
        ("GET", "/topics/prices", b"", ""),
        *(("GET", f"/topics/prices/{which}", b"", "") for which in ("first", "last")),
        ("GET", "/topics/prices/next?after=0", b"", ""),
        ("POST", subscriptions, b"name=other", FORM),
        ("GET", f"{subscriptions}/audit", b"", ""),
        ("DELETE", f"{subscriptions}/audit", b"", ""),
    ]


async def of_hornetq(bench: RestBench) -> list[Asked]:
    """Requests of HornetQ's clients."""
    pull, create = (
        "/hornetq/queues/orders/pull-consumers",
        "/hornetq/queues/orders/create",
    )
    await bench.post(f"{create}/1", b"1")
    consumer = await bench.post(pull, b"autoAck=false")
    taken = await bench.post(consumer.headers["msg-acknowledge-next"])
    other = await bench.post(pull, b"")
    target = f"http://127.0.0.1:{bench.web}/hornetq/queues/bills"
    document = f"<link rel='destination' href='{target}'/>"
    asked: list[Asked] = [
        ("GET", "/hornetq/queues/orders", b"", ""),
        ("GET", "/hornetq/topics/prices", b"", ""),
        ("POST", create, b"1", ""),
        ("POST", f"{create}/2", b"1", ""),
        ("PUT", f"{create}/2", b"1", ""),
        ("POST", pull, b"", ""),
        ("POST", "/hornetq/topics/prices/pull-subscriptions", b"", ""),
        ("POST", taken.headers["msg-acknowledgement"], b"acknowledge=true", FORM),
        ("POST", other.headers["msg-consume-next"], b"", ""),
        ("GET", other.headers["Location"], b"", ""),
        ("DELETE", other.headers["Location"], b"", ""),
    ]
    for kind in ("queue", "topic"):
        made, media_type = f"/hornetq/{kind}s", f"application/hornetq.jms.{kind}+xml"
        asked.append(("POST", made, f"<{kind} name='new'/>".encode(), media_type))
    for push in ("queues/bills/push-consumers", "topics/prices/push-subscriptions"):
        root = "push-registration" if "queues" in push else "push-topic-registration"
        body = f"<{root}>{document}</{root}>".encode()
        url = f"/hornetq/{push}"
        made = (await bench.post(url, body, Content_Type="application/xml")).headers[
            "Location"
        ]
        asked += [
            ("POST", url, body, "application/xml"),
            ("GET", made, b"", ""),
            ("POST", made, b"enabled=false", FORM),
            ("DELETE", made, b"", ""),
        ]
    return asked


async def test_each_route_answers_as_it_is_described_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """507 for what has to be written, and else 503. The bench compares each answer with the
    description.
    """
    found: dict[tuple[str, str], int] = {}
    async with rest(tmp_path, push=["127.0.0.1"]) as bench:
        for node in ("orders", "bills"):
            await bench.create(node)
        await bench.create("prices", node_type="topic")
        asked = [
            *await of_messages(bench, "/queues/orders"),
            *await of_messages(bench, "/topics/prices"),
            *await of_queues(bench),
            *await of_topics(bench),
            *await of_hornetq(bench),
        ]
        with full_disk(bench.engine, monkeypatch):
            for method, url, body, media_type in asked:
                headers = {"Content_Type": media_type} if media_type else {}
                answer = await bench.http(method, url, body, **headers)
                path = "/" + url.split("/", 3)[3] if "://" in url else url
                route = find(path.partition("?")[0], PATHS)
                assert route is not None, url
                found[route[0], method] = answer.status
    everything = {
        (name, method)
        for name, route in ROUTES.items()
        for method in {*route.methods} - {"HEAD"}
        if name not in OF_DEVICES
    }
    assert found.keys() == everything
    for (name, method), status in found.items():
        if method == "GET":
            assert status in {200, 204, 503}, name
        elif name in WRITE_NOTHING:
            assert status < 400, name
        else:
            assert status == (503 if name in CONSUME else 507), name
