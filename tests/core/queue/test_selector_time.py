"""The time that selectors take: bounded in each step, and paid by whoever subscribes."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from qos.core.queue import copying
from qos.core.queue.effects import NotifyItem, NotifySubscription
from qos.core.queue.item import Item
from qos.core.queue.item_names import names_of_payload
from qos.core.queue.properties import Properties
from qos.core.queue.ready_items import _SLACK, ReadyItems
from qos.core.queue.requests import Publish, SetOptions, Subscribe
from qos.core.queue.selector import Names, Selector
from qos.core.queue.selector_time import (
    ACCOUNT_S,
    FREE_S,
    RECOVERY_S,
    SLICE_S,
    STEP_S,
    SelectorTime,
)
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
    entry,
)

DEAR, CHEAP = "n >= 0", "n < 1000000"
ROOM = {**PLAIN, "queue#max_items": ""}


class Work:
    """A meter: each evaluation takes the time that is set for its selector."""

    def __init__(self) -> None:
        self.at = 0.0
        self.costs: dict[str, float] = {}
        self.evaluated: list[str] = []

    def __call__(self) -> float:
        return self.at

    def count(self, selector: str) -> int:
        """How often it was evaluated since the last call."""
        evaluated, self.evaluated = self.evaluated, []
        return evaluated.count(selector)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made, matches = Work(), Selector.matches

    def timed(self: Selector, names: Names) -> bool:
        made.at += made.costs.get(self.text, 0.0)
        made.evaluated.append(self.text)
        return matches(self, names)

    monkeypatch.setattr(Selector, "matches", timed)
    return made


def numbered(count: int, first: int = 0) -> Publish:
    items = (entry(f"i{n}", properties={"n": n}) for n in range(first, first + count))
    return Publish(NODE, tuple(items))


def settled(it: World, limit: int = 10_000) -> int:
    """The steps until no selector is to be evaluated any more."""
    for steps in range(limit):
        if not any(each.deliveries.classifying for each in it.core.nodes.values()):
            return steps
        it.flush()
    raise AssertionError("it goes on for ever")


# -- a step --------------------------------------------------------------------


def test_a_slice_of_waiting_items_ends_with_its_time(work: Work) -> None:
    """Items alone say nothing: one can cost as much as a thousand others."""
    it = World(ROOM, meter=work)
    it.ask(numbered(100), PUBLISHER)
    work.costs[DEAR] = SLICE_S / 5
    it.subscribe(BEE, 3, selector=DEAR)
    steps = 1
    while it.core.nodes[NODE].deliveries.classifying:
        assert work.count(DEAR) in {5, 6}
        assert it.given() == []
        it.flush()
        steps += 1
    assert 100 / 6 <= steps <= 20
    assert [item_id for item_id, _ in it.given()] == ["i0", "i1", "i2"]


def test_one_slice_is_for_all_nodes_and_each_has_its_turn(work: Work) -> None:
    """Otherwise as many nodes as there are would hold a turn of the loop."""
    it = World(ROOM, meter=work)
    work.costs[DEAR] = SLICE_S / 2
    for node in ("a", "b", "c"):
        it.create(node, ROOM)
        it.ask(Publish(node, numbered(4).entries), PUBLISHER)
    for node in ("a", "b", "c"):
        request = Subscribe(
            node, BEE, {"pubsub#queue_requests": "9", "queue#selector": DEAR}
        )
        it.ask(request, BEE, flush=False)
    it.flush()
    left = {"a": 4}
    while any(left.values()):
        assert work.count(DEAR) in {2, 3}
        for node in ("a", "b", "c"):
            (view,) = (
                each
                for each in it.core.nodes[node].live.ready._views.values()
                if each.selector
            )
            left[node] = len(view.unclassified)
        assert max(left.values()) - min(left.values()) <= 3
        it.flush()
    assert len(it.given()) == 12


def test_the_selectors_of_a_node_have_their_turns(work: Work) -> None:
    """A dear one does not keep the items of a cheap one for long."""
    it = World(ROOM, meter=work)
    it.ask(numbered(200), PUBLISHER)
    work.costs |= {DEAR: SLICE_S / 2, CHEAP: SLICE_S / 100}
    it.subscribe(BEE, 1, selector=DEAR)
    it.subscribe(ANT, 1, selector=CHEAP)
    steps = 0
    while not it.given():
        it.flush()
        steps += 1
    assert steps <= 6
    assert it.core.nodes[NODE].deliveries.classifying


def test_what_is_published_when_the_time_is_over_waits_for_its_slice(
    work: Work,
) -> None:
    """In the usual order, and for other workers it is there at once."""
    it = World(ROOM, meter=work)
    it.subscribe(BEE, 4, selector=DEAR)
    it.subscribe(ANT, 1)
    work.costs[DEAR] = STEP_S / 2
    it.ask(numbered(10), PUBLISHER, flush=False)
    assert work.count(DEAR) == 2
    it.flush()
    assert it.given() == [("i0", ANT)]
    urgent = entry("urgent", priority=9, properties={"n": 1})
    it.ask(Publish(NODE, (urgent,)), PUBLISHER, flush=False)
    assert work.count(DEAR) <= 3, "it goes behind the others, which wait"
    work.costs[DEAR] = SLICE_S / 20
    settled(it)
    given = it.given()
    assert ("urgent", BEE) in given
    assert [to for _, to in given].count(BEE) == 4


def test_items_that_have_gone_do_not_wait_for_a_selector() -> None:
    """A list of them would grow as long as the selector is behind."""
    items: dict[str, Item] = {}
    time = SelectorTime()
    ready = ReadyItems(items, time)
    ready.want(DEAR, "bee@x")
    time._left = 0.0
    for number in range(_SLACK + 50):
        item = items["a"] = Item(
            seq=number,
            node=NODE,
            item_id="a",
            publisher="p@x",
            digest="",
            size=1,
            published_at=1.0,
            available_at=1.0,
        )
        ready.add(item)
        ready.discard(item)
    assert len(ready._views[DEAR].unclassified) < 100


def test_taking_over_durable_locks_ends_with_its_time(work: Work) -> None:
    """The others wait for the end of their locks, as those of a silent worker do."""
    it = World({**ROOM, "queue#lock_timeout": "50"}, meter=work)
    it.subscribe(BEE, 100, durable_locks="1")
    it.ask(numbered(50), PUBLISHER)
    it.departed(BEE)
    it.given()
    work.costs[DEAR] = SLICE_S / 5
    it.subscribe(BEE_2, 100, durable_locks="1", selector=DEAR)
    assert work.count(DEAR) <= 7
    assert 5 <= len(it.given()) <= 7
    it.wait(60)
    it.heard(BEE_2)
    settled(it)
    assert len({item_id for item_id, _ in it.given()}) >= 43


# -- who pays ------------------------------------------------------------------


def ended(it: World) -> list[NotifySubscription]:
    return [one for one in it.sent if isinstance(one, NotifySubscription)]


def test_a_selector_that_has_cost_a_second_is_given_up(work: Work) -> None:
    """Its subscriber is told why, and has to wait until it may have another one."""
    it = World(ROOM, meter=work)
    it.ask(numbered(300), PUBLISHER)
    work.costs[DEAR] = FREE_S + ACCOUNT_S / 100
    it.subscribe(BEE, 3, selector=DEAR)
    it.subscribe(BEE_2, 3, selector=CHEAP)
    settled(it)
    assert 100 <= work.count(DEAR) <= 105
    (told,) = ended(it)
    assert (told.to, told.node) == (BEE, NODE)
    assert "the selectors of bee@x have taken as much time as is possible" in told.why
    assert set(it.core.nodes[NODE].subscriptions) == {BEE_2}
    assert {to for _, to in it.given()} == {BEE_2}, "its cheap one stays"
    again = Subscribe(
        NODE, BEE, {"pubsub#queue_requests": "1", "queue#selector": "n = 5"}
    )
    assert it.refused(again, BEE) == ("policy-violation", "wait", "")
    change = SetOptions(NODE, BEE_2, {"queue#selector": "n = 5"})
    assert it.refused(change, BEE_2) == ("policy-violation", "wait", "")
    it.ask(SetOptions(NODE, BEE_2, {"pubsub#queue_requests": "4"}), BEE_2)
    it.subscribe(ANT, 1, selector="n = 5")
    it.subscribe(BEE, 1)
    it.now += RECOVERY_S / 10
    it.ask(again, BEE)


def test_a_usual_selector_costs_nothing_however_many_items_there_are(
    work: Work,
) -> None:
    it = World(ROOM, meter=work)
    work.costs[CHEAP] = 0.9 * FREE_S
    it.ask(numbered(1000), PUBLISHER)
    it.subscribe(BEE, 1, selector=CHEAP)
    settled(it)
    assert work.count(CHEAP) == 1000
    assert len(it.core.selector_time._paid) == 0


def test_the_accounts_of_a_selector_share_its_cost(work: Work) -> None:
    """Only the one that has used up its second has to do without it."""
    it = World(ROOM, meter=work)
    it.subscribe(BEE, 1, selector=DEAR)
    it.subscribe(ANT, 1, selector=CHEAP)
    work.costs |= {DEAR: 0.5 + FREE_S, CHEAP: 0.8 + FREE_S}
    it.ask(numbered(1), PUBLISHER)
    settled(it)
    it.subscribe(STRANGER, 1, selector=DEAR)
    it.subscribe(f"{ANT}0", 1, selector=DEAR)
    work.costs[CHEAP] = 0.0
    it.ask(numbered(1, 1), PUBLISHER)
    settled(it)
    work.costs[DEAR] = 0.0
    assert ended(it) == [], "0.97 s, and 0.67 s"
    work.costs[DEAR] = 0.3 + FREE_S
    it.ask(numbered(1, 2), PUBLISHER)
    settled(it)
    (told,) = ended(it)
    assert told.to == f"{ANT}0"
    assert set(it.core.nodes[NODE].subscriptions) == {BEE, ANT, STRANGER}


def test_a_subscription_that_has_ended_is_not_given_up(work: Work) -> None:
    it = World(ROOM, meter=work)
    it.subscribe(BEE, 1, selector=DEAR)
    it.subscribe(ANT, 1, selector=DEAR)
    work.costs[DEAR] = 5.0
    it.ask(numbered(1), PUBLISHER, flush=False)
    it.unsubscribe(BEE)
    settled(it)
    assert [each.to for each in ended(it)] == [ANT]


# -- topics --------------------------------------------------------------------


def test_a_queue_with_a_dear_selector_misses_items_if_there_is_no_time(
    work: Work,
) -> None:
    """Its publisher and all others are not held up for it; it can read the topic."""
    it = World(meter=work)
    it.create("topic", {**PLAIN, "queue#node_type": "topic"})
    for name, selector in (("dear", DEAR), ("cheap", CHEAP)):
        it.create(name, {"queue#topic": "topic", "queue#selector": selector}, BEE)
    work.costs |= {DEAR: STEP_S / 4, CHEAP: 0.9 * FREE_S}
    it.publish(*(entry(f"i{n}", properties={"n": n}) for n in range(50)), node="topic")
    assert 4 <= work.count(DEAR) <= 5
    assert len(it.live("cheap")) == 50
    assert it.core.nodes["cheap"].node.missed == 0
    copied = len(it.live("dear"))
    assert copied + it.core.nodes["dear"].node.missed == 50
    # A step later, there is time for some more.
    it.publish(entry("later", properties={"n": 1}), node="topic")
    assert "later" in it.live("dear")


def test_a_queue_whose_account_cannot_pay_misses_items(work: Work) -> None:
    it = World(meter=work)
    it.create("topic", {**PLAIN, "queue#node_type": "topic"})
    it.create("dear", {"queue#topic": "topic", "queue#selector": DEAR}, BEE)
    work.costs[DEAR] = ACCOUNT_S + 2 * FREE_S
    for number in range(3):
        it.publish(entry(f"i{number}", properties={"n": 1}), node="topic")
    assert work.count(DEAR) == 1
    assert it.core.nodes["dear"].node.missed == 2
    it.now += RECOVERY_S
    it.flush()
    work.costs[DEAR] = 0.0
    it.publish(entry("again", properties={"n": 1}), node="topic")
    assert set(it.live("dear")) == {"i0", "again"}


def test_a_payload_is_read_once_for_all_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be a megabyte, and a hundred queues copy it."""
    read = []

    def noted(payload: str, wanted: Collection[str]) -> Properties:
        read.append(payload)
        return names_of_payload(payload, wanted)

    monkeypatch.setattr(copying, "names_of_payload", noted)
    it = World()
    it.create("topic", {**PLAIN, "queue#node_type": "topic"})
    for number in range(5):
        selector = f"xml.attr.n < {number}"
        it.create(f"q{number}", {"queue#topic": "topic", "queue#selector": selector})
    it.create("all", {"queue#topic": "topic"})
    it.publish(entry("a", payload="<x n='2'/>"), node="topic")
    assert len(read) == 1
    assert [bool(it.live(f"q{n}")) for n in range(5)] == [False] * 3 + [True] * 2
    assert it.item("a", "q3").properties == {"xml.attr.n": "2"}
    assert it.item("a", "all").properties == {}


def test_told_events_of_the_service_go_to_whoever_subscribed(work: Work) -> None:
    """An account has one subscription for all its resources, or one for each."""
    it = World(ROOM, meter=work)
    it.subscribe("bee@x", 1, by=BEE, selector=DEAR)
    work.costs[DEAR] = 5.0
    it.ask(numbered(1), PUBLISHER)
    it.ask(numbered(1, 1), OWNER)
    settled(it)
    assert [(each.to, each.jid) for each in ended(it)] == [("bee@x", "bee@x")]
    assert [one for one in it.sent if isinstance(one, NotifyItem)] == []
