"""What the service's own connection loses counts against no XMPP worker."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.effects import NotifyUnlock
from qos.core.queue.item_lifecycle import HOLD_S_MAX
from qos.core.queue.requests import Configure, Extend, Publish, Refusal, Subscribe
from qos.core.queue.results import ExtendResult
from qos.engine.queue_engine import Unwritten
from queue_bench import BEE, NODE, OTHER_BEE, Bench, entry, opened
from waiting import until

LOCK_S = 10.0

#: Longer than a lock.
AWAY_S = 45

#: A consumer of a gateway, which has a connection of its own.
KIM = consumer_jid("kim@example.org", "http", "0" * 32)

#: Seconds after which a server that is there has answered.
ANSWER_S = 2


class LinkBench(Bench):
    """Its connection brings what the test says.

    Attributes:
        came_at: when it has brought something last.
        asked: how often the server was asked for a sign of life.
        alive: the server answers.
    """

    came_at = 1000.0
    asked = 0
    alive = True

    def silent_s(self) -> float:
        return self.clock.now() - self.came_at

    def ask_link(self) -> None:
        self.asked += 1

    def answers(self) -> None:
        """The server answers: nobody is meant, and something has come."""
        self.came_at = self.clock.now()
        self.engine.heard("example.org/x")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with opened(tmp_path / "queues.sqlite") as bench:
        await work(bench)
        yield bench


@pytest.fixture
async def linked(tmp_path: Path) -> AsyncIterator[LinkBench]:
    bench = LinkBench(tmp_path / "queues.sqlite")
    await bench.ready()
    await work(bench)
    yield bench
    await bench.engine.aclose()


async def work(bench: Bench, by: str = BEE) -> None:
    """A worker has the item `a`; one failure is its last."""
    config = {"queue#lock_timeout": f"{LOCK_S:g}", "queue#max_deliveries": "1"}
    await bench.ask(Configure(NODE, config))
    if by != BEE:
        bench.engine.departed(BEE)
        bench.clients.append(by)
        options = {"pubsub#queue_requests": "2"}
        await bench.ask(Subscribe(NODE, by, options, link=True), by)
    await bench.ask(Publish(NODE, (entry("a"),)))
    await until(lambda: "a" in bench.tokens)
    bench.out.clear()


async def passes(bench: Bench, seconds: int) -> None:
    """Time passes, and all that is due is done."""
    for _ in range(seconds):
        bench.clock.advance(1.0)
        await bench.stats()


async def extended(bench: Bench, by: str = BEE) -> bool:
    """Whether a worker has its lock for the whole time again."""
    request = Extend(NODE, LOCK_S, (("a", bench.tokens["a"]),))
    result = await bench.ask(request, by)
    return isinstance(result, ExtendResult) and result.seconds == LOCK_S


async def dead(bench: Bench) -> int:
    found = (await bench.stats())["dead"]
    assert isinstance(found, int)
    return found


async def test_a_lock_outlasts_a_lost_connection_of_the_service(bench: Bench) -> None:
    """The worker asked each second, and its server said that the service is away."""
    for _ in range(3):
        await passes(bench, 3)
        bench.engine.offline()
        await passes(bench, AWAY_S)
        bench.engine.online()
        await passes(bench, 3)
        assert await extended(bench)
    assert not [each for each in bench.out if isinstance(each, NotifyUnlock)]
    assert await dead(bench) == 0


async def test_what_was_left_of_a_lock_is_left_afterwards(bench: Bench) -> None:
    """A worker that has died does not keep its item for ever."""
    await passes(bench, 4)
    bench.engine.offline()
    await passes(bench, AWAY_S)
    bench.engine.online()
    await passes(bench, 5)
    assert await dead(bench) == 0
    await passes(bench, 2)
    assert await dead(bench) == 1


async def test_a_consumer_of_a_gateway_is_heard_meanwhile(tmp_path: Path) -> None:
    """Its lock ends in time, and lasts if it is extended."""
    async with opened(tmp_path / "queues.sqlite") as bench:
        await work(bench, KIM)
        bench.engine.offline()
        await passes(bench, int(LOCK_S) - 1)
        assert await extended(bench, KIM)
        await passes(bench, int(LOCK_S) - 1)
        assert await dead(bench) == 0
        await passes(bench, 2)
        assert await dead(bench) == 1


async def test_the_time_in_which_the_loss_was_not_noticed_counts_neither(
    linked: LinkBench,
) -> None:
    """With TCP alone it may take minutes."""
    await passes(linked, 3)
    linked.came_at = linked.clock.now()
    await passes(linked, AWAY_S)
    assert linked.asked
    linked.engine.offline(linked.silent_s())
    await passes(linked, AWAY_S)
    linked.answers()
    linked.engine.online()
    await passes(linked, int(LOCK_S) - 4)
    linked.answers()
    assert await extended(linked)
    assert await dead(linked) == 0


async def test_nobody_who_is_silent_keeps_an_item_on_a_quiet_connection(
    linked: LinkBench,
) -> None:
    """The server answers that it is there, and says nothing else."""
    await passes(linked, int(LOCK_S) + 1)
    assert linked.asked
    assert await dead(linked) == 0
    linked.answers()
    await passes(linked, 2)
    assert await dead(linked) == 1


@pytest.mark.parametrize("round_trip_s", [1, 4, 7])
async def test_nobody_who_is_silent_keeps_an_item_on_a_slow_connection(
    linked: LinkBench, round_trip_s: int
) -> None:
    """Each look found a stall, and the item was locked for ever."""
    answers_at, answered = math.inf, 0
    for _ in range(6 * int(LOCK_S)):
        await passes(linked, 1)
        now = linked.clock.now()
        if answers_at == math.inf and linked.asked > answered:
            answers_at = now + round_trip_s  # one question at a time is on its way
        if answers_at <= now:
            answers_at, answered = math.inf, linked.asked
            linked.answers()
        if await dead(linked):
            break
    assert await dead(linked) == 1


async def test_a_connection_that_carries_nothing_for_a_while_takes_nothing(
    linked: LinkBench,
) -> None:
    """What the worker said meanwhile comes in one piece, and perhaps behind the rest."""
    await passes(linked, 3)
    linked.came_at = linked.clock.now()
    await passes(linked, AWAY_S)
    linked.answers()
    await passes(linked, int(LOCK_S) - 4)
    linked.came_at = linked.clock.now()
    assert await extended(linked)
    await passes(linked, int(LOCK_S) - 1)
    linked.answers()
    assert await extended(linked)
    assert await dead(linked) == 0
    # And it counts no further than that.
    linked.came_at += LOCK_S + 1
    await passes(linked, int(LOCK_S) + 2)
    assert await dead(linked) == 1


async def test_an_extension_that_ends_the_silence_is_granted_once(
    linked: LinkBench,
) -> None:
    """Its lock lasts from then on, and no longer."""
    await passes(linked, AWAY_S)
    linked.came_at = linked.clock.now()
    assert await extended(linked)
    linked.came_at += LOCK_S + 1
    await passes(linked, int(LOCK_S) + 1)
    assert await dead(linked) == 1


async def test_a_start_without_a_session_takes_nothing(bench: Bench) -> None:
    await passes(bench, 3)
    await bench.restart()
    bench.engine.begin()
    await passes(bench, AWAY_S)
    bench.engine.online()
    await passes(bench, int(LOCK_S) - 4)
    assert await extended(bench)


@pytest.mark.parametrize("down_s", [5, AWAY_S])
async def test_a_service_that_is_down_takes_nothing(bench: Bench, down_s: int) -> None:
    """Its server answers the worker that it is away, as in a restart for an update."""
    for _ in range(3):
        await passes(bench, 3)
        assert await extended(bench)
        bench.clock.advance(1.0)
        await bench.restart(down_s)
        bench.clock.advance(2.0)
        bench.engine.online()
        await passes(bench, 3)
        assert await extended(bench)
    assert await dead(bench) == 0


async def test_a_worker_that_died_with_the_service_keeps_its_item_for_its_time(
    bench: Bench,
) -> None:
    """Both were on one machine. The service was there last when it gave the lock."""
    await bench.restart(AWAY_S)
    bench.engine.online()
    await passes(bench, int(LOCK_S) - 1)
    assert await dead(bench) == 0
    await passes(bench, 2)
    assert await dead(bench) == 1


async def test_what_a_link_held_when_the_service_died_has_not_failed(
    tmp_path: Path,
) -> None:
    """The service has lost the connection, and not the consumer."""
    async with opened(tmp_path / "queues.sqlite") as bench:
        await work(bench, KIM)
        await bench.restart(AWAY_S)
        bench.engine.online()
        await passes(bench, 1)
        stats = await bench.stats()
        assert (stats["dead"], stats["acquired"], stats["available"]) == (0, 0, 1)


async def test_what_was_given_back_is_on_disk(bench: Bench) -> None:
    await passes(bench, 3)
    bench.engine.offline()
    await passes(bench, AWAY_S)
    bench.engine.online()
    await bench.stats()
    await bench.restart()
    bench.engine.online()
    await passes(bench, int(LOCK_S) - 4)
    assert await extended(bench)


async def test_what_was_given_back_is_not_given_back_again(bench: Bench) -> None:
    """By a process that starts at once, before anything else was written."""
    await passes(bench, 3)
    bench.engine.offline()
    await bench.ask(Publish(NODE, (entry("b"),)))
    await passes(bench, AWAY_S)
    await bench.ask(Publish(NODE, (entry("c"),)))
    bench.engine.online()
    await bench.stats()
    await bench.restart()
    bench.engine.online()
    await passes(bench, int(LOCK_S) - 2)
    assert await dead(bench) == 1


async def test_a_service_that_ends_without_its_connection_takes_nothing(
    bench: Bench,
) -> None:
    """What it writes meanwhile, for a gateway, is no sign that workers are heard."""
    await passes(bench, 3)
    bench.engine.offline()
    for item_id in ("b", "c", "d"):
        await passes(bench, AWAY_S)
        await bench.ask(Publish(NODE, (entry(item_id),)))
        await bench.restart(AWAY_S)
        bench.engine.begin()
    bench.engine.online()
    await passes(bench, int(LOCK_S) - 4)
    assert await extended(bench)
    assert await dead(bench) == 0


async def test_a_service_that_ends_in_a_silence_takes_nothing(
    linked: LinkBench,
) -> None:
    """Its connection carries nothing any more, and it has not noticed that yet."""
    await passes(linked, 3)
    linked.came_at = linked.clock.now()
    await passes(linked, 5)
    await linked.ask(Publish(NODE, (entry("b"),)))
    await linked.restart(AWAY_S)
    linked.answers()
    linked.engine.online()
    await passes(linked, int(LOCK_S) - 6)
    linked.answers()
    await passes(linked, 2)
    assert await extended(linked)


async def test_what_could_not_be_written_is_given_back_later(bench: Bench) -> None:
    """The disk fails in the turn in which the session begins."""
    await passes(bench, 3)
    bench.engine.offline()
    await passes(bench, AWAY_S)
    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    bench.engine.online()
    assert isinstance(await bench.ask(Publish(NODE, (entry("b"),))), Unwritten)
    bench.disk.error = None
    bench.clock.advance(1.5)
    await passes(bench, int(LOCK_S) - 6)
    assert await extended(bench)


async def test_the_longest_hold_is_one_of_time_in_which_the_worker_could_speak(
    bench: Bench,
) -> None:
    """A day and an hour, of which the service was away for half."""
    bench.engine.offline()
    bench.clock.advance(HOLD_S_MAX)
    bench.engine.online()
    assert await extended(bench)


async def test_a_worker_that_came_later_has_lost_only_the_rest(bench: Bench) -> None:
    """Its lock began after the last word that was heard before the loss."""
    await passes(bench, 2)
    bench.engine.offline(silent_s=60.0)
    await passes(bench, AWAY_S)
    bench.engine.online()
    await passes(bench, int(LOCK_S) + 1)
    assert await dead(bench) == 1


async def test_two_losses_in_a_row_are_one(bench: Bench) -> None:
    """A session that is lost is told twice, at its end and at that of the stream."""
    bench.engine.offline()
    await passes(bench, AWAY_S)
    bench.engine.offline()
    bench.engine.online()
    await passes(bench, 3)
    assert await extended(bench)


async def test_nobody_else_gets_the_item_meanwhile(bench: Bench) -> None:
    options = {"pubsub#queue_requests": "1"}
    await bench.ask(Subscribe(NODE, OTHER_BEE, options), OTHER_BEE)
    bench.engine.offline()
    await passes(bench, AWAY_S)
    bench.engine.online()
    bench.engine.heard(OTHER_BEE)
    await passes(bench, 3)
    request = Extend(NODE, LOCK_S, (("a", bench.tokens["a"]),))
    assert isinstance(await bench.ask(request, OTHER_BEE), Refusal)
    assert await extended(bench)
