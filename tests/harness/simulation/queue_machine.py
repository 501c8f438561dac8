"""The machine of the queue service: the real engine, with stanzas over the network."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import Change as QueueChange
from qos.core.queue.effects import (
    Notification,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
    RemoveNode,
    RemoveTerminus,
    SaveItem,
)
from qos.core.queue.item import Affiliation, Item, ItemOutcome, Node
from qos.core.queue.link_time import needs_link
from qos.core.queue.requests import (
    CloseLink,
    Create,
    Extend,
    OpenLink,
    Publish,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import ExtendResult, Result
from qos.core.queue.stats import stats
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine.gateway import QueuePorts
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.stores.queue_base import QueueStore
from simulation import invariants
from simulation.copies import CopyLedger
from simulation.gate import Gate
from simulation.items import ItemLedger
from simulation.kept_link import KeptLink
from simulation.loop import Process, SimulatedLoop
from simulation.machines import Machine, MachineClock
from simulation.network import Network
from simulation.plan import FAILS_MAX, Settings
from simulation.pulling import PULLER
from simulation.pushing import (
    PUSHED,
    PushEngine,
    PushGateway,
    subscribers,
)
from simulation.queue_store import QueueServiceDisk, SimulatedQueueStore
from simulation.recount import AcceptedLedger, recounted
from simulation.target import PushTarget
from simulation.unheard import Unheard
from xep_0254.events import DeliveredItem, Event

__all__ = [
    "BOSS",
    "MADE",
    "NODE",
    "SERVICE",
    "Answered",
    "Asked",
    "Ping",
    "Presence",
    "QueueMachine",
    "Sent",
]

#: The service, the queue of the workers, and its owner.
SERVICE = "queue@x/1"
NODE = "orders"
BOSS = "boss@x"

#: A node that a link of the owner makes.
MADE = "made"

#: So few that a stranger gets all his nodes at once.
_BOUNDS = QueueBounds(
    nodes_per_account=4, nodes_per_domain=5, nodes=12, own_domains=frozenset({"x"})
)

#: Longer than any clock is set forward: a worker can always ask about an item.
_MEMORY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Asked:
    """An iq with a request."""

    iq_id: str
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request."""

    iq_id: str
    result: Result | Refusal


@dataclass(frozen=True, slots=True)
class Sent:
    """A message with an event."""

    event_id: str
    event: Event


@dataclass(frozen=True, slots=True)
class Presence:
    """Directed presence."""

    available: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """XEP-0199, and its answer."""

    iq_id: str
    answer: bool = False


#: Seconds for an evaluation of a selector: so little that nobody pays for it.
EVALUATION_S = 1e-5


class _Watched(SimulatedQueueStore):
    """A store that tells of each commit when that begins."""

    def __init__(
        self,
        disk: QueueServiceDisk,
        clock: MachineClock,
        effect: Callable[[], None],
        committing: Callable[[asyncio.Future[None]], None],
    ) -> None:
        super().__init__(disk, clock, effect)
        self._committing = committing

    def write(self, changes: Sequence[QueueChange]) -> asyncio.Future[None] | None:
        """See QueueStore."""
        written = super().write(changes)
        if written is not None:
            self._committing(written)
        return written


class QueueMachine(Machine, QueuePort):
    """Serves the queue of the workers, and the queues that others create."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        seed: int,
        *,
        settings: Settings,
        ledger: ItemLedger,
        gate: Gate | None = None,
        target: PushTarget | None = None,
    ) -> None:
        super().__init__(loop, network, "queue", SERVICE, seed)
        self._ids = itertools.count(1)
        # Each look at it takes EVALUATION_S: so does each evaluation of a selector.
        self._meter = itertools.count(0.0, EVALUATION_S).__next__
        self._ledger = ledger
        self._lock_s = settings.lock_s
        ledger.timed_out = self._timed_out
        self._gate = gate
        self._target = target
        self._pulled = settings.pulled
        #: Of the present process, if there are consumers by HTTP.
        self.gateway: PushGateway | None = None
        self._kept: KeptLink | None = None
        if gate is not None and settings.expiry is not None:
            self._kept = KeptLink(
                self,
                gate,
                NODE,
                settings.expiry,
                timeout_s=settings.terminus_s,
                durable=settings.durable_terminus,
                released=settings.default_released,
            )
        # The termini that the present process found, until its first commit, and when.
        self._found_termini: Mapping[str, Terminus] = {}
        self._found_at = 0.0
        self._links: set[str] = set()
        # Whether the link that makes a node is there, as this process knows it.
        self._made = False
        self._engine: QueueEngine | None = None
        self._probes: dict[str, str] = {}
        self._clock = self.clock()
        # By consumers of gateways, and by XMPP workers.
        self._unheard, self._unheard_by_link = Unheard(), Unheard()
        self._stopped_at = 0.0
        # A commit has failed, and the store has not been read since.
        self._recovers = False
        self._copies = CopyLedger(ledger.check)
        self._accepted = AcceptedLedger(ledger.check)
        self.disk = QueueServiceDisk(
            self.name,
            self._wrote,
            self._committed,
        )
        config = {
            "queue#lock_timeout": f"{settings.lock_s}",
            "queue#max_deliveries": str(FAILS_MAX),
            "queue#dedupe_window": str(_MEMORY_S),
        }
        self.disk.kept.nodes[NODE] = Node(
            name=NODE,
            identity="the node",
            created_at=loop.time(),
            config=config,
            affiliations={
                BOSS: Affiliation.OWNER,
                "shop@x": Affiliation.PUBLISHER,
                "bee@x": Affiliation.MEMBER,
                "wasp@x": Affiliation.MEMBER,
                PUSHED: Affiliation.MEMBER,
                PULLER: Affiliation.MEMBER,
            },
        )
        for each in subscribers(settings, NODE, loop.time()):
            self.disk.kept.push_subscribers[each.subscriber_id] = each

    def boot(self) -> None:
        """See Machine."""
        clock = self._clock = self.clock()
        # The lock of the process before has ended with it.
        self.disk.holder = None
        self._engine = None
        self._unheard = Unheard()
        self._recovers = False
        # Until there is a session.
        self._unheard_by_link.dies(self.loop.time())
        store = _Watched(self.disk, clock, self.effect, self._committing)
        self._probes.clear()
        self._engine = self._open(store, clock)
        for each in self.disk.kept.items.values():
            if each.token:
                self._unheard_of(each.holder).found(each.token)
        self._ledger.times_moved(store.moved_s)
        self.restarted()

    def _open(self, store: QueueStore, clock: MachineClock) -> QueueEngine:
        if self._target is None and not self._pulled:
            return QueueEngine(
                store, self, clock=clock, bounds=_BOUNDS, meter=self._meter
            )
        ports = QueuePorts(self)
        engine = PushEngine(
            store,
            ports,
            clock=clock,
            bounds=_BOUNDS,
            meter=self._meter,
            ledger=self._ledger,
            machine=self,
        )
        self.gateway = PushGateway(engine, self, self._target, self._ledger)
        ports.add(self.gateway)
        engine.begin()
        return engine

    def _committing(self, written: asyncio.Future[None]) -> None:
        """A commit has begun."""
        self._recount()
        for each in (self._unheard, self._unheard_by_link):
            each.decides(self.loop.time())
        unheard = self._unheard

        def ended(done: asyncio.Future[None]) -> None:
            if unheard is not self._unheard:
                return
            if done.exception() is None:
                self._ends()
            else:
                self._recovers = True

        written.add_done_callback(ended)

    def _committed(self) -> None:
        """A commit is on disk."""
        self._found_termini = {}
        self._copies.committed()
        self._accepted.committed(self.disk.kept.nodes)

    def _recount(self) -> None:
        """Compare the counts of each node with its items."""
        core = None if self._engine is None else self._engine._core
        if self._engine is None or core is None:
            return
        now = self._now()
        for name, queue in core.nodes.items():
            recount = recounted(core, self._engine._ended_items, name, now)
            letters = sum(each.count for _, each in core.letters(name))
            present = core.presence.present
            counts = stats(queue, present, letters=letters, copying=0, now=now)
            self.check(invariants.counts_are_a_recount, name, counts, recount)

    def _begins(self) -> None:
        """Nobody is heard, or answered, from now on."""
        for unheard in (self._unheard, self._unheard_by_link):
            unheard.begins(self.loop.time())

    def _ends(self) -> None:
        for unheard in (self._unheard, self._unheard_by_link):
            unheard.ends(self.loop.time())

    def _unheard_of(self, jid: str) -> Unheard:
        """The time in which this full JID was not heard."""
        return self._unheard_by_link if needs_link(jid) else self._unheard

    def stop(self, seconds: float) -> bool:
        """See Machine."""
        stops = super().stop(seconds)
        if stops:
            self._stopped_at = self.loop.time()
            self._begins()
        return stops

    def _go_on(self, process: Process) -> None:
        if process.alive and process.waiting is not None:
            now = self.loop.time()
            self._clock.stood_still(now - self._stopped_at)
            self._ends()
        super()._go_on(process)

    def _died(self) -> None:
        self._unheard_by_link.dies(self.loop.time())
        super()._died()

    @property
    def busy_s(self) -> float:
        """The seconds until the last commit ends; negative: it has ended."""
        return self.disk.busy_until - self._clock.now()

    @property
    def engine(self) -> QueueEngine:
        """The engine of the present process."""
        assert self._engine is not None
        return self._engine

    def holds(self, token: str, item_id: str) -> bool:
        """Whether a delivery has not ended, on disk."""
        items = self.disk.kept.items.values()
        return any((each.token, each.item_id) == (token, item_id) for each in items)

    def available(self) -> list[Item]:
        """The items of the workers' queue that nobody has, as the service decides now."""
        assert isinstance(self.engine, PushEngine)
        return self.engine.available(NODE)

    def is_link(self, account: str) -> bool:
        """Whether a link of this account is subscribed, on disk."""
        found = self.disk.kept.subscriptions.values()
        return any(each.link and bare(each.jid) == account for each in found)

    def issue(self) -> float:
        """The time of issue of a one-off link, as `OneOffLinks` writes it."""
        return self._now() - self.disk.kept.clock.moved_s

    def connected(self) -> None:
        """See Machine."""
        self._unheard_by_link.ends(self.loop.time())
        self.engine.online()

    def disconnected(self) -> None:
        """See Machine."""
        self._unheard_by_link.begins(self.loop.time())
        self.engine.offline()
        self._probes.clear()

    def receive(self, source: str, body: object) -> None:
        """See Machine."""
        if self._gate is None or source != self._gate.jid:
            self._receive(source, body)
            return
        if self._kept is not None:
            self._receive_of_link(source, body, self._gate, self._kept)
            return
        if body != Presence(False):
            # It may be heard of for the first time now: credit comes before items.
            self._gate.grant(self.engine)
        self._receive(source, body)
        match body:
            case Asked(_, Subscribe()):
                self._gate.grant(self.engine)
            case Asked(_, Unsubscribe()) | Presence(False):
                self._gate.forget(self._tokens())

    def _receive_of_link(
        self, source: str, body: object, gate: Gate, kept: KeptLink
    ) -> None:
        if body == Presence(False):
            gate.away()
            if not kept.away():
                self._receive(source, body)
                gate.forget(self._tokens())
            return
        if isinstance(body, Asked):
            body = Asked(body.iq_id, kept.link(body.request))
        else:
            kept.heard()
        gate.grant(self.engine)
        self._receive(source, body)
        match body:
            case Asked(_, Subscribe()):
                self._ledger.defaults(())
                kept.keep()
                gate.grant(self.engine)
            case Asked(_, Unsubscribe()):
                gate.forget(self._tokens())

    def departed(self, jid: str) -> None:
        """The link of this full JID, or its terminus, has ended."""
        self._ledger.departed(jid, self._now())
        assert self._gate is not None
        self._gate.forget(self._tokens())

    def defaults(self, jid: str) -> tuple[Settlement, ...]:
        """All that a full JID has, to be released when it has left."""
        held = [each for each in self.disk.kept.items.values() if each.holder == jid]
        found = tuple(
            Settlement(
                item_id=each.item_id, token=each.token, outcome=ItemOutcome.RELEASED
            )
            for each in held
        )
        self._ledger.defaults(found)
        return found

    def check(self, invariant: Callable[..., str | None], *args: object) -> None:
        """Check an invariant."""
        self._ledger.check(invariant, *args)

    def _opened(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        self._made &= not isinstance(result, Refusal)

    def _wrote(self, change: QueueChange) -> None:
        if self._kept is not None and self._engine is not None:
            self._kept.look()
        # What a start finds in the log was decided by a process that has died. Nobody was
        # told of these locks, and no time in which this process listens was promised.
        found = self._engine is None
        if isinstance(change, SaveItem) and change.item.token and not found:
            unheard = self._unheard_of(change.item.holder)
            unheard.locked(change.item, self.loop.time(), self._lock_s)
        self._ledger.check(invariants.what_is_written_is_shown, change, self.disk.kept)
        if isinstance(change, RemoveTerminus) and not found:
            terminus = self._found_termini.get(change.jid)
            check = invariants.outlives_the_process
            self._ledger.check(check, terminus, self._found_at, self._now())
        self._ledger.written(change, self._now(), self.disk.kept.nodes)
        self._copies.written(change, self.disk.kept.nodes)
        self._accepted.written(change)
        if isinstance(change, RemoveNode) and change.name == MADE:
            self._ledger.lived(self._made)

    def _receive(self, source: str, body: object) -> None:
        match body:
            case Asked(iq_id, request):
                if isinstance(request, Publish) and request.issued_at is not None:
                    issued_at = request.issued_at + self.disk.kept.clock.moved_s
                    request = replace(request, issued_at=issued_at)
                elif isinstance(request, Retract | Unlock):
                    self._ledger.settles(source, request.settlements)
                elif isinstance(request, Extend):
                    self._ledger.extends(source, request.tokens)
                elif isinstance(request, Subscribe) and _is_new(request):
                    self._ledger.replaced(source, self._now())
                elif isinstance(request, Subscribe):
                    self._ledger.subscribes(source)
                asked_at = self._now()
                heard_s = self._unheard_of(source).listened_s(self.loop.time())
                answer = partial(
                    self._answer, source, iq_id, request, asked_at, heard_s
                )
                makes = isinstance(request, Create) and request.node == MADE
                if makes and iq_id in self._links:
                    return  # a connection to a gateway delivers nothing twice
                self.engine.request(request, source, answer)
                if makes:
                    # A gateway makes the node and opens the link in one turn.
                    self._links.add(iq_id)
                    self._made = True
                    self.engine.request(OpenLink(MADE, made=True), source, self._opened)
                elif isinstance(request, CloseLink):
                    self._made = False
            case Presence(True):
                self.engine.heard(source, available=True)
            case Presence(False):
                self._ledger.departed(source, self._now())
                self.engine.departed(source)
            case Ping(iq_id, True):
                if self._probes.pop(iq_id, None) == source:
                    self.engine.heard(source)

    def _answer(
        self,
        to: str,
        iq_id: str,
        request: Request,
        asked_at: float,
        heard_s: float,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        if isinstance(request, Extend) and isinstance(result, ExtendResult):
            for item_id, token in request.tokens:
                unheard = self._unheard_of(to)
                early_s = unheard.extended(token, heard_s, result.seconds)
                self._ledger.outlived(item_id, early_s)
        self._ledger.answered(to, request, result, self.disk.kept, asked_at)
        self.send(to, Answered(iq_id, result))

    def bounced(self, to: str, body: object, condition: str) -> None:
        """See Machine."""
        if isinstance(body, Sent):
            self._ledger.bounced({each.token for each in body.event.items})
            self.engine.bounced(to, body.event_id)

    # -- see QueuePort -----------------------------------------------------

    def restarted(self) -> None:
        """See QueuePort."""
        self._found_termini = {} if self._recovers else dict(self.disk.kept.termini)
        self._found_at = self._now()
        if self._recovers:
            self._recovers = False
            self._ends()
        self._made = False
        self._ledger.restarted()
        for each in self.disk.kept.subscriptions.values():
            if each.link and each.jid not in self.disk.kept.termini:
                self._ledger.lost_by_service(each.jid)
        if self._gate is not None:
            self._gate.forget(self._tokens())
        if self._kept is not None:
            self._kept.started()

    def _tokens(self) -> set[str]:
        items = self.disk.kept.items.values()
        return {each.token for each in items if each.token}

    def dropped(self, to: str, item: Item) -> None:
        """See QueuePort."""
        if self._gate is not None and to == self._gate.jid:
            self._gate.dropped(item)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        if self._gate is not None and to == self._gate.jid:
            self._gate.sent([item for item, _ in items])
            if self._kept is not None and not self._kept.attached:
                return []  # a gateway has nobody to send it to
        self._ledger.gave(to, [item for item, _ in items], self.disk.kept, self._now())
        event_id = self.new_id()
        delivered = tuple(
            DeliveredItem(
                item_id=item.item_id,
                payload=payload,
                token=item.token,
                delivery_count=item.delivery_count,
                first_acquirer=item.order == 0,
                priority=item.priority,
                publisher=item.publisher,
                properties=item.properties,
            )
            for item, payload in items
        )
        self.send(to, Sent(event_id, Event(node=NODE, items=delivered)))
        return [(event_id, items)]

    def _now(self) -> float:
        """The time of the engine, which stands still while nothing can be answered."""
        return self._clock.now() if self._engine is None else self._engine.now()

    def _timed_out(self, token: str) -> float:
        """A lock has timed out; returns how much too early."""
        by_link = self._unheard_by_link
        unheard = by_link if by_link.knows(token) else self._unheard
        return unheard.timed_out(token, self.loop.time())

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        event: Event
        match notification:
            case NotifyRetract(to, node, item_ids):
                self._ledger.told_of_end(to, item_ids)
                event = Event(node=node, retracted=item_ids)
            case NotifyUnlock(_, node, item_ids):
                event = Event(node=node, unlocked=item_ids)
            case NotifyNode(_, node, what):
                event = Event(
                    node=node, purged=what == "purge", deleted=what == "delete"
                )
            case NotifySubscription(_, node):
                event = Event(node=node, unsubscribed=True)
            case _:
                raise AssertionError(notification)
        self.send(notification.to, Sent(self.new_id(), event))

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        iq_id = self.new_id()
        self._probes[iq_id] = jid
        self.send(jid, Ping(iq_id))

    def new_id(self) -> str:
        """See QueuePort."""
        return f"{self.name}-{next(self._ids)}"


def _is_new(request: Subscribe) -> bool:
    """Whether a worker says that it is no worker that comes back."""
    return (request.options or {}).get("queue#new_worker") == "1"
