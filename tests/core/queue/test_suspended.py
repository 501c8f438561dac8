"""Subscribers that are away for a while: suspended termini of AMQP 1.0 (§3.5.6)."""

import pytest

from qos.core.queue.effects import NotifyItem
from qos.core.queue.item import ItemState
from qos.core.queue.requests import Refusal, Suspend
from queue_world import ANT, BEE, NODE, PLAIN, World


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
