"""`--journal`: what the commands write, and their errors if they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from journals import read_journal
from qos.cli import main

if TYPE_CHECKING:
    from tests.cli.conftest import Commands

TO = "bob@localhost/1"


def events(folder: Path, role: str) -> list[str]:
    return [line["event"] for line in read_journal(folder) if line["role"] == role]


async def test_sender_and_listener_share_a_folder(
    commands: Commands, tmp_path: Path
) -> None:
    """One folder for everything on a machine; no file has a payload."""
    journal = tmp_path / "journal"
    listener = await commands.listen("bob", "--count", "1", "--journal", str(journal))
    words = ("send", TO, "--body", "a secret", "--journal", journal)
    sent = await commands.run(*words, user="alice")
    assert sent.status == 0
    assert (await listener.end()).status == 0
    # If a busy machine answers late, a step may be repeated.
    assert list(dict.fromkeys(events(journal, "sender"))) == [
        *("accepted", "offered", "received", "released", "delivered")
    ]
    assert events(journal, "receiver") == ["held", "released", "handed-over", "done"]
    lines = read_journal(journal)
    assert {line["msg_id"] for line in lines} == {sent.out[0]["msg_id"]}
    assert "secret" not in str(lines)


async def test_what_a_killed_listener_has_left_is_there_after_the_next(
    commands: Commands, tmp_path: Path
) -> None:
    """A device that was switched off must lose no record of what it did."""
    journal = tmp_path / "journal"
    listener = await commands.listen("bob", "--journal", str(journal))
    assert (await commands.run("send", TO, "--body", "x", user="alice")).status == 0
    listener.process.kill()
    await listener.end()
    assert read_journal(journal) == []
    listener = await commands.listen("bob", "--journal", str(journal))
    listener.process.terminate()
    await listener.end()
    assert events(journal, "receiver")[:3] == ["held", "released", "handed-over"]


async def test_a_queue_and_its_worker_write_too(
    commands: Commands, tmp_path: Path
) -> None:
    """The service writes under its JID, the worker under that of its account."""
    journal = tmp_path / "journal"
    serving = await commands.serve("--journal", journal)
    await commands.queue("create", "--set", "access_model=open")
    await commands.queue("publish", "--payload", "<x/>", "--id", "i")
    words = ("worker", "queue.localhost", "orders", "--journal", journal, "--", "cat")
    working = await commands.start(*words, user="bob")
    await working.line()
    working.process.terminate()
    assert (await working.end()).status == 0
    serving.process.terminate()
    await serving.end()
    assert events(journal, "queue") == ["published", "acquired", "accepted"]
    assert events(journal, "worker") == ["started", "accepted"]
    nodes = {(line["role"], line["node"]) for line in read_journal(journal)}
    assert nodes == {("queue", "queue.localhost"), ("worker", "bob@localhost")}


@pytest.mark.parametrize(
    "words",
    [
        ("send", TO, "--body", "x", "--store", "memory:"),
        ("listen", "--store", "memory:"),
        ("queue", "serve", "--store", "sqlite:{folder}/q.db"),
        ("worker", "q.localhost", "orders", "cat"),
    ],
)
def test_a_folder_that_cannot_be_written_ends_the_command_at_once(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before it connects, with the path, and with the status for stores."""
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    file = tmp_path / "file"
    file.touch()
    given = [word.format(folder=tmp_path) for word in words]
    verbs = 2 if given[0] == "queue" else 1
    options = ["--jid", "a@localhost/1", "--journal", str(file)]
    assert main([*given[:verbs], *options, *given[verbs:]]) == 5
    assert str(file) in capsys.readouterr().err
