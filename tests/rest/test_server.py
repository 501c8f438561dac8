"""Logging in, discovery, and what hostile clients can do.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import json
import logging
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

import aiohttp
import pytest
from proton import ProtonException

from amqp_bench import DOMAIN, HeldChecks
from browser import COMMAND
from qos import password_checks
from qos.core.connection_shares import ConnectionLimits
from qos.core.login_queue import LoginQueue
from qos.core.payers import Rates
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.engine import doors
from qos.rest import admission, bounds, discovery
from qos.rest.paths import url
from qos.testing import ManualClock
from qos.users import hashed, hashed_token
from raw_http import AUTH, Raw
from rest_bench import RestBench, basic, client, rest
from turned_time import turned
from waiting import LIMIT_S, until

TWICE = "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"

ATOM = "{http://www.w3.org/2005/Atom}link"


# -- discovery -------------------------------------------------------------


async def test_a_queue_is_discovered_by_its_links(bench: RestBench) -> None:
    """R1, R2, R6: quoted, and each URL is there."""
    answer = await bench.http("HEAD", "/queues/orders")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.links == {
        "post-message": "/queues/orders/messages",
        "post-batch": "/queues/orders/batches",
        "post-message-once": "/queues/orders/once",
        "message-factory": "/queues/orders/once",
        "post-batch-once": "/queues/orders/batch-once",
        "consumer": "/queues/orders/consumer",
        "poller": "/queues/orders/consumer",
        "subscribers": "/queues/orders/subscribers",
    }
    assert '</queues/orders/messages>; rel="post-message"' in answer.headers["Link"]


@pytest.mark.parametrize(
    ("affiliation", "rels"),
    [
        (Affiliation.MEMBER, {"consumer", "poller", "subscribers"}),
        (
            Affiliation.PUBLISHER,
            {
                *("post-message", "post-batch", "post-message-once", "message-factory"),
                *("post-batch-once", "consumer", "poller", "subscribers"),
            },
        ),
        (
            Affiliation.PUBLISH_ONLY,
            {
                *("post-message", "post-batch", "post-message-once", "message-factory"),
                "post-batch-once",
            },
        ),
    ],
)
async def test_a_user_is_shown_what_it_may_do(
    bench: RestBench, affiliation: Affiliation, rels: set[str]
) -> None:
    """R5."""
    await bench.ask(SetAffiliations("orders", {f"bob@{DOMAIN}": affiliation}))
    answer = await bench.get("/queues/orders", user="bob")
    assert answer.links.keys() == rels
    status = 200 if "post-message" in rels else 403
    posted = await bench.post("/queues/orders/messages", b"1", user="bob")
    assert posted.status == status
    assert (await bench.post("/queues/orders/once", user="bob")).status == status


async def test_a_queue_is_shown_as_json_or_xml(bench: RestBench) -> None:
    """R3: with the same links."""
    for accept, kind in (
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/xml", "application/xml"),
        ("application/json;q=0.5, application/*", "application/xml"),
        ("application/xml;q=0.5, */*;q=0.8", "application/json"),
        ("application/xml;q=junk", "application/json"),
        ("image/png", "application/json"),
    ):
        headers = {"Accept": accept} if accept else {}
        answer = await bench.get("/queues/orders", **headers)
        assert answer.headers["Content-Type"] == kind, accept
        if kind == "application/json":
            shown = json.loads(answer.body)
            assert shown["name"] == "orders", accept
            assert shown["counts"]["available"] == 0, accept
            links = {each["rel"]: each["href"] for each in shown["links"]}
        else:
            root = ET.fromstring(answer.body)  # noqa: S314 - ours
            assert (root.tag, root.findtext("name")) == ("queue", "orders"), accept
            links = {
                each.attrib["rel"]: each.attrib["href"] for each in root.iter(ATOM)
            }
        assert links == answer.links, accept


#: Of Chromium; Firefox sends much the same.
ACCEPT = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,"
    "image/apng,*/*;q=0.8"
)


async def test_a_person_is_shown_a_page(bench: RestBench) -> None:
    """R3: with the links, and nothing that runs or is loaded."""
    name = "<script>alert(1)</script>&'\""
    await bench.create(name)
    listed = await bench.get("/", Accept=ACCEPT)
    shown = await bench.get(url("queue", node=name), Accept=ACCEPT)
    for answer in (listed, shown):
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert escape(name) in answer.text
        assert "<script" not in answer.text
    assert "<h1>Queues and topics</h1>" in listed.text
    for rel in ("post-message-once", "consumer", "subscribers"):
        assert f"<td>{rel}</td>" in shown.text
    assert shown.links.keys() >= {"post-message", "consumer"}
    nobody = await bench.get("/", user="bob", Accept=ACCEPT)
    assert "There is none" in nobody.text


async def test_the_page_of_a_queue_as_a_browser_shows_it(bench: RestBench) -> None:
    """Looked at in Chromium: the counts and the links are there, and no error is."""
    await bench.publish("orders", "<x/>", "<x/>")
    words = [each for each in COMMAND if "host-resolver" not in each]
    process = await asyncio.create_subprocess_exec(
        *(*words, "--enable-logging=stderr", "--dump-dom"),
        f"http://alice:secret@127.0.0.1:{bench.web}/queues/orders",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 2 * LIMIT_S)
    shown = out.decode()
    assert "<h1>orders</h1>" in shown, (shown, err)
    assert "<td>available</td><td>2</td>" in shown
    assert "/queues/orders/once" in shown
    assert b":CONSOLE" not in err


async def test_many_queues_are_listed_in_several_turns(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 of them took 42 ms, for which everybody else waited."""
    names = sorted([*(f"queue-{number}" for number in range(6)), "orders"])
    for name in names:
        if name != "orders":
            await bench.create(name)
    kinds = ("application/json", "application/xml", "text/html")
    whole = [await bench.get("/", Accept=kind) for kind in kinds]
    assert [each["name"] for each in json.loads(whole[0].body)["queues"]] == names
    payers, turns = bench.engine.payers, 0
    take_turn = payers.turn

    async def counted(payer: str) -> None:
        nonlocal turns
        turns += 1
        await take_turn(payer)

    monkeypatch.setattr(payers, "turn", counted)
    taken = []
    for limit in (1000, 2):
        monkeypatch.setattr(discovery, "_NODES_A_TURN", limit)
        turns = 0
        again = [await bench.get("/", Accept=kind) for kind in kinds]
        assert [each.body for each in again] == [each.body for each in whole]
        taken.append(turns)
    # Seven nodes, two a turn: three turns more for each of the answers.
    assert taken[1] - taken[0] == 3 * len(kinds)


async def test_the_service_lists_the_queues_of_a_user(bench: RestBench) -> None:
    """R7; a name may have any character."""
    for name in ("a/b;c?d", "ü"):
        await bench.create(name)
    listed = json.loads((await bench.get("/")).body)["queues"]
    assert [each["name"] for each in listed] == ["a/b;c?d", "orders", "ü"]
    for each in listed:
        shown = json.loads((await bench.get(each["href"])).body)
        assert shown["name"] == each["name"]
    as_xml = await bench.get("/", Accept="text/xml, application/xml")
    root = ET.fromstring(as_xml.body)  # noqa: S314 - ours
    assert [each.attrib["title"] for each in root.iter(ATOM)] == [
        "a/b;c?d",
        "orders",
        "ü",
    ]
    assert json.loads((await bench.get("/", user="bob")).body) == {
        "queues": [],
        "topics": [],
    }


async def test_what_is_not_there_and_what_is_not_possible(bench: RestBench) -> None:
    """R5."""
    for path in ("/queues", "/queues/no", "/x", "/queues/%ff", "/queues/orders/", "//"):
        assert (await bench.get(path)).status == 404, path
    assert (await bench.get("/queues/orders", user="bob")).status == 404
    answer = await bench.get("/queues/orders/messages")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST, OPTIONS")
    options = await bench.http("OPTIONS", "/queues/orders")
    assert (options.status, options.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")


# -- logging in ------------------------------------------------------------


async def test_nobody_else_is_let_in(
    bench: RestBench, caplog: pytest.LogCaptureFixture
) -> None:
    """R5: closed by default; and the log has no secret."""
    for given in (
        "",
        basic("alice", "wrong"),
        basic("nobody"),
        basic("cert"),
        "Basic ?",
        "Basic YWxpY2U=",
        "Basic /w==",
        "Bearer secret",
        "Bearer",
        "Digest x",
    ):
        headers = {"Authorization": given} if given else {}
        for path in ("/",) if given else ("/", "/queues/orders", "/no"):
            answer = await bench.get(path, user="", **headers)
            assert answer.status == 401, (given, path)
            asks = answer.headers["WWW-Authenticate"]
            assert asks.startswith('Basic realm="xmpp-qos"'), (given, path)
        assert "secret" not in caplog.text, given
        assert not given or given not in caplog.text, given


async def test_a_token_is_a_user(bench: RestBench) -> None:
    lines = bench.users_file.read_text()
    bench.users_file.write_text(f"{lines}till:{hashed_token('t0ken')}\n")
    await bench.ask(
        SetAffiliations("orders", {f"till@{DOMAIN}": Affiliation.PUBLISHER})
    )
    bearer = {"Authorization": "Bearer t0ken", "user": ""}
    assert (await bench.post("/queues/orders/messages", b"1", **bearer)).status == 200
    (item,) = (await bench.items("orders")).values()
    assert item.publisher == f"till@{DOMAIN}"
    # It is no password.
    assert (
        await bench.get("/", user="", Authorization=basic("till", "t0ken"))
    ).status == 401
    bench.users_file.write_text(lines)
    assert (await bench.get("/", **bearer)).status == 401


async def test_a_password_counts_until_it_is_changed(bench: RestBench) -> None:
    """It is not checked for each request, since that takes 50 ms."""
    old, new = basic("bob"), basic("bob", "other")
    for _ in range(3):
        assert (await bench.get("/", user="", Authorization=old)).status == 200
    bench.users_file.write_text(f"bob:{hashed('other')}\n")
    assert (await bench.get("/", user="", Authorization=old)).status == 401
    assert (await bench.get("/", user="", Authorization=new)).status == 200
    bench.users_file.unlink()
    assert (await bench.get("/", user="", Authorization=new)).status == 401


async def test_a_remembered_password_is_not_checked_again(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    is_right = password_checks.is_right

    def counted(password: str, stored: str) -> bool:
        checked.append(password)
        return is_right(password, stored)

    monkeypatch.setattr(password_checks, "is_right", counted)
    for _ in range(50):
        assert (await bench.get("/")).status == 200
    assert checked == ["secret"]


async def test_a_page_of_another_site_posts_nothing(bench: RestBench) -> None:
    """A browser would send the password that it remembers."""
    for site, status in [("cross-site", 403), ("same-site", 403), ("same-origin", 200)]:
        answer = await bench.post("/queues/orders/messages", b"1", Sec_Fetch_Site=site)
        assert answer.status == status


@pytest.mark.parametrize(
    "path",
    [
        "/queues/orders/messages",
        "/queues/orders/once",
        "/queues/orders/consumer",
        "/hornetq/queues/orders/create",
        "/hornetq/queues/orders/pull-consumers",
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    bench: RestBench, path: str
) -> None:
    """Not every browser tells the site; each tells the origin of what changes something."""
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{bench.web + 1}"):
        answer = await bench.post(path, Origin=origin)
        assert (answer.status, "another site" in answer.text) == (403, True)
        assert (await bench.get("/queues/orders", Origin=origin)).status == 200
    own = await bench.post(path, Origin=f"http://127.0.0.1:{bench.web}")
    assert own.status in {200, 201, 202, 307}


async def test_links_behind_a_proxy_have_the_url_of_the_proxy(tmp_path: Path) -> None:
    """It speaks plain HTTP to the service; the links of REST-* are paths anyway."""
    base = "https://queue.example.org"
    for link_headers in (False, True):
        folder = tmp_path / str(link_headers)
        folder.mkdir()
        async with rest(folder, base=base, link_headers=link_headers) as bench:
            await bench.create("orders")
            path = f"{base}/hornetq/queues/orders/create"
            shown = await bench.get("/hornetq/queues/orders")
            if link_headers:
                assert shown.link("create") == path
            else:
                assert shown.headers["msg-create"] == path
            made = await bench.post("/hornetq/queues/orders/create", b"1", Origin=base)
            assert made.headers["Location"].startswith(f"{path}/")
            plain = await bench.get("/queues/orders")
            assert plain.link("consumer") == "/queues/orders/consumer"


# -- hostile clients -------------------------------------------------------


def connections(bench: RestBench) -> int:
    http = bench.rest._http
    assert http is not None
    return len(http._web.connections)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"junk\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["tls", "junk", "version", "target", "header", "headers", "length", "both"],
)
async def test_bytes_that_are_no_request_end_their_connection(
    bench: RestBench, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Raw(bench) as raw:
        raw.writer.write(data)
        assert (await raw.rest())[:12] in {b"HTTP/1.1 400", b"HTTP/1.0 400", b""}
    assert (await bench.get("/")).status == 200
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: ", b""),
        (f"POST /queues/orders/messages HTTP/1.1\r\nContent-Length: 9\r\n{AUTH}\r\n1".encode(), b"408"),
    ],
    ids=["silent", "headers", "body"],
)  # fmt: skip
async def test_a_client_that_is_slow_is_dropped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body_clock: ManualClock,
    data: bytes,
    status: bytes,
) -> None:
    (tmp_path / "own").mkdir()
    if not status:
        # The time of headers is aiohttp's.
        monkeypatch.setattr(bounds, "IDLE_S", 0.5)
    async with rest(tmp_path / "own") as own, Raw(own) as raw:
        await own.create("orders")
        raw.writer.write(data)
        if status:
            # For the body, and for what is thrown away of it.
            for seconds in (bounds.BODY_S, bounds.DRAIN_S):
                await until(lambda: body_clock.deadline() is not None)
                body_clock.advance(seconds)
        assert (await raw.rest())[9:12] == status


async def test_a_client_that_reads_nothing_is_dropped(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item that was sent is released: the client has not seen it."""
    for _ in range(60):
        await bench.post("/queues/orders/messages", b"x" * 140_000)
    monkeypatch.setattr(bounds, "WRITE_S", 0.5)
    async with Raw(bench) as raw:
        transport = raw.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        request = (
            f"POST /queues/orders/consumer HTTP/1.1\r\n{AUTH}Content-Length: 0\r\n\r\n"
        )
        raw.writer.write(request.encode() * 60)
        await until(lambda: connections(bench) > 1)
        await until(lambda: connections(bench) < 2)
        found = (await bench.items("orders")).values()
        # What fits into the buffers of the network counts as sent.
        assert 0 < sum(bool(each.token) for each in found) < 60
        assert {each.delivery_count for each in found} == {0}


async def test_the_requests_of_one_user_are_bounded(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its waiting consumers leave connections to others."""
    monkeypatch.setattr(bounds, "REQUESTS_PER_ACCOUNT_MAX", 2)
    take = "/queues/orders/consumer"
    waiting = [
        asyncio.create_task(bench.post(take, b"", Prefer="wait=30")) for _ in range(2)
    ]
    await until(lambda: len(bench.rest.consumers) == 2)
    refused = await bench.post(take)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "5")
    assert (await bench.get("/", user="bob")).status == 200
    for each in waiting:
        each.cancel()
    await until(lambda: not bench.rest.consumers)
    assert (await bench.post(take)).status == 202


async def test_requests_over_the_rate_of_a_user_wait_and_are_refused_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P14: others go on, and so does who waits as long as it is told."""
    clock = turned(monkeypatch, admission, clock=ManualClock())
    async with rest(tmp_path, rates=Rates(requests=4, bytes=1000)) as bench:
        bench.engine.payers.now = clock.now
        await bench.create("orders")
        # The burst of two seconds, and the one by which there is a debt.
        assert [(await bench.get("/")).status for _ in range(9)] == [200] * 9
        waiting = [asyncio.ensure_future(bench.get("/")) for _ in range(20)]
        await until(lambda: sum(task.done() for task in waiting) == 12)
        for refused in (task.result() for task in waiting if task.done()):
            assert (refused.status, refused.headers["Retry-After"]) == (429, "3")
            assert "4 requests a second are taken of alice@" in refused.text
        assert (await bench.get("/", user="bob")).status == 200
        # One of them each quarter of a second.
        clock.advance(0.25)
        await until(lambda: sum(task.done() for task in waiting) == 13)
        clock.advance(2.0)
        answers = await asyncio.gather(*waiting)
        assert sorted(answer.status for answer in answers) == [200] * 8 + [429] * 12


async def test_requests_of_strangers_wait_for_the_rate_of_their_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a login, with a header twice: each answer is work that somebody pays."""
    clock = turned(monkeypatch, admission, clock=ManualClock())
    async with (
        rest(tmp_path, rates=Rates(requests=5, bytes=1000)) as bench,
        Raw(bench) as raw,
    ):
        bench.engine.payers.now = clock.now
        nobody = b"GET / HTTP/1.1\r\nHost: x\r\n"
        raw.writer.write((nobody + b"\r\n") * 10)
        raw.writer.write(nobody + f"{TWICE}\r\n".encode())
        assert [await raw.status() for _ in range(11)] == [401] * 10 + [400]
        raw.writer.write(nobody + b"\r\n")
        assert (await bench.get("/")).status == 200
        answer = asyncio.ensure_future(raw.status())
        await until(lambda: clock.deadline() is not None)
        assert not answer.done()
        clock.advance(0.2)
        assert await answer == 401


@pytest.mark.parametrize(
    ("headers", "payer"),
    [
        pytest.param("Host: x\r\n", "127.0.0.1", id="stranger"),
        pytest.param(AUTH, f"alice@{DOMAIN}", id="account"),
        pytest.param(f"{AUTH}{TWICE}", "127.0.0.1", id="twice"),
    ],
)
async def test_each_request_of_a_row_waits_for_a_turn(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch, headers: str, payer: str
) -> None:
    """aiohttp would answer all of a row before the loop goes round."""
    turns: list[str] = []
    turn = bench.engine.payers.turn

    async def noted(payer: str, later_s: float = 0.0) -> None:
        turns.append(payer)
        await turn(payer, later_s)

    monkeypatch.setattr(bench.engine.payers, "turn", noted)
    async with Raw(bench) as raw:
        # The connection itself has one.
        await until(lambda: len(turns) == 1)
        raw.writer.write(f"GET / HTTP/1.1\r\n{headers}\r\n".encode() * 20)
        for _ in range(20):
            await raw.status()
    assert turns == ["127.0.0.1"] + [payer] * 20


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    """A body without a length."""
    for part in parts:
        yield part


async def test_the_bytes_of_one_user_are_bounded(tmp_path: Path) -> None:
    """P14: a large body is taken, and paid for afterwards; so is one without a length."""
    clock = ManualClock()
    async with rest(tmp_path, rates=Rates(requests=0, bytes=1000)) as bench:
        bench.engine.payers.now = clock.now
        await bench.create("orders")
        post = "/queues/orders/messages"
        assert (await bench.post(post, b"x")).status == 200
        async with bench.session.post(
            f"http://127.0.0.1:{bench.web}{post}",
            data=chunks(b"x"),
            headers={"Authorization": basic("alice")},
        ) as answer:
            assert answer.status == 200
        assert (await bench.post(post, b"x" * 10_000)).status == 200
        refused = await bench.post(post, b"x")
        assert refused.status == 429
        assert 7 <= int(refused.headers["Retry-After"]) <= 9
        assert "1000 bytes a second" in refused.text


async def test_the_number_of_connections_is_bounded(bench: RestBench) -> None:
    bench.engine.doors.shares.limits = ConnectionLimits(address=2)
    async with Raw(bench), Raw(bench), Raw(bench) as third:
        third.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await third.rest() == b""
    await until(lambda: not len(bench.engine.doors.shares))
    assert (await bench.get("/")).status == 200


async def test_a_connection_that_does_not_log_in_is_ended(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it goes on: silent, with half a request, or with requests of nobody."""
    clock = turned(monkeypatch, doors)
    shares = bench.engine.doors.shares
    async with Raw(bench) as silent, Raw(bench) as slow, Raw(bench) as nobody:
        slow.writer.write(b"GET / HTTP/1.1\r\nX: ")
        nobody.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await nobody.head()).startswith(b"HTTP/1.1 401 ")
        await until(lambda: len(shares) == 3)
        clock.advance(doors.LOGIN_S - 0.1)
        assert len(shares) == 3
        clock.advance(0.1)
        await nobody.rest()
        for each in (silent, slow):
            assert await each.rest() == b""
        await until(lambda: not len(shares))


async def test_too_many_guesses_of_an_address_are_told_so(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is known from memory gets in meanwhile."""
    assert (await bench.get("/")).status == 200
    checks = HeldChecks()
    monkeypatch.setattr(password_checks, "is_right", checks)
    bench.rest.users.checks._queue = LoginQueue(address_max=2)
    guesses = [
        asyncio.ensure_future(bench.get("/", Authorization=basic("bob", f"wrong {n}")))
        for n in range(12)
    ]
    # Two are checked, and two may wait.
    await until(lambda: sum(each.done() for each in guesses) == 8)
    assert (await bench.get("/")).status == 200
    checks.may_end.set()
    answers = await asyncio.gather(*guesses)
    busy = [each for each in answers if each.status == 503]
    assert sorted(each.status for each in answers) == [401] * 4 + [503] * 8
    assert busy[0].headers["Retry-After"] == "1"
    assert "too many passwords of this address wait" in busy[0].text


async def test_an_account_has_a_share_of_the_connections(bench: RestBench) -> None:
    """At all doors together."""
    bench.engine.doors.shares.limits = ConnectionLimits(account=2)
    shares = bench.engine.doors.shares
    head = f"GET / HTTP/1.1\r\n{AUTH}\r\n".encode()
    async with Raw(bench) as first, Raw(bench) as second, Raw(bench) as third:
        for each in (first, second):
            each.writer.write(head)
            await each.reader.readuntil(b"\r\n\r\n")
        third.writer.write(head)
        assert (await third.rest()).startswith(b"HTTP/1.1 429 ")
        with pytest.raises(ProtonException, match="Auth"):
            await bench.proton(lambda _: None)
        assert (await bench.get("/", user="bob")).status == 200
        held = len(shares)
        first.writer.close()
        await until(lambda: len(shares) < held)
        await bench.proton(lambda _: None)


async def test_an_error_of_ours_is_answered_and_logged_without_the_url(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bench.engine, "request", None)
    answer = await bench.post("/queues/orders/consumer?selector=s3cret")
    assert (answer.status, answer.text) == (500, "an internal error\n")
    assert "TypeError" in caplog.text
    assert "s3cret" not in caplog.text


async def test_logs_have_neither_links_nor_etags(
    bench: RestBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is a secret of its client."""
    caplog.set_level(logging.DEBUG)
    link = (await bench.post("/queues/orders/once")).link("create-next")
    await bench.post(link, b"1")
    taken = await bench.take()
    await bench.settle(taken, "no form")
    await bench.settle(taken, "acknowledge=true")
    ours = "".join(
        each.getMessage() for each in caplog.records if each.name.startswith("qos")
    )
    for secret in (link.rpartition("/")[2], taken.link("acknowledgement")):
        assert secret not in ours
        assert secret.rpartition(".")[2] not in ours


async def test_an_absolute_target_is_taken(bench: RestBench) -> None:
    """RFC 9112 §3.2.2."""
    async with Raw(bench) as raw:
        head = f"GET http://x/queues/orders HTTP/1.1\r\nConnection: close\r\n{AUTH}\r\n"
        raw.writer.write(head.encode())
        assert b'"name": "orders"' in await raw.rest()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Of localhost, signed by itself, and its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    words = ("-addext", "subjectAltName=DNS:localhost", "-out", paths[0])
    command = (openssl, *new, *words, "-keyout", paths[1])
    subprocess.run(command, check=True, capture_output=True)
    return paths


async def test_tls_is_spoken(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    async with rest(tmp_path, tls=server) as bench, client() as session:
        address = f"https://localhost:{bench.web}/"
        headers = {"Authorization": basic("alice")}
        async with session.get(address, headers=headers, ssl=trusting) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await bench.get("/")


# -- what no library sends -------------------------------------------------


@pytest.mark.parametrize("name", ["Idempotency-Key", "Authorization"])
async def test_a_header_with_one_value_is_not_given_twice(
    bench: RestBench, name: str
) -> None:
    """Joined by a comma, two keys would be a third one, and a repeat another post."""
    given = {"Authorization": basic("alice")}.get(name, "text/plain")
    lines = f"Host: x\r\nAuthorization: {basic('alice')}\r\n{name}: {given}\r\n"
    if name != "Authorization":
        lines += f"{name}: b\r\n"
    async with Raw(bench) as raw:
        head = f"POST /queues/orders/messages HTTP/1.1\r\nConnection: close\r\n{lines}"
        raw.writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
        answer = await raw.rest()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"{name} is given twice".encode() in answer
    assert not await bench.items("orders")


async def test_a_client_that_sends_no_more_gets_its_answer(bench: RestBench) -> None:
    """As `nc -N` does it; the connection ends afterwards."""
    async with Raw(bench) as raw:
        head = "POST /queues/orders/messages HTTP/1.1\r\nContent-Length: 1\r\n"
        raw.writer.write(f"{head}{AUTH}\r\n1".encode())
        raw.writer.write_eof()
        assert (await raw.rest()).startswith(b"HTTP/1.1 200 ")
    assert len(await bench.items("orders")) == 1


async def test_who_sends_no_more_takes_no_message(bench: RestBench) -> None:
    """A client that was killed looks the same, and would lock the message."""
    async with Raw(bench) as raw, Raw(bench) as late:
        take = f"POST /queues/orders/consumer HTTP/1.1\r\nContent-Length: 0\r\n{AUTH}"
        raw.writer.write(f"{take}Prefer: wait=20\r\n\r\n".encode())
        await until(lambda: len(bench.rest.consumers) == 1)
        raw.writer.write_eof()
        assert await raw.rest() == b""
        await until(lambda: not bench.rest.consumers)
        await bench.post("/queues/orders/messages", b"1")
        late.writer.write(f"{take}\r\n".encode())
        late.writer.write_eof()
        assert b"in both directions" in await late.rest()
    assert (await bench.post("/queues/orders/consumer")).status == 200


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\nA\r\n\r\n", b"GET\r\n\r\n"]
)
async def test_what_is_no_request_is_told_so_in_our_words(
    bench: RestBench, data: bytes
) -> None:
    """And not in those of a library, with its version and what it was looking for."""
    async with Raw(bench) as raw:
        raw.writer.write(data)
        answer = await raw.rest()
    assert answer[8:13] == b" 400 "
    assert b"Server: xmpp-qos\r\n" in answer
    assert b"this is no request of HTTP/1.1" in answer
    assert b"iohttp" not in answer.lower()
