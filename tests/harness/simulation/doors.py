"""The doors in virtual time: hostile payers beside honest ones, and links of one name.

What runs is real: the turns of `qos.engine.payers`, the checks of passwords, the selectors
of an engine, and AMQP connections without sockets. Work takes time of the virtual clock,
by a meter of this module: nothing else happens meanwhile, as in a process with one thread.

    payers      jobs that take long, of many accounts; an honest one every 50 ms
    logins      guesses without end; honest logins every 100 ms
    selectors   dear selectors; an honest publisher
    names       a stranger takes the names of others' subscriptions in advance
    links       see `door_links`
    presence    see `presence_scene`
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from qos.core.queue import ready_items, selector_time
from qos.core.queue.node_options import NODE_TYPE, TOPIC
from qos.core.queue.requests import (
    Create,
    Publish,
    PublishedItem,
    Refusal,
    Request,
    Subscribe,
)
from qos.core.queue.results import Result
from qos.engine.payers import Payers
from qos.password_checks import PasswordChecks, TooBusy
from simulation import door_invariants as invariants
from simulation.door_links import links
from simulation.door_scene import Scene
from simulation.invariants import Violation
from simulation.presence_scene import presence

__all__ = ["violations"]

#: Seconds of virtual time of a scene, and between honest requests.
_LASTS_S = 1.5
_EVERY_S = 0.05

#: Hostile accounts, and seconds of a step of theirs that cannot be cut.
_HOSTILE, _STEP_S = 12, 0.015

#: Seconds of an honest step.
_HONEST_S = 0.001

#: Seconds of a hash, and guesses that are under way.
_HASH_S, _GUESSES = 0.05, 200

#: Seconds of an evaluation of a dear selector, and the items that it is evaluated for.
_EVALUATION_S, _ITEMS = 0.002, 1500

#: What the world of machines makes smaller.
_SLICE, _SELECTORS_S = ready_items.SLICE, selector_time.STEP_S


def violations(seed: int) -> list[Violation]:
    """Run the scenes with this seed, to the first violation."""
    for each in (payers, logins, selectors, names, links, presence):
        scene = Scene(seed)
        with scene.loop.running():
            each(scene)
            scene.finish()
        if scene.found:
            return scene.found
    return []


# -- turns -----------------------------------------------------------------


def payers(scene: Scene) -> None:
    """Hostile accounts have work without end, and an honest one little."""
    turns = Payers(scene.clock.now)
    until = scene.clock.now() + _LASTS_S

    def dear() -> bool:
        scene.works(_STEP_S * scene.random.random())
        return scene.clock.now() < until

    async def task(payer: str) -> None:
        while scene.clock.now() < until:
            await turns.turn(payer)
            scene.works(_STEP_S * scene.random.random())

    for number in range(_HOSTILE):
        payer = f"mallory{number}@x"
        if number % 3:
            turns.do(payer, dear)
        else:
            scene.task(task(payer))
    for number in range(int(_LASTS_S / _EVERY_S)):
        scene.loop.call_later(number * _EVERY_S, partial(_honest_job, scene, turns))
    scene.watch_turns(until, _STEP_S)
    scene.run(until + 1.0)


def _honest_job(scene: Scene, turns: Payers) -> None:
    answered, steps = scene.asks("a job"), iter(range(3))

    def step() -> bool:
        scene.works(_HONEST_S)
        if next(steps) < 2:
            return True
        answered()
        return False

    turns.do("alice@x", step)


# -- logins ----------------------------------------------------------------


def logins(scene: Scene) -> None:
    """One address guesses without end, and others log in."""
    checks = PasswordChecks()
    until = scene.clock.now() + _LASTS_S
    scene.loop.hash_s = _HASH_S

    async def guess() -> None:
        name = scene.random.choice(("alice", f"nobody{scene.random.randrange(99)}"))
        while scene.clock.now() < until:
            try:
                password = f"{scene.random.random()}"
                await checks.is_right(name, password, "right", address="192.0.2.6")
            except TooBusy:
                await asyncio.sleep(_EVERY_S)

    async def guess_beside(name: str) -> None:
        # Behind the same address there is an honest user.
        while scene.clock.now() < until:
            password = f"{scene.random.random()}"
            await checks.is_right(name, password, "right", address="192.0.2.7")

    async def log_in(name: str, number: int) -> None:
        answered = scene.asks("a login", invariants.HONEST_S_MAX + _HASH_S)
        address = f"198.51.100.{number % 5}" if number % 3 else "192.0.2.7"
        # Each is a user of its own, whose password was not checked before.
        hidden = f"right {name}{number}"
        await checks.is_right(name, hidden, hidden, address=address)
        answered()

    for _ in range(_GUESSES):
        scene.task(guess())
    for _ in range(_GUESSES // 10):
        scene.task(guess_beside("alice"))
    users = itertools.cycle(("bob", "carol"))
    for number in range(int(_LASTS_S / (2 * _EVERY_S))):
        begin = partial(log_in, next(users), number)
        scene.loop.call_later(number * 2 * _EVERY_S, _begin, scene, begin)
    scene.run(until + 1.0)


def _begin(scene: Scene, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    scene.task(begin())


# -- selectors -------------------------------------------------------------


@contextmanager
def _usual_slices() -> Iterator[None]:
    slice_, step_s = ready_items.SLICE, selector_time.STEP_S
    ready_items.SLICE, selector_time.STEP_S = _SLICE, _SELECTORS_S
    try:
        yield
    finally:
        ready_items.SLICE, selector_time.STEP_S = slice_, step_s


def selectors(scene: Scene) -> None:
    """Dear selectors are evaluated for many items, and somebody publishes beside."""
    with _usual_slices():
        _selectors(scene)


def _selectors(scene: Scene) -> None:
    looks = itertools.count()

    def meter() -> float:
        # Each second look is the end of an evaluation.
        if dear and next(looks) % 2:
            scene.works(_EVALUATION_S)
        return scene.clock.now()

    dear = False
    engine = scene.engine(meter=meter)

    def ask(
        request: Request, account: str, done: Callable[[], object] = lambda: None
    ) -> None:
        def answer(result: Result | Refusal, _payloads: object) -> None:
            assert not isinstance(result, Refusal), result
            done()

        engine.request(request, f"{account}/1", answer)

    ask(Create("lair"), "mallory@x")
    ask(Create("orders"), "alice@x")
    ids = map(str, itertools.count())
    for _ in range(_ITEMS // 100):
        ask(Publish("lair", tuple(_item(next(ids)) for _ in range(100))), "mallory@x")
    scene.run(scene.clock.now() + 1.0)
    dear = True
    before = engine.selector_time.taken
    until = scene.clock.now() + 2 * _LASTS_S
    for number in range(2):
        options = {
            "pubsub#queue_requests": "10",
            "queue#selector": f"note LIKE '%{number}_a'",
        }
        engine.request(
            Subscribe("lair", f"mallory@x/{number}", options),
            f"mallory@x/{number}",
            lambda *_: None,
        )

    def publish(number: int) -> None:
        entries = (_item(f"o{number}"),)
        ask(Publish("orders", entries), "alice@x", scene.asks("a post"))

    for number in range(int(2 * _LASTS_S / _EVERY_S)):
        scene.loop.call_later(number * _EVERY_S, partial(publish, number))
    # A dispatch has two parts, each with a bound of its own.
    scene.watch_turns(until, 4 * _EVALUATION_S)
    scene.run(until + 1.0)
    taken_s = engine.selector_time.taken - before
    scene.check(invariants.a_dear_selector_is_given_up, taken_s, _EVALUATION_S)


def _item(item_id: str) -> PublishedItem:
    return PublishedItem(
        item_id=item_id,
        payload="<x xmlns='urn:x'/>",
        digest=item_id,
        size=20,
        properties={"note": "aaa"},
    )


# -- names -----------------------------------------------------------------


def names(scene: Scene) -> None:
    """A stranger creates queues by the names that others will subscribe by."""
    engine = scene.engine()
    engine.request(Create("news", {NODE_TYPE: "topic"}), "mallory@x/1", lambda *_: None)
    accounts = ("bob@x", "mallory@x")
    for number in range(10):
        creator, owner = scene.random.choice(accounts), scene.random.choice(accounts)
        name = f"subscription/news/{owner}/{number}"
        config = {NODE_TYPE: "queue", TOPIC: "news"}
        engine.request(Create(name, config), f"{creator}/1", lambda *_: None)
        scene.run(scene.clock.now() + 0.1)
        by = engine.creator(name)
        if by is not None:
            scene.check(invariants.a_name_belongs_to_its_account, name, by)
