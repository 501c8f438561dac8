"""Termini of links of gateways, in memory and durable (AMQP 1.0 messaging §3.5)."""

from dataclasses import replace

import pytest

from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import NotifyItem, Probe
from qos.core.queue.item import Affiliation, ItemState
from qos.core.queue.requests import (
    Delete,
    KeepTerminus,
    Refusal,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Suspend,
)
from qos.core.queue.terminus import ExpiryPolicy, Terminus, kept_for
from queue_world import ANT, BEE, BEE_2, NODE, OWNER, PLAIN, World

LINK = Terminus(
    jid=BEE,
    container="c",
    link="l",
    node=NODE,
    address=NODE,
    timeout_s=30,
    durability=1,
)

_CLOSE = ExpiryPolicy.CONNECTION_CLOSE


@pytest.fixture
def world() -> World:
    return World({**PLAIN, "queue#lock_timeout": "1000"})


def attach(world: World, terminus: Terminus = LINK) -> None:
    options = {"pubsub#queue_requests": "2"}
    world.ask(Subscribe(NODE, terminus.jid, options, link=True), terminus.jid)
    world.ask(KeepTerminus(terminus), terminus.jid)


def restart(world: World, seconds: float = 0.0) -> None:
    """The process is killed, and starts again after this time."""
    world.now += seconds
    world.boot()
    world.flush()


@pytest.mark.parametrize(
    ("policy", "timers"),
    [
        (ExpiryPolicy.LINK_DETACH, (True, True, True)),
        (ExpiryPolicy.SESSION_END, (False, True, True)),
        (ExpiryPolicy.CONNECTION_CLOSE, (False, False, True)),
        (ExpiryPolicy.NEVER, (False, False, False)),
    ],
)
def test_the_policy_says_what_starts_the_timer(
    policy: ExpiryPolicy, timers: tuple[bool, ...]
) -> None:
    found = [kept_for(policy, 7, ended) for ended in list(ExpiryPolicy)[:3]]
    assert found == [7 if runs else None for runs in timers]


def test_a_link_ends_with_the_process_and_its_delivery_is_lost(
    world: World,
) -> None:
    """Whoever it is: nobody is asked whether it is there.

    Its consumer may have handled it, and has done nothing wrong: the service has lost
    the link.
    """
    attach(world, replace(LINK, durability=0))
    world.publish("a")
    restart(world)
    item = world.item("a")
    assert (item.state, item.delivery_count, item.lost) == (ItemState.AVAILABLE, 1, 1)
    assert not item.is_held_back(world.now)
    assert BEE not in world.core.nodes[NODE].subscriptions
    assert world.core.termini == world.disk.termini == {}


def test_a_durable_terminus_outlives_the_process_with_its_locks(world: World) -> None:
    attach(world)
    world.publish("a")
    (first,) = world.told(NotifyItem)
    restart(world)
    assert world.core.tokens(NODE, BEE) == [first.item.token]
    assert world.core.termini.named(("bee@x", "c", "l")) == replace(
        LINK, until=world.now + 30
    )
    world.wait(29)
    attach(world)
    (again,) = world.told(NotifyItem)
    assert (again.item.token, again.item.delivery_count) == (first.item.token, 0)
    assert world.disk.termini == {BEE: LINK}
    world.wait(100)
    assert world.item("a").holder == BEE


def test_it_ends_where_nobody_comes_back_in_time(world: World) -> None:
    attach(world)
    world.publish("a")
    restart(world)
    world.wait(30)
    assert world.item("a").delivery_count == 1
    assert world.core.termini == world.disk.termini == {}
    assert BEE not in world.core.nodes[NODE].subscriptions


def test_a_timer_that_runs_is_not_begun_anew_by_a_restart(world: World) -> None:
    attach(world)
    world.ask(Suspend(NODE, 30), BEE)
    restart(world, 20)
    restart(world, 9)
    assert BEE in world.core.termini
    world.wait(1)
    assert world.core.termini == {}


def test_an_attach_stops_the_timer_on_disk_too(world: World) -> None:
    attach(world)
    world.ask(Suspend(NODE, 30), BEE)
    world.wait(20)
    world.heard(BEE)
    restart(world)
    world.wait(29)
    assert BEE in world.core.termini


def test_the_policy_never_has_no_timer_after_a_restart(world: World) -> None:
    attach(world, replace(LINK, policy=ExpiryPolicy.NEVER))
    restart(world)
    world.wait(1e6)
    assert BEE in world.core.termini
    assert BEE in world.core.nodes[NODE].subscriptions


def test_a_link_is_not_probed(world: World) -> None:
    attach(world, replace(LINK, policy=_CLOSE))
    world.subscribe(ANT, 1)
    restart(world)
    assert world.core.probes() == [Probe(ANT)]


def test_other_options_leave_a_link_a_link(world: World) -> None:
    attach(world)
    world.ask(SetOptions(NODE, BEE, {"pubsub#queue_requests": "1"}), BEE)
    assert world.core.nodes[NODE].subscriptions[BEE].link


def test_the_place_among_the_items_is_kept(world: World) -> None:
    copies = replace(LINK, copies=True, durability=2)
    world.ask(KeepTerminus(copies), BEE)
    world.ask(KeepTerminus(replace(copies, cursor=7)), BEE)
    restart(world)
    found = world.core.termini.named(copies.name)
    assert found is not None
    assert found.cursor == 7


def test_durability_can_be_lowered(world: World) -> None:
    attach(world)
    world.ask(KeepTerminus(replace(LINK, durability=0)), BEE)
    assert world.disk.termini == {}
    assert world.core.termini.keys() == {BEE}


def test_a_name_has_one_terminus(world: World) -> None:
    """The link that has it now is another one: the former has left."""
    attach(world)
    world.publish("a")
    attach(world, replace(LINK, jid=BEE_2))
    assert world.disk.termini.keys() == {BEE_2}
    assert world.core.nodes[NODE].subscriptions.keys() == {BEE_2}
    assert world.item("a").holder == BEE_2
    found = world.core.termini.named(LINK.name)
    assert found is not None
    assert found.jid == BEE_2


def test_an_account_has_only_so_many_durable_ones() -> None:
    bounds = QueueBounds(termini_per_account=1)
    world = World({**PLAIN}, bounds=bounds)
    attach(world)
    attach(world, replace(LINK, cursor=1))
    other = replace(LINK, jid=BEE_2, link="m")
    with pytest.raises(Refusal, match="as many durable termini"):
        attach(world, other)
    attach(world, replace(other, durability=0))
    world.departed(BEE)
    attach(world, other)


def test_it_ends_with_its_node(world: World) -> None:
    attach(world)
    attach(world, replace(LINK, jid=ANT, durability=0))
    world.ask(Delete(NODE), OWNER)
    assert world.core.termini == world.disk.termini == {}


def test_it_ends_with_the_rights_of_its_account(world: World) -> None:
    attach(world)
    affiliations = {"bee@x": Affiliation.OUTCAST}
    world.ask(SetAffiliations(NODE, affiliations), OWNER)
    assert world.core.termini == world.disk.termini == {}


def test_only_at_a_node_that_is_there(world: World) -> None:
    with pytest.raises(Refusal, match="no node"):
        world.ask(KeepTerminus(replace(LINK, node="other")), BEE)


def test_the_tokens_of_what_a_link_holds_are_known(world: World) -> None:
    """A gateway that takes a terminus over needs them."""
    attach(world)
    world.publish("a", "b", "c")
    held = [world.item(each).token for each in "ab"]
    assert world.core.tokens(NODE, BEE) == held
    assert world.core.tokens(NODE, ANT) == []
