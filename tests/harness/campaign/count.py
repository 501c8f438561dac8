"""The result of a run, from the records of its processes; independent of our own code.

Only files are read: the logs of the applications, their databases, and the records of
the service about each item.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign.files import Files
from campaign.supervisor import NODE, WORKERS
from message_roles import EFFECTS, read_log
from notebooks import ACCEPTED, REJECTED, read_deeds
from qos.core.message.model import OutgoingState
from queue_roles import query, read_work_records

__all__ = [
    "Tally",
    "compare",
    "count_items",
    "count_messages",
    "examples_of",
    "held_back_s",
    "unsettled",
]

_DELIVERED = OutgoingState.DELIVERED.value
_NOT_DELIVERED = OutgoingState.NOT_DELIVERED.value
_IN_DOUBT = OutgoingState.IN_DOUBT.value

_OUTCOMES = f"SELECT item_id, outcome FROM item WHERE node = '{NODE}'"  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The messages of a pair, or the items of a queue, by result.

    Attributes:
        accepted: should have arrived.
        delivered: so their sender says; for items, the service.
        not_delivered: so their sender says: withdrawn, or too late. Without such a
            reason the message is false.
        again: came again after a crash, with a mark by which they were recognized.
        lost: never came, and nobody says so.
        doubled: came twice, without a mark.
        in_doubt: unknown, because of a deadline; without one the message is false.
        false: had an outcome that is not true.
        open: have not ended.
        examples: some of the last five kinds, in words.
    """

    accepted: int
    delivered: int
    not_delivered: int = 0
    again: int = 0
    lost: int = 0
    doubled: int = 0
    in_doubt: int = 0
    false: int = 0
    open: int = 0
    examples: Sequence[str] = ()

    @property
    def clean(self) -> bool:
        """Whether the promise was kept."""
        return not (self.lost or self.doubled or self.false or self.open)

    def __add__(self, other: Tally) -> Tally:
        names = [name for name in Tally.__slots__ if name != "examples"]
        sums: dict[str, Any] = {
            name: getattr(self, name) + getattr(other, name) for name in names
        }
        return replace(self, **sums, examples=[*self.examples, *other.examples])


def count_messages(sender: Path, receiver: Path, effects: Path | None = None) -> Tally:
    """Compare the outcomes of a sender with the messages that its receiver took.

    Args:
        sender: its log; see message_roles.
        receiver: likewise.
        effects: the file with the tables of its consumer, if it has one.
    """
    first, then = Counter[str](), Counter[str]()
    if effects is not None:
        first, then = (_ids(effects, table, "msg_id") for table in EFFECTS)
    taken = [{"event": "took", "id": msg_id} for msg_id in first.elements()]
    return compare(
        read_log(sender),
        [*read_log(receiver), *taken],
        # Half of a transaction.
        false=[msg_id for msg_id in first | then if first[msg_id] != then[msg_id]],
    )


def compare(
    sent: Sequence[Mapping[str, Any]],
    got: Sequence[Mapping[str, Any]],
    *,
    false: Iterable[str] = (),
) -> Tally:
    """Compare the entries of a sender's log with those of a receiver's.

    Args:
        sent: see message_roles.
        got: likewise.
        false: further false results, a word or an id each.
    """
    bodies = {entry["id"]: entry["body"] for entry in sent}
    ids = {
        event: {entry["id"] for entry in sent if entry["event"] == event}
        for event in ("accepted", "refused", "unknown")
    }
    statuses: dict[str, set[str]] = {}
    for entry in sent:
        if entry["event"] == "ended":
            statuses.setdefault(entry["id"], set()).add(entry["status"])
    begun = [entry for entry in sent if entry["event"] == "begun"]
    may_be_late = {entry["id"] for entry in begun if entry.get("deadline_s")}
    may_come_back = {entry["id"] for entry in begun if entry.get("withdrawn")}
    taken = Counter(entry["id"] for entry in got if entry["event"] == "took")
    once = {msg_id for msg_id, body in bodies.items() if body.startswith("assured")}
    certain = {msg_id for msg_id, said in statuses.items() if _NOT_DELIVERED in said}
    doubtful = {msg_id for msg_id, said in statuses.items() if _IN_DOUBT in said}
    delivered = {msg_id for msg_id, said in statuses.items() if _DELIVERED in said}
    accepted = ids["accepted"]
    open_ = accepted - statuses.keys() - ids["unknown"]
    found = {
        "lost": accepted - taken.keys() - certain - doubtful - open_,
        "doubled": {msg_id for msg_id, times in taken.items() if times > 1} & once,
        "false": {
            *(taken.keys() & (certain | ids["refused"] | ids["unknown"])),
            *(certain - may_be_late - may_come_back),
            *(doubtful - may_be_late),
            *(delivered - taken.keys()),
            *(msg_id for msg_id, said in statuses.items() if len(said) > 1),
            # It was accepted, and after a restart its sender did not know it.
            *(accepted & ids["unknown"]),
            # A message that was never sent cannot arrive.
            *(taken.keys() - bodies.keys()),
            *false,
        },
        "open": open_,
    }
    return Tally(
        accepted=len(accepted),
        delivered=len(delivered),
        not_delivered=len(certain),
        again=sum(entry["event"] == "skipped" for entry in got),
        in_doubt=len(doubtful),
        **{name: len(these) for name, these in found.items()},
        examples=examples_of(found, bodies),
    )


def count_items(files: Files) -> Tally:
    """Compare the published items with the effects of the workers.

    Each item is accepted or dead, and one worker has told so: an XMPP worker's effects are
    in its database, and the deeds of others in their notebooks.

    In a soak the service forgets accepted items: a published item that it does not know
    is taken to be accepted.
    """
    deeds = read_deeds(files.notebooks)
    effects = deeds.certain(ACCEPTED)
    dead = deeds.certain(REJECTED)
    prepared = 0
    for worker in WORKERS:
        effects += _ids(files.effects(worker), "effects", "item_id")
        prepared += _prepared(files.effects(worker))
    outcomes: dict[str, str | None] = dict(query(files.queue_store, _OUTCOMES))
    accepted = {item for item, outcome in outcomes.items() if outcome == ACCEPTED}
    rejected = {item for item, outcome in outcomes.items() if outcome == REJECTED}
    published = files.all_published
    if files.elders:
        accepted |= published - outcomes.keys()
    # A worker that has lost its connection does not know what became of its answer.
    for deed in deeds.unanswered:
        if deed.outcome == ACCEPTED and deed.item in accepted - effects.keys():
            effects[deed.item] += 1
        if deed.outcome == REJECTED and deed.item in rejected - dead.keys():
            dead[deed.item] += 1
    told = set[str]()
    unwanted = set[str]()
    for record in read_work_records(files.work_records):
        if record.what == "accepted":
            told.add(record.item_id)
        elif record.what == "unwanted":
            unwanted.add(record.item_id)
    open_ = {item for item, outcome in outcomes.items() if outcome is None}
    found = {
        "lost": published - effects.keys() - dead.keys() - open_,
        "doubled": deeds.unmarked
        | {item for item, times in (effects + dead).items() if times > 1},
        "false": {
            *(accepted ^ effects.keys()),
            *(rejected ^ dead.keys()),
            *(told - effects.keys()),
            *unwanted,
            # Posted twice, under another id.
            *(outcomes.keys() - published),
        },
        "open": open_,
    }
    return Tally(
        accepted=len(published),
        delivered=len(accepted),
        not_delivered=len(rejected),
        in_doubt=prepared,
        **{name: len(these) for name, these in found.items()},
        examples=examples_of(found, {}),
    )


def held_back_s(files: Files) -> float:
    """Seconds until the item with the longest backoff can be given out again."""
    sql = "SELECT MAX(available_at) FROM item WHERE state = 'available'"
    latest = [at for (at,) in _rows(files.queue_store, sql) if at is not None]
    return max(0.0, max(latest, default=0.0) - time.time())


def unsettled(files: Files) -> int:
    """Items that have not ended, and effects whose result is not known yet."""
    sql = f"{_OUTCOMES} AND outcome IS NULL"
    prepared = sum(_prepared(files.effects(worker)) for worker in WORKERS)
    return len(query(files.queue_store, sql)) + prepared


def _ids(path: Path, table: str, column: str) -> Counter[str]:
    rows = _rows(path, f"SELECT {column} FROM {table}")  # noqa: S608 - ours
    return Counter(each for (each,) in rows)


def _prepared(path: Path) -> int:
    """Prepared effects, which are no proof that they happened.

    See qos.worker.effects.
    """
    return len(_rows(path, "SELECT 1 FROM xmpp_qos_prepared WHERE statements <> ''"))


def _rows(path: Path, sql: str) -> list[Any]:
    """Rows of a database that may not exist yet, or may not have this table."""
    with contextlib.suppress(sqlite3.OperationalError):
        return query(path, sql)
    return []


def examples_of(found: Mapping[str, set[str]], bodies: Mapping[str, str]) -> list[str]:
    """Five examples of each kind, in words."""
    return [
        f"{name}: {each} {bodies.get(each, '').rstrip('.')}".rstrip()
        for name, these in found.items()
        for each in sorted(these)[:5]
    ]
