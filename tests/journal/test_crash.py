"""A node is killed at every step: store and journal agree when it runs again."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from killed_runs import Runs

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

Line = dict[str, Any]
Alive = Callable[[Path, str, int], bool]


@pytest.fixture(scope="module")
def alive() -> Iterator[Alive]:
    """One run; returns whether the node survived."""
    with Runs(Path(__file__).with_name("dying_node.py")) as node:
        yield node.survives


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    if not (folder / "store").exists():
        return []
    with closing(sqlite3.connect(folder / "store")) as db:
        return db.execute(sql).fetchall()


def words(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


def happened(
    folder: Path, role: str, name: str, *, level: str | None = None
) -> dict[str, list[str]]:
    """The events of each message or item, in order; hidden files count too."""
    events: dict[str, list[str]] = defaultdict(list)
    for line in read_journal(folder / "journal", hidden=True):
        if line["role"] == role and level in {None, line.get("level")}:
            events[line[name]].append(line["event"])
    return events


def check_lines(folder: Path) -> None:
    """All lines are whole, numbered without a gap, and without a payload."""
    boots: dict[str, list[int]] = defaultdict(list)
    for line in read_journal(folder / "journal", hidden=True, own=True):
        boots[line["boot"]].append(line["seq"])
        assert "secret" not in str(line)
    for seqs in boots.values():
        assert seqs == list(range(1, len(seqs) + 1))


#: The journal's events for each state that a store can remember.
_SENT = {
    "queued": {"accepted"},
    "offered": {"accepted", "offered"},
    "releasing": {"accepted", "offered", "received", "released"},
}
_TAKEN = {
    "held": {"held"},
    "releasing": {"held", "released"},
    "done": {"held", "released", "done"},
}


def check_node(folder: Path) -> None:
    """The journal has everything that the store remembers."""
    check_lines(folder)
    sent = happened(folder, "sender", "msg_id")
    taken = happened(folder, "receiver", "msg_id")
    outgoing = rows(folder, "SELECT msg_id, offer_id, level, state FROM outgoing")
    for msg_id, offer_id, level, state in outgoing:
        events = sent[msg_id if level == "assured" else offer_id]
        assert _SENT[state] <= set(events)
    for msg_id, level, state in rows(
        folder, "SELECT msg_id, level, state FROM incoming"
    ):
        held = {"held"} if level == "acknowledged" else set[str]()
        assert _TAKEN[state] - held <= set(taken[msg_id])


OUTCOMES = {"delivered", "not-delivered"}
HAND_OVERS = {"handed-over", "redelivered"}


def check_node_at_the_end(folder: Path) -> None:
    """Everything has ended, in the journal as in reality."""
    check_node(folder)
    assert not list((folder / "journal").glob("*/.*"))
    sent = happened(folder, "sender", "msg_id")
    taken = happened(folder, "receiver", "msg_id")
    for msg_id, events in sent.items():
        assert events[-1] in OUTCOMES, msg_id
        if events[-1] == "not-delivered":
            # Only the journal ever knew of it.
            assert set(events) <= {"accepted", "offered", "not-delivered"}
            assert msg_id not in taken
    for msg_id, events in taken.items():
        assert events[-1] in {"done", "expired"}, msg_id
        if events[-1] == "done":
            assert HAND_OVERS & set(events)
            assert sent[msg_id][-1] == "delivered"
    assured = happened(folder, "receiver", "msg_id", level="assured")
    assert all(events.count("handed-over") <= 1 for events in assured.values())
    handed = words(folder, "handed")
    assert {one for one in taken if HAND_OVERS & set(taken[one])} >= set(handed)
    for msg_id in set(handed) & set(assured):
        if handed.count(msg_id) > 1:
            assert "redelivered" in taken[msg_id]
    for msg_id in {*words(folder, "accepted")} & set(sent):
        assert sent[msg_id][-1] == "delivered"


def check_queue(folder: Path) -> None:
    """The journal has everything that the store remembers."""
    check_lines(folder)
    events = happened(folder, "queue", "item")
    for item, state, count in rows(
        folder, "SELECT item_id, state, delivery_count FROM item"
    ):
        assert events[item][0] == "published"
        assert events[item].count("modified") >= count
        if state == "acquired":
            assert "acquired" in events[item]
    for item, outcome in rows(folder, "SELECT item_id, outcome FROM ended"):
        assert outcome == "accepted"
        assert events[item][-1] == "accepted"


def check_queue_at_the_end(folder: Path) -> None:
    """Each item has been done, or never existed."""
    check_queue(folder)
    assert not list((folder / "journal").glob("*/.*"))
    assert rows(folder, "SELECT COUNT(*) FROM item") == [(0,)]
    ended = {item for (item,) in rows(folder, "SELECT item_id FROM ended")}
    for item, events in happened(folder, "queue", "item").items():
        if item in ended:
            assert events[-1] == "accepted"
            assert {"published", "acquired", "modified"} <= set(events)
        else:
            assert events[0] == "published"
            assert events[-1] == "withdrawn"
            assert set(events) <= {"published", "acquired", "withdrawn"}


def check_waste(folder: Path) -> None:
    """No item of an id is there when the next one comes."""
    check_lines(folder)
    events = happened(folder, "queue", "item")
    for item_id, happening in events.items():
        for event, next_one in pairwise(happening):
            assert event != "published" or next_one != "published", item_id
    for (item_id,) in rows(folder, "SELECT item_id FROM item"):
        assert "published" in events[item_id]


def check_waste_at_the_end(folder: Path) -> None:
    """Each item has been purged, or never existed."""
    check_waste(folder)
    assert not list((folder / "journal").glob("*/.*"))
    assert rows(folder, "SELECT COUNT(*) FROM item") == [(0,)]
    events = happened(folder, "queue", "item")
    assert {*events} == {*"abc"}
    for happening in events.values():
        assert happening[-1] == "purged"
        assert {*happening} <= {"published", "purged", "withdrawn"}


@pytest.mark.parametrize(
    ("kind", "check", "check_at_the_end"),
    [
        ("node", check_node, check_node_at_the_end),
        pytest.param(
            *("queue", check_queue, check_queue_at_the_end), marks=pytest.mark.long
        ),
        pytest.param(
            *("waste", check_waste, check_waste_at_the_end), marks=pytest.mark.long
        ),
    ],
)
def test_killed_at_the_nth_step_for_growing_n(
    alive: Alive,
    tmp_path: Path,
    kind: str,
    check: Callable[[Path], None],
    check_at_the_end: Callable[[Path], None],
) -> None:
    """Until it survives. Each time it is then killed once more, in its recovery."""
    step, survived = 0, False
    while not survived:
        folder = tmp_path / str(step)
        folder.mkdir()
        survived = alive(folder, kind, step)
        check(folder)
        alive(folder, kind, step % 7)
        check(folder)
        assert alive(folder, kind, -1)
        check_at_the_end(folder)
        step += 1
    assert step > 20
