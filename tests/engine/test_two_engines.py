"""Both engines against a bad network, killed processes and a full disk, by seed."""

from collections import Counter

import pytest

from qos.core.message.model import Level, OutgoingState
from qos.core.quota import Quotas
from qos.engine import InboxLimits
from qos.testing.link import Link
from two_ends import World

MESSAGES = 40

#: The simulation tries far more; here a failure is easier to examine.
SEEDS = range(20)


def bad_link(seed: int) -> Link:
    return Link(seed, loss=0.1, duplicate=0.1, delay_s=(0.0, 0.3), cut=0.01)


def check(world: World, sent: dict[str, int]) -> None:
    """The promise of docs/levels.md#levels-and-guarantees, message by message."""
    handed = Counter(number for number, redelivered in world.handed if not redelivered)
    ever = Counter(number for number, _ in world.handed)
    for msg_id, number in sent.items():
        level = world.levels[msg_id]
        times, total = handed[str(number)], ever[str(number)]
        # None: the sender was killed between the end and its report.
        outcome = world.outcomes.get(msg_id)
        assert outcome is not None or world.events["sender killed"]
        if level is Level.ASSURED:
            assert times <= 1, f"{number} handed over {times} times without the mark"
        if outcome is OutgoingState.DELIVERED:
            assert total >= 1, f"{number} is said to be delivered and is not"
        if outcome is OutgoingState.NOT_DELIVERED:
            assert total == 0, f"{number} is said to be not delivered and is"


def never_in_doubt(world: World, sent: dict[str, int]) -> None:
    """Kills and a bad network alone leave no doubt.

    Everything written is still there.
    """
    for msg_id in sent:
        if world.levels[msg_id] is Level.ASSURED:
            assert world.outcomes.get(msg_id) is not OutgoingState.IN_DOUBT


async def finish(world: World) -> None:
    """A perfect network and enough time: every message ends."""
    world.link = Link(0)
    world.sender_store.disk.full = world.receiver_store.disk.full = False
    world.reconnect()
    await world.run(40)
    assert world.outbox.outstanding == 0
    assert not list(world.sender_store.outgoing())
    assert world.inbox.used() == (0, 0)
    world.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_message_ends_as_it_is_said_to_end(seed: int) -> None:
    """Loss, duplication, delay, cuts and kills at both ends, all at once."""
    world = World(seed, link=bad_link(seed))
    sent = {}
    for number in range(MESSAGES):
        level = world.random.choice([Level.ASSURED, Level.ASSURED, Level.ACKNOWLEDGED])
        delivery = await world.submit(number, level=level)
        if delivery is not None:
            sent[delivery.msg_id] = number
        chance = world.random.random()
        if chance < 0.15:
            world.soon(world.kill_sender)
        elif chance < 0.3:
            world.soon(world.kill_receiver)
        elif chance < 0.35:
            world.soon(world.reconnect)
        await world.run(world.random.random() * 0.2, step_s=0.002)
    await finish(world)
    check(world, sent)
    never_in_doubt(world, sent)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_lost_store_and_a_deadline_lead_to_no_false_outcome(seed: int) -> None:
    """The receiver's disk is replaced now and then.

    Doubt is allowed, a false outcome is not.
    """
    world = World(seed, link=bad_link(seed))
    sent = {}
    for number in range(MESSAGES):
        deadline_s = world.random.choice([None, 1.0])
        delivery = await world.submit(number, deadline_s=deadline_s)
        if delivery is not None:
            sent[delivery.msg_id] = number
        chance = world.random.random()
        if chance < 0.1:
            world.soon(world.wipe_receiver)
        elif chance < 0.2:
            world.soon(world.kill_sender)
        await world.run(world.random.random() * 0.2, step_s=0.002)
    await finish(world)
    check(world, sent)


@pytest.mark.parametrize("seed", range(10))
async def test_ordered_messages_arrive_in_order(seed: int) -> None:
    """Here messages end by delivery only, so none can overtake another."""
    world = World(seed, link=bad_link(seed))
    accepted = []
    for number in range(MESSAGES):
        level = world.random.choice([Level.ASSURED, Level.ACKNOWLEDGED])
        if await world.submit(number, level=level, ordered=True):
            accepted.append(number)
        if world.random.random() < 0.1:
            world.soon(world.kill_sender)
        await world.run(0.05, step_s=0.005)
    await finish(world)
    first_time = list(dict.fromkeys(int(number) for number, _ in world.handed))
    assert first_time == sorted(first_time)
    assert set(accepted) <= set(first_time)


@pytest.mark.parametrize("seed", range(10))
async def test_a_receiver_with_little_room_gets_everything_in_the_end(
    seed: int,
) -> None:
    """Resource-constraint narrows the window, and loses nothing."""
    limits = InboxLimits(quotas=Quotas(messages=3), hold_ttl_s=30.0)
    world = World(seed, link=Link(seed, loss=0.05), limits=limits)
    sent = {}
    for number in range(MESSAGES):
        delivery = await world.submit(number)
        assert delivery is not None
        sent[delivery.msg_id] = number
    await world.run(30)
    await finish(world)
    check(world, sent)
    assert set(world.outcomes.values()) == {OutgoingState.DELIVERED}
    assert world.events["resource-constraint"] > 0


@pytest.mark.parametrize("seed", range(10))
async def test_ordered_messages_do_not_take_the_room_of_those_before_them(
    seed: int,
) -> None:
    """A peer that holds only later messages could never release any of them."""
    limits = InboxLimits(quotas=Quotas(messages=2))
    world = World(seed, link=Link(seed, loss=0.3), limits=limits)
    for number in range(10):
        assert await world.submit(number, ordered=True)
    await world.run(60)
    await finish(world)
    assert set(world.outcomes.values()) == {OutgoingState.DELIVERED}
    assert [int(number) for number, _ in world.handed] == list(range(10))


@pytest.mark.parametrize("seed", range(10))
async def test_a_full_disk_loses_nothing_that_was_accepted(seed: int) -> None:
    """Writes fail for a while, at either end, and work again."""
    world = World(seed, link=Link(seed, loss=0.05))
    sent = {}
    for number in range(MESSAGES):
        world.sender_store.disk.full = world.random.random() < 0.3
        world.receiver_store.disk.full = world.random.random() < 0.3
        delivery = await world.submit(number)
        if delivery is not None:
            sent[delivery.msg_id] = number
        await world.run(0.2, step_s=0.01)
    world.sender_store.disk.full = world.receiver_store.disk.full = False
    await finish(world)
    check(world, sent)
    assert 0 < len(sent) < MESSAGES
