"""No connection, no login, no trust: one clear line, status 4, and nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from unittest import mock

import pytest

from qos.cli.account import account_from
from qos.cli.connection import Connection
from qos.cli.listen import parser as listen_parser
from qos.cli.options import parse
from qos.testing.prosody import Prosody
from qos.testing.server import LoopbackServer
from waiting import LIMIT_S, until

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Ended, Running

    CommandsAt: TypeAlias = Callable[[int], Commands]

TO = "bob@localhost/1"

#: For an end without any answer.
QUICK = ("--connect-timeout", "1")

#: For attempts that are answered, before an hour passes; see `Running.turn_clock`.
AN_HOUR = ("--connect-timeout", "3600")


@pytest.fixture
def logins() -> None:
    """All that the embedded server has, SCRAM first."""


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def gave_up(ended: Ended, *said: str) -> None:
    """The command ended for lack of a connection, and its last line says so."""
    assert ended.status == 4, ended.err
    assert ended.out == []
    assert all(note.startswith("xmpp-qos: ") for note in ended.notes), ended.err
    for words in said:
        assert words in ended.notes[-1]


async def hour_over(running: Running, input_: bytes | None = None) -> Ended:
    """The end of a command whose attempts have failed for an hour."""
    await running.note("trying again")
    running.turn_clock()
    return await running.end(input_)


async def hour_of(commands: Commands, *words: str, user: str, tls: str) -> Ended:
    """Run a command whose attempts fail for an hour, to its end."""
    return await hour_over(await commands.start(*words, *AN_HOUR, user=user, tls=tls))


@contextlib.asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    """A listener on a port of this machine."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def features(*content: str) -> bytes:
    """The beginning of a stream whose server offers these features."""
    return (
        "<?xml version='1.0'?><stream:stream from='localhost' version='1.0' id='1'"
        " xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
        f"<stream:features>{''.join(content)}</stream:features>"
    ).encode()


MECHANISMS = (
    "<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>"
    "<mechanism>PLAIN</mechanism><mechanism>ANONYMOUS</mechanism></mechanisms>"
)
STARTTLS = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>"


class Told:
    """A server that sends one text and records everything that it receives."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.heard = b""

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(self.said)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(10_000):
                self.heard += data
        writer.close()


@pytest.mark.parametrize("lines", [None, b"on\noff\n"])
async def test_nothing_is_accepted_before_the_first_login(
    server: LoopbackServer, commands: Commands, lines: bytes | None
) -> None:
    """The script that called it repeats it; a later run would send it twice."""
    await server.stop()
    content = ("--body", "on") if lines is None else ("--lines",)
    running = await commands.start("send", TO, *content, *AN_HOUR, user="alice")
    ended = await hour_over(running, lines)
    gave_up(ended, "nothing is left in the outbox; nothing was sent")
    held = await commands.run("outbox", "list", "--store", commands.store("alice"))
    assert held.out == []


async def test_an_unreachable_host_leaves_the_message_in_the_outbox_if_asked(
    server: LoopbackServer, commands: Commands
) -> None:
    """When the server is there, `outbox resend` sends the message."""
    await server.stop()
    words = ("send", TO, "--body", "on", "--offline")
    ended = await hour_of(commands, *words, user="alice", tls="off")
    url = commands.store("alice")
    gave_up(
        ended,
        f"127.0.0.1:{server.port}: Connection refused; gave up after 3600 s; ",
        f"1 message stays in the outbox ({url})",
        "`xmpp-qos outbox resend`",
    )
    held = await commands.run("outbox", "list", "--store", url)
    assert [line["state"] for line in held.out] == ["queued"]
    await server.start()
    listener = await commands.listen("bob", "--count", "1")
    resent = await commands.run("outbox", "resend", user="alice")
    assert resent.status == 0
    assert [line["outcome"] for line in resent.out] == ["delivered"]
    assert resent.out[0]["msg_id"] == held.out[0]["msg_id"]
    assert [line["body"] for line in (await listener.end()).out] == ["on"]


async def test_nothing_unacknowledged_is_claimed_to_be_sent(
    server: LoopbackServer, commands: Commands
) -> None:
    """Such a message is stored nowhere."""
    await server.stop()
    words = ("send", TO, "--body", "on", "--level", "unacknowledged")
    ended = await hour_of(commands, *words, user="alice", tls="off")
    gave_up(ended, "nothing was sent")


async def test_a_server_that_comes_a_little_late_is_waited_for(
    server: LoopbackServer, commands: Commands
) -> None:
    """A device and its server often start together."""
    await server.stop()
    listener = await commands.start("listen", user="bob")
    await listener.note("trying again")
    await server.start()
    assert await listener.note("ready") == "ready bob@localhost/1"


async def test_a_server_that_says_nothing_is_given_up(commands_at: CommandsAt) -> None:
    """An open port alone is not a server."""
    told = Told(b"")
    async with listening(told.talk) as port:
        running = await commands_at(port).start("listen", *AN_HOUR, user="bob")
        await until(lambda: told.heard)
        running.turn_clock()
        ended = await running.end()
    gave_up(ended, f"127.0.0.1:{port} does not answer; gave up after 3600 s")


async def test_a_name_without_an_address_is_given_up(commands_at: CommandsAt) -> None:
    """Often it is misspelt."""
    words = ("listen", "--host", "no-such-host.invalid", "--tls", "starttls", *QUICK)
    ended = await commands_at(1).run(*words, user="bob")
    gave_up(ended, "no-such-host.invalid:1")


async def test_a_wrong_password_is_told_at_once(commands: Commands) -> None:
    """Waiting for the time-out would not make it right."""
    words = ("send", TO, "--body", "on", *AN_HOUR)
    ended = await commands.run(*words, user="alice", password="guess")  # noqa: S106
    gave_up(ended, "refused the login: not-authorized; nothing is left in the outbox")
    assert len(ended.notes) == 1


async def test_an_unknown_domain_is_told_at_once(commands: Commands) -> None:
    """This server does not serve it, and will not in half a minute."""
    ended = await commands.run("listen", "--jid", "bob@example.org/1", user="bob")
    gave_up(ended, "host-unknown")
    assert len(ended.notes) == 1


async def test_without_tls_there_is_no_login(commands_at: CommandsAt) -> None:
    """An attacker on the network path can remove the offer of TLS, and read along."""
    told = Told(features(MECHANISMS))
    async with listening(told.talk) as port:
        ended = await hour_of(commands_at(port), "listen", user="bob", tls="starttls")
    gave_up(ended, f"127.0.0.1:{port} offers no TLS; gave up after 3600 s")
    assert b"<auth" not in told.heard


@pytest.mark.parametrize("condition", ["conflict", "host-unknown", "not-authorized"])
async def test_no_stream_error_before_tls_ends_a_command_for_good(
    condition: str, commands_at: CommandsAt
) -> None:
    """Anybody on the network path can write one.

    The command tries again until the time-out.
    """
    error = (
        f"<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
        "</stream:error></stream:stream>"
    )
    said = features().replace(b"<stream:features></stream:features>", error.encode())
    told = Told(said)
    async with listening(told.talk) as port:
        words = ("listen", *AN_HOUR)
        running = await commands_at(port).start(*words, user="bob", tls="starttls")
        await until(lambda: told.heard.count(b"<stream:stream") > 1)
        ended = await hour_over(running)
    gave_up(ended, f"ended the stream: {condition}; gave up after 3600 s")


async def test_stanzas_of_somebody_on_the_way_are_not_printed(
    commands_at: CommandsAt,
) -> None:
    """An attacker writes them before TLS, with any sender."""
    forged = b"<message from='boss@localhost/1' id='1'><body>forged</body></message>"
    said = features(STARTTLS).replace(
        b"<stream:features>", forged + b"<stream:features>"
    )
    async with listening(Told(said).talk) as port:
        words = ("listen", *AN_HOUR)
        running = await commands_at(port).start(*words, user="bob", tls="starttls")
        await running.note("dropped")
        running.turn_clock()
        ended = await running.end()
    gave_up(ended, "does not answer")
    assert "dropped what came before there was a session" in ended.notes[0]


async def test_a_server_that_skips_the_login_gets_nothing(
    commands_at: CommandsAt,
) -> None:
    """slixmpp would bind a resource there, and send in the clear."""
    told = Told(features("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"))
    async with listening(told.talk) as port:
        words = ("send", TO, "--body", "a secret")
        ended = await hour_of(commands_at(port), *words, user="alice", tls="starttls")
    gave_up(ended, "offers no TLS")
    assert b"<iq" not in told.heard


async def test_a_resource_that_is_refused_is_told_at_once(
    server: LoopbackServer, commands: Commands
) -> None:
    """RFC 6120 §7.7.2; slixmpp takes the error for a session without an address."""
    with mock.patch("qos.testing.session.RESOURCE_BYTES_MAX", 0):
        ended = await commands.run("listen", *AN_HOUR, user="bob")
    gave_up(ended, "refused the resource '1': bad-request")
    assert len(ended.notes) == 1


async def test_a_redirection_is_not_followed(commands_at: CommandsAt) -> None:
    """Anybody on the network path can send a redirection before TLS.

    slixmpp then accepts the certificate of the other host for good, so that the
    password would go there.
    """
    elsewhere = Told(b"")
    async with listening(elsewhere.talk) as other:
        redirection = (
            "<stream:error><see-other-host xmlns='urn:ietf:params:xml:ns:xmpp-streams'>"
            f"127.0.0.1:{other}</see-other-host></stream:error>"
        )
        said = features().replace(
            b"<stream:features></stream:features>", redirection.encode()
        )
        async with listening(Told(said).talk) as port:
            commands = commands_at(port)
            ended = await hour_of(commands, "listen", user="bob", tls="starttls")
    gave_up(ended, "wants to redirect us: not followed; gave up after 3600 s")
    assert elsewhere.heard == b""


async def test_a_server_that_insists_on_tls_is_told(commands_at: CommandsAt) -> None:
    """With --tls off no login is possible, and waiting does not change that."""
    async with listening(Told(features(STARTTLS)).talk) as port:
        ended = await commands_at(port).run("listen", *AN_HOUR, user="bob")
    gave_up(ended, f"127.0.0.1:{port} insists on TLS")
    assert len(ended.notes) == 1


@pytest.mark.looptime
async def test_a_connection_that_falls_silent_is_made_again(
    server: LoopbackServer,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A peer that vanishes closes nothing; TCP alone notices after hours."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret of bob")
    silent = False

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(10_000):
                if not silent:
                    sink.write(data)
        sink.close()

    async def between(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        up = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy(reader, up[1]), copy(up[0], writer))

    async with listening(between) as port:
        commands.port = port
        words = commands.command_line("listen", user="bob")
        arguments = parse(
            listen_parser("xmpp-qos listen"), words[words.index("--jid") :]
        )
        account = dataclasses.replace(
            account_from(arguments), ping_interval_s=30, ping_timeout_s=30
        )
        async with Connection(account, receives=True) as connection:
            connection.start()

            async def work() -> None:
                nonlocal silent
                await connection.announced.wait()
                silent = True
                while connection.online.is_set():  # noqa: ASYNC110 - it is cleared
                    await asyncio.sleep(1)
                silent = False
                await connection.online.wait()

            await connection.work(work())
    said = caplog.text
    assert f"127.0.0.1:{port} does not answer any more; trying again" in said
    assert "connected again as bob@localhost/1" in said


async def test_a_server_that_is_none_is_given_up(commands_at: CommandsAt) -> None:
    """For example, a web server."""
    told = Told(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    async with listening(told.talk) as port:
        ended = await hour_of(commands_at(port), "listen", user="bob", tls="off")
    gave_up(ended, f"127.0.0.1:{port}")


# -- against a real server, over TLS -----------------------------------------


def make_certificate(prosody: Prosody, *, name: str, days: int) -> None:
    """Replace the server's certificate by one for this name."""
    assert prosody.ca_file is not None
    key = prosody.ca_file.with_suffix(".key")
    request = prosody.ca_file.with_suffix(".csr")
    for command in (
        (
            *("openssl", "req", "-new", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=test"),
            *("-addext", f"subjectAltName=DNS:{name}"),
            # Python 3.13 and later refuse an authority without these extensions.
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "subjectKeyIdentifier=hash"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", key, "-out", request),
        ),
        (
            *("openssl", "x509", "-req", "-in", request, "-signkey", key),
            *("-copy_extensions", "copy", "-days", str(days)),
            *("-out", prosody.ca_file),
        ),
    ):
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
async def prosody(
    tmp_path: Path, accounts: Mapping[str, str]
) -> AsyncIterator[Prosody]:
    """A server with TLS, and a certificate of its own."""
    folder = tmp_path / "prosody"
    folder.mkdir()
    async with Prosody(folder, accounts=accounts, tls=True) as server:
        yield server


def port_of(prosody: Prosody, tls: str) -> int:
    port = prosody.tls_port if tls == "direct" else prosody.c2s_port
    assert port is not None
    return port


@pytest.mark.xmpp
@pytest.mark.parametrize("tls", ["starttls", "direct"])
async def test_a_certificate_that_is_trusted_is_enough(
    tls: str, prosody: Prosody, commands_at: CommandsAt
) -> None:
    """Over TLS, end to end."""
    commands = commands_at(port_of(prosody, tls))
    trust: Sequence[str] = ("--ca-file", str(prosody.ca_file), "--trust", "anyone")
    listener = await commands.start("listen", *trust, user="bob", tls=tls)
    await listener.note("ready")
    sent = await commands.run("send", TO, "--body", "on", *trust, user="alice", tls=tls)
    assert (sent.status, sent.err) == (0, "")
    assert (await listener.line())["body"] == "on"


@pytest.mark.xmpp
async def test_two_under_one_jid_do_not_end_each_other_for_ever(
    prosody: Prosody, commands_at: CommandsAt
) -> None:
    """Somebody has copied a configuration file."""
    commands = commands_at(port_of(prosody, "starttls"))
    words = ("listen", "--ca-file", str(prosody.ca_file))
    first = await commands.start(*words, user="bob", tls="starttls")
    await first.note("ready")
    own = ("--store", "memory:")
    second = await commands.start(*words, *own, user="bob", tls="starttls")
    ends = [asyncio.create_task(each.process.wait()) for each in (first, second)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
    loser, winner = (first, second) if ends[0].done() else (second, first)
    ended = await loser.end()
    assert ended.status == 4
    assert "another program logs in as bob@localhost/1 too" in ended.notes[-1]
    winner.process.terminate()
    assert (await winner.end()).status == 0


@pytest.mark.xmpp
@pytest.mark.parametrize("tls", ["starttls", "direct"])
async def test_an_untrusted_certificate_is_refused_at_once(
    tls: str, prosody: Prosody, commands_at: CommandsAt
) -> None:
    """Before any password is sent."""
    commands = commands_at(port_of(prosody, tls))
    words = ("send", TO, "--body", "on", *AN_HOUR)
    ended = await commands.run(*words, user="alice", tls=tls)
    gave_up(
        ended,
        "the certificate is refused: self",
        "--ca-file",
        "nothing was sent",
    )
    assert len(ended.notes) == 1


@pytest.mark.xmpp
@pytest.mark.parametrize("tls", ["starttls", "direct"])
@pytest.mark.parametrize(
    ("name", "days", "said"),
    [
        ("other.example", 2, "not valid for 'localhost'"),
        ("localhost", -1, "certificate has expired"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused_at_once(
    tls: str,
    name: str,
    days: int,
    said: str,
    prosody: Prosody,
    commands_at: CommandsAt,
) -> None:
    """Even a trusted one must be for the domain of the JID, and valid today."""
    await prosody.stop()
    make_certificate(prosody, name=name, days=days)
    await prosody.start()
    commands = commands_at(port_of(prosody, tls))
    words = ("listen", "--ca-file", str(prosody.ca_file), *AN_HOUR)
    ended = await commands.run(*words, user="bob", tls=tls)
    gave_up(ended, "the certificate is refused: ", said)
    assert len(ended.notes) == 1


@pytest.mark.xmpp
async def test_another_authority_is_trusted_once_it_is_in_the_file(
    tmp_path: Path, prosody: Prosody, commands_at: CommandsAt
) -> None:
    """Without a restart: a device has none for years."""
    assert prosody.ca_file is not None
    trusted = tmp_path / "trusted.pem"
    shutil.copy(prosody.ca_file, trusted)
    commands = commands_at(port_of(prosody, "starttls"))
    words = ("listen", "--ca-file", str(trusted))
    listener = await commands.start(*words, user="bob", tls="starttls")
    await listener.note("ready")
    await prosody.stop()
    make_certificate(prosody, name="localhost", days=2)
    await prosody.start()
    await listener.note("the certificate is refused")
    shutil.copy(prosody.ca_file, trusted)
    await listener.note("connected again")
    listener.process.terminate()
    assert (await listener.end()).status == 0


@pytest.mark.xmpp
async def test_a_real_server_refuses_a_wrong_password_at_once(
    prosody: Prosody, commands_at: CommandsAt
) -> None:
    """It offers several mechanisms, and each of them is tried."""
    commands = commands_at(port_of(prosody, "direct"))
    words = ("listen", "--ca-file", str(prosody.ca_file), *AN_HOUR)
    ended = await commands.run(
        *words,
        user="bob",
        password="guess",  # noqa: S106
        tls="direct",
    )
    gave_up(ended, "refused the login: not-authorized")
    assert len(ended.notes) == 1


@pytest.mark.xmpp
async def test_an_anonymous_login_is_not_taken_for_ours(
    accounts: Mapping[str, str], tmp_path: Path, commands_at: CommandsAt
) -> None:
    """slixmpp silently falls back to it, and then has another identity."""
    folder = tmp_path / "prosody"
    folder.mkdir()
    extra = 'VirtualHost "open.localhost"\n  authentication = "anonymous"'
    async with Prosody(folder, accounts=accounts, extra=extra) as prosody:
        commands = commands_at(prosody.c2s_port)
        words = ("listen", "--jid", "bob@open.localhost")
        ended = await commands.run(*words, user="bob")
    gave_up(ended, "@open.localhost/", "instead of bob@open.localhost")


@pytest.mark.xmpp
async def test_tls_where_there_is_none_is_told(
    prosody: Prosody, commands_at: CommandsAt
) -> None:
    """Direct TLS to the port for STARTTLS: a common mistake."""
    commands = commands_at(prosody.c2s_port)
    ended = await hour_of(commands, "listen", user="bob", tls="direct")
    gave_up(ended, f"127.0.0.1:{prosody.c2s_port}: TLS failed")
