"""Wrong usage of the gateways of `queue serve`, the same for AMQP and HTTP."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qos.cli import main
from wrong_usage import refused

if TYPE_CHECKING:
    from tests.cli.conftest import Commands

QUEUES = "queue.localhost"
SERVE = ("queue", "serve", "--component", QUEUES)
SECRET = "secret of queues"  # noqa: S105 - of the embedded server
ANY = "any"
AMQP_LOCAL = ("--amqp", "127.0.0.1:0")
HTTP_LOCAL = ("--http", "127.0.0.1:0")

AMQP_WRONG = (
    (AMQP_LOCAL, "nobody could log in without --amqp-users"),
    (("--amqp-users", "users"), "--amqp-users is for the gateway of --amqp"),
    (("--amqp", "5672"), "'5672' is not HOST:PORT, such as 127.0.0.1:5672"),
    (("--amqp", "127.0.0.1:65536"), "is not HOST:PORT"),
    (
        ("--amqp", "0.0.0.0:0", "--amqp-users", "users"),
        "an address of other machines needs --amqp-tls CERT KEY",
    ),
    ((*AMQP_LOCAL, "--amqp-users", "none"), "none cannot be read: "),
    (
        (*AMQP_LOCAL, "--amqp-users", "users", "--amqp-tls", "none", "users"),
        "--amqp-tls none users: ",
    ),
    (
        (*AMQP_LOCAL, "--amqp-users", "users", "--amqp-client-ca", "users"),
        "--amqp-client-ca needs --amqp-tls CERT KEY",
    ),
    ((*AMQP_LOCAL, "--amqp-anonymous", "a@b/c"), "'a@b/c' is not an account"),
)

HTTP_WRONG = (
    (HTTP_LOCAL, "nobody could log in without --http-users"),
    (("--http-users", "users"), "--http-users is for the gateway of --http"),
    (("--http-link-headers",), "--http-link-headers is for the gateway of --http"),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--http-property-header", "X-Api-Key"),
        "x-api-key is about the request, its connection or its user",
    ),
    (("--http", "8080"), "'8080' is not HOST:PORT"),
    (("--http-base", "https://a"), "--http-base is for the gateway of --http"),
    (
        (*HTTP_LOCAL, "--http-base", "queue.example.org"),
        "'queue.example.org' is not SCHEME://HOST or SCHEME://HOST:PORT, maybe with a "
        "path of letters, digits and . _ ~ -, such as https://queue.example.org",
    ),
    (
        ("--http", "0.0.0.0:0", "--http-users", "users"),
        "an address of other machines needs --http-tls CERT KEY",
    ),
    ((*HTTP_LOCAL, "--http-users", "none"), "none cannot be read: "),
    (
        (*HTTP_LOCAL, "--http-requests-per-second", "x"),
        "'x' is not a whole number",
    ),
    (("--http-push", "a.example"), "--http-push is for the gateway of --http"),
    (
        ("--connections-per-address", "1"),
        "--connections-per-address is for the gateways of --amqp and --http",
    ),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--connections-per-account", "0"),
        "'0' is not a whole number from 1",
    ),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--http-push", "http://a.example"),
        "--http-push: 'http://a.example' is not HOST, HOST:PORT or NETWORK/BITS",
    ),
    (("--http-send", "users"), "--http-send is for the gateway of --http"),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--http-send", "none"),
        "none cannot be read: ",
    ),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--http-send", "users"),
        "users, line 1: 'scrypt:",
    ),
    (
        (*HTTP_LOCAL, "--http-users", "users", "--http-tls", "none", "users"),
        "--http-tls none users: ",
    ),
)


@pytest.mark.parametrize(
    ("protocol", "rows"), [("amqp", AMQP_WRONG), ("http", HTTP_WRONG)]
)
def test_wrong_options_are_refused_with_what_to_do(
    protocol: str,
    rows: tuple[tuple[tuple[str, ...], str], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: none of them gets as far as a connection."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XMPP_QOS_PASSWORD", ANY)
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["queue", f"{protocol}-user", "users", "shop"]) == 0
    for words, says in rows:
        assert says in refused(capsys, *SERVE, *words), words


@pytest.mark.parametrize("protocol", ["amqp", "http"])
async def test_a_port_that_is_taken_is_named(commands: Commands, protocol: str) -> None:
    """The option as well: there may be two gateways."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = await commands.run(
            *(*SERVE, "--port", str(commands.component_port)),
            *(f"--{protocol}", f"127.0.0.1:{port}"),
            *(f"--{protocol}-users", commands.user_file()),
            password=SECRET,
        )
    assert ended.status == 4
    assert f"--{protocol} 127.0.0.1:{port}: " in ended.err
    assert "already in use" in ended.err


@pytest.mark.parametrize(
    ("protocol", "library", "extra"),
    [("amqp", "proton", "amqp"), ("http", "aiohttp", "rest")],
)
async def test_without_the_extra_it_says_what_to_install(
    protocol: str,
    library: str,
    extra: str,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service without gateways needs neither library."""
    commands.forked = False
    (commands.folder / f"{library}.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(commands.folder))
    ended = await commands.run(
        *(*SERVE, f"--{protocol}", "127.0.0.1:0"),
        *(f"--{protocol}-users", commands.user_file()),
        password=ANY,
    )
    assert ended.status == 2
    assert f"there is no {library}: pip install '.[{extra}]'" in ended.err
