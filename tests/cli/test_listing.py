"""Lists are tables on a terminal, and JSON lines in a pipe or with --json."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qos.core.message.effects import Save
from qos.core.message.model import OutgoingState
from qos.stores import SqliteStore
from qos.testing.store_records import outgoing

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


def stored(path: Path, count: int) -> str:
    """A store with so many messages; returns its URL."""
    store = SqliteStore(path)
    plain = outgoing(1, to="lamp@example.org")

    async def fill() -> None:
        store.open()
        records = [
            replace(
                plain,
                seq=seq,
                msg_id=f"m{seq}",
                offer_id=f"o{seq}",
                deliver_id=f"d{seq}",
                attempts=seq,
                state=OutgoingState.OFFERED,
            )
            for seq in range(1, count + 1)
        ]
        written = store.write([Save(record) for record in records])
        assert (written is None) == (count == 0)
        if written is not None:
            await written
        await store.close()

    asyncio.run(fill())
    return store.url


def on_terminal(*words: str) -> list[str]:
    """The lines that the command prints on a terminal."""
    return lines_and_notes(*words)[0]


def lines_and_notes(*words: str) -> tuple[list[str], str]:
    """The lines that the command prints on a terminal, and its stderr."""
    return run_on_terminal([sys.executable, "-P", "-m", "qos", *words])


def run_on_terminal(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[list[str], str]:
    ours, its = os.openpty()
    process = subprocess.Popen(
        command, env=environment, stdout=its, stderr=subprocess.PIPE, text=True
    )
    os.close(its)
    found = b""
    # The end of a terminal is an error.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            found += part
    os.close(ours)
    _, notes = process.communicate()
    assert process.returncode == 0, notes
    return found.decode().splitlines(), notes


def test_a_list_is_a_table_on_a_terminal(tmp_path: Path) -> None:
    """As wide as its content; numbers stand at the right, and what is unknown is a dash."""
    url = stored(tmp_path / "a.db", 10)
    lines = on_terminal("outbox", "list", "--store", url)
    assert len(lines) == 11
    created = "2023-11-14T22:13:21.125+00:00"
    head = "msg id  to                level    state    bytes  attempts  created at"
    assert lines[0].startswith(head)
    assert lines[0].endswith("expires at")
    first = "m1      lamp@example.org  assured  offered     11         1  "
    assert lines[1] == f"{first}{created}  -"
    assert lines[10].startswith(first.replace("m1 ", "m10").replace(" 1  ", "10  "))


def test_a_long_list_begins_before_its_end_is_read(tmp_path: Path) -> None:
    """Its first rows decide how wide the columns are."""
    url = stored(tmp_path / "a.db", 1001)
    lines = on_terminal("outbox", "list", "--store", url)
    assert len(lines) == 1002
    assert lines[200].startswith("m200    lamp")
    assert lines[1001].startswith("m1001   lamp")


def test_json_is_to_be_had_on_a_terminal(tmp_path: Path) -> None:
    url = stored(tmp_path / "a.db", 1)
    (line,) = on_terminal("outbox", "list", "--store", url, "--json")
    assert line.startswith('{"msg_id": "m1"')


def test_an_empty_list_says_so_to_people_alone(tmp_path: Path) -> None:
    """Nothing is no table, and nothing at all looks like a command that did not work."""
    url = stored(tmp_path / "a.db", 0)
    for words, said in (
        (("outbox", "list"), "the outbox is empty"),
        (("outbox", "list", "--ended"), "no message that has ended is kept"),
        (("inbox", "list"), "the inbox is empty"),
        (("inbox", "list", "--parked"), "no message is parked"),
    ):
        call = (*words, "--store", url)
        assert lines_and_notes(*call) == ([], f"xmpp-qos: {said}\n")
        assert lines_and_notes(*call, "--json") == ([], "")
    full = stored(tmp_path / "b.db", 1)
    assert lines_and_notes("outbox", "list", "--store", full)[1] == ""


async def queue_on_terminal(commands: Commands, *words: str) -> list[str]:
    """What a verb of `queue` prints on a terminal, as Alice."""
    command = commands.command_line("queue", *words, user="alice")
    environment = commands.environment("alice")
    lines, notes = await asyncio.to_thread(run_on_terminal, command, environment)
    return lines or [notes]


async def test_queues_and_their_numbers_are_tables(queues: Commands) -> None:
    """A terminal of its own, and not what only says that it is one."""
    service, node = "queue.localhost", "orders"
    assert (await queues.queue("publish", "--text", "a")).status == 0
    nothing = await queue_on_terminal(queues, "list", "localhost")
    assert nothing == ["xmpp-qos: localhost shows no queue to this account\n"]
    head, row = await queue_on_terminal(queues, "list", service)
    assert head.split()[:4] == ["node", "node", "type", "available"]
    assert row.split()[:3] == ["orders", "queue", "1"]
    assert len(head) < 120
    stats = await queue_on_terminal(queues, "stats", service, node)
    found = dict(line.rsplit(maxsplit=1) for line in stats)
    assert (found["available"], found["acquired"]) == ("1", "0")
    assert "oldest seconds" in found


async def test_items_are_a_table_without_what_is_long(queues: Commands) -> None:
    """The rest is to be had by --json."""
    where = ("queue.localhost", "orders")
    words = ("--text", "a long content", "--id", "order-7", "--property", "color=red")
    assert (await queues.queue("publish", *words)).status == 0
    head, row = await queue_on_terminal(queues, "browse", *where)
    assert head.split() == ["id", "state", "priority", "delivery", "count", "published"]
    assert row.split()[:4] == ["order-7", "available", "4", "0"]
    (line,) = await queue_on_terminal(queues, "browse", *where, "--json")
    assert "a long content" in line
    assert '"color": "red"' in line
    assert "a long content" in str((await queues.queue("browse")).out)
    nothing = await queue_on_terminal(queues, "dead", "list", *where)
    assert nothing == ["xmpp-qos: 'orders' has no dead item\n"]


async def test_affiliations_are_a_table(queues: Commands) -> None:
    rights = ("bob@localhost=member", "@example.net=publisher")
    assert (await queues.queue("affiliate", *rights)).status == 0
    lines = await queue_on_terminal(queues, "affiliate", "queue.localhost", "orders")
    assert [line.split() for line in lines] == [
        ["jid", "affiliation"],
        ["alice@localhost", "owner"],
        ["bob@localhost", "member"],
        ["example.net", "publisher"],
    ]
