"""A node with a journal that sends to itself, or serves a queue, and is killed.

Not a test: `test_crash.py` runs it as a program; see `killed_runs`. A run, `FOLDER KIND
NUMBER`, continues with the contents of the folder, repeats its work once, and is killed
at step NUMBER on the disk, of the store or of the journal (-1: it is not killed).

`FOLDER/handed` lists what was handed over, `FOLDER/accepted` what was accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from killed_runs import kills_at, main
from qos.core.backoff import Backoff
from qos.core.message.effects import Answer, Report, Transmit
from qos.core.message.model import Incoming, Level, Outgoing, Route
from qos.core.message.receiver_table import Request
from qos.core.message.sender_table import Reply
from qos.core.queue.effects import Notification
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Create,
    Delete,
    Publish,
    PublishedItem,
    Purge,
    Refusal,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
)
from qos.core.queue.requests import Request as QueueRequest
from qos.engine import Inbox, InboxLimits, LoopClock, Outbox, OutboxLimits
from qos.engine.queue_engine import QueueEngine, Stats
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.journal.messages import not_stored
from qos.journal.writer import JournalWriter
from qos.stores import SqliteStore
from qos.stores.queue_store import SqliteQueueStore
from waiting import limit, until

NODE = "node@example.org/1"
BEE = "bee@example.org/1"
QUEUE = "orders"
WASTE = "waste"
FREE_AT_ONCE = {"queue#dedupe_window": "0"}
PAYLOAD = "<message xmlns='jabber:client'><body>secret</body></message>"

Probe = Callable[[str], None]
T = TypeVar("T")


class Node:
    """A sender and a receiver with one store, whose network is a turn of the loop."""

    def __init__(self, folder: Path, probe: Probe) -> None:
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        clock = LoopClock(self._loop)
        self.store = SqliteStore(folder / "store")
        self.store.probe = probe
        contents = self.store.open()
        probe("between store and journal")
        # Small files, so that it is also killed between two of them.
        self.journal = JournalWriter(
            folder / "journal", NODE, store_id=self.store.store_id, rotate_bytes=2500
        )
        self.journal.probe = probe
        self.store.journal = self.journal
        self.journal.note(*not_stored(self.journal.begun, self.store))
        self.left = [record.msg_id for record in self.store.outgoing()]
        self.outbox = Outbox(
            self.store,
            contents,
            self,
            clock=clock,
            backoff=Backoff(first_s=5.0, max_s=5.0),
            limits=OutboxLimits(window=2),
            journal=self.journal,
        )
        self.inbox = Inbox(
            self.store,
            contents,
            self,
            clock=clock,
            limits=InboxLimits(),
            journal=self.journal,
        )

    async def live(self) -> None:
        going = [self.outbox.delivery(msg_id) for msg_id in self.left]
        self.inbox.restart()
        self.outbox.session_started(NODE)
        await asyncio.gather(*[self.one(level) for level in [*Level][1:] * 2])
        await asyncio.gather(*[delivery.outcome() for delivery in going])

    async def one(self, level: Level) -> None:
        delivery = await self.outbox.submit(NODE, PAYLOAD, level=level)
        self._append("accepted", delivery.msg_id)
        if level is Level.ASSURED:
            await delivery.outcome()
            return
        outcome = await delivery.outcome()
        assert outcome.attempts

    async def close(self) -> None:
        self.outbox.stop()
        self.inbox.stop()
        await self.store.close()
        await self.journal.close()

    def _append(self, name: str, text: str) -> None:
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{text}\n".encode())
        os.close(file)

    # -- the ports ---------------------------------------------------------

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to, marked=True)

    def transmit(self, transmit: Transmit) -> bool:
        record, deliver = transmit.record, transmit.step == "deliver"
        assured = record.level is Level.ASSURED
        request = Request(
            kind="deliver" if deliver else "assured" if assured else "acknowledged",
            iq_id=record.deliver_id if deliver else record.offer_id,
            source=NODE,
            to=NODE,
            namespace=transmit.route.namespace,
            msg_id=record.msg_id if assured else "",
            payload="" if deliver else record.payload,
            size=0 if deliver else record.size,
            mark=self.store.store_id if assured else "",
            hold=(record.hold or "") if deliver else "",
        )
        self._loop.call_soon(lambda: self.inbox.request(request, trusted=True))
        return True

    def ping(self) -> bool:
        self._loop.call_soon(lambda: self.outbox.in_flight.answered_ping())
        return True

    def answer(self, request: Request, answer: Answer) -> None:
        reply = Reply(
            iq_id=request.iq_id,
            source=NODE,
            error=answer.condition or None,
            error_type=answer.error_type,
            received=request.msg_id if answer.kind == "received" else None,
            hold=answer.hold or None,
        )
        self._loop.call_soon(lambda: self.outbox.in_flight.reply(reply))

    def consumption(self, record: Incoming) -> None:
        """None: no message has a consumer."""

    def hand_over(self, record: Incoming) -> bool:
        self._append("handed", record.msg_id)
        return True

    def report(self, source: str, report: Report) -> None:
        raise AssertionError(report)

    def new_id(self) -> str:
        return secrets.token_hex(16)

    new_msg_id = new_id

    def jitter(self) -> float:
        return 0.0


class Service(QueuePort):
    """A queue with one worker, which fails once with each item."""

    def __init__(self, folder: Path, probe: Probe) -> None:
        store = SqliteQueueStore(folder / "store")
        store.probe = probe

        def journal(store_id: str) -> JournalWriter:
            probe("between store and journal")
            writer = JournalWriter(
                folder / "journal", NODE, store_id=store_id, rotate_bytes=2500
            )
            writer.probe = probe
            return writer

        clock = LoopClock(asyncio.get_running_loop())
        self.engine = QueueEngine(store, self, clock=clock, journal=journal)
        self._got: asyncio.Queue[tuple[str, str, int]] = asyncio.Queue()

    async def live(self) -> None:
        self.engine.online()
        options = {
            "queue#backoff": "0",
            "queue#max_deliveries": "3",
            "pubsub#access_model": "open",
        }
        await self._ask(Create(QUEUE, options))
        await self._ask(Subscribe(QUEUE, BEE, {"pubsub#queue_requests": "2"}), BEE)
        publishing = asyncio.gather(
            *[self._publish(secrets.token_hex(8)) for _ in range(3)]
        )
        left = None
        while left is None or left > 0 or not publishing.done():
            try:
                async with asyncio.timeout(0.05):
                    item, token, count = await self._got.get()
            except TimeoutError:
                left = await self._left()
                continue
            settlement = Settlement(item_id=item, token=token)
            if count:
                await self._ask(Retract(QUEUE, (settlement,)), BEE)
            else:
                failed = Settlement(
                    item_id=item,
                    token=token,
                    outcome=ItemOutcome.MODIFIED,
                    delivery_failed=True,
                    reason="secret",
                )
                await self._ask(Unlock(QUEUE, (failed,)), BEE)
        await publishing

    async def waste(self) -> None:
        """Purge and delete items whose ids come again at once."""
        self.engine.online()
        await self._ask(Create(WASTE, FREE_AT_ONCE))
        await asyncio.gather(*(self._publish(each, WASTE) for each in "abc"))
        await self._ask(Purge(WASTE))
        await self._publish("b", WASTE)
        await asyncio.gather(
            self._ask(Delete(WASTE)),
            self._ask(Create(WASTE, FREE_AT_ONCE)),
            *(self._publish(each, WASTE) for each in "ab"),
            self._ask(Purge(WASTE)),
            self._publish("b", WASTE),
        )
        await self._ask(Delete(WASTE))
        await until(lambda: not self.engine.store.has_purged())

    async def _left(self) -> int:
        told: asyncio.Future[Stats | Refusal]
        told = asyncio.get_running_loop().create_future()
        self.engine.stats(QUEUE, NODE, told.set_result)
        stats = await told
        assert not isinstance(stats, Refusal)
        return int(stats["available"] or 0) + int(stats["acquired"] or 0)

    async def _publish(self, item_id: str, node: str = QUEUE) -> None:
        payload = "<secret xmlns='urn:x'/>"
        digest = hashlib.sha256(payload.encode()).hexdigest()
        entry = PublishedItem(
            item_id=item_id, payload=payload, digest=digest, size=len(payload)
        )
        await self._ask(Publish(node, (entry,)))

    async def _ask(self, request: QueueRequest, by: str = NODE) -> object:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.engine.request(request, by, lambda result, _: done.set_result(result))
        result = await done
        if isinstance(result, Refusal) and not isinstance(request, Create):
            assert result.condition in {"item-not-found", "unexpected-request"}, result
        return result

    async def close(self) -> None:
        await self.engine.aclose()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        for item, _ in items:
            self._got.put_nowait((item.item_id, item.token, item.delivery_count))
        return [(secrets.token_hex(8), items)]

    def notify(self, notification: Notification) -> None:
        pass

    def probe(self, jid: str) -> None:
        asyncio.get_running_loop().call_soon(self.engine.heard, jid)

    def new_id(self) -> str:
        return secrets.token_hex(16)


async def live(folder: Path, kind: str, number: int) -> None:
    """One run."""
    probe = kills_at(number)
    node: Node | Service
    node = Node(folder, probe) if kind == "node" else Service(folder, probe)
    async with limit():
        if kind == "waste":
            assert isinstance(node, Service)
            await node.waste()
        else:
            await node.live()
        await node.close()


if __name__ == "__main__":
    main(
        lambda folder, kind, number: asyncio.run(live(Path(folder), kind, int(number)))
    )
