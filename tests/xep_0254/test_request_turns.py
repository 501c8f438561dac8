"""Requests by XMPP: a flooding account waits, in order and bounded; others are served."""

from __future__ import annotations

import asyncio

import pytest

from qos.core.strings import bare
from qos.engine.payers import STEP_S, TURN_S, Payers
from qos.steps import Steps
from xep_0254 import request_turns
from xep_0254.request_turns import RequestTurns, stepped

FLOOD, CALM = "mallory@example.org/x", "alice@example.org/x"


class Time:
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


@pytest.fixture
def turns(payers: Payers) -> RequestTurns:
    return RequestTurns(payers, {"example.org"})


async def test_a_request_is_done_at_once_while_nobody_waits(
    turns: RequestTurns,
) -> None:
    done: list[int] = []
    for number in range(100):
        assert turns.do(CALM, lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(100))


async def test_the_requests_of_a_flood_wait_in_order_while_others_are_served(
    turns: RequestTurns, payers: Payers, time: Time
) -> None:
    """However much comes in one read, it is done in turns of 5 ms."""
    done: list[str] = []

    def work(name: str) -> None:
        time.now_s += 0.001
        done.append(name)

    def send(requester: str, name: str) -> bool:
        return turns.do(requester, lambda: work(name))

    assert all(send(FLOOD, f"m{number}") for number in range(200))
    assert len(done) * 0.001 <= TURN_S + 0.001
    assert send(CALM, "a")
    turns.after(FLOOD, lambda: work("gone"))
    for _ in range(200):
        await asyncio.sleep(0)
    assert done.index("a") < 20
    assert [each for each in done if each != "a"] == [
        *(f"m{number}" for number in range(200)),
        "gone",
    ]
    assert not payers.waiting


async def test_other_jobs_of_an_account_do_not_hold_its_requests_up(
    turns: RequestTurns, payers: Payers, time: Time
) -> None:
    """Its requests by XMPP are one job, and each of its requests by HTTP is another."""
    done: list[str] = []

    def work(name: str) -> bool:
        time.now_s += STEP_S / 4
        done.append(name)
        return False

    payers.do(FLOOD, lambda: work("something else"))
    for number in range(8):
        turns.do(CALM, lambda number=number: work(f"xmpp {number}"))  # type: ignore[misc]
    for number in range(40):
        payers.do(bare(CALM), lambda number=number: work(f"http {number}"))  # type: ignore[misc]
    for _ in range(100):
        await asyncio.sleep(0)
    assert not payers.waiting
    assert [name for name in done if name.startswith("xmpp")] == [
        f"xmpp {number}" for number in range(8)
    ]
    # Four of them take a millisecond, and each has one of HTTP behind it.
    assert done.index("xmpp 3") < done.index("http 0")


async def test_too_many_requests_of_one_account_are_refused(
    turns: RequestTurns, time: Time
) -> None:
    def work() -> None:
        time.now_s += 0.01

    taken = [turns.do(FLOOD, work) for _ in range(2000)]
    assert sum(taken) == request_turns._WAITING_MAX + 1
    assert turns.do(CALM, work)


async def test_accounts_of_a_foreign_domain_have_one_turn_together(
    turns: RequestTurns, time: Time
) -> None:
    """It makes as many of them as it likes."""

    def work() -> None:
        time.now_s += 0.01

    taken = [turns.do(f"u{number}@evil.example/x", work) for number in range(2000)]
    assert sum(taken) == request_turns._WAITING_MAX + 1


async def test_all_that_wait_are_bounded(turns: RequestTurns, time: Time) -> None:
    def work() -> None:
        time.now_s += 0.01

    taken = [turns.do(f"u{number}@example.org/x", work) for number in range(6000)]
    assert sum(taken) == request_turns._ALL_WAITING_MAX + 1


async def test_an_error_in_one_request_lets_the_others_of_its_account_go_on(
    turns: RequestTurns, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def slow() -> None:
        time.now_s += 0.01

    def wrong() -> None:
        raise ValueError("wrong")

    turns.do(FLOOD, slow)
    turns.do(FLOOD, wrong)
    turns.do(FLOOD, lambda: done.append("next"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == ["next"]
    assert "could not be looked into" in caplog.text


async def test_a_request_in_steps_goes_on_before_the_next_of_its_account(
    turns: RequestTurns, payers: Payers, time: Time
) -> None:
    """And others are served between its steps."""
    done: list[str] = []

    def long() -> Steps[None]:
        for number in range(6):
            time.now_s += 0.001
            done.append(f"long {number}")
            yield
        done.append("long ends")

    assert turns.do(FLOOD, stepped(long()))
    assert done == ["long 0"], "its first step is done at once"
    assert turns.do(FLOOD, lambda: done.append("next"))
    assert turns.do(CALM, lambda: done.append("calm"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not payers.waiting
    own = [each for each in done if each != "calm"]
    assert own == [*(f"long {number}" for number in range(6)), "long ends", "next"]
    assert done.index("calm") < done.index("long 5")


async def test_an_error_in_a_step_ends_its_request_only(
    turns: RequestTurns, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def wrong() -> Steps[None]:
        time.now_s += 0.01
        yield
        raise ValueError("wrong")

    turns.do(FLOOD, stepped(wrong()))
    turns.do(FLOOD, lambda: done.append("next"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == ["next"]
    assert "could not be looked into" in caplog.text
