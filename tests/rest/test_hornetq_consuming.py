"""HornetQ's pull consumers: their links one after the other.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import Configure, Delete, SetAffiliations
from qos.rest import bounds
from qos.rest import waiting as rest_waiting
from qos.rest.pull import consumers
from qos.testing import ManualClock
from rest_bench import Response, RestBench, rest
from turned_time import turned
from waiting import limit, until

QUEUE = "/hornetq/queues/orders"
PULL = f"{QUEUE}/pull-consumers"
NEXT, ACKNOWLEDGE_NEXT = "msg-consume-next", "msg-acknowledge-next"
ACKNOWLEDGEMENT, CONSUMER = "msg-acknowledgement", "msg-consumer"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return turned(monkeypatch, consumers)


def path_of(url: str) -> str:
    """The path of a URL: after a restart the port is another one."""
    return "/" + url.split("/", 3)[3] if "://" in url else url


async def publish(bench: RestBench, *bodies: bytes, **headers: str) -> None:
    for body in bodies:
        sent_on = await bench.post(f"{QUEUE}/create", body)
        answer = await bench.post(sent_on.headers["Location"], body, **headers)
        assert answer.status == 201, answer


async def consumer(bench: RestBench, form: str = "") -> Response:
    answer = await bench.post(PULL, form.encode())
    assert answer.status == 201, answer
    return answer


async def follow(
    bench: RestBench, answer: Response, rel: str, body: str = ""
) -> Response:
    return await bench.post(path_of(answer.headers[rel]), body.encode())


# -- making one ------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "rel"),
    [
        ("", NEXT),
        ("autoAck=true", NEXT),
        ("autoAck=false", ACKNOWLEDGE_NEXT),
        ("autoAck=false&selector=n%3D1", ACKNOWLEDGE_NEXT),
    ],
)
async def test_a_form_makes_a_pull_consumer(
    bench: RestBench, form: str, rel: str
) -> None:
    """H7: where it is, and its first link."""
    offered = (await bench.get(QUEUE)).headers["msg-pull-consumers"]
    made = await bench.post(offered, form.encode())
    assert made.status == 201
    looked = await bench.http("HEAD", made.headers["Location"])
    assert (looked.status, looked.headers[rel]) == (204, made.headers[rel])


@pytest.mark.parametrize(
    ("form", "says"),
    [("autoAck=1", "autoAck"), ("selector=n+%3E", "selector"), ("x", "name=value")],
)
async def test_a_form_that_makes_no_consumer_is_refused(
    bench: RestBench, form: str, says: str
) -> None:
    """H7."""
    answer = await bench.post(PULL, form.encode())
    assert (answer.status, says in answer.text) == (400, True), answer


async def test_only_members_make_consumers(bench: RestBench) -> None:
    """H7; and a consumer is its own account's."""
    made = await consumer(bench)
    link = made.headers[NEXT]
    assert (await bench.post(PULL, user="bob")).status == 404
    rights = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("orders", rights))
    assert (await bench.post(PULL, user="bob")).status == 201
    assert (await bench.post(link, user="bob")).status == 404
    assert (await bench.post(link[:-3] + "x/0")).status == 404


async def test_consumers_are_bounded(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: of an account, and of a queue; a deleted one makes room."""
    monkeypatch.setattr(bounds, "CONSUMERS_PER_ACCOUNT_MAX", 2)
    made = [await consumer(bench) for _ in range(2)]
    refused = await bench.post(PULL)
    assert (refused.status, "alice" in refused.text) == (429, True)
    assert refused.headers["Retry-After"]
    await bench.http("DELETE", made[0].headers["Location"])
    await consumer(bench)
    monkeypatch.setattr(bounds, "CONSUMERS_PER_ACCOUNT_MAX", 9)
    monkeypatch.setattr(bounds, "CONSUMERS_PER_NODE_MAX", 2)
    assert (await bench.post(PULL)).status == 429


async def test_one_account_does_not_take_all_consumers_of_a_queue(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: it may have half of what the others have left."""
    monkeypatch.setattr(bounds, "CONSUMERS_PER_NODE_MAX", 4)
    rights = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("orders", rights))
    first = [(await bench.post(PULL)).status for _ in range(3)]
    assert first == [201, 201, 429]
    second = [(await bench.post(PULL, user="bob")) for _ in range(2)]
    assert [each.status for each in second] == [201, 429]
    assert f"bob@{DOMAIN} at 'orders'" in second[1].text
    await bench.http("DELETE", second[0].headers["Location"], user="bob")
    assert (await bench.post(PULL, user="bob")).status == 201


# -- auto-ack --------------------------------------------------------------


async def test_messages_come_one_after_the_other(bench: RestBench) -> None:
    """H8: each answer has the next link; the post for the next acknowledges the one before."""
    await publish(bench, b"1", b"2", b"3", Content_Type="text/plain", Foo_Bar="x")
    answer = made = await consumer(bench)
    for body in (b"1", b"2", b"3"):
        answer = await follow(bench, answer, NEXT)
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["Content-Type"] == "text/plain"
        assert answer.headers[CONSUMER] == made.headers["Location"]
        assert "Msg-Priority" not in answer.headers
        assert "x" not in answer.headers.values()
    assert len(await bench.items("orders")) == 1
    nothing = await follow(bench, answer, NEXT)
    assert nothing.status == 503
    assert not await bench.items("orders")


async def test_the_same_link_gives_the_same_message(bench: RestBench) -> None:
    """H8: an answer was lost; and a link of earlier is out of step."""
    await publish(bench, b"1", b"2", b"3")
    made = await consumer(bench)
    first = [await follow(bench, made, NEXT) for _ in range(3)]
    assert {each.body for each in first} == {b"1"}
    assert len({each.headers[NEXT] for each in first}) == 1
    second = [await follow(bench, first[0], NEXT) for _ in range(2)]
    assert {each.body for each in second} == {b"2"}
    late = await follow(bench, made, NEXT)
    assert (late.status, late.headers[NEXT]) == (412, second[0].headers[NEXT])
    assert (await follow(bench, late, NEXT)).body == b"3"


async def test_where_nothing_is_the_link_is_due_again(bench: RestBench) -> None:
    """H8, H12: 503 with the links, at once or after the wait."""
    made = await consumer(bench)
    for _ in range(2):
        answer = await follow(bench, made, NEXT)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.headers[NEXT] == made.headers[NEXT]
        assert answer.headers[CONSUMER] == made.headers["Location"]
    await publish(bench, b"1")
    assert (await follow(bench, answer, NEXT)).body == b"1"


async def test_a_request_that_waits_behind_another_waits_no_longer(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H12: together they would wait longer than any proxy does."""
    clock = turned(monkeypatch, consumers, rest_waiting)
    link = path_of((await consumer(bench)).headers[NEXT])
    (its,) = bench.rest.pull_consumers._all.values()
    both = []
    for number in (1, 2):
        both.append(asyncio.create_task(bench.post(link, Accept_Wait="40")))
        await until(lambda most=number: its._users == most)
        await until(lambda: bench.rest.consumers)
    await bench.items("orders")
    clock.advance(40.0)
    async with limit():
        assert [(await each).status for each in both] == [503, 503]


async def test_a_client_of_hornetq_waits_for_a_message(
    timed: RestBench, clock: ManualClock
) -> None:
    """H12: and waiting is not being idle."""
    timed.rest.pull_consumers.idle_s = 0.1
    made = await consumer(timed, "selector=http_n%3D%27x%27")
    waiting = asyncio.create_task(
        timed.post(made.headers[NEXT], Accept_Wait="30"), name="waits"
    )
    await until(lambda: timed.rest.consumers)
    clock.advance(0.3)
    await publish(timed, b"1", N="x")
    answer = await waiting
    assert (answer.status, answer.body) == (200, b"1")
    assert (await timed.post(made.headers[NEXT], Accept_Wait="x")).status == 400


async def test_what_was_sent_is_acknowledged_before_its_lock_ends(
    timed: RestBench, clock: ManualClock
) -> None:
    """H7, auto-ack: its client may never ask again."""
    await timed.ask(Configure("orders", {"queue#lock_timeout": "10"}))
    await publish(timed, b"1")
    made = await consumer(timed)
    first = await follow(timed, made, NEXT)
    assert len(await timed.items("orders")) == 1
    clock.advance(9.9)
    await timed.until_items("orders", 0)
    assert not await timed.items("orders", "dead")
    # The message has ended: its link cannot give it again.
    again = await follow(timed, made, NEXT)
    assert (again.status, again.headers[NEXT]) == (412, first.headers[NEXT])


async def test_a_client_of_hornetq_that_goes_takes_nothing(bench: RestBench) -> None:
    """As C10: what no answer has left with is available, and not counted as failed."""
    made = await consumer(bench)
    waiting = asyncio.create_task(bench.post(made.headers[NEXT], Accept_Wait="30"))
    await until(lambda: bench.rest.consumers)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: not bench.rest.consumers)
    await publish(bench, b"1")
    (item,) = (await bench.items("orders")).values()
    assert (item.token, item.delivery_count) == ("", 0)
    assert (await follow(bench, made, NEXT)).body == b"1"


async def test_of_two_posts_at_once_both_have_the_message(bench: RestBench) -> None:
    """H8: a client that was impatient takes no second one."""
    await publish(bench, b"1", b"2")
    made = await consumer(bench)
    answers = await asyncio.gather(*(follow(bench, made, NEXT) for _ in range(3)))
    assert [each.body for each in answers] == [b"1"] * 3
    assert sum(bool(e.token) for e in (await bench.items("orders")).values()) == 1


# -- client-ack ------------------------------------------------------------


async def test_a_message_is_acknowledged_by_its_link(bench: RestBench) -> None:
    """H9, H10."""
    await publish(bench, b"1", b"2")
    answer = made = await consumer(bench, "autoAck=false")
    for body in (b"1", b"2"):
        taken = await follow(bench, answer, ACKNOWLEDGE_NEXT)
        assert (taken.status, taken.body) == (200, body)
        assert taken.headers[CONSUMER] == made.headers["Location"]
        assert ACKNOWLEDGE_NEXT not in taken.headers
        again = await follow(bench, answer, ACKNOWLEDGE_NEXT)
        assert (again.body, again.headers[ACKNOWLEDGEMENT]) == (
            body,
            taken.headers[ACKNOWLEDGEMENT],
        )
        late, answer = (
            answer,
            await follow(bench, taken, ACKNOWLEDGEMENT, "acknowledge=true"),
        )
        assert answer.status == 204
        out = await follow(bench, late, ACKNOWLEDGE_NEXT)
        assert (out.status, out.headers[ACKNOWLEDGE_NEXT]) == (
            412,
            answer.headers[ACKNOWLEDGE_NEXT],
        )
    assert not await bench.items("orders")


async def test_a_message_has_to_be_acknowledged_before_the_next(
    bench: RestBench,
) -> None:
    """H9: a link that its client has made up, or has from elsewhere."""
    await publish(bench, b"1", b"2")
    made = await consumer(bench, "autoAck=false")
    taken = await follow(bench, made, ACKNOWLEDGE_NEXT)
    skipping = taken.headers[ACKNOWLEDGEMENT].replace("/acknowledgement/", "/next/")
    answer = await bench.post(skipping)
    assert answer.status == 412
    assert answer.headers[ACKNOWLEDGEMENT] == taken.headers[ACKNOWLEDGEMENT]


@pytest.mark.parametrize("first", ["true", "false"])
async def test_an_acknowledgement_again_is_what_it_was(
    bench: RestBench, first: str
) -> None:
    """H10: alike 204, otherwise 412."""
    await publish(bench, b"1")
    made = await consumer(bench, "autoAck=false")
    taken = await follow(bench, made, ACKNOWLEDGE_NEXT)
    other = {"true": "false", "false": "true"}[first]
    statuses = [
        (await follow(bench, taken, ACKNOWLEDGEMENT, f"acknowledge={each}")).status
        for each in (first, first, other, first)
    ]
    assert statuses == [204, 204, 412, 204]
    assert len(await bench.items("orders")) == (first == "false")


async def test_a_late_acknowledgement_is_none(
    timed: RestBench, clock: ManualClock
) -> None:
    """H10: the message was requeued; the answer has the link that is due."""
    await timed.ask(Configure("orders", {"queue#lock_timeout": "10"}))
    await publish(timed, b"1")
    made = await consumer(timed, "autoAck=false")
    taken = await follow(timed, made, ACKNOWLEDGE_NEXT)
    clock.advance(10.0)
    await timed.until_locked("orders", 0)
    late = await follow(timed, taken, ACKNOWLEDGEMENT, "acknowledge=true")
    assert late.status == 412
    again = await follow(timed, late, ACKNOWLEDGE_NEXT)
    assert (again.status, again.body) == (200, b"1")
    late = await follow(timed, taken, ACKNOWLEDGEMENT, "acknowledge=true")
    assert late.status == 412
    # The message that it has now is due all the same.
    assert late.headers[ACKNOWLEDGEMENT] == again.headers[ACKNOWLEDGEMENT]
    done = await follow(timed, late, ACKNOWLEDGEMENT, "acknowledge=true")
    assert done.status == 204


async def test_a_lock_that_has_timed_out_is_not_due(
    timed: RestBench, clock: ManualClock
) -> None:
    """H11: then the next message is."""
    await timed.ask(Configure("orders", {"queue#lock_timeout": "10"}))
    await publish(timed, b"1")
    made = await consumer(timed, "autoAck=false")
    taken = await follow(timed, made, ACKNOWLEDGE_NEXT)
    looked = await timed.get(made.headers["Location"])
    assert looked.headers[ACKNOWLEDGEMENT] == taken.headers[ACKNOWLEDGEMENT]
    clock.advance(10.0)

    async def next_is_due() -> bool:
        looked = await timed.get(made.headers["Location"])
        return ACKNOWLEDGE_NEXT in looked.headers

    await until(next_is_due)


async def test_forms_of_an_acknowledgement(bench: RestBench) -> None:
    """H10: an unknown delivery is 412, a bad form 400; those of the other dialect count."""
    await publish(bench, b"1")
    made = await consumer(bench, "autoAck=false")
    taken = await follow(bench, made, ACKNOWLEDGE_NEXT)
    assert (await follow(bench, taken, ACKNOWLEDGEMENT, "x=y")).status == 400
    link = taken.headers[ACKNOWLEDGEMENT]
    unknown = await bench.post(f"{link}x", b"acknowledge=true")
    assert unknown.status == 412
    extended = await bench.post(link, b"extend=600")
    assert extended.status == 204
    assert extended.headers[ACKNOWLEDGEMENT] == link
    (item,) = (await bench.items("orders")).values()
    assert item.deadline > bench.engine.now() + 500
    assert (await bench.post(link, b"reject=no")).status == 204
    assert not await bench.items("orders")


# -- the end of a consumer -------------------------------------------------


@pytest.mark.parametrize(("auto_ack", "left"), [("true", 1), ("false", 2)])
async def test_a_consumer_is_deleted(
    bench: RestBench, auto_ack: str, left: int
) -> None:
    """H11: what is not acknowledged is available at once; later it is unknown."""
    await publish(bench, b"1", b"2")
    made = await consumer(bench, f"autoAck={auto_ack}")
    rel = NEXT if auto_ack == "true" else ACKNOWLEDGE_NEXT
    taken = await follow(bench, made, rel)
    deleted = await bench.http("DELETE", made.headers["Location"])
    assert (deleted.status, deleted.body) == (204, b"")
    items = (await bench.items("orders")).values()
    assert [each.token for each in items] == [""] * left
    assert not any(each.delivery_count for each in items)
    for method in ("GET", "HEAD", "DELETE"):
        assert (await bench.http(method, made.headers["Location"])).status == 404
    assert (await follow(bench, made, rel)).status == 404
    if auto_ack == "false":
        late = await follow(bench, taken, ACKNOWLEDGEMENT, "acknowledge=true")
        assert late.status == 412


async def test_a_consumer_that_is_deleted_stops_waiting(bench: RestBench) -> None:
    """H11."""
    made = await consumer(bench)
    waiting = asyncio.create_task(bench.post(made.headers[NEXT], Accept_Wait="30"))
    await until(lambda: bench.rest.consumers)
    await bench.http("DELETE", made.headers["Location"])
    assert (await waiting).status == 404


@pytest.mark.parametrize("auto_ack", ["true", "false"])
async def test_a_consumer_that_has_timed_out_is_made_again(
    timed: RestBench, clock: ManualClock, auto_ack: str
) -> None:
    """H11: under the same URL; its message has ended as it does by DELETE."""
    timed.rest.pull_consumers.idle_s = 0.2
    await publish(timed, b"1", b"2")
    made = await consumer(timed, f"autoAck={auto_ack}")
    rel = NEXT if auto_ack == "true" else ACKNOWLEDGE_NEXT
    taken = await follow(timed, made, rel)
    clock.advance(0.2)
    await until(lambda: not timed.rest.pull_consumers._all)
    await timed.until_locked("orders", 0)
    if auto_ack == "false":
        late = await follow(timed, taken, ACKNOWLEDGEMENT, "acknowledge=true")
        assert late.status == 412
    looked = await timed.get(made.headers["Location"])
    assert looked.status == 204
    answer = await follow(timed, looked, rel)
    # What was given back comes after the others.
    assert answer.body == b"2"
    assert len(await timed.items("orders")) == (1 if auto_ack == "true" else 2)


async def test_a_consumer_with_a_selector_is_not_made_again(bench: RestBench) -> None:
    """H11: 410, and where to make another; what it has acknowledged is so."""
    await publish(bench, b"1", N="x")
    await publish(bench, b"2")
    made = await consumer(bench, "selector=" + quote("http_n = 'x'"))
    taken = await follow(bench, made, NEXT)
    assert taken.body == b"1"
    bench.rest.pull_consumers._all.clear()
    for answer in (
        await bench.get(made.headers["Location"]),
        await follow(bench, taken, NEXT),
    ):
        assert answer.status == 410
        assert answer.headers["msg-pull-consumers"].endswith(PULL)
    assert len(await bench.items("orders")) == 1
    assert (await bench.http("DELETE", made.headers["Location"])).status == 204


async def test_a_queue_that_is_deleted_ends_the_wait(bench: RestBench) -> None:
    made = await consumer(bench)
    waiting = asyncio.create_task(bench.post(made.headers[NEXT], Accept_Wait="30"))
    await until(lambda: bench.rest.consumers)
    await bench.ask(Delete("orders"))
    assert (await waiting).status == 404
    assert (await follow(bench, made, NEXT)).status == 404


# -- restarts --------------------------------------------------------------


@pytest.mark.parametrize("heard", [True, False])
async def test_a_consumer_goes_on_after_a_restart(tmp_path: Path, heard: bool) -> None:
    """H8, H11: with the link that it has, whether or not it had the answer."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await publish(bench, b"1", b"2")
        made = await consumer(bench)
        first = await follow(bench, made, NEXT)
    async with rest(tmp_path) as bench:
        answer = await follow(bench, first if heard else made, NEXT)
        assert answer.body == (b"2" if heard else b"1")
        if not heard:
            assert path_of(answer.headers[NEXT]) == path_of(first.headers[NEXT])
            answer = await follow(bench, answer, NEXT)
        assert (await follow(bench, answer, NEXT)).status == 503
        assert not await bench.items("orders")


async def test_a_message_is_acknowledged_after_a_restart(tmp_path: Path) -> None:
    """H10, H11: and which link is due is still known."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await publish(bench, b"1", b"2")
        made = await consumer(bench, "autoAck=false")
        taken = await follow(bench, made, ACKNOWLEDGE_NEXT)
    async with rest(tmp_path) as bench:
        looked = await bench.get(path_of(made.headers["Location"]))
        link = taken.headers[ACKNOWLEDGEMENT]
        assert path_of(looked.headers[ACKNOWLEDGEMENT]) == path_of(link)
        done = await bench.post(path_of(link), b"acknowledge=true")
        assert done.status == 204
    async with rest(tmp_path) as bench:
        again = await bench.post(path_of(link), b"acknowledge=true")
        assert again.status == 204
        assert (await follow(bench, done, ACKNOWLEDGE_NEXT)).body == b"2"


async def test_a_consumer_is_deleted_after_a_restart(tmp_path: Path) -> None:
    """H11: what it had is not given to others."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await publish(bench, b"1", b"2")
        made = await consumer(bench)
        await follow(bench, made, NEXT)
    async with rest(tmp_path) as bench:
        location = path_of(made.headers["Location"])
        assert (await bench.http("DELETE", location)).status == 204
        assert len(await bench.items("orders")) == 1


async def test_a_service_that_stops_answers_its_consumers(bench: RestBench) -> None:
    made = await consumer(bench)
    waiting = asyncio.create_task(bench.post(made.headers[NEXT], Accept_Wait="30"))
    await until(lambda: bench.rest.consumers)
    await bench.rest.aclose()
    try:
        assert (await waiting).status == 503
    except aiohttp.ClientError as error:
        raise AssertionError("no answer") from error


# -- headers about the content ---------------------------------------------


@pytest.mark.parametrize("named", [True, False])
async def test_a_header_about_the_content_comes_back_if_it_is_named(
    tmp_path: Path, named: bool
) -> None:
    """H16: a publisher chooses its value, which must not look like a link."""
    about = ["Content-Disposition"]
    async with rest(tmp_path, property_headers=about if named else []) as bench:
        await bench.create("orders")
        headers = {"Content_Disposition": "attachment; filename=a", "Content_N": "x"}
        await publish(bench, b"1", Content_Language="de", **headers)
        taken = await follow(bench, await consumer(bench), NEXT)
        assert taken.body == b"1"
        assert taken.headers["Content-Language"] == "de"
        shown = headers["Content_Disposition"] if named else None
        assert taken.headers.get("Content-Disposition") == shown
        assert "Content-N" not in taken.headers
        sent_on = await bench.post(f"{QUEUE}/create", b"2")
        evil = {"Content_Disposition": '</evil>; rel="acknowledgement"'}
        answer = await bench.post(sent_on.headers["Location"], b"2", **evil)
        assert answer.status == (400 if named else 201)
