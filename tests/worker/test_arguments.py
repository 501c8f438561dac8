"""A wrong value for any argument of a worker or a job is refused, and is named."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Mapping, Sequence
from typing import get_type_hints

from slixmpp import ClientXMPP

from qos.core.queue.item import Disposition
from qos.worker import Job, NewItem, Queue, Worker, WorkerOptions
from wrong_values import NO_JIDS, NO_SECONDS, accepted, parameters_of
from xep_0254 import DeliveredItem

Wrong = Mapping[str, Sequence[object]]

#: Used only by the holder of a job, and by `async with`.
OF_THE_HOLDER = {"end_settling", "lose", "check_held"}


#: Of a worker, and of `Queue.run`.
WRONG_OPTIONS: Wrong = {
    "parallel": (0, -1),
    "batch": (0, -1, 2),
    "events": ("", "Message"),
    "selector": ("n >", "1 = 'a'"),
    "lock_timeout_s": (0, *NO_SECONDS),
    "resubscribe_s": (0, *NO_SECONDS),
    "grace_s": NO_SECONDS,
}


async def test_every_argument_of_a_worker_is_checked_and_nothing_is_left() -> None:
    """`parallel="8"` would fail at the first subscribe, in a task of its own."""
    client = ClientXMPP("bee@localhost/1", "secret")
    valid = {"client": client, "service": "queue.localhost", "node": "orders"}
    wrong: Wrong = {"service": NO_JIDS, "node": ("",), **WRONG_OPTIONS}
    tasks, plugins = asyncio.all_tasks(), list(client.plugin)
    assert await accepted(Worker, valid, wrong) == []
    assert list(client.plugin) == plugins
    worker = Worker(client, "queue.localhost", "orders")
    methods = {
        name
        for name, value in vars(Worker).items()
        if inspect.isfunction(value) and not name.startswith("_")
        if parameters_of(value)
    }
    assert methods == {"run", "recover", "take_at_most"}
    for name in ("run", "recover"):
        assert await accepted(getattr(worker, name), {}) == [], name
    count: Wrong = {"count": (-1, 2)}
    assert await accepted(worker.take_at_most, {"count": 1}, count) == []
    assert asyncio.all_tasks() == tasks
    client.plugin.disable("xep_0254")  # type: ignore[attr-defined]  # slixmpp's lack


async def test_every_argument_of_a_queue_is_checked_and_nothing_is_left() -> None:
    """A word of `create` that is misspelt would be an option that is not set."""
    client = ClientXMPP("bee@localhost/1", "secret")
    valid = {"session": client, "service": "queue.localhost", "node": "orders"}
    options = (
        {"lock_tiemout": "30"},
        {"queue#": "30"},
        {"pubsub#title": "Orders"},
        {"lock_timeout": 30},
        {"lock_timeout": "half a minute"},
        {"lock_timeout": "30", "access_model": "authorize"},
        {30: "lock_timeout"},
    )
    wrong: Wrong = {"service": NO_JIDS, "node": ("",), "create": options}
    tasks, plugins = asyncio.all_tasks(), list(client.plugin)
    assert await accepted(Queue, valid, wrong) == []
    assert list(client.plugin) == plugins
    for create in (False, True):
        queue = Queue(client, "queue.localhost", "orders", create=create)
        publish: Wrong = {
            "entries": ([], NewItem(), ["<a/>"]),
            "json": ({"a": {1}}, float("nan"), object()),
            "text": ("a\x00",),
            "attempts": (0, -1),
        }
        items = {"entries": [NewItem()]}
        assert await accepted(queue.publish, items, publish) == []
        assert await accepted(queue.create, {}, {"attempts": (0, -1)}) == []
        run = {"handler": print}
        assert await accepted(queue.run, run, WRONG_OPTIONS) == []
    methods = {
        name
        for name, value in vars(Queue).items()
        if inspect.isfunction(value) and not name.startswith("_")
        if parameters_of(value)
    }
    assert methods == {"create", "publish", "run"}
    assert asyncio.all_tasks() == tasks
    client.plugin.disable("xep_0254")  # type: ignore[attr-defined]  # slixmpp's lack


def test_the_options_of_run_are_those_of_a_worker() -> None:
    """An editor lists them; the others are parameters of `Queue` and `run`."""
    ours, wanted = get_type_hints(WorkerOptions), get_type_hints(Worker.__init__)
    own = {"client", "service", "node", "parallel", "return"}
    assert ours == {name: of for name, of in wanted.items() if name not in own}


class Holder:
    """Counts the requests to it."""

    service, node, account = "queue.localhost", "orders", "bee@localhost"
    asked = 0

    def settle(self, job: Job, _how: Disposition) -> None:
        self.asked += 1
        job.end_settling()

    async def extend(self, _job: Job, _seconds: float) -> float:
        self.asked += 1
        return 0.0

    def give_up(self, _error: BaseException) -> None:
        self.asked += 1


async def test_every_argument_of_a_job_is_checked_and_it_stays_held() -> None:
    """A job rejected by mistake would be gone."""
    holder = Holder()
    job = Job(DeliveredItem(item_id="i1", properties={"n": 1}), holder)
    assert job.properties == {"n": 1}
    table: dict[str, tuple[Mapping[str, object], Wrong]] = {
        "modify": ({}, {}),
        "reject": ({}, {}),
        "extend": ({"seconds": 5}, {"seconds": (0, *NO_SECONDS)}),
        "effects": ({"db": sqlite3.connect(":memory:")}, {}),
    }
    methods = {
        name
        for name, value in vars(Job).items()
        if inspect.isfunction(value) and not name.startswith("_")
        if parameters_of(value)
    }
    assert methods - OF_THE_HOLDER == set(table)
    for name, (valid, wrong) in table.items():
        assert await accepted(getattr(job, name), valid, wrong) == [], name
    assert holder.asked == 0
    assert job.held
    table["effects"][0]["db"].close()  # type: ignore[attr-defined]  # it is a connection
