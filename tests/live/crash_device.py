"""A sender or a receiver as a process of its own, to be killed and started again.

    python crash_device.py '{"role": "sender", …}'      (the fields of Life, as JSON)

It keeps a log, one JSON object a line, each on disk before anything follows from it:

    {"event": "accepted", "body": …}            sender: the message is in the outbox
    {"event": "ended", "body": …, "status": …}  sender: its outcome
    {"event": "took", "body": …, "id": …, "redelivered": …}  receiver: acted on it
    {"event": "skipped", …}                     receiver: marked, and acted on before

It prints a line when it has a session. A line on its stdin, `["deliver", 3]` for
example, makes it kill itself as it gets the third stanza from then on with such a
child, before the plugin sees it; or, of a receiver, `before log` or `after log` of a
message that it was handed. `["end", 0]` makes it log out and close what it has.

A body is never sent twice by the application, so it names one message: the first
word is the level, the rest is unique.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from devices import child
from qos.core.model import Level
from qos.engine import Delivery
from xep_qos import XEP_QOS
from xep_qos.closing import close

#: Messages that the sender has outstanding at a time: more than the window begins
#: with, so that some are queued.
OUTSTANDING_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of a device.

    Attributes:
        role: `sender` or `receiver`.
        number: which of its lives this is; goes into the bodies.
        jid: its full JID.
        password: of its account.
        host: of the server.
        port: of the server.
        store: its URL.
        log: the file.
        smacks: whether it loads XEP-0198.
        to: the sender's peer, full; it is also sent to by its bare JID.
        drain: send nothing new, and exit when all that is outstanding has ended.
        journal: the folder of its journal, or ''.
    """

    role: str
    number: int
    jid: str
    password: str
    host: str
    port: int
    store: str
    log: str
    smacks: bool = False
    to: str = ""
    drain: bool = False
    journal: str = ""


class Device:
    """What sender and receiver have in common."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self._die_at: str | None = None
        self._die_count = 0
        self._ends = asyncio.Event()
        entries = read_log(Path(life.log))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._log = os.open(life.log, flags, 0o600)
        self.taken = {entry["id"] for entry in entries if entry["event"] == "took"}
        self.xmpp = xmpp = ClientXMPP(
            life.jid,
            life.password,
            plugin_config={"feature_mechanisms": {"unencrypted_plain": True}},
        )
        xmpp.enable_plaintext = True
        xmpp.enable_starttls = xmpp.enable_direct_tls = False
        xmpp.auto_authorize = None
        if life.smacks:
            xmpp.register_plugin("xep_0198")
        options = {"store": life.store, "journal": life.journal or None}
        short = {"retry_first_s": 0.1, "retry_max_s": 0.5}
        xmpp.register_plugin("xep_qos", options | short)
        self.qos = XEP_QOS.of(xmpp)
        xmpp.add_filter("in", self._look)
        xmpp.add_event_handler("session_start", self._started)
        xmpp.add_event_handler("message", self._message)
        xmpp.add_event_handler("disconnected", self._connect)

    async def run(self) -> None:
        """Live until killed, or until nothing is left to do."""
        self.xmpp.loop.add_reader(0, self._told)
        self._connect()
        if self.life.role == "sender":
            await self._send()
        else:
            await self._ends.wait()
        self.xmpp.del_event_handler("disconnected", self._connect)
        await close(self.xmpp)

    def log(self, event: str, **fields: object) -> None:
        """Write a line; on disk when this returns."""
        line = json.dumps({"event": event, **fields}) + "\n"
        os.write(self._log, line.encode())
        os.fdatasync(self._log)

    def _told(self) -> None:
        """What comes on stdin says where to die; its end, that the test has."""
        line = os.read(0, 1_000).decode()
        if not line:
            die()
        self._die_at, count = json.loads(line)
        self._die_count = int(count)
        if self._die_at == "end":
            self.xmpp.loop.remove_reader(0)
            self._ends.set()

    def _maybe_die(self, at: str) -> None:
        """Here and now, if that is the plan."""
        if at == self._die_at:
            self._die_count -= 1
            if self._die_count == 0:
                die()

    def _connect(self, _event: object = None) -> None:
        self.xmpp.connect(self.life.host, self.life.port)

    def _look(self, stanza: StanzaBase) -> StanzaBase:
        if stanza.name == "iq":
            self._maybe_die(child(stanza.xml))
        return stanza

    def _started(self, _event: object) -> None:
        self.xmpp.get_roster()
        self.xmpp.send_presence()
        print("ready", flush=True)

    # -- the receiver ------------------------------------------------------

    def _message(self, message: Message) -> None:
        info = self.qos.incoming(message)
        if info is None:
            return
        self._maybe_die("before log")
        skip = info.redelivered and info.msg_id in self.taken
        self.log(
            "skipped" if skip else "took",
            body=message["body"],
            id=info.msg_id,
            redelivered=info.redelivered,
        )
        self.taken.add(info.msg_id)
        self._maybe_die("after log")

    # -- the sender --------------------------------------------------------

    async def _send(self) -> None:
        async with asyncio.TaskGroup() as group:
            room = asyncio.Semaphore(OUTSTANDING_MAX)
            for record in list(self.qos.store.outgoing()):
                xml = ET.fromstring(record.payload)  # noqa: S314 - our own text
                body = xml.findtext("{*}body")
                self.log("accepted", body=body)
                await room.acquire()
                delivery = self.qos.delivery(record.msg_id)
                group.create_task(self._outcome(body, delivery, room))
            number = 0
            while not self.life.drain:
                await room.acquire()
                number += 1
                group.create_task(self._submit(number, room))

    async def _submit(self, number: int, room: asyncio.Semaphore) -> None:
        level = Level.ACKNOWLEDGED if number % 3 == 0 else Level.ASSURED
        body = f"{level.value} {self.life.number}-{number}"
        to = self.life.to.partition("/")[0] if number % 2 else self.life.to
        message = self.xmpp.make_message(to, body)
        delivery = await self.qos.submit(message, level=level)
        self.log("accepted", body=body)
        await self._outcome(body, delivery, room)

    async def _outcome(
        self, body: Any, delivery: Delivery, room: asyncio.Semaphore
    ) -> None:
        outcome = await delivery.outcome()
        self.log("ended", body=body, status=outcome.status.value)
        room.release()


async def main(life: str) -> None:
    """Live it."""
    await Device(Life(**json.loads(life))).run()


def die() -> NoReturn:
    """By the signal that nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; one that a kill has torn apart says nothing."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
