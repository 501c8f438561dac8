"""Publishing: repeats, conflicts, limits, and the initial state of an item."""

from functools import partial

import pytest

from qos.core.queue.effects import SaveItem
from qos.core.queue.item import Affiliation, ItemState
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Publish,
    Requeue,
    SetAffiliations,
)
from qos.core.queue.results import PublishResult
from queue_world import (
    ANT,
    BEE,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
    entry,
    retraction,
)

CONFLICT = ("conflict", "cancel", "")
FULL = ("resource-constraint", "wait", "")


def test_an_item_begins_available_with_the_usual_priority() -> None:
    """AMQP 1.0 messaging §3.2.1, §3.3."""
    it = World(PLAIN)
    assert it.publish("a", entry("b", priority=9)) == PublishResult(NODE, ("a", "b"))
    item = it.item("a")
    assert (item.state, item.delivery_count, item.order) == (ItemState.AVAILABLE, 0, 0)
    assert (item.priority, item.publisher) == (4, "shop@x")
    assert (item.published_at, item.available_at) == (1000.0, 1000.0)
    assert item.expires_at is None
    assert it.item("b").priority == 9
    assert it.item("b").seq == item.seq + 1


@pytest.mark.parametrize(
    ("node_s", "item_s", "expected"),
    [("", None, None), ("60", None, 1060.0), ("", 5.0, 1005.0), ("60", 5.0, 1005.0)],
)
def test_the_ttl_is_the_publisher_s_else_the_node_s(
    node_s: str, item_s: float | None, expected: float | None
) -> None:
    """AMQP counts a ttl from arrival."""
    it = World({**PLAIN, "queue#ttl": node_s})
    it.publish(entry("a", ttl=item_s))
    assert it.item("a").expires_at == expected


def test_a_repeat_is_confirmed_and_makes_no_second_item() -> None:
    """A publisher whose answer was lost asks again."""
    it = World(PLAIN)
    it.publish("a")
    it.publish("a", by="shop@x/other")
    assert it.stats()["available"] == 1
    it.publish("a", "b")
    assert it.stats()["available"] == 2


def test_the_result_tells_which_ids_were_there_already() -> None:
    """A gateway has to tell a repeat from a first post (REST-*: 405), in any state."""
    it = World({**PLAIN, "queue#dedupe_window": "60"})
    assert it.publish("a", "b") == PublishResult(NODE, ("a", "b"), repeated=())
    assert it.publish("c", "b", "d", "a") == PublishResult(
        NODE, ("c", "b", "d", "a"), repeated=("b", "a")
    )
    it.ask(retraction("a"), OWNER)
    assert it.publish("a", "e") == PublishResult(NODE, ("a", "e"), repeated=("a",))
    assert it.stats()["repeated"] == 3
    it.now += 61
    assert it.publish("a") == PublishResult(NODE, ("a",), repeated=())


def test_an_id_that_the_service_gave_out_is_used_once_whatever_the_content() -> None:
    """REST-*: a post to a one-off link is a repeat even if its body has changed."""
    it = World({**PLAIN, "queue#dedupe_window": "60"})
    publish = partial(Publish, NODE, issued_at=it.now)
    assert it.ask(publish((entry("a"),)), PUBLISHER) == PublishResult(NODE, ("a",))
    # None of a batch, if one of its ids has been used.
    batch = publish((entry("a", "other"), entry("b")))
    repeated = PublishResult(NODE, ("a", "b"), repeated=("a", "b"))
    assert it.ask(batch, PUBLISHER) == repeated
    it.ask(retraction("a"), OWNER)
    assert it.ask(batch, PUBLISHER) == repeated
    assert it.stats()["available"] == 0
    it.publish(entry("c"), by=STRANGER)
    assert it.refused(publish((entry("c"),)), PUBLISHER) == CONFLICT


@pytest.mark.parametrize(("window_s", "once_s"), [("60", 60.0), ("7200", 3600.0)])
def test_an_id_that_was_given_out_too_long_ago_makes_no_new_item(
    window_s: str, once_s: float
) -> None:
    """Its use might have been forgotten; but a known id is a repeat all the same."""
    it = World({**PLAIN, "queue#dedupe_window": window_s})
    at = it.now
    publish = partial(Publish, NODE, issued_at=at)
    it.now = at + once_s - 1
    assert it.ask(publish((entry("a"),)), PUBLISHER) == PublishResult(NODE, ("a",))
    it.now = at + once_s
    assert it.refused(publish((entry("b"),)), PUBLISHER) == ("gone", "cancel", "")
    known = PublishResult(NODE, ("a",), repeated=("a",))
    assert it.ask(publish((entry("a"),)), PUBLISHER) == known


def test_an_id_that_a_clock_gave_out_that_was_ahead_makes_no_new_item() -> None:
    """It would be usable for hours, and its use be forgotten before."""
    it = World({**PLAIN, "queue#dedupe_window": "60"})
    rounded, ahead = (
        partial(Publish, NODE, issued_at=it.now + ahead_s) for ahead_s in (0.5, 3600.0)
    )
    assert it.ask(rounded((entry("a"),)), PUBLISHER) == PublishResult(NODE, ("a",))
    assert it.refused(ahead((entry("b"),)), PUBLISHER) == ("gone", "cancel", "")
    known = PublishResult(NODE, ("a",), repeated=("a",))
    assert it.ask(ahead((entry("a"),)), PUBLISHER) == known


def test_a_repeat_with_other_options_is_a_repeat() -> None:
    """Publisher and content decide; the options of the first one stay."""
    it = World(PLAIN)
    it.publish(entry("a", priority=1))
    it.publish(entry("a", priority=9, delay=5.0))
    assert it.item("a").priority == 1


@pytest.mark.parametrize(
    ("text", "by"), [("other", PUBLISHER), ("", STRANGER), ("other", STRANGER)]
)
def test_the_same_id_with_anything_else_is_a_conflict(text: str, by: str) -> None:
    """Nothing is stored: the first item is the work of somebody else."""
    it = World(PLAIN)
    it.publish("a")
    request = Publish(NODE, (entry("b"), entry("a", text)))
    assert it.refused(request, by) == CONFLICT
    assert set(it.live()) == {"a"}


def test_the_window_counts_from_the_end_of_the_item() -> None:
    """A worker may need days for an item; a repeat may come just after its end."""
    it = World({**PLAIN, "queue#dedupe_window": "100"})
    it.subscribe(BEE)
    it.publish("a")
    it.extend("a", BEE, it.item("a").token, 5000)
    it.wait(4000)
    it.publish("a")
    it.retract("a", BEE)
    it.wait(99.9)
    it.publish("a")
    assert it.live() == {}
    assert it.refused(Publish(NODE, (entry("a", "other"),)), PUBLISHER) == CONFLICT
    it.wait(0.1)
    it.publish(entry("a", "other"), by=STRANGER)
    assert set(it.live()) == {"a"}


@pytest.mark.parametrize("end", ["accepted", "rejected", "withdrawn", "expired"])
def test_every_end_is_remembered(end: str) -> None:
    """However it ended, the publisher's repeat concerns that item."""
    it = World(PLAIN)
    if end in {"accepted", "rejected"}:
        it.subscribe(BEE)
    it.publish(entry("a", ttl=10.0 if end == "expired" else None))
    if end == "accepted":
        it.retract("a", BEE)
    elif end == "rejected":
        it.reject("a", BEE)
    elif end == "withdrawn":
        it.retract("a", PUBLISHER)
    it.wait(10)
    assert it.live() == {}
    it.publish("a")
    assert it.live() == {}


def test_an_end_is_known_before_it_is_on_disk_and_after_a_restart() -> None:
    """A repeat may come at once."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.ask(retraction("a", token), BEE, flush=False)
    it.ask(Publish(NODE, (entry("a"),)), PUBLISHER, flush=False)
    assert it.live() == {}
    it.flush()
    it.boot()
    it.publish("a")
    assert it.live() == {}


@pytest.mark.parametrize(
    ("config", "entries", "fits"),
    [
        ({"queue#max_items": "2"}, ("a", "b"), True),
        ({"queue#max_items": "2"}, ("a", "b", "c"), False),
        ({"queue#max_bytes": "16"}, ("a", "b"), True),
        ({"queue#max_bytes": "15"}, ("a", "b"), False),
        ({"queue#max_items": "", "queue#max_bytes": ""}, tuple("abcdefgh"), True),
    ],
)
def test_a_full_queue_refuses_all_of_a_publish(
    config: dict[str, str], entries: tuple[str, ...], fits: bool
) -> None:
    """The publisher must know that it is full, and tries again with the same ids."""
    it = World({**PLAIN, **config})
    if fits:
        it.publish(*entries)
        assert len(it.live()) == len(entries)
        return
    request = Publish(NODE, tuple(map(entry, entries)))
    assert it.refused(request, PUBLISHER) == FULL
    assert it.live() == {}


def test_dedupe_comes_before_the_limits() -> None:
    """A repeat of an existing item needs no room."""
    it = World({**PLAIN, "queue#max_items": "1"})
    it.publish("a")
    it.publish("a")
    assert it.refused(Publish(NODE, (entry("a"), entry("b"))), PUBLISHER) == FULL
    assert (
        it.refused(Publish(NODE, (entry("b"), entry("a", "x"))), PUBLISHER) == CONFLICT
    )


def test_locked_and_delayed_items_take_room_and_ended_ones_do_not() -> None:
    """The limit is on what the service has to keep."""
    it = World({**PLAIN, "queue#max_items": "2"})
    it.subscribe(BEE)
    it.publish("a", entry("b", delay=50.0))
    assert it.refused(Publish(NODE, (entry("c"),)), PUBLISHER) == FULL
    it.retract("a", BEE)
    it.publish("c")
    assert it.stats()["bytes"] == 16


def test_redelivery_dead_letter_and_requeue_are_never_refused_by_a_limit() -> None:
    """The service already owes them."""
    it = World({**PLAIN, "queue#max_items": "1"})
    it.create("graves", {**PLAIN, "queue#max_items": "1"})
    it.publish("full", node="graves")
    it.ask(Configure(NODE, {"queue#dead_letter_node": "graves"}), OWNER)
    it.subscribe(BEE)
    it.publish("a")
    it.unlock("a", BEE)
    it.reject("a", BEE)
    assert len(it.live("graves")) == 2
    it.publish("b")
    it.ask(Requeue(NODE), OWNER)
    assert set(it.live()) == {"a", "b"}


@pytest.mark.parametrize(
    ("model", "access", "what", "may"),
    [
        ("publishers", "open", Affiliation.OWNER, True),
        ("publishers", "open", Affiliation.PUBLISHER, True),
        ("publishers", "open", Affiliation.MEMBER, False),
        ("publishers", "open", Affiliation.NONE, False),
        ("publishers", "open", Affiliation.OUTCAST, False),
        ("open", "open", Affiliation.NONE, True),
        ("open", "open", Affiliation.OUTCAST, False),
        ("open", "whitelist", Affiliation.MEMBER, True),
        ("open", "whitelist", Affiliation.NONE, False),
        ("publishers", "whitelist", Affiliation.PUBLISHER, True),
        ("publishers", "whitelist", Affiliation.PUBLISH_ONLY, True),
        ("open", "open", Affiliation.PUBLISH_ONLY, True),
    ],
)
def test_who_may_publish(model: str, access: str, what: Affiliation, may: bool) -> None:
    """XEP-0060 §4.1, §4.5."""
    it = World({"pubsub#publish_model": model, "pubsub#access_model": access})
    it.ask(SetAffiliations(NODE, {"ant@y": what}), OWNER)
    request = Publish(NODE, (entry("a"),))
    if may:
        it.ask(request, ANT)
        assert set(it.live()) == {"a"}
    elif access == "whitelist" or what is Affiliation.OUTCAST:
        assert it.refused(request, ANT) == ("item-not-found", "cancel", "")
    else:
        assert it.refused(request, ANT) == ("forbidden", "auth", "")


def test_to_a_node_that_is_not_there_nothing_is_published() -> None:
    """Nodes are not made by publishing."""
    it = World(PLAIN)
    for request in (Publish("none", (entry("a"),)), Affiliations("none")):
        assert it.refused(request, OWNER) == ("item-not-found", "cancel", "")


def test_an_item_goes_to_a_waiting_worker_in_the_commit_that_brings_it() -> None:
    """One write instead of two, and the worker is told only what is on disk."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.ask(Publish(NODE, (entry("a"),)), PUBLISHER, flush=False)
    it.add(it.core.dispatch(it.now))
    saved = [each for each in it.pending if isinstance(each, SaveItem)]
    assert [each.payload for each in saved] == ["<x>a</x>", None]
    assert saved[1].item.holder == BEE
    assert it.given() == []
    it.commit()
    assert it.given() == [("a", BEE)]


def test_whether_an_account_may_publish_somewhere_is_known() -> None:
    """The messages of an account without that right are not held."""
    it = World({})
    it.create("other", {})
    assert it.core.publishes("boss@x")
    assert not it.core.publishes("shop@x")
    it.ask(SetAffiliations("other", {"shop@x": Affiliation.PUBLISHER}), OWNER)
    assert it.core.publishes("shop@x")
