"""`send` and `listen`, end to end, as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import sqlite3
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import turned_clock
from qos.testing.server import LoopbackServer
from waiting import limit, until

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Running

TO = "bob@localhost/1"


async def online(server: LoopbackServer, jid: str) -> None:
    """Wait until this account is logged in."""
    await until(lambda: jid in server.online)


async def refused_again(server: LoopbackServer) -> None:
    """Wait until attempts of a sender have been answered; then more are refused."""
    refused = server.counts["refused"]
    await until(lambda: server.counts["refused"] > refused + 2)


LEVELS = ("unacknowledged", "acknowledged", "assured")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_message_arrives_at_each_level(level: str, commands: Commands) -> None:
    """Both ends print what they know of it."""
    listener = await commands.listen("bob", "--count", "1")
    words = ("send", TO, "--level", level, "--body", "blå & <røde>")
    sent = await commands.run(*words, user="alice")
    assert (sent.status, sent.err) == (0, "")
    (outcome,) = sent.out
    received = await listener.end()
    assert (received.status, received.notes) == (0, ["ready bob@localhost/1"])
    (message,) = received.out
    assert list(outcome) == [
        *("msg_id", "to", "level", "outcome", "condition", "attempts", "seconds")
    ]
    assert list(message) == [
        *("from", "to", "type", "level", "msg_id", "redelivered", "body", "xml")
    ]
    plain = level == "unacknowledged"
    assert outcome["to"] == TO
    assert outcome["level"] == message["level"] == level
    assert outcome["outcome"] == ("sent" if plain else "delivered")
    assert outcome["condition"] is None
    assert outcome["attempts"] == {"unacknowledged": 0, "acknowledged": 1}.get(level, 2)
    assert isinstance(outcome["seconds"], float)
    if plain:
        assert outcome["msg_id"] is message["msg_id"] is None
    else:
        assert message["msg_id"]
    if level == "assured":
        assert outcome["msg_id"] == message["msg_id"]
    assert message["from"] == "alice@localhost/1"
    assert message["to"] == TO
    assert message["redelivered"] is False
    assert message["body"] == "blå & <røde>"
    stanza = ET.fromstring(str(message["xml"]))  # noqa: S314
    assert stanza.tag == "{jabber:client}message"
    assert stanza.get("from") == "alice@localhost/1"


async def test_a_bare_jid_is_followed_and_told_as_given(commands: Commands) -> None:
    """In the output a user looks for the JID that he wrote."""
    listener = await commands.listen("bob", "--count", "1")
    sent = await commands.run("send", "Bob@LocalHost", "--body", "x", user="alice")
    assert [line["outcome"] for line in sent.out] == ["delivered"]
    assert sent.out[0]["to"] == "Bob@LocalHost"
    assert (await listener.end()).out[0]["to"] == TO


@pytest.mark.parametrize("level", ["assured", "unacknowledged"])
async def test_json_arrives_as_json(commands: Commands, level: str) -> None:
    """XEP-0335; a message without it has no such field."""
    listener = await commands.listen("bob", "--count", "2")
    value = {"on": True, "text": "blå\r\n\x00"}
    for content in (("--json", json.dumps(value)), ("--body", "{}")):
        words = ("send", TO, *content, "--level", level)
        assert (await commands.run(*words, user="alice")).status == 0
    first, second = (await listener.end()).out
    assert (first["body"], first["json"]) == (None, value)
    assert "json" not in second


async def test_a_message_in_a_file_arrives_as_it_is(
    commands: Commands, tmp_path: Path
) -> None:
    """Most messages to devices have no body at all."""
    file = tmp_path / "set.xml"
    file.write_text(
        "<?xml version='1.0'?>\n<message to='nobody@localhost' type='chat'>"
        "<set xmlns='urn:xmpp:iot:control' x:kind='a' xmlns:x='urn:x'>"
        "<boolean name='on' value='true'/></set></message>"
    )
    listener = await commands.listen("bob", "--count", "2")
    for level in ("assured", "unacknowledged"):
        words = ("send", TO, "--xml", file, "--level", level)
        assert (await commands.run(*words, user="alice")).status == 0
    for line in (await listener.end()).out:
        assert line["body"] is None
        assert line["to"] == TO
        stanza = ET.fromstring(str(line["xml"]))  # noqa: S314
        assert stanza.get("type") == "chat"
        control = stanza.find("{urn:xmpp:iot:control}set")
        assert control is not None
        # slixmpp drops such attributes from a plain message.
        assert line["level"] == "unacknowledged" or control.get("{urn:x}kind") == "a"
        assert control.find("{urn:xmpp:iot:control}boolean") is not None


async def test_a_file_with_the_from_of_somebody_else_is_not_sent(
    commands: Commands, tmp_path: Path
) -> None:
    """The message would go out from an account that the file does not name."""
    file = tmp_path / "set.xml"
    for sender, end in (
        ("eve@localhost", ", not from alice@localhost: take `from` out"),
        ("e@v@e", ", not from alice@localhost: take `from` out"),
    ):
        file.write_text(f"<message from='{sender}'><body>on</body></message>")
        sent = await commands.run("send", TO, "--xml", file, user="alice")
        assert (sent.status, sent.out) == (2, [])
        said = f"xmpp-qos: --xml {file}: the message is from {sender!r}{end}\n"
        assert sent.err == said
    listener = await commands.listen("bob", "--count", "1")
    file.write_text("<message from='Alice@localhost/2'><body>on</body></message>")
    assert (await commands.run("send", TO, "--xml", file, user="alice")).status == 0
    assert [line["body"] for line in (await listener.end()).out] == ["on"]


async def test_an_error_that_is_delivered_with_qos_is_printed(
    commands: Commands, tmp_path: Path
) -> None:
    """Its sender is told that it was delivered.

    A plain error is the answer of a server.
    """
    file = tmp_path / "error.xml"
    file.write_text("<message type='error'><body>x</body></message>")
    listener = await commands.listen("bob", "--count", "2")
    for level in ("unacknowledged", "acknowledged", "assured"):
        words = ("send", TO, "--xml", file, "--level", level)
        assert (await commands.run(*words, user="alice")).status == 0
    printed = (await listener.end()).out
    assert [(line["type"], line["level"]) for line in printed] == [
        *(("error", "acknowledged"), ("error", "assured"))
    ]


async def test_an_error_that_the_receiver_answers_with_is_said(
    commands: Commands, server: LoopbackServer, tmp_path: Path
) -> None:
    """A foreign queue service has no other way to refuse a publish."""
    file = tmp_path / "error.xml"
    file.write_text(
        "<message type='error'><error type='auth'>"
        "<forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
        "<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>not a\npublisher</text>"
        "</error></message>"
    )
    sender = await commands.start(
        "send", "bob@localhost/9", "--body", "x", user="alice"
    )
    await online(server, "alice@localhost/1")
    for user in ("mallory", "bob"):
        words = (
            "send",
            "alice@localhost/1",
            "--xml",
            file,
            "--level",
            "unacknowledged",
        )
        assert (await commands.run(*words, user=user)).status == 0
    said = await sender.note("forbidden")
    assert said == (
        "xmpp-qos: bob@localhost/1 answers with an error, forbidden: not a\\npublisher"
    )
    assert not any("mallory" in line for line in sender.err)
    sender.process.send_signal(signal.SIGINT)
    await sender.end()


async def test_a_stranger_is_told_that_it_is_not_delivered(commands: Commands) -> None:
    """Status 1, with the condition, who sent it, and how the receiver can change it."""
    listener = await commands.listen("bob")
    sent = await commands.run("send", TO, "--body", "x", user="mallory")
    assert sent.status == 1
    assert sent.out[0]["outcome"] == "not delivered"
    assert sent.out[0]["condition"] == "not-allowed"
    assert sent.err == (
        f"xmpp-qos: not delivered to {TO}: not-allowed, said {TO}: the receiver does "
        "not trust this account: it can add the account to its roster, or name it in "
        "`trust` (--trust); or its operator has dropped this message\n"
    )
    listener.process.send_signal(signal.SIGINT)
    assert (await listener.end()).out == []


async def test_what_a_stranger_says_is_printed_at_no_level(commands: Commands) -> None:
    """`listen --trust nobody` printed plain and acknowledged messages of anybody."""
    listener = await commands.listen("bob", "--count", "1")
    for level, status in (("unacknowledged", 0), ("acknowledged", 1), ("assured", 1)):
        words = ("send", TO, "--body", level, "--level", level)
        assert (await commands.run(*words, user="mallory")).status == status
    words = ("send", TO, "--body", "of a contact", "--level", "unacknowledged")
    assert (await commands.run(*words, user="alice")).status == 0
    assert [line["body"] for line in (await listener.end()).out] == ["of a contact"]


async def test_trust_can_name_a_stranger(commands: Commands) -> None:
    """By the option --trust of `listen`."""
    listener = await commands.listen(
        "bob", "--count", "1", "--trust", "mallory@localhost"
    )
    sent = await commands.run("send", TO, "--body", "x", user="mallory")
    assert sent.status == 0
    assert (await listener.end()).out[0]["from"] == "mallory@localhost/1"


async def test_a_deadline_ends_a_message_to_who_is_away(
    server: LoopbackServer, commands: Commands
) -> None:
    """Certainly not delivered: the message never got beyond the first step."""
    words = ("send", TO, "--body", "x", "--deadline", "3600")
    sender = await commands.start(*words, user="alice")
    await refused_again(server)
    sender.turn_clock()
    sent = await sender.end()
    assert sent.status == 1
    assert sent.out[0]["outcome"] == "not delivered"
    assert sent.out[0]["condition"] == "service-unavailable"
    left = await commands.run("outbox", "list", "--store", commands.store("alice"))
    assert (left.status, left.out) == (0, [])


async def test_a_receiver_may_come_later(
    server: LoopbackServer, commands: Commands
) -> None:
    """This is the purpose of an outbox."""
    words = ("send", TO, "--body", "x", "--offline")
    sender = await commands.start(*words, user="alice")
    await online(server, "alice@localhost/1")
    listener = await commands.listen("bob", "--count", "1")
    assert (await sender.end()).status == 0
    assert [line["body"] for line in (await listener.end()).out] == ["x"]


async def test_quiet_says_nothing(commands: Commands) -> None:
    """For users who log stderr."""
    listener = await commands.start("listen", "--quiet", "--count", "1", user="bob")
    assert (await commands.run("send", TO, "--body", "x", user="alice")).status == 0
    ended = await listener.end()
    assert (ended.status, ended.err) == (0, "")


async def test_a_command_that_is_run_again_with_an_id_sends_its_message_once(
    server: LoopbackServer, commands: Commands
) -> None:
    """While it waits, and when it has been delivered."""
    words = ("send", TO, "--body", "x", "--id", "invoice 7", "--offline")
    first = await commands.start(*words, user="alice")
    await online(server, "alice@localhost/1")
    first.process.send_signal(signal.SIGTERM)
    assert (await first.end()).status == 130
    listener = await commands.listen("bob")
    for _ in range(2):
        sent = await commands.run(*words, user="alice")
        assert sent.status == 0, sent.err
        (outcome,) = sent.out
        assert (outcome["msg_id"], outcome["outcome"]) == ("invoice 7", "delivered")
    assert sent.err == ("xmpp-qos: 'invoice 7' was delivered before: nothing is sent\n")
    listener.process.send_signal(signal.SIGTERM)
    assert [line["msg_id"] for line in (await listener.end()).out] == ["invoice 7"]


async def test_earlier_messages_are_announced_and_their_outcomes_printed(
    server: LoopbackServer, commands: Commands
) -> None:
    """The user sees why other messages go out too, and how many stay."""
    for to in (TO, "nobody@localhost/1"):
        words = ("send", to, "--body", "a", "--offline")
        first = await commands.start(*words, user="alice")
        await online(server, "alice@localhost/1")
        first.process.send_signal(signal.SIGTERM)
        assert (await first.end()).status == 130
    listener = await commands.listen("bob")
    second = await commands.start("send", TO, "--lines", user="alice")
    assert (await second.line())["outcome"] == "delivered"
    assert second.process.stdin is not None
    second.process.stdin.write(b"b\n")
    ended = await second.end()
    assert [line["outcome"] for line in ended.out] == ["delivered"]
    assert ended.status == 0
    url = commands.store("alice")
    assert ended.notes == [
        "xmpp-qos: 2 earlier messages are in the outbox and go out too",
        f"xmpp-qos: 1 message stays in the outbox ({url}); "
        "`xmpp-qos outbox resend` goes on",
    ]
    assert {(await listener.line())["body"] for _ in range(2)} == {"a", "b"}


async def test_a_sender_that_waits_says_for_whom_and_why(commands: Commands) -> None:
    """Without a deadline it may wait for ever; with one, the end is reported."""

    async def check(number: int, to: str, why: str) -> None:
        # They wait for ten seconds, at the same time: each with a name and a store.
        own = ("--jid", f"alice@localhost/{number}", "--store", f"{url}.{number}")
        sender = await commands.start("send", to, "--body", "x", *own, user="alice")
        said = await sender.note("still waiting")
        assert said.startswith(f"xmpp-qos: still waiting for {to}: ")
        assert why in said
        assert said.endswith("online") == (to == "bob@localhost")

    url = commands.store("alice")
    not_subscribed = (
        "its presence is not subscribed to, so none can be found: give a full JID, "
        "or make the two accounts contacts"
    )
    await asyncio.gather(
        check(1, "mallory@localhost", not_subscribed),
        check(
            2,
            "bob@localhost",
            "no resource of it that supports QoS is known to be online",
        ),
        check(3, TO, "no answer that accepts it"),
    )


# -- lines -------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
async def test_200_lines_are_200_messages(level: str, commands: Commands) -> None:
    """Pipelined, each with its own outcome."""
    bodies = [f"line {n}" for n in range(200)]
    listener = await commands.listen("bob", "--count", "200")
    words = ("send", TO, "--lines", "--level", level)
    sent = await commands.run(*words, user="alice", input_="\n".join(bodies).encode())
    assert (sent.status, sent.err) == (0, "")
    assert len(sent.out) == 200
    received = await listener.end()
    assert sorted(str(line["body"]) for line in received.out) == sorted(bodies)


async def test_ordered_lines_arrive_in_order(commands: Commands) -> None:
    """As they were written."""
    bodies = [str(n) for n in range(100)]
    listener = await commands.listen("bob", "--count", "100")
    words = ("send", TO, "--lines", "--ordered")
    sent = await commands.run(*words, user="alice", input_="\n".join(bodies).encode())
    assert sent.status == 0
    assert [line["body"] for line in (await listener.end()).out] == bodies


async def test_a_line_that_cannot_be_sent_does_not_stop_the_others(
    commands: Commands,
) -> None:
    """Each has its own JSON line, and a line on stderr that says why."""
    lines = (
        b"first",
        b"x" * 300_000,
        b"",
        b"\xff",
        b"y" * 3_000_000,
        b"a\x00b",
        b"crlf\r",
        "sidste æ".encode(),
    )
    listener = await commands.listen("bob", "--count", "4")
    words = ("send", TO, "--lines")
    sent = await commands.run(*words, user="alice", input_=b"\n".join(lines))
    assert sent.status == 1
    outcomes = sorted((str(x["outcome"]), str(x["condition"])) for x in sent.out)
    assert outcomes == [
        *[("delivered", "None")] * 4,
        *[("not delivered", "bad-request")] * 2,
        *[("not delivered", "policy-violation")] * 2,
    ]
    refused = [line for line in sent.out if line["outcome"] == "not delivered"]
    assert {line["attempts"] for line in refused} == {0}
    assert {line["msg_id"] for line in refused} == {None}
    assert [note.split(": ")[2] for note in sent.notes] == [
        *("line 2", "line 4", "line 5", "line 6")
    ]
    bodies = [line["body"] for line in (await listener.end()).out]
    assert sorted(map(str, bodies)) == sorted(["first", "", "crlf\r", "sidste æ"])


async def test_one_message_that_is_too_large_is_told_and_not_sent(
    commands: Commands, tmp_path: Path
) -> None:
    """It would end the stream at each attempt."""
    file = tmp_path / "large.xml"
    file.write_text(f"<message><body>{'x' * 10_000_000}</body></message>")
    sent = await commands.run("send", TO, "--xml", file, user="alice")
    assert sent.status == 1
    assert sent.out[0]["outcome"] == "not delivered"
    assert sent.out[0]["condition"] == "policy-violation"
    assert sent.out[0]["attempts"] == 0
    assert len(sent.notes) == 1
    assert "10000" in sent.err


async def test_no_lines_are_no_messages(commands: Commands) -> None:
    """This is not a failure."""
    sent = await commands.run("send", TO, "--lines", user="alice")
    assert (sent.status, sent.out, sent.err) == (0, [], "")


async def test_a_line_is_sent_before_the_next_one_comes(commands: Commands) -> None:
    """For example a sensor that writes a line an hour."""
    listener = await commands.listen("bob")
    sender = await commands.start("send", TO, "--lines", user="alice")
    assert sender.process.stdin is not None
    for body in ("one", "two"):
        sender.process.stdin.write(f"{body}\n".encode())
        assert (await listener.line())["body"] == body
        assert (await sender.line())["outcome"] == "delivered"
    assert (await sender.end()).status == 0


async def test_a_terminal_gets_a_progress_bar(commands: Commands) -> None:
    """The JSON lines stay complete beside it."""
    listener = await commands.listen("bob", "--count", "20")
    terminal, end = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *commands.command_line("send", TO, "--lines", user="alice"),
        env=commands.environment("alice"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=end,
    )
    os.close(end)
    async with limit():
        out, _ = await process.communicate(b"x\n" * 20)
    shown = b""
    try:
        while data := await asyncio.to_thread(os.read, terminal, 65536):
            shown += data
    except OSError:  # the other end is closed: all is read
        pass
    os.close(terminal)
    assert out.count(b'"delivered"') == len(out.splitlines()) == 20
    assert b"[####################] 20 of 20 ended" in shown
    assert shown.endswith(b"\r\x1b[K")
    assert (await listener.end()).status == 0


# -- stopping ----------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_says_what_stays_in_the_outbox(
    number: int, server: LoopbackServer, commands: Commands
) -> None:
    """Status 130, one line, and nothing lost."""
    words = ("send", TO, "--body", "x", "--offline")
    sender = await commands.start(*words, user="alice")
    await online(server, "alice@localhost/1")
    sender.process.send_signal(number)
    ended = await sender.end()
    url = commands.store("alice")
    assert (ended.status, ended.out) == (130, [])
    assert ended.notes == [
        f"xmpp-qos: stopped; 1 message stays in the outbox ({url}); "
        "`xmpp-qos outbox resend` goes on"
    ]
    listener = await commands.listen("bob", "--count", "1")
    resent = await commands.run("outbox", "resend", user="alice")
    assert (resent.status, resent.err) == (0, "")
    assert [line["body"] for line in (await listener.end()).out] == ["x"]


async def test_ctrl_c_while_stdin_is_open_ends_it_at_once(commands: Commands) -> None:
    """It says how far stdin was read: later lines are still to be sent."""
    listener = await commands.listen("bob")
    sender = await commands.start("send", TO, "--lines", user="alice")
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"one\ntwo\nthr")
    for _ in range(2):
        await listener.line()
        await sender.line()
    sender.process.send_signal(signal.SIGINT)
    async with limit():
        assert await sender.process.wait() == 130
    ended = await sender.end()
    assert ended.notes == [
        "xmpp-qos: stopped; nothing is left in the outbox; stdin was read up to line 2"
    ]
    listener.process.send_signal(signal.SIGINT)
    ended = await listener.end()
    assert ended.status == 130
    assert ended.notes[1:] == ["xmpp-qos: stopped; nothing is left in the outbox"]


async def test_a_sender_whose_stdout_is_closed_ends(commands: Commands) -> None:
    """As `send … | head -1` does."""
    listener = await commands.listen("bob")
    reader, writer = os.pipe()
    sender = await commands.start("send", TO, "--lines", user="alice", stdout=writer)
    os.close(writer)
    os.close(reader)
    ended = await sender.end(b"one\n")
    assert ended.status == 141
    assert len(ended.notes) == 1
    assert "nobody reads stdout any more; nothing is left in the outbox" in ended.err
    assert (await listener.line())["body"] == "one"


def in_outbox(path: Path) -> int:
    """The messages in the outbox of a command that runs."""
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute("SELECT count(*) FROM outgoing").fetchone()[0])
    return 0


async def test_a_list_whose_stdout_is_closed_ends(
    server: LoopbackServer, commands: Commands
) -> None:
    """Python must not complain at its end."""
    await server.stop()
    sender = await commands.start("send", TO, "--lines", "--offline", user="alice")
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"x\n" * 500)
    await until(lambda: in_outbox(commands.folder / "alice.db") == 500)
    sender.process.terminate()
    await sender.end()
    reader, writer = os.pipe()
    listing = await commands.start(
        "outbox", "list", "--store", commands.store("alice"), stdout=writer
    )
    os.close(writer)
    os.close(reader)
    ended = await listing.end()
    assert ended.status == 141
    assert ended.err == "xmpp-qos: nobody reads stdout any more\n"


async def test_a_full_disk_under_stdout_is_told(commands: Commands) -> None:
    """The message was delivered; only its outcome could not be written."""
    listener = await commands.listen("bob", "--count", "1")
    full = os.open("/dev/full", os.O_WRONLY)
    sender = await commands.start("send", TO, "--body", "x", user="alice", stdout=full)
    os.close(full)
    ended = await sender.end()
    assert ended.status == 74
    assert ended.notes == [
        "xmpp-qos: cannot write to stdout: No space left on device; "
        "nothing is left in the outbox"
    ]
    assert [line["body"] for line in (await listener.end()).out] == ["x"]


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
async def test_a_stream_that_is_closed_is_not_mistaken_for_another(
    closed: str, commands: Commands
) -> None:
    """Its number would go to the next file that is opened, such as the store."""
    listener = await commands.listen("bob")
    words = ("send", TO, "--lines" if closed == "0<&-" else "--body=x")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" {closed}', "sh"),
        *commands.command_line(*words, user="alice"),
        env=commands.environment("alice"),
    )
    async with limit():
        assert await process.wait() == 0
    if closed != "0<&-":
        assert (await listener.line())["body"] == "x"
    left = await commands.run("outbox", "list", "--store", commands.store("alice"))
    assert (left.status, left.out) == (0, [])


# -- the store ---------------------------------------------------------------


async def test_two_commands_cannot_share_a_store(commands: Commands) -> None:
    """The second command is told how to get a store of its own."""
    await commands.listen("bob")
    second = await commands.run("send", TO, "--body", "x", user="bob")
    assert (second.status, second.out) == (5, [])
    assert len(second.notes) == 1
    assert commands.store("bob") in second.err
    assert "--jid with another resource" in second.err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"no database" * 100, "not an SQLite database"), (b"", "is empty")],
)
async def test_a_damaged_store_is_told(
    content: bytes, said: str, commands: Commands, tmp_path: Path
) -> None:
    """Before anything is sent."""
    (tmp_path / "alice.db").write_bytes(content)
    sent = await commands.run("send", TO, "--body", "x", user="alice")
    assert (sent.status, sent.out) == (5, [])
    assert len(sent.notes) == 1
    assert commands.store("alice") in sent.err
    assert said in sent.err


async def test_a_store_that_cannot_be_made_is_told(commands: Commands) -> None:
    """Read-only even for root."""
    words = ("listen", "--store", "sqlite:/sys/xmpp-qos.db")
    listener = await commands.run(*words, user="bob")
    assert listener.status == 5
    assert len(listener.notes) == 1
    assert "sqlite:/sys/xmpp-qos.db: " in listener.err


async def test_resend_of_an_unknown_id_is_told_before_it_connects(
    server: LoopbackServer, commands: Commands
) -> None:
    """Status 1, as for the other actions."""
    await server.stop()
    ended = await commands.run("outbox", "resend", "nobody", user="alice")
    assert (ended.status, ended.out) == (1, [])
    assert ended.err == "xmpp-qos: no message 'nobody' in the store\n"


async def test_resend_of_nothing_is_done(
    server: LoopbackServer, commands: Commands
) -> None:
    """No connection is needed."""
    await server.stop()
    ended = await commands.run("outbox", "resend", user="alice")
    assert (ended.status, ended.out) == (0, [])
    assert ended.err == "xmpp-qos: the outbox is empty\n"


# -- mishaps -----------------------------------------------------------------


async def test_a_connection_that_is_lost_is_made_again(
    server: LoopbackServer, commands: Commands
) -> None:
    """On both sides, in the middle of 300 messages; each arrives once."""
    listener = await commands.listen("bob")
    sender = await commands.start("send", TO, "--lines", user="alice")
    ending = asyncio.create_task(sender.end("\n".join(map(str, range(300))).encode()))
    received = []
    for n in range(300):
        received.append((await listener.line())["body"])
        if n in {20, 120}:
            server.disconnect(f"{('alice', 'bob')[n == 20]}@localhost")
        if n == 200:
            await server.restart()
    # Not with --count: its last answer may be lost with a connection, and its repeat
    # would then have no answer.
    sent = await ending
    listener.process.send_signal(signal.SIGINT)
    ended = await listener.end()
    assert (sent.status, ended.status) == (0, 130)
    assert not ended.out
    assert sorted(map(int, map(str, received))) == list(range(300))
    assert "trying again" in sent.err
    assert "connected again as bob@localhost/1" in ended.err


async def test_a_sender_takes_nothing_that_is_meant_for_a_listener(
    server: LoopbackServer, commands: Commands
) -> None:
    """It cannot hand messages over: they stay at their sender, or are not accepted."""
    waiting = await commands.start("send", "carol@localhost", "--body", "x", user="bob")
    await online(server, TO)
    words = ("send", TO, "--body", "y", "--deadline", "3600")
    sender = await commands.start(*words, user="alice")
    await refused_again(server)
    sender.turn_clock()
    sent = await sender.end()
    assert sent.status == 1
    assert sent.out[0]["condition"] == "service-unavailable"
    waiting.process.send_signal(signal.SIGINT)
    await waiting.end()


async def redelivered(commands: Commands) -> Running:
    """A sender whose message a listener had, that could not print it."""
    commands.function = turned_clock.patient
    reader, writer = os.pipe()
    listener = await commands.start("listen", user="bob", stdout=writer)
    os.close(writer)
    await listener.note("ready")
    os.close(reader)
    sender = await commands.start("send", TO, "--body", "x", user="alice")
    assert (await listener.end()).status == 141
    return sender


async def test_a_listener_ends_when_the_senders_of_redelivered_messages_know_it(
    commands: Commands,
) -> None:
    """They ask when they notice that somebody listens again, and it waits for that."""
    sender = await redelivered(commands)
    sender.process.send_signal(signal.SIGSTOP)
    listener = await commands.listen("bob", "--count", "1")
    line = await listener.line()
    assert (line["body"], line["redelivered"]) == ("x", True)
    sender.process.send_signal(signal.SIGCONT)
    assert (await listener.end()).status == 0
    # Nobody listens now.
    assert [each["outcome"] for each in (await sender.end()).out] == ["delivered"]


async def test_a_listener_waits_for_a_sender_that_has_gone_for_a_while_only(
    commands: Commands,
) -> None:
    """It may never come back."""
    sender = await redelivered(commands)
    sender.process.send_signal(signal.SIGSTOP)
    listener = await commands.listen("bob", "--count", "1")
    await listener.line()
    ended = asyncio.create_task(listener.end())

    def an_hour_later() -> bool:
        # It may have ended, and the task not have seen it yet.
        with contextlib.suppress(ProcessLookupError):
            listener.turn_clock()
        return ended.done()

    await until(an_hour_later)
    assert (await ended).status == 0
    sender.process.send_signal(signal.SIGCONT)
    sender.process.send_signal(signal.SIGINT)
    assert "1 message stays in the outbox" in (await sender.end()).err


async def test_what_is_delivered_is_printed_while_another_resource_only_sends(
    server: LoopbackServer, commands: Commands, tmp_path: Path
) -> None:
    """For a while only `send` is online, with another resource of the account.

    A controller that sends to the bare JID, in batches, must not find it; and it must
    not confirm a message that it cannot hand over.
    """
    commands.function = turned_clock.patient
    store = f"sqlite:{tmp_path / 'other.db'}"
    other = ("--jid", "bob@localhost/other", "--store", store)
    words = ("send", "carol@localhost", "--body", "x", *other)
    sending = await commands.start(*words, user="bob")
    await online(server, "bob@localhost/other")
    bodies = [str(n) for n in range(120)]
    # A listener that ends refuses the other messages. The next listener gets them soon.
    quick = ("--retry-first", "0.2", "--retry-max", "1")
    lines = ("send", "bob@localhost", "--lines", *quick)
    controller = await commands.start(*lines, user="alice")
    first = asyncio.create_task(controller.end("\n".join(bodies).encode()))
    printed: list[str] = []
    for count in ("30", "30", "60"):
        listener = await commands.listen("bob", "--count", count)
        printed += [str(line["body"]) for line in (await listener.end()).out]
    sent = await first
    assert [line["outcome"] for line in sent.out] == ["delivered"] * len(bodies)
    assert sorted(printed) == sorted(bodies)
    sending.process.send_signal(signal.SIGINT)
    await sending.end()


async def test_a_message_that_could_not_be_printed_is_not_lost(
    commands: Commands,
) -> None:
    """`listen | head -1` dies at the second message, which is handed over again."""
    reader, writer = os.pipe()
    listener = await commands.start("listen", user="bob", stdout=writer)
    os.close(writer)
    await listener.note("ready")
    os.close(reader)
    sender = await commands.start("send", TO, "--body", "x", user="alice")
    ended = await listener.end()
    assert ended.status == 141
    assert ended.notes[1:] == [
        "xmpp-qos: nobody reads stdout any more; nothing is left in the outbox; "
        "messages that were not printed stay in the store: 1"
    ]
    # Meanwhile a command with the same store has no use for the message, and leaves it.
    words = ("send", "alice@localhost/2", "--body", "y", "--deadline", "1")
    await commands.run(*words, user="bob")
    listener = await commands.listen("bob")
    line = await listener.line()
    assert (line["body"], line["redelivered"]) == ("x", True)
    assert [line["outcome"] for line in (await sender.end()).out] == ["delivered"]


@pytest.mark.crash
async def test_a_listener_that_is_killed_again_and_again_prints_each_line_once(
    commands_anywhere: Commands,
) -> None:
    """Except the line that it had just printed, and that is marked."""
    commands = commands_anywhere
    bodies = [str(n) for n in range(150)]
    sender = await commands.start("send", TO, "--lines", user="alice")
    ending = asyncio.create_task(sender.end("\n".join(bodies).encode()))
    seen: list[str] = []
    for kill_after in (10, 30, 45, None):
        listener = await commands.listen("bob")
        lines = 0
        while len(set(seen)) < len(bodies) and lines != kill_after:
            line = await listener.line()
            lines += 1
            if not (line["redelivered"] and line["body"] in seen):
                seen.append(str(line["body"]))
        if kill_after is not None:
            listener.process.kill()
            # Lines written before the kill count too.
            for line in (await listener.end()).out:
                if not (line["redelivered"] and line["body"] in seen):
                    seen.append(str(line["body"]))
    sent = await ending
    assert sent.status == 0
    assert [line["outcome"] for line in sent.out] == ["delivered"] * 150
    assert sorted(seen) == sorted(bodies)


@pytest.mark.crash
async def test_a_sender_that_is_killed_is_finished_by_resend(
    commands_anywhere: Commands,
) -> None:
    """Each line that it had accepted arrives once."""
    commands = commands_anywhere
    listener = await commands.listen("bob")
    sender = await commands.start("send", TO, "--lines", user="alice")
    assert sender.process.stdin is not None
    sender.process.stdin.write("\n".join(map(str, range(400))).encode())
    received = [str((await listener.line())["body"]) for _ in range(25)]
    sender.process.kill()
    told = await sender.end()
    assert told.status == -signal.SIGKILL
    resent = await commands.run("outbox", "resend", user="alice")
    assert resent.status == 0
    assert {line["outcome"] for line in resent.out} <= {"delivered"}
    listener.process.send_signal(signal.SIGINT)
    received += [str(line["body"]) for line in (await listener.end()).out]
    assert len(received) == len(set(received))
    # None was skipped: lines are accepted in order.
    assert sorted(map(int, received)) == list(range(len(received)))
    assert len(received) >= len(told.out) + len(resent.out)
