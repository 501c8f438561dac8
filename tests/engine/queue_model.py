"""The model of a queue service, as plain as possible.

The model does not choose who gets an item: it is told, and checks the choice. It
imports nothing of the service but its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState
from qos.core.queue.properties import Properties
from qos.core.strings import bare

LOCK_S = 10.0
ITEMS_MAX = 2
DEDUPE_S = 20.0
MEMORY_S = 3600.0
HOLD_S = 24 * 3600.0


@dataclass
class Fact:
    """The truth about one published item."""

    seq: int
    node: str
    item_id: str
    publisher: str
    digest: str
    size: int
    priority: int
    published_at: float
    available_at: float
    expires_at: float | None
    properties: Properties = field(default_factory=dict)
    #: One of: available, locked, dead, accepted, withdrawn.
    status: str = "available"
    origin: str = ""
    origin_id: str = ""
    count: int = 0
    releases: int = 0
    again: bool = False
    receivers: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    last_holder: str = ""
    token: str = ""
    holder: str = ""
    durable: bool = False
    locked_at: float = 0.0
    deadline: float = 0.0
    ended_at: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it can still be worked on."""
        return self.status in {"available", "locked"}

    def same(self, item: Item) -> None:
        """Fail if the item differs."""
        state = {
            "available": ItemState.AVAILABLE,
            "locked": ItemState.ACQUIRED,
        }.get(self.status, ItemState.ARCHIVED)
        outcome = {
            "dead": ItemOutcome.REJECTED,
            "accepted": ItemOutcome.ACCEPTED,
        }.get(self.status)
        assert (item.state, item.outcome) == (state, outcome), (item, self)
        for name in ("seq", "node", "item_id", "publisher", "digest", "size"):
            assert getattr(item, name) == getattr(self, name), (name, item, self)
        for name in ("priority", "origin", "origin_id", "token", "holder", "durable"):
            assert getattr(item, name) == getattr(self, name), (name, item, self)
        assert item.delivery_count == self.count, (item, self)
        assert item.properties == self.properties, (item, self)
        assert item.receivers == self.receivers, (item, self)
        if self.live:
            assert item.releases == self.releases, (item, self)
            assert item.excluded == self.excluded, (item, self)
            assert item.last_holder == self.last_holder, (item, self)
            assert (item.order > 0) is self.again, (item, self)
            assert item.available_at == self.available_at, (item, self)
            assert item.expires_at == self.expires_at, (item, self)
            assert (item.locked_at, item.deadline) == (self.locked_at, self.deadline)
        else:
            assert item.ended_at == self.ended_at, (item, self)


#: What the selectors of the tests say, in other words.
WANTS: dict[str, Callable[[Fact], bool]] = {
    "": lambda fact: True,
    "color = 'red'": lambda fact: fact.properties.get("color") == "red",
    # Not those without a color: unknown is not TRUE.
    "NOT color = 'red'": lambda fact: fact.properties.get("color") == "blue",
    "color IS NULL OR n > 1": lambda fact: (
        "color" not in fact.properties or fact.properties.get("n") == 2
    ),
    "JMSRedelivered": lambda fact: fact.count > 0,
}


@dataclass
class End:
    """The remembered end of an item."""

    publisher: str
    digest: str
    ended_at: float
    token: str = ""
    account: str = ""
    outcome: ItemOutcome | None = None


@dataclass
class Wish:
    """A subscription."""

    jid: str
    via: str
    requests: int
    durable: bool
    selector: str = ""


@dataclass
class Model:
    """The expected state of a queue service."""

    owner: str
    backoff_s: float
    keep_s: float
    #: The dead-letter node of each node; without an entry, dead items stay.
    dead_letter_nodes: dict[str, str]
    fails_max: int = 2
    facts: dict[int, Fact] = field(default_factory=dict)
    #: By node, id, token and seq.
    ends: dict[tuple[str, str, str, int], End] = field(default_factory=dict)
    wishes: dict[str, dict[str, Wish]] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)
    tokens: set[str] = field(default_factory=set)
    #: By node, the selectors that are not evaluated for all items yet: nothing is for
    #: them before that.
    new_selectors: set[tuple[str, str]] = field(default_factory=set)
    #: The seqs of items on disk whose delay may be over: it has not been looked at yet.
    unread: set[int] = field(default_factory=set)
    #: Full JIDs that get no new items until they are heard of.
    silent: set[str] = field(default_factory=set)
    #: Full JIDs that have sent unavailable presence, and were not heard of since.
    gone: set[str] = field(default_factory=set)
    #: Full JIDs that get items by a gateway, not by XMPP.
    consumers: frozenset[str] = frozenset()
    #: Node and seq of the items that are too large for XMPP: not on disk.
    oversized: set[tuple[str, int]] = field(default_factory=set)
    #: The time at which each worker was served last.
    turns: Counter[str] = field(default_factory=Counter)
    turn: int = 0

    # -- what there is -----------------------------------------------------

    def live(self, node: str) -> dict[str, Fact]:
        """Available or locked items, by id."""
        facts = [
            fact for fact in self.facts.values() if fact.node == node and fact.live
        ]
        found = {fact.item_id: fact for fact in facts}
        assert len(found) == len(facts), "two live items with one id"
        return found

    def load(self, node: str, wish: Wish) -> int:
        """How many items the subscriber holds."""
        return sum(
            bare(fact.holder) == bare(wish.jid)
            and (
                "/" not in wish.jid
                or fact.holder == wish.jid
                or (fact.durable and wish.durable)
            )
            for fact in self.live(node).values()
            if fact.status == "locked"
        )

    def excludes(self, fact: Fact, jid: str) -> bool:
        """Whether a full JID may not get the item."""
        oversized = (fact.node, fact.seq) in self.oversized
        return (oversized and jid not in self.consumers) or jid in fact.excluded

    # -- publishers --------------------------------------------------------

    def repeats(self, node: str, item_id: str, by: str, digest: str, now: float) -> str:
        """`new`, `again`, or `conflict`."""
        live = self.live(node).get(item_id)
        known: list[Fact | End] = [] if live is None else [live]
        ended = self.of_id(node, item_id)
        known += [end for end in ended if now < end.ended_at + DEDUPE_S]
        if not known:
            return "new"
        same = (by, digest) in [(each.publisher, each.digest) for each in known]
        return "again" if same else "conflict"

    def of_id(self, node: str, item_id: str) -> list[End]:
        """The remembered ends of all items with this id."""
        return [end for key, end in self.ends.items() if key[:2] == (node, item_id)]

    # -- workers -----------------------------------------------------------

    def verdict(
        self, node: str, item_id: str, jid: str, token: str, outcome: ItemOutcome
    ) -> str:
        """`do`, `withdraw`, `again`, or the refusal: docs/design/queue.md §2."""
        fact, account = self.live(node).get(item_id), bare(jid)
        settled = [
            (end.token, end.account, end.outcome) for end in self.of_id(node, item_id)
        ]
        if token and (token, account, outcome) in settled:
            return "again"
        if fact is None:
            return "item-not-found"
        locked = fact.status == "locked"
        retracts = outcome is ItemOutcome.ACCEPTED
        own = retracts and account in {self.owner, fact.publisher}
        if own and not locked and not token:
            return "withdraw"
        if account not in fact.receivers:
            if not own:
                return "forbidden"
            return "conflict" if locked else "unexpected-request"
        if locked:
            mine = fact.holder == jid
            ours = fact.durable and token != "" and bare(fact.holder) == account
            if mine or ours:
                return "do" if token in {"", fact.token} else "unexpected-request"
            return "conflict"
        return "unexpected-request"

    def accept(self, fact: Fact, by: str, now: float) -> None:
        """Accept an item."""
        self._end(fact, now, by, ItemOutcome.ACCEPTED)
        self.accepted[fact.node] += 1
        self._unlock(fact, "accepted")
        fact.ended_at = now

    def withdraw(self, fact: Fact, now: float) -> None:
        """Withdraw an item."""
        self._end(fact, now)
        self._unlock(fact, "withdrawn")

    def release(
        self,
        fact: Fact,
        now: float,
        *,
        by: str = "",
        outcome: ItemOutcome | None = None,
        not_here: bool = False,
    ) -> None:
        """Release an item. It does not count, but the maximum may have been lowered."""
        if fact.count >= self.fails_max:
            self.die(fact, now, by=by, outcome=outcome)
            return
        fact.releases += 1
        if not_here:
            fact.excluded = fact.excluded | {fact.holder}
        self._again(fact, now, fact.releases)

    def fail(
        self,
        fact: Fact,
        now: float,
        *,
        by: str = "",
        outcome: ItemOutcome | None = None,
        final: bool = False,
        not_here: bool = False,
    ) -> None:
        """Fail an item, which counts."""
        fact.count += 1
        if final or fact.count >= self.fails_max:
            self.die(fact, now, by=by, outcome=outcome)
            return
        if not_here:
            fact.excluded = fact.excluded | {fact.holder}
        fact.releases = 0
        self._again(fact, now, fact.count)

    def unsent(self, fact: Fact, now: float) -> None:
        """Take back an item whose event was too large for its holder.

        Nothing was delivered, so nothing counts. It is for consumers of gateways from now
        on; a client that only looks like one cannot get it twice.
        """
        if (fact.node, fact.seq) in self.oversized:
            self.fail(fact, now, final=True)
            return
        self.oversized.add((fact.node, fact.seq))
        fact.again = True
        self._unlock(fact, "available")

    def _again(self, fact: Fact, now: float, times: int) -> None:
        fact.available_at = now + self.backoff_s * 2.0 ** (times - 1)
        fact.again = True
        self._unlock(fact, "available")

    def die(
        self,
        fact: Fact,
        now: float,
        *,
        by: str = "",
        outcome: ItemOutcome | None = None,
    ) -> None:
        """End an item without acceptance, here or in the dead-letter node."""
        self._end(fact, now, by, outcome)
        target = self.dead_letter_nodes.get(fact.node)
        if fact.origin or target is None:
            self._unlock(fact, "dead")
            fact.ended_at = now
            return
        letter = f"{fact.node}/{fact.item_id}"
        if letter in self.live(target):
            letter += f"#{fact.seq}"
        fact.origin, fact.origin_id = fact.node, fact.item_id
        self.revive(fact, target, letter, now)

    def revive(self, fact: Fact, node: str, item_id: str, now: float) -> None:
        """Requeue an item, for a new life."""
        self._unlock(fact, "available")
        fact.node, fact.item_id = node, item_id
        fact.available_at, fact.expires_at = fact.published_at, None
        fact.count = fact.releases = 0
        fact.again = False
        fact.receivers, fact.excluded, fact.last_holder = set(), set(), ""

    def _end(
        self, fact: Fact, now: float, by: str = "", outcome: ItemOutcome | None = None
    ) -> None:
        token = fact.token if by else ""
        self.ends[fact.node, fact.item_id, token, fact.seq] = End(
            fact.publisher, fact.digest, now, token, bare(by), outcome
        )

    def _unlock(self, fact: Fact, status: str) -> None:
        fact.status = status
        fact.token = fact.holder = ""
        fact.durable = False
        fact.locked_at = fact.deadline = 0.0

    # -- time --------------------------------------------------------------

    def due(self, now: float) -> None:
        """Let locks time out, and unlocked items expire."""
        for fact in [fact for fact in self.facts.values() if fact.live]:
            if fact.status == "locked" and fact.deadline <= now:
                self.silent.add(fact.holder)
                self.fail(fact, now)
            expires = fact.expires_at
            if fact.status == "available" and expires is not None and expires <= now:
                self.die(fact, now)

    def next_at(self, now: float) -> float | None:
        """The time of the next timed event."""
        moments = list[float]()
        for fact in self.facts.values():
            if fact.status == "locked":
                moments.append(fact.deadline)
            elif fact.status == "available":
                moments += [fact.available_at] if fact.available_at > now else []
                moments += [fact.expires_at] if fact.expires_at is not None else []
        return min(moments, default=None)

    def forget(self, now: float, remembered: Iterable[EndedItem]) -> None:
        """Forget ends whose time is over, but for those that the disk still has."""
        keys = {(end.node, end.item_id, end.token, end.seq) for end in remembered}
        for key in [
            key
            for key, end in self.ends.items()
            if end.ended_at + max(DEDUPE_S, MEMORY_S) <= now and key not in keys
        ]:
            del self.ends[key]

    # -- who gets it -------------------------------------------------------

    def gave(self, item: Item, present: dict[str, dict[str, bool]], now: float) -> None:
        """Check that the service was allowed to give this item to its holder."""
        fact, holder = self.facts[item.seq], item.holder
        assert fact.status == "available", "given, but it is not to be had"
        assert fact.available_at <= now, "given too early"
        assert fact.expires_at is None or fact.expires_at > now, "given too late"
        assert not self.excludes(fact, holder), "given to whom it cannot help"
        assert holder not in self.silent, "given to one of whom nothing was heard"
        assert item.token not in self.tokens, "a token is used twice"
        self.tokens.add(item.token)
        free = self.free(fact, present)
        mine = [wish for wish, jid in free if jid == holder]
        assert mine, f"{holder} has no subscription with room"
        if holder == fact.last_holder:
            others = [jid for _, jid in free if jid != holder]
            assert not others, f"given back to {holder}, not to one of {others}"
        loads = {
            jid: (self.load(fact.node, wish), self.turns[f"{fact.node} {jid}"])
            for wish, jid in free
            if jid != fact.last_holder or jid == holder
        }
        assert loads[holder] == min(loads.values()), "not the one whose turn it is"
        for other in self.live(fact.node).values():
            if holder in [jid for _, jid in self.free(other, present)]:
                self._overtakes(fact, other, now)
        self.turn += 1
        self.turns[f"{fact.node} {holder}"] = self.turn
        fact.status, fact.holder, fact.token = "locked", holder, item.token
        fact.last_holder, fact.durable = holder, mine[0].durable
        fact.receivers = fact.receivers | {bare(holder)}
        fact.locked_at, fact.deadline = now, now + LOCK_S

    def _overtakes(self, fact: Fact, other: Fact, now: float) -> None:
        """First deliveries are in order; redeliveries go behind them."""
        if other is fact or not self._deliverable(other, now):
            return
        assert other.priority <= fact.priority, "a lower priority went first"
        if other.priority == fact.priority and not other.again:
            assert not fact.again, "a redelivery went before a first delivery"
            assert fact.seq < other.seq, "out of order"

    def _deliverable(self, fact: Fact, now: float) -> bool:
        return (
            fact.status == "available"
            and fact.available_at <= now
            and fact.seq not in self.unread
        )

    def free(
        self, fact: Fact, present: dict[str, dict[str, bool]]
    ) -> list[tuple[Wish, str]]:
        """The candidates: subscriptions with room, by resource."""
        found = list[tuple[Wish, str]]()
        for wish in self.wishes.get(fact.node, {}).values():
            there = present.get(bare(wish.jid), {})
            if self.load(fact.node, wish) >= wish.requests:
                continue
            if (fact.node, wish.selector) in self.new_selectors:
                continue
            for jid, available in there.items():
                mine = jid == wish.jid
                if "/" not in wish.jid:
                    mine = available or jid == wish.via
                wanted = WANTS[wish.selector](fact)
                if mine and wanted and not self.excludes(fact, jid):
                    found.append((wish, jid))
        return found

    def idle(self, present: dict[str, dict[str, bool]], now: float) -> None:
        """Check that no item waits although a worker could have it."""
        for fact in self.facts.values():
            if self._deliverable(fact, now):
                assert not self.free(fact, present), f"{fact.item_id} lies about"
