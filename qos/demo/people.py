"""People pass two doors, which report them to a counter: the example of the proto-XEP.

As in `examples/count_people.py`, but the counter is a process of its own, `python -m
qos.demo.people`, and is killed.

It counts exactly once in this way: a person is in its book, with the id of the message,
before the message counts as taken. If the counter is killed in between, the message
comes again, marked as redelivered. Only then the counter looks whether it has counted
this id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from slixmpp import ClientXMPP

import qos
from qos.demo.process import READY, Program, connect, running
from qos.testing import Link, child, friends, logged_in
from xep_0337 import XEP_0337, EventTag, LogEvent
from xep_qos import XEP_QOS

__all__ = ["count_people", "reckon"]

#: Event ids of the proto-XEP, and how each changes the number of people inside.
_CHANGES: Final = {"Entered": 1, "Left": -1}

#: The time between two people, in seconds.
_PAUSE_S = 0.02

#: When nothing has been counted for this time, in seconds, nothing more is expected.
_QUIET_S = 0.3

#: Of xep_qos. The times are short, since the demo is short. Without batches each message
#: has stanzas of its own, which are counted.
_OPTIONS = {
    "retry_first_s": 0.2,
    "retry_max_s": 1.0,
    "deadline_s": 30.0,
    "batch_max": 1,
}

#: The word that reports a person who was counted.
_COUNTED: Final = "counted"

_TABLE = "CREATE TABLE IF NOT EXISTS counted (source, msg_id, number, event)"
_KNOWN = "SELECT 1 FROM counted WHERE source = ? AND msg_id = ?"


async def count_people(
    level: qos.Level, people: int, link: Link, folder: Path, kills: int
) -> dict[str, Any]:
    """Let people pass, and find out what the counter has counted; returns a row.

    Args:
        level: of the messages.
        people: their number.
        link: a new one.
        folder: for `stores`, where nothing may be from this level, and `journals`.
        kills: how often the counter is killed; fewer than there are people.

    Raises:
        ProcessFailed: the counter has ended by itself.
        TimeoutError: a door has no session.
    """
    stores = folder / "stores" / level.value
    stores.mkdir(parents=True)

    def plugins(name: str) -> dict[str, dict[str, Any]]:
        options = {"store": f"sqlite:{stores / name}.db", **_OPTIONS}
        journal = {"journal": str(folder / "journals")}
        return {"xep_qos": options | journal, "xep_0337": {}}

    async with (
        friends("entrance", "exit", "counter", link=link) as server,
        logged_in(server, "entrance/1", plugins("entrance")) as entrance,
        logged_in(server, "exit/1", plugins("exit")) as exit_,
    ):
        task = {
            "port": server.port,
            "options": plugins("counter")["xep_qos"],
            "book": str(stores / "book.db"),
            # The last of its processes is not killed.
            "kill_at": [people * life // (kills + 1) for life in range(1, kills + 2)],
        }
        counter = Program("counter", __name__, task, stores, kills)
        async with running(counter):
            doors = {"Entered": entrance, "Left": exit_}
            delivered = await _pass(level, people, doors, counter)
        stanzas = sum(server.counts[kind] for kind in ("message", "iq", "refused"))
    with closing(sqlite3.connect(stores / "book.db")) as book:
        lines = book.execute("SELECT number, event FROM counted").fetchall()
    row = reckon(people, lines, delivered=delivered, stanzas=stanzas)
    return {"level": level.value, **row, "kills": counter.kills}


async def _pass(
    level: qos.Level, people: int, doors: Mapping[str, ClientXMPP], counter: Program
) -> int:
    """Let all people pass; returns the number of messages known to be delivered."""
    deliveries = []
    for number in range(people):
        name = _event_of(number)
        # The number is for `reckon`; the counter only writes it down.
        tags = (EventTag("number", str(number), "xs:int"),)
        event = LogEvent(f"{name}.", datetime.now(UTC), id=name, tags=tags)
        door = doors[name]
        message = XEP_0337.of(door).make_message("counter@localhost/1", event)
        deliveries.append(await XEP_QOS.of(door).submit(message, level=level))
        await asyncio.sleep(_PAUSE_S)
    ends = [(await delivery.outcome()).status for delivery in deliveries]
    count = -1
    # A plain message, or a repeated one, may still be on its way.
    while count < counter.reports[_COUNTED]:
        count = counter.reports[_COUNTED]
        await counter.ready.wait()
        await asyncio.sleep(_QUIET_S)
    return ends.count(qos.OutgoingState.DELIVERED)


def _event_of(number: int) -> str:
    """The event of this person: two of three enter, and one leaves."""
    return "Left" if number % 3 == 2 else "Entered"


def reckon(
    people: int, lines: Sequence[tuple[int, str]], *, delivered: int, stanzas: int
) -> dict[str, Any]:
    """Compare the people with the book of the counter: lines of a number and an event.

    Of the messages so many are delivered, as the doors know it, with so many stanzas.
    """
    times = Counter(number for number, _ in lines)
    once = sum(count == 1 for count in times.values())
    inside = sum(_CHANGES[event] for _, event in lines)
    truth = sum(_CHANGES[_event_of(number)] for number in range(people))
    return {
        "sent": people,
        "delivered": delivered,
        "lost": people - len(times),
        "duplicated": len(times) - once,
        "stanzas": round(stanzas / people, 1),
        "inside": inside,
        "truth": truth,
        "exact": once == delivered == people and inside == truth,
    }


async def _count(task: dict[str, Any], say: child.Say) -> None:
    """The counter, in its own process."""
    kill_at = task["kill_at"][task["life"]]
    with closing(sqlite3.connect(task["book"], isolation_level=None)) as book:
        book.execute(_TABLE)
        async with connect(task, plugins={"xep_0337": {}}, **task["options"]) as device:
            say(READY)
            async for message in device.messages():
                info = device.qos.incoming(message)
                key = (str(message["from"]), info.msg_id if info else None)
                if info and info.redelivered and book.execute(_KNOWN, key).fetchone():
                    continue
                for event in XEP_0337.parse(message):
                    line = (*key, int(event.tags[0].value), event.id)
                    book.execute("INSERT INTO counted VALUES (?, ?, ?, ?)", line)
                    say(_COUNTED)
                    if line[2] >= kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    child.run_task(_count)
