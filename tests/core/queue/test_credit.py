"""Link credit: the limit of a gateway on what one subscriber gets (AMQP 1.0 §2.6.7)."""

import pytest

from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import Credit, Refusal
from qos.core.queue.results import CreditResult
from queue_world import ANT, BEE, BEE_2, NODE, PLAIN, World


@pytest.fixture
def world() -> World:
    return World(PLAIN)


def credit(world: World, limit: int, *, by: str = BEE, flush: bool = True) -> int:
    result = world.ask(Credit(NODE, limit), by, flush=flush)
    assert isinstance(result, CreditResult)
    return result.served


def subscribe(world: World, limit: int, by: str = BEE) -> None:
    """As a gateway does: the credit is there before the first dispatch."""
    world.subscribe(by, 10)
    credit(world, limit, by=by)


def test_nobody_gets_more_than_his_credit(world: World) -> None:
    subscribe(world, 2)
    world.publish("a", "b", "c")
    assert world.given() == [("a", BEE), ("b", BEE)]
    assert credit(world, 2) == 2
    assert world.given() == []
    credit(world, 3)
    assert world.given() == [("c", BEE)]


def test_without_credit_everything_goes_to_the_others(world: World) -> None:
    subscribe(world, 0)
    world.subscribe(ANT, 2)
    world.publish("a", "b")
    assert world.given() == [("a", ANT), ("b", ANT)]


def test_what_comes_back_does_not_give_credit_back(world: World) -> None:
    """The delivery was made: the receiver grants credit for the next one."""
    subscribe(world, 1)
    world.publish("a")
    world.unlock("a", BEE, "", ItemOutcome.RELEASED)
    assert world.given() == [("a", BEE)]
    credit(world, 2)
    assert world.given() == [("a", BEE)]


def test_less_credit_than_has_been_used_is_none(world: World) -> None:
    """A receiver takes credit back, or a link is drained."""
    subscribe(world, 2)
    world.publish("a", "b")
    assert credit(world, 0) == 2
    world.retract("a", BEE)
    world.publish("c")
    assert world.given() == [("a", BEE), ("b", BEE)]


def test_queue_requests_stays_the_limit_of_what_is_unsettled(world: World) -> None:
    world.subscribe(BEE, 1)
    credit(world, 5)
    world.publish("a", "b")
    assert world.given() == [("a", BEE)]
    world.retract("a", BEE)
    assert world.given() == [("b", BEE)]


def test_credit_is_of_one_full_jid(world: World) -> None:
    subscribe(world, 0)
    subscribe(world, 1, BEE_2)
    world.publish("a", "b")
    assert world.given() == [("a", BEE_2)]


def test_credit_is_of_one_node(world: World) -> None:
    world.create("other", PLAIN)
    subscribe(world, 0)
    world.subscribe(BEE, 1, node="other")
    world.publish("a", node="other")
    assert world.given() == [("a", BEE)]


def test_only_a_subscriber_has_credit(world: World) -> None:
    """Otherwise it would stay for ever."""
    with pytest.raises(Refusal, match="not subscribed"):
        credit(world, 1)
    with pytest.raises(Refusal, match="no node"):
        world.ask(Credit("other", 1), BEE)


@pytest.mark.parametrize("leaves", [World.unsubscribe, World.departed])
def test_credit_ends_with_the_subscription(world: World, leaves: object) -> None:
    assert callable(leaves)
    subscribe(world, 0)
    leaves(world, BEE)
    world.publish("a")
    world.subscribe(BEE, 1)
    assert world.given() == [("a", BEE)]


def test_credit_is_never_stored(world: World) -> None:
    subscribe(world, 0)
    world.publish("a")
    world.boot()
    world.heard(BEE)
    assert world.given() == [("a", BEE)]


def test_whoever_does_not_need_the_session_stays_present_without_it(
    world: World,
) -> None:
    """The clients of a gateway: their connections are not those of the session."""
    for each in (BEE, ANT):
        world.subscribe(each, 1)
    world.core.forget_presence(keep=[BEE, "gone@x/1"])
    world.publish("a", "b")
    assert world.given() == [("a", BEE)]
