"""The queues against a plain model: workers that come and go, time, crashes.

A crash takes back what was not committed, and of what was, the answers and events may
never have gone out. `QOS_EXAMPLES=20000 pytest tests/core/queue/test_machine.py`
searches further, at random.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from qos.core.queue import backlog, item_index, ready_items, requeuing
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.effects import NotifyItem, QueueEffect, SaveItem
from qos.core.queue.item import ItemOutcome
from qos.core.queue.node import QueueNode
from qos.core.queue.properties import Properties
from qos.core.queue.requests import (
    Configure,
    Extend,
    Publish,
    Purge,
    Refusal,
    Request,
    Requeue,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import RequeueResult
from qos.core.strings import bare
from queue_agreement import counts_agree, disk_agrees, memory_agrees
from queue_model import HOLD_S, ITEMS_MAX, LOCK_S, WANTS, Fact, Model, Wish
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    OWNER,
    PUBLISHER,
    STRANGER,
    World,
    entry,
)

NODES = ("orders", "graves")
FLY, FLY_1, FLY_2 = "fly@w", "fly@w/1", "fly@w/2"
ANT_2, ANT_3 = "ant@y/2", "ant@y/3"
LINK = consumer_jid("dog@v", "http", "0" * 32)
LINK_OF_ANT = consumer_jid("ant@y", "amqp", "1" * 32)
CONSUMERS = frozenset({LINK, LINK_OF_ANT})
#: The ants' locks are durable, but for the third; the flies subscribe by their account.
WORKERS = (BEE, BEE_2, ANT, ANT_2, ANT_3, FLY_1, FLY_2, LINK, LINK_OF_ANT)
EVERYBODY = (*WORKERS, PUBLISHER, OWNER, STRANGER)
IDS = ("a", "b", "c")

A, R, M, X = (
    ItemOutcome.ACCEPTED,
    ItemOutcome.RELEASED,
    ItemOutcome.MODIFIED,
    ItemOutcome.REJECTED,
)

#: More often without, as an item of those before there were any.
PROPERTIES: tuple[Properties, ...] = (
    {},
    {},
    {"color": "red"},
    {"color": "blue"},
    {"color": "red", "n": 2},
)

nodes = st.sampled_from(("orders", "orders", "graves"))
#: The ants more often: it takes two of them to see what a durable lock does.
workers = st.sampled_from((*WORKERS, ANT, ANT, ANT_2, ANT_2, LINK_OF_ANT))


def settlement(item_id: str, token: str, what: str) -> Settlement:
    """A settlement: accept, release, modify, fail, not here, reject (X)."""
    return Settlement(
        item_id=item_id,
        token=token,
        outcome={"A": A, "R": R, "X": X}.get(what, M),
        delivery_failed=what == "F",
        undeliverable_here=what == "N",
    )


class Queue(RuleBasedStateMachine):
    """A queue, its dead-letter node, seven workers, two consumers and some others."""

    @initialize(
        backoff=st.sampled_from((0, 1)),
        keep=st.sampled_from((0, 15)),
        graves=st.booleans(),
        eager=st.sampled_from((True, True, False)),
        first=st.lists(workers, min_size=1, max_size=3, unique=True),
    )
    def begin(
        self, backoff: int, keep: int, graves: bool, eager: bool, first: list[str]
    ) -> None:
        config = {
            "pubsub#access_model": "open",
            "pubsub#publish_model": "open",
            "queue#lock_timeout": str(LOCK_S),
            "queue#max_deliveries": "2",
            "queue#backoff": str(backoff),
            "queue#max_items": str(ITEMS_MAX),
            "queue#dedupe_window": "20",
            "queue#keep_accepted": str(keep),
        }
        # Each node is the dead-letter node of the other.
        others = {"orders": "graves", "graves": "orders"} if graves else {}
        self.world = World()
        for node in NODES:
            self.world.create(node, config)
        for node, other in others.items():
            letters = {"queue#dead_letter_node": other}
            self.world.ask(Configure(node, letters), OWNER)
        self.model = Model(
            owner=bare(OWNER),
            backoff_s=float(backoff),
            keep_s=float(keep),
            dead_letter_nodes=others,
            silent=set(WORKERS),
            consumers=CONSUMERS,
        )
        self.told: list[NotifyItem] = []
        self.tokens = ["no-token"]
        self.said: list[tuple[str, tuple[Settlement, ...], str]] = []
        #: Commit after every step; else only when the rule says so.
        self.eager = False
        self.save()
        for jid in first:
            self.subscribe("orders", jid, 2, "")
        self.publish("orders", ["a", "b"], "x", PUBLISHER, None, None, 0.0, {})
        self.eager = eager
        self.flush()

    # -- help --------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def present(self) -> dict[str, dict[str, bool]]:
        return self.world.core.presence.present

    def save(self) -> None:
        """Everything true so far is on disk: a crash goes back to this."""
        self.saved = copy.deepcopy(self.model)

    def ask(self, request: Request, by: str) -> str:
        """The answer: `ok`, or the condition."""
        self.model.silent.discard(by)
        self.model.gone.discard(by)
        try:
            self.answer = self.world.ask(request, by, flush=False)
        except Refusal as refusal:
            return refusal.condition
        return "ok"

    def done(self) -> None:
        """End a step."""
        if self.eager:
            self.flush()

    # -- rules: publishers -------------------------------------------------

    @rule(
        node=nodes,
        item_ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True),
        text=st.sampled_from(("x", "x", "y")),
        by=st.sampled_from((PUBLISHER, PUBLISHER, BEE, OWNER)),
        priority=st.sampled_from((None, None, 1, 9)),
        ttl=st.sampled_from((None, None, 3.0, 30.0)),
        delay=st.sampled_from((0.0, 0.0, 2.0)),
        properties=st.sampled_from(PROPERTIES),
    )
    def publish(
        self,
        node: str,
        item_ids: list[str],
        text: str,
        by: str,
        priority: int | None,
        ttl: float | None,
        delay: float,
        properties: Properties,
    ) -> None:
        entries = [
            entry(
                item_id,
                f"{item_id}{text}",
                priority=priority,
                ttl=ttl,
                delay=delay,
                properties=properties,
            )
            for item_id in item_ids
        ]
        found = [
            self.model.repeats(node, one.item_id, bare(by), one.digest, self.now)
            for one in entries
        ]
        new = found.count("new")
        expected = "ok"
        if "conflict" in found:
            expected = "conflict"
        elif new and len(self.model.live(node)) + new > ITEMS_MAX:
            expected = "resource-constraint"
        seqs = self.world.core.next_seq
        assert self.ask(Publish(node, tuple(entries)), by) == expected
        assert seqs == self.world.core.next_seq
        if expected != "ok":
            return
        for one, what in zip(entries, found, strict=True):
            if what == "new":
                seq = self.world.live(node)[one.item_id].seq
                assert seq not in self.model.facts
                self.model.facts[seq] = Fact(
                    seq=seq,
                    node=node,
                    item_id=one.item_id,
                    publisher=bare(by),
                    digest=one.digest,
                    size=one.size,
                    priority=4 if priority is None else priority,
                    published_at=self.now,
                    available_at=self.now + delay,
                    expires_at=None if ttl is None else self.now + ttl,
                    properties=properties,
                )
        self.done()

    # -- rules: workers ----------------------------------------------------

    @rule(
        node=nodes,
        jid=workers,
        requests=st.integers(1, 2),
        selector=st.sampled_from(("", *WANTS)),
    )
    def subscribe(self, node: str, jid: str, requests: int, selector: str) -> None:
        subscriber = FLY if bare(jid) == FLY else jid
        durable = jid in {ANT, ANT_2, LINK_OF_ANT}
        options = {
            "pubsub#queue_requests": str(requests),
            "queue#durable_locks": "1" if durable else "0",
            "queue#selector": selector,
        }
        live = self.model.live(node).values()
        expected = 0
        if durable:
            left = [
                fact
                for fact in live
                if fact.durable
                and fact.holder in self.model.gone - {jid}
                and bare(fact.holder) == bare(jid)
                and not self.model.excludes(fact, jid)
                and WANTS[selector](fact)
            ]
            own = sum(fact.holder == jid for fact in live)
            expected = min(len(left), max(0, requests - own))
        moved = 0
        assert self.ask(Subscribe(node, subscriber, options), jid) == "ok"
        wishes = self.model.wishes.setdefault(node, {})
        wishes[subscriber] = Wish(subscriber, jid, requests, durable, selector)
        for fact in live:
            holder = self.world.live(node)[fact.item_id].holder
            if holder != fact.holder:
                # A durable lock is its account's: whoever comes back has it.
                assert fact in left, "a lock has moved"
                assert holder == jid, "a lock has moved to somebody else"
                moved += 1
                fact.again = True
                fact.holder = fact.last_holder = holder
                fact.token = self.world.live(node)[fact.item_id].token
                assert fact.token not in self.model.tokens, "two have one token"
                self.model.tokens.add(fact.token)
        assert moved == expected, "what was left by who has gone is nobody's"
        self.done()

    @rule(node=nodes, jid=workers)
    def unsubscribe(self, node: str, jid: str) -> None:
        subscriber = FLY if bare(jid) == FLY else jid
        wishes = self.model.wishes.get(node, {})
        expected = "ok" if subscriber in wishes else "unexpected-request"
        assert self.ask(Unsubscribe(node, subscriber), jid) == expected
        wishes.pop(subscriber, None)
        self.done()

    @rule(what=st.sampled_from("AARMFFNX"), data=st.data())
    def work(self, what: str, data: st.DataObject) -> None:
        """The holder settles its item with its token."""
        locked = [fact for fact in self.model.facts.values() if fact.status == "locked"]
        if locked:
            fact = data.draw(st.sampled_from(locked))
            done = settlement(fact.item_id, fact.token, what)
            self.settle_all(fact.node, (done,), fact.holder)

    @rule(node=nodes, what=st.sampled_from("AARMFX"), data=st.data())
    def settle(self, node: str, what: str, data: st.DataObject) -> None:
        """Any account settles any item."""
        live = self.model.live(node)
        ended = {item_id for at, item_id, *_ in self.model.ends if at == node}
        if not live and not ended:
            return
        by = data.draw(st.sampled_from(EVERYBODY))
        some = st.sampled_from(sorted({*live, *ended}))
        wanted = list[Settlement]()
        for item_id in data.draw(st.lists(some, min_size=1, max_size=2, unique=True)):
            fact, ends = live.get(item_id), self.model.of_id(node, item_id)
            settled = {end.token: end.account for end in ends if end.token}
            if fact is not None and fact.holder and data.draw(st.booleans()):
                by = fact.holder
            tokens = ["", self.tokens[0], self.tokens[-1]]
            tokens += [fact.token] if fact is not None else []
            tokens += [*settled, *settled]
            token = data.draw(st.sampled_from(tokens))
            if token in settled:
                accounts = self.of_account(settled[token])
                by = data.draw(st.sampled_from((by, *accounts)))
            wanted.append(settlement(item_id, token, what))
        self.settle_all(node, tuple(wanted), by)

    @rule(data=st.data(), change=st.sampled_from(("", "", "token", "outcome")))
    def repeat(self, data: st.DataObject, change: str) -> None:
        """An earlier settlement is repeated: its answer was lost, or it is late."""
        if not self.said:
            return
        node, wanted, by = data.draw(st.sampled_from(self.said[-4:]))
        by = data.draw(st.sampled_from((by, by, *self.of_account(bare(by)), STRANGER)))
        first = wanted[0]
        if change == "token":
            first = replace(first, token="")
        elif change == "outcome":
            first = settlement(first.item_id, first.token, "R")
        self.settle_all(node, (first,), by)

    def of_account(self, account: str) -> tuple[str, ...]:
        return tuple(jid for jid in EVERYBODY if bare(jid) == account)

    def settle_all(self, node: str, wanted: tuple[Settlement, ...], by: str) -> None:
        outcome = wanted[0].outcome
        verdicts = [
            self.model.verdict(node, one.item_id, by, one.token, outcome)
            for one in wanted
        ]
        self.said.append((node, wanted, by))
        bad = [one for one in verdicts if one not in {"do", "again", "withdraw"}]
        kind = Retract if outcome is A else Unlock
        answer = self.ask(kind(node, wanted), by)
        assert answer == (bad[0] if bad else "ok"), (wanted, by, verdicts)
        if not bad:
            for one, verdict in zip(wanted, verdicts, strict=True):
                self.settled(node, one, verdict, by)
        self.done()

    def settled(self, node: str, done: Settlement, verdict: str, by: str) -> None:
        if verdict == "again":
            return
        fact = self.model.live(node)[done.item_id]
        if verdict == "withdraw":
            self.model.withdraw(fact, self.now)
        elif done.outcome is A:
            self.model.accept(fact, by, self.now)
        elif done.outcome is X or done.delivery_failed:
            self.model.fail(
                fact, self.now, by=by, outcome=done.outcome, final=done.outcome is X
            )
        else:
            self.model.release(
                fact,
                self.now,
                by=by,
                outcome=done.outcome,
                not_here=done.undeliverable_here,
            )

    @rule(
        data=st.data(), stale=st.booleans(), seconds=st.sampled_from((1.0, 15.0, 1e5))
    )
    def extend(self, data: st.DataObject, stale: bool, seconds: float) -> None:
        locked = [fact for fact in self.model.facts.values() if fact.status == "locked"]
        if not locked:
            return
        fact = data.draw(st.sampled_from(locked))
        token = data.draw(st.sampled_from(self.tokens)) if stale else fact.token
        live = token == fact.token
        request = Extend(fact.node, seconds, ((fact.item_id, token),))
        answer = self.ask(request, fact.holder)
        assert answer == ("ok" if live else "unexpected-request")
        if live:
            latest = min(self.now + seconds, fact.locked_at + HOLD_S)
            fact.deadline = max(fact.deadline, latest)

    # -- rules: presence and time ------------------------------------------

    @rule(jid=workers, available=st.booleans())
    def heard(self, jid: str, available: bool) -> None:
        was_there = self.world.core.presence.silent.get(bare(jid), {}).get(jid, False)
        self.world.add(self.world.core.heard(jid, available=available))
        self.model.silent.discard(jid)
        self.model.gone.discard(jid)
        there = self.present.get(bare(jid), {})
        if was_there:
            assert there.get(jid, True), "a silent worker has to say it twice"
        self.done()

    @rule(jid=workers)
    def departed(self, jid: str) -> None:
        there = {
            **self.present.get(bare(jid), {}),
            **self.world.core.presence.silent.get(bare(jid), {}),
        }
        there.pop(jid, None)
        self.world.add(self.world.core.departed(jid, self.now))
        self.model.silent.add(jid)
        self.model.gone.add(jid)
        for node in NODES:
            self.model.turns.pop(f"{node} {jid}", None)
            for fact in self.model.live(node).values():
                if fact.holder == jid and not fact.durable:
                    self.model.fail(fact, self.now)
            wishes = self.model.wishes.get(node, {})
            wishes.pop(jid, None)
            of_all = wishes.get(bare(jid))
            if of_all is None or jid != of_all.via:
                continue
            heirs = {other for other, available in there.items() if available}
            if heirs:
                of_all.via = self.world.core.nodes[node].subscriptions[of_all.jid].via
                assert of_all.via in heirs, "nobody stands for the account"
            else:
                # The last worker has gone, as far as the service knows.
                del wishes[of_all.jid]
        self.done()

    @rule(data=st.data())
    def bounce(self, data: st.DataObject) -> None:
        """An event bounces, sooner or later."""
        if not self.told:
            return
        event = data.draw(st.sampled_from(self.told[-6:]))
        node, token = event.item.node, event.item.token
        self.world.add(self.world.core.bounced(event.to, node, {token}, self.now))
        for fact in self.of_event(event):
            self.model.release(fact, self.now)
            self.model.silent.add(event.to)
            # Items that die in this way are placed before the commit.
            self.flush()

    def of_event(self, event: NotifyItem) -> list[Fact]:
        """The items whose delivery by this event has not ended."""
        account = bare(event.to)
        return [
            fact
            for fact in self.model.live(event.item.node).values()
            if fact.token == event.item.token
            and (
                fact.holder == event.to
                or (fact.durable and bare(fact.holder) == account)
            )
        ]

    @rule(data=st.data())
    def unsendable(self, data: st.DataObject) -> None:
        """An event is too large for the server of the service, which is found out late."""
        if not self.told:
            return
        # Most of what was told has ended, and this has to happen twice to one item.
        live = [event for event in self.told if self.of_event(event)]
        event = data.draw(st.sampled_from(live or self.told[-6:]))
        node, token = event.item.node, event.item.token
        lost = self.of_event(event)
        self.world.add(
            self.world.core.unsendable(event.to, node, {token}, "too large", self.now)
        )
        for fact in lost:
            self.model.unsent(fact, self.now)
        self.done()

    @rule()
    def fit_again(self) -> None:
        """The server takes larger stanzas than before."""
        self.world.add(self.world.core.fit_again())
        self.model.oversized.clear()
        self.done()

    @rule(how=st.sampled_from(("next",) * 6 + ("little", "little", "day")))
    def time_passes(self, how: str) -> None:
        """After each commit the test checks that the service was woken in time."""
        if how == "next":
            self.world.now = max(self.now, self.world.core.next_at() or self.now)
        else:
            self.world.now += {"little": 0.7, "day": 4000.0}[how]
        self.done()

    # -- rules: owners -----------------------------------------------------

    @rule(node=nodes, named=st.sampled_from((None, *IDS)))
    def requeue(self, node: str, named: str | None) -> None:
        self.flush()
        dead = {
            fact.item_id: fact
            for fact in self.model.facts.values()
            if fact.status == "dead" and fact.node == node
        }
        for fact in self.model.facts.values():
            if fact.origin == node and fact.live:
                dead[fact.origin_id] = fact
        live = self.model.live(node)
        expected = "ok"
        if named is not None:
            if named not in dead:
                expected = "item-not-found"
            elif dead[named].status == "locked" or named in live:
                expected = "conflict"
        item_ids = () if named is None else (named,)
        assert self.ask(Requeue(node, item_ids), OWNER) == expected
        if expected != "ok":
            return
        possible = {
            item_id
            for item_id in item_ids or dead
            if dead[item_id].status != "locked" and item_id not in live
        }
        while True:
            result = self.answer
            assert isinstance(result, RequeueResult)
            assert possible.issuperset(result.item_ids)
            possible.difference_update(result.item_ids)
            for item_id in result.item_ids:
                fact = dead[item_id]
                fact.origin = fact.origin_id = ""
                self.model.revive(fact, node, item_id, self.now)
            self.done()
            if not result.last:
                break
            assert self.ask(Requeue(node, after=result.last), OWNER) == "ok"
        assert not possible

    @rule(fails_max=st.integers(1, 3))
    def configure(self, fails_max: int) -> None:
        """A new maximum counts from the next unlock on."""
        config = {"queue#max_deliveries": str(fails_max)}
        for node in NODES:
            assert self.ask(Configure(node, config), OWNER) == "ok"
        self.model.fails_max = fails_max

    @rule(node=nodes, rarely=st.integers(0, 3))
    def purge(self, node: str, rarely: int) -> None:
        if rarely:
            return
        self.flush()
        assert self.ask(Purge(node), OWNER) == "ok"
        for fact in self.model.facts.values():
            if fact.node == node and fact.live:
                self.model.withdraw(fact, self.now)
            elif fact.node == node and fact.status == "dead":
                fact.status = "withdrawn"

    # -- rules: commits and crashes ----------------------------------------

    @rule()
    def forget_old(self) -> None:
        self.world.old_at = self.now

    @rule()
    def flush(self) -> None:
        """Dispatch, commit and notify."""
        self.dispatch()
        self.commit()
        sent = self.world.told(NotifyItem)
        for event in sent:
            fact = self.model.facts[event.item.seq]
            assert fact.token == event.item.token, "told of a lock that has ended"
            assert fact.holder == event.to, "sent to another than its holder"
            self.tokens.append(event.item.token)
        self.told += sent

    @rule(how=st.sampled_from(("before", "after")))
    def crash(self, how: str) -> None:
        """Crash before the commit, or after it and before any notification."""
        if how == "after":
            self.dispatch()
            self.commit()
        self.model = copy.deepcopy(self.saved)
        self.world.boot()
        self.model.silent = set(WORKERS)
        self.model.gone = set()
        self.model.oversized.clear()
        self.model.turns.clear()

    def dispatch(self) -> None:
        effects = self.world.core.dispatch(self.now)
        self.model.due(self.now)
        self.gave(effects)
        # New selectors are evaluated for one item a step here, one delay on disk ends, and
        # a worker is looked for one item that is not held back.
        while any(map(self.goes_on, self.world.core.nodes.values())):
            at = self.world.core.next_at()
            assert at is not None
            assert at <= self.now, "not woken for the next items"
            effects = self.world.core.dispatch(self.now)
            self.gave(effects)
        self.model.idle(self.present, self.now)

    def goes_on(self, queue: QueueNode) -> bool:
        """Whether the next step follows at once."""
        until = queue.live.backlog.delayed_until
        return queue.deliveries.goes_on or (until is not None and until <= self.now)

    def gave(self, effects: list[QueueEffect]) -> None:
        """Check what a dispatch has given out."""
        self.world.add(effects)
        self.model.unread = {
            item.seq
            for name, queue in self.world.core.nodes.items()
            for item in self.world.live(name).values()
            if item.item_id not in queue.items and queue.live.backlog._is_delayed(item)
        }
        self.model.new_selectors = {
            (name, selector)
            for name, queue in self.world.core.nodes.items()
            for selector, view in queue.live.ready._views.items()
            if view.unclassified
        }
        for effect in effects:
            if isinstance(effect, SaveItem) and effect.item.token:
                self.model.gave(effect.item, self.present, self.now)

    def commit(self) -> None:
        old_at, disk = self.world.old_at, self.world.disk
        self.world.commit()
        if old_at is not None:
            self.model.forget(old_at, disk.all_ends())
            for fact in self.model.facts.values():
                over = fact.ended_at + self.model.keep_s <= old_at
                if fact.status == "accepted" and over and fact.seq not in disk.items:
                    fact.ended_at = -1.0
        self.save()
        disk_agrees(self.model, self.world)
        at, next_at = self.model.next_at(self.now), self.world.core.next_at()
        assert at is None or (next_at is not None and next_at <= at), "not woken"

    # -- what is always so -------------------------------------------------

    @invariant()
    def memory_agrees(self) -> None:
        for node in NODES:
            memory_agrees(self.model, self.world, node)
            counts_agree(self.world, node, self.now)

    @invariant()
    def who_was_heard_of_is_listened_to(self) -> None:
        for wishes in self.model.wishes.values():
            for jid in wishes:
                if "/" in jid and jid not in self.model.silent:
                    assert jid in self.present.get(bare(jid), {}), f"{jid} is ignored"


EXAMPLES = int(os.environ.get("QOS_EXAMPLES", "0"))


@pytest.mark.timeout(3600 if EXAMPLES else 180)
def test_nothing_is_lost_doubled_or_overtaken_whatever_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The promise of a queue, whatever happens."""
    monkeypatch.setattr(ready_items, "SLICE", 1)
    monkeypatch.setattr(requeuing, "_LOOKED_AT_MAX", 1)
    monkeypatch.setattr(item_index, "HEAD", 1)
    monkeypatch.setattr(backlog, "READ", 1)
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=EXAMPLES or 100,
            stateful_step_count=60 if EXAMPLES else 50,
            derandomize=not EXAMPLES,
            database=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
