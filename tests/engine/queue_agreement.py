"""Checks that a queue service agrees with its model, in memory and on disk."""

from qos.core.queue.effects import NotifyItem
from qos.core.queue.holders import resources
from qos.core.queue.item import ItemState
from qos.core.queue.stats import stats
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
    shown = {seq for seq, item in disk.items.items() if disk.is_shown(item)}
    assert shown == kept.keys(), "lost, or left over"
    assert disk.payloads.keys() == disk.items.keys()
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
    ends = {(end.node, end.item_id, end.token, end.seq): end for end in disk.all_ends()}
    assert ends.keys() == model.ends.keys()
    for key, end in model.ends.items():
        found = ends[key]
        assert (found.token, found.account) == (end.token, end.account)
        assert (found.outcome, found.ended_at) == (end.outcome, end.ended_at)
        assert (found.publisher, found.digest) == (end.publisher, end.digest)


def memory_agrees(model: Model, world: World, name: str) -> None:
    """The contents of the node must be true, whether they are on disk yet or not."""
    queue, items = world.core.nodes[name], world.live(name)
    live = model.live(name)
    assert items.keys() == live.keys()
    for item_id, fact in live.items():
        fact.same(items[item_id])
        assert queue.live.get(item_id) == items[item_id]
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


def counts_agree(world: World, name: str, now: float) -> None:
    """The kept counts of items must agree with a look at all of them."""
    queue, present = world.core.nodes[name], world.core.presence.present
    live, active = queue.live, queue.subscriptions.active()
    items = list(world.live(name).values())
    waiting = [each for each in items if not each.holder]
    ready = [
        each
        for each in waiting
        if not (
            each.is_held_back(now)
            # Or on disk, and nobody has seen yet that it is not held back any more.
            or (each.item_id not in queue.items and live.backlog._is_delayed(each))
        )
    ]
    selectors = {each.selector for each in active}
    unmatched = []
    if selectors and "" not in selectors and not live.ready.classifying:
        matches = live.ready.matches
        # What has become due is seen by selectors when a dispatch has found it.
        unmatched = [
            item
            for item in ready
            if item.item_id in live.ready._marks
            and not any(matches(one, item) for one in selectors)
        ]
    takers = [
        jid
        for each in active
        for jid in (
            [each.jid] if "/" in each.jid else resources(each, present) or [each.jid]
        )
        if live.ready.takes_excluding(jid)
    ]
    stuck = [item for item in waiting if item.excluded.issuperset(takers)]
    letters = [
        item
        for each in world.core.nodes
        for item in world.live(each).values()
        if item.origin_identity == queue.node.identity
    ]
    counted = sum(each.count for _, each in world.core.letters(name))
    found = stats(queue, present, letters=counted, copying=0, now=now)
    oldest = min((each.published_at for each in items), default=None)
    assert found == {
        **found,
        "available": len(ready),
        "acquired": len(items) - len(waiting),
        "delayed": len(waiting) - len(ready),
        "dead": queue.dead + len(letters),
        "oldest_seconds": None if oldest is None else round(now - oldest, 3),
        "bytes": sum(each.size for each in items),
        "excluded": sum(bool(each.excluded) for each in stuck) if active else 0,
        "unmatched": len(unmatched),
        "oversized": sum(map(live.ready.is_oversized, waiting)),
        "releases_most": max((each.releases for each in waiting), default=0),
    }
