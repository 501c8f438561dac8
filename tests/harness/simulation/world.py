"""One run: the machines of a plan, its faults, and the check that everything ends.

For a while there is work and trouble. Then everything is repaired: every machine runs,
under its first resource, and no stanza is lost any more. Everything must end then.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import SupportsIndex, cast

from qos import ids
from qos.core.message.model import Level
from qos.core.queue import backlog, item_index, ready_items, selector_time
from qos.engine import queue_commit
from qos.errors import StoreError, StoreFull
from qos.testing.clock import ManualClock
from simulation import doors, invariants
from simulation.disks import Disk
from simulation.endpoints import Endpoint
from simulation.gate import Gate
from simulation.invariants import Violation
from simulation.items import ItemLedger
from simulation.ledger import Ledger
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import LATENCY_S, Network
from simulation.plan import (
    RECEIVERS,
    SENDERS,
    TEXT_SENDERS,
    TIMED_FAULTS,
    TROUBLE_S,
    WORKERS,
    YEAR_S,
    Fault,
    Plan,
    jid_of,
)
from simulation.pulling import PullClient
from simulation.queue_machine import (
    BOSS,
    EVALUATION_S,
    MADE,
    NODE,
    SERVICE,
    Presence,
    QueueMachine,
)
from simulation.shop import Shop
from simulation.strangers import Owner, Stranger
from simulation.target import PushTarget
from simulation.workers import WorkerMachine

__all__ = ["Result", "World", "run"]

#: The start time of a world; any time would do.
_BEGIN_S = 1_000_000.0

#: The time within which all must end after the repair. A message that was held for an
#: hour since a clock was set back takes that hour.
_END_S = 5 * 3600.0

#: When nothing is in flight, and nothing happens for this long, nothing more will come.
_CALM_S = 2.0

#: One of so many seeds has the scenes of the doors as well.
_DOORS_EVERY = 8

#: A run that takes more steps than this runs in circles.
_STEPS_MAX = 30_000


@dataclass(slots=True)
class Result:
    """The result of a run.

    Attributes:
        plan: that was run.
        violations: in order; a run ends with the first.
        seconds: of virtual time.
        messages: accepted messages.
        items: published items.
        faults: faults that really happened, by kind.
        trace: the events, if wanted.
    """

    plan: Plan
    violations: list[Violation]
    seconds: float = 0.0
    messages: int = 0
    items: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


def run(plan: Plan, *, traced: bool = False) -> Result:
    """Run a plan, to its end or to the first violation."""
    with _quiet(plan.seed):
        result = World(plan, traced=traced).run()
        if not result.violations and plan.seed % _DOORS_EVERY == 0:
            result.violations += doors.violations(plan.seed)
        return result


@contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """The logs of expected errors are off, and random values come from the seed.

    A new selector is evaluated for one item a step, there are three evaluations for new
    items in one, a commit removes a row of what was purged or deleted, and a queue has a
    head of one to two items, and reads two: so that much happens between.
    """
    state, disabled = random.getstate(), logging.root.manager.disable
    slice_, ready_items.SLICE = ready_items.SLICE, 1
    rows, queue_commit._PURGED_ROWS = queue_commit._PURGED_ROWS, 1
    head, item_index.HEAD = item_index.HEAD, 1
    read, backlog.READ = backlog.READ, 2
    step_s, selector_time.STEP_S = selector_time.STEP_S, 2.5 * EVALUATION_S
    drawn, ids._ids = ids._ids, _Ids(seed)
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        random.setstate(state)
        ready_items.SLICE = slice_
        queue_commit._PURGED_ROWS = rows
        item_index.HEAD, backlog.READ = head, read
        selector_time.STEP_S = step_s
        ids._ids = drawn
        logging.disable(disabled)


class _Ids(list[str]):
    """Draws new ids from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(f"ids {seed}")

    def pop(self, _at: SupportsIndex = -1) -> str:
        return f"{self._random.getrandbits(128):032x}"


class World:
    """The machines of a plan."""

    def __init__(self, plan: Plan, *, traced: bool = False) -> None:
        self.plan = plan
        self.loop = SimulatedLoop(ManualClock(_BEGIN_S))
        self.network = Network(self.loop, plan.faults, traced=traced)
        self.ledger = Ledger(self.loop.time, self.network.repeated)
        self.ledger.distrusted = frozenset(plan.settings.distrusted)
        self.ledger.hold_ttl_s = plan.settings.hold_ttl_s
        if plan.settings.accepts_anyone:
            self.ledger.open_levels = frozenset(Level) - {Level.ASSURED}
        self.endpoints = {
            name: Endpoint(
                self.loop,
                self.network,
                name,
                jid_of(name, plan.settings),
                plan.seed,
                settings=plan.settings,
                ledger=self.ledger,
            )
            for name in (*SENDERS, *TEXT_SENDERS, *RECEIVERS)
            if plan.messages
        }
        self.items = ItemLedger(self.ledger, plan.items)
        self.target: PushTarget | None = None
        if plan.items and plan.settings.push:
            self.target = PushTarget(
                self.loop,
                self.network,
                plan.seed,
                settings=plan.settings,
                ledger=self.items,
                faults=plan.faults,
            )
        self.queue = QueueMachine(
            self.loop,
            self.network,
            plan.seed,
            settings=plan.settings,
            ledger=self.items,
            # A durable lock is taken over by subscribing, and not by credit; and no
            # gateway has resumable ones.
            gate=None
            if plan.settings.durable_locks or plan.settings.resumable_locks
            else Gate(jid_of("wasp", plan.settings), NODE, self.ledger),
            target=self.target,
        )
        self.shop = Shop(
            self.loop,
            self.network,
            "shop",
            "shop@x/1",
            plan.seed,
            ledger=self.items,
            issue=self.queue.issue,
        )
        self.workers = {
            name: WorkerMachine(
                self.loop,
                self.network,
                name,
                jid_of(name, plan.settings),
                plan.seed,
                settings=plan.settings,
                ledger=self.items,
            )
            for name in WORKERS
            if plan.items and not plan.settings.no_workers
        }
        self.machines: dict[str, Machine] = {**self.endpoints, **self.workers}
        if plan.items:
            self.machines |= {"queue": self.queue, "shop": self.shop}
        if self.target is not None:
            self.machines["target"] = self.target
        if plan.items and plan.settings.pulled:
            self.machines["puller"] = PullClient(
                self.loop,
                self.network,
                plan.seed,
                node=NODE,
                selector=plan.settings.pull_selector,
                service=self.queue,
                ledger=self.items,
                faults=plan.faults,
            )
        if plan.items and plan.settings.strangers:
            self.machines |= {
                "boss": Owner(self.loop, self.network, "boss", f"{BOSS}/1", plan.seed),
                "eve": Stranger(self.loop, self.network, "eve", "eve@y/1", plan.seed),
            }
        self.network.watch_presence.append(self._presence)
        self._steps = 0
        self._came: set[int] = set()
        # The number of effects of each end when it was last checked.
        self._seen: dict[str, int] = {}

    def run(self) -> Result:
        """See run."""
        with self.loop.running():
            self._schedule()
            for machine in self.machines.values():
                machine.start()
            self.loop.settle()
            self._go(until_s=_BEGIN_S + TROUBLE_S)
            self._mend()
            self._finish()
            seconds = self.loop.time() - _BEGIN_S
            for worker in self.workers.values():
                worker.close()
        return Result(
            plan=self.plan,
            violations=self.ledger.violations,
            seconds=seconds,
            messages=sum(bool(each.accepted) for each in self.ledger.messages.values()),
            items=sum(bool(each.stored) for each in self.items.items.values()),
            faults=self.network.injected,
            trace=self.network.trace or [],
        )

    # -- steps -------------------------------------------------------------

    def _go(self, *, until_s: float) -> bool:
        """Continue until this time; False: there is nothing more to come."""
        while not self.ledger.violations and self.loop.time() < until_s:
            if not self._step():
                return False
        return True

    def _step(self) -> bool:
        self._steps += 1
        if not self.loop.step():
            return False
        if self._steps > _STEPS_MAX:
            self.ledger.check(invariants.everything_ends, self._left())
        for error in self.loop.errors:
            self.ledger.check(invariants.nothing_is_raised, error)
        for endpoint in self.endpoints.values():
            if endpoint.effects != self._seen.get(endpoint.name, 0):
                self._seen[endpoint.name] = endpoint.effects
                used, room = endpoint.used(), endpoint.room()
                self.ledger.check(invariants.quotas_hold, endpoint.name, used, room)
        return True

    def _mend(self) -> None:
        self.network.note("", "all is mended")
        self.network.mend()
        for machine in self.machines.values():
            machine.dies_at.clear()
            machine.mend()
        for disk in self._disks():
            disk.fails = lambda _commit: None
            disk.slow = lambda _commit: 0.0

    def _finish(self) -> None:
        """Until nothing is left, and late or repeated stanzas have come."""
        until_s, left, more = self.loop.time() + _END_S, self._left(), True
        while not self.ledger.violations and (left or (more and not self._is_calm())):
            for endpoint in self.endpoints.values():
                endpoint.release_parked()
            more = self._go(until_s=self.loop.time() + 1.0) if left else self._step()
            left = self._left()
            if left and (not more or self.loop.time() > until_s):
                self.ledger.check(invariants.everything_ends, left)
                return

    def _is_calm(self) -> bool:
        when = self.loop.clock.deadline()
        soon = when is not None and when < self.loop.time() + _CALM_S
        return not (self.network.flying or soon)

    def _left(self) -> list[str]:
        """Everything that has not ended, in words."""
        found = [
            words for endpoint in self.endpoints.values() for words in endpoint.left()
        ]
        found += [words for worker in self.workers.values() for words in worker.left()]
        if MADE in self.queue.disk.kept.nodes:
            found.append(f"the node {MADE!r} outlives its link")
        return found + self.ledger.left() + self.items.left()

    # -- what happens ------------------------------------------------------

    def _schedule(self) -> None:
        for planned in self.plan.messages:
            submit = partial(self.endpoints[planned.sender].producer.submit, planned)
            self.loop.outside(planned.at, submit)
        for facts in self.items.items.values():
            publish = partial(self.shop.publish, facts)
            self.loop.outside(facts.planned.at, publish)
        by_disk: dict[str, list[Fault]] = {}
        slow: dict[str, list[Fault]] = {}
        for fault in self.plan.faults:
            machine = self.machines.get(fault.target)
            if machine is None:
                continue
            strike = partial(self._strike, fault, machine)
            if fault.kind == "die":
                machine.dies_at[int(fault.at)] = strike
            elif fault.kind == "slow":
                slow.setdefault(fault.target, []).append(fault)
            elif fault.kind in {"full", "error"}:
                by_disk.setdefault(fault.target, []).append(fault)
            elif fault.kind in TIMED_FAULTS:
                self.loop.outside(fault.at, strike)
        for disk in self._disks():
            if disk.name in slow:
                disk.slow = partial(self._takes, slow[disk.name])
            if disk.name in by_disk:
                disk.fails = partial(self._fails, by_disk[disk.name])

    def _strike(self, fault: Fault, machine: Machine) -> None:
        self.network.note(machine.name, f"-- {fault}")
        if self._hits(fault, machine):
            self._count(fault)

    def _hits(self, fault: Fault, machine: Machine) -> bool:
        """Inject a fault; returns whether it made a difference at once."""
        match fault.kind:
            case "kill" | "die":
                moves = fault.how == "resource"
                hits = machine.kill(fault.seconds, resource=moves)
                if hits and moves:
                    self.ledger.moved.add(machine.name)
                return hits
            case "drop":
                assert isinstance(machine, Endpoint)
                return machine.kill(fault.seconds) and machine.drop_by_force()
            case "wipe":
                assert isinstance(machine, Endpoint)
                return machine.wipe(fault.seconds)
            case "stop":
                return machine.stop(fault.seconds)
            case "jump":
                machine.skew_s += fault.seconds
                machine.set_clock.append(partial(self._jumps, fault, machine))
            case "leave":
                assert isinstance(machine, WorkerMachine)
                return machine.leave()
            case "cut":
                moves = fault.how == "resource"
                hits = machine.cut(fault.seconds, resource=moves)
                if hits and moves:
                    self.ledger.moved.add(machine.name)
                return hits
            case "replay":
                return self.network.replay(machine.name, int(fault.seconds))
            case "partition":
                lost = partial(self._count, fault)
                self.network.part(machine.name, fault.seconds, lost)
        return False

    def _jumps(self, fault: Fault, machine: Machine) -> None:
        self.ledger.jumped.add(fault.target)
        if not machine.remembers:
            machine.shown_s = machine.skew_s
        elif machine.skew_s - machine.shown_s < YEAR_S:
            if machine.skew_s > machine.shown_s:
                self.ledger.aged.add(fault.target)
            machine.shown_s = max(machine.shown_s, machine.skew_s)
        self._count(fault)

    def _count(self, fault: Fault) -> None:
        """Count a fault that really happened, perhaps for the first time."""
        if id(fault) not in self._came:
            self._came.add(id(fault))
            self.network.injected[fault.kind] += 1

    def _fails(self, faults: list[Fault], commit: int) -> StoreError | None:
        for fault in faults:
            if fault.at <= commit < fault.at + fault.seconds:
                self._count(fault)
                url = f"sim:{fault.target}"
                if fault.kind == "full":
                    return StoreFull(url, "no space left on device")
                self.ledger.io_errors.add(fault.target)
                return StoreError(url, "input/output error")
        return None

    def _takes(self, faults: list[Fault], commit: int) -> float:
        """How much longer it takes; the last one in the plan counts."""
        for fault in reversed(faults):
            if int(fault.at) == commit:
                self._count(fault)
                return fault.seconds
        return 0.0

    def _presence(self, machine: Machine, came: bool) -> None:
        """Senders of messages hear of arrivals, and the service of departures."""
        jid = machine.jid
        if isinstance(machine, WorkerMachine) and not came:
            self.network.say_for(machine, SERVICE, Presence(available=False))
        if isinstance(machine, Endpoint) and came:
            for endpoint in self.endpoints.values():
                if endpoint is not machine:
                    # Before anything that was delivered to it can be returned.
                    self.loop.outside(LATENCY_S, partial(self._tell, endpoint, jid))

    def _tell(self, machine: Machine, jid: str) -> None:
        if machine.online and machine.process is not None:
            machine.process.start(partial(machine.peer_arrived, jid))

    def _disks(self) -> list[Disk[object]]:
        disks: list[object] = [endpoint.disk for endpoint in self.endpoints.values()]
        disks += [worker.disk for worker in self.workers.values()]
        return cast(list[Disk[object]], [*disks, self.queue.disk])
