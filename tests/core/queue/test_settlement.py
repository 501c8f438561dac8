"""Rights to retract or unlock: docs/design/queue.md §2, row by row."""

import itertools

import pytest

from qos.core.queue.effects import NotifyRetract, NotifyUnlock
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Configure,
    Extend,
    Publish,
    Refusal,
    Requeue,
    Retract,
    Settlement,
    Unlock,
)
from qos.core.queue.results import Ok
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

ACCEPTED, RELEASED, MODIFIED, REJECTED = ItemOutcome

NOT_FOUND = ("item-not-found", "cancel", "")
FORBIDDEN = ("forbidden", "auth", "")
CONFLICT = ("conflict", "cancel", "")
UNEXPECTED = ("unexpected-request", "wait", "")
DONE = ("done", "", "")


def world(state: str, *, durable: bool = False) -> tuple[World, dict[str, str]]:
    """An item that BEE once had and that is now in this state, with its tokens."""
    it = World({**PLAIN, "queue#max_deliveries": "9"})
    it.publish("a")
    it.subscribe(BEE, durable_locks=str(int(durable)))
    stale = it.item("a").token
    it.unsubscribe(BEE)
    it.unlock("a", BEE)
    tokens = {"absent": "", "stale": stale, "live": ""}
    if state == "available":
        tokens["live"] = "never-given"
        return it, tokens
    it.subscribe(BEE if state == "own" else ANT, durable_locks=str(int(durable)))
    tokens["live"] = it.item("a").token
    if state == "dead":
        it.reject("a", ANT)
    if state == "accepted":
        it.retract("a", ANT)
    return it, tokens


def verdict(
    it: World, requester: str, token: str, outcome: ItemOutcome
) -> tuple[str, str, str]:
    settlement = Settlement(item_id="a", token=token, outcome=outcome)
    kind = Retract if outcome is ACCEPTED else Unlock
    before = it.live()
    try:
        it.ask(kind(NODE, (settlement,)), requester)
    except Refusal as refusal:
        assert it.live() == before
        return refusal.condition, refusal.type, refusal.pubsub
    return DONE


#: The result by state, requester and token. BEE has had the item before, in each.
ROWS = {
    # 1. Neither available nor acquired here.
    **{
        (state, who, token): NOT_FOUND
        for state in ("dead", "accepted")
        for who in (BEE, BEE_2, STRANGER, OWNER, PUBLISHER)
        for token in ("absent", "live", "stale")
    },
    ("dead", ANT, "absent"): NOT_FOUND,
    ("dead", ANT, "stale"): NOT_FOUND,
    ("accepted", ANT, "absent"): NOT_FOUND,
    ("accepted", ANT, "stale"): NOT_FOUND,
    # 2. The account never received it.
    **{
        (state, STRANGER, token): FORBIDDEN
        for state in ("available", "own", "other")
        for token in ("absent", "live", "stale")
    },
    ("available", ANT, "absent"): FORBIDDEN,
    ("own", ANT, "live"): FORBIDDEN,
    # 3. The requester holds the lock.
    ("own", BEE, "absent"): DONE,
    ("own", BEE, "live"): DONE,
    ("own", BEE, "stale"): UNEXPECTED,
    ("other", ANT, "absent"): DONE,
    ("other", ANT, "live"): DONE,
    ("other", ANT, "stale"): UNEXPECTED,
    # 4. Locked by another holder, even another resource of the same account.
    **{("own", BEE_2, token): CONFLICT for token in ("absent", "live", "stale")},
    **{("other", BEE, token): CONFLICT for token in ("absent", "live", "stale")},
    # 5. Otherwise.
    **{
        ("available", who, token): UNEXPECTED
        for who in (BEE, BEE_2)
        for token in ("absent", "live", "stale")
    },
}


@pytest.mark.parametrize("outcome", ItemOutcome)
@pytest.mark.parametrize(("state", "who", "token"), ROWS)
def test_each_row_is_answered_in_the_one_order(
    state: str, who: str, token: str, outcome: ItemOutcome
) -> None:
    """The XEP's conditions overlap; a worker must know which error to expect."""
    it, tokens = world(state)
    assert verdict(it, who, tokens[token], outcome) == ROWS[state, who, token]


@pytest.mark.parametrize("who", [OWNER, PUBLISHER])
@pytest.mark.parametrize(
    ("state", "token", "outcome", "expected"),
    [
        ("available", "absent", ACCEPTED, DONE),
        ("available", "stale", ACCEPTED, UNEXPECTED),
        *(("own", token, ACCEPTED, CONFLICT) for token in ("absent", "stale")),
        *(("other", token, ACCEPTED, CONFLICT) for token in ("absent", "stale")),
        *(
            (state, token, outcome, FORBIDDEN)
            for state in ("available", "own")
            for token in ("absent", "stale")
            for outcome in (RELEASED, MODIFIED, REJECTED)
        ),
    ],
)
def test_owner_and_publisher_may_take_back_without_a_token_what_is_not_locked(
    who: str,
    state: str,
    token: str,
    outcome: ItemOutcome,
    expected: tuple[str, str, str],
) -> None:
    """XEP-0060 §7.2 lets them delete; a worker at work must not lose its item.

    A retract with a token means one delivery, and must be told that it has ended.
    """
    it, tokens = world(state)
    assert verdict(it, who, tokens[token], outcome) == expected
    assert ("a" in it.live()) is (expected is not DONE)


@pytest.mark.parametrize("worker", ["boss@x/w", "shop@x/w"])
def test_a_late_token_takes_back_no_item_in_its_next_life(worker: str) -> None:
    """Otherwise its worker and the next one would both do the item."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.subscribe(worker)
    it.publish("a")
    token = it.item("a").token
    it.departed(worker)
    it.ask(Requeue(NODE), OWNER)
    assert it.refused(retraction("a", token), worker) == UNEXPECTED
    it.subscribe(worker)
    it.retract("a", worker, it.item("a").token)
    assert it.stats()["accepted"] == 1


@pytest.mark.parametrize("who", ["boss@x/w", "shop@x/w"])
def test_owner_and_publisher_may_take_back_what_they_once_received(who: str) -> None:
    """Having worked on an item takes no right away."""
    it = World(PLAIN)
    it.publish("a")
    it.subscribe(who)
    it.unsubscribe(who)
    token = it.item("a").token
    it.unlock("a", who)
    assert verdict(it, who, token, ACCEPTED) == UNEXPECTED
    assert verdict(it, who, "", ACCEPTED) == DONE
    assert it.live() == {}
    assert it.stats()["accepted"] == 0
    # Nor does it add a right: the lock of another account stays.
    it.publish("b")
    it.subscribe(who)
    it.unsubscribe(who)
    it.unlock("b", who)
    it.subscribe(ANT)
    assert it.refused(retraction("b"), who) == CONFLICT


def test_a_publisher_may_not_take_back_the_item_of_another() -> None:
    """The right to publish does not make an owner."""
    it = World(PLAIN)
    it.publish("a")
    it.publish("b", by=STRANGER)
    assert it.refused(retraction("a"), STRANGER) == FORBIDDEN


@pytest.mark.parametrize("outcome", ItemOutcome)
@pytest.mark.parametrize(
    ("who", "token", "expected"),
    [
        (BEE, "absent", DONE),
        (BEE, "live", DONE),
        (BEE, "stale", UNEXPECTED),
        (BEE_2, "live", DONE),
        (BEE_2, "absent", CONFLICT),
        (BEE_2, "stale", UNEXPECTED),
        (STRANGER, "live", FORBIDDEN),
    ],
)
def test_a_durable_lock_is_its_account_s_who_knows_the_token(
    who: str, token: str, expected: tuple[str, str, str], outcome: ItemOutcome
) -> None:
    """A worker comes back with another resource, and has its token on disk."""
    it, tokens = world("own", durable=True)
    assert verdict(it, who, tokens[token], outcome) == expected


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(ItemOutcome, repeat=2))
)
def test_only_the_same_end_can_be_repeated(
    first: ItemOutcome, second: ItemOutcome
) -> None:
    """A lost answer is asked for again; an outcome is final (AMQP §3.4)."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.departed(ANT)
    failed = Settlement(
        item_id="a", token=token, outcome=first, delivery_failed=first is MODIFIED
    )
    it.ask((Retract if first is ACCEPTED else Unlock)(NODE, (failed,)), BEE)
    it.unsubscribe(BEE)
    if first is RELEASED:
        # It is live: it has no end that could be repeated.
        again = it.item("a").token
        assert again != token
        assert verdict(it, BEE, token, second) == UNEXPECTED
        return
    expected = DONE if second is first else NOT_FOUND
    assert verdict(it, BEE_2, token, second) == expected
    assert verdict(it, ANT, token, second) == NOT_FOUND
    assert verdict(it, BEE, "", second) == NOT_FOUND
    assert verdict(it, BEE, "other", second) == NOT_FOUND


def test_a_repeat_changes_nothing_and_tells_nobody() -> None:
    """The same result again, and no more."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.retract("a", BEE, token)
    before = repr(it.disk)
    it.told(NotifyRetract)
    assert it.ask(retraction("a", token), BEE) == Ok(repeated=True)
    assert repr(it.disk) == before
    assert it.sent == []


def test_nobody_repeats_a_purge_a_time_out_or_a_withdrawal() -> None:
    """An end without a settling token belongs to no worker."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.wait(60)
    assert it.refused(retraction("a", token), BEE) == NOT_FOUND
    it.unsubscribe(BEE)
    it.publish("b")
    it.retract("b", PUBLISHER)
    assert it.refused(retraction("b"), PUBLISHER) == NOT_FOUND


def test_what_settled_an_item_is_remembered_after_a_short_dedupe_window() -> None:
    """A worker repeats its retract until it has an answer, however short the window is."""
    it = World({**PLAIN, "queue#dedupe_window": "0"})
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.retract("a", BEE, token)
    it.wait(3000)
    it.retract("a", BEE, token)
    (ended,) = it.disk.ended.values()
    assert ended.forget_at == 1000.0 + 3600.0


def test_a_settlement_is_remembered_while_its_id_is_of_another_item() -> None:
    """A worker that was killed before the answer may come back in time."""
    it = World({**PLAIN, "queue#dedupe_window": "0"})
    it.subscribe(BEE)
    tokens = []
    for text in ("monday", "tuesday", "wednesday"):
        it.publish(entry("report", text))
        tokens.append(it.item("report").token)
        for token in tokens[:-1]:
            it.retract("report", BEE, token)
            assert it.refused(retraction("report", token), ANT) == FORBIDDEN
        assert it.item("report").token == tokens[-1]
        it.retract("report", BEE, tokens[-1])
    it.wait(3000)
    it.boot()
    for token in tokens:
        it.retract("report", BEE, token)
    assert it.stats()["accepted"] == 3


@pytest.mark.parametrize("outcome", [MODIFIED, REJECTED])
def test_what_killed_an_item_can_be_repeated_after_it_was_requeued(
    outcome: ItemOutcome,
) -> None:
    """Its worker gets the same answer again, and the requeued item stays."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.subscribe(BEE)
    it.publish("a")
    first = it.item("a").token
    it.unlock("a", BEE, first, outcome, failed=outcome is MODIFIED)
    it.ask(Requeue(NODE), OWNER)
    second = it.item("a").token
    it.unlock("a", BEE, first, outcome, failed=outcome is MODIFIED)
    assert it.item("a").token == second
    it.retract("a", BEE, second)
    assert verdict(it, BEE, second, ACCEPTED) == DONE
    assert it.refused(retraction("a", first), BEE) == NOT_FOUND
    it.unlock("a", BEE, first, outcome, failed=outcome is MODIFIED)


def test_to_requeue_an_item_forgets_nothing_of_a_later_one_with_its_id() -> None:
    """Neither its settlement, nor that it was published."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("report", "monday"))
    it.reject("report", BEE)
    it.wait(86400)
    it.publish(entry("report", "tuesday"))
    token = it.item("report").token
    it.retract("report", BEE, token)
    it.ask(Requeue(NODE), OWNER)
    for state in ("monday lives", "monday has ended"):
        it.retract("report", BEE, token)
        for text in ("monday", "tuesday"):
            it.publish(entry("report", text))
        third = Publish(NODE, (entry("report", "wednesday"),))
        assert it.refused(third, PUBLISHER) == CONFLICT
        if state == "monday lives":
            it.retract("report", BEE, it.item("report").token)
    assert it.live() == {}
    assert it.stats()["accepted"] == 2


def test_received_counts_in_this_life_of_the_item_only() -> None:
    """No account has received a requeued item yet."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.reject("a", BEE)
    it.unsubscribe(BEE)
    it.ask(Requeue(NODE), OWNER)
    assert it.refused(retraction("a"), BEE) == FORBIDDEN


def test_received_is_remembered_over_a_restart() -> None:
    """Otherwise a late worker would get another error after a crash."""
    it, tokens = world("available")
    it.boot()
    assert it.refused(retraction("a", tokens["stale"]), BEE) == UNEXPECTED
    it, tokens = world("own")
    it.boot()
    it.retract("a", BEE, tokens["live"])
    assert it.live() == {}


def test_all_are_settled_or_none_and_the_first_refused_decides() -> None:
    """Half a retract would leave the worker with half a transaction."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.subscribe(ANT, 1)
    it.publish("a", "b", "c")
    owned = {item_id: item.holder for item_id, item in it.live().items()}
    mine = [item_id for item_id, holder in owned.items() if holder == BEE]
    (other,) = [item_id for item_id, holder in owned.items() if holder == ANT]

    def retract(*names: str) -> Retract:
        return Retract(NODE, tuple(Settlement(item_id=name) for name in names))

    assert it.refused(retract(mine[0], other, "none"), BEE) == FORBIDDEN
    assert it.refused(retract(mine[0], "none", other), BEE) == NOT_FOUND
    it.told(NotifyRetract)
    it.ask(retract(*mine), BEE)
    assert set(it.live()) == {other}
    (told,) = it.told(NotifyRetract)
    assert (told.to, set(told.item_ids)) == (BEE, set(mine))


@pytest.mark.parametrize("outcome", ItemOutcome)
def test_only_the_subscriber_that_had_it_is_told(outcome: ItemOutcome) -> None:
    """XEP-0254 §2.3, §2.4: only this subscriber is notified."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.subscribe(ANT)
    it.sent.clear()
    verdict(it, BEE, "", outcome)
    kind = NotifyRetract if outcome is ACCEPTED else NotifyUnlock
    (told,) = [one for one in it.sent if isinstance(one, NotifyRetract | NotifyUnlock)]
    assert told == kind(BEE, NODE, ("a",))


def test_who_wants_no_event_gets_none() -> None:
    """XEP-0060 §7.2: the requester says whether there are events."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.sent.clear()
    it.ask(Retract(NODE, (Settlement(item_id="a"),), notify=False), BEE)
    assert it.live() == {}
    assert it.sent == []


def test_another_holder_is_told_whatever_the_requester_wants() -> None:
    """It would go on working on an item that has ended."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    token = it.item("a").token
    it.sent.clear()
    it.ask(Retract(NODE, (Settlement(item_id="a", token=token),), notify=False), BEE_2)
    assert it.sent == [NotifyRetract(BEE, NODE, ("a",))]


def test_a_withdrawal_tells_nobody() -> None:
    """No worker had it."""
    it = World(PLAIN)
    it.publish("a")
    it.retract("a", OWNER)
    assert it.sent == []


def test_an_unlock_after_unsubscribing_is_accepted() -> None:
    """XEP-0254 §4: a worker that cannot go on unsubscribes, and then unlocks."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.unsubscribe(BEE)
    assert it.item("a").holder == BEE
    it.unlock("a", BEE)
    assert it.item("a").holder == ""


def test_a_deadline_that_nobody_has_looked_at_yet_does_not_undo_a_retract() -> None:
    """The lock ends when the service ends it; until then the token is the fence."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.now += 61
    it.retract("a", BEE, it.item("a").token)
    it.ask(Configure(NODE, {}), OWNER)
    assert it.stats()["accepted"] == 1


def test_a_stranger_does_not_learn_by_an_item_that_the_node_is_there() -> None:
    """Without a right to the node, a missing item is answered as a missing node, word
    by word.
    """
    it = World({})
    for request in (retraction("a"), Extend(NODE, 5.0, (("a", "t"),))):
        for jid, text in ((STRANGER, "no node 'orders'"), (OWNER, "no item 'a'")):
            with pytest.raises(Refusal, match=text) as caught:
                it.ask(request, jid)
            assert caught.value.condition == "item-not-found"
