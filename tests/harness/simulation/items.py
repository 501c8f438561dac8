"""The facts about each item: published, delivered, done, and its end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from qos.core.queue.effects import Change, SaveEnded, SaveItem
from qos.core.queue.item import Item, ItemOutcome, ItemState, Node
from qos.core.queue.properties import Properties
from qos.core.queue.requests import (
    Create,
    Extend,
    Publish,
    Refusal,
    Request,
    Retract,
    Settlement,
    Unlock,
)
from qos.core.queue.results import ExtendResult, Ok, PublishResult, Result
from qos.core.rest.forwarding import NoReply, PushReply
from qos.core.strings import bare
from qos.engine.queue_commit import Unwritten
from simulation import invariants
from simulation.ledger import Ledger
from simulation.plan import PlannedItem
from simulation.queue_disk import QueueDisk

__all__ = ["PARALLEL", "ItemFacts", "ItemLedger", "Lock"]

#: The most items that a worker has at a time.
PARALLEL = 2

#: The statuses by which a target says that it has a message.
_THERE = frozenset({200, 201, 405})


@dataclass(slots=True)
class Lock:
    """A delivery that workers were told of.

    Attributes:
        token: its fence.
        holder: the full JID.
        durable: it belongs to the account.
        resumable: it belongs to the worker that has its token.
        may_end: something has come that may end it.
        left: its holder has left, and has not spoken of it since.
        over: then a new worker has come under the same full JID.
    """

    token: str
    holder: str
    durable: bool = False
    resumable: bool = False
    may_end: bool = False
    left: bool = False
    over: bool = False

    def is_of(self, jid: str) -> bool:
        """Whether this full JID may settle it."""
        same_account = bare(self.holder) == bare(jid)
        outlives = self.durable or self.resumable
        return self.holder == jid or (outlives and same_account)


@dataclass(slots=True)
class ItemFacts:
    """The facts about an item, as its publisher and the workers see it.

    Attributes:
        planned: from the plan.
        published: its publisher was told so.
        stored: how many times it came into the store.
        ended: its remembered end: the name of an outcome, `dead`, or ''.
        lock: the last delivery that was announced.
        deadlines: when each lock ends, by token.
        failed: how many times a worker has failed on it.
        counted: the tokens of the failed deliveries that the service knows of.
        said_to_have_failed: the tokens of deliveries that a worker reported as failed.
        returned: the tokens of deliveries that came back in another way.
        lost: the tokens of those of them that the service lost by its own death.
        count: the failed deliveries, as on disk.
        locked: the item as on disk, if it is locked there.
        done: its effects that happened.
        default: the token of the delivery that is released when its worker has left.
        first_posts: how many posts were told to be the first one.
        first_ends: by token, how many settlements were told to be the first one.
        posted_by: the push subscriber that has posted it last, until there is a reply.
        posted_until: when that request is over at the latest.
        there_by: the token of the delivery about which the target has said, in its last
            reply, that it has the message; or ''.
        refused: the target has refused it.
        arrived: how many times it has come to the target, by push subscriber.
        pulled: how many times the client of HornetQ has handled it.
    """

    planned: PlannedItem
    published: bool = False
    stored: int = 0
    ended: str = ""
    lock: Lock | None = None
    deadlines: dict[str, float] = field(default_factory=dict)
    failed: int = 0
    counted: set[str] = field(default_factory=set)
    said_to_have_failed: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    count: int = 0
    locked: Item | None = None
    done: int = 0
    default: str = ""
    first_posts: int = 0
    first_ends: Counter[str] = field(default_factory=Counter)
    posted_by: str = ""
    posted_until: float = 0.0
    there_by: str = ""
    refused: bool = False
    arrived: Counter[str] = field(default_factory=Counter)
    pulled: int = 0

    def __str__(self) -> str:
        return self.planned.item_id


class ItemLedger:
    """All facts about the items of a world."""

    def __init__(self, ledger: Ledger, planned: Sequence[PlannedItem]) -> None:
        self._ledger = ledger
        self.items = {each.item_id: ItemFacts(each) for each in planned}
        self._done: dict[str, Counter[str]] = {}
        #: The time at which each worker last left, by full JID.
        self._departed_at: dict[str, float] = {}
        #: The time at which a new worker has subscribed, by full JID.
        self._replaced_at: dict[str, float] = {}
        #: The tokens by which locks were to be extended, and the full JIDs that had them.
        self._extending: dict[str, set[str]] = {}
        #: Called with the token of a lock that has timed out; returns how much too early,
        #: by what the service has heard.
        self.timed_out: Callable[[str], float] = lambda _token: 0.0
        # The holders that must be told that another one has ended an item.
        self._untold: set[tuple[str, str]] = set()
        #: The node of each item, by seq.
        self._where: dict[int, str] = {}

    # -- the service -------------------------------------------------------

    def written(self, change: Change, now: float, nodes: Mapping[str, Node]) -> None:
        """The service's disk has it, with these nodes."""
        if isinstance(change, SaveItem):
            item = change.item
            if self._where.get(item.seq) != item.node:
                self._where[item.seq] = item.node
                node = nodes.get(item.node)
                self._ledger.check(invariants.nothing_of_strangers, item, node)
                self._ledger.check(invariants.nothing_for_strangers, item, node)
            if item.item_id not in self.items:
                return
            facts = self.items[change.item.item_id]
            if change.payload is not None:
                facts.stored += 1
                self._ledger.check(invariants.stored_once, facts)
            self._counts(facts, change.item, now)
            self._resumed(facts, change.item)
            if change.item.token:
                token, deadline = change.item.token, change.item.deadline
                # Never earlier than announced, even when a clock was set back.
                facts.deadlines.setdefault(token, deadline)
            if change.item.outcome is ItemOutcome.REJECTED:
                facts.ended = "dead"
                count = change.item.delivery_count - change.item.lost
                self._ledger.check(invariants.dead_in_time, facts, count)
        elif isinstance(change, SaveEnded):
            outcome = change.ended.outcome
            if outcome is ItemOutcome.ACCEPTED and change.ended.item_id in self.items:
                facts = self.items[change.ended.item_id]
                facts.ended = outcome.value
                lock = facts.lock
                if lock is not None and lock.token == change.ended.token:
                    check = self._ledger.check
                    check(invariants.accepted_is_at_the_target, facts, lock.holder)
                    check(invariants.accepted_was_handled, facts, lock.holder)

    def _counts(self, facts: ItemFacts, item: Item, now: float) -> None:
        locked, count = facts.locked, item.delivery_count - item.lost
        check = self._ledger.check
        failed = locked is not None and self._may_have_failed(facts, locked, now)
        if (
            locked is not None
            and count > facts.count
            and self._timed_out(locked, facts)
        ):
            check(
                invariants.a_lock_lasts_while_nothing_is_heard,
                facts,
                self.timed_out(locked.token),
            )
        check(invariants.only_failures_are_counted, facts, count, failed)
        if locked is not None and not item.token:
            if locked.token == facts.default:
                facts.returned.add(locked.token)
            returned = locked.token in facts.returned
            check(invariants.each_failure_is_counted, facts, count, returned)
        facts.count = count
        facts.locked = item if item.token else None

    def _may_have_failed(self, facts: ItemFacts, locked: Item, now: float) -> bool:
        return (
            locked.token in facts.said_to_have_failed
            or locked.deadline <= now
            or (
                self._left(locked)
                and not locked.durable
                and locked.token != facts.default
            )
            # These times are by the service's clock, and say nothing if it was set.
            or "queue" in self._ledger.jumped
        )

    def _timed_out(self, locked: Item, facts: ItemFacts) -> bool:
        """Whether nothing but its time can have ended a lock; see `_may_have_failed`."""
        said = locked.token in facts.said_to_have_failed
        return not (said or self._left(locked) or "queue" in self._ledger.jumped)

    def _left(self, locked: Item) -> bool:
        """Whether its holder has left since, or a resumable lock has lost its worker."""
        times = self._replaced_at if locked.resumable else self._departed_at
        return times.get(locked.holder, -math.inf) >= locked.locked_at

    def _resumed(self, facts: ItemFacts, item: Item) -> None:
        """Note who holds an item that is written."""
        before, lock = facts.locked, facts.lock
        if before is None or before.token != item.token or not item.resumable:
            return
        if before.holder != item.holder:
            asked = item.holder in self._extending.get(item.token, ())
            check = self._ledger.check
            check(invariants.resumed_by_its_token, facts, item.holder, asked)
        if lock is not None and lock.token == item.token:
            lock.holder = item.holder

    def check(self, invariant: Callable[..., str | None], *args: object) -> None:
        """Check another invariant."""
        self._ledger.check(invariant, *args)

    def lived(self, link: bool) -> None:
        """A node that a link has made is gone; `link`: that is still there."""
        self._ledger.check(invariants.lives_as_long_as_its_link, link)

    def settles(self, source: str, settlements: Sequence[Settlement]) -> None:
        """Somebody settles deliveries, which may end."""
        for each in settlements:
            facts = self.items[each.item_id]
            failed = each.delivery_failed or each.outcome is ItemOutcome.REJECTED
            check = invariants.what_is_there_has_not_failed
            self._ledger.check(check, facts, each.token, failed)
            said = facts.said_to_have_failed if failed else facts.returned
            said.add(each.token)
            lock = facts.lock
            if lock is not None and each.token in {"", lock.token}:
                lock.may_end |= lock.is_of(source)

    def defaults(self, settlements: Sequence[Settlement]) -> None:
        """The default outcomes of a worker that is away; (): there are none any more."""
        tokens = {each.item_id: each.token for each in settlements}
        for item_id, facts in self.items.items():
            facts.default = tokens.get(item_id, "")

    def departed(self, source: str, now: float) -> None:
        """A worker has left.

        Its items end, or another worker of its account takes them over.
        """
        self._departed_at[source] = now
        for lock in self._locks():
            lock.may_end |= lock.holder == source and not lock.resumable
            lock.left |= lock.holder == source

    def lost_by_service(self, source: str) -> None:
        """The service has lost a worker, by its own death: the items are given back."""
        for facts in self.items.values():
            if facts.locked is not None and facts.locked.holder == source:
                facts.returned.add(facts.locked.token)
                facts.lost.add(facts.locked.token)
            if facts.lock is not None and facts.lock.holder == source:
                if facts.lock.token not in facts.returned:
                    facts.lost.add(facts.lock.token)
                facts.returned.add(facts.lock.token)
                facts.lock.may_end = True

    def subscribes(self, source: str) -> None:
        """A worker subscribes that may have come back."""
        for lock in self._locks():
            lock.left &= lock.holder != source

    def replaced(self, source: str, now: float) -> None:
        """A new worker subscribes: what its full JID had before has failed."""
        self._replaced_at[source] = now
        for lock in self._locks():
            if lock.holder == source and lock.resumable:
                lock.may_end = True
                lock.over |= lock.left

    def extends(self, source: str, tokens: Sequence[tuple[str, str]]) -> None:
        """A worker extends locks."""
        for item_id, token in tokens:
            self._extending.setdefault(token, set()).add(source)
            lock = self.items[item_id].lock
            if lock is not None and lock.token == token:
                lock.left = False

    def bounced(self, tokens: set[str]) -> None:
        """The event of these deliveries has bounced: they may end."""
        for facts in self.items.values():
            facts.returned |= tokens
            if facts.lock is not None:
                facts.lock.may_end |= facts.lock.token in tokens

    def outlived(self, item_id: str, early_s: float) -> None:
        """An extension was granted for a lock that had timed out so much too early."""
        facts = self.items[item_id]
        check = invariants.a_lock_lasts_while_nothing_is_heard
        self._ledger.check(check, facts, early_s)

    def times_moved(self, by_s: float) -> None:
        """All times on the disk of the queue have moved, so the ends of locks have."""
        for facts in self.items.values():
            facts.deadlines = {
                token: deadline + by_s for token, deadline in facts.deadlines.items()
            }

    def _locks(self) -> Iterator[Lock]:
        return (each.lock for each in self.items.values() if each.lock is not None)

    def gave(
        self,
        to: str,
        items: Sequence[Item],
        disk: QueueDisk,
        now: float,
        *,
        wanted: int = PARALLEL,
    ) -> None:
        """The service tells a worker, which wants so many at a time, that it has these."""
        check = self._ledger.check
        is_new = False
        for item in items:
            facts = self.items[item.item_id]
            check(invariants.told_what_is_on_disk, item, disk.items.get(item.seq))
            check(invariants.failures_are_counted, facts, item.delivery_count)
            before = facts.lock
            check(invariants.nobody_else_gets_what_is_posted, facts, to, self._ledger)
            if before is None or before.token != item.token:
                check(invariants.one_holder, facts, to, now)
                check(
                    invariants.what_comes_again_says_so, facts, to, item.delivery_count
                )
                facts.lock = Lock(item.token, to, item.durable, item.resumable)
                is_new = True
            else:
                check(invariants.taken_over_with_a_token, facts, to)
                check(invariants.ends_with_its_worker, facts, before.over)
                # A settlement that was not written may be there after a restart.
                before.may_end &= "queue" in self._ledger.io_errors
        held = [
            each
            for each in disk.items.values()
            if each.state is ItemState.ACQUIRED
            and (each.holder == to or (each.durable and bare(each.holder) == bare(to)))
        ]
        # What a worker takes up again may come on top of what it was given meanwhile.
        if is_new or not any(each.resumable for each in held):
            check(invariants.no_more_than_wanted, to, len(held), wanted)

    def told_of_end(self, to: str, item_ids: Sequence[str]) -> None:
        """The service tells a worker that these items are retracted."""
        self._untold.difference_update((to, each) for each in item_ids)

    def restarted(self) -> None:
        """The service has started: it tells nobody what happened before."""
        self._untold.clear()
        self.defaults(())
        for lock in self._locks():
            # What was decided about it may be lost.
            lock.over = False

    def answered(
        self,
        to: str,
        request: Request,
        result: Result | Refusal,
        disk: QueueDisk,
        asked_at: float,
    ) -> None:
        """The service tells a full JID the result of its request."""
        account = bare(to)
        if isinstance(result, Refusal):
            if isinstance(request, Create) and not isinstance(result, Unwritten):
                condition = result.condition
                check = self._ledger.check
                check(invariants.nobody_takes_the_room_of_others, account, condition)
            return
        if isinstance(request, Publish) and isinstance(result, PublishResult):
            self._posted(request, result, asked_at)
        elif isinstance(request, Retract):
            self._ended_first(to, request, result)
            for each in request.settlements:
                settled = disk.settled(request.node, [(each.item_id, each.token)])
                ended = settled.get(each.item_id)
                self._ledger.check(
                    invariants.settled_by_its_token, each.item_id, each.token, ended
                )
        elif isinstance(request, Unlock):
            for each in request.settlements:
                if each.delivery_failed:
                    self.items[each.item_id].counted.add(each.token)
        elif isinstance(request, Extend) and isinstance(result, ExtendResult):
            for item_id, token in request.tokens:
                deadlines = self.items[item_id].deadlines
                deadlines[token] = max(deadlines[token], asked_at + result.seconds)
                held = self.items[item_id].locked
                if held is not None and held.resumable and held.token == token:
                    others = self._extending.get(token, set()) - {to}
                    check = self._ledger.check
                    check(
                        invariants.resumed_before_it_is_told,
                        self.items[item_id],
                        to,
                        held.holder in {to, *others},
                    )

    def _posted(self, request: Publish, result: PublishResult, asked_at: float) -> None:
        for item_id in set(result.item_ids).difference(result.repeated):
            if item_id in self.items:
                facts = self.items[item_id]
                facts.first_posts += 1
                check, issued_at = self._ledger.check, request.issued_at
                check(invariants.one_post_is_the_first, facts)
                check(invariants.an_old_link_makes_nothing, facts, issued_at, asked_at)

    def _ended_first(self, by: str, request: Retract, result: Result) -> None:
        """Somebody is told that it has ended an item; of several, it is not told which."""
        if len(request.settlements) > 1 or result != Ok():
            return
        (each,) = request.settlements
        facts = self.items[each.item_id]
        facts.first_ends[each.token] += 1
        count = facts.first_ends[each.token]
        self._ledger.check(invariants.one_end_is_the_first, facts, count)
        lock = facts.lock
        if lock is not None and lock.token == each.token and lock.holder != by:
            # It is told after the answer.
            self._untold.add((lock.holder, each.item_id))

    # -- publisher and workers ---------------------------------------------

    def published(self, facts: ItemFacts) -> None:
        """Its publisher was told that it is published."""
        facts.published = True
        self._ledger.check(invariants.published_is_stored, facts)

    def took(
        self, facts: ItemFacts, selector: str, properties: Properties, count: int
    ) -> None:
        """A worker with this selector begins to work on it."""
        check = self._ledger.check
        check(invariants.properties_are_kept, facts, properties)
        check(invariants.given_what_is_wanted, facts, selector, count)

    # -- push --------------------------------------------------------------

    def posts(self, item_id: str, jid: str, until: float) -> None:
        """A push subscriber posts a message, and waits for a reply until then."""
        facts = self.items[item_id]
        facts.posted_by, facts.posted_until, facts.there_by = jid, until, ""

    def replied(self, item_id: str, jid: str, reply: PushReply | NoReply) -> None:
        """The subscriber has a reply, or knows that there is none."""
        facts = self.items[item_id]
        if facts.posted_by == jid:
            facts.posted_by = ""
            there = isinstance(reply, PushReply) and reply.status in _THERE
            facts.there_by = facts.lock.token if there and facts.lock else ""

    def arrived(self, facts: ItemFacts, subscriber_id: str) -> None:
        """The target has taken a message."""
        facts.arrived[subscriber_id] += 1
        self._ledger.check(invariants.arrives_once, facts, subscriber_id)

    def pulled(self, item_id: str) -> None:
        """The client of HornetQ has handled a message."""
        self.items[item_id].pulled += 1

    # -- workers -----------------------------------------------------------

    def done(self, worker: str, done: Counter[str]) -> None:
        """These effects are in the database of a worker."""
        self._done[worker] = done
        for item_id, facts in self.items.items():
            facts.done = sum(each[item_id] for each in self._done.values())
            self._ledger.check(invariants.effect_once, facts)

    def left(self) -> list[str]:
        """The items that have not ended, in words."""
        found = [
            f"{who} still has {item}, which ended" for who, item in sorted(self._untold)
        ]
        for facts in self.items.values():
            if facts.stored and not facts.ended:
                found.append(f"{facts} has not ended")
            elif facts.ended == "accepted" and not (
                facts.done or facts.arrived or facts.pulled
            ):
                found.append(f"{facts} is accepted, and its effect is missing")
            elif facts.stored and not facts.published:
                found.append(f"{facts} is there, and its publisher does not know")
        return found
