"""A process that sends or receives messages, and its log.

The log has one JSON object a line, each on disk before anything follows from it:

    {"event": "begun", "id": …, "body": …, "deadline_s": …, "withdrawn": …}
                                                sender: about to submit this, and
                                                perhaps to withdraw it
    {"event": "accepted", "id": …, "body": …}   sender: the message is in the outbox
    {"event": "refused", "id": …, "body": …}    sender: it is not; the disk was full
    {"event": "ended", …, "status": …}          sender: its outcome
    {"event": "unknown", "id": …, "body": …}    sender: after a restart it is unknown
    {"event": "took", "id": …, "body": …, "redelivered": …}  receiver: acted on it
    {"event": "skipped", …}                     receiver: marked, and acted on before

Each line also has `at`, in seconds since 1970. The application never sends a body
twice, so a body identifies a message: the first word is the level, the rest is unique.

A receiver with a consumer keeps its assured messages in two tables of its own in the
file of its store; see EFFECTS.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

from slixmpp import Message

from qos.core.message.model import Level
from qos.engine import Delivery, Handover, Outcome
from qos.errors import CannotWithdraw, StoreError, UnknownMessage
from role import Role, Say, ended_by_signal, open_log
from xep_qos import XEP_QOS

__all__ = ["EFFECTS", "Device", "End", "entries_of", "read_log"]

#: The number of outstanding messages of the sender: more than the first window, so that
#: some are queued.
_OUTSTANDING_MAX = 24

#: Seconds before the next attempt, when the disk was full.
_AGAIN_S = 0.2

#: The writes of a consumer for a message, in one transaction: its id into each table.
EFFECTS = ("effect_first", "effect_then")

#: Seconds that it takes in between, and how often it fails there.
_CONSUMING_S_MAX = 0.002
_FAILURES_SHARE = 0.03

#: More than the number of kills and failures.
_HANDOVERS_MAX = 1_000_000

#: Messages that have not ended, or may come again, are among the last: not all need be
#: kept.
_LOOKS_BACK_BYTES = 4_000_000
_REMEMBERED = 10_000

#: A fickle sender treats one of so many messages in a special way: these primes rarely
#: coincide.
_DEADLINE_EVERY, _WITHDRAW_EVERY = 7, 11
_DEADLINE_S_MAX = 4.0

#: The part of the bursts that go to the address without a taker, if there is one.
_TO_NOBODY_EVERY = 8
_WITHDRAW_S_MAX = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Role):
    """One life of a sender or a receiver.

    SIGTERM ends it normally: a sender when all its messages have ended.

    Attributes:
        role: sender or receiver.
        number: the number of this life; part of the bodies.
        store: its URL.
        log: the file.
        smacks: whether it loads XEP-0198.
        to: the sender's peers: each message goes to the next one.
        to_nobody: a further address, at which nobody takes messages; some bursts go
            there, with a deadline. '': none.
        burst: the number of messages that the sender submits before each pause, so that
            they go out in batches.
        padding: a body gets at most this many characters more.
        drain: send nothing new, and exit when all outstanding messages have ended.
        pause_s: before each further burst.
        fickle: give some messages a deadline, and withdraw others.
        journal: the folder of its journal, or ''.
        remembers_s: how long the plugin remembers ended messages; 0: its default.
        consumes: a consumer takes assured messages; with a store `sqlite:PATH`.
    """

    role: Literal["sender", "receiver"]
    number: int
    store: str
    log: str
    smacks: bool = False
    to: Sequence[str] = ()
    to_nobody: str = ""
    burst: int = 1
    padding: int = 0
    drain: bool = False
    pause_s: float = 0.0
    fickle: bool = False
    journal: str = ""
    remembers_s: float = 0.0
    consumes: bool = False

    async def live(self, say: Say) -> None:
        """See Role."""
        await Device(self, say).run()


class Device:
    """The process of an End.

    Args:
        end: its role.
        say: called with `ready`, at each session.
        reached: called with the points that the process reaches: the names of the
            elements of requests and answers ('' for an empty one), alone or in a batch,
            before the plugin sees them; and, for a receiver, `before log` and
            `after log` of a message that was handed to it.
    """

    def __init__(
        self, end: End, say: Say, reached: Callable[[str], None] = lambda point: None
    ) -> None:
        self.end = end
        self._say = say
        self._reached = reached
        entries = list(entries_of(Path(end.log), _LOOKS_BACK_BYTES))
        self._log = open_log(end.log)
        self._unended = _unended(entries)
        self._taken = {
            entry["id"]: None for entry in entries if entry["event"] == "took"
        }
        self.session = end.connect.as_account(resumes=end.smacks)
        self.xmpp = xmpp = self.session.client
        settings: dict[str, Any] = {
            "store": end.store,
            "journal": end.journal or None,
            "retry_first_s": 0.1,
            "retry_max_s": 0.5,
        }
        if end.remembers_s:
            settings["tombstone_ttl_s"] = end.remembers_s
            settings["outcome_ttl_s"] = end.remembers_s
        xmpp.register_plugin("xep_qos", settings)
        self.qos = XEP_QOS.of(xmpp)
        if end.consumes:
            self.qos.consumer(
                match=_is_assured,
                max_handovers=_HANDOVERS_MAX,
                retry_first_s=0.05,
                retry_max_s=0.5,
            )(self._consume)
        self.ends = asyncio.Event()
        if end.drain:
            self.ends.set()
        xmpp.add_filter("in", self._look)
        xmpp.add_event_handler("session_start", self._started)
        xmpp.add_event_handler("message", self._message)

    async def run(self) -> None:
        """Run until killed, or until nothing is left to do."""
        work = self._send if self.end.role == "sender" else self._receive
        async with self.session:
            self.session.start()
            await self.session.work(work())

    def log(self, event: str, **fields: object) -> None:
        """Write a line, which is on disk when this returns."""
        line = json.dumps({"event": event, **fields, "at": time.time()}) + "\n"
        os.write(self._log, line.encode())
        os.fdatasync(self._log)

    def _look(self, stanza: Any) -> Any:
        if stanza.name == "iq":
            for point in _points(stanza.xml):
                self._reached(point)
        return stanza

    def _started(self, _event: object) -> None:
        self.xmpp.get_roster()
        self.xmpp.send_presence()
        self._say("ready")

    # -- the receiver ------------------------------------------------------

    async def _receive(self) -> None:
        await self._until_told()

    def _message(self, message: Message) -> None:
        info = self.qos.incoming(message)
        if info is None:
            return
        self._reached("before log")
        skip = info.redelivered and info.msg_id in self._taken
        self.log(
            "skipped" if skip else "took",
            body=message["body"],
            id=info.msg_id,
            redelivered=info.redelivered,
        )
        self._taken[info.msg_id] = None
        if len(self._taken) > _REMEMBERED:
            del self._taken[next(iter(self._taken))]
        self._reached("after log")

    async def _consume(self, _message: Message, handover: Handover) -> None:
        for table in EFFECTS:
            await handover.execute(f"CREATE TABLE IF NOT EXISTS {table} (msg_id TEXT)")
        for table in EFFECTS:
            await asyncio.sleep(random.uniform(0, _CONSUMING_S_MAX))
            if random.random() < _FAILURES_SHARE:
                raise _Clumsy
            await handover.execute(
                f"INSERT INTO {table} VALUES (?)",  # noqa: S608 - one of ours
                (handover.msg_id,),
            )

    # -- the sender --------------------------------------------------------

    async def _send(self) -> None:
        ending = asyncio.create_task(self._until_told())
        room = asyncio.Semaphore(_OUTSTANDING_MAX)
        async with asyncio.TaskGroup() as group:
            for msg_id, body in self._unended.items():
                await room.acquire()
                group.create_task(self._again(msg_id, body, room))
            number = 0
            while not self.ends.is_set():
                await room.acquire()
                number += 1
                group.create_task(self._submit(number, room))
                if number % self.end.burst == 0:
                    await asyncio.sleep(self.end.pause_s)
        ending.cancel()

    async def _until_told(self) -> None:
        """Wait for SIGTERM, unless it has already come."""
        if not self.ends.is_set():
            await ended_by_signal().wait()
            self.ends.set()

    async def _again(self, msg_id: str, body: str, room: asyncio.Semaphore) -> None:
        """Ask for the outcome of a message of a former life."""
        try:
            outcome = await self.qos.outcome(msg_id)
        except UnknownMessage:
            self.log("unknown", id=msg_id, body=body)
        else:
            self.log("accepted", id=msg_id, body=body)
            self._ended(msg_id, body, outcome)
        room.release()

    async def _submit(self, number: int, room: asyncio.Semaphore) -> None:
        level = Level.ACKNOWLEDGED if number % 3 == 0 else Level.ASSURED
        padding = "." * random.randint(0, self.end.padding)
        body = f"{level.value} {self.end.number}-{number}{padding}"
        to = self.end.to[number % len(self.end.to)]
        fickle = self.end.fickle and level is Level.ASSURED
        deadline_s = None
        bursts = (number - 1) // self.end.burst
        if self.end.to_nobody and bursts % _TO_NOBODY_EVERY == 0:
            to, deadline_s = self.end.to_nobody, _DEADLINE_S_MAX
        elif fickle and number % _DEADLINE_EVERY == 0:
            deadline_s = random.uniform(0.1, _DEADLINE_S_MAX)
        msg_id = secrets.token_hex(16)
        withdrawn = fickle and number % _WITHDRAW_EVERY == 0
        fate = {"deadline_s": deadline_s, "withdrawn": withdrawn}
        self.log("begun", id=msg_id, body=body, **fate)
        try:
            delivery = await self.qos.submit(
                self.xmpp.make_message(to, body),
                level=level,
                deadline_s=deadline_s,
                msg_id=msg_id,
            )
        except StoreError:
            self.log("refused", id=msg_id, body=body)
            await asyncio.sleep(_AGAIN_S)
        else:
            self.log("accepted", id=msg_id, body=body)
            if withdrawn:
                await self._withdraw(delivery)
            self._ended(msg_id, body, await delivery.outcome())
        room.release()

    async def _withdraw(self, delivery: Delivery) -> None:
        await asyncio.sleep(random.uniform(0, _WITHDRAW_S_MAX))
        with contextlib.suppress(CannotWithdraw, UnknownMessage, StoreError):
            await delivery.withdraw()

    def _ended(self, msg_id: str, body: str, outcome: Outcome) -> None:
        self.log("ended", id=msg_id, body=body, status=outcome.status.value)


class _Clumsy(Exception):
    """The application fails, and succeeds the next time."""


def _points(iq: ET.Element) -> list[str]:
    """The names of the requests or answers in an iq, of those in a batch as well."""
    elements = [child for content in iq for child in _elements(content)]
    return elements or [""]


def _elements(content: ET.Element) -> list[str]:
    name = content.tag.rpartition("}")[2]
    if name != "batch":
        return [name]
    names = [(child.tag.rpartition("}")[2], child.get("hold")) for child in content]
    # Alone, the result has no name, or that of its mark.
    return [
        name if name != "result" else "hold" if hold else "" for name, hold in names
    ]


def _is_assured(message: Message) -> bool:
    return str(message["body"]).startswith(Level.ASSURED.value)


def _unended(entries: list[dict[str, Any]]) -> Mapping[str, str]:
    """The messages of former lives that have not ended: bodies by ids."""
    over = {
        entry["id"]
        for entry in entries
        if entry["event"] in {"ended", "refused", "unknown"}
    }
    return {
        entry["id"]: entry["body"]
        for entry in entries
        if entry["event"] == "begun" and entry["id"] not in over
    }


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; a line torn by a kill is ignored."""
    return list(entries_of(path))


def entries_of(path: Path, last_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """The entries of a log, one after the other; or those in the last bytes of it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        if last_bytes is not None and path.stat().st_size > last_bytes:
            file.seek(-last_bytes, os.SEEK_END)
            file.readline()
        for line in file:
            if not line.endswith(b"\n"):
                return  # What comes after it is the rest of a line that is being written.
            yield json.loads(line)
