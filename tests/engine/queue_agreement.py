"""Checks that a queue service agrees with its model, in memory and on disk."""

from qos.core.queue.effects import NotifyItem
from qos.core.queue.item import ItemState
from qos.core.queue.node import QueueNode
from qos.core.strings import bare
from queue_model import Model
from queue_world import World


def disk_agrees(model: Model, world: World) -> None:
    """After every commit disk, memory and model must agree."""
    disk = world.disk
    kept = {
        fact.seq: fact
        for fact in model.facts.values()
        if fact.live
        or fact.status == "dead"
        or (fact.status == "accepted" and model.keep_s and fact.ended_at >= 0)
    }
    assert disk.items.keys() == kept.keys(), "lost, or left over"
    assert disk.payloads.keys() == kept.keys()
    for seq, fact in kept.items():
        fact.same(disk.items[seq])
    for name, queue in world.core.nodes.items():
        for item in queue.items.values():
            assert disk.items[item.seq] == item
        assert queue.dead == len(world.dead(name))
        assert disk.nodes[name] == queue.node
        subscriptions = {
            key[1]: one for key, one in disk.subscriptions.items() if key[0] == name
        }
        assert subscriptions == queue.subscriptions
    assert disk.ended.keys() == model.ends.keys()
    for key, end in model.ends.items():
        found = disk.ended[key]
        assert (found.token, found.account) == (end.token, end.account)
        assert (found.outcome, found.ended_at) == (end.outcome, end.ended_at)
        assert (found.publisher, found.digest) == (end.publisher, end.digest)


def memory_agrees(model: Model, queue: QueueNode) -> None:
    """The contents of the node must be true, whether they are on disk yet or not."""
    name = queue.node.name
    live = model.live(name)
    assert queue.items.keys() == live.keys()
    for item_id, fact in live.items():
        fact.same(queue.items[item_id])
    assert queue.live.size == sum(fact.size for fact in live.values())
    assert queue.node.accepted == model.accepted[name]
    assert queue.subscriptions.keys() == model.wishes.get(name, {}).keys()
    holders = {fact.holder for fact in live.values() if fact.holder}
    assert queue.holders() == holders
    for jid in holders:
        locks = {item.item_id for item in queue.live.locks(jid)}
        assert locks == {
            fact.item_id
            for fact in live.values()
            if fact.holder == jid or (fact.durable and bare(fact.holder) == bare(jid))
        }
    for item in queue.items.values():
        acquired = item.state is ItemState.ACQUIRED
        assert queue.is_live(NotifyItem(item.holder, item).item) is acquired
