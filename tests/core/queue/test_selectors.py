"""Selectors of subscriptions: each worker gets what it wants; docs/design/selector.md §5."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from qos.core.queue import ready_items
from qos.core.queue.effects import NotifyItem
from qos.core.queue.handle import handle
from qos.core.queue.item import Item, ItemOutcome, Node
from qos.core.queue.item_lifecycle import requeued
from qos.core.queue.ready_items import (
    EXCLUDERS_MAX,
    FILTERS_MAX,
    SLICE,
    ReadyItems,
)
from qos.core.queue.requests import (
    GetOptions,
    Publish,
    PublishedItem,
    Refusal,
    Requeue,
    SetOptions,
    Subscribe,
)
from qos.core.queue.results import OptionsResult
from qos.core.record import replace
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
    retraction,
)

RED, BLUE = "color = 'red'", "color = 'blue'"
NOT_HERE = ItemOutcome.MODIFIED


def colored(item_id: str, color: str, **options: Any) -> PublishedItem:
    return entry(item_id, properties={"color": color}, **options)


def wanted(it: World, selector: str, jid: str = BEE, requests: int = 100) -> list[str]:
    """The items that a new worker with this selector gets, after all steps needed."""
    it.subscribe(jid, requests, selector=selector)
    while it.core.nodes[NODE].deliveries.classifying:
        it.flush()
    return [item_id for item_id, to in it.given() if to == jid]


# -- who gets what -----------------------------------------------------------


def test_a_worker_gets_only_what_it_wants_in_the_usual_order() -> None:
    """The rest waits for others."""
    it = World(PLAIN)
    it.publish(
        colored("r1", "red"),
        colored("b1", "blue"),
        colored("r9", "red", priority=9),
        "none",
        colored("r2", "red"),
    )
    assert wanted(it, RED) == ["r9", "r1", "r2"]
    assert wanted(it, "NOT color = 'red'", ANT) == ["b1"]
    it.subscribe(STRANGER, 100)
    assert it.given() == [("none", STRANGER)]
    it.publish(colored("r3", "red"), colored("b2", "blue"), colored("g", "green"))
    assert dict(it.given()) == {"r3": STRANGER, "b2": ANT, "g": STRANGER}


def test_a_new_item_goes_to_the_one_with_the_fewest_of_those_that_want_it() -> None:
    """With or without a selector."""
    it = World(PLAIN)
    it.subscribe(BEE, 5, selector=RED)
    it.subscribe(ANT, 5)
    it.publish(*(colored(f"b{n}", "blue") for n in range(3)))
    assert {to for _, to in it.given()} == {ANT}
    it.publish(*(colored(f"r{n}", "red") for n in range(3)))
    assert [to for _, to in it.given()] == [BEE, BEE, BEE]


def test_the_last_holder_gets_it_again_only_if_nobody_else_wants_it() -> None:
    """Another worker that does not want it is none."""
    it = World(PLAIN)
    it.subscribe(BEE, 1, selector=RED)
    it.subscribe(ANT, 1, selector=BLUE)
    it.publish(colored("a", "red"))
    it.unlock("a", BEE)
    assert it.item("a").holder == BEE
    it.subscribe(STRANGER, 1)
    it.unlock("a", BEE)
    assert it.item("a").holder == STRANGER


def test_a_selector_of_what_changes_is_evaluated_at_each_redelivery() -> None:
    """The delivery count is the only thing of an item that changes."""
    it = World(PLAIN)
    it.subscribe(BEE, selector="NOT JMSRedelivered")
    it.subscribe(ANT, selector="JMSXDeliveryCount > 1")
    it.publish("a")
    assert it.item("a").holder == BEE
    it.unlock("a", BEE)
    assert it.item("a").holder == BEE, "a release does not count"
    it.fail("a", BEE)
    assert it.item("a").holder == ANT
    it.departed(ANT)
    assert it.item("a").holder == "", "BEE does not want it any more"


def test_a_requeued_item_is_as_it_was_at_first() -> None:
    """Even for a selector of the one thing that is new: it does not expire."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.publish(entry("a", ttl=100.0))
    assert wanted(it, "JMSExpiration > 0") == ["a"]
    it.fail("a", BEE)
    assert it.live() == {}
    it.ask(Requeue(NODE, ()), OWNER)
    assert it.item("a").holder == ""
    assert wanted(it, "JMSExpiration = 0", ANT) == ["a"]


def test_old_entries_of_a_requeued_item_do_not_count() -> None:
    """It has its old place again, and its old entries may still be in the heaps."""
    items: dict[str, Item] = {}
    ready = ReadyItems(items)
    ready.want("JMSExpiration > 0", "bee@x")
    item = items["a"] = Item(
        seq=1,
        node=NODE,
        item_id="a",
        publisher="p@x",
        digest="",
        size=1,
        published_at=1.0,
        available_at=1.0,
        expires_at=9.0,
    )
    ready.add(item)
    ready.discard(item)
    node = Node(name=NODE, identity="i", created_at=0.0)
    letter = items["a"] = requeued(item, node=node, item_id="a")
    ready.add(letter)
    assert ready.pop([ready.kind_of("JMSExpiration > 0", BEE)]) is None
    assert ready.pop([ready.kind_of("", BEE)]) is letter


def test_a_durable_lock_is_taken_over_only_by_one_that_wants_the_item() -> None:
    """By selector it would never have got it."""
    it = World(PLAIN)
    it.subscribe(BEE, 5, durable_locks="1")
    it.publish(colored("r", "red"), colored("b", "blue"))
    it.departed(BEE)
    it.subscribe(BEE_2, 5, durable_locks="1", selector=RED)
    assert (it.item("r").holder, it.item("b").holder) == (BEE_2, BEE)


# -- what it may be ------------------------------------------------------------


def refusal_of(it: World, selector: str, jid: str = BEE) -> Refusal:
    options = {"pubsub#queue_requests": "1", "queue#selector": selector}
    with pytest.raises(Refusal) as caught:
        handle(it.core, Subscribe(NODE, jid, options), jid, it.now)
    return caught.value


def test_a_bad_selector_is_refused_with_its_position() -> None:
    """It can be corrected only then."""
    it = World(PLAIN)
    request = Subscribe(
        NODE, BEE, {"pubsub#queue_requests": "1", "queue#selector": "n >"}
    )
    assert it.refused(request, BEE) == ("not-acceptable", "modify", "invalid-options")
    assert str(refusal_of(it, "n >")) == (
        "queue#selector: expected a value, found the end (at character 4)"
    )
    it.subscribe(BEE, selector=RED)
    change = SetOptions(NODE, BEE, {"queue#selector": "1 = 'a'"})
    assert it.refused(change, BEE) == ("not-acceptable", "modify", "invalid-options")


def test_the_options_show_the_selector_and_change_it() -> None:
    """And other changes leave it as it is."""
    it = World(PLAIN)
    it.publish(colored("r", "red"), colored("b", "blue"))
    assert wanted(it, f"  {RED} ") == ["r"]
    it.ask(SetOptions(NODE, BEE, {"pubsub#queue_requests": "7"}), BEE)
    shown = it.ask(GetOptions(NODE, BEE), BEE)
    assert isinstance(shown, OptionsResult)
    assert shown.subscription.selector == RED
    it.ask(SetOptions(NODE, BEE, {"queue#selector": ""}), BEE)
    assert it.given() == [("b", BEE)]


def test_a_node_has_only_so_many_selectors() -> None:
    """Each is evaluated for each item. The same one counts once."""
    it = World(PLAIN)
    for number in range(FILTERS_MAX):
        it.subscribe(f"bee{number}@x/1", selector=f"n = {number}")
    request = Subscribe(
        NODE, ANT, {"pubsub#queue_requests": "1", "queue#selector": "n = 99"}
    )
    assert it.refused(request, ANT) == ("resource-constraint", "wait", "")
    it.subscribe(ANT, selector="n = 3")
    change = SetOptions(NODE, ANT, {"queue#selector": "n = 99"})
    assert it.refused(change, ANT) == ("resource-constraint", "wait", "")
    # Its own selector ends with the change.
    it.ask(SetOptions(NODE, "bee0@x/1", {"queue#selector": "n = 99"}), "bee0@x/1")
    it.unsubscribe("bee1@x/1")
    it.ask(SetOptions(NODE, ANT, {"queue#selector": "n = 100"}), ANT)
    it.publish(entry("a", properties={"n": 100}), entry("b", properties={"n": 99}))
    assert dict(it.given()) == {"a": ANT, "b": "bee0@x/1"}


def test_a_selector_survives_a_restart() -> None:
    """It is evaluated again for what is there."""
    it = World(PLAIN)
    it.subscribe(BEE, 9, selector=RED)
    it.departed(ANT)
    it.publish(colored("b", "blue"), *(colored(f"r{n}", "red") for n in range(20)))
    assert len(it.given()) == 9
    it.boot()
    queue = it.core.nodes[NODE]
    assert queue.deliveries.classifying
    assert queue.subscriptions.is_classifying(BEE)
    assert not queue.subscriptions.is_classifying(ANT), "it is no subscriber"
    it.heard(BEE)
    it.retract("r3", BEE)
    assert ("r9", BEE) in it.given()
    assert it.item("b").holder == ""


# -- a new selector --------------------------------------------------------------


def test_a_new_selector_is_evaluated_in_slices() -> None:
    """The loop is never held for long; nothing is given out of turn meanwhile."""
    it = World({**PLAIN, "queue#max_items": ""}, paged=False)
    count = 2 * SLICE + 500
    it.publish(*(entry(f"i{n}", properties={"n": n % 100}) for n in range(count)))
    it.publish(entry("last", priority=9, properties={"n": 7}))
    it.subscribe(BEE, 3, selector="n = 7")
    steps = 1
    while it.core.nodes[NODE].deliveries.classifying:
        assert it.core.next_at() == it.now
        assert it.given() == []
        assert it.stats()["unmatched"] == 0, "not known yet"
        if steps == 2:
            # What comes, goes or changes meanwhile is not forgotten.
            new = entry("new", priority=8, properties={"n": 7})
            it.ask(Publish(NODE, (new,)), PUBLISHER, flush=False)
            it.ask(retraction("i7"), PUBLISHER, flush=False)
            more = {"pubsub#queue_requests": "4"}
            it.ask(SetOptions(NODE, BEE, more), BEE, flush=False)
        it.flush()
        steps += 1
    assert steps >= 3
    assert [item_id for item_id, _ in it.given()] == ["last", "new", "i107", "i207"]
    assert it.core.next_at() != it.now
    assert it.stats()["unmatched"] == count - 25


def test_a_place_in_the_marks_that_is_used_again_says_nothing_old() -> None:
    """The marks of items are not searched when a selector ends."""
    it = World(PLAIN)
    it.subscribe(STRANGER, 1, selector="n = 0")
    it.publish(*(colored(f"r{n}", "red") for n in range(3)), colored("b", "blue"))
    assert wanted(it, RED, requests=1) == ["r0"]
    it.unsubscribe(BEE)
    assert wanted(it, BLUE, ANT) == ["b"]
    it.unsubscribe(ANT)
    it.unsubscribe(STRANGER)
    assert it.core.nodes[NODE].live.ready._marks == {}
    assert wanted(it, RED, BEE_2) == ["r1", "r2"]


def test_items_that_no_selector_takes_are_counted() -> None:
    """Otherwise nobody would know why they wait."""
    it = World(PLAIN)
    it.publish("none", colored("b", "blue"), entry("later", delay=9.0))
    assert it.stats()["unmatched"] == 0, "there is no subscriber"
    assert wanted(it, RED) == []
    assert it.stats()["unmatched"] == 2
    it.wait(10)
    assert it.stats()["unmatched"] == 3
    assert wanted(it, BLUE, ANT, requests=1) == ["b"]
    assert it.stats()["unmatched"] == 2
    it.publish(colored("b2", "blue"))
    assert it.stats()["unmatched"] == 2, "ANT takes it when it has time"
    it.boot()
    it.absent(BEE)
    it.absent(ANT)
    assert it.stats()["subscribers"] == 0
    assert it.stats()["unmatched"] == 0
    it.subscribe(STRANGER)
    assert it.stats()["unmatched"] == 0


# -- parts of the payload ----------------------------------------------------------


def test_parts_of_the_payload_are_read_when_it_is_published() -> None:
    """If a selector of the node wants to know them at that time."""
    it = World(PLAIN)
    order = "<order xmlns='urn:shop' year='2024'><sum>9.50</sum></order>"
    it.publish(entry("before", payload=order))
    assert it.item("before").properties == {}
    assert wanted(it, "xml.attr.year > 2023 AND xml.text.sum < 10") == []
    it.publish(
        entry("a", payload=order, properties={"n": 1}),
        entry("old", payload="<order xmlns='urn:shop' year='1999'/>"),
        PublishedItem(item_id="empty", payload="", digest="", size=0),
    )
    assert it.given() == [("a", BEE)]
    assert it.item("a").properties == {
        "n": 1,
        "xml.attr.year": "2024",
        "xml.text.sum": "9.50",
    }
    assert it.disk.items[it.item("a").seq] == it.item("a")
    it.unsubscribe(BEE)
    it.publish(entry("after", payload=order))
    assert it.item("after").properties == {}


# -- what it costs ---------------------------------------------------------------------


def calls_of(step: Callable[[], object]) -> int:
    """How many functions are called, Python's own ones too."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


def item_of(number: int, **changes: Any) -> Item:
    plain = Item(
        seq=number,
        node=NODE,
        item_id=f"i{number}",
        publisher="p@x",
        digest="",
        size=1,
        published_at=1.0,
        available_at=1.0,
        properties={"n": number},
    )
    return replace(plain, **changes)


def filled(count: int) -> tuple[ReadyItems, dict[str, Item]]:
    """Ready items, each passing some of 32 selectors, hardly two the same ones."""
    items: dict[str, Item] = {}
    ready = ReadyItems(items)
    for number in range(count):
        bits = {f"bit{place}": number >> place & 1 for place in range(16)}
        item = items[f"i{number}"] = item_of(number, properties=bits)
        ready.add(item)
    for place in range(FILTERS_MAX):
        ready.want(f"bit{place % 16} = {place // 16}", "bee@x")
    while ready.classifying:
        ready.classify()
    return ready, items


def test_the_next_of_many_items_for_many_selectors_is_found_at_once() -> None:
    """32 selectors and 3,000 items cost what they cost with 200 items."""
    calls = {}
    for count in (200, 3_000):
        ready, items = filled(count)
        kinds = [ready.kind_of(each, BEE) for each in ready._views]
        ready.pop(kinds)

        def step(ready: ReadyItems = ready, items: dict[str, Item] = items) -> None:
            item = ready.pop(kinds)  # noqa: B023 - called at once
            assert item is not None
            del items[item.item_id]
            ready.discard(item)
            assert [ready.takes(kind, item) for kind in kinds]  # noqa: B023

        calls[count] = max(calls_of(step) for _ in range(20))
    assert calls[3_000] <= 1.2 * calls[200], calls
    # Each is a tenth of a microsecond.
    assert calls[3_000] < 500, calls


# -- excluded workers -------------------------------------------------------------------


def exclude(it: World, item_id: str, jid: str) -> None:
    it.unlock(item_id, jid, "", NOT_HERE, not_here=True)


def test_a_worker_that_some_items_exclude_gets_the_others_in_order() -> None:
    """By priority, whether they exclude somebody else or nobody."""
    it = World(PLAIN)
    it.subscribe(ANT)
    it.publish(entry("for bee", priority=8))
    exclude(it, "for bee", ANT)
    it.publish("for all")
    it.unsubscribe(ANT)
    it.retract("for all", ANT)
    it.subscribe(BEE)
    exclude(it, "for bee", BEE)
    it.publish(entry("low", priority=1), entry("high", priority=9))
    assert it.item("high").holder == BEE
    exclude(it, "high", BEE)
    assert it.item("low").holder == BEE
    it.subscribe(ANT)
    assert it.item("high").holder == ANT


def test_exclusions_and_selectors_go_together() -> None:
    """An item that excludes somebody is for those others that want it."""
    it = World(PLAIN)
    it.subscribe(BEE, 5, selector=RED)
    it.publish(colored("r", "red"))
    exclude(it, "r", BEE)
    it.subscribe(ANT, 5, selector=BLUE)
    assert it.item("r").holder == ""
    assert wanted(it, "color IS NOT NULL", BEE_2) == ["r"]
    exclude(it, "r", BEE_2)
    assert it.item("r").holder == ""
    assert wanted(it, "", STRANGER) == ["r"]


def test_more_excluded_workers_than_are_followed_get_only_what_excludes_nobody() -> (
    None
):
    """An item still never comes back to a worker that it excludes."""
    items: dict[str, Item] = {}
    ready = ReadyItems(items)

    def add(number: int, *excluded: str) -> None:
        item = item_of(number, order=number + 1, excluded=frozenset(excluded))
        items[item.item_id] = item
        ready.add(item)

    def next_for(*jids: str) -> str:
        item = ready.pop([ready.kind_of("", jid) for jid in jids])
        return item.item_id if item is not None else ""

    jids = [f"bee@x/{number:03}" for number in range(EXCLUDERS_MAX + 1)]
    for number, jid in enumerate(jids):
        add(number, jid)
    *followed, late = jids
    ready._forget_excluders()
    assert next_for(late) == ""
    assert not ready.takes(ready.kind_of("", late), items["i0"])
    add(900)
    assert ready.takes(ready.kind_of("", late), items["i900"])
    assert next_for(late) == "i900"
    assert next_for(late, followed[0], followed[1]) == "i0"
    del items["i0"]
    assert next_for(followed[1]) == "i2"
    # Most of them have nothing to do with an item any more: there is room again.
    for each in set(items) - {"i1", f"i{EXCLUDERS_MAX}"}:
        del items[each]
    for number in range(EXCLUDERS_MAX + 5):
        add(1000 + number, jids[1], "other@x/1")
    add(2000, "another@x/1")
    assert next_for(late) == "i1"


def test_what_nobody_gets_because_too_many_are_excluded_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its worker is not excluded, and is not followed either."""
    monkeypatch.setattr(ready_items, "EXCLUDERS_MAX", 1)
    it = World(PLAIN)
    it.subscribe(ANT)
    it.publish("not ant")
    exclude(it, "not ant", ANT)
    it.unsubscribe(ANT)
    it.publish(entry("not bee", priority=9))
    it.subscribe(BEE)
    exclude(it, "not bee", BEE)
    assert [it.item(each).holder for each in ("not ant", "not bee")] == ["", ""]
    assert it.stats()["excluded"] == 2
    it.subscribe(STRANGER, 9)
    assert it.stats()["excluded"] == 0


def test_excluded_workers_are_forgotten_when_their_items_are_gone() -> None:
    """So that there is room for others."""
    it = World(PLAIN)
    for number in range(3 * EXCLUDERS_MAX):
        jid = f"bee@x/{number}"
        it.subscribe(jid)
        it.publish(f"a{number}")
        exclude(it, f"a{number}", jid)
        it.retract(f"a{number}", PUBLISHER)
        it.unsubscribe(jid)
    assert len(it.core.nodes[NODE].live.ready._excluders) <= EXCLUDERS_MAX + 2
    it.subscribe(BEE)
    it.publish("c")
    exclude(it, "c", BEE)
    assert it.core.nodes[NODE].live.ready._excluders[BEE]


def test_many_different_exclusions_do_not_make_dispatch_slow() -> None:
    """One account with many resources can make as many sets as there are items."""
    calls = {}
    for count in (300, 6000):
        items: dict[str, Item] = {}
        ready = ReadyItems(items)
        for number in range(count):
            # By its bits: no two items exclude the same.
            excluded = frozenset(
                f"bee@x/{bit}" for bit in range(40) if number + 1 >> bit & 1
            )
            item = item_of(number, order=number + 1, excluded=excluded)
            items[item.item_id] = item
            ready.add(item)
        kinds = [ready.kind_of("", f"bee@x/{bit}") for bit in (0, 1, 5)]
        kinds.append(ready.kind_of("", ANT))

        def step(ready: ReadyItems = ready, items: dict[str, Item] = items) -> None:
            item = ready.pop(kinds[:3])  # noqa: B023 - called at once
            assert item is not None
            del items[item.item_id]
            other = ready.pop(kinds)  # noqa: B023
            assert other is not None
            del items[other.item_id]

        step()
        calls[count] = max(calls_of(step) for _ in range(20))
    assert calls[6000] <= 1.5 * calls[300], calls


def test_heaps_are_cleaned_with_all_that_is_in_them() -> None:
    """Outdated entries go, the others keep their order and their workers."""
    items: dict[str, Item] = {}
    ready = ReadyItems(items)
    ready.want("n > 5", "bee@x")
    for number in range(20):
        excluded = frozenset({BEE}) if number % 2 else frozenset[str]()
        item = items[f"i{number}"] = item_of(number, order=1, excluded=excluded)
        ready.add(item)
    for number in range(0, 20, 3):
        del items[f"i{number}"]
    for _ in range(520):  # so many that the heaps are cleaned
        for each in ("i1", "i2", "i10", "i13"):
            ready.add(items[each])
    heaps = [
        heap
        for view in ready._views.values()
        for heap in (view.plain, view.excluding, *view.own.values())
    ]
    assert len(heaps) == 6
    assert all(len(heap) < 1100 for heap in heaps)
    for selector, holder, expected in (
        ("n > 5", ANT, ["i7", "i8", "i10"]),
        ("", BEE, ["i2", "i4", "i14"]),
    ):
        kind = ready.kind_of(selector, holder)
        for wanted_id in expected:
            again = ready.pop([kind])
            assert again is not None
            assert again.item_id == wanted_id
            del items[again.item_id]


def test_told_events_name_what_was_given() -> None:
    """The event has the properties of its item."""
    it = World(PLAIN)
    it.subscribe(BEE, selector=RED)
    it.publish(colored("a", "red"))
    (event,) = it.told(NotifyItem)
    assert event.item.properties == {"color": "red"}
