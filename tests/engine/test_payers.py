"""Turns of the event loop: fair among payers by the time of their work, and short."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from qos.core.payers import Rates
from qos.engine.payers import STEP_S, TASKS_MAX, TURN_S, UNWRITTEN_MAX, Payers
from qos.steps import Steps
from waiting import limit

A, B = "a@example.org", "b@example.org"


class Time:
    """Seconds that go on when work is done, and not otherwise."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def payers(time: Time) -> Payers:
    return Payers(time)


async def run_all(payers: Payers) -> None:
    """Let the loop go round until all work is done."""
    for _ in range(1000):
        await asyncio.sleep(0)
        if not payers.waiting:
            return
    raise AssertionError("the work does not end")


def note(found: list[str], what: str) -> bool:
    """A step that is the last of its job."""
    found.append(what)
    return False


async def test_a_turn_ends_after_its_time_and_the_next_one_goes_on(
    payers: Payers, time: Time
) -> None:
    steps: list[float] = []

    def step() -> bool:
        time.now_s += 0.002
        steps.append(time.now_s)
        return len(steps) < 10

    payers.do(A, step)
    in_turns = []
    while payers.waiting:
        before = len(steps)
        await asyncio.sleep(0)
        in_turns.append(len(steps) - before)
    # 2 and 4 ms: the second step began before the end.
    assert in_turns == [2] * 5


async def test_a_dear_job_gets_no_more_time_than_cheap_ones(
    payers: Payers, time: Time
) -> None:
    """A slice that counts steps would give the dear one twenty times as much."""
    used = {A: 0.0, B: 0.0}

    def job(payer: str, seconds: float) -> None:
        def step() -> bool:
            time.now_s += seconds
            used[payer] += seconds
            return True

        payers.do(payer, step)

    job(A, 0.002)
    job(B, 0.0001)
    for _ in range(100):
        await asyncio.sleep(0)
    assert used[A] == pytest.approx(used[B], abs=0.01)


async def test_one_account_gets_one_share_with_however_many_jobs(
    payers: Payers, time: Time
) -> None:
    """Fifty connections of a flood by whatever door count as one payer."""
    used = {A: 0, B: 0}

    def step_of(payer: str) -> bool:
        time.now_s += 0.001
        used[payer] += 1
        return True

    for _ in range(50):
        payers.do(A, lambda: step_of(A))
    payers.do(B, lambda: step_of(B))
    for _ in range(100):
        await asyncio.sleep(0)
    assert abs(used[A] - used[B]) <= 1


async def test_the_loop_reads_between_turns(payers: Payers, time: Time) -> None:
    """With a real socket: endless work holds up nobody's bytes for more than a turn."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    turns: list[float] = []

    def step() -> bool:
        time.now_s += TURN_S
        turns.append(time.now_s)
        return True

    job = payers.do(A, step)
    with ours, theirs:
        for _ in range(20):
            # Begun before the byte is there: else it would be taken without the loop.
            reading = asyncio.create_task(loop.sock_recv(ours, 10))
            await asyncio.sleep(0)
            theirs.send(b"x")
            before = len(turns)
            async with limit():
                assert await reading == b"x"
            # A round of the loop in which the byte is seen, and those in which the two
            # tasks go on.
            assert len(turns) - before <= 5
    job.cancel()
    assert len(turns) >= 20


async def test_a_task_waits_for_its_turn_and_pays_for_it(
    payers: Payers, time: Time
) -> None:
    """One turn does not wake up all who wait: each of them is work of some length."""
    done: list[str] = []
    rounds: list[int] = []

    async def request(payer: str) -> None:
        await payers.turn(payer)
        time.now_s += 0.004
        done.append(payer)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(request(A))
        group.create_task(request(B))
        await asyncio.sleep(0)
        while payers.waiting:
            before = time.now_s
            await asyncio.sleep(0)
            rounds.append(round((time.now_s - before) * 1000))
    assert len(done) == 21
    assert done.index(B) <= 2
    assert max(rounds) <= TURN_S * 1000 + 4


async def test_a_turn_chooses_as_many_tasks_as_fit_into_it(
    payers: Payers, time: Time
) -> None:
    """A round of a busy loop takes long: with one task a round, few requests a second."""
    in_rounds: list[list[str]] = []

    async def request(payer: str, seconds: float) -> None:
        await payers.turn(payer)
        time.now_s += seconds
        in_rounds[-1].append(payer)

    async def rounds(*seconds: float) -> list[int]:
        in_rounds.clear()
        async with asyncio.TaskGroup() as group:
            for number, each in enumerate(seconds):
                group.create_task(request((A, B)[number % 2], each))
            while payers.waiting or sum(map(len, in_rounds)) < len(seconds):
                in_rounds.append([])
                await asyncio.sleep(0)
        return [len(tasks) for tasks in in_rounds if tasks]

    # Nothing is known of them: one a turn. Then each of them is known to be short.
    counts = await rounds(*[TURN_S / 10] * 100)
    assert counts[0] == 1
    assert max(counts) == counts[-2] == TASKS_MAX
    # Of two accounts that wait, neither has the whole of a turn.
    assert all(set(tasks) == {A, B} for tasks in in_rounds if len(tasks) == TASKS_MAX)
    # One that takes long is the last one that has others beside it.
    counts = await rounds(2 * TURN_S, *[TURN_S / 10] * 20)
    assert counts[0] == TASKS_MAX
    assert counts[1] == 1
    assert max(counts[1:]) <= 2


async def test_work_that_a_task_causes_later_takes_the_room_of_other_tasks(
    payers: Payers,
) -> None:
    """Of handshakes, 2 ms each, one begins in a turn; and its payer is charged."""
    rounds: list[list[str]] = [[]]

    async def task(payer: str, later_s: float) -> None:
        await payers.turn(payer, later_s)
        rounds[-1].append(payer)

    # It is known that tasks are short.
    for _ in range(100):
        await task(A, 0.0)
    rounds[:] = [[]]
    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(task(A, 0.002))
        for _ in range(50):
            group.create_task(task(B, 0.0))
        while payers.waiting or sum(map(len, rounds)) < 80:
            rounds.append([])
            await asyncio.sleep(0)
    assert max(tasks.count(A) for tasks in rounds) == 1
    assert sum(tasks.count(A) for tasks in rounds) == 30
    # They come first, since they cost nothing.
    assert max(n for n, tasks in enumerate(rounds) if B in tasks) < 20


async def test_dear_tasks_get_no_more_time_than_cheap_ones(
    payers: Payers, time: Time
) -> None:
    """Each task is charged what it has taken, whatever it was expected to take."""
    used = {A: 0.0, B: 0.0}

    async def request(payer: str, seconds: float) -> None:
        await payers.turn(payer)
        time.now_s += seconds
        used[payer] += seconds

    tasks = [asyncio.create_task(request(A, TURN_S)) for _ in range(100)]
    tasks += [asyncio.create_task(request(B, TURN_S / 10)) for _ in range(1000)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert used[B] > 10 * TURN_S
    assert used[A] == pytest.approx(used[B], abs=3 * TURN_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_work_in_steps_waits_for_a_turn_each_millisecond(
    payers: Payers, time: Time
) -> None:
    """Its payer is charged, and another one is served in between."""
    done: list[str] = []

    def steps(name: str, count: int) -> Steps[str]:
        for _ in range(count):
            time.now_s += STEP_S / 2
            done.append(name)
            yield
        return name

    async def work(payer: str, count: int) -> None:
        assert await payers.stepped(payer, steps(payer, count)) == payer

    async with asyncio.TaskGroup() as group:
        group.create_task(work(A, 40))
        group.create_task(work(B, 2))
    assert (done.count(A), done.count(B)) == (40, 2)
    assert done[:4] == [A, A, B, B]


async def test_short_work_in_steps_waits_for_nobody(
    payers: Payers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most messages are short."""
    monkeypatch.setattr(payers, "turn", None)

    def steps() -> Steps[int]:
        yield
        yield
        return 7

    assert await payers.stepped(A, steps()) == 7


async def test_a_task_that_is_cancelled_leaves_nothing(payers: Payers) -> None:
    task = asyncio.create_task(payers.turn(A))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with limit():
        await payers.turn(A)
    await asyncio.sleep(0)
    assert not payers.waiting


async def test_an_error_ends_its_job_only(
    payers: Payers, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def wrong() -> bool:
        raise ValueError("wrong")

    payers.do(A, wrong)
    payers.do(A, lambda: note(done, A))
    payers.do(B, lambda: note(done, B))
    await run_all(payers)
    assert sorted(done) == [A, B]
    assert "work for a@example.org has failed" in caplog.text


async def test_a_cancelled_job_does_no_more_steps(payers: Payers) -> None:
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        job.cancel()
        return True

    job = payers.do(A, step)
    other = payers.do(B, step)
    other.cancel()
    await run_all(payers)
    assert steps == 1


async def test_work_outside_of_turns_is_charged(payers: Payers, time: Time) -> None:
    order: list[str] = []
    payers.do(B, lambda: note(order, "before"))
    with payers.paid_by(A):
        time.now_s += 0.1
    payers.do(A, lambda: note(order, A))
    payers.do(B, lambda: note(order, B))
    await run_all(payers)
    assert order[-1] == A


async def test_who_is_over_its_rate_is_told_for_how_long(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    payers = Payers(time, Rates(requests=10, bytes=1000))
    assert payers.over(A) is None
    payers.take(A, requests=30)
    over = payers.over(A)
    assert over is not None
    assert (over.wait_s, over.rate) == (1.0, "10 requests")
    # It may send bytes that are no request.
    assert payers.over(A, requests=False) is None
    payers.take(A, size=4000)
    over = payers.over(A, requests=False)
    assert over is not None
    assert (over.wait_s, over.rate) == (2.0, "1000 bytes")
    assert payers.over(B) is None
    payers.take(A, size=-4000)
    assert payers.over(A, requests=False) is None
    # Once a minute.
    assert caplog.text.count("a@example.org sends more than 10 requests a second") == 1
    payers.limit(Rates(requests=0, bytes=0))
    assert payers.over(A) is None
    assert payers.rates == Rates(requests=0, bytes=0)


async def test_a_payer_gives_so_many_items_to_be_written_at_a_time(
    payers: Payers,
) -> None:
    """Everybody waits for what is written together."""
    gone_on: list[str] = []
    payers.writing(A, UNWRITTEN_MAX - 1)
    assert payers.may_write(A)
    payers.writing(A, 1)
    assert not payers.may_write(A)
    assert payers.may_write(B)
    for name in ("first", "second"):
        payers.when_written(A, partial(gone_on.append, name))
    payers.written(A, 1)
    assert gone_on == ["first", "second"]
    payers.written(A, UNWRITTEN_MAX - 1)
    assert gone_on == ["first", "second"]
    assert not payers._unwritten
