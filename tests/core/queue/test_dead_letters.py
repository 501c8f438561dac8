"""Dead items and how they are requeued; docs/design/queue.md §5."""

import pytest

from qos.core.queue.effects import NotifyItem
from qos.core.queue.item import Affiliation, ItemOutcome, ItemState
from qos.core.queue.requests import (
    Configure,
    Create,
    Delete,
    GetConfigure,
    Items,
    Publish,
    Purge,
    Requeue,
    SetAffiliations,
    Settlement,
    Unlock,
)
from qos.core.queue.results import ConfigureResult, ItemsResult, RequeueResult
from qos.core.url_segments import why_no_segment
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

GRAVES = "graves"
NOT_FOUND = ("item-not-found", "cancel", "")
CONFLICT = ("conflict", "cancel", "")


def world(*, graves: bool = True, name: str = NODE) -> World:
    """A worker with room for three, and perhaps a dead-letter node."""
    it = World(PLAIN)
    if name != NODE:
        it.create(name, PLAIN)
    if graves:
        it.create(GRAVES, PLAIN)
        it.ask(Configure(name, {"queue#dead_letter_node": GRAVES}), OWNER)
    it.subscribe(BEE, 3, node=name)
    return it


def requeue(
    it: World, *item_ids: str, node: str = NODE, by: str = OWNER
) -> tuple[str, ...]:
    """Requeue items; returns their ids."""
    result = it.ask(Requeue(node, item_ids), by)
    assert isinstance(result, RequeueResult)
    return result.item_ids


def listed(it: World, node: str = NODE, *item_ids: str) -> list[str]:
    """The dead items, as their owner sees them."""
    result = it.ask(Items(node=node, state="dead", item_ids=item_ids), OWNER)
    assert isinstance(result, ItemsResult)
    assert result.count == len(result.items)
    return [item.origin_id or item.item_id for item in result.items]


def configured(it: World, node: str = NODE) -> dict[str, str]:
    """The configuration of a node, as its owner sees it."""
    result = it.ask(GetConfigure(node), OWNER)
    assert isinstance(result, ConfigureResult)
    assert result.node is not None
    return {"queue#dead_letter_node": "", **result.node.config}


# -- where they go ---------------------------------------------------------


@pytest.mark.parametrize("graves", [False, True])
def test_the_last_failure_ends_the_item_with_its_reasons(graves: bool) -> None:
    """An item that kills its workers must end, and its owner must see the reason."""
    it = world(graves=graves)
    it.publish("a")
    for number in range(4):
        it.fail("a", BEE)
        assert it.item("a").delivery_count == number + 1
    it.fail("a", BEE)
    assert it.live() == {}
    dead = it.live(GRAVES)["orders/a"] if graves else it.dead()[0]
    assert [failure.reason for failure in dead.history] == ["failed"] * 5
    assert [failure.by for failure in dead.history] == [BEE] * 5
    assert it.stats()["dead"] == 1
    assert listed(it) == ["a"]


def test_a_dead_letter_has_a_life_of_its_own() -> None:
    """Count 0 and no ttl there; payload and publisher are the same; origin is known."""
    it = world()
    it.publish(entry("a", ttl=500.0, priority=7))
    before = it.item("a")
    it.reject("a", BEE, "no such order")
    letter = it.live(GRAVES)["orders/a"]
    assert (letter.origin, letter.origin_id) == (NODE, "a")
    assert (letter.state, letter.delivery_count) == (ItemState.AVAILABLE, 0)
    assert (letter.expires_at, letter.receivers) == (None, frozenset())
    assert (letter.seq, letter.digest, letter.publisher, letter.priority) == (
        before.seq,
        before.digest,
        before.publisher,
        7,
    )
    assert letter.history[0].reason == "rejected: no such order"
    assert it.disk.items[letter.seq] == letter
    assert it.disk.payloads[letter.seq] == "<x>a</x>"
    it.sent.clear()
    it.subscribe(ANT, node=GRAVES)
    assert it.given() == [("orders/a", ANT)]
    it.retract("orders/a", ANT, node=GRAVES)
    assert (it.stats()["dead"], it.disk.items) == (0, {})


def test_it_is_listed_where_it_died_and_where_it_was_moved() -> None:
    """Whoever looks into the dead-letter node wants to know why an item is there."""
    it = world()
    it.publish("a", "b")
    it.reject("a", BEE, "no such order")
    it.reject("b", BEE)
    result = it.ask(Items(node=GRAVES, state="dead"), OWNER)
    assert isinstance(result, ItemsResult)
    assert [each.item_id for each in result.items] == ["orders/a", "orders/b"]
    assert result.items[0].history[0].reason == "rejected: no such order"
    assert result.count == 2
    found = it.ask(Items(node=GRAVES, state="dead", item_ids=("orders/b",)), OWNER)
    assert isinstance(found, ItemsResult)
    assert [each.item_id for each in found.items] == ["orders/b"]
    assert listed(it) == ["a", "b"]
    assert listed(it, NODE, "b") == ["b"]


def test_it_is_moved_in_one_commit_and_can_be_given_out_in_it() -> None:
    """With two commits it could be in both nodes after a crash, or in none."""
    it = world()
    it.subscribe(ANT, node=GRAVES)
    it.publish("a")
    rejected = Settlement(item_id="a", outcome=ItemOutcome.REJECTED)
    it.ask(Unlock(NODE, (rejected,)), BEE, flush=False)
    assert it.disk.live(GRAVES) == []
    it.flush()
    assert it.disk.live(NODE) == []
    assert it.disk.live(GRAVES)[0].holder == ANT


@pytest.mark.parametrize("target", ["", NODE])
def test_without_a_dead_letter_node_it_stays_as_dead(target: str) -> None:
    """The option may be empty or name the node itself: the item is never dropped."""
    it = world(graves=False)
    it.ask(Configure(NODE, {"queue#dead_letter_node": target}), OWNER)
    it.publish("a")
    it.reject("a", BEE)
    assert [item.item_id for item in it.dead()] == ["a"]
    assert it.stats()["dead"] == 1
    assert it.refused(retraction("a"), BEE) == NOT_FOUND


def test_a_dead_letter_node_that_is_deleted_is_none_any_more() -> None:
    """Its items are gone too: that is the meaning of delete."""
    it = world()
    it.publish("a", "b")
    it.reject("a", BEE)
    it.ask(Delete(GRAVES), OWNER)
    assert it.stats()["dead"] == 0
    it.reject("b", BEE)
    assert [item.item_id for item in it.dead()] == ["b"]


def test_a_dead_letter_is_moved_once_only() -> None:
    """Two nodes that name each other would pass it on for ever."""
    it = world()
    it.ask(Configure(GRAVES, {"queue#dead_letter_node": NODE}), OWNER)
    it.publish("a")
    it.reject("a", BEE)
    it.subscribe(ANT, node=GRAVES)
    it.reject("orders/a", ANT, node=GRAVES)
    assert [item.item_id for item in it.dead(GRAVES)] == ["orders/a"]
    assert it.live() == {}
    assert it.stats(GRAVES)["dead"] == 1


def test_what_expires_is_dead() -> None:
    """It has that reason, and goes where other dead items go."""
    it = world()
    it.publish(entry("a", ttl=5.0, delay=60.0))
    it.wait(5)
    assert it.live(GRAVES)["orders/a"].history[0].reason == "expired"


@pytest.mark.parametrize(
    ("name", "letter"), [("orders", "orders/a"), ("a/b c", "a%2Fb%20c/a")]
)
def test_its_id_says_where_it_comes_from(name: str, letter: str) -> None:
    """Origin and id can be told apart, whatever is in them."""
    it = world(name=name)
    it.publish("a", node=name)
    it.reject("a", BEE, node=name)
    assert set(it.live(GRAVES)) == {letter}


def test_an_id_that_would_be_too_long_is_made_short() -> None:
    """The parser accepts ids of 1024 characters; a longer one could not be settled."""
    name = "ä" * 500
    it = world(name=name)
    for item_id in ("a" * 500, "a" * 501):
        it.publish(item_id, node=name)
        it.reject(item_id, BEE, node=name)
    letters = it.live(GRAVES)
    assert len(letters) == 2
    assert max(map(len, letters)) <= 1024
    assert not any(map(why_no_segment, letters))
    assert {item.origin_id for item in letters.values()} == {"a" * 500, "a" * 501}


def test_the_name_of_a_node_that_died_is_no_way_to_a_letter_that_died_again() -> None:
    """Waiting letters are protected in the same way; this one was kept as dead."""
    it = world()
    it.publish("a")
    it.reject("a", BEE)
    it.subscribe(ANT, node=GRAVES)
    it.reject("orders/a", ANT, node=GRAVES)
    it.unsubscribe(ANT, node=GRAVES)
    it.ask(Delete(NODE), OWNER)
    it.create(NODE, PLAIN, by=STRANGER)
    assert requeue(it, node=GRAVES) == ("orders/a",)
    assert it.stats()["dead"] == 0


def test_an_id_that_is_taken_gets_another_and_nothing_is_overwritten() -> None:
    """A publisher may have taken the id there, perhaps on purpose."""
    it = world()
    it.publish("a")
    it.publish("orders/a", "orders/a#1", node=GRAVES)
    it.reject("a", BEE)
    assert set(it.live(GRAVES)) == {"orders/a", "orders/a#1", "orders/a#1#1"}
    assert it.stats(GRAVES)["bytes"] == sum(item.size for item in it.disk.live(GRAVES))
    assert requeue(it) == ("a",)


REFUSED = ("not-acceptable", "modify", "")
TO_GRAVES = {"queue#dead_letter_node": GRAVES}


@pytest.mark.parametrize(
    "request_", [Create("n", TO_GRAVES), Configure(NODE, TO_GRAVES)]
)
def test_a_dead_letter_node_that_is_not_there_is_refused(
    request_: Create | Configure,
) -> None:
    """Otherwise a stranger could create it later, and read the dead items."""
    it = World(PLAIN)
    assert it.refused(request_, OWNER) == REFUSED
    it.create(GRAVES, PLAIN)
    it.ask(request_, OWNER)


def test_nobody_gets_items_into_a_node_of_others() -> None:
    """A dead-letter node accepts only what the account that set it could publish there."""
    it = World(PLAIN)
    it.create(GRAVES, {}, by=STRANGER)
    request = Configure(NODE, TO_GRAVES)
    assert it.refused(request, OWNER) == REFUSED
    it.ask(SetAffiliations(GRAVES, {"boss@x": Affiliation.PUBLISHER}), STRANGER)
    it.ask(request, OWNER)
    it.subscribe(BEE, 2)
    it.publish("a", "b")
    it.reject("a", BEE)
    assert set(it.live(GRAVES)) == {"orders/a"}
    it.ask(SetAffiliations(GRAVES, {"boss@x": Affiliation.NONE}), STRANGER)
    it.reject("b", BEE)
    assert set(it.live(GRAVES)) == {"orders/a"}
    assert [item.item_id for item in it.dead()] == ["b"]


def test_to_make_another_an_owner_gives_nobody_his_rights() -> None:
    """An account can be made owner without its consent.

    The account that set the option counts.
    """
    it = World()
    it.create(GRAVES, PLAIN, by=STRANGER)
    it.create(NODE, {**PLAIN, **TO_GRAVES}, by=STRANGER)
    it.ask(SetAffiliations(NODE, {"boss@x": Affiliation.OWNER}), STRANGER)
    it.ask(Delete(GRAVES), STRANGER)
    it.create(GRAVES, {"queue#max_items": "3"})
    it.subscribe(BEE, 10)
    it.publish(*"abcdefghij")
    for item_id in "abcdefghij":
        it.reject(item_id, BEE)
    assert it.live(GRAVES) == {}
    assert len(it.dead()) == 10
    it.boot()
    assert configured(it)["queue#dead_letter_node"] == ""


def test_a_node_that_is_created_anew_under_the_name_is_another() -> None:
    """A stranger who takes the name of a deleted node gets no dead items of others."""
    it = world()
    assert configured(it)["queue#dead_letter_node"] == GRAVES
    it.ask(Delete(GRAVES), OWNER)
    it.create(GRAVES, PLAIN, by=STRANGER)
    it.publish("a")
    it.reject("a", BEE)
    assert it.live(GRAVES) == {}
    assert [item.item_id for item in it.dead()] == ["a"]
    assert configured(it)["queue#dead_letter_node"] == ""


def test_who_has_set_it_must_still_own_the_node_it_is_set_for() -> None:
    """A setting by an account without rights is not in force any more."""
    it = world()
    it.ask(SetAffiliations(NODE, {"ant@y": Affiliation.OWNER}), OWNER)
    it.ask(SetAffiliations(NODE, {"boss@x": Affiliation.MEMBER}), ANT)
    it.publish("a", "b")
    it.reject("a", BEE)
    assert it.live(GRAVES) == {}
    # Another owner, who may publish there, sets it again.
    it.ask(Configure(NODE, TO_GRAVES), ANT)
    it.reject("b", BEE)
    assert set(it.live(GRAVES)) == {"orders/b"}


def test_an_owner_that_is_made_one_again_has_set_nothing() -> None:
    """Others have made it one: they cannot use its right to publish to the graves."""
    it = World(PLAIN)
    it.create(GRAVES, {})
    it.create("bait", PLAIN, by=STRANGER)
    owner = {"boss@x": Affiliation.OWNER}
    it.ask(SetAffiliations("bait", owner), STRANGER)
    it.ask(Configure("bait", TO_GRAVES), OWNER)
    it.ask(SetAffiliations("bait", {"boss@x": Affiliation.NONE}), OWNER)
    it.ask(SetAffiliations("bait", owner), STRANGER)
    it.subscribe(BEE, node="bait")
    it.publish("a", node="bait")
    it.reject("a", BEE, node="bait")
    assert (it.live(GRAVES), len(it.dead("bait"))) == ({}, 1)
    it.boot()
    assert configured(it, "bait")["queue#dead_letter_node"] == ""


def test_an_owner_who_sends_the_whole_form_back_changes_nothing() -> None:
    """Even if he may not set one of the values himself."""
    it = world()
    it.ask(Configure(GRAVES, {"pubsub#publish_model": "publishers"}), OWNER)
    it.ask(SetAffiliations(NODE, {"ant@y": Affiliation.OWNER}), OWNER)
    it.ask(Configure(NODE, {**configured(it), "queue#ttl": "60"}), ANT)
    it.publish("a")
    it.reject("a", BEE)
    assert set(it.live(GRAVES)) == {"orders/a"}


def test_no_more_is_moved_to_a_node_of_others_than_could_be_published_there() -> None:
    """Otherwise a publisher could pass the limit in this way."""
    it = World(PLAIN)
    it.create(GRAVES, {**PLAIN, "queue#max_items": "3"}, by=STRANGER)
    it.ask(Configure(NODE, TO_GRAVES), OWNER)
    it.subscribe(BEE, 10)
    it.publish(*"abcde")
    for item_id in "abcde":
        it.reject(item_id, BEE)
    assert set(it.live(GRAVES)) == {"orders/a", "orders/b", "orders/c"}
    assert [item.item_id for item in it.dead()] == ["d", "e"]


def test_another_owner_can_configure_what_is_not_about_it() -> None:
    """Only the account that names a dead-letter node must be allowed to use it."""
    it = world()
    it.ask(Configure(GRAVES, {"pubsub#publish_model": "publishers"}), OWNER)
    it.ask(SetAffiliations(NODE, {"ant@y": Affiliation.OWNER}), OWNER)
    it.ask(Configure(NODE, {"queue#ttl": "60"}), ANT)
    assert it.core.nodes[NODE].options.ttl == 60
    it.ask(SetAffiliations(NODE, {"boss@x": Affiliation.NONE}), ANT)
    it.publish("a")
    it.reject("a", BEE)
    assert [item.item_id for item in it.dead()] == ["a"]


def test_who_takes_the_name_of_a_deleted_node_does_not_get_its_dead() -> None:
    """The payloads belong to others; they stay where they are."""
    it = world()
    it.publish("a")
    it.reject("a", BEE)
    it.ask(Delete(NODE), OWNER)
    assert set(it.live(GRAVES)) == {"orders/a"}
    it.create(NODE, PLAIN, by=STRANGER)
    result = it.ask(Items(node=NODE, state="dead"), STRANGER)
    assert isinstance(result, ItemsResult)
    assert result.items == ()
    assert requeue(it, by=STRANGER) == ()
    it.boot()
    assert requeue(it, by=STRANGER) == ()
    assert it.stats()["dead"] == 0


# -- requeue ---------------------------------------------------------------


@pytest.mark.parametrize("graves", [False, True])
def test_a_requeued_item_is_the_item_itself_again(graves: bool) -> None:
    """Count 0, history kept; and it is delivered as for the first time."""
    it = world(graves=graves)
    it.publish("a")
    seq = it.item("a").seq
    it.reject("a", BEE, "broken")
    it.unsubscribe(BEE)
    assert requeue(it) == ("a",)
    item = it.item("a")
    assert (item.seq, item.origin, item.origin_id) == (seq, "", "")
    assert (item.delivery_count, item.order) == (0, 0)
    assert item.history[0].reason == "rejected: broken"
    assert it.disk.items == {seq: item}
    assert (it.stats()["dead"], it.stats()["available"]) == (0, 1)
    assert it.live(GRAVES) == {}
    it.subscribe(BEE)
    token = it.item("a").token
    it.retract("a", BEE, token)
    it.retract("a", BEE, token)


def test_what_is_requeued_can_die_and_be_requeued_again() -> None:
    """Each end is remembered for its time; it is the same item all along."""
    it = world()
    it.publish("a")
    for times in range(3):
        it.reject("a", BEE)
        assert len(it.disk.ended) == times + 1
        assert requeue(it, "a") == ("a",)
        it.publish("a")
        assert it.stats()["acquired"] == 1
    assert len(it.item("a").history) == 3


def test_named_ones_are_requeued_all_or_none() -> None:
    """An owner who mistypes one id has changed nothing."""
    it = world()
    it.publish("a", "b", "c")
    it.reject("a", BEE)
    it.reject("b", BEE)
    assert it.refused(Requeue(NODE, ("a", "none")), OWNER) == NOT_FOUND
    assert it.refused(Requeue(NODE, ("a", "c")), OWNER) == NOT_FOUND
    assert requeue(it, "b", "b") == ("b",)
    assert listed(it) == ["a"]
    assert listed(it, NODE, "a", "b") == ["a"]
    assert requeue(it, "a") == ("a",)


def test_a_dead_letter_that_somebody_has_locked_is_left_to_him() -> None:
    """Otherwise two workers would have it."""
    it = world()
    it.publish("a", "b")
    it.reject("a", BEE)
    it.subscribe(ANT, node=GRAVES)
    it.reject("b", BEE)
    assert it.refused(Requeue(NODE, ("b", "a")), OWNER) == CONFLICT
    assert requeue(it) == ("b",)
    it.retract("orders/a", ANT, node=GRAVES)


@pytest.mark.parametrize("graves", [False, True])
def test_an_id_that_lives_again_is_not_doubled(graves: bool) -> None:
    """After the dedupe window the id may belong to another item."""
    it = world(graves=graves)
    it.ask(Configure(NODE, {"queue#dedupe_window": "10"}), OWNER)
    it.publish("a")
    it.reject("a", BEE)
    it.wait(10)
    it.publish(entry("a", "other"))
    assert it.refused(Requeue(NODE, ("a",)), OWNER) == CONFLICT
    assert requeue(it) == ()
    it.retract("a", BEE)
    assert requeue(it) == ("a",)


def test_of_several_dead_with_one_id_the_last_comes_first() -> None:
    """The others stay, and can be requeued afterwards."""
    it = world(graves=False)
    it.ask(Configure(NODE, {"queue#dedupe_window": "0"}), OWNER)
    for text in ("x", "y"):
        it.publish(entry("a", text))
        it.reject("a", BEE)
    assert listed(it) == ["a", "a"]
    assert listed(it, NODE, "a") == ["a", "a"]
    assert requeue(it) == ("a",)
    assert it.disk.payloads[it.item("a").seq] == "<x>y</x>"
    it.retract("a", BEE)
    assert requeue(it) == ("a",)
    assert it.disk.payloads[it.item("a").seq] == "<x>x</x>"


def test_of_several_letters_with_one_id_the_last_comes_first() -> None:
    """The same holds for letters in the dead-letter node."""
    it = world()
    it.ask(Configure(NODE, {"queue#dedupe_window": "0"}), OWNER)
    names = [f"i{number}" for number in range(10)]
    for text in ("x", "y"):
        for name in names:
            it.publish(entry(name, text))
            it.reject(name, BEE)
    it.unsubscribe(BEE)
    assert sorted(requeue(it)) == names
    payloads = {it.disk.payloads[item.seq] for item in it.live().values()}
    assert payloads == {"<x>y</x>"}


def test_a_letter_that_died_again_can_be_requeued_where_it_is() -> None:
    """By the owner of that node, to whom it now belongs."""
    it = world()
    it.publish("a")
    it.reject("a", BEE)
    it.subscribe(ANT, node=GRAVES)
    it.reject("orders/a", ANT, node=GRAVES)
    it.unsubscribe(ANT, node=GRAVES)
    assert requeue(it) == ()
    assert requeue(it, node=GRAVES) == ("orders/a",)
    item = it.live(GRAVES)["orders/a"]
    assert (item.origin, item.origin_id) == ("", "")
    assert requeue(it) == ()


def dead_world(count: int, *, graves: bool = False) -> tuple[World, list[str]]:
    """So many dead items, and their ids in order; with graves half of them moved."""
    it = world(graves=False)
    it.subscribe(BEE, 1000)
    names = [f"i{number}" for number in range(count)]
    it.publish(*names)
    for part in filter(None, (names[::2], names[1::2])):
        settlements = [
            Settlement(item_id=name, outcome=ItemOutcome.REJECTED) for name in part
        ]
        it.ask(Unlock(NODE, tuple(settlements)), BEE)
        if graves and GRAVES not in it.core.nodes:
            it.create(GRAVES, PLAIN)
            it.ask(Configure(NODE, {"queue#dead_letter_node": GRAVES}), OWNER)
    it.told(NotifyItem)
    return it, names


def requeue_some(it: World, after: str = "") -> RequeueResult:
    """One request for all."""
    result = it.ask(Requeue(NODE, after=after), OWNER)
    assert isinstance(result, RequeueResult)
    return result


@pytest.mark.parametrize("graves", [False, True])
@pytest.mark.parametrize("count", [1, 49, 50, 51, 100, 120])
def test_all_dead_items_are_requeued_some_at_a_time(count: int, graves: bool) -> None:
    """Each request is one commit; after the last one there is nothing to ask for."""
    it, names = dead_world(count, graves=graves)
    found, after, requests = list[str](), "", 0
    while after or not requests:
        result = requeue_some(it, after)
        assert 0 < len(result.item_ids) <= 50
        found += result.item_ids
        after, requests = result.last, requests + 1
    assert found == names
    assert requests == -(-count // 50)
    assert it.live().keys() == set(names)
    assert it.stats()["dead"] == 0
    assert [item_id for item_id, _ in it.given()] == names


def test_a_request_that_is_repeated_goes_on_where_it_says() -> None:
    """Its answer was lost, or the service has begun anew meanwhile."""
    it, names = dead_world(120)
    first = requeue_some(it)
    second = requeue_some(it, first.last)
    it.boot()
    again = requeue_some(it, first.last)
    assert (again.item_ids, again.last) == (tuple(names[100:]), "")
    assert requeue_some(it, second.last) == RequeueResult(NODE, ())
    assert it.live().keys() == set(names)


def test_what_dies_again_meanwhile_is_met_once() -> None:
    """And what is published meanwhile, and dies, not at all. So it has an end."""
    it, names = dead_world(120)
    found, after, requests = list[str](), "", 0
    while after or not requests:
        result = requeue_some(it, after)
        found += result.item_ids
        for item_id in (*result.item_ids, "i0"):
            if item_id in it.live():
                it.reject(item_id, BEE)
        it.publish(f"new{requests}")
        it.reject(f"new{requests}", BEE)
        after, requests = result.last, requests + 1
    assert found == names
    assert it.stats()["dead"] == 120 + requests


def test_of_several_dead_with_one_id_the_last_counts_wherever_it_is() -> None:
    """It may come many requests later."""
    it, names = dead_world(60)
    it.ask(Configure(NODE, {"queue#dedupe_window": "0"}), OWNER)
    it.publish(entry("i3", "other"))
    it.reject("i3", BEE)
    first = requeue_some(it)
    assert first.item_ids == (*names[:3], *names[4:50])
    assert requeue_some(it, first.last).item_ids == (*names[50:], "i3")
    assert "other" in it.disk.payloads[it.item("i3").seq]


def test_long_ids_are_fewer_at_a_time() -> None:
    """All of them are in the answer."""
    it = world(graves=False)
    it.subscribe(BEE, 1000)
    names = [f"{number:02}" + "x" * 998 for number in range(25)]
    it.publish(*names)
    for name in names:
        it.reject(name, BEE)
    first = requeue_some(it)
    assert first.item_ids == tuple(names[:10])
    assert requeue_some(it, first.last).item_ids == tuple(names[10:20])


@pytest.mark.parametrize(
    "after", ["x", "1", "1.", ".1", "1.x", "-1.2", "1.2.3", "1." + "9" * 19, "1.\u0662"]
)
def test_a_requeue_goes_on_only_after_an_answer_of_ours(after: str) -> None:
    it, _ = dead_world(1)
    assert it.refused(Requeue(NODE, after=after), OWNER) == (
        "bad-request",
        "modify",
        "",
    )
    assert it.stats()["dead"] == 1


@pytest.mark.parametrize("request_", [Requeue(NODE), Items(node=NODE, state="dead")])
def test_the_dead_are_the_owner_s(request_: Requeue | Items) -> None:
    """They may show what went wrong."""
    it = world()
    for jid in (PUBLISHER, BEE, STRANGER):
        assert it.refused(request_, jid) == ("forbidden", "auth", "")


def test_dead_items_are_counted_right_over_purge_and_restart() -> None:
    """A wrong count is worse than none."""
    it = world(graves=False)
    it.publish("a", "b", "c")
    it.reject("a", BEE)
    it.reject("b", BEE)
    it.boot()
    assert it.stats()["dead"] == 2
    # The death of c is not on disk yet when the owner purges.
    rejected = Settlement(item_id="c", outcome=ItemOutcome.REJECTED)
    it.ask(Unlock(NODE, (rejected,)), BEE, flush=False)
    it.ask(Purge(NODE), OWNER)
    assert it.core.nodes[NODE].dead == len(it.dead())
    it.ask(Purge(NODE), OWNER)
    assert it.stats()["dead"] == 0
    it.remove_purged()
    assert (it.disk.items, it.disk.payloads) == ({}, {})


def test_the_dead_are_outside_dedupe_and_limits_where_they_wait() -> None:
    """The dead-letter node's own publishers are not held up by them."""
    it = world()
    it.publish("a")
    it.reject("a", BEE)
    assert it.disk.all_ended(NODE, ["a"]).keys() == {"a"}
    assert it.disk.all_ended(GRAVES, ["a", "orders/a"]) == {}
    it.ask(Publish(GRAVES, (entry("a"),)), PUBLISHER)
    assert set(it.live(GRAVES)) == {"orders/a", "a"}
