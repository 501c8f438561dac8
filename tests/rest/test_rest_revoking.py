"""A user who is removed, or may not do something any more: what waits ends, at once.

The gateways look at the file of users by a clock that the tests turn.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from cheap_passwords import cheap_hash
from qos import users
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import Create, SetAffiliations
from qos.rest.push.pusher import Pusher
from qos.testing import ManualClock
from qos.users import hashed_token
from rest_bench import Response, RestBench, rest
from test_pushing import ATOM, LOOPBACK, atom, target
from turned_time import turned
from waiting import limit, until

BOB = f"bob@{DOMAIN}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return turned(monkeypatch, users)


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock) -> AsyncIterator[RestBench]:
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders")
        await bench.ask(Create("news", {"queue#node_type": "topic"}))
        for node in ("orders", "news"):
            await bench.ask(SetAffiliations(node, {BOB: Affiliation.MEMBER}))
        yield bench


def write_users(bench: RestBench, *lines: str) -> None:
    bench.users_file.write_text("".join(f"{line}\n" for line in lines))


def remove_bob(bench: RestBench) -> None:
    lines = bench.users_file.read_text().splitlines()
    write_users(bench, *(each for each in lines if not each.startswith("bob:")))


def pushers(bench: RestBench) -> list[Pusher]:
    """Those that push."""
    every = bench.rest.consumers.values()
    return [each for each in every if isinstance(each, Pusher)]


async def waiting(bench: RestBench, count: int = 1) -> None:
    """Wait until so many requests wait for a message."""
    await until(lambda: len(bench.rest.consumers) + len(bench.rest.readers) == count)


async def refused(task: asyncio.Task[Response], clock: ManualClock) -> Response:
    """The answer to a request, which comes within a second."""
    clock.advance(1.0)
    async with limit():
        answer = await task
    assert answer.status == 401, answer
    assert "Basic" in answer.headers["WWW-Authenticate"]
    assert "this user was removed" in answer.text
    return answer


WAITS = [
    ("POST", "/queues/orders/consumer"),
    ("GET", "/topics/news/next"),
    ("GET", "/topics/news/first"),
]


@pytest.mark.parametrize(("method", "path"), WAITS)
@pytest.mark.parametrize("change", ["removed", "password"])
async def test_what_waits_for_a_removed_user_ends_within_a_second(
    bench: RestBench, clock: ManualClock, method: str, path: str, change: str
) -> None:
    """Or for one with another password; that of another user goes on."""
    bob, alice = (
        asyncio.ensure_future(bench.http(method, path, user=user, Prefer="wait=30"))
        for user in ("bob", "alice")
    )
    await waiting(bench, 2)
    remove_bob(bench)
    if change == "password":
        with bench.users_file.open("a") as file:
            file.write(f"bob:{cheap_hash('other')}\n")
    await refused(bob, clock)
    assert not alice.done()
    await bench.publish(path.split("/")[2], "<x/>")
    assert (await alice).status == 200


@pytest.mark.parametrize(("method", "path"), WAITS)
async def test_a_removed_user_gets_no_message_that_comes_at_once(
    bench: RestBench, clock: ManualClock, method: str, path: str
) -> None:
    """Before it is noticed that the file has changed; the message is for others."""
    bob = asyncio.ensure_future(bench.http(method, path, user="bob", Prefer="wait=30"))
    await waiting(bench)
    remove_bob(bench)
    await bench.publish(path.split("/")[2], "<x/>")
    await refused(bob, clock)
    assert (await bench.http(method, path.replace("next", "first"))).status == 200


async def test_what_waits_by_a_token_ends_with_it(
    bench: RestBench, clock: ManualClock
) -> None:
    lines = bench.users_file.read_text().splitlines()
    write_users(bench, *lines, f"till:{hashed_token('t0ken')}")
    members = {f"till@{DOMAIN}": Affiliation.MEMBER}
    await bench.ask(SetAffiliations("orders", members))
    till = asyncio.ensure_future(
        bench.post(
            "/queues/orders/consumer", Authorization="Bearer t0ken", Prefer="wait=30"
        )
    )
    await waiting(bench)
    write_users(bench, *lines, f"till:{hashed_token('another')}")
    await refused(till, clock)


async def test_nothing_is_pushed_for_a_removed_user_until_it_is_back(
    bench: RestBench, clock: ManualClock
) -> None:
    """Its messages go to others meanwhile, and its subscriber is as it was."""
    lines = bench.users_file.read_text()
    async with target() as to:
        made = await bench.post(
            "/queues/orders/subscribers", atom(to.url), user="bob", Content_Type=ATOM
        )
        assert made.status == 201
        await bench.publish("orders", "<x/>")
        await to.next()
        await bench.until_items("orders", 0)
        remove_bob(bench)
        clock.advance(1.0)
        await until(lambda: not pushers(bench))
        await bench.post("/queues/orders/messages", b"1")
        taken = await bench.take()
        assert taken.body == b"1"
        await bench.settle(taken, "acknowledge=true")
        await bench.post("/queues/orders/messages", b"2")
        # With its commit it would have been locked for him.
        (item,) = (await bench.items("orders")).values()
        assert not item.token
        assert to.got.empty()
        bench.users_file.write_text(lines)
        clock.advance(1.0)
        assert await to.bodies(1) == [b"2"]
        location = made.headers["Location"]
        answer = await bench.get(location, user="bob")
        assert b'"enabled": true' in answer.body


async def test_what_is_on_its_way_to_a_target_is_given_back(
    bench: RestBench, clock: ManualClock
) -> None:
    async with target() as to:
        to.answers = [None]
        await bench.post(
            "/queues/orders/subscribers", atom(to.url), user="bob", Content_Type=ATOM
        )
        await bench.post("/queues/orders/messages", b"1")
        await to.next()
        remove_bob(bench)
        clock.advance(1.0)
        taken = await bench.take(Prefer="wait=30")
        assert taken.body == b"1"


async def test_nothing_is_pushed_after_a_restart_for_who_was_removed(
    tmp_path: Path,
) -> None:
    async with target() as to:
        async with rest(tmp_path, push=LOOPBACK) as bench:
            await bench.create("orders")
            await bench.ask(SetAffiliations("orders", {BOB: Affiliation.MEMBER}))
            await bench.post(
                "/queues/orders/subscribers?durable=true",
                atom(to.url),
                user="bob",
                Content_Type=ATOM,
            )
        remove_bob(bench)
        async with rest(tmp_path, push=LOOPBACK) as bench:
            await bench.post("/queues/orders/messages", b"1")
            assert (await bench.take(Prefer="wait=30")).body == b"1"
            assert to.got.empty()


async def test_consumers_of_hornetq_end_with_their_user(
    bench: RestBench, clock: ManualClock
) -> None:
    """Their locks are released."""
    await bench.post("/queues/orders/messages", b"1")
    made = await bench.post(
        "/hornetq/queues/orders/pull-consumers", b"autoAck=false", user="bob"
    )
    assert made.status == 201, made
    due = made.headers["msg-acknowledge-next"].partition(f":{bench.web}")[2]
    assert (await bench.post(due, user="bob")).status == 200
    remove_bob(bench)
    clock.advance(1.0)
    assert (await bench.take(Prefer="wait=30")).body == b"1"
    assert not bench.rest.pull_consumers._all


async def test_a_client_of_hornetq_that_waits_is_told(
    bench: RestBench, clock: ManualClock
) -> None:
    made = await bench.post("/hornetq/queues/orders/pull-consumers", user="bob")
    due = made.headers["msg-consume-next"].partition(f":{bench.web}")[2]
    bob = asyncio.ensure_future(bench.post(due, user="bob", Accept_Wait="30"))
    await waiting(bench)
    remove_bob(bench)
    clock.advance(1.0)
    async with limit():
        assert (await bob).status in {401, 404}


# -- affiliations ----------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), WAITS)
@pytest.mark.parametrize("left", [Affiliation.NONE, Affiliation.OUTCAST])
async def test_who_is_no_member_any_more_gets_no_message_that_it_waits_for(
    bench: RestBench, method: str, path: str, left: Affiliation
) -> None:
    bob = asyncio.ensure_future(bench.http(method, path, user="bob", Prefer="wait=30"))
    await waiting(bench)
    node = path.split("/")[2]
    await bench.ask(SetAffiliations(node, {BOB: left}))
    await bench.publish(node, "<x/>")
    async with limit():
        answer = await bob
    assert answer.status in {403, 404}, answer
    assert b"<x/>" not in answer.body


async def test_nothing_is_pushed_for_who_is_no_member_any_more(
    bench: RestBench,
) -> None:
    async with target() as to:
        made = await bench.post(
            "/queues/orders/subscribers", atom(to.url), user="bob", Content_Type=ATOM
        )
        # It would get the next message.
        await until(lambda: any(each._granted for each in pushers(bench)))
        await bench.ask(SetAffiliations("orders", {BOB: Affiliation.OUTCAST}))
        await bench.publish("orders", "<x/>")
        assert (await bench.take(Prefer="wait=30")).status == 200
        assert to.got.empty()
        await bench.ask(SetAffiliations("orders", {BOB: Affiliation.MEMBER}))
        answer = await bench.get(made.headers["Location"], user="bob")
        assert b"may not subscribe" in answer.body


@pytest.mark.parametrize("left", [Affiliation.MEMBER, Affiliation.OUTCAST])
async def test_a_one_off_link_is_not_used_by_who_may_not_publish_any_more(
    bench: RestBench, left: Affiliation
) -> None:
    await bench.ask(SetAffiliations("orders", {BOB: Affiliation.PUBLISHER}))
    link = (await bench.post("/queues/orders/once", user="bob")).link("create-next")
    await bench.ask(SetAffiliations("orders", {BOB: left}))
    answer = await bench.post(link, b"1", user="bob")
    assert answer.status in {403, 404}
    assert not await bench.items("orders")
