"""Topics: copies in the commit of the item, what is kept for readers, who may subscribe."""

import itertools

import pytest

from qos.core.queue import topics
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import NotifyNode, RemoveItem, SaveItem
from qos.core.queue.item import Affiliation, Item
from qos.core.queue.requests import (
    Configure,
    Create,
    Delete,
    GetConfigure,
    Items,
    Publish,
    Purge,
    SetAffiliations,
    Subscribe,
)
from qos.core.queue.results import ItemsResult, PublishResult
from qos.core.strings import ID_CHARS_MAX
from queue_world import (
    ANT,
    BEE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
    entry,
    retraction,
)

TOPIC = "prices"
NOT_ACCEPTABLE = ("not-acceptable", "modify", "")
FORBIDDEN = ("forbidden", "auth", "")


def world(
    config: dict[str, str] | None = None, *, bounds: QueueBounds | None = None
) -> World:
    """A world with a topic."""
    it = World(bounds=bounds)
    it.create(TOPIC, {**PLAIN, "queue#node_type": "topic", **(config or {})})
    return it


def subscribe(it: World, name: str, by: str = BEE, **config: str) -> None:
    """Create a queue that copies from the topic."""
    fields = {f"queue#{field}": value for field, value in config.items()}
    it.create(name, {"queue#topic": TOPIC, "queue#backoff": "0", **fields}, by)


def read(
    it: World, *, after: int = 0, most: int = 10, last: bool = False
) -> ItemsResult:
    """Items of the topic."""
    request = Items(node=TOPIC, after=str(after), max_items=most, last=last)
    result = it.ask(request, ANT)
    assert isinstance(result, ItemsResult)
    return result


def ids(items: ItemsResult | dict[str, Item]) -> list[str]:
    """Their ids, in order."""
    if isinstance(items, dict):
        return sorted(items)
    return [each.item_id for each in items.items]


# -- copies ----------------------------------------------------------------


def test_an_item_is_in_the_topic_and_in_each_queue_that_subscribes() -> None:
    """The same for each of them, whoever took it elsewhere."""
    it = world()
    subscribe(it, "audit")
    subscribe(it, "mail", ANT)
    it.publish(entry("a", priority=7, properties={"n": 1}), "b", node=TOPIC)
    for node in (TOPIC, "audit", "mail"):
        assert ids(it.live(node)) == ["a", "b"]
    item, copy = it.item("a", TOPIC), it.item("a", "audit")
    assert it.disk.payloads[copy.seq] == it.disk.payloads[item.seq] == "<x>a</x>"
    for name in (
        "publisher",
        "digest",
        "size",
        "priority",
        "published_at",
        "properties",
    ):
        assert getattr(copy, name) == getattr(item, name), name
    it.subscribe(BEE, 5, node="audit")
    assert sorted(it.given()) == [("a", BEE), ("b", BEE)]
    it.retract("a", BEE, node="audit")
    assert (ids(it.live("audit")), ids(it.live("mail"))) == (["b"], ["a", "b"])


def test_the_copies_are_in_the_commit_of_the_item() -> None:
    """A crash leaves all of them, or none and no item."""
    it = world()
    subscribe(it, "audit")
    it.ask(Publish(TOPIC, (entry("a"),)), PUBLISHER, flush=False)
    saved = [each for each in it.pending if isinstance(each, SaveItem)]
    assert [each.item.node for each in saved] == [TOPIC, "audit"]
    it.boot()
    assert (it.live(TOPIC), it.live("audit")) == ({}, {})
    it.publish("a", node=TOPIC)
    it.boot()
    assert (ids(it.live(TOPIC)), ids(it.live("audit"))) == (["a"], ["a"])


def test_a_worker_gets_its_copy_in_the_same_step() -> None:
    """As an item that is published to the queue itself."""
    it = world()
    subscribe(it, "audit")
    it.subscribe(BEE, node="audit")
    it.publish("a", node=TOPIC)
    assert it.given() == [("a", BEE)]


def test_a_repeat_makes_no_second_copy() -> None:
    """The topic decides what is new, also after the copy has been accepted."""
    it = world()
    subscribe(it, "audit")
    it.subscribe(BEE, 5, node="audit")
    it.publish("a", node=TOPIC)
    it.retract("a", BEE, node="audit")
    repeated = PublishResult(TOPIC, ("a", "b"), repeated=("a",))
    assert it.publish("a", "b", node=TOPIC) == repeated
    assert ids(it.live("audit")) == ["b"]
    it.publish("a", "b", node=TOPIC)
    assert ids(it.live("audit")) == ["b"]


def test_a_subscription_begins_with_the_next_item() -> None:
    """Items that are in the topic already are for readers."""
    it = world()
    it.publish("a", node=TOPIC)
    subscribe(it, "audit")
    it.publish("b", node=TOPIC)
    assert ids(it.live("audit")) == ["b"]
    it.ask(Delete("audit"), BEE)
    it.publish("c", node=TOPIC)
    assert ids(it.live(TOPIC)) == ["a", "b", "c"]


def test_an_id_that_the_topic_has_forgotten_may_still_live_in_a_queue() -> None:
    """The copy has another id then, and both are there."""
    it = world({"queue#keep_items": "1", "queue#dedupe_window": "0"})
    subscribe(it, "audit")
    long = "x" * ID_CHARS_MAX
    it.publish("a", long, node=TOPIC)
    it.publish(entry("a", "new"), "c", node=TOPIC)
    it.publish(entry(long, "new"), node=TOPIC)
    assert len(it.live("audit")) == 5
    assert any(each.startswith("a#") for each in it.live("audit"))
    assert max(map(len, it.live("audit"))) == ID_CHARS_MAX


def test_times_go_along() -> None:
    """The ttl is the publisher's, else the topic's, else the queue's."""
    it = world({"queue#ttl": "50"})
    subscribe(it, "audit", ttl="20")
    it.publish(entry("a", ttl=5.0), entry("b", delay=3.0), node=TOPIC)
    assert it.item("a", "audit").expires_at == 1005.0
    assert it.item("b", "audit").expires_at == 1050.0
    assert it.item("b", "audit").available_at == 1003.0
    it.ask(Configure(TOPIC, {"queue#ttl": ""}), OWNER)
    it.publish("c", node=TOPIC)
    assert it.item("c", "audit").expires_at == 1020.0
    assert it.item("c", TOPIC).expires_at is None


@pytest.mark.parametrize(
    ("selector", "copied"),
    [
        ("", ["a", "b", "c"]),
        ("n > 1", ["b"]),
        ("xml.attr.kind = 'big'", ["c"]),
        ("JMSPriority = 9 OR n = 1", ["a", "c"]),
    ],
)
def test_a_condition_is_evaluated_when_copying(
    selector: str, copied: list[str]
) -> None:
    """An unwanted item takes no room in a queue."""
    it = world()
    subscribe(it, "audit", selector=selector)
    it.publish(
        entry("a", properties={"n": 1}),
        entry("b", properties={"n": 2}),
        entry("c", priority=9, payload="<x kind='big'/>"),
        node=TOPIC,
    )
    assert ids(it.live("audit")) == copied
    assert it.stats("audit", by=BEE)["missed"] == 0


def test_a_condition_can_be_changed_for_what_comes() -> None:
    """Unlike the topic."""
    it = world()
    subscribe(it, "audit", selector="n = 1")
    it.ask(Configure("audit", {"queue#selector": "n = 2"}), BEE)
    it.boot()
    it.publish(
        entry("a", properties={"n": 1}), entry("b", properties={"n": 2}), node=TOPIC
    )
    assert ids(it.live("audit")) == ["b"]


def test_workers_with_selectors_read_payloads_of_copies() -> None:
    """Their names are looked up when the item is copied."""
    it = world()
    subscribe(it, "audit")
    it.subscribe(BEE, 5, node="audit", selector="xml.element = 'x'")
    it.publish("a", entry("b", payload="<y/>"), node=TOPIC)
    assert it.given() == [("a", BEE)]


def test_a_full_queue_misses_an_item_and_counts_it() -> None:
    """Else one subscriber that sleeps would stop the publisher and all others."""
    it = world()
    subscribe(it, "small", max_items="1")
    subscribe(it, "tiny", max_bytes="1")
    subscribe(it, "audit")
    assert it.publish("a", "b", node=TOPIC) == PublishResult(TOPIC, ("a", "b"))
    assert [ids(it.live(each)) for each in ("small", "tiny", "audit")] == [
        ["a"],
        [],
        ["a", "b"],
    ]
    it.boot()
    counts = [it.stats(each, by=BEE)["missed"] for each in ("small", "tiny", "audit")]
    assert counts == [1, 2, 0]


# -- what a topic keeps ----------------------------------------------------


def test_a_topic_is_read_by_seq() -> None:
    """`first`, `last` and `next`, without any state of the reader."""
    it = world()
    assert (ids(read(it)), ids(read(it, last=True))) == ([], [])
    it.publish("a", "b", "c", node=TOPIC)
    first = read(it, most=1)
    assert (ids(first), first.count, first.dropped) == (["a"], 3, 0)
    following = read(it, after=first.items[0].seq, most=1)
    assert ids(following) == ["b"]
    last = read(it, most=1, last=True)
    assert ids(last) == ["c"]
    assert ids(read(it, after=last.items[0].seq)) == []
    assert ids(read(it, after=first.items[0].seq, last=True)) == ["b", "c"]


def test_the_last_items_of_a_queue() -> None:
    """As of a topic."""
    it = World(PLAIN)
    it.publish("a", "b", "c")
    result = it.ask(Items(node="orders", max_items=2, last=True), OWNER)
    assert isinstance(result, ItemsResult)
    assert ids(result) == ["b", "c"]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ({"keep_items": "2"}, ["c", "d"]),
        ({"keep_items": "0"}, []),
        ({"max_bytes": "16"}, ["c", "d"]),
        ({"max_bytes": "5"}, []),
        ({"max_items": "1"}, ["a", "b", "c", "d"]),
    ],
)
def test_the_oldest_items_are_dropped(
    keep: dict[str, str], expected: list[str]
) -> None:
    """A publish is never refused for that, whatever its size."""
    it = world({f"queue#{name}": value for name, value in keep.items()})
    subscribe(it, "audit")
    it.publish("a", "b", "c", node=TOPIC)
    it.publish("d", node=TOPIC)
    for _ in range(2):
        assert ids(read(it)) == expected
        assert ids(it.live("audit")) == ["a", "b", "c", "d"]
        it.boot()
    assert {
        item.item_id for item in it.disk.items.values() if item.node == TOPIC
    } == set(expected)


def test_a_reader_can_tell_that_it_has_missed_items() -> None:
    """If what was dropped is later than what it has read; also after a restart."""
    it = world({"queue#keep_items": "2"})
    it.publish("a", node=TOPIC)
    seen = read(it).items[0].seq
    it.publish("b", "c", node=TOPIC)
    assert read(it, after=seen).dropped == seen
    it.publish("d", node=TOPIC)
    it.boot()
    result = read(it, after=seen)
    assert (ids(result), result.dropped > seen) == (["c", "d"], True)


def test_an_item_is_kept_for_its_time() -> None:
    """And the service wakes up to drop it."""
    it = world({"queue#keep_seconds": "10"})
    it.publish("a", node=TOPIC)
    it.wait(4)
    it.publish("b", node=TOPIC)
    assert it.core.next_at() == 1010.0
    it.wait(6)
    assert (ids(it.live(TOPIC)), it.core.next_at()) == (["b"], 1014.0)
    it.ask(Configure(TOPIC, {"queue#keep_seconds": "7"}), OWNER)
    assert it.core.next_at() == 1011.0
    it.wait(1)
    assert it.live(TOPIC) == {}


def test_an_item_that_expires_is_no_dead_letter() -> None:
    """Nobody had to take it from the topic. It is not told as dropped either."""
    it = world({"queue#ttl": "10"})
    it.publish(entry("a", delay=2.0), entry("b", ttl=5.0), "c", node=TOPIC)
    assert it.stats(TOPIC)["delayed"] == 1
    it.wait(3)
    it.wait(2)
    assert ids(it.live(TOPIC)) == ["a", "c"]
    it.wait(5)
    assert (it.live(TOPIC), it.dead(TOPIC), read(it).dropped) == ({}, [], 0)


def test_an_item_can_be_withdrawn() -> None:
    """Its copies stay: they are other items."""
    it = world()
    subscribe(it, "audit")
    it.publish("a", "b", "c", node=TOPIC)
    it.ask(retraction("b", node=TOPIC), PUBLISHER)
    assert (ids(read(it)), ids(it.live("audit"))) == (["a", "c"], ["a", "b", "c"])
    it.ask(Purge(TOPIC), OWNER)
    assert (ids(read(it)), ids(it.live("audit"))) == ([], ["a", "b", "c"])
    it.publish("d", node=TOPIC)
    assert ids(read(it)) == ["d"]


def test_an_id_is_known_for_the_window_after_it_was_dropped() -> None:
    """As in a queue after an item has ended."""
    it = world({"queue#keep_items": "0", "queue#dedupe_window": "60"})
    subscribe(it, "audit")
    it.publish("a", node=TOPIC)
    it.wait(59)
    assert it.publish("a", node=TOPIC) == PublishResult(TOPIC, ("a",), repeated=("a",))
    assert ids(it.live("audit")) == ["a"]
    it.wait(1)
    assert it.publish("a", node=TOPIC) == PublishResult(TOPIC, ("a",))


# -- who may, and what ends ------------------------------------------------


def test_no_worker_subscribes_to_a_topic() -> None:
    """The error names what it is, and what to do."""
    it = world()
    options = {"pubsub#queue_requests": "1"}
    refused = ("feature-not-implemented", "cancel", "unsupported")
    assert it.refused(Subscribe(TOPIC, BEE, options), BEE) == refused


@pytest.mark.parametrize(
    ("config", "by"),
    [
        ({"queue#topic": "nowhere"}, BEE),
        ({"queue#topic": "orders"}, BEE),
        ({"queue#topic": "hidden"}, BEE),
        ({"queue#topic": TOPIC, "queue#node_type": "topic"}, BEE),
        ({"queue#topic": TOPIC, "queue#selector": "n >"}, BEE),
        ({"queue#selector": "n = 1"}, BEE),
        ({"queue#node_type": "pipe"}, BEE),
        ({"queue#keep_items": "100001"}, BEE),
        ({"queue#dead_letter_node": TOPIC}, BEE),
    ],
)
def test_a_configuration_that_cannot_be(config: dict[str, str], by: str) -> None:
    """Nothing is created."""
    it = world()
    it.create("orders", PLAIN)
    it.create("hidden", {"queue#node_type": "topic"})
    assert it.refused(Create("new", config), by) == NOT_ACCEPTABLE


@pytest.mark.parametrize(
    ("node", "change"),
    [
        (TOPIC, {"queue#node_type": "queue"}),
        ("audit", {"queue#node_type": "topic"}),
        ("audit", {"queue#topic": ""}),
        ("audit", {"queue#topic": "other"}),
        ("orders", {"queue#topic": TOPIC}),
    ],
)
def test_what_a_node_is_stays(node: str, change: dict[str, str]) -> None:
    """Its items and its queues would have no meaning."""
    it = world()
    it.create("other", {**PLAIN, "queue#node_type": "topic"}, BEE)
    subscribe(it, "audit")
    it.create("orders", PLAIN, BEE)
    by = OWNER if node == TOPIC else BEE
    assert it.refused(Configure(node, change), by) == NOT_ACCEPTABLE
    whole = {
        "queue#topic": TOPIC,
        "queue#node_type": "queue",
        "queue#lock_timeout": "5",
    }
    it.ask(Configure("audit", whole), BEE)


@pytest.mark.parametrize(
    ("name", "topic", "may"),
    [
        (f"subscription/{TOPIC}/bee@x/n", TOPIC, True),
        (f"subscription/{TOPIC}/bee@x/a/b", TOPIC, True),
        (f"subscription/{TOPIC}/ant@y/n", TOPIC, False),
        ("subscription/other/bee@x/n", TOPIC, False),
        (f"subscription/{TOPIC}/bee@x/n", "", False),
        ("subscription/x", "", False),
        ("subscriptions/x", "", True),
        ("x/subscription/", TOPIC, True),
        # The account of the first one could be taken for a part of the topic.
        ("subscription/a%2Fant@y/bee@x/n", "a/ant@y", True),
        ("subscription/a/ant@y/bee@x/n", "a/ant@y", False),
        ("subscription/a%252F/bee@x/n", "a%2F", True),
    ],
)
def test_the_names_of_subscriptions_belong_to_their_accounts(
    name: str, topic: str, may: bool
) -> None:
    """They can be told in advance, so anybody could be the first to take them."""
    it = world()
    for each in ("other", "a/ant@y", "a%2F"):
        it.create(each, {**PLAIN, "queue#node_type": "topic"})
    request = Create(name, {"queue#topic": topic})
    if may:
        it.ask(request, BEE)
    else:
        assert it.refused(request, BEE) == NOT_ACCEPTABLE
    assert (name in it.core.nodes) is may


def test_the_name_of_a_subscription_tells_its_topic_and_its_account() -> None:
    """No two of them have one name."""
    parts = ("a", "a/b@c", "b@c", "%", "/", "%2F")
    accounts = ("b@c", "d@e")
    given = list(itertools.product(parts, accounts, parts))
    assert len({topics.subscription_name(*each) for each in given}) == len(given)


def test_to_subscribe_needs_no_right_to_create() -> None:
    """It needs the right to subscribe to the topic, and counts for the account."""
    it = world(bounds=QueueBounds(nodes_per_account=2))
    it.creators = it.core.creators = {"boss@x"}
    assert it.refused(Create("mine", {"queue#topic": " "}), BEE) == FORBIDDEN
    subscribe(it, "one")
    subscribe(it, "two")
    full = ("resource-constraint", "wait", "")
    assert it.refused(Create("three", {"queue#topic": TOPIC}), BEE) == full
    assert it.stats(TOPIC)["subscribers"] == 2


def test_a_topic_has_so_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item is written as often as there are; readers are not counted."""
    monkeypatch.setattr(topics, "QUEUES_MAX", 2)
    it = world()
    subscribe(it, "one")
    subscribe(it, "two", ANT)
    many = ("policy-violation", "wait", "too-many-subscriptions")
    assert it.refused(Create("three", {"queue#topic": TOPIC}), BEE) == many
    it.ask(Delete("one"), BEE)
    subscribe(it, "three")


def test_the_queues_go_with_their_topic() -> None:
    """Also those that workers are at, who are told; and in the same commit."""
    it = world()
    subscribe(it, "audit")
    subscribe(it, "mail", ANT)
    it.create("orders", PLAIN)
    it.subscribe(BEE, node="audit")
    it.publish("a", node=TOPIC)
    it.told(NotifyNode)
    it.ask(Delete(TOPIC), OWNER, flush=False)
    it.commit()
    assert set(it.core.nodes) == set(it.disk.nodes) == {"orders"}
    assert not any(map(it.disk.is_shown, it.disk.items.values()))
    assert it.told(NotifyNode) == [NotifyNode(BEE, "audit", "delete")]
    assert it.core.nodes_created.used("bee@x") == 0
    it.remove_purged()
    assert not it.disk.items
    # A new topic of this name has none of them.
    it.create(TOPIC, {**PLAIN, "queue#node_type": "topic"})
    it.publish("a", node=TOPIC)
    assert it.stats(TOPIC)["subscribers"] == 0


def test_an_account_that_may_not_subscribe_any_more_loses_its_queues() -> None:
    """An outcast, or one that a whitelist leaves out; the others stay."""
    it = world()
    subscribe(it, "audit")
    subscribe(it, "mail", ANT)
    subscribe(it, "own", OWNER)
    it.ask(SetAffiliations(TOPIC, {"bee@x": Affiliation.OUTCAST}), OWNER)
    assert set(it.core.nodes) == {TOPIC, "mail", "own"}
    it.ask(Configure(TOPIC, {"pubsub#access_model": "whitelist"}), OWNER)
    assert set(it.core.nodes) == {TOPIC, "own"}
    it.boot()
    it.publish("a", node=TOPIC, by=OWNER)
    assert ids(it.live("own")) == ["a"]


def test_a_subscription_is_its_owner_s() -> None:
    """The owner of the topic has no right in it."""
    it = world()
    subscribe(it, "audit")
    assert it.refused(GetConfigure("audit"), OWNER)[0] == "item-not-found"
    assert it.refused(Items(node="audit"), STRANGER)[0] == "item-not-found"


def test_a_short_log_is_written_once() -> None:
    """An item that is dropped at once is in no later commit."""
    it = world({"queue#keep_items": "0"})
    it.ask(Publish(TOPIC, (entry("a"),)), PUBLISHER, flush=False)
    kinds = [type(each) for each in it.pending]
    assert kinds.index(SaveItem) < kinds.index(RemoveItem)
