"""`queue serve --http` and `queue http-user`, with curl.

Wrong options: test_queue_gateways.py.
"""

from __future__ import annotations

import asyncio
import functools
import re
import resource
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fork_settings
from waiting import until

if TYPE_CHECKING:
    from tests.cli.conftest import Commands

QUEUES = "queue.localhost"
SECRET = "secret of queues"  # noqa: S105 - of the embedded server
LOCAL = ("--http", "127.0.0.1:0")


async def write_user(commands: Commands, name: str, *words: str) -> tuple[str, str]:
    """A user; returns the file, and the token if there is one."""
    file = commands.folder / "users"
    input_ = b"" if words else b"secret\n"
    ended = await commands.run("queue", "http-user", file, name, *words, input_=input_)
    assert ended.status == 0, ended.err
    return str(file), str(ended.out[0]["token"]) if ended.out else ""


async def serve(commands: Commands, *words: str) -> str:
    """Serve HTTP; returns its URL."""
    serving = await commands.serve(*LOCAL, *words)
    (line,) = [each for each in serving.err if "http://" in each]
    return line[line.index("http://") :].rstrip("/")


async def curl(*words: str) -> tuple[int, str, str]:
    """The status, the headers and the body of an answer."""
    program = shutil.which("curl")
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        *(program, "--silent", "--show-error", "--max-time", "20", "-i", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err
    head, _, body = out.decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, body


def link(head: str, rel: str) -> str:
    (found,) = re.findall(f'<([^>]*)>; rel="{rel}"', head)
    return str(found)


async def test_a_shell_script_posts_and_takes(commands: Commands) -> None:
    """Beside XMPP: what curl has posted is browsed, and curl takes what XMPP published."""
    users, token = await write_user(commands, "till", "--token")
    url = await serve(commands, "--http-users", users)
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "till@queue.localhost=owner")
    assert given.status == 0, given.err
    auth = ("-H", f"Authorization: Bearer {token}")
    _, head, _ = await curl(*auth, "-I", f"{url}/queues/orders")
    once = link(head, "post-message-once")
    status, head, _ = await curl(*auth, "-X", "POST", url + once)
    following = url + link(head, "create-next")
    for expected in (200, 405):
        status, head, _ = await curl(*auth, "-d", "order 1", following)
        assert status == expected
    (found,) = (await commands.queue("browse")).out
    assert "b3JkZXIgMQ==" in str(found["payload"])
    item = ("--payload", "<order xmlns='shop'>2</order>", "--id", "i")
    assert (await commands.queue("publish", *item)).status == 0
    bodies = []
    for _ in range(2):
        consumer = f"{url}/queues/orders/consumer"
        status, head, body = await curl(*auth, "-X", "POST", consumer)
        assert status == 200
        bodies.append(body)
        done = url + link(head, "acknowledgement")
        assert (await curl(*auth, "-d", "acknowledge=true", done))[0] == 204
    assert bodies == ["order 1", "<order xmlns='shop'>2</order>"]
    assert not (await commands.queue("browse")).out


async def test_whole_links_begin_with_the_base_that_serve_is_given(
    commands: Commands,
) -> None:
    """Behind a proxy with TLS the service cannot know what clients call it."""
    base = "https://queue.example.org"
    words = ("--http-users", commands.user_file(), "--http-base", base)
    url = await serve(commands, *words)
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=owner")
    assert given.status == 0, given.err
    queue = f"{url}/hornetq/queues/orders"
    status, head, _ = await curl("-u", "shop:secret", "-I", queue)
    assert status == 200
    links = re.findall(r"^msg-[a-z-]+: (.*)\r?$", head, re.MULTILINE)
    assert links
    for each in links:
        assert each.startswith(f"{base}/hornetq/queues/orders/"), head


async def test_a_worker_that_replies_need_not_see_the_replies_of_others(
    commands: Commands,
) -> None:
    """The guide advises publish-only; the command gives it, and lists it."""
    users = commands.user_file()
    url = await serve(commands, "--http-users", users)
    assert (await commands.queue("create")).status == 0
    rights = {
        "shop@queue.localhost": "publish-only",
        "bob@localhost": "publish-only",
    }
    words = [f"{jid}={what}" for jid, what in rights.items()]
    given = await commands.queue("affiliate", *words)
    assert given.status == 0, given.err
    listed = (await commands.queue("affiliate")).out
    assert {
        each["jid"]: each["affiliation"]
        for each in listed
        if each["affiliation"] != "owner"
    } == rights
    queue, auth = f"{url}/queues/orders", ("-u", "shop:secret")
    assert (await curl(*auth, "-d", "reply 1", f"{queue}/messages"))[0] == 200
    status, _, body = await curl(*auth, "-X", "POST", f"{queue}/consumer")
    assert (status, "reply 1" in body) == (403, False)
    by_xmpp = ("--payload", "<reply xmlns='shop'/>", "--id", "2")
    published = await commands.queue("publish", *by_xmpp, user="bob")
    assert published.status == 0, published.err
    browsed = await commands.queue("browse", user="bob")
    assert (browsed.status, browsed.out) == (1, [])
    assert len((await commands.queue("browse")).out) == 2


async def subscribers(commands: Commands) -> object:
    return (await commands.queue("stats")).out[0]["subscribers"]


async def test_a_service_that_stops_answers_who_waits(commands: Commands) -> None:
    users = commands.user_file()
    serving = await commands.serve(*LOCAL, "--http-users", users)
    (line,) = [each for each in serving.err if "http://" in each]
    url = line[line.index("http://") :]
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=owner")
    assert given.status == 0
    words = ("-u", "shop:secret", "-H", "Prefer: wait=30", "-X", "POST")
    waiting = asyncio.create_task(curl(*words, f"{url}/queues/orders/consumer"))
    await until(lambda: subscribers(commands))
    serving.process.send_signal(signal.SIGTERM)
    status, head, _ = await waiting
    assert status == 503
    assert "Retry-After" in head
    assert (await serving.end()).status == 0


async def test_a_shell_script_sends_to_a_device(commands: Commands) -> None:
    """From a service without a component, whose contact trusts it."""
    users = commands.user_file()
    targets = commands.folder / "targets"
    targets.write_text("shop: bob@localhost\n")
    listening = await commands.listen("bob")
    serving = await commands.start(
        *("queue", "serve", "--store", f"sqlite:{commands.folder / 'queues.db'}"),
        *(*LOCAL, "--http-users", users, "--http-send", targets),
        user="alice",
    )
    await serving.note("ready")
    (line,) = [each for each in serving.err if "http://" in each]
    url = line[line.index("http://") :].rstrip("/")
    auth = ("-u", "shop:secret", "-H", "Content-Type: text/plain")
    key = ("-H", "Idempotency-Key: 1", "-d", "on")
    for _ in range(2):
        status, head, _ = await curl(*auth, *key, f"{url}/send/bob@localhost%2F1")
        assert status == 202
    (sent,) = re.findall("Content-Location: (.*)\r?", head)
    wait = ("-H", "Prefer: wait=20")
    status, _, body = await curl(*auth, *wait, url + sent.strip())
    assert (status, '"outcome": "delivered"' in body) == (200, True), body
    got = await listening.line()
    assert (got["from"], got["body"]) == ("alice@localhost/1", "on")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
async def test_what_a_component_sends_for_its_users_is_judged(
    commands: Commands,
) -> None:
    """Two messages of HTTP users to a device, one that nobody takes, and one back.

    The message that is pending is in the figures, and no line is a foreign word.
    """
    folder = commands.folder
    users = commands.user_file()
    targets = folder / "targets"
    targets.write_text("shop: bob@localhost carol@localhost\n")
    device = await commands.start(
        *("listen", "--journal", folder / "bob", "--trust", "@queue.localhost"),
        user="bob",
    )
    await device.note("ready")
    serving = await commands.serve(
        *(*LOCAL, "--http-users", users, "--http-send", targets),
        *("--journal", folder / "service"),
    )
    (line,) = [each for each in serving.err if "http://" in each]
    url = line[line.index("http://") :].rstrip("/")
    auth = ("-u", "shop:secret", "-H", "Content-Type: text/plain")
    for key, to in (("1", "bob"), ("2", "bob"), ("3", "carol")):
        once = ("-H", f"Idempotency-Key: {key}", "-d", f"order {key}")
        status, _, body = await curl(*auth, *once, f"{url}/send/{to}@localhost%2F1")
        assert status == 202, body
    for _ in range(2):
        assert (await device.line())["from"] == "shop@queue.localhost/http"
    sent = await commands.run(
        *("send", "bob@localhost/1", "--body", "on", "--journal", folder / "alice"),
        user="alice",
    )
    assert sent.status == 0, sent.err
    await device.line()
    for running in (device, serving):
        running.process.terminate()
        assert (await running.end()).status == 0
    nodes = {"queue.localhost": "service", "bob@localhost/1": "bob"}
    nodes["alice@localhost/1"] = "alice"
    journals = [f"{node}={folder / name}" for node, name in nodes.items()]
    # A fork of this process cannot start Spark.
    commands.forked = False
    words = ("--out", folder / "out", "--json", "--stuck-after", "0.01")
    auditing = await commands.start("audit", *journals, *words)
    ended = await auditing.end(at_most_s=200)
    assert ended.out, ended.err
    (found,) = ended.out
    assert found["problems"] == {}, found
    assert found["outcomes"] == {"delivered": 3, "open": 1}
    assert (found["anomalies"], found["unproven"]) == ({"stuck": 1}, {})


async def test_the_rate_of_a_user_is_an_option(commands: Commands) -> None:
    """Of twenty at once three are the burst of one a second, and two wait for so long."""
    users = commands.user_file()
    rate = ("--http-requests-per-second", "1", "--http-bytes-per-second", "0")
    url = await serve(commands, "--http-users", users, *rate)
    at_once = ("--parallel", "--parallel-immediate", "--parallel-max", "20")
    urls = 20 * [f"{url}/openapi.json"]
    _, head, body = await curl("-u", "shop:secret", *at_once, *urls)
    answers = head + body
    assert 5 <= answers.count(" 200 OK") < 20
    assert "Retry-After: 3" in answers


def lines_of(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


async def test_tokens_and_passwords_are_in_one_file(commands: Commands) -> None:
    file, token = await write_user(commands, "till", "--token")
    await write_user(commands, "shop")
    lines = lines_of(file)
    assert [each.split(":")[:2] for each in lines] == [
        ["till", "token"],
        ["shop", "scrypt"],
    ]
    assert token not in lines[0]
    _, other = await write_user(commands, "till", "--token")
    assert other != token
    await write_user(commands, "till", "--remove")
    (left,) = lines_of(file)
    assert left.startswith("shop:")


async def test_few_file_descriptors_are_said_at_the_start(commands: Commands) -> None:
    """There is room left for everything but connections; a soft limit is raised."""
    users = commands.user_file()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files, says in (
        ((1000, 1000), "1000 files open (ulimit -n), so only 800 connections"),
        ((300, 300), "300 files open (ulimit -n), so only 150 connections"),
        ((300, most), ""),
    ):
        commands.function = functools.partial(fork_settings.command, files=files)
        serving = await commands.start(
            *("queue", "serve", "--component", QUEUES, *LOCAL),
            *("--port", str(commands.component_port), "--http-users", users),
            password=SECRET,
        )
        await serving.note("http://")
        said = "\n".join(serving.err)
        assert ("warning" in said) is bool(says), (files, said)
        assert says in said, files
        serving.process.terminate()
        await serving.end()


async def test_an_operator_behind_a_proxy_raises_the_share_of_its_address(
    commands: Commands,
) -> None:
    users = commands.user_file()
    url = await serve(commands, "--http-users", users, "--connections-per-address", "2")
    host, port = url.removeprefix("http://").split(":")
    address = host, int(port)
    with (
        socket.create_connection(address) as first,
        socket.create_connection(address) as second,
        socket.create_connection(address) as third,
    ):
        assert await asyncio.to_thread(third.recv, 1) == b""
        for each in (first, second):
            each.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await asyncio.to_thread(each.recv, 100)
            assert answer.startswith(b"HTTP/1.1 401 ")
