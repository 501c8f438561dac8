"""Posting by a real client: once by links, by keys, in batches.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import itertools
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.requests import Configure, SetAffiliations
from qos.core.rest.batches import ENTRY_ELEMENTS_MAX
from qos.core.rest.one_off import OneOffLinks
from qos.engine.payers import STEP_S
from qos.rest.paths import url
from qos.testing import ManualClock
from rest_bench import RestBench, rest

USED = "OPTIONS"


async def once(bench: RestBench, node: str = "orders", rel: str = "") -> str:
    """A new one-off link."""
    destination = await bench.http("HEAD", url("queue", node=node))
    answer = await bench.post(destination.link(rel or "post-message-once"))
    assert (answer.status, answer.body) == (200, b"")
    return answer.link("create-next")


async def test_a_link_for_one_post_creates_nothing(bench: RestBench) -> None:
    """P1."""
    links = {await once(bench) for _ in range(9)}
    assert len(links) == 9
    assert not await bench.items("orders")


async def test_a_body_where_nothing_is_created_is_refused(bench: RestBench) -> None:
    """P1: a client that takes the factory for the queue would lose its message."""
    answer = await bench.post("/queues/orders/once", b"a message")
    assert answer.status == 400
    assert "create-next" in answer.text
    assert not await bench.items("orders")


async def test_each_post_has_the_link_for_the_next_one(bench: RestBench) -> None:
    """P2, P4, P5."""
    link = await once(bench)
    for number in range(3):
        body = f"order {number}".encode()
        answer = await bench.post(link, body, Content_Type="text/plain")
        assert answer.status == 200
        shown = await bench.get(answer.headers["Content-Location"])
        assert (shown.status, shown.body) == (200, body)
        assert answer.link("create-next") != link
        link = answer.link("create-next")
    assert len(await bench.items("orders")) == 3


@pytest.mark.parametrize("again", [b"order", b"another order"])
async def test_a_repeated_post_doubles_nothing(bench: RestBench, again: bytes) -> None:
    """P3, P4, P6: whatever its body is."""
    link = await once(bench)
    assert (await bench.post(link, b"order")).status == 200
    for _ in range(3):
        answer = await bench.post(link, again)
        assert (answer.status, answer.headers["Allow"]) == (405, USED)
        assert len(await bench.items("orders")) == 1
    following = await bench.post(answer.link("create-next"), b"next")
    assert following.status == 200
    assert len(await bench.items("orders")) == 2


async def test_a_post_is_a_repeat_after_its_message_has_ended(bench: RestBench) -> None:
    """P3: a worker may be faster than the client that asks again."""
    link = await once(bench)
    await bench.post(link, b"order")
    assert (await bench.settle(await bench.take(), "acknowledge=true")).status == 204
    assert (await bench.post(link, b"order")).status == 405
    assert not await bench.items("orders")


async def test_of_two_posts_at_once_one_is_the_first(bench: RestBench) -> None:
    """P7."""
    link = await once(bench)
    answers = await asyncio.gather(*(bench.post(link, b"x") for _ in range(5)))
    assert sorted(each.status for each in answers) == [200, 405, 405, 405, 405]
    assert len(await bench.items("orders")) == 1


async def test_a_link_survives_a_restart(tmp_path: Path) -> None:
    """P8: the key is in the store, and the use too."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        used, unused = await once(bench), await once(bench)
        assert (await bench.post(used, b"1")).status == 200
    async with rest(tmp_path) as bench:
        assert (await bench.post(used, b"1")).status == 405
        assert (await bench.post(unused, b"2")).status == 200
        assert len(await bench.items("orders")) == 2


async def test_a_link_is_its_own_account_s(bench: RestBench) -> None:
    """P8: a link in a log is of no use to another user."""
    await bench.ask(SetAffiliations("orders", {f"bob@{DOMAIN}": Affiliation.PUBLISHER}))
    link = await once(bench)
    assert (await bench.post(link, b"1", user="bob")).status == 404
    assert (await bench.post(link[:-1] + "x", b"1")).status == 404
    assert (await bench.post(link, b"1")).status == 200


def old_link(bench: RestBench, item_id: str, age_s: float) -> str:
    links: OneOffLinks = bench.rest.one_off
    account, now = f"alice@{DOMAIN}", bench.engine.now()
    token = links.new("once", "orders", account, item_id=item_id, now=now - age_s)
    return url("post", node="orders", link=token)


async def test_an_expired_link_tells_whether_it_was_used(bench: RestBench) -> None:
    """P9: 405 would claim that an unknown one was posted."""
    used, unused = "0" * 32, "1" * 32
    good = old_link(bench, used, ONCE_S_MAX - 60)
    assert (await bench.post(good, b"x")).status == 200
    late = await bench.post(old_link(bench, used, ONCE_S_MAX + 1), b"x")
    assert late.status == 405
    gone = await bench.post(old_link(bench, unused, ONCE_S_MAX + 1), b"x")
    assert gone.status == 410
    assert "too old" in gone.text
    assert (await bench.post(gone.link("create-next"), b"x")).status == 200
    assert len(await bench.items("orders")) == 2


async def test_a_queue_that_remembers_nothing_gives_no_links(bench: RestBench) -> None:
    """P9: a repeat could not be told from a first post."""
    await bench.ask(Configure("orders", {"queue#dedupe_window": "0"}))
    offered = (await bench.get("/queues/orders")).links
    assert "post-message" in offered
    assert "post-message-once" not in offered
    answer = await bench.post("/queues/orders/once")
    assert (answer.status, "dedupe_window" in answer.text) == (409, True)


async def test_a_post_without_a_key_is_made_each_time(bench: RestBench) -> None:
    """P10."""
    answers = [await bench.post("/queues/orders/messages", b"1") for _ in range(2)]
    assert [each.status for each in answers] == [200, 200]
    locations = {each.headers["Content-Location"] for each in answers}
    assert len(locations) == len(await bench.items("orders")) == 2


@pytest.mark.parametrize("key", ["order-7", '"order-7"', r'"order\"7"'])
async def test_a_key_is_the_id_of_the_message(bench: RestBench, key: str) -> None:
    """P10: the same content again is 200, another one 422."""

    async def post(body: bytes) -> int:
        answer = await bench.post("/queues/orders/messages", body, Idempotency_Key=key)
        return answer.status

    assert [await post(b"1"), await post(b"1"), await post(b"2")] == [200, 200, 422]
    (item_id,) = await bench.items("orders")
    assert item_id in {"order-7", 'order"7'}


async def test_a_key_that_is_none_is_refused(bench: RestBench) -> None:
    answer = await bench.post("/queues/orders/messages", Idempotency_Key="x" * 1025)
    assert (answer.status, "Idempotency-Key" in answer.text) == (400, True)


MIXED = "multipart/mixed; boundary=b"


def mixed(*bodies: str, head: str = "Content-Type: text/plain") -> bytes:
    parts = "".join(f"--b\r\n{head}\r\n\r\n{each}\r\n" for each in bodies)
    return f"{parts}--b--".encode()


async def test_a_batch_is_posted_as_a_whole(bench: RestBench) -> None:
    """P11."""
    answer = await bench.post(
        "/queues/orders/batches", mixed("1", "2", "3"), Content_Type=MIXED
    )
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/uri-list")
    shown = [await bench.get(each) for each in answer.text.split()]
    assert [each.body for each in shown] == [b"1", b"2", b"3"]
    assert {each.headers["Content-Type"] for each in shown} == {"text/plain"}


async def test_a_batch_with_one_wrong_message_is_refused_as_a_whole(
    bench: RestBench,
) -> None:
    """P11: all or none."""
    key = "Idempotency-Key: k"
    posted = await bench.post(
        "/queues/orders/batches", mixed("1", head=key), Content_Type=MIXED
    )
    assert posted.status == 200
    for body, status in [
        (mixed("2", head=key), 422),
        (mixed("1", "2", head=key), 400),
        (mixed("1", head="Msg-Properties: ="), 400),
        (mixed("x" * 200_000), 413),
        (b"--b--", 400),
    ]:
        answer = await bench.post("/queues/orders/batches", body, Content_Type=MIXED)
        assert answer.status == status, answer
    plain = await bench.post("/queues/orders/batches", b"1", Content_Type="text/plain")
    assert plain.status == 415
    assert (await bench.items("orders")).keys() == {"k"}


#: An element with two thousand in it: what is small in bytes is dear to parse.
DEAR = b"<a xmlns='u'>" + b"<b/>" * 2000 + b"</a>"


def atom(*contents: bytes) -> bytes:
    entries = b"".join(
        b"<entry><content type='application/x+xml'>" + each + b"</content></entry>"
        for each in contents
    )
    return b"<feed xmlns='http://www.w3.org/2005/Atom'>" + entries + b"</feed>"


@pytest.mark.parametrize(
    ("path", "body", "kind", "turns_min"),
    [
        ("messages", DEAR, "application/xml", 4),
        ("batches", mixed(*"x" * 1000), MIXED, 1000),
        (
            "batches",
            mixed(*[DEAR.decode()] * 10, head="Content-Type: application/xml"),
            MIXED,
            40,
        ),
        ("batches", atom(*[DEAR] * 10), "application/atom+xml", 40),
        ("batches", atom(b"<a>" + DEAR * 15 + b"</a>"), "application/atom+xml", 60),
    ],
    ids=["message", "parts", "dear parts", "feed", "entry"],
)
async def test_what_is_posted_is_read_in_turns(
    path: str,
    body: bytes,
    kind: str,
    turns_min: int,
    bench: RestBench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others have theirs in between, however much there is to do for each byte.

    By a clock on which each step takes a millisecond: each of them ends a turn.
    """
    payers = bench.engine.payers
    turns: list[str] = []
    turn, ticks = payers.turn, itertools.count()

    async def counted(payer: str, later_s: float = 0.0) -> None:
        turns.append(payer)
        await turn(payer, later_s)

    monkeypatch.setattr(payers, "turn", counted)
    monkeypatch.setattr(payers, "now", lambda: next(ticks) * STEP_S)
    answer = await bench.post(f"/queues/orders/{path}", body, Content_Type=kind)
    assert answer.status in {200, 400}, answer
    # The address has one for each of its connections.
    turns = [payer for payer in turns if "@" in payer]
    assert set(turns) == {f"alice@{DOMAIN}"}
    assert len(turns) >= turns_min


async def test_an_entry_with_too_many_elements_is_refused_before_the_rest_is_read(
    bench: RestBench,
) -> None:
    """So what is kept of a feed in memory is bounded too."""
    feed = atom(b"<a>" + DEAR * (ENTRY_ELEMENTS_MAX // 2000 + 1) + b"</a>")
    answer = await bench.post(
        "/queues/orders/batches", feed, Content_Type="application/atom+xml"
    )
    assert answer.status == 400
    assert f"more than {ENTRY_ELEMENTS_MAX} inside" in answer.text
    assert not await bench.items("orders")


async def test_a_feed_is_a_batch(bench: RestBench) -> None:
    """P11."""
    feed = (
        b"<feed xmlns='http://www.w3.org/2005/Atom'>"
        b"<entry><content>1</content></entry><entry><content type='a/b'>Mg==</content>"
        b"</entry></feed>"
    )
    answer = await bench.post(
        "/queues/orders/batches", feed, Content_Type="application/atom+xml"
    )
    shown = [await bench.get(each) for each in answer.text.split()]
    assert [each.body for each in shown] == [b"1", b"2"]


@pytest.mark.parametrize("again", [("1", "2"), ("1",), ("1", "2", "3"), ("9", "9")])
async def test_a_batch_is_posted_once(bench: RestBench, again: tuple[str, ...]) -> None:
    """P11, P3: whatever is in the repeat, none of it is new."""
    link = await once(bench, rel="post-batch-once")
    first = await bench.post(link, mixed("1", "2"), Content_Type=MIXED)
    assert (first.status, len(first.text.split())) == (200, 2)
    repeat = await bench.post(link, mixed(*again), Content_Type=MIXED)
    assert (repeat.status, repeat.headers["Allow"]) == (405, USED)
    assert (await bench.http("HEAD", link)).status == 405
    assert len(await bench.items("orders")) == 2
    following = repeat.link("create-next")
    posted = await bench.post(following, mixed("3"), Content_Type=MIXED)
    assert posted.status == 200


async def test_a_link_of_a_message_is_none_of_a_batch(bench: RestBench) -> None:
    message, batch = await once(bench), await once(bench, rel="post-batch-once")
    for link, other in [(message, "batch-once"), (batch, "once")]:
        moved = f"/queues/orders/{other}/{link.rpartition('/')[2]}"
        assert (await bench.post(moved, mixed("1"), Content_Type=MIXED)).status == 404


async def test_the_message_factory_is_the_same(bench: RestBench) -> None:
    """P12."""
    link = await once(bench, rel="message-factory")
    assert (await bench.post(link, b"1")).status == 200


async def test_headers_and_parameters_are_kept_with_the_message(
    bench: RestBench,
) -> None:
    """P13, C12."""
    posted = await bench.post(
        "/queues/orders/messages?priority=9&ttl=60000",
        b"\x1f\x8b",
        Content_Type="text/plain; charset=utf-8",
        Content_Encoding="gzip",
        Content_Language="de",
        Link="</x>; rel=y",
        Msg_Properties="colour=red, n=5",
    )
    assert posted.status == 200
    taken = await bench.take()
    assert taken.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert taken.headers["Content-Language"] == "de"
    assert taken.headers["Msg-Properties"] == 'colour="red", n=5'
    assert taken.headers["Msg-Priority"] == "9"
    assert taken.link("y") == "/x"
    assert "Expires" in taken.headers
    (item,) = (await bench.items("orders")).values()
    assert item.expires_at == pytest.approx(item.published_at + 60)


async def test_a_delayed_message_comes_later(tmp_path: Path) -> None:
    """P13."""
    clock = ManualClock(1_700_000_000.0)
    async with rest(tmp_path, clock=clock) as bench:
        await bench.create("orders")
        await bench.post("/queues/orders/messages?delay=300", b"1")
        clock.advance(0.29)
        assert (await bench.post("/queues/orders/consumer")).status == 202
        clock.advance(0.02)
        assert (await bench.take(Prefer="wait=30")).body == b"1"


async def test_a_parameter_that_means_nothing_is_refused(bench: RestBench) -> None:
    """A typing error must not cost a message its time to live."""
    for path, says in (
        ("messages?prio=9", "'prio' is no parameter here: priority, ttl, expiration"),
        ("messages?ttl=1&ttl=2", "'ttl' is given twice"),
        ("consumer?select=a", "'select' is no parameter here: selector"),
        ("once?ttl=1", "'ttl' is no parameter here: correlation-id"),
        ("subscribers?a=1", "'a' is no parameter here: there is none"),
    ):
        answer = await bench.post(f"/queues/orders/{path}")
        assert answer.status == 400, path
        assert answer.text.startswith(says), path
        assert not await bench.items("orders"), path


async def test_what_is_out_of_range_is_refused(bench: RestBench) -> None:
    """P13."""
    refused: list[tuple[str, dict[str, str], str]] = [
        ("priority=10", {}, "priority: 0 to 9 is expected, not '10'"),
        ("ttl=0", {}, "ttl: 1 to "),
        ("expiration=1", {}, "expiration: "),
        ("delay=-1", {}, "delay: 0 to "),
        ("", {"Msg_Properties": "a=("}, "Msg-Properties: NAME=VALUE is"),
        # Perhaps a variable that a script forgot to set.
        ("correlation-id=", {}, "correlation-id: 1 to 256"),
        ("correlation-id=%ff", {}, "the query is not UTF-8"),
        ("", {"Idempotency_Key": ""}, "Idempotency-Key: 1 to 1024"),
        ("", {"Idempotency_Key": '""'}, "Idempotency-Key: 1 to 1024"),
        ("", {"Content_Language": "x" * 1025}, "content-language: at most"),
        ("", {"Content_Type": "text"}, "content-type: a media type is expected"),
        ("", {"Content_Encoding": "a b"}, "content-encoding: encodings are expected"),
        ("", {"Content_Language": "<x>"}, "content-language: language tags are"),
        # No XMPP worker could be told of it.
        ("", {"Msg_Properties": 'a=%"%00"'}, "'a' has a character that XML"),
    ]
    for query, headers, says in refused:
        answer = await bench.post(f"/queues/orders/messages?{query}", b"1", **headers)
        found = (answer.status, says in answer.text)
        assert found == (400, True), (query, headers, answer)
        assert not await bench.items("orders"), (query, headers)


async def test_a_full_queue_asks_to_come_again(bench: RestBench) -> None:
    """P14; and the one-off link is as good as before."""
    await bench.ask(Configure("orders", {"queue#max_items": "1"}))
    link = await once(bench)
    await bench.post("/queues/orders/messages", b"1")
    full = await bench.post(link, b"2")
    assert (full.status, full.headers["Retry-After"]) == (507, "5")
    await bench.settle(await bench.take(), "acknowledge=true")
    assert (await bench.post(link, b"2")).status == 200


async def test_a_message_that_is_too_large_is_refused(bench: RestBench) -> None:
    """P14; before all of it is read, if its length says so."""
    size = 149 * 1024
    link = await once(bench)
    answer = await bench.post(link, b"x" * 2 * size)
    assert (answer.status, answer.headers["Connection"]) == (413, "close")
    many = {"Msg_Properties": ", ".join(f'a{n}="{"x" * 100}"' for n in range(60))}
    assert (await bench.post(link, b"x" * (size - 1024), **many)).status == 413
    assert (await bench.post(link, b"x" * (size - 1024))).status == 200
