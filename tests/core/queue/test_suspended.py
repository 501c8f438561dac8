"""Subscribers that are away for a while: suspended termini of AMQP 1.0 messaging §3.5.6."""

import pytest

from qos.core.queue.effects import NotifyItem
from qos.core.queue.item import ItemOutcome, ItemState
from qos.core.queue.requests import Delete, Refusal, Settlement, Suspend
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, World


@pytest.fixture
def world() -> World:
    world = World({**PLAIN, "queue#lock_timeout": "60"})
    world.subscribe(BEE, 2)
    return world


def suspend(world: World, seconds: float | None) -> None:
    world.ask(Suspend(NODE, seconds), BEE)


def test_whoever_is_away_gets_nothing_and_keeps_what_it_has(world: World) -> None:
    world.publish("a")
    suspend(world, 30)
    world.publish("b")
    world.wait(29)
    assert world.given() == [("a", BEE)]
    assert world.item("a").holder == BEE
    assert BEE in world.core.nodes[NODE].subscriptions


def test_whoever_comes_back_in_time_gets_it_again_with_its_token(world: World) -> None:
    """And nothing has failed."""
    world.publish("a")
    (first,) = world.told(NotifyItem)
    suspend(world, 30)
    world.wait(20)
    world.heard(BEE)
    (again,) = world.told(NotifyItem)
    assert (again.item.token, again.item.delivery_count) == (first.item.token, 0)
    world.wait(35)
    assert world.item("a").holder == BEE


def test_whoever_does_not_has_left_then(world: World) -> None:
    world.publish("a")
    suspend(world, 30)
    assert world.core.next_at() == world.now + 30
    world.wait(30)
    item = world.item("a")
    assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 1)
    assert BEE not in world.core.nodes[NODE].subscriptions


def test_the_time_begins_anew_with_each_time_away(world: World) -> None:
    suspend(world, 30)
    world.wait(20)
    world.heard(BEE)
    suspend(world, 30)
    world.wait(20)
    assert BEE in world.core.nodes[NODE].subscriptions
    world.wait(10)
    assert BEE not in world.core.nodes[NODE].subscriptions


def test_without_a_time_only_the_lock_ends(world: World) -> None:
    world.publish("a")
    suspend(world, None)
    world.wait(59)
    assert world.item("a").holder == BEE
    world.subscribe(ANT, 1)
    world.wait(1)
    assert world.item("a").holder == ANT
    world.wait(100_000)
    assert BEE in world.core.nodes[NODE].subscriptions


def test_leaving_ends_it_at_once(world: World) -> None:
    suspend(world, 30)
    world.departed(BEE)
    assert BEE not in world.core.nodes[NODE].subscriptions
    assert world.core.next_at() is None


def test_only_at_a_node_that_is_there(world: World) -> None:
    with pytest.raises(Refusal, match="no node"):
        world.ask(Suspend("other", 1), BEE)


# -- default outcomes (AMQP 1.0 messaging §3.3) ----------------------------


def suspend_with(
    world: World, outcome: ItemOutcome, seconds: float | None = 30
) -> None:
    """Suspend a worker, with a default outcome for the delivery of item a."""
    token = world.item("a").token
    default = Settlement(item_id="a", token=token, outcome=outcome)
    world.ask(Suspend(NODE, seconds, (default,)), BEE)


@pytest.mark.parametrize(
    ("outcome", "state", "count"),
    [
        (ItemOutcome.ACCEPTED, None, 0),
        (ItemOutcome.RELEASED, ItemState.AVAILABLE, 0),
        (ItemOutcome.REJECTED, ItemState.ARCHIVED, 1),
    ],
)
def test_what_it_had_ends_as_it_has_asked_for(
    world: World, outcome: ItemOutcome, state: ItemState | None, count: int
) -> None:
    """And what has no default outcome has failed."""
    world.publish("a", "b")
    suspend_with(world, outcome)
    # As a gateway does when its connection has ended as well.
    world.heard(BEE)
    suspend(world, 30)
    world.wait(30)
    found = [each for each in world.disk.items.values() if each.item_id == "a"]
    assert [(each.state, each.delivery_count) for each in found] == (
        [] if state is None else [(state, count)]
    )
    assert world.item("b").delivery_count == 1


def test_whoever_has_come_back_gets_no_default_outcome(world: World) -> None:
    """Its next link has asked for another one, or for none."""
    world.publish("a")
    suspend_with(world, ItemOutcome.RELEASED)
    world.subscribe(BEE, 2)
    suspend(world, 30)
    world.wait(30)
    assert world.item("a").delivery_count == 1


def test_a_default_outcome_is_of_one_delivery(world: World) -> None:
    """The item may be with another worker by then, or with nobody."""
    world.publish("a")
    suspend_with(world, ItemOutcome.ACCEPTED, 90)
    world.wait(60)
    assert world.item("a").delivery_count == 1
    world.subscribe(ANT, 1)
    world.wait(30)
    assert world.item("a").holder == ANT


def test_a_default_outcome_ends_with_its_node(world: World) -> None:
    world.publish("a")
    suspend_with(world, ItemOutcome.ACCEPTED)
    world.ask(Delete(NODE), OWNER)
    world.wait(30)
    assert not world.core.nodes
