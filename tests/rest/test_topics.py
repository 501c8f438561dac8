"""Topics by HTTP: reading by links, waiting, and subscriptions.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from amqp_bench import BOSS, DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import Configure, Delete, Publish, SetAffiliations
from queue_world import entry
from rest_bench import Response, RestBench, rest
from waiting import until

TOPIC = "/topics/prices"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    async with rest(tmp_path) as bench:
        await bench.create("prices", node_type="topic")
        yield bench


async def post(bench: RestBench, *bodies: bytes) -> None:
    """Post messages to the topic."""
    for body in bodies:
        posted = await bench.post(f"{TOPIC}/messages", body)
        assert posted.status == 200, posted


async def subscribe(
    bench: RestBench, form: bytes = b"name=audit", **headers: str
) -> Response:
    """Subscribe to the topic."""
    kind = "application/x-www-form-urlencoded"
    shown = await bench.http("HEAD", TOPIC)
    return await bench.post(
        shown.link("subscriptions"), form, **{"Content_Type": kind, **headers}
    )


# -- discovery -------------------------------------------------------------


async def test_a_topic_is_discovered_by_its_links(bench: RestBench) -> None:
    """R2: it has readers and subscriptions, and no consumer."""
    await bench.create("orders")
    shown = await bench.http("HEAD", TOPIC)
    assert shown.links == {
        "post-message": f"{TOPIC}/messages",
        "post-batch": f"{TOPIC}/batches",
        "post-message-once": f"{TOPIC}/once",
        "message-factory": f"{TOPIC}/once",
        "post-batch-once": f"{TOPIC}/batch-once",
        "first": f"{TOPIC}/first",
        "last": f"{TOPIC}/last",
        "next": f"{TOPIC}/next?after=0",
        "subscriptions": f"{TOPIC}/subscriptions",
    }
    listed = json.loads((await bench.get("/")).body)
    assert listed["topics"] == [{"name": "prices", "href": TOPIC}]
    assert [each["name"] for each in listed["queues"]] == ["orders"]
    as_xml = await bench.get(TOPIC, Accept="application/xml")
    assert as_xml.text.startswith("<topic ")
    page = await bench.get("/", Accept="text/html")
    assert f"<a href='{TOPIC}'>prices</a></td><td>topic" in page.text
    page = await bench.get(TOPIC, Accept="text/html")
    assert "GET the oldest message" in page.text
    assert "POST to take" not in page.text


async def test_a_queue_is_no_topic_and_a_topic_no_queue(bench: RestBench) -> None:
    """404, and the text says what there is none of."""
    await bench.create("orders")
    for method, path in (
        ("GET", "/queues/prices"),
        ("POST", "/queues/prices/consumer"),
        ("POST", "/queues/prices/messages"),
        ("GET", "/topics/orders"),
        ("GET", "/topics/orders/next"),
        ("POST", "/topics/orders/once"),
        ("GET", "/topics/none"),
        ("GET", "/topics/none/first"),
        ("POST", "/topics/none/messages"),
        ("POST", "/topics/none/subscriptions"),
        ("DELETE", "/topics/prices/subscriptions/orders"),
        ("GET", "/topics/prices/subscriptions/none"),
    ):
        answer = await bench.http(method, path)
        found = (answer.status, " is " in answer.text)
        assert found == (404, True), (method, path, answer)


async def test_only_who_may_use_a_topic_is_told_that_it_is_one(
    bench: RestBench,
) -> None:
    """To others a hidden topic is like one that is not there."""
    told = await bench.get("/queues/prices")
    assert told.text == "'prices' is a topic: its URL is /topics/prices\n"
    for name in ("prices", "none"):
        hidden = await bench.get(f"/queues/{name}", user="bob")
        assert hidden.text == f"there is no node '{name}'\n"


# -- posting ---------------------------------------------------------------


async def test_messages_are_posted_as_to_a_queue(bench: RestBench) -> None:
    """Once by a link, which stays in the topic's URLs; and by XMPP."""
    made = await bench.post(f"{TOPIC}/once")
    link = made.link("create-next")
    first, again = [await bench.post(link, b"1") for _ in range(2)]
    assert (first.status, again.status) == (200, 405)
    assert again.link("create-next").startswith(f"{TOPIC}/once/")
    place = first.headers["Content-Location"]
    assert place.startswith(f"{TOPIC}/messages/")
    shown = await bench.get(place)
    assert (shown.body, shown.link("generator"), shown.link("self")) == (
        b"1",
        TOPIC,
        place,
    )
    batch = (
        b"--x\r\nContent-Type: text/plain\r\n\r\n2\r\n"
        b"--x\r\nContent-Type: text/plain\r\n\r\n3\r\n--x--\r\n"
    )
    kind = "multipart/mixed; boundary=x"
    posted = await bench.post(f"{TOPIC}/batches", batch, Content_Type=kind)
    assert (posted.status, posted.text.count(f"{TOPIC}/messages/")) == (200, 2)
    await bench.publish("prices", "<x xmlns='urn:x'/>")
    assert (await bench.get(f"{TOPIC}/last")).body == b"<x xmlns='urn:x'/>"


# -- readers ---------------------------------------------------------------


async def test_a_topic_is_read_from_message_to_message(bench: RestBench) -> None:
    """T1: two readers do not disturb each other, and nothing is kept for them."""
    await post(bench, b"1", b"2", b"3")
    first = await bench.get(f"{TOPIC}/first")
    second = await bench.get(first.link("next"))
    third = await bench.get(second.link("next"))
    last = await bench.get(f"{TOPIC}/last")
    assert [each.body for each in (first, second, third, last)] == [
        b"1",
        b"2",
        b"3",
        b"3",
    ]
    assert third.link("next") == last.link("next")
    assert (await bench.get(first.link("next"))).body == b"2"
    assert (await bench.http("HEAD", first.link("next"))).body == b""
    shown = await bench.get(second.link("self"))
    assert shown.link("next") == second.link("next")


async def test_where_there_is_no_next_message_the_client_learns_where_to_ask(
    bench: RestBench,
) -> None:
    """C8, for each of the three."""
    for rel in ("first", "last"):
        answer = await bench.get(f"{TOPIC}/{rel}")
        assert (answer.status, answer.headers["Location"]) == (202, f"{TOPIC}/{rel}")
    await post(bench, b"1")
    last = await bench.get(f"{TOPIC}/last")
    answer = await bench.get(last.link("next"))
    assert answer.status == 202
    assert answer.headers["Location"] == answer.link("next") == last.link("next")
    assert answer.headers["Retry-After"] == "0"


async def test_a_reader_can_begin_with_what_comes(bench: RestBench) -> None:
    """The link of the topic, and `next` without a place, are after what is there."""
    await post(bench, b"1")
    shown, asked = await bench.http("HEAD", TOPIC), await bench.get(f"{TOPIC}/next")
    assert (asked.status, asked.link("next")) == (202, shown.link("next"))
    await post(bench, b"2", b"3")
    assert (await bench.get(shown.link("next"))).body == b"2"
    assert (await bench.get(asked.headers["Location"])).body == b"2"


@pytest.mark.parametrize("header", ["Prefer", "X_RS_Wait", "Accept_Wait"])
async def test_a_reader_waits_for_the_next_message(
    bench: RestBench, header: str
) -> None:
    """C9; all of them get the message at once, when it is on disk."""
    wait = {header: "wait=20" if header == "Prefer" else "20"}
    paths = (
        f"{TOPIC}/next",
        f"{TOPIC}/first",
        f"{TOPIC}/last",
        f"{TOPIC}/next?after=0",
    )
    waiting = [asyncio.ensure_future(bench.get(path, **wait)) for path in paths]
    await until_waiting(bench, len(paths))
    await post(bench, b"1")
    for answer in await asyncio.gather(*waiting):
        assert (answer.status, answer.body) == (200, b"1")
        assert ("Preference-Applied" in answer.headers) == (header == "Prefer")
    nothing = await bench.get(f"{TOPIC}/next", Prefer="wait=1")
    assert nothing.status == 202
    assert nothing.headers["Preference-Applied"] == "wait=1"
    assert not bench.rest.readers


async def until_waiting(bench: RestBench, count: int) -> None:
    """Wait until so many readers wait."""
    await until(lambda: len(bench.rest.readers) >= count)


async def test_a_reader_does_not_wait_for_other_nodes(bench: RestBench) -> None:
    """Nor is it woken by what was repeated."""
    await post(bench, b"1")
    await bench.create("orders")
    waiting = asyncio.ensure_future(bench.get(f"{TOPIC}/next", Prefer="wait=20"))
    await until_waiting(bench, 1)
    await bench.post("/queues/orders/messages", b"2")
    await bench.publish("orders", "<x/>", "<x/>")
    assert not waiting.done()
    await post(bench, b"3")
    assert (await waiting).body == b"3"


async def test_what_ends_ends_the_readers_that_wait(bench: RestBench) -> None:
    """A topic that is deleted, and the service that stops."""
    wait = partial(bench.get, f"{TOPIC}/next", Prefer="wait=20")
    waiting = asyncio.ensure_future(wait())
    await until_waiting(bench, 1)
    await bench.ask(Delete("prices"))
    assert (await waiting).status == 404
    await bench.create("prices", node_type="topic")
    waiting = asyncio.ensure_future(wait())
    await until_waiting(bench, 1)
    await bench.rest.aclose()
    assert (await waiting).status == 503


async def test_a_reader_that_is_too_slow_is_told_so(bench: RestBench) -> None:
    """It goes on with the oldest message that is kept."""
    await bench.ask(Configure("prices", {"queue#keep_items": "2"}))
    await post(bench, b"1")
    first = await bench.get(f"{TOPIC}/first")
    await post(bench, b"2", b"3")
    second = await bench.get(first.link("next"))
    assert (second.body, second.headers.get("Msg-Missed")) == (b"2", None)
    await post(bench, b"4")
    late = await bench.get(first.link("next"))
    assert (late.body, late.headers["Msg-Missed"]) == (b"3", "true")
    assert "Msg-Missed" not in (await bench.get(late.link("next"))).headers
    fresh = await bench.get(f"{TOPIC}/first")
    assert (fresh.body, fresh.headers.get("Msg-Missed")) == (b"3", None)


async def test_a_place_that_is_none_is_refused(bench: RestBench) -> None:
    """Only links that were given lead anywhere."""
    for after in ("", "x", "-1", "%D9%A3", "1" * 19):
        answer = await bench.get(f"{TOPIC}/next?after={after}")
        assert (answer.status, "after:" in answer.text) == (400, True), (after, answer)


async def test_a_reader_needs_the_right_to_subscribe(bench: RestBench) -> None:
    """R5: without it the topic is hidden; a member reads."""
    assert (await bench.get(TOPIC, user="bob")).status == 404
    assert (await bench.get(f"{TOPIC}/first", user="bob")).status == 404
    assert (await subscribe(bench, Authorization="Basic x")).status == 401
    member = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("prices", member))
    assert (await bench.get(f"{TOPIC}/first", user="bob")).status == 202
    assert "post-message" not in (await bench.get(TOPIC, user="bob")).links


# -- subscriptions ---------------------------------------------------------


async def test_a_subscription_is_a_queue_with_copies(bench: RestBench) -> None:
    """T1: made, consumed with an acknowledgement, and deleted."""
    made = await subscribe(bench)
    here = made.headers["Location"]
    assert (made.status, here) == (201, f"{TOPIC}/subscriptions/audit")
    await post(bench, b"1", b"2")
    taken = await bench.post(made.link("consumer"))
    assert (taken.status, taken.body) == (200, b"1")
    assert taken.link("generator") == made.link("queue") == "/queues/audit"
    assert (await bench.settle(taken, "acknowledge=true")).status == 204
    assert (await bench.get(f"{TOPIC}/first")).body == b"1"
    shown = await bench.get(here)
    assert (shown.status, shown.links) == (200, made.links)
    assert shown.link("generator") == TOPIC
    assert (await bench.http("DELETE", here)).status == 204
    assert (await bench.http("DELETE", here)).status == 404
    assert (await bench.get("/queues/audit")).status == 404


async def test_to_subscribe_again_is_no_error(bench: RestBench) -> None:
    """The answer may have been lost; but a name with another meaning is a conflict."""
    form = b"name=audit&selector=n+%3D+1"
    made, again = await subscribe(bench, form), await subscribe(bench, form)
    assert (made.status, again.status) == (201, 200)
    assert made.links == again.links
    other = await subscribe(bench, b"name=audit")
    assert (other.status, "choose another name" in other.text) == (409, True)
    await bench.create("orders")
    assert (await subscribe(bench, b"name=orders")).status == 409
    member = {f"bob@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("prices", member))
    bob = f"{TOPIC}/subscriptions"
    kind = "application/x-www-form-urlencoded"
    stolen = await bench.post(bob, form, user="bob", Content_Type=kind)
    assert stolen.status == 409
    assert (await bench.get(f"{bob}/audit", user="bob")).status == 404


async def test_a_queue_of_a_stranger_is_none_of_ones_own_subscriptions(
    bench: RestBench,
) -> None:
    """Its creator counts: alice has made bob an owner of it, and can read and forge all."""
    await subscribe(bench, b"name=audit")
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("prices", {bob: Affiliation.MEMBER}))
    await bench.ask(SetAffiliations("audit", {bob: Affiliation.OWNER}))
    path = f"{TOPIC}/subscriptions"
    kind = "application/x-www-form-urlencoded"
    answer = await bench.post(path, b"name=audit", user="bob", Content_Type=kind)
    assert (answer.status, answer.links) == (409, {})
    for method in ("GET", "DELETE"):
        other = await bench.http(method, f"{path}/audit", user="bob")
        assert (other.status, other.links) == (404, {})
    assert (await bench.get(f"{path}/audit")).status == 200


async def test_a_subscription_chooses_messages(bench: RestBench) -> None:
    """As a consumer does, but when they are copied."""
    assert (await subscribe(bench, b"name=audit&selector=n+%3D+1")).status == 201
    for n in (1, 2):
        await bench.post(f"{TOPIC}/messages", b"%d" % n, Msg_Properties=f"n={n}")
    assert (await bench.take("audit")).body == b"1"
    assert (await bench.post("/queues/audit/consumer")).status == 202


async def test_a_form_that_subscribes_to_nothing(bench: RestBench) -> None:
    """Nothing is made of it."""
    for form, status in (
        (b"", 400),
        (b"name=", 400),
        (b"name=a&name=b", 400),
        (b"name=a&durable=true", 400),
        (b"name=%00", 400),
        (b"name=%FF", 400),
        (b"\xff", 400),
        (b"name=" + b"x" * 1025, 400),
        (b"name=a&selector=n+%3E", 400),
        (b"name=" + b"x" * 1024, 201),
    ):
        assert (await subscribe(bench, form)).status == status, form
    other = await subscribe(bench, b"{}", Content_Type="application/json")
    assert other.status == 415


async def test_to_subscribe_needs_the_right(bench: RestBench) -> None:
    """403 for a publisher who is no member is not possible: publishers are members."""
    kind = "application/x-www-form-urlencoded"
    path = f"{TOPIC}/subscriptions"
    outcast = {f"bob@{DOMAIN}": Affiliation.OUTCAST}
    await bench.ask(SetAffiliations("prices", outcast))
    answer = await bench.post(path, b"name=a", user="bob", Content_Type=kind)
    assert answer.status == 404


async def test_readers_and_copies_survive_a_restart(tmp_path: Path) -> None:
    """The place of a reader is in its link, and the copies are on disk."""
    async with rest(tmp_path) as bench:
        await bench.create("prices", node_type="topic")
        await subscribe(bench)
        await post(bench, b"1", b"2")
        following = (await bench.get(f"{TOPIC}/first")).link("next")
    async with rest(tmp_path) as bench:
        assert (await bench.get(following)).body == b"2"
        assert [(await bench.take("audit")).body for _ in range(2)] == [b"1", b"2"]
        await post(bench, b"3")
        assert (await bench.take("audit")).body == b"3"


async def test_an_item_that_goes_while_it_is_looked_up_is_passed_over(
    bench: RestBench,
) -> None:
    """A topic that keeps one message only is read at the same time as it is filled."""
    await bench.ask(Configure("prices", {"queue#keep_items": "1"}))
    await post(bench, b"0")
    reading = [asyncio.ensure_future(bench.get(f"{TOPIC}/first")) for _ in range(20)]
    for number in range(50):
        request = Publish("prices", (entry(f"{number}"),))
        bench.engine.request(request, BOSS, lambda _result, _payloads: None)
        await asyncio.sleep(0)
    assert {answer.status for answer in await asyncio.gather(*reading)} == {200}
