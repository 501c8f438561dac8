"""Queues under `kill -9`: of workers, of the service, of the server.

Real processes, SIGKILL, a real Prosody, stores on disk. A seed decides which of them
dies next. The exact moment is not determined, so a failure may need several runs to
appear again: `QOS_SEEDS=20 pytest tests/live/test_queue_kills.py`.
"""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

import xep_0254  # noqa: F401 - makes the plugin known
from clients import Plugins, connected_client
from devices import RETRY_FIRST_S, RETRY_MAX_S
from qos.core.message.model import OutgoingState
from qos.core.queue.item import ItemOutcome
from qos.core.queue.link_time import LOOK_S
from qos.engine import Outcome
from qos.errors import RequestRefused
from qos.testing.prosody import Prosody
from queue_asker import NODE, QUEUE, Asker, asker, until_empty
from queue_roles import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    LockChange,
    PublisherRole,
    Service,
    WorkerRole,
    WorkRecord,
    query,
    read_journal,
    read_work_records,
)
from role import Connect
from role_processes import Processes, RoleProcess
from waiting import limit, until
from xep_0254.events import DeliveredItem, Event
from xep_0254.namespaces import PUBSUB
from xep_0254.queueing import XEP_0254, NewItem
from xep_qos import XEP_QOS

pytestmark = pytest.mark.crash

DEAD = "dead"

T = TypeVar("T")


def seeds() -> range:
    """More seeds on demand."""
    return range(int(os.environ.get("QOS_SEEDS", "1")))


# -- the whole of it -------------------------------------------------------

POISON_EVERY = 250
MAX_DELIVERIES = 6

#: Long enough for a busy machine: the items of a worker that was killed come back when
#: its connection ends, and only those that were locked meanwhile wait for this.
LOCK_S = 10.0

#: Items in one request of the publisher.
BATCH = 50

#: About a hundred pieces of work.
PROGRESS_BYTES = 7_000


class Shop:
    """A service, workers and a publisher, and the code that kills them."""

    def __init__(self, server: Prosody, folder: Path, *, seed: int) -> None:
        self.store = folder / "queue.sqlite"
        self.kills: Counter[str] = Counter()
        self._server = server
        self._folder = folder
        self._rng = random.Random(seed)
        self._lives = 0
        self._running: dict[str, RoleProcess] = {}
        self._doomed: list[str] = []

    @property
    def published(self) -> list[str]:
        return (self._folder / "published").read_text().split()

    @property
    def records(self) -> list[WorkRecord]:
        return read_work_records(self._folder / "records")

    @property
    def accepted(self) -> set[str]:
        """The items that workers were told are accepted."""
        return {record.item_id for record in self.records if record.what == "accepted"}

    def check_alive(self) -> None:
        """No process has ended by itself."""
        assert not any(process.ended.done() for process in self._running.values())

    async def open(self, processes: Processes) -> None:
        self._processes = processes
        await self._start("service")
        await self._running["service"].until("ready")

    async def hire(self, workers: int) -> None:
        for number in range(workers):
            await self._start(f"worker {number}")

    async def publish(
        self, count: int, *, pause_s: float = 0.0, poison_every: int = POISON_EVERY
    ) -> RoleProcess:
        publisher = PublisherRole(
            connect=Connect.of_account(self._server, "alice/publisher"),
            service=QUEUE,
            node=NODE,
            log=str(self._folder / "published"),
            count=count,
            batch=BATCH,
            poison_every=poison_every,
            pause_s=pause_s,
        )
        return await self._processes.start(publisher)

    async def kill_one(self) -> None:
        """Kill one process, in turn, and start another at once."""
        if not self._doomed:
            self._doomed = self._rng.sample(list(self._running), len(self._running))
        victim = self._doomed.pop()
        await self._running[victim].kill()
        self.kills[victim] += 1
        await self._start(victim)

    async def kill(self, times: int, over: asyncio.Event) -> None:
        """Kill a process every half second or so, this many times.

        On a machine under load that needs longer to start them, the interval is longer:
        otherwise nothing would happen but starts.

        Args:
            times: how often.
            over: set when no work is left to wait for.
        """
        for _ in range(times):
            mercy = self._rng.random() < 0.75
            done = self._deeds_size
            await asyncio.sleep(self._rng.uniform(0.3, 0.8))
            if mercy:
                await until(
                    lambda: over.is_set() or self._deeds_size > done + PROGRESS_BYTES  # noqa: B023
                )
            await self.kill_one()

    @property
    def _deeds_size(self) -> int:
        file = self._folder / "records"
        return file.stat().st_size if file.exists() else 0

    async def _start(self, name: str) -> None:
        self._lives += 1
        if name == "service":
            service = Service.of(self._server, QUEUE, self.store, journal=True)
            self._running[name] = await self._processes.start(service)
            return
        # Two accounts, since rights between accounts matter too.
        user = "bob" if int(name[-1]) % 2 else "mallory"
        worker = WorkerRole(
            connect=Connect.of_account(
                self._server, f"{user}/{name[-1]}-{self._lives}"
            ),
            service=QUEUE,
            node=NODE,
            log=str(self._folder / "records"),
            lock_s=LOCK_S,
            work_s=0.02,
            parity={"0": 0, "1": 1}.get(name[-1]),
        )
        self._running[name] = await self._processes.start(worker)


def check_work_records(records: list[WorkRecord], journal: list[LockChange]) -> None:
    """No worker began an accepted item, and none had an item that another one had."""
    accepted: dict[str, str] = {}
    for record in records:
        assert record.item_id not in accepted, (
            f"{record} after {accepted[record.item_id]}"
        )
        if record.what == "accepted":
            accepted[record.item_id] = record.token
    # By the records of the service: a lock begins where there is none.
    live: dict[int, LockChange] = {}
    given: dict[str, LockChange] = {}
    settled: dict[str, str] = {}
    for turn in journal:
        before = live.pop(turn.seq, None)
        assert turn.before == (before.after if before else ""), turn
        # One commit writes an item once: an earlier lock may have ended in it.
        assert not (turn.before and turn.after) or turn.given_back, turn
        if turn.after:
            assert turn.after not in given, f"{turn} has an old token"
            assert turn.item_id not in settled, f"{turn} after its end"
            live[turn.seq] = given[turn.after] = turn
        if turn.outcome == "accepted":
            assert turn.item_id not in settled
            settled[turn.item_id] = turn.before
    assert live == {}
    # The workers' records agree with the disk of the service.
    for record in records:
        assert given[record.token].item_id == record.item_id
    for item_id, token in accepted.items():
        assert settled[item_id] == token, "accepted with a stale token"


async def check_each_ends_once(
    prosody: Prosody, tmp_path: Path, *, seed: int, items: int, kills: int
) -> None:
    """Publish so many items, and kill so often while four workers do them."""
    began = time.monotonic()
    shop = Shop(prosody, tmp_path, seed=seed)
    over = asyncio.Event()
    async with Processes(tmp_path) as processes, asker(prosody) as ask:
        await shop.open(processes)
        await ask.create(DEAD)
        await ask.create(
            NODE,
            lock_timeout=str(LOCK_S),
            max_deliveries=str(MAX_DELIVERIES),
            backoff="0.05",
            dead_letter_node=DEAD,
            keep_accepted="3600",
        )
        await ask.configure(NODE, {"pubsub#publish_model": "open"})
        await shop.hire(4)
        # Slow enough that there is work for all the kills.
        publisher = await shop.publish(items, pause_s=0.6 * kills * BATCH / items)
        killing = asyncio.create_task(shop.kill(kills, over))
        try:
            await until_empty(ask, publisher)
        finally:
            over.set()
            await killing
        await until_empty(ask, publisher)
        stats = await ask.stats(NODE)
        accepted = [item.item_id for item in await ask.accepted(NODE)]
        letters = await ask.live(DEAD)
        stderr = processes.stderr

    published = {f"i{number}" for number in range(items)}
    dead = [item.origin_id for item in letters]
    assert set(shop.published) == published
    assert Counter([*accepted, *dead]) == Counter(published)
    assert (stats["accepted"], stats["dead"]) == (len(accepted), len(dead))
    poisoned = {f"i{number}" for number in range(0, items, POISON_EVERY)}
    assert poisoned <= set(dead)
    assert {item.origin for item in letters} == {NODE}
    check_work_records(shop.records, read_journal(shop.store))
    unwanted = [record for record in shop.records if record.what == "unwanted"]
    assert unwanted == [], "given to a worker whose selector does not want it"
    assert "Traceback" not in stderr
    # Each of the five dies in its turn.
    workers = shop.kills.total() - shop.kills["service"]
    assert shop.kills["service"] >= 2
    assert workers >= 4
    print(
        f"{kills} kills (service {shop.kills['service']}, workers {workers}), "
        f"{len(accepted)} accepted, {len(dead)} dead, {len(shop.records)} records, "
        f"{time.monotonic() - began:.1f} s",
        file=sys.stderr,
    )


@pytest.mark.timeout(300)
async def test_a_thousand_items_end_once_each_while_workers_and_service_are_killed(
    prosody: Prosody, tmp_path: Path
) -> None:
    """The promise of the whole service, under the worst conditions."""
    await check_each_ends_once(prosody, tmp_path, seed=0, items=1_000, kills=10)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds())
async def test_five_thousand_items_end_once_each_while_workers_and_service_are_killed(
    prosody: Prosody, tmp_path: Path, seed: int
) -> None:
    """The same, longer, and with other seeds."""
    await check_each_ends_once(prosody, tmp_path, seed=seed, items=5_000, kills=30)


# -- at each commit --------------------------------------------------------

BOB = "bob@localhost/worker"

#: The contents of a queue and of its dead-letter queue: node (without its prefix), item
#: id, state, outcome, failed deliveries, holder, and whether the lock is durable.
Row = tuple[str, str, str, str | None, int, str, bool]

AVAILABLE: Row = ("", "a", "available", None, 0, "", False)
ACQUIRED: Row = ("", "a", "acquired", None, 0, BOB, False)
EXTENDED: Row = ("", "a", "acquired", None, 0, BOB, True)


@dataclass
class Scene:
    """One queue, a publisher, a worker, and the worker's item."""

    node: str
    alice: XEP_0254
    bob: XEP_0254
    store: Path
    events: asyncio.Queue[Event]
    token: str = ""

    async def publish(self, *item_ids: str) -> None:
        items = [NewItem(f"<x xmlns='urn:x'>{each}</x>", each) for each in item_ids]
        await self.alice.publish(QUEUE, self.node, items, attempts=1)

    async def lock(self) -> None:
        """Bob gets the item, and asks for no other."""
        await self.publish("a")
        await self.bob.subscribe(QUEUE, self.node, queue_requests=1)
        self.token = (await self.delivered()).token
        await self.bob.unsubscribe(QUEUE, self.node)

    async def delivered(self) -> DeliveredItem:
        async with limit():
            while not (event := await self.events.get()).items:
                continue
        (item,) = event.items
        return item

    async def retract(self) -> None:
        await self.bob.retract(QUEUE, self.node, "a", self.token)

    async def unlock(self, outcome: ItemOutcome, *, failed: bool = False) -> None:
        await self.bob.unlock(
            QUEUE, self.node, "a", self.token, outcome=outcome, delivery_failed=failed
        )

    async def kill_item(self) -> None:
        await self.lock()
        await self.unlock(ItemOutcome.REJECTED)

    def rows(self) -> tuple[list[Row], list[str]]:
        """The items and subscribers on disk."""
        items = query(
            self.store,
            "SELECT node, item_id, state, outcome, delivery_count, holder,"  # noqa: S608
            " deadline > locked_at + 90"
            f" FROM item WHERE node LIKE '{self.node}%' ORDER BY node, item_id",
        )
        subscribers = query(
            self.store,
            f"SELECT jid FROM subscription WHERE node = '{self.node}'",  # noqa: S608
        )
        return (
            [(node.removeprefix(self.node), *rest) for node, *rest in items],
            [jid for (jid,) in subscribers],
        )


@dataclass(frozen=True)
class Step:
    """A request of a client that needs one commit.

    Attributes:
        prepare: done before.
        ask: the request.
        before: the disk before.
        after: the disk after.
        again: the answer to the same request when it had been done: an error's
            condition, or None for the same result.
        subscribed: whether Bob is subscribed afterwards.
    """

    prepare: Callable[[Scene], Awaitable[object]]
    ask: Callable[[Scene], Awaitable[object]]
    before: list[Row]
    after: list[Row]
    again: str | None = None
    subscribed: bool = False


async def nothing(_scene: Scene) -> None:
    """Nothing has to be done."""


async def subscribe(scene: Scene) -> None:
    await scene.bob.subscribe(QUEUE, scene.node, queue_requests=1)


STEPS = {
    "publish": Step(
        nothing,
        lambda scene: scene.publish("a", "b", "c"),
        [],
        [("", each, "available", None, 0, "", False) for each in "abc"],
    ),
    "subscribe": Step(nothing, subscribe, [], [], subscribed=True),
    # In the commit of the subscription, so that neither exists without the other.
    "lock": Step(
        lambda scene: scene.publish("a"),
        subscribe,
        [AVAILABLE],
        [ACQUIRED],
        subscribed=True,
    ),
    "publish and lock": Step(
        subscribe,
        lambda scene: scene.publish("a"),
        [],
        [ACQUIRED],
        subscribed=True,
    ),
    "extend": Step(
        Scene.lock,
        lambda scene: scene.bob.extend(QUEUE, scene.node, "a", scene.token, 100),
        [ACQUIRED],
        [EXTENDED],
    ),
    "accept": Step(
        Scene.lock,
        Scene.retract,
        [ACQUIRED],
        [("", "a", "archived", "accepted", 0, "", False)],
    ),
    "release": Step(
        Scene.lock,
        lambda scene: scene.unlock(ItemOutcome.RELEASED),
        [ACQUIRED],
        [AVAILABLE],
        again="unexpected-request",
    ),
    "fail": Step(
        Scene.lock,
        lambda scene: scene.unlock(ItemOutcome.MODIFIED, failed=True),
        [ACQUIRED],
        [("", "a", "available", None, 1, "", False)],
        again="unexpected-request",
    ),
    # One item moves: it is never in both nodes, and never in none.
    "reject": Step(
        Scene.lock,
        lambda scene: scene.unlock(ItemOutcome.REJECTED),
        [ACQUIRED],
        [("-dead", "reject/a", "available", None, 0, "", False)],
    ),
    "requeue": Step(
        Scene.kill_item,
        lambda scene: scene.alice.requeue(QUEUE, scene.node, ["a"]),
        [("-dead", "requeue/a", "available", None, 0, "", False)],
        [AVAILABLE],
        again="item-not-found",
    ),
}

MOMENTS = {"before": BEFORE_COMMIT, "after": AFTER_COMMIT, "told": None}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_was_told_is_on_disk_and_each_commit_is_there_whole_or_not_at_all(
    prosody: Prosody, tmp_path: Path, moment: str
) -> None:
    """An answer is a promise; without one, the same request can be made again."""
    plugins: Plugins = {"xep_0254": {}}
    store = tmp_path / "queue.sqlite"
    service = Service.of(prosody, QUEUE, store)
    async with (
        Processes(tmp_path) as processes,
        connected_client(prosody, "alice/owner", plugins) as alice,
        connected_client(prosody, "bob/worker", plugins) as bob,
    ):
        process = await processes.start(service)
        await process.until("ready")
        for name, step in STEPS.items():
            node = name.partition(" ")[0] if name != "publish and lock" else "both"
            events: asyncio.Queue[Event] = asyncio.Queue()
            XEP_0254.of(bob).add_listener(QUEUE, node, events.put_nowait)
            scene = Scene(node, XEP_0254.of(alice), XEP_0254.of(bob), store, events)
            process = await check_step(processes, process, service, scene, step, moment)
        assert "Traceback" not in processes.stderr


async def check_step(
    processes: Processes,
    process: RoleProcess,
    service: Service,
    scene: Scene,
    step: Step,
    moment: str,
) -> RoleProcess:
    """Kill the service at a step; returns the new one."""
    alice, node = scene.alice, scene.node
    await alice.create(QUEUE, f"{node}-dead")
    config = {
        "pubsub#access_model": "open",
        "queue#dead_letter_node": f"{node}-dead",
        "queue#keep_accepted": "3600",
        "queue#backoff": "0",
    }
    await alice.create(QUEUE, node, config)
    await step.prepare(scene)
    assert scene.rows()[0] == step.before, node

    at = MOMENTS[moment]
    if at is None:
        await step.ask(scene)
        await process.kill()
    else:
        await process.arm(at)
        asking = asyncio.ensure_future(step.ask(scene))
        assert await process.wait() == -signal.SIGKILL
        assert not asking.done(), f"{node}: told too early"
        asking.cancel()
    rows, subscribers = scene.rows()
    done = moment != "before"
    assert rows == (step.after if done else step.before), node
    if step.subscribed and (done or step.prepare is subscribe):
        assert subscribers == [BOB], node
    else:
        assert subscribers == [], node

    process = await processes.start(service)
    await process.until("ready")
    # A client without an answer asks again, and then it is done.
    again = step.again if done else None
    if again is None:
        await step.ask(scene)
    else:
        with pytest.raises(RequestRefused) as refused:
            await step.ask(scene)
        assert refused.value.condition == again, node
    # Not at once: the service must first hear of Bob.
    after = (step.after, [BOB] * step.subscribed)
    with contextlib.suppress(TimeoutError):
        await until(lambda: scene.rows() == after)
    assert scene.rows() == after, node
    if any(BOB in row for row in step.after):
        # Its event may have been lost with the service: it comes again, and is valid.
        scene.token = (await scene.delivered()).token
        await scene.retract()
    if step.subscribed:
        await scene.bob.unsubscribe(QUEUE, node)
    return process


# -- locks -----------------------------------------------------------------


class Inbox:
    """The queue events of a client."""

    def __init__(self, client: ClientXMPP) -> None:
        self.plugin = XEP_0254.of(client)
        self.items: list[DeliveredItem] = []
        self.unlocked: list[str] = []
        self.plugin.add_listener(QUEUE, NODE, self._note)

    def _note(self, event: Event) -> None:
        self.items += event.items
        self.unlocked += event.unlocked

    def tokens(self, item_id: str) -> list[str]:
        """The tokens of all events with this item, in order."""
        return [item.token for item in self.items if item.item_id == item_id]


def bring_forward(store: Path, deadline: float) -> None:
    """Let the locks in the store of a service that is away end at this time."""
    with contextlib.closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE item SET deadline = ? WHERE token <> ''", (deadline,))


async def check_lock(prosody: Prosody, tmp_path: Path, *, ends_in_s: float) -> float:
    """Check that a lock outlives the service, and ends at its deadline.

    Args:
        prosody: the server.
        tmp_path: for the store.
        ends_in_s: when the deadline is, after the last start of the service. Less than 0:
            it passes while the service is away.

    Returns:
        By how many seconds the service was late: after the deadline, and after its start.
    """
    store = tmp_path / "queue.sqlite"
    service = Service.of(prosody, QUEUE, store, journal=True)
    plugins: Plugins = {"xep_0254": {}}
    async with (
        Processes(tmp_path) as processes,
        connected_client(prosody, "alice/owner", plugins) as alice,
        connected_client(prosody, "bob/worker", plugins) as bob,
        connected_client(prosody, "carol/worker", plugins) as carol,
    ):
        process = await processes.start(service)
        await process.until("ready")
        ask, first, second = Asker(alice), Inbox(bob), Inbox(carol)
        await ask.create(NODE, lock_timeout="600", backoff="0")
        items = [NewItem("<x xmlns='urn:x'/>", f"i{number}") for number in range(20)]
        await ask.plugin.publish(QUEUE, NODE, items)
        await first.plugin.subscribe(QUEUE, NODE, queue_requests=1)
        await until(lambda: len(first.items) == 1)
        (item,) = first.items

        await process.kill()
        process = await processes.start(service)
        await process.until("ready")
        await second.plugin.subscribe(QUEUE, NODE, queue_requests=20)
        # All published items are still there, and only the free ones are given out.
        others = {each.item_id for each in items} - {item.item_id}
        await until(lambda: others <= {each.item_id for each in second.items})
        # The worker may have missed its first event.
        await until(lambda: len(first.items) == 2)
        assert first.tokens(item.item_id) == [item.token, item.token]
        await ask.stats(NODE)
        assert {each.item_id for each in second.items} == others
        assert first.unlocked == []
        for each in list(second.items):
            await second.plugin.retract(QUEUE, NODE, each.item_id, each.token)

        await process.kill()
        deadline = time.time() + ends_in_s
        bring_forward(store, deadline)
        process = await processes.start(service)
        await process.until("ready")
        restarted_at = time.time()
        await second.plugin.subscribe(QUEUE, NODE, queue_requests=20)
        await until(lambda: second.tokens(item.item_id))
        (token,) = second.tokens(item.item_id)
        assert token != item.token
        # By the records of the service: our own clock may have been late at either end.
        (ended,) = (each for each in read_journal(store) if each.before == item.token)
        assert ended.at >= deadline - 0.01
        # The late worker is told (XEP-0254 §2.5), and can settle nothing any more.
        await until(lambda: first.unlocked[:1] == [item.item_id])
        with pytest.raises(RequestRefused) as refused:
            await first.plugin.retract(QUEUE, NODE, item.item_id, item.token)
        assert refused.value.condition == "conflict"
        await second.plugin.retract(QUEUE, NODE, item.item_id, token)
        assert await ask.live(NODE) == []
    return ended.at - max(deadline, restarted_at)


#: When the deadline of the lock is, in seconds after the start of the service.
ENDS = pytest.mark.parametrize("ends_in_s", [2.0, -1.0])


@ENDS
async def test_a_lock_outlives_the_service_with_its_token_and_ends_at_its_deadline(
    prosody: Prosody, tmp_path: Path, ends_in_s: float
) -> None:
    """No other worker gets the item before the deadline, whether the service runs or
    not.
    """
    await check_lock(prosody, tmp_path, ends_in_s=ends_in_s)


@pytest.mark.long
@ENDS
async def test_a_lock_ends_not_much_later_than_its_deadline(
    prosody: Prosody, tmp_path: Path, ends_in_s: float
) -> None:
    """A lock that is over keeps an item from who could do it.

    The service looks once a second whether it has heard something after the deadline.
    """
    assert await check_lock(prosody, tmp_path, ends_in_s=ends_in_s) < 5 * LOOK_S


# -- published by messages -------------------------------------------------


class Sender:
    """Publishes by assured messages until it is told to stop.

    Attributes:
        count: how many items it has published.
        outcomes: of each message.
    """

    def __init__(self, client: ClientXMPP) -> None:
        self.count = 0
        self.outcomes: list[asyncio.Task[Outcome]] = []
        self._client = client
        self._qos = XEP_QOS.of(client)

    async def send(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            # With an id of its own, or one made from that of the message.
            item_id = f" id='own-{self.count}'" if self.count % 2 else ""
            pubsub = (
                f"<pubsub xmlns='{PUBSUB}'><publish node='{NODE}'>"
                f"<item{item_id}><n xmlns='urn:x'>{self.count}</n></item>"
                "</publish></pubsub>"
            )
            message = self._client.make_message(QUEUE)
            message.append(ET.fromstring(pubsub))  # noqa: S314 - our own text
            delivery = await self._qos.submit(message)
            self.count += 1
            self.outcomes.append(asyncio.create_task(delivery.outcome()))
            await asyncio.sleep(0.005)


async def test_what_is_published_by_assured_messages_is_there_once_whatever_was_killed(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Two stores are involved, and a kill may come between their commits."""
    rng = random.Random(1)
    deaths = [BEFORE_COMMIT, AFTER_COMMIT, None] * 4
    rng.shuffle(deaths)
    service = Service.of(prosody, QUEUE, tmp_path / "queue.sqlite")
    plugins: Plugins = {
        "xep_0254": {},
        "xep_qos": {
            "store": f"sqlite:{tmp_path / 'alice.sqlite'}",
            "retry_first_s": RETRY_FIRST_S,
            "retry_max_s": RETRY_MAX_S,
        },
    }
    async with (
        Processes(tmp_path) as processes,
        connected_client(prosody, "alice/owner", plugins) as alice,
    ):
        process = await processes.start(service)
        await process.until("ready")
        ask, sender, stop = Asker(alice), Sender(alice), asyncio.Event()
        await ask.create(NODE)
        sending = asyncio.create_task(sender.send(stop))
        for at in deaths:
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            if at is None:
                await process.kill()
            else:
                await process.arm(at)
                assert await process.wait() == -signal.SIGKILL
            process = await processes.start(service)
            await process.until("ready")
        stop.set()
        await sending
        async with limit():
            outcomes = await asyncio.gather(*sender.outcomes)
        items = await ask.live(NODE)
        assert "Traceback" not in processes.stderr
    assert {outcome.status for outcome in outcomes} == {OutgoingState.DELIVERED}
    payloads = [ET.fromstring(item.payload) for item in items]  # noqa: S314 - likewise
    numbers = Counter(payload.text for payload in payloads)
    assert numbers == Counter(str(number) for number in range(sender.count))


# -- the server ------------------------------------------------------------


async def test_all_come_back_by_themselves_when_the_server_was_killed(
    prosody: Prosody, tmp_path: Path
) -> None:
    """The service is told of nobody's end then, and nobody of the service's."""
    count = 800
    shop = Shop(prosody, tmp_path, seed=0)
    async with Processes(tmp_path) as processes:
        async with asker(prosody) as ask:
            await shop.open(processes)
            await ask.create(
                NODE,
                lock_timeout=str(LOCK_S),
                max_deliveries="100",
                backoff="0.05",
                keep_accepted="3600",
            )
            await ask.configure(NODE, {"pubsub#publish_model": "open"})
        await shop.hire(3)
        # A part of the items for each life of the server.
        for part in (1, 2, 3):
            done = len(shop.accepted)
            publisher = await shop.publish(
                count * part // 4, pause_s=0.1, poison_every=0
            )
            await until(lambda: len(shop.accepted) > done + 50)  # noqa: B023
            await prosody.kill()
            await prosody.start()
            assert await asyncio.shield(publisher.ended) == 0
        publisher = await shop.publish(count, pause_s=0.1, poison_every=0)
        async with asker(prosody) as ask:
            await until_empty(ask, publisher)
            accepted = [item.item_id for item in await ask.accepted(NODE)]
            dead = await ask.dead(NODE)
        shop.check_alive()
        assert "Traceback" not in processes.stderr
    published = {f"i{number}" for number in range(count)}
    assert set(shop.published) == published
    assert Counter(accepted) == Counter(published)
    assert dead == []
    check_work_records(shop.records, read_journal(shop.store))
