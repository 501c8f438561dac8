"""Repeated attempts, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qos.core.backoff import Backoff
from qos.engine.retry import Retry
from qos.errors import NoAnswer, RequestFailed, RequestRefused
from qos.testing.clock import ManualClock

BACKOFF = Backoff(first_s=1.0, max_s=8.0)
SILENCE = NoAnswer("nothing came", to="queues.example.org", what="publish")


def refusal(condition: str, kind: str) -> RequestRefused:
    return RequestRefused(
        condition,
        to="queues.example.org",
        by="queues.example.org",
        what="publish",
        type=kind,
    )


AWAY = refusal("service-unavailable", "cancel")
FULL = refusal("resource-constraint", "wait")
FORBIDDEN = refusal("forbidden", "auth")


class Service:
    """A service whose answers are known beforehand; the last one is success."""

    def __init__(self, *errors: RequestFailed) -> None:
        self.clock = ManualClock(100.0)
        self.asked_at: list[float] = []
        self._errors = list(errors)

    async def request(self) -> str:
        self.asked_at.append(self.clock.now())
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    async def pause(self, delay_s: float) -> None:
        self.clock.advance(delay_s)

    async def no_time(self, _delay_s: float) -> None:
        raise TimeoutError


def retry(*jitters: float) -> Retry:
    drawn = iter(jitters)
    return Retry(BACKOFF, jitter=lambda: next(drawn, 1.0))


async def test_delays_double_up_to_the_cap_until_the_request_succeeds() -> None:
    """A service that is away for long is asked less often."""
    service, again = Service(*[SILENCE] * 6), retry()
    done = await again.repeat(
        service.request, pause=service.pause, now=service.clock.now
    )
    assert done == "done"
    assert service.asked_at == [100, 101, 103, 107, 115, 123, 131]
    assert again.failures == 0


async def test_jitter_takes_its_part_of_each_delay() -> None:
    """So many clients of one service spread out."""
    service = Service(*[SILENCE] * 3)
    await retry(1.0, 0.75, 0.5).repeat(
        service.request, pause=service.pause, now=service.clock.now
    )
    assert service.asked_at == [100, 101, 102.5, 104.5]


async def test_a_refusal_that_will_not_pass_is_raised_at_once() -> None:
    """Even when an earlier attempt had no answer: this is the answer."""
    service = Service(SILENCE, FORBIDDEN)
    with pytest.raises(RequestRefused, match="forbidden"):
        await retry().repeat(
            service.request, pause=service.pause, now=service.clock.now
        )
    assert service.asked_at == [100, 101]


async def test_the_caller_says_which_errors_may_pass() -> None:
    """A publish of the plugin waits for an absent service, but not for a full one."""
    service = Service(AWAY, FULL)
    with pytest.raises(RequestRefused, match="resource-constraint"):
        await retry().repeat(
            service.request,
            is_temporary=lambda error: error.unreachable,
            pause=service.pause,
            now=service.clock.now,
        )
    assert service.asked_at == [100, 101]


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([AWAY, FULL, AWAY], AWAY),
        ([FULL, AWAY, SILENCE], SILENCE),
        ([AWAY, SILENCE, FULL], SILENCE),
    ],
)
async def test_when_attempts_run_out_one_without_an_answer_counts_most(
    errors: Sequence[RequestFailed], raised: RequestFailed
) -> None:
    """The request may have been done, and the caller must know that."""
    service = Service(*errors, SILENCE)
    with pytest.raises(RequestFailed) as failed:
        await retry().repeat(
            service.request,
            pause=service.pause,
            attempts_max=3,
            now=service.clock.now,
        )
    assert failed.value is raised
    assert service.asked_at == [100, 101, 103]


@pytest.mark.parametrize(
    ("give_up_at", "asked_at"),
    [(100.5, [100]), (101, [100]), (101.5, [100, 101]), (104, [100, 101, 103])],
)
async def test_no_attempt_begins_when_the_time_is_over(
    give_up_at: float, asked_at: list[float]
) -> None:
    """The caller gets the error before the delay, not after it."""
    service = Service(*[SILENCE] * 9)
    with pytest.raises(NoAnswer):
        await retry().repeat(
            service.request,
            pause=service.pause,
            give_up_at=give_up_at,
            now=service.clock.now,
        )
    assert service.asked_at == asked_at
    assert service.clock.now() == asked_at[-1]


async def test_a_pause_that_runs_out_of_time_ends_the_attempts() -> None:
    """The session did not come back in time."""
    service = Service(SILENCE, SILENCE)
    with pytest.raises(NoAnswer):
        await retry().repeat(
            service.request, pause=service.no_time, now=service.clock.now
        )
    assert service.asked_at == [100]


def test_failures_are_counted_from_the_last_success() -> None:
    """After a connection that held for a while, the next one is made soon."""
    again = retry()
    assert [again.failed() for _ in range(3)] == [1, 2, 4]
    again.succeeded()
    assert (again.failures, again.failed()) == (0, 1)


def test_other_delays_go_on_from_the_same_count() -> None:
    """The first connection has a shorter cap than those after it."""
    again = retry()
    again.failed()
    again.backoff = Backoff(first_s=10.0, max_s=100.0)
    assert again.failed() == 20
