"""Each pair of commands of one account at the same time.

Which one gets its messages.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from qos.testing.server import LoopbackServer
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Commands, Ended, Running

#: Commands that stay online until they are stopped.
COMMANDS = {
    "listen": ("listen",),
    "send": ("send", "carol@localhost/away", "--lines"),
    "outbox resend": ("outbox", "resend"),
    "worker": ("worker", "queue.localhost", "orders"),
}

BODIES = [f"message {number}" for number in range(20)]

#: For messages that somebody takes, and for those that nobody does.
NEVER, SOON = ("--deadline", "3600"), ("--deadline", "3")

#: The number of messages sent while `listen` is away, before each of its starts.
PER_LIFE = 5


async def begun(
    commands: Commands, server: LoopbackServer, name: str, resource: str
) -> Running:
    """Start this command as a resource of Alice's; returns when it is online."""
    jid = f"alice@localhost/{resource}"
    store = ("--store", f"sqlite:{commands.folder / resource}.db")
    words = (*COMMANDS[name], "--jid", jid)
    if name == "outbox resend":
        # A message for it to continue with.
        given = ("carol@localhost/away", "--jid", jid, *store, "--body", "x")
        sending = await commands.start("send", *given, user="alice")
        await until_online(server, jid)
        sending.process.send_signal(signal.SIGTERM)
        await sending.end()
    words = (*words, "--", "true") if name == "worker" else (*words, *store)
    running = await commands.start(*words, user="alice")
    if name in {"listen", "worker"}:
        await running.note("ready")
    await until_online(server, jid)
    return running


async def until_online(server: LoopbackServer, jid: str) -> None:
    await until(lambda: jid in server.online)


async def stopped(running: Running) -> Ended:
    running.process.send_signal(signal.SIGTERM)
    return await running.end()


def bodies(ended: Ended) -> list[object]:
    """The bodies of the messages that it has printed."""
    return [line["body"] for line in ended.out if "body" in line]


#: Of the pairs without `listen`, where nothing may come: each command once.
IN_THE_GATE = {("send", "outbox resend"), ("worker", "worker")}


def pairs() -> Iterator[object]:
    for pair in itertools.combinations_with_replacement(COMMANDS, 2):
        long = "listen" not in pair and pair not in IN_THE_GATE
        marks = [pytest.mark.long] if long else []
        yield pytest.param(pair, marks=marks, id=" + ".join(pair))


@pytest.mark.parametrize("pair", [*pairs()])
async def test_a_message_to_an_account_is_printed_once_or_not_delivered(
    pair: tuple[str, str], queues: Commands, server: LoopbackServer
) -> None:
    """A command that prints no messages accepts none, alone or in a batch."""
    running = [
        await begun(queues, server, name, resource)
        for name, resource in zip(pair, ("one", "two"), strict=True)
    ]
    sent = await queues.run(
        *("send", "alice@localhost", "--lines", *(NEVER if "listen" in pair else SOON)),
        user="bob",
        input_="\n".join(BODIES).encode(),
    )
    ended = [await stopped(each) for each in running]
    printed = Counter(body for each in ended for body in bodies(each))
    outcomes = Counter(line["outcome"] for line in sent.out)
    if "listen" in pair:
        assert outcomes == {"delivered": len(BODIES)}, sent.err
        assert printed == Counter(BODIES)
    else:
        assert outcomes == {"not delivered": len(BODIES)}, sent.err
        assert not printed


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("listen", "assured"),
        ("listen", "acknowledged"),
        ("send", "acknowledged"),
        ("outbox resend", "assured"),
        ("worker", "assured"),
        pytest.param("send", "assured", marks=pytest.mark.long),
        pytest.param("outbox resend", "acknowledged", marks=pytest.mark.long),
        pytest.param("worker", "acknowledged", marks=pytest.mark.long),
    ],
)
async def test_a_message_to_the_full_jid_of_a_command_needs_one_that_prints_it(
    name: str, level: str, queues: Commands, server: LoopbackServer
) -> None:
    """Even if another resource of the account would print it."""
    listening = await begun(queues, server, "listen", "one")
    other = await begun(queues, server, name, "two")
    sent = await queues.run(
        *("send", "alice@localhost/two", "--lines", "--level", level),
        *(NEVER if name == "listen" else SOON),
        user="bob",
        input_="\n".join(BODIES).encode(),
    )
    outcomes = Counter(line["outcome"] for line in sent.out)
    one, two = await stopped(listening), await stopped(other)
    assert bodies(one) == []
    if name == "listen":
        assert outcomes == {"delivered": len(BODIES)}, sent.err
        assert sorted(map(str, bodies(two))) == sorted(BODIES)
    else:
        # An answer such as service-unavailable may hide that the message has arrived.
        expected = {"not delivered", "in doubt"} - {level == "assured" and "in doubt"}
        assert outcomes.keys() <= expected, sent.err


@pytest.mark.parametrize(
    "name",
    # `send` itself: see test_send_listen.py.
    [pytest.param("send", marks=pytest.mark.long), "outbox resend", "worker"],
)
async def test_what_comes_while_listen_restarts_is_printed_by_its_next_life(
    name: str, queues: Commands, server: LoopbackServer
) -> None:
    """Meanwhile only the other command of the account is online."""
    other = await begun(queues, server, name, "other")
    sending = await queues.start("send", "alice@localhost", "--lines", user="bob")
    assert sending.process.stdin is not None
    listened: list[Ended] = []
    for first in range(0, len(BODIES), PER_LIFE):
        for body in BODIES[first : first + PER_LIFE]:
            sending.process.stdin.write(f"{body}\n".encode())
        listening = await begun(queues, server, "listen", "lamp")
        if first + PER_LIFE < len(BODIES):
            listened.append(await stopped(listening))
    sent = await sending.end()
    listened.append(await stopped(listening))
    assert {line["outcome"] for line in sent.out} == {"delivered"}, sent.err
    lines = [line for each in listened for line in each.out]
    unmarked = Counter(line["body"] for line in lines if not line["redelivered"])
    # A `listen` that is stopped while it prints a line may have to print it again.
    marked = {line["body"] for line in lines if line["redelivered"]}
    assert unmarked <= Counter(BODIES)
    assert unmarked.keys() | marked == set(BODIES)
    assert bodies(await stopped(other)) == []
