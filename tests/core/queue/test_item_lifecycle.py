"""Every state of an item, with everything that can happen to it."""

from dataclasses import replace

import pytest

from qos.core.queue import item_lifecycle
from qos.core.queue.item import EndedItem, Failure, Item, ItemOutcome, ItemState, Node
from qos.core.queue.item_lifecycle import HOLD_S_MAX, TRANSITIONS, ItemInput
from qos.core.queue.node_options import NodeOptions, node_options

AVAILABLE, ACQUIRED, ARCHIVED = ItemState
BEE = "bee@x/1"
FENCE, NEXT_FENCE = "t1", "t2"

ITEM = Item(
    seq=7,
    node="orders",
    item_id="a",
    publisher="shop@x",
    digest="d",
    size=3,
    published_at=100.0,
    available_at=100.0,
    expires_at=500.0,
)
LOCKED = replace(
    ITEM,
    state=ACQUIRED,
    receivers=frozenset({"bee@x"}),
    token=FENCE,
    holder=BEE,
    last_holder=BEE,
    durable=True,
    locked_at=100.0,
    deadline=160.0,
)
DEAD = replace(
    ITEM,
    state=ARCHIVED,
    outcome=ItemOutcome.REJECTED,
    delivery_count=5,
    ended_at=150.0,
    receivers=frozenset({"bee@x"}),
    history=(Failure(150.0, BEE, "failed"),),
)
ORDERS = Node(name="orders", identity="i", created_at=1.0)
OTHER = Node(name="other", identity="j", created_at=1.0, gen=3)
ITEMS = {AVAILABLE: ITEM, ACQUIRED: LOCKED, ARCHIVED: DEAD}

#: The results of state and input. A missing pair cannot happen.
TABLE = {
    (AVAILABLE, ItemInput.ACQUIRE): ACQUIRED,
    (AVAILABLE, ItemInput.EXPIRE): ARCHIVED,
    (AVAILABLE, ItemInput.WITHDRAW): ARCHIVED,
    (ACQUIRED, ItemInput.ACCEPT): ARCHIVED,
    (ACQUIRED, ItemInput.RELEASE): AVAILABLE,
    (ACQUIRED, ItemInput.MODIFY): AVAILABLE,
    (ACQUIRED, ItemInput.FAIL): AVAILABLE,
    (ACQUIRED, ItemInput.LOSE): AVAILABLE,
    (ACQUIRED, ItemInput.REJECT): ARCHIVED,
    (ACQUIRED, ItemInput.EXTEND): ACQUIRED,
    (ACQUIRED, ItemInput.WITHDRAW): ARCHIVED,
    (ARCHIVED, ItemInput.REQUEUE): AVAILABLE,
}


def options(**changes: str) -> NodeOptions:
    return node_options({f"queue#{name}": value for name, value in changes.items()})


def step(item: Item, input_: ItemInput, **given: object) -> Item:
    """The item after this."""
    now = 150.0
    match input_:
        case ItemInput.ACQUIRE:
            return item_lifecycle.acquired(
                item,
                holder=BEE,
                token=NEXT_FENCE,
                durable=False,
                now=now,
                timeout_s=60.0,
            )
        case ItemInput.ACCEPT:
            return item_lifecycle.accepted(item, now=now, keep_s=10.0)
        case ItemInput.EXTEND:
            return item_lifecycle.extended(
                item, by=BEE, seconds=90.0, now=now, timeout_s=60.0
            )
        case ItemInput.EXPIRE:
            return item_lifecycle.expired(item, now=now)
        case ItemInput.REQUEUE:
            return item_lifecycle.requeued(item, node=ORDERS, item_id="a")
    more = {"options": options(), "order": 3, **given}
    return item_lifecycle.given_back(item, input_, now=now, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("input_", ItemInput)
@pytest.mark.parametrize("state", ItemState)
def test_each_state_goes_where_the_table_says_or_cannot(
    state: ItemState, input_: ItemInput
) -> None:
    """An item in a state without a rule would be lost or doubled."""
    assert TRANSITIONS.get((state, input_)) is TABLE.get((state, input_))
    if input_ is ItemInput.WITHDRAW:
        return  # It is removed: no function returns that.
    if (state, input_) == (AVAILABLE, ItemInput.REQUEUE):
        # A dead letter has ended in its origin, and lives where it waits.
        assert step(ITEM, input_).state is AVAILABLE
        return
    if (state, input_) in TABLE:
        assert step(ITEMS[state], input_).state is TABLE[state, input_]
    else:
        with pytest.raises((KeyError, AssertionError)):
            step(ITEMS[state], input_)


def test_what_is_not_locked_has_no_token_and_no_holder() -> None:
    """A token that outlives its lock would let a late worker through."""
    for state, input_ in TABLE:
        if input_ is ItemInput.WITHDRAW:
            continue
        after = step(ITEMS[state], input_)
        lock = (after.token, after.holder, after.durable, after.locked_at)
        if after.state is ACQUIRED:
            assert after.token
            assert after.holder == BEE
            assert after.deadline > 150.0
        else:
            assert (*lock, after.deadline) == ("", "", False, 0.0, 0.0), input_


def test_payload_and_publisher_never_change() -> None:
    """AMQP 1.0 messaging §3.2: the bare message is immutable."""
    for state, input_ in TABLE:
        if input_ is not ItemInput.WITHDRAW:
            after = step(ITEMS[state], input_)
            assert (after.seq, after.publisher, after.digest) == (7, "shop@x", "d")
            assert (after.size, after.published_at) == (3, 100.0)


@pytest.mark.parametrize(
    ("input_", "count", "releases", "reason"),
    [
        (ItemInput.RELEASE, 1, 3, None),
        (ItemInput.MODIFY, 1, 3, None),
        (ItemInput.FAIL, 2, 0, "why"),
        (ItemInput.LOSE, 2, 0, None),
        (ItemInput.REJECT, 2, 2, "why"),
    ],
)
def test_what_fails_counts_and_what_is_released_does_not(
    input_: ItemInput, count: int, releases: int, reason: str | None
) -> None:
    """AMQP 1.0 messaging §3.2.1: prior unsuccessful deliveries, no others."""
    item = replace(LOCKED, delivery_count=1, releases=2)
    after = step(item, input_, reason="why")
    assert (after.delivery_count, after.releases) == (count, releases)
    expected = () if reason is None else (Failure(150.0, BEE, reason),)
    assert after.history == expected


@pytest.mark.parametrize(
    ("before", "dead"), [(0, False), (1, False), (2, True), (9, True)]
)
def test_the_third_failure_of_three_is_the_last(before: int, dead: bool) -> None:
    """With one more, a poisoned item meets another worker.

    With one less, fewer than agreed.
    """
    item = replace(LOCKED, delivery_count=before)
    after = step(item, ItemInput.FAIL, options=options(max_deliveries="3"))
    assert (after.state is ARCHIVED) is dead
    assert after.outcome is (ItemOutcome.REJECTED if dead else None)
    assert after.delivery_count == before + 1


def test_what_the_service_has_lost_is_told_and_kills_no_item() -> None:
    """The worker may have handled it; and it comes again at once."""
    once = options(max_deliveries="1", backoff="9")
    item = LOCKED
    for count in (1, 2, 3):
        after = step(item, ItemInput.LOSE, options=once)
        assert (after.state, after.delivery_count) == (AVAILABLE, count)
        assert after.lost == count
        assert not after.is_held_back(150.0)
        item = replace(LOCKED, delivery_count=after.delivery_count, lost=after.lost)
        released = step(item, ItemInput.RELEASE, options=once)
        assert (released.state, released.lost) == (AVAILABLE, count)
    last = step(item, ItemInput.FAIL, options=once)
    assert (last.state, last.delivery_count, last.lost) == (ARCHIVED, 4, 3)
    twice = options(max_deliveries="2", backoff="2")
    assert step(item, ItemInput.FAIL, options=twice).available_at == 152.0
    again = step(last, ItemInput.REQUEUE)
    assert (again.delivery_count, again.lost) == (0, 0)


@pytest.mark.parametrize("input_", [ItemInput.RELEASE, ItemInput.MODIFY])
def test_the_maximum_is_compared_at_each_unlock(input_: ItemInput) -> None:
    """docs/design/queue.md §5.3: it may be lower than at the last failure."""
    item = replace(LOCKED, delivery_count=3)
    after = step(item, input_, options=options(max_deliveries="3"))
    assert (after.state, after.delivery_count) == (ARCHIVED, 3)
    after = step(item, input_, options=options(max_deliveries="4"))
    assert (after.state, after.delivery_count) == (AVAILABLE, 3)


def test_the_delay_grows_with_failures_and_with_releases_in_a_row() -> None:
    """Otherwise an item that no worker can handle goes round as fast as the wire."""
    some = options(backoff="2", max_deliveries="100")
    for count, delay_s in ((0, 2.0), (1, 4.0), (2, 8.0), (50, 3600.0)):
        item = replace(LOCKED, delivery_count=count, releases=count)
        for input_ in (ItemInput.FAIL, ItemInput.RELEASE, ItemInput.MODIFY):
            after = step(item, input_, options=some)
            assert after.available_at == 150.0 + delay_s
    assert (
        step(LOCKED, ItemInput.RELEASE, options=options(backoff="0")).available_at
        == 150.0
    )


def test_a_backoff_of_more_than_an_hour_is_kept_and_does_not_grow() -> None:
    """The owner's setting overrides our cap."""
    item = replace(LOCKED, delivery_count=1)
    after = step(item, ItemInput.FAIL, options=options(backoff="5000"))
    assert after.available_at == 150.0 + 5000.0


def test_an_extension_moves_the_deadline_and_never_to_earlier() -> None:
    """A worker that asks for less must not lose time that it has."""

    def deadline(seconds: float, now: float, timeout_s: float = 60.0) -> float:
        after = item_lifecycle.extended(
            LOCKED, by=BEE, seconds=seconds, now=now, timeout_s=timeout_s
        )
        return after.deadline

    assert deadline(1.0, 150.0) == 160.0
    assert deadline(90.0, 150.0) == 240.0
    assert deadline(1e9, 150.0) == 100.0 + HOLD_S_MAX
    week = 7 * 24 * 3600.0
    assert deadline(1e9, 150.0, timeout_s=week) == 100.0 + week


def test_an_accepted_item_is_kept_for_as_long_as_was_asked() -> None:
    """For inspection, and no longer."""
    after = step(LOCKED, ItemInput.ACCEPT)
    assert (after.outcome, after.ended_at) == (ItemOutcome.ACCEPTED, 150.0)
    assert after.forget_at == 160.0
    assert step(LOCKED, ItemInput.REJECT).forget_at is None


def test_what_expires_says_so() -> None:
    """docs/design/queue.md §5.4: an expired item is dead, with that reason."""
    assert step(ITEM, ItemInput.EXPIRE).history == (Failure(150.0, "", "expired"),)


def test_an_exclusion_names_the_holder_and_the_oldest_are_forgotten() -> None:
    """Workers get new resources without end; the item must stay small."""
    after = step(LOCKED, ItemInput.MODIFY, excluded=True)
    assert after.excluded == {BEE}
    assert step(LOCKED, ItemInput.MODIFY).excluded == frozenset()
    many = frozenset(f"bee@x/{number}" for number in range(2, 101))
    after = step(replace(LOCKED, excluded=many), ItemInput.FAIL, excluded=True)
    assert after.excluded == many | {BEE}
    after = step(
        replace(LOCKED, excluded=after.excluded), ItemInput.FAIL, excluded=True
    )
    assert after.excluded == {BEE}


def test_of_many_failures_the_first_and_the_latest_are_kept() -> None:
    """The first one shows the cause; the item must stay small."""
    item = ITEM
    for number in range(30):
        item = replace(item, state=ACQUIRED, holder=BEE)
        item = item_lifecycle.given_back(
            item,
            ItemInput.FAIL,
            now=float(number),
            order=number,
            options=options(max_deliveries="1000"),
            reason=str(number),
        )
    reasons = [failure.reason for failure in item.history]
    assert reasons == ["0", *(str(number) for number in range(11, 30))]


def test_a_requeued_item_begins_again_with_its_history() -> None:
    """docs/design/queue.md §5.7: requeue restores the item, count 0, history kept."""
    item = replace(
        DEAD,
        excluded=frozenset({BEE}),
        last_holder=BEE,
        order=9,
        releases=4,
        forget_at=1.0,
        origin="old",
        origin_id="b",
        origin_identity="i",
    )
    after = item_lifecycle.requeued(item, node=OTHER, item_id="c")
    assert after == replace(
        ITEM,
        node="other",
        gen=3,
        item_id="c",
        expires_at=None,
        history=DEAD.history,
    )


def test_a_memory_has_the_token_only_of_one_who_settled_it() -> None:
    """No worker settled it after a purge or a time-out, so no worker can repeat that."""
    settled = item_lifecycle.ended(
        LOCKED, now=200.0, dedupe_s=10.0, by="bee@x/2", outcome=ItemOutcome.ACCEPTED
    )
    assert settled == EndedItem(
        seq=LOCKED.seq,
        node="orders",
        item_id="a",
        publisher="shop@x",
        digest="d",
        ended_at=200.0,
        forget_at=200.0 + 3600.0,
        token=FENCE,
        account="bee@x",
        outcome=ItemOutcome.ACCEPTED,
    )
    purged = item_lifecycle.ended(LOCKED, now=200.0, dedupe_s=7200.0)
    assert (purged.token, purged.account, purged.outcome) == ("", "", None)
    assert purged.forget_at == 200.0 + 7200.0
