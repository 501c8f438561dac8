"""`outbox` and `inbox` on a store made by the test."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from qos.cli import main, store_records
from qos.core.message.effects import Save
from qos.core.message.model import (
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
)
from qos.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
)
from qos.stores import store_from_url

PAYLOAD = "<message xmlns='jabber:client'><body>on</body></message>"

QUEUED = Outgoing(
    msg_id="queued",
    seq=1,
    to="lamp@example.org",
    level=Level.ASSURED,
    payload=PAYLOAD,
    size=len(PAYLOAD),
    created_at=1_700_000_000.0,
    expires_at=1_900_000_000.25,
    offer_id="o1",
    deliver_id="d1",
)
OFFERED = replace(
    QUEUED, msg_id="offered", seq=2, state=OutgoingState.OFFERED, attempts=3
)
RELEASING = replace(
    QUEUED,
    msg_id="releasing",
    seq=3,
    state=OutgoingState.RELEASING,
    peer="lamp@example.org/1",
    hold="h",
    attempts=2,
    delivers=1,
)
ACKNOWLEDGED = replace(OFFERED, msg_id="acked", seq=4, level=Level.ACKNOWLEDGED)

HELD = Incoming(
    key="k1",
    msg_id="held",
    source="alice@example.org/a",
    to="lamp@example.org/1",
    level=Level.ASSURED,
    payload=PAYLOAD,
    size=len(PAYLOAD),
    received_at=1_700_000_000.0,
    changed_at=1_700_000_001.0,
    mark="store of alice",
    hold="token",
)
PASSED = replace(HELD, key="k2", msg_id="passed", state=IncomingState.RELEASING)
DONE = replace(HELD, key="k3", msg_id="done", state=IncomingState.DONE, payload="")
EXPIRED = replace(DONE, key="k4", msg_id="expired", state=IncomingState.EXPIRED)
PARKED = replace(
    HELD, key="k7", msg_id="parked", state=IncomingState.PARKED, handovers=10
)
PASSED_ACKED = replace(
    PASSED, key="k8", msg_id="passed-acked", level=Level.ACKNOWLEDGED, mark="", hold=""
)
TWIN = replace(HELD, key="k5", msg_id="twin", mark="")
OTHER_TWIN = replace(TWIN, key="k6", source="bob@example.org/b")


@pytest.fixture(params=["sqlite:{}/s.db", "files:{}/s"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with all of the records above."""
    url = str(request.param).format(tmp_path)
    records = (QUEUED, OFFERED, RELEASING, ACKNOWLEDGED)
    received = (HELD, PASSED, DONE, EXPIRED, PARKED, PASSED_ACKED, TWIN, OTHER_TWIN)

    async def fill() -> None:
        store = store_from_url(url)
        store.open()
        written = store.write([Save(record) for record in (*records, *received)])
        assert written is not None
        await written
        await store.close()

    asyncio.run(fill())
    return url


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command; returns its status, its JSON lines, and its notes."""

    def run(*words: str) -> tuple[int, list[dict[str, Any]], str]:
        status = main(words)
        out, err = capsys.readouterr()
        assert err.count("\n") <= 1, err
        return status, [json.loads(line) for line in out.splitlines()], err

    return run


def ids(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["msg_id"] for line in lines]


def test_outbox_list_shows_what_has_not_ended(url: str, run: Any) -> None:
    """In the order of sending, and without payloads: there may be many."""
    status, lines, err = run("outbox", "list", "--store", url)
    assert (status, err) == (0, "")
    assert ids(lines) == ["queued", "offered", "releasing", "acked"]
    assert lines[0] == {
        "msg_id": "queued",
        "to": "lamp@example.org",
        "level": "assured",
        "state": "queued",
        "bytes": len(PAYLOAD),
        "attempts": 0,
        "created_at": "2023-11-14T22:13:20.000+00:00",
        "expires_at": "2030-03-17T17:46:40.250+00:00",
    }


def test_outbox_show_tells_all_that_is_known(url: str, run: Any) -> None:
    """For users who want to know why a message is not delivered."""
    status, (line,), err = run("outbox", "show", "releasing", "--store", url)
    assert (status, err) == (0, "")
    assert line["payload"] == PAYLOAD
    assert (line["peer"], line["hold"]) == ("lamp@example.org/1", "h")
    assert (line["delivers"], line["attempts"]) == (1, 2)


@pytest.mark.parametrize("msg_id", ["queued", "offered"])
def test_outbox_withdraw_takes_back_what_was_not_released(
    msg_id: str, url: str, run: Any
) -> None:
    """Certainly not delivered: a receiver does nothing before the second step."""
    status, (line,), err = run("outbox", "withdraw", msg_id, "--store", url)
    assert status == 0
    assert (line["msg_id"], line["outcome"]) == (msg_id, "not delivered")
    assert set(line) == {
        *("msg_id", "to", "level", "outcome", "condition", "attempts", "seconds")
    }
    assert "withdrawn" in err
    assert msg_id not in ids(run("outbox", "list", "--store", url)[1])


def test_outbox_shows_how_a_message_has_ended(url: str, run: Any) -> None:
    """For users who have missed the outcome."""
    assert run("outbox", "withdraw", "queued", "--store", url)[0] == 0
    status, lines, _ = run("outbox", "show", "queued", "--store", url)
    (shown,) = lines
    assert status == 0
    assert (shown["state"], shown["to"]) == ("not delivered", "lamp@example.org")
    assert shown["created_at"] < shown["ended_at"]
    assert "payload" not in shown
    assert run("outbox", "list", "--ended", "--store", url)[1] == [shown]
    assert "queued" not in ids(run("outbox", "list", "--store", url)[1])


@pytest.mark.parametrize("msg_id", ["releasing", "acked"])
def test_outbox_withdraw_keeps_what_may_have_been_delivered(
    msg_id: str, url: str, run: Any
) -> None:
    """*Not delivered* could be false."""
    status, lines, err = run("outbox", "withdraw", msg_id, "--store", url)
    assert (status, lines) == (1, [])
    assert repr(msg_id) in err
    assert "cannot be withdrawn" in err
    assert msg_id in ids(run("outbox", "list", "--store", url)[1])


@pytest.mark.parametrize(
    "words",
    [
        ("outbox", "show", "nobody"),
        ("outbox", "withdraw", "nobody"),
        ("inbox", "show", "nobody"),
        ("inbox", "drop", "nobody"),
        ("inbox", "show", "done"),
        ("inbox", "drop", "done"),
        ("inbox", "drop", "expired"),
        ("inbox", "show", "held", "--from", "bob@example.org"),
    ],
)
def test_an_unknown_id_is_one_line_and_status_1(
    words: tuple[str, ...], url: str, run: Any
) -> None:
    """A remembered end is not a message any more."""
    status, lines, err = run(*words, "--store", url)
    assert (status, lines) == (1, [])
    assert err == f"xmpp-qos: no message {words[2]!r} in the store\n"


def test_inbox_list_shows_what_is_held(url: str, run: Any) -> None:
    """The records of ended messages are left out."""
    status, lines, err = run("inbox", "list", "--store", url)
    assert (status, err) == (0, "")
    assert sorted(ids(lines)) == [
        "held",
        "parked",
        "passed",
        "passed-acked",
        "twin",
        "twin",
    ]
    assert lines[0] == {
        "msg_id": "held",
        "from": "alice@example.org/a",
        "to": "lamp@example.org/1",
        "level": "assured",
        "state": "held",
        "bytes": len(PAYLOAD),
        "received_at": "2023-11-14T22:13:20.000+00:00",
        "changed_at": "2023-11-14T22:13:21.000+00:00",
    }


def test_inbox_show_tells_all_that_is_known(url: str, run: Any) -> None:
    """With its payload: users want to see it before they drop a message."""
    status, (line,), _ = run("inbox", "show", "held", "--store", url)
    assert status == 0
    assert (line["payload"], line["hold"]) == (PAYLOAD, "token")


def test_inbox_drop_remembers_that_a_message_is_not_wanted(url: str, run: Any) -> None:
    """An expired message would be accepted when its sender offers it again."""
    status, (line,), err = run("inbox", "drop", "held", "--store", url)
    assert (status, err) == (0, "")
    assert (line["msg_id"], line["state"]) == ("held", "dropped")
    assert "held" not in ids(run("inbox", "list", "--store", url)[1])

    async def records() -> list[Incoming]:
        async with store_records.opened(url, to_read=True) as store:
            return [record for record in store.incoming() if record.key == "k1"]

    (record,) = asyncio.run(records())
    assert (record.state, record.payload, record.hold) == (
        IncomingState.DROPPED,
        "",
        "token",
    )


def test_inbox_drop_keeps_what_may_have_been_handed_over(url: str, run: Any) -> None:
    """The receiver may have acted on it, and its sender would get a wrong answer."""
    status, lines, err = run("inbox", "drop", "passed", "--store", url)
    assert (status, lines) == (1, [])
    assert "'passed' cannot be dropped: state is releasing" in err
    assert "--force drops it" in err


@pytest.mark.parametrize(
    ("msg_id", "said"),
    [
        ("passed", "its sender hears that it is in doubt, or has heard"),
        ("passed-acked", "its sender may have heard that it was delivered"),
        ("held", ""),
        ("parked", ""),
    ],
)
def test_inbox_drop_by_force_ends_a_message_in_any_state(
    msg_id: str, said: str, url: str, run: Any
) -> None:
    """A message on which the application fails would come first at each start."""
    assert run("inbox", "show", msg_id, "--store", url)[0] == 0
    status, (line,), err = run("inbox", "drop", msg_id, "--force", "--store", url)
    assert (status, line["state"]) == (0, "dropped")
    assert said in err
    assert bool(err) == bool(said)
    assert msg_id not in ids(run("inbox", "list", "--store", url)[1])


def test_inbox_list_can_show_what_is_parked_alone(url: str, run: Any) -> None:
    """Parked messages wait for an operator."""
    status, (line,), err = run("inbox", "list", "--parked", "--store", url)
    assert (status, err) == (0, "")
    assert (line["msg_id"], line["state"]) == ("parked", "parked")
    _, (line,), _ = run("inbox", "show", "parked", "--store", url)
    assert line["handovers"] == 10


def test_inbox_release_lets_a_parked_message_be_handed_over_anew(
    url: str, run: Any
) -> None:
    """At the next start of the application, with all attempts again."""
    status, (line,), err = run("inbox", "release", "parked", "--store", url)
    assert (status, err) == (0, "")
    assert line["state"] == "releasing"
    _, (line,), _ = run("inbox", "show", "parked", "--store", url)
    assert (line["handovers"], line["payload"]) == (0, PAYLOAD)


def test_inbox_release_is_for_parked_messages_alone(url: str, run: Any) -> None:
    """A held message must be released by its sender."""
    status, lines, err = run("inbox", "release", "held", "--store", url)
    assert (status, lines) == (1, [])
    assert "'held' cannot be released: state is held" in err


def test_inbox_drop_gives_a_parked_message_up(url: str, run: Any) -> None:
    """Its sender is told so when it asks again."""
    status, (line,), err = run("inbox", "drop", "parked", "--store", url)
    assert (status, err) == (0, "")
    assert line["state"] == "dropped"
    assert run("inbox", "list", "--parked", "--store", url) == (0, [], "")


def test_an_id_that_two_senders_have_used_takes_a_sender(url: str, run: Any) -> None:
    """Small devices count from 1; an id is unique only with its sender."""
    status, lines, err = run("inbox", "drop", "twin", "--store", url)
    assert (status, lines) == (1, [])
    assert "alice@example.org/a, bob@example.org/b" in err
    assert "--from" in err
    words = ("inbox", "drop", "twin", "--store", url, "--from", "bob@example.org")
    status, (line,), _ = run(*words)
    assert (status, line["from"]) == (0, "bob@example.org/b")
    full = ("--from", "alice@example.org/a")
    assert run("inbox", "show", "twin", "--store", url, *full)[0] == 0


@pytest.mark.parametrize("command", ["outbox", "inbox"])
@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_a_store_that_is_not_there_is_not_made(
    command: str, scheme: str, tmp_path: Path, run: Any
) -> None:
    """A mistyped path must not look like an empty outbox."""
    url = f"{scheme}:{tmp_path / 'none'}"
    assert run(command, "list", "--store", url) == (
        5,
        [],
        f"xmpp-qos: {url}: there is no such store\n",
    )
    assert not (tmp_path / "none").exists()


def test_the_store_of_a_jid_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """By the rule by which `send` has created it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "xmpp-qos"
    folder.mkdir()
    url = f"sqlite:{folder}/a@example.org.sqlite"

    async def make() -> None:
        store = store_from_url(url)
        store.open()
        await store.close()

    asyncio.run(make())
    assert run("outbox", "list", "--jid", "A@example.org") == (0, [], "")


def test_a_damaged_store_is_one_line_and_status_5(tmp_path: Path, run: Any) -> None:
    """The file is left as it is."""
    path = tmp_path / "s.db"
    path.write_bytes(b"something else" * 100)
    status, lines, err = run("outbox", "list", "--store", f"sqlite:{path}")
    assert (status, lines) == (5, [])
    assert err.startswith(f"xmpp-qos: sqlite:{path}: ")
    assert path.read_bytes() == b"something else" * 100


@pytest.mark.parametrize(
    "words",
    [
        ("outbox", "withdraw", "queued"),
        ("inbox", "drop", "held"),
        ("inbox", "release", "parked"),
    ],
)
def test_a_store_in_use_is_not_changed_and_the_line_says_what_to_do(
    words: tuple[str, ...], url: str, run: Any
) -> None:
    """Two writers of one store would lose messages."""
    store = store_from_url(url)
    store.open()
    status, lines, err = run(*words, "--store", url)
    asyncio.run(store.close())
    assert (status, lines) == (5, [])
    assert url in err
    assert "stop the process that has it open first" in err


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("outbox", "list"), 4),
        (("outbox", "list", "--ended"), 0),
        (("outbox", "show", "offered"), 1),
        (("inbox", "list"), 6),
        (("inbox", "show", "held"), 1),
    ],
)
def test_a_store_in_use_is_shown(
    words: tuple[str, ...], count: int, url: str, run: Any
) -> None:
    """Users want to see the progress of a running process."""
    store = store_from_url(url)
    store.open()
    status, lines, err = run(*words, "--store", url)
    asyncio.run(store.close())
    assert (status, len(lines), err) == (0, count, "")


@pytest.mark.parametrize("words", [("outbox", "list"), ("outbox", "withdraw", "x")])
def test_an_empty_folder_is_no_store_and_stays_empty(
    words: tuple[str, ...], tmp_path: Path, run: Any
) -> None:
    """It is a mistyped path too."""
    url = f"files:{tmp_path}"
    assert run(*words, "--store", url) == (
        5,
        [],
        f"xmpp-qos: {url}: there is no such store\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    [StoreDamaged, StoreError, StoreFull, StoreInUse, StoreReadOnly, StoreTooNew],
)
def test_every_error_of_a_store_is_status_5(
    kind: type[StoreError], url: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the store; the store's own tests check the causes."""

    def fail(_store: object, _change: object) -> None:
        raise kind(url, "for some reason")

    monkeypatch.setattr("qos.cli.outbox.write", fail)
    status, lines, err = run("outbox", "withdraw", "queued", "--store", url)
    assert (status, lines) == (5, [])
    assert err == f"xmpp-qos: {url}: for some reason\n"


def test_a_mistake_of_ours_is_one_line(
    url: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users do not need a traceback; --debug shows it."""

    def fail(_record: object) -> dict[str, object]:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr("qos.cli.outbox.summary", fail)
    status, _, err = run("outbox", "list", "--store", url)
    assert status == 70
    assert err == "xmpp-qos: this is a mistake of ours: ZeroDivisionError: seven\n"


def test_debug_shows_the_traceback(
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For the bug report."""

    def fail(_record: object) -> dict[str, object]:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr("qos.cli.outbox.summary", fail)
    assert main(["outbox", "list", "--store", url, "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_what_is_withdrawn_or_dropped_is_journaled(
    url: str, run: Any, tmp_path: Path
) -> None:
    """Otherwise it would look lost in the journal."""
    journal = tmp_path / "journal"
    options = ("--store", url, "--journal", str(journal), "--jid", "a@example.org")
    assert run("outbox", "withdraw", "queued", *options)[0] == 0
    assert run("inbox", "drop", "held", *options)[0] == 0
    assert run("outbox", "list", *options)[0] == 0
    lines = read_journal(journal)
    assert [(line["event"], line["msg_id"], line["node"]) for line in lines] == [
        ("withdrawn", "queued", "a@example.org"),
        ("expired", "held", "a@example.org"),
    ]


def test_a_journal_is_that_of_an_account(url: str, run: Any, tmp_path: Path) -> None:
    """Without the account its lines could not be joined with those of others."""
    words = ("--store", url, "--journal", str(tmp_path / "journal"))
    status, lines, err = run("outbox", "withdraw", "queued", *words)
    assert (status, lines) == (2, [])
    assert "--jid" in err
    assert run("outbox", "show", "queued", "--store", url)[0] == 0
