"""Lifetimes of nodes that links make (AMQP 1.0 messaging §3.5.9-13), and annotations."""

import itertools

import pytest

from qos.core.queue.effects import NotifyNode
from qos.core.queue.item import ItemOutcome
from qos.core.queue.lifetime import Lifetime, is_over
from qos.core.queue.requests import CloseLink, Create, OpenLink, Settlement, Unlock
from queue_world import ANT, BEE, OWNER, PUBLISHER, World

CLOSE, LINKS, MESSAGES, BOTH = Lifetime
MAKER = "boss@x/amqp-1"
OTHER = "boss@x/amqp-2"
NODE = "made"


@pytest.mark.parametrize(
    ("lifetime", "made_by", "links", "messages"),
    list(itertools.product(Lifetime, (True, False), (0, 2), (0, 3))),
)
def test_a_node_lives_as_long_as_its_policy_says(
    lifetime: Lifetime, made_by: bool, links: int, messages: int
) -> None:
    over = {
        CLOSE: not made_by,
        LINKS: not made_by and not links,
        MESSAGES: not made_by and not messages,
        BOTH: not made_by and not links and not messages,
    }[lifetime]
    found = is_over(lifetime, made_by=made_by, links=links, messages=messages)
    assert found is over


def made(lifetime: Lifetime) -> World:
    """A node that a link has made."""
    world = World()
    config = {"pubsub#access_model": "open", "pubsub#publish_model": "open"}
    create = Create(NODE, {**config, "queue#backoff": "0"}, lifetime)
    world.ask(create, OWNER, flush=False)
    world.ask(OpenLink(NODE, made=True), MAKER)
    return world


def there(world: World) -> bool:
    return NODE in world.core.nodes


@pytest.mark.parametrize("lifetime", Lifetime)
def test_no_policy_ends_a_node_before_the_link_that_made_it(lifetime: Lifetime) -> None:
    world = made(lifetime)
    world.wait(1000)
    assert there(world)
    world.ask(OpenLink(NODE), OTHER)
    world.ask(CloseLink(NODE), OTHER)
    assert there(world)
    world.ask(CloseLink(NODE), MAKER)
    assert not there(world)
    assert NODE not in world.disk.nodes


def test_delete_on_close_takes_items_and_subscribers(  # whoever is there is told
) -> None:
    world = made(CLOSE)
    world.subscribe(BEE, 1, node=NODE)
    world.publish("a", "b", node=NODE)
    world.ask(CloseLink(NODE), MAKER)
    assert not there(world)
    assert [each.to for each in world.told(NotifyNode)] == [BEE]


def test_delete_on_no_links_waits_for_links_and_subscriptions() -> None:
    world = made(LINKS)
    world.subscribe(BEE, 1, node=NODE)
    world.ask(OpenLink(NODE), OTHER)
    world.publish("a", node=NODE)
    world.ask(CloseLink(NODE), MAKER)
    assert there(world)
    world.departed(BEE)
    assert there(world)
    world.ask(CloseLink(NODE), OTHER)
    assert not there(world)


def test_delete_on_no_messages_waits_for_the_last_one() -> None:
    world = made(MESSAGES)
    world.subscribe(BEE, 1, node=NODE)
    world.publish("a", node=NODE)
    world.ask(CloseLink(NODE), MAKER)
    assert there(world)
    world.retract("a", BEE, node=NODE)
    assert not there(world)


def test_delete_on_no_links_or_messages_waits_for_both() -> None:
    world = made(BOTH)
    world.subscribe(BEE, 1, node=NODE)
    world.publish("a", node=NODE)
    world.ask(CloseLink(NODE), MAKER)
    world.unsubscribe(BEE, node=NODE)
    assert there(world)
    world.subscribe(ANT, 1, node=NODE)
    world.retract("a", BEE, node=NODE)
    assert there(world)
    world.unsubscribe(ANT, node=NODE)
    assert not there(world)


@pytest.mark.parametrize(
    ("lifetime", "stays"),
    [(CLOSE, False), (LINKS, False), (MESSAGES, True), (BOTH, True)],
)
def test_links_do_not_outlive_a_restart_and_messages_do(
    lifetime: Lifetime, stays: bool
) -> None:
    world = made(lifetime)
    world.publish("a", node=NODE)
    world.boot()
    world.flush()
    assert there(world) is stays


def test_a_node_without_a_policy_stays() -> None:
    world = World({})
    world.wait(1)
    assert world.core.nodes


def test_annotations_of_a_modified_item_stay_with_it() -> None:
    """Messaging §3.4.5; whatever outcome follows."""
    world = made(MESSAGES)
    world.subscribe(BEE, 1, node=NODE)
    world.publish("a", by=PUBLISHER, node=NODE)

    def modify(annotations: str) -> str:
        settlement = Settlement(
            item_id="a", outcome=ItemOutcome.MODIFIED, annotations=annotations
        )
        world.ask(Unlock(NODE, (settlement,)), BEE)
        return world.item("a", NODE).annotations

    assert world.item("a", NODE).annotations == ""
    assert modify("one") == "one"
    assert modify("") == "one"
    assert modify("two") == "two"
    world.boot()
    assert world.item("a", NODE).annotations == "two"


def test_only_the_first_link_has_made_a_node() -> None:
    """A second one of the same name would end the node when it is closed."""
    world = made(CLOSE)
    world.ask(OpenLink(NODE, made=True), OTHER)
    world.ask(CloseLink(NODE), OTHER)
    assert there(world)
