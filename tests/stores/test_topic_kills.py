"""A service is killed at each step of publishing to a topic: all copies, or no item."""

import asyncio
import pickle
from pathlib import Path

import pytest

from killed_runs import Runs
from qos.core.queue.effects import Change
from qos.core.queue.requests import Create, Publish, Request
from qos.stores.queue_store import SqliteQueueStore
from queue_world import BEE, OWNER, PLAIN, PUBLISHER, World, entry

TOPIC, QUEUES = "prices", ("audit", "mail")


def writes() -> list[list[Change]]:
    """The commits of a service with a topic, as the core decides them."""
    it, commits = World(), list[list[Change]]()

    def ask(*requests: tuple[Request, str]) -> None:
        for request, by in requests:
            it.ask(request, by, flush=False)
        it.add(it.core.dispatch(it.now))
        commits.append(list(it.pending))
        it.commit()

    topic = {**PLAIN, "queue#node_type": "topic", "queue#keep_items": "2"}
    ask(
        (Create(TOPIC, topic), OWNER),
        *((Create(name, {"queue#topic": TOPIC}), BEE) for name in QUEUES),
    )
    for ids in (("a",), ("b", "c"), ("d",)):
        ask((Publish(TOPIC, tuple(map(entry, ids))), PUBLISHER))
    return commits


async def stored(path: Path) -> set[str]:
    """The ids that were published, checked against the copies."""
    store = SqliteQueueStore(path)
    items = store.open().items
    try:
        ids: dict[str, set[str]] = {}
        for item in items:
            ids.setdefault(item.node, set()).add(item.item_id)
        published = ids.get(TOPIC, set()) | set(store.all_ended(TOPIC, "abcd"))
        assert {name: ids.get(name, set()) for name in QUEUES} == dict.fromkeys(
            QUEUES, published
        )
        assert len(store.payloads([item.seq for item in items])) == len(items)
    finally:
        await store.close()
    return published


@pytest.mark.crash
def test_after_a_kill_there_are_all_copies_or_no_item(ram_path: Path) -> None:
    """Also while an older item is dropped from the topic, which its copies outlive."""
    planned, step, alive = pickle.dumps(writes()), 0, False
    seen: set[str] = set()
    with Runs(Path(__file__).with_name("crashing_queue_writer.py")) as writer:
        while not alive:
            folder = ram_path / str(step)
            folder.mkdir()
            (folder / "writes").write_bytes(planned)
            alive = writer.survives(folder, step)
            seen.add("".join(sorted(asyncio.run(stored(folder / "store.db")))))
            step += 1
    # The publishes came together, and shared a commit.
    assert seen == {"", "abcd"}
    assert step > 40
