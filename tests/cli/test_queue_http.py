"""`queue serve --http` and `queue http-user`, with curl and every kind of wrong usage."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Commands

SECRET = "secret of queues"  # noqa: S105 - of the embedded server
ANY = "any"
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


async def test_a_service_that_stops_answers_who_waits(commands: Commands) -> None:
    users, _ = await write_user(commands, "shop")
    serving = await commands.serve(*LOCAL, "--http-users", users)
    (line,) = [each for each in serving.err if "http://" in each]
    url = line[line.index("http://") :]
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=owner")
    assert given.status == 0
    words = ("-u", "shop:secret", "-H", "Prefer: wait=30", "-X", "POST")
    waiting = asyncio.create_task(curl(*words, f"{url}/queues/orders/consumer"))
    async with asyncio.timeout(20):
        while (await commands.queue("stats")).out[0]["subscribers"] == 0:
            pass
    serving.process.send_signal(signal.SIGTERM)
    status, head, _ = await waiting
    assert status == 503
    assert "Retry-After" in head
    assert (await serving.end()).status == 130


async def test_a_shell_script_sends_to_a_device(commands: Commands) -> None:
    """From a service without a component, whose contact trusts it."""
    users, _ = await write_user(commands, "shop")
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


async def test_the_rate_of_a_user_is_an_option(commands: Commands) -> None:
    """A curl that asks for eight URLs: the first three are the burst of one a second."""
    users, _ = await write_user(commands, "shop")
    rate = ("--http-requests-per-second", "1", "--http-bytes-per-second", "0")
    url = await serve(commands, "--http-users", users, *rate)
    _, head, body = await curl("-u", "shop:secret", *8 * [f"{url}/openapi.json"])
    answers = head + body
    assert 3 <= answers.count(" 200 OK") < 8
    assert "Retry-After: 1" in answers


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (LOCAL, "nobody could log in without --http-users"),
        (("--http-users", "users"), "--http-users is for the gateway of --http"),
        (("--http-link-headers",), "--http-link-headers is for the gateway of --http"),
        (("--http", "8080"), "'8080' is not HOST:PORT"),
        (
            ("--http", "0.0.0.0:0", "--http-users", "users"),
            "an address of other machines needs --http-tls CERT KEY",
        ),
        ((*LOCAL, "--http-users", "none"), "none cannot be read: "),
        (
            (*LOCAL, "--http-requests-per-second", "x"),
            "'x' is not a whole number",
        ),
        (("--http-push", "a.example"), "--http-push is for the gateway of --http"),
        (
            (*LOCAL, "--http-users", "users", "--http-push", "http://a.example"),
            "--http-push: 'http://a.example' is not HOST, HOST:PORT or NETWORK/BITS",
        ),
        (("--http-send", "users"), "--http-send is for the gateway of --http"),
        (
            (*LOCAL, "--http-users", "users", "--http-send", "none"),
            "none cannot be read: ",
        ),
        (
            (*LOCAL, "--http-users", "users", "--http-send", "users"),
            "users, line 1: 'scrypt:",
        ),
        (
            (*LOCAL, "--http-users", "users", "--http-tls", "none", "users"),
            "--http-tls none users: ",
        ),
    ],
)
async def test_wrong_options_are_refused_with_what_to_do(
    commands: Commands,
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(commands.folder)
    await write_user(commands, "shop")
    ended = await commands.run(
        "queue", "serve", "--component", "queue.localhost", *words, password=ANY
    )
    assert (ended.status, ended.out) == (2, [])
    assert says in ended.err
    assert "Traceback" not in ended.err


async def test_a_port_that_is_taken_is_named(commands: Commands) -> None:
    users, _ = await write_user(commands, "shop")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = await commands.run(
            *("queue", "serve", "--component", "queue.localhost"),
            *("--port", str(commands.component_port)),
            *("--http", f"127.0.0.1:{port}", "--http-users", users),
            password=SECRET,
        )
    assert ended.status == 4
    assert f"--http 127.0.0.1:{port}: " in ended.err
    assert "already in use" in ended.err


async def test_without_the_extra_it_says_what_to_install(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, _ = await write_user(commands, "shop")
    commands.forked = False
    (commands.folder / "aiohttp.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(commands.folder))
    ended = await commands.run(
        *("queue", "serve", "--component", "queue.localhost", *LOCAL),
        *("--http-users", users),
        password=ANY,
    )
    assert ended.status == 2
    assert "there is no aiohttp: pip install 'xmpp-qos[rest]'" in ended.err
