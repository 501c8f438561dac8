"""The options of a push registration of HornetQ, beside its link.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from aiohttp import web

from digest_check import DigestCheck
from qos.core.queue.item import Item
from qos.rest import bounds
from rest_bench import RestBench, rest
from test_pushing import LOOPBACK, Target, target
from waiting import until

FORM = "application/x-www-form-urlencoded"
DIGEST = (
    "<authentication><digest-auth><username>shop</username>"
    "<password>geheim</password></digest-auth></authentication>"
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    """One failed delivery is the end of a message."""
    async with rest(tmp_path, push=LOOPBACK) as bench:
        await bench.create("orders", max_deliveries="1")
        yield bench


@pytest.fixture
async def to() -> AsyncIterator[Target]:
    async with target() as found:
        yield found


async def register(bench: RestBench, href: str, inner: str = "", **link: str) -> str:
    """The location of a new push consumer."""
    given = "".join(f" {name}='{value}'" for name, value in link.items())
    made = await bench.post(
        "/hornetq/queues/orders/push-consumers",
        f"<push-registration><link href='{href}'{given}/>{inner}</push-registration>"
        "".encode(),
        Content_Type="application/xml",
    )
    assert made.status == 201, made
    return made.headers["Location"]


def retries(count: int, *, disable: bool | None = None) -> str:
    inner = f"<maxRetries>{count}</maxRetries><retryWaitMillis>1</retryWaitMillis>"
    if disable is not None:
        inner += f"<disableOnFailure>{str(disable).lower()}</disableOnFailure>"
    return inner


async def publish(bench: RestBench, *bodies: bytes) -> None:
    for body in bodies:
        answer = await bench.post("/queues/orders/messages", body)
        assert answer.status == 200, answer


async def shown(bench: RestBench, location: str) -> ET.Element:
    answer = await bench.get(location)
    assert answer.status == 200, answer
    return ET.fromstring(answer.body)  # noqa: S314 - ours


async def until_disabled(bench: RestBench, location: str) -> str:
    """The reason of it."""

    async def is_disabled() -> bool:
        return (await shown(bench, location)).findtext("enabled") == "false"

    await until(is_disabled)
    return (await shown(bench, location)).findtext("reason", "")


async def counts(bench: RestBench) -> dict[str, int]:
    """The messages of the queue by state."""
    found: dict[str, int]
    found = json.loads((await bench.get("/queues/orders")).body)["counts"]
    return found


async def until_gone(bench: RestBench, path: str) -> None:
    async def is_gone() -> bool:
        return (await bench.get(path)).status == 404

    await until(is_gone)


async def only(bench: RestBench) -> Item:
    (item,) = (await bench.items("orders")).values()
    return item


# -- retries ---------------------------------------------------------------


async def test_a_message_is_posted_again_within_one_delivery(
    bench: RestBench, to: Target
) -> None:
    """Its queue would have it dead after one delivery that fails."""
    to.answers += [500, 404]
    await register(bench, to.url, retries(2))
    await publish(bench, b"1")
    requests = [(await to.next())[0] for _ in range(3)]
    assert len({each.headers["Idempotency-Key"] for each in requests}) == 1
    await bench.until_items("orders", 0)
    await publish(bench, b"2")
    assert await to.bodies(1) == [b"2"]


async def test_a_delivery_with_all_its_retries_has_failed_once(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And disables nothing, if its maker says so, however often that happens."""
    monkeypatch.setattr(bounds, "PUSH_FAILURES_MAX", 1)
    to.answers += [500, 500, 500]
    location = await register(bench, to.url, retries(2, disable=False))
    await publish(bench, b"1", b"2")
    assert await to.bodies(4) == [b"1", b"1", b"1", b"2"]
    await bench.until_items("orders", 0)
    assert (await counts(bench))["dead"] == 1
    assert (await shown(bench, location)).findtext("enabled") == "true"


async def test_many_failed_deliveries_disable_unless_it_is_said(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U8."""
    monkeypatch.setattr(bounds, "PUSH_FAILURES_MAX", 1)
    to.answers += [500, 500]
    location = await register(bench, to.url, retries(1))
    await publish(bench, b"1", b"2")
    reason = await until_disabled(bench, location)
    assert reason == f"1 deliveries in a row failed; the last: {to.url} answered 500"
    assert await to.bodies(2) == [b"1", b"1"]


async def test_a_failed_delivery_disables_if_it_is_said(
    bench: RestBench, to: Target
) -> None:
    """Its message has not failed: it comes when the subscriber is enabled again (U8)."""
    to.answers += [500, 500]
    location = await register(bench, to.url, retries(1, disable=True))
    await publish(bench, b"1")
    reason = await until_disabled(bench, location)
    assert reason == f"2 attempts failed; the last: {to.url} answered 500"
    assert await to.bodies(2) == [b"1", b"1"]
    assert (await only(bench)).delivery_count == 0
    again = await bench.post(location, b"enabled=true", Content_Type=FORM)
    assert again.status == 204
    assert await to.bodies(1) == [b"1"]
    assert (await shown(bench, location)).findtext("reason") is None


async def test_what_was_never_sent_has_not_failed(bench: RestBench) -> None:
    """After its retries too."""
    async with target() as first:
        port, href = first.port, first.url
    location = await register(bench, href, retries(1))
    await publish(bench, b"1")
    unsent = "push_attempts_unsent"
    await until(lambda: bench.rest.pushers.counts("orders")[unsent] >= 2)
    async with target(port) as to:
        assert await to.bodies(1) == [b"1"]
    await bench.until_items("orders", 0)
    assert (await shown(bench, location)).findtext("enabled") == "true"


async def test_a_retry_waits_and_its_message_stays_locked(
    bench: RestBench, to: Target
) -> None:
    """Longer than its queue would lock it; `DELETE` of the subscriber ends the wait."""
    to.answers.append(500)
    inner = "<retryWaitMillis>300000</retryWaitMillis>"
    location = await register(bench, to.url, inner)
    await publish(bench, b"1")
    await to.next()

    async def is_locked() -> bool:
        return (await only(bench)).deadline - bench.engine.now() > 300

    await until(is_locked)
    assert (await bench.http("DELETE", location)).status == 204
    taken = await bench.take()
    assert (taken.body, taken.headers["Msg-Delivery-Count"]) == (b"1", "0")


async def test_a_short_lock_lasts_while_a_target_is_asked_for_its_links(
    bench: RestBench,
) -> None:
    """It would end, and its delivery would have failed, before anything was posted."""
    await bench.create("bills", lock_timeout="10")
    async with target(found=Slow()) as to:
        assert isinstance(to, Slow)
        made = await bench.post(
            "/hornetq/queues/bills/push-consumers",
            f"<push-registration><link rel='destination' href='{to.url}'/>"
            "</push-registration>".encode(),
            Content_Type="application/xml",
        )
        assert made.status == 201
        assert (await bench.post("/queues/bills/messages", b"1")).status == 200
        await until(lambda: to.now == 1)
        (item,) = (await bench.items("bills")).values()
        assert item.deadline - bench.engine.now() > bounds.PUSH_S * 2
        to.may_answer.release()


# -- sessions --------------------------------------------------------------


class Slow(Target):
    """A target that answers when it is told to.

    Attributes:
        now: requests that have no answer yet.
        most: at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.most = 0
        self.may_answer = asyncio.Semaphore(0)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.may_answer.acquire()
            return await super()._handle(request)
        finally:
            self.now -= 1


async def test_so_many_messages_are_on_their_way_as_there_are_sessions(
    bench: RestBench,
) -> None:
    """And never one more."""
    async with target(found=Slow()) as to:
        assert isinstance(to, Slow)
        await register(bench, to.url, "<sessionCount>3</sessionCount>")
        await publish(bench, *(b"%d" % number for number in range(10)))
        for done in range(8):
            await until(lambda: to.now == 3)
            await bench.until_locked("orders", 3)
            await bench.until_items("orders", 10 - done)
            to.may_answer.release()
            await to.next()
            await bench.until_items("orders", 9 - done)
        for _ in range(2):
            to.may_answer.release()
        await bench.until_items("orders", 0)
        assert to.most == 3


class OneOff(Target):
    """A target that gives one-off links.

    Attributes:
        posted: how often a message came to each link.
    """

    def __init__(self) -> None:
        super().__init__()
        self.posted: dict[str, int] = {}

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        status = 200
        if request.path != "/in":
            times = self.posted[request.path] = self.posted.get(request.path, 0) + 1
            status = 405 if times > 1 else 200
            if status == 200:
                self.got.put_nowait((request, body))
        # Others come meanwhile.
        await asyncio.sleep(0.002)
        self.links += 1
        link = f"</in/{self.links}>; rel=create-next"
        return web.Response(status=status, headers={"Link": link})

    links = 0


async def test_each_session_has_its_own_one_off_links(bench: RestBench) -> None:
    async with target(found=OneOff()) as to:
        assert isinstance(to, OneOff)
        inner = "<sessionCount>4</sessionCount>"
        await register(bench, to.url, inner, rel="post-message-once")
        bodies = [b"%d" % number for number in range(40)]
        await publish(bench, *bodies)
        assert sorted(await to.bodies(40)) == sorted(bodies)
        await bench.until_items("orders", 0)
        assert to.got.empty()
        assert set(to.posted.values()) == {1}


async def test_a_session_that_disables_lets_the_others_come_to_their_end(
    bench: RestBench,
) -> None:
    """No message has failed, and none is left locked."""
    async with target(found=Slow()) as to:
        assert isinstance(to, Slow)
        to.answers.append(403)
        inner = "<sessionCount>3</sessionCount>"
        location = await register(bench, to.url, inner)
        await publish(bench, b"1", b"2", b"3", b"4")
        await until(lambda: to.now == 3)
        to.may_answer.release()
        await until_disabled(bench, location)
        for _ in range(2):
            to.may_answer.release()
        await bench.until_items("orders", 2)
        left = (await bench.items("orders")).values()
        assert [each.delivery_count for each in left] == [0, 0]
        for _ in range(2):
            await bench.take()


async def test_what_is_on_its_way_comes_again_if_it_is_enabled_meanwhile(
    bench: RestBench,
) -> None:
    async with target(found=Slow()) as to:
        assert isinstance(to, Slow)
        to.answers.append(403)
        location = await register(bench, to.url, "<sessionCount>2</sessionCount>")
        await publish(bench, b"1", b"2")
        await until(lambda: to.now == 2)
        to.may_answer.release()
        await until_disabled(bench, location)
        assert to.now == 1
        answer = await bench.post(location, b"enabled=true", Content_Type=FORM)
        assert answer.status == 204
        for _ in range(3):
            to.may_answer.release()
        await bench.until_items("orders", 0)


async def test_sessions_count_as_subscribers(
    bench: RestBench, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one user, and of all: each takes a connection."""
    monkeypatch.setattr(bounds, "PUSH_PER_ACCOUNT_MAX", 16)
    inner = "<sessionCount>16</sessionCount>"
    await register(bench, to.url, inner)
    with pytest.raises(AssertionError, match="as many push subscribers and sessions"):
        await register(bench, to.url)


# -- methods and types -----------------------------------------------------


async def test_a_message_is_put_where_its_template_says(
    bench: RestBench, to: Target
) -> None:
    """And has the type of the link if its own is not known."""
    await register(
        bench,
        f"http://127.0.0.1:{to.port}/by-id/{{id}}",
        rel="template",
        method="PUT",
        type="text/x-order",
    )
    await publish(bench, b"1")
    assert (
        await bench.post("/queues/orders/messages", b"2", Content_Type="text/plain")
    ).status == 200
    for kind in ("text/x-order", "text/plain"):
        request, _ = await to.next()
        assert (request.method, request.content_type) == ("PUT", kind)
        assert re.fullmatch(r"/by-id/[0-9a-f]{32}-[0-9]+", request.path)
    await bench.until_items("orders", 0)


async def test_a_message_is_put_where_hornetq_creates_it(bench: RestBench) -> None:
    """H5: create-with-id takes PUT too, and here a destination offers it."""
    await bench.create("bills")
    await register(
        bench,
        f"http://127.0.0.1:{bench.web}/hornetq/queues/bills",
        "<authentication><basic-auth><username>alice</username>"
        "<password>secret</password></basic-auth></authentication>",
        rel="destination",
        method="PUT",
    )
    await publish(bench, b"1")
    await bench.until_items("bills", 1)
    await bench.until_items("orders", 0)


# -- digest authentication -------------------------------------------------


class Guarded(Target):
    """A target that wants digest authentication."""

    def __init__(self, check: DigestCheck) -> None:
        super().__init__()
        self.check = check

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        challenge = self.check.challenge_for(request, await request.read())
        if challenge:
            named = {"WWW-Authenticate": challenge}
            return web.Response(status=401, headers=named, text="no" * 50_000)
        return await super()._handle(request)


@pytest.mark.parametrize(
    ("algorithm", "qop"),
    [
        *(("SHA-256", "auth"), ("SHA-256", "auth-int"), ("MD5", "auth")),
        *(("MD5", ""), ("SHA-256-sess", "auth")),
    ],
)
async def test_a_target_is_answered_by_digest_authentication(
    bench: RestBench, algorithm: str, qop: str
) -> None:
    """RFC 7616; the target checks it, and that no count comes twice for a nonce."""
    check = DigestCheck("shop", "geheim", algorithm=algorithm, qop=qop, uses_max=3)
    async with target(found=Guarded(check)) as to:
        inner = "<sessionCount>2</sessionCount>" + DIGEST
        location = await register(bench, to.url, inner, method="PUT")
        bodies = [b"%d" % number for number in range(12)]
        await publish(bench, *bodies)
        assert sorted(await to.bodies(12)) == sorted(bodies)
        await bench.until_items("orders", 0)
        assert check.wrong == 0
        # A nonce is used as often as the target lets it.
        assert 4 <= check.challenges <= 8
        answer = await bench.get(location)
        assert "<digest-auth><username>shop</username></digest-auth>" in answer.text
        assert "geheim" not in answer.text


async def test_a_wrong_password_disables(bench: RestBench) -> None:
    """U7, without a word of the password."""
    check = DigestCheck("shop", "anders")
    async with target(found=Guarded(check)) as to:
        location = await register(bench, to.url, DIGEST)
        await publish(bench, b"1")
        reason = await until_disabled(bench, location)
        assert reason == f"{to.url} answered 401"
        assert check.wrong == 1
        assert (await only(bench)).delivery_count == 0


async def test_a_challenge_that_nobody_can_answer_disables(bench: RestBench) -> None:
    check = DigestCheck("shop", "geheim", algorithm="SHA-1024")
    async with target(found=Guarded(check)) as to:
        location = await register(bench, to.url, DIGEST)
        await publish(bench, b"1")
        reason = await until_disabled(bench, location)
        assert reason.startswith("127.0.0.1: ")
        assert "SHA-1024" in reason


async def test_no_other_host_gets_a_digest(bench: RestBench) -> None:
    """Not where it redirects to, and not where its challenge says (RFC 7616 `domain`)."""
    other_check = DigestCheck("shop", "geheim")
    async with target(found=Guarded(other_check)) as other:
        check = DigestCheck("shop", "geheim", domain=f"/ {other.url}")
        async with target(found=Guarded(check)) as to:
            moved = web.Response(status=307, headers={"Location": other.url})
            to.answers.append(moved)
            location = await register(bench, to.url, DIGEST)
            await publish(bench, b"1")
            reason = await until_disabled(bench, location)
            assert reason == f"{other.url} answered 401"
            assert (check.right, check.wrong) == (1, 0)
            assert (other_check.challenges, other_check.right) == (1, 0)
            assert other_check.wrong == 0


# -- durability ------------------------------------------------------------


async def test_only_what_is_durable_survives_a_restart(
    tmp_path: Path, to: Target
) -> None:
    """As in HornetQ; messages are durable all the same."""
    durable, disabled = "<durable>true</durable>", "<enabled>false</enabled>"
    async with rest(tmp_path, push=LOOPBACK) as bench:
        for name in ("orders", "bills"):
            await bench.create(name)
        ends = [await register(bench, to.url, inner) for inner in ("", disabled)]
        stays = await register(bench, to.url, durable + disabled)
        await publish(bench, b"1")
        assert await to.bodies(1) == [b"1"]
        await bench.until_items("orders", 0)
    async with rest(tmp_path, push=LOOPBACK) as bench:
        paths = [f"/{each.split('/', 3)[3]}" for each in ends]
        for path in paths:
            await until_gone(bench, path)
        found = await shown(bench, f"/{stays.split('/', 3)[3]}")
        assert found.findtext("durable") == "true"
        assert not bench.engine.store.push_links("")
        assert len(bench.engine.store.push_subscribers()) == 1
        # Nothing is pushed, and nobody is subscribed any more.
        await publish(bench, b"2")
        assert (await bench.take()).body == b"2"
        assert to.got.empty()


async def test_a_subscription_to_a_topic_ends_with_the_service_if_it_is_not_durable(
    tmp_path: Path, to: Target
) -> None:
    """With its queue, which nobody would empty."""
    topics = "/hornetq/topics"
    kind = "application/hornetq.jms.topic+xml"
    async with rest(tmp_path, push=LOOPBACK) as bench:
        made = await bench.post(topics, b"<topic name='news'/>", Content_Type=kind)
        assert made.status == 201
        locations = []
        for durable in ("true", "false"):
            made = await bench.post(
                f"{topics}/news/push-subscriptions",
                f"<push-topic-registration><link href='{to.url}'/>"
                f"<durable>{durable}</durable></push-topic-registration>".encode(),
                Content_Type="application/xml",
            )
            assert made.status == 201, made
            locations.append(f"/{made.headers['Location'].split('/', 3)[3]}")
            found = await shown(bench, locations[-1])
            assert found.tag == "push-topic-registration"
            # Its queue stays while it is disabled.
            for form in (b"enabled=false", b"enabled=true"):
                switched = await bench.post(locations[-1], form, Content_Type=FORM)
                assert switched.status == 204
        path = "/hornetq/queues/news/create/1"
        assert (await bench.post(path, b"1")).status == 201
        assert await to.bodies(2) == [b"1", b"1"]
    async with rest(tmp_path, push=LOOPBACK) as bench:
        stays, ends = locations
        assert (await bench.get(stays)).status == 200
        await until_gone(bench, ends)
        path = "/hornetq/queues/news/create/2"
        assert (await bench.post(path, b"2")).status == 201
        assert await to.bodies(1) == [b"2"]
        # Itself, and the queue that copies.
        assert len(bench.engine.store.contents().nodes) == 2
